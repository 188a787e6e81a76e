//! Operators that make one element out of many.

use super::elementwise::{equal, order};
use super::glue::{Prepared, dimension, refused, work};
use crate::dtype::Value::{self, Float, Int};
use crate::error::SimError;
use crate::operators;
use crate::tensor::Tensor;
use std::cmp::Ordering;

/// `a` with the reduced dimensions last: each output element is made of a stretch of that many elements.
fn grouped(a: &Tensor, dims: &[i64]) -> Result<(Tensor, usize), SimError> {
    let rank = a.shape.len();
    let mut reduced = vec![dims.is_empty(); rank];
    for &dim in dims {
        let dim = dimension(dim, rank)?;
        if let Some(flag) = reduced.get_mut(dim) {
            *flag = true;
        }
    }
    let order: Vec<usize> = (0..rank).filter(|&d| !reduced[d]).chain((0..rank).filter(|&d| reduced[d])).collect();
    let pick = |from: &[i64]| order.iter().map(|&d| from[d]).collect::<Vec<_>>();
    let count = (0..rank).filter(|&d| reduced[d]).map(|d| a.shape[d] as usize).product();
    Ok((Tensor { shape: pick(&a.shape), strides: pick(&a.strides), ..a.clone() }, count))
}

fn reduce(a: &Tensor, dims: &[i64], out: Tensor, f: impl Fn(&[Value]) -> Value + Send + Sync + 'static) -> Prepared {
    let (a, count) = grouped(a, dims)?;
    if count == 0 && out.numel() > 0 {
        return work(&[&out.clone()], move || out.write_values(std::iter::repeat_n(f(&[]), out.numel())));
    }
    if out.numel() * count != a.numel() {
        return refused(format!("{} does not reduce to {}", a.describe(), out.describe()));
    }
    work(&[&a.clone(), &out.clone()], move || {
        let values = a.read_values()?;
        out.write_values(values.chunks_exact(count.max(1)).map(&f))
    })
}

fn sum(values: &[Value]) -> Value {
    if values.iter().all(|v| matches!(v, Int(_))) {
        return Int(values.iter().map(|v| v.int()).sum());
    }
    let re = values.iter().map(|v| v.re()).sum();
    match values.iter().any(|v| matches!(v, Value::Complex(..))) {
        true => Value::Complex(re, values.iter().map(|v| v.im()).sum()),
        false => Float(re),
    }
}

/// Where the largest (or smallest) value stands first; not-a-number wins.
fn extreme(values: &[Value], wanted: Ordering) -> usize {
    let mut best = 0;
    for (i, &value) in values.iter().enumerate().skip(1) {
        if values[best].re().is_nan() {
            break;
        }
        if value.re().is_nan() || order(value, values[best]) == Some(wanted) {
            best = i;
        }
    }
    best
}

fn extreme_of(wanted: Ordering) -> impl Fn(&[Value]) -> Value + Send + Sync + 'static {
    move |values| if values.is_empty() { Int(0) } else { values[extreme(values, wanted)] }
}

fn with_index(a: &Tensor, dim: i64, out: Tensor, indices: Tensor, wanted: Ordering) -> Prepared {
    let (a, count) = grouped(a, &[dim])?;
    work(&[&a.clone(), &out.clone()], move || {
        let values = a.read_values()?;
        let groups = || values.chunks_exact(count.max(1));
        out.write_values(groups().map(|g| g[extreme(g, wanted)]))?;
        indices.write_values(groups().map(|g| Int(extreme(g, wanted) as i128)))
    })
}

operators! {
    aclnnReduceSum, aclnnReduceSumGetWorkspaceSize(a: T, dims: IA, keep: bool, dtype: i32, out: T) {
        let _ = (keep, dtype);
        reduce(&a, &dims, out, sum)
    }
    aclnnMean, aclnnMeanGetWorkspaceSize(a: T, dims: IA, keep: bool, dtype: i32, out: T) {
        let _ = (keep, dtype);
        reduce(&a, &dims, out, |v| match sum(v) {
            Value::Complex(re, im) => Value::Complex(re / v.len() as f64, im / v.len() as f64),
            total => Float(total.re() / v.len() as f64),
        })
    }
    aclnnMax, aclnnMaxGetWorkspaceSize(a: T, out: T) { reduce(&a, &[], out, extreme_of(Ordering::Greater)) }
    aclnnMin, aclnnMinGetWorkspaceSize(a: T, out: T) { reduce(&a, &[], out, extreme_of(Ordering::Less)) }
    aclnnAmax, aclnnAmaxGetWorkspaceSize(a: T, dims: IA, keep: bool, out: T) {
        let _ = keep;
        reduce(&a, &dims, out, extreme_of(Ordering::Greater))
    }
    aclnnAmin, aclnnAminGetWorkspaceSize(a: T, dims: IA, keep: bool, out: T) {
        let _ = keep;
        reduce(&a, &dims, out, extreme_of(Ordering::Less))
    }
    aclnnMaxDim, aclnnMaxDimGetWorkspaceSize(a: T, dim: i64, keep: bool, out: T, indices: T) {
        let _ = keep;
        with_index(&a, dim, out, indices, Ordering::Greater)
    }
    aclnnMinDim, aclnnMinDimGetWorkspaceSize(a: T, dim: i64, keep: bool, out: T, indices: T) {
        let _ = keep;
        with_index(&a, dim, out, indices, Ordering::Less)
    }
    aclnnArgMax, aclnnArgMaxGetWorkspaceSize(a: T, dim: i64, keep: bool, out: T) {
        let _ = keep;
        reduce(&a, &[dim], out, |v| Int(extreme(v, Ordering::Greater) as i128))
    }
    aclnnAll, aclnnAllGetWorkspaceSize(a: T, dims: IA, keep: bool, out: T) {
        let _ = keep;
        reduce(&a, &dims, out, |v| Int(v.iter().all(|x| x.truth()).into()))
    }
    aclnnAny, aclnnAnyGetWorkspaceSize(a: T, dims: IA, keep: bool, out: T) {
        let _ = keep;
        reduce(&a, &dims, out, |v| Int(v.iter().any(|x| x.truth()).into()))
    }
    aclnnEqual, aclnnEqualGetWorkspaceSize(a: T, b: T, out: T) {
        work(&[&a.clone(), &b.clone()], move || {
            let same = a.shape == b.shape && {
                let (a, b) = (a.read_values()?, b.read_values()?);
                a.iter().zip(&b).all(|(x, y)| equal(*x, *y))
            };
            out.write_values([Int(same.into())])
        })
    }
}
