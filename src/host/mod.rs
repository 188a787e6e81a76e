//! Running a plan on the CPU.
//!
//! Nothing here asks for alignment: every access is an unaligned one, so bases, strides and offsets may be any.

mod error;
mod fill;
mod lines;
mod tiles;
mod transpose;
mod unit;
mod vector;
mod walk;

use crate::plan::{Dim, Kind, Plan};
use std::ops::Range;

pub use error::RunError;

/// Runs `plan` on memory at `dst` and `src`: the storage pointers that the layouts' offsets refer to. Either may be
/// misaligned, and neither is touched by an empty plan.
///
/// # Safety
/// - Every byte of [`Plan::src_range`] from `src` that the source layout refers to must be readable and initialized, and
///   every byte of [`Plan::dst_range`] from `dst` that the destination layout refers to writable, for the whole call.
/// - The two must not share a byte ([`Plan::may_alias`]), and no other thread may access the destination's bytes or write
///   the source's meanwhile.
pub unsafe fn run(plan: &Plan, dst: *mut u8, src: *const u8) {
    // A base itself may lie outside of any allocation, where the offset leads into it: hence wrapping arithmetic.
    let dst = dst.wrapping_offset(plan.dst_offset());
    let src = src.wrapping_offset(plan.src_offset());
    let (dims, unit) = (plan.dims(), plan.unit());
    // SAFETY: the plan visits nothing but the elements of its layouts, which the caller vouches for. It has loops unless
    // it is empty or bulk.
    unsafe {
        match plan.kind() {
            Kind::Empty => {}
            Kind::Bulk => std::ptr::copy_nonoverlapping(src, dst, unit),
            Kind::Rows => lines::run(dims, unit, dst, src),
            Kind::Broadcast if dims.last().is_some_and(|dim| dim.src == 0) => fill::run(dims, unit, dst, src),
            Kind::Broadcast | Kind::Transpose | Kind::Gather => match tiled(dims, unit) {
                Some(tiled) if transpose::applies(&tiled, unit) => transpose::run(&tiled, unit, dst, src),
                Some(tiled) => tiles::run(&tiled, unit, dst, src),
                None => lines::run(dims, unit, dst, src),
            },
        }
    }
}

/// Runs `plan` from slice to slice; the layouts' base is the start of each slice.
///
/// # Errors
/// A plan that reaches outside of a slice. Nothing has been written then.
///
/// ```
/// use infini_rearrange::{host, layout::Layout, plan::Plan};
///
/// let src = [1u8, 2, 3, 4, 5, 6];
/// let transposed = Layout::new(&[3, 2], &[1, 3], 0, 1)?;
/// let plan = Plan::new(&Layout::contiguous(&[3, 2], 1)?, &transposed)?;
/// let mut dst = [0; 6];
/// host::run_checked(&plan, &mut dst, &src)?;
/// assert_eq!(dst, [1, 4, 2, 5, 3, 6]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn run_checked(plan: &Plan, dst: &mut [u8], src: &[u8]) -> Result<(), RunError> {
    if plan.bytes() == 0 {
        return Ok(());
    }
    if let Some((start, end)) = outside(plan.dst_range(), dst.len()) {
        return Err(RunError::Destination { start, end, given: dst.len() });
    }
    if let Some((start, end)) = outside(plan.src_range(), src.len()) {
        return Err(RunError::Source { start, end, given: src.len() });
    }
    // SAFETY: both ranges lie within their slices, and the borrow checker keeps a mutable slice from overlapping another.
    unsafe { run(plan, dst.as_mut_ptr(), src.as_ptr()) };
    Ok(())
}

/// The ends of `range` where it is not within `0..len`.
fn outside(range: Range<isize>, len: usize) -> Option<(isize, isize)> {
    let within = range.start >= 0 && range.end.unsigned_abs() <= len;
    if within { None } else { Some((range.start, range.end)) }
}

/// Loops in which two directions compete: the destination is densest along `along`, the source along `across`.
struct Tiled {
    along: Dim,
    across: Dim,
    /// All other loops, outermost first.
    outer: Vec<Dim>,
}

/// Whether small units are better moved in tiles, and in tiles of which two loops.
///
/// In lines along the destination's innermost loop every unit of the source costs a cache line of its own, unless the
/// source is densest along the same loop.
fn tiled(dims: &[Dim], unit: usize) -> Option<Tiled> {
    let (&along, outer) = dims.split_last()?;
    let (place, &across) =
        (outer.iter().enumerate()).filter(|(_, dim)| dim.src != 0).min_by_key(|(_, dim)| dim.src.unsigned_abs())?;
    if unit > Kind::SMALL_UNIT || across.src.unsigned_abs() >= along.src.unsigned_abs() {
        return None;
    }
    let mut outer = outer.to_vec();
    outer.remove(place);
    Some(Tiled { along, across, outer })
}
