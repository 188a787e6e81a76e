//! Operators that pick, join and arrange elements.

use super::copy::copy;
use super::glue::{Prepared, broadcast, convertible, dimension, refused, work};
use crate::dtype::Value;
use crate::error::{SimError, code};
use crate::operators;
use crate::tensor::Tensor;

/// `count` members of dimension `dim` from `start` on.
pub fn narrow(t: &Tensor, dim: usize, start: i64, count: i64) -> Tensor {
    let mut part = t.clone();
    part.shape[dim] = count;
    part.offset += start * t.strides[dim];
    part
}

/// Joins along a dimension. The old rule that a one-dimensional empty tensor joins anything holds.
fn cat(list: Vec<Option<Tensor>>, dim: i64, out: Tensor) -> Prepared {
    let dim = dimension(dim, out.shape.len())?;
    let mut pieces = Vec::new();
    let mut start = 0;
    for tensor in list.into_iter().flatten().filter(|t| t.shape != [0]) {
        convertible(tensor.dtype, out.dtype)?;
        let Some(&count) = tensor.shape.get(dim).filter(|_| tensor.shape.len() == out.shape.len()) else {
            return refused(format!("{} does not join into {}", tensor.describe(), out.describe()));
        };
        let place = narrow(&out, dim, start, count);
        if place.shape != tensor.shape || start + count > out.shape[dim] {
            return refused(format!("{} does not join into {}", tensor.describe(), out.describe()));
        }
        start += count;
        pieces.push((place, tensor));
    }
    let touched: Vec<Tensor> = pieces.iter().flat_map(|(a, b)| [a.clone(), b.clone()]).collect();
    work(&touched.iter().collect::<Vec<_>>(), move || pieces.iter().try_for_each(|(to, from)| copy(to, from)))
}

/// Index values of a dimension of `size`, negative ones counted from its end.
///
/// # Errors
/// 507035 for an index outside, as the device finds it while running.
pub fn indices(index: &Tensor, size: i64) -> Result<Vec<i64>, SimError> {
    let wrap = |i: i64| {
        let at = if i < 0 { i + size } else { i };
        if (0..size).contains(&at) {
            return Ok(at);
        }
        Err(SimError::new(code::RT_VECTOR_CORE_EXCEPTION, format!("index {i} is outside a dimension of {size}")))
    };
    index.read_i64()?.into_iter().map(wrap).collect()
}

fn index_select(a: Tensor, dim: i64, index: Tensor, out: Tensor) -> Prepared {
    let dim = dimension(dim, a.shape.len())?;
    if out.shape.len() != a.shape.len() || out.shape.get(dim) != Some(&(index.numel() as i64)) {
        return refused(format!("{} of {} does not give {}", index.describe(), a.describe(), out.describe()));
    }
    work(&[&index.clone(), &out.clone(), &out.clone()], move || {
        for (to, from) in indices(&index, a.shape[dim])?.into_iter().enumerate() {
            copy(&narrow(&out, dim, to as i64, 1), &narrow(&a, dim, from, 1))?;
        }
        Ok(())
    })
}

/// Zero outside the triangle of column - row >= `low` and <= `high`.
fn triangle(a: Tensor, out: Tensor, low: i64, high: i64) -> Prepared {
    let Some(&[rows, columns]) = a.shape.last_chunk::<2>() else {
        return refused(format!("{} has no rows and columns", a.describe()));
    };
    work(&[&a.clone(), &out.clone()], move || {
        let keep = |(i, value): (usize, Value)| {
            let (row, column) = (i as i64 / columns % rows, i as i64 % columns);
            if (low..=high).contains(&(column - row)) { value } else { Value::Int(0) }
        };
        out.write_values(a.read_values()?.into_iter().enumerate().map(keep))
    })
}

operators! {
    aclnnCat, aclnnCatGetWorkspaceSize(list: TL, dim: i64, out: T) { cat(list, dim, out) }
    aclnnStack, aclnnStackGetWorkspaceSize(list: TL, dim: i64, out: T) {
        let at = dimension(dim, out.shape.len())?;
        let with_dim = |mut t: Tensor| {
            t.shape.insert(at, 1);
            t.strides.insert(at, 1);
            t
        };
        if list.iter().flatten().any(|t| t.shape.len() < at) {
            return refused(format!("dimension {dim} of the members"));
        }
        cat(list.into_iter().map(|t| t.map(with_dim)).collect(), dim, out)
    }
    aclnnIndexSelect, aclnnIndexSelectGetWorkspaceSize(a: T, dim: i64, index: T, out: T) {
        index_select(a, dim, index, out)
    }
    aclnnEmbedding, aclnnEmbeddingGetWorkspaceSize(weight: T, index: T, out: T) {
        let (wide, rows) = (weight.shape.get(1).copied().unwrap_or(1), index.numel() as i64);
        if !out.is_contiguous() || out.numel() as i64 != rows * wide {
            return refused(format!("{} must be contiguous and hold {rows} rows of {wide}", out.describe()));
        }
        let flat = Tensor { shape: vec![rows, wide], strides: vec![wide, 1], ..out };
        index_select(weight, 0, index, flat)
    }
    aclnnFlip, aclnnFlipGetWorkspaceSize(a: T, dims: IA, out: T) {
        let mut flipped = a.clone();
        for dim in dims {
            let dim = dimension(dim, a.shape.len())?;
            if a.numel() > 0 && dim < a.shape.len() {
                flipped.offset += (a.shape[dim] - 1) * flipped.strides[dim];
                flipped.strides[dim] = -flipped.strides[dim];
            }
        }
        work(&[&flipped.clone(), &out.clone()], move || copy(&out, &flipped))
    }
    aclnnTril, aclnnTrilGetWorkspaceSize(a: T, diagonal: i64, out: T) { triangle(a, out, i64::MIN, diagonal) }
    aclnnTriu, aclnnTriuGetWorkspaceSize(a: T, diagonal: i64, out: T) { triangle(a, out, diagonal, i64::MAX) }
    aclnnInplaceTril, aclnnInplaceTrilGetWorkspaceSize(a: T, diagonal: i64) { triangle(a.clone(), a, i64::MIN, diagonal) }
    aclnnInplaceTriu, aclnnInplaceTriuGetWorkspaceSize(a: T, diagonal: i64) { triangle(a.clone(), a, diagonal, i64::MAX) }
    aclnnRepeat, aclnnRepeatGetWorkspaceSize(a: T, repeats: IA, out: T) {
        let extra = repeats.len().saturating_sub(a.shape.len());
        let shape: Vec<i64> = std::iter::repeat_n(1, extra).chain(a.shape.iter().copied()).collect();
        let a = broadcast(&a, &Tensor { shape, ..a.clone() })?;
        // Every repeated dimension becomes two: the repetitions with stride 0, then the dimension itself.
        let (mut from, mut to) = (a.clone(), out.clone());
        (from.shape, from.strides, to.shape, to.strides) = Default::default();
        for (d, &times) in repeats.iter().enumerate() {
            from.shape.extend([times, a.shape[d]]);
            from.strides.extend([0, a.strides[d]]);
            to.shape.extend([times, a.shape[d]]);
            to.strides.extend([a.shape[d] * out.strides[d], out.strides[d]]);
        }
        if to.numel() != out.numel() {
            return refused(format!("{} repeated {repeats:?} times is not {}", a.describe(), out.describe()));
        }
        work(&[&from.clone(), &to.clone()], move || copy(&to, &from))
    }
}
