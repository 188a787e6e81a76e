use super::Plan;

/// See [`Plan::may_alias`].
pub(super) fn may_alias(plan: &Plan, dst_base: usize, src_base: usize) -> bool {
    if plan.bytes == 0 {
        return false;
    }
    // Addresses are unsigned 64-bit, offsets signed: i128 holds every sum.
    let at = |base: usize, offset: isize| base as i128 + offset as i128;
    let (dst, src) = (plan.dst_range(), plan.src_range());
    if at(dst_base, dst.end) <= at(src_base, src.start) || at(src_base, src.end) <= at(dst_base, dst.start) {
        return false;
    }
    let period =
        (plan.dims.iter()).flat_map(|dim| [dim.dst.unsigned_abs(), dim.src.unsigned_abs()]).fold(0, gcd) as i128;
    if period == 0 {
        return true;
    }
    // Every unit starts at its side's first address modulo the period.
    let apart = (at(dst_base, plan.dst_offset) - at(src_base, plan.src_offset)).rem_euclid(period);
    let unit = plan.unit as i128;
    !(apart >= unit && period - apart >= unit)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
