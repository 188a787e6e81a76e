//! Walking over a strided view, innermost dimension as one run.

/// Strides of a row-major contiguous tensor, in elements.
pub fn row_major(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d] * shape[d].max(1);
    }
    strides
}

/// Elements of a shape.
pub fn numel(shape: &[i64]) -> usize {
    shape.iter().map(|&n| n.max(0) as usize).product()
}

/// Smallest and largest element position that a view touches, from its offset; `None` for a view without elements.
pub fn extent(shape: &[i64], strides: &[i64]) -> Option<(i64, i64)> {
    if shape.iter().any(|&n| n <= 0) {
        return None;
    }
    Some(shape.iter().zip(strides).fold((0, 0), |(low, high), (&n, &s)| {
        let reach = (n - 1) * s;
        (low + reach.min(0), high + reach.max(0))
    }))
}

/// Drops dimensions of size 1 and joins neighbours that lie behind one another, so that runs are as long as they can be.
/// The order of the elements stays the same.
pub fn merge(shape: &[i64], strides: &[i64]) -> (Vec<i64>, Vec<i64>) {
    let (mut sizes, mut steps): (Vec<i64>, Vec<i64>) = (Vec::new(), Vec::new());
    for (&n, &s) in shape.iter().zip(strides).filter(|(n, _)| **n != 1) {
        match (sizes.last_mut(), steps.last_mut()) {
            (Some(size), Some(step)) if *step == s * n => {
                *size *= n;
                *step = s;
            }
            _ => {
                sizes.push(n);
                steps.push(s);
            }
        }
    }
    if sizes.is_empty() {
        return (vec![1], vec![1]);
    }
    (sizes, steps)
}

/// Calls `visit(position, count, step)` for each innermost run, in logical row-major order: `count` elements, the first at
/// `position` (elements from the view's offset), each `step` elements after the one before.
pub fn runs(shape: &[i64], strides: &[i64], mut visit: impl FnMut(i64, usize, i64)) {
    if shape.iter().any(|&n| n <= 0) {
        return;
    }
    let (shape, strides) = merge(shape, strides);
    let inner = shape.len() - 1;
    let mut index = vec![0i64; inner];
    let mut position = 0;
    loop {
        visit(position, shape[inner] as usize, strides[inner]);
        let mut d = inner;
        loop {
            if d == 0 {
                return;
            }
            d -= 1;
            index[d] += 1;
            position += strides[d];
            if index[d] < shape[d] {
                break;
            }
            position -= strides[d] * shape[d];
            index[d] = 0;
        }
    }
}

/// Pieces of memory without a gap that a view consists of: what a device would fetch burst by burst.
pub fn bursts(shape: &[i64], strides: &[i64]) -> u64 {
    if shape.iter().any(|&n| n <= 0) {
        return 0;
    }
    let (shape, strides) = merge(shape, strides);
    let all: u64 = shape.iter().map(|&n| n as u64).product();
    match (shape.last(), strides.last()) {
        (Some(&n), Some(1)) => all / n as u64,
        _ => all,
    }
}

/// The shape that both broadcast to, or `None`.
pub fn broadcast_shape(a: &[i64], b: &[i64]) -> Option<Vec<i64>> {
    let rank = a.len().max(b.len());
    let at = |s: &[i64], d: usize| if d + s.len() < rank { 1 } else { s[d + s.len() - rank] };
    (0..rank)
        .map(|d| match (at(a, d), at(b, d)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}
