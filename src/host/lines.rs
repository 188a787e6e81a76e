//! Unit by unit along the destination's innermost loop: rows, and whatever has no better order.

use super::unit::{Unit, with_unit};
use super::walk::walk;
use crate::plan::Dim;

/// Moves units of `unit` bytes over all of `dims`.
///
/// # Safety
/// Every unit that the loops reach from `dst` and `src` must be writable and readable, and the sides must not overlap.
pub(super) unsafe fn run(dims: &[Dim], unit: usize, dst: *mut u8, src: *const u8) {
    let Some((line, outer)) = dims.split_last() else {
        return;
    };
    // SAFETY: as demanded of the caller.
    unsafe { with_unit!(unit, unit => copy_lines(line, outer, unit, dst, src)) }
}

/// [`run`] for one sort of unit.
///
/// # Safety
/// As [`run`].
unsafe fn copy_lines<U: Unit>(line: &Dim, outer: &[Dim], unit: U, dst: *mut u8, src: *const u8) {
    walk(outer, |to, from| {
        // SAFETY: these are units the loops reach.
        unsafe { copy_line(line, unit, dst.wrapping_offset(to), src.wrapping_offset(from)) }
    });
}

/// One line.
///
/// # Safety
/// As [`run`], for the one loop.
#[inline(always)]
unsafe fn copy_line<U: Unit>(line: &Dim, unit: U, mut dst: *mut u8, mut src: *const u8) {
    for _ in 0..line.len {
        // SAFETY: the loop's own units; stepping behind the last one wraps and is never read.
        unsafe { unit.copy(dst, src) };
        dst = dst.wrapping_offset(line.dst);
        src = src.wrapping_offset(line.src);
    }
}
