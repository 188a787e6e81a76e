//! Dense transposes: the source runs unit by unit along one loop, the destination along another.
//!
//! A tile is gathered into a buffer in runs of whole cache lines, transposed there by registers, and laid down in runs of
//! whole cache lines. The detour through two buffers, which stay in the first-level cache, pays: rows a power of two apart
//! fall on the same few cache sets, so a tile worked on in place would be evicted line by line before it is used up.

use super::Tiled;
use super::vector::Vector;
use super::walk::walk;
use crate::plan::Dim;
use std::ptr::copy_nonoverlapping;

/// Bytes of the longer runs of a tile, two cache lines.
const RUN: usize = 128;
/// The most bytes of a tile, which two-byte units have: 64 runs of 64.
const TILE: usize = 64 * 64 * 2;

/// Whether the two loops of `tiled` are a dense transpose of units that registers hold.
pub(super) fn applies(tiled: &Tiled, unit: usize) -> bool {
    let dense = tiled.along.dst == unit as isize && tiled.across.src == unit as isize;
    // Below a vector each way, there is nothing to gain.
    let least = Vector::BYTES / 2;
    dense && matches!(unit, 1 | 2 | 4 | 8 | 16) && tiled.along.len * unit >= least && tiled.across.len * unit >= least
}

/// Moves units of `unit` bytes, one of 1, 2, 4, 8 and 16, over all loops of `tiled`.
///
/// # Safety
/// As [`lines::run`](super::lines::run), and [`applies`] must hold.
pub(super) unsafe fn run(tiled: &Tiled, unit: usize, dst: *mut u8, src: *const u8) {
    let mut buffers = Buffers { gathered: [0; TILE], turned: [0; TILE] };
    walk(&tiled.outer, |to, from| {
        let (dst, src) = (dst.wrapping_offset(to), src.wrapping_offset(from));
        let (along, across) = (&tiled.along, &tiled.across);
        // SAFETY: these are planes the loops reach.
        unsafe {
            match unit {
                1 => plane::<1, 16>(along, across, &mut buffers, dst, src),
                2 => plane::<2, 8>(along, across, &mut buffers, dst, src),
                4 => plane::<4, 4>(along, across, &mut buffers, dst, src),
                8 => plane::<8, 2>(along, across, &mut buffers, dst, src),
                _ => plane::<16, 1>(along, across, &mut buffers, dst, src),
            }
        }
    });
}

/// A tile before and after, each as rows of `side` units without gaps.
#[repr(align(64))]
struct Buffers {
    gathered: [u8; TILE],
    turned: [u8; TILE],
}

/// One transpose of `along.len` rows by `across.len` columns of the source; units of `N` bytes, `LANES` to a vector.
///
/// # Safety
/// As [`run`], for these two loops.
unsafe fn plane<const N: usize, const LANES: usize>(
    along: &Dim,
    across: &Dim,
    buffers: &mut Buffers,
    dst: *mut u8,
    src: *const u8,
) {
    let side = (RUN / N).min(64);
    for first_across in (0..across.len).step_by(side) {
        let columns = side.min(across.len - first_across);
        for first_along in (0..along.len).step_by(side) {
            let rows = side.min(along.len - first_along);
            let to = dst.wrapping_offset(across.dst * first_across as isize).wrapping_add(first_along * N);
            let from = src.wrapping_offset(along.src * first_along as isize).wrapping_add(first_across * N);
            // SAFETY: the tile lies within both loops, and a tile of side² units within the buffers.
            unsafe {
                copy_runs(buffers.gathered.as_mut_ptr(), (side * N) as isize, from, along.src, rows, columns * N);
                turn::<N, LANES>(buffers, side, rows, columns);
                copy_runs(to, across.dst, buffers.turned.as_ptr(), (side * N) as isize, columns, rows * N);
            }
        }
    }
}

/// Copies `runs` runs of `bytes`, each side at its own distance.
///
/// # Safety
/// The runs must be readable and writable, and must not overlap.
#[inline(always)]
unsafe fn copy_runs(dst: *mut u8, dst_step: isize, src: *const u8, src_step: isize, runs: usize, bytes: usize) {
    let ends =
        |run: usize| (dst.wrapping_offset(dst_step * run as isize), src.wrapping_offset(src_step * run as isize));
    for run in 0..runs {
        let (to, from) = ends(run);
        // SAFETY: as demanded of the caller. Whole tiles have one of two lengths, known here, so as not to call memcpy.
        unsafe {
            match bytes {
                64 => copy_nonoverlapping(from, to, 64),
                128 => copy_nonoverlapping(from, to, 128),
                _ => copy_nonoverlapping(from, to, bytes),
            }
        }
    }
}

/// Transposes the `rows` by `columns` units at the front of the gathered tile into the turned one, in whole blocks of
/// `LANES` squared: what the last blocks hold beyond the tile is never laid down.
#[inline(always)]
fn turn<const N: usize, const LANES: usize>(buffers: &mut Buffers, side: usize, rows: usize, columns: usize) {
    let pitch = side * N;
    for column in (0..columns).step_by(LANES) {
        for row in (0..rows).step_by(LANES) {
            // SAFETY: the side is a multiple of LANES, so blocks that start within the tile end within the buffer.
            unsafe {
                let from = buffers.gathered.as_ptr().add(row * pitch + column * N);
                let to = buffers.turned.as_mut_ptr().add(column * pitch + row * N);
                block::<N, LANES>(to, from, pitch);
            }
        }
    }
}

/// Transposes one block: `LANES` vectors of `LANES` units.
///
/// Number the units by row and column in binary. Zipping vector `i` with vector `i + LANES/2` for each `i` turns the bits
/// of that number by one place; after as many rounds as a lane number has bits, row and column have changed places.
///
/// # Safety
/// `LANES` vectors, `pitch` bytes apart, must be readable at `src` and writable at `dst`.
#[inline(always)]
unsafe fn block<const N: usize, const LANES: usize>(dst: *mut u8, src: *const u8, pitch: usize) {
    // SAFETY: as demanded of the caller.
    let mut vectors: [Vector; LANES] = std::array::from_fn(|row| unsafe { Vector::load(src.add(row * pitch)) });
    for _ in 0..LANES.ilog2() {
        let before = vectors;
        for pair in 0..LANES / 2 {
            (vectors[2 * pair], vectors[2 * pair + 1]) = before[pair].zip::<N>(before[pair + LANES / 2]);
        }
    }
    for (row, vector) in vectors.into_iter().enumerate() {
        // SAFETY: as demanded of the caller.
        unsafe { vector.store(dst.add(row * pitch)) };
    }
}
