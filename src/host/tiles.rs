//! Small units, with the source and the destination densest along different loops.

use super::Tiled;
use super::unit::{Unit, with_unit};
use super::walk::walk;

/// Units along each side of a tile. The cache lines of one tile, at most 32 of the source and 32 runs of the destination,
/// stay in the first-level cache until all of their bytes have been used.
const SIDE: usize = 32;

/// Moves units of `unit` bytes over all loops of `tiled`, tile by tile.
///
/// # Safety
/// As [`lines::run`](super::lines::run).
pub(super) unsafe fn run(tiled: &Tiled, unit: usize, dst: *mut u8, src: *const u8) {
    // SAFETY: as demanded of the caller.
    unsafe { with_unit!(unit, unit => planes(tiled, unit, dst, src)) }
}

/// [`run`] for one sort of unit.
///
/// # Safety
/// As [`run`].
unsafe fn planes<U: Unit>(tiled: &Tiled, unit: U, dst: *mut u8, src: *const u8) {
    walk(&tiled.outer, |to, from| {
        // SAFETY: these are units the loops reach.
        unsafe { plane(tiled, unit, dst.wrapping_offset(to), src.wrapping_offset(from)) }
    });
}

/// The two loops of the tiles.
///
/// # Safety
/// As [`run`], for these two loops.
#[inline(always)]
unsafe fn plane<U: Unit>(tiled: &Tiled, unit: U, dst: *mut u8, src: *const u8) {
    let Tiled { along, across, .. } = tiled;
    for first_across in (0..across.len).step_by(SIDE) {
        let rows = SIDE.min(across.len - first_across);
        for first_along in (0..along.len).step_by(SIDE) {
            let columns = SIDE.min(along.len - first_along);
            for row in first_across..first_across + rows {
                let offset = |across: isize, along: isize| across * row as isize + along * first_along as isize;
                let mut to = dst.wrapping_offset(offset(across.dst, along.dst));
                let mut from = src.wrapping_offset(offset(across.src, along.src));
                for _ in 0..columns {
                    // SAFETY: both indices are within their loops.
                    unsafe { unit.copy(to, from) };
                    to = to.wrapping_offset(along.dst);
                    from = from.wrapping_offset(along.src);
                }
            }
        }
    }
}
