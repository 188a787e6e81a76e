//! One unit of the source many times: the innermost loop is a broadcast.

use super::lines;
use super::walk::walk;
use crate::plan::Dim;
use std::ptr::copy_nonoverlapping;

/// The longest piece that is copied at once: it stays in the first-level cache while it is read again.
const PIECE: usize = 4096;

/// Moves units of `unit` bytes over all of `dims`, of which the innermost has source stride 0.
///
/// A dense line is doubled: one unit, two, four, up to a piece that is then laid down again and again. This makes long
/// copies of the shortest units.
///
/// # Safety
/// As [`lines::run`].
pub(super) unsafe fn run(dims: &[Dim], unit: usize, dst: *mut u8, src: *const u8) {
    match dims.split_last() {
        Some((line, outer)) if line.dst == unit as isize => walk(outer, |to, from| {
            // SAFETY: the units of a dense line are one run of the destination.
            unsafe { fill_line(line.len * unit, unit, dst.wrapping_offset(to), src.wrapping_offset(from)) }
        }),
        // SAFETY: as demanded of the caller.
        _ => unsafe { lines::run(dims, unit, dst, src) },
    }
}

/// Fills `bytes` at `dst`, a multiple of `unit`, with the unit at `src`.
///
/// # Safety
/// `bytes` must be writable at `dst` and `unit` readable at `src`, apart from each other.
unsafe fn fill_line(bytes: usize, unit: usize, dst: *mut u8, src: *const u8) {
    // SAFETY: a piece is no longer than what has been filled before it and never reaches behind `bytes`. Pieces are whole
    // units, so the pattern goes on where the one before ended.
    unsafe {
        copy_nonoverlapping(src, dst, unit);
        let longest = unit * (PIECE / unit).max(1);
        let mut filled = unit;
        while filled < bytes {
            let piece = filled.min(longest).min(bytes - filled);
            copy_nonoverlapping(dst, dst.add(filled), piece);
            filled += piece;
        }
    }
}
