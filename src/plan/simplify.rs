use super::{Dim, Plan};
use std::cmp::Reverse;

/// Brings the loops of a plan with elements into canonical form.
///
/// The order of the loops is free, for no element depends on another. Turned forward and sorted by destination stride, loops
/// that are one run in memory become neighbours, so a single pass from the inside finds all merges, and the innermost
/// loop, if any, is the one that is contiguous on both sides.
pub(super) fn simplify(plan: &mut Plan) {
    for dim in &mut plan.dims {
        if dim.dst < 0 {
            // Start at the other end on both sides.
            let last = dim.len as isize - 1;
            plan.dst_offset += dim.dst * last;
            plan.src_offset += dim.src * last;
            dim.dst = -dim.dst;
            dim.src = -dim.src;
        }
    }
    plan.dims.sort_by_key(|dim| Reverse((dim.dst, dim.src.unsigned_abs())));
    merge(&mut plan.dims);
    let element = plan.element_size as isize;
    if let Some(&Dim { len, dst, src }) = plan.dims.last()
        && dst == element
        && src == element
    {
        plan.dims.pop();
        plan.unit = len * plan.element_size;
    }
}

/// Joins each loop with the one around it where a whole inner loop is exactly one outer step on both sides.
fn merge(dims: &mut Vec<Dim>) {
    let mut merged: Vec<Dim> = Vec::with_capacity(dims.len());
    // From the inside out, so that `merged` ends in the outermost loop so far.
    for outer in dims.drain(..).rev() {
        match merged.last_mut() {
            Some(inner) if steps(inner) == Some((outer.dst, outer.src)) => inner.len *= outer.len,
            _ => merged.push(outer),
        }
    }
    merged.reverse();
    *dims = merged;
}

/// How far a whole loop advances on each side; `None` beyond the addresses any outer loop could step by.
fn steps(dim: &Dim) -> Option<(isize, isize)> {
    let len = isize::try_from(dim.len).ok()?;
    Some((dim.dst.checked_mul(len)?, dim.src.checked_mul(len)?))
}
