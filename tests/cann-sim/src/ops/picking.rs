//! Operators that pick elements by index tensors or masks.

use super::copy::copy;
use super::elementwise::{order, unary};
use super::glue::{Prepared, broadcast, dimension, refused, work};
use super::indexing::{indices, narrow};
use crate::dtype::{DType, Value};
use crate::error::SimError;
use crate::handles::{self, Object};
use crate::operators;
use crate::strided::{broadcast_shape, numel, row_major};
use crate::tensor::Tensor;
use std::ffi::c_void;

/// Advanced indexing: some dimensions are taken by index tensors, which broadcast together; the others stay. Where the
/// indexed dimensions are neighbours, the index's shape takes their place, otherwise it goes in front.
struct Picked {
    /// The dimensions that stay, as a view at the first element.
    rest: Tensor,
    /// (dimension, its indices)
    picks: Vec<(usize, Tensor)>,
    shape: Vec<i64>,
    at: usize,
}

impl Picked {
    fn new(a: &Tensor, list: Vec<Option<Tensor>>) -> Result<Self, SimError> {
        let given = |(d, t): (usize, Option<Tensor>)| {
            t.filter(|t| t.shape != [0] || a.shape.get(d) == Some(&0)).map(|t| (d, t))
        };
        let picks: Vec<_> = list.into_iter().enumerate().filter_map(given).collect();
        if let Some((_, t)) =
            picks.iter().find(|(d, t)| *d >= a.shape.len() || matches!(t.dtype, DType::BOOL | DType::UINT8))
        {
            return refused(format!(
                "index {} of {}; numbers for its dimensions are simulated",
                t.describe(),
                a.describe()
            ));
        }
        let mut shape = Vec::new();
        for (_, t) in &picks {
            match broadcast_shape(&shape, &t.shape) {
                Some(wide) => shape = wide,
                None => return refused(format!("index {} does not broadcast with the others", t.describe())),
            }
        }
        let picked = |d: usize| picks.iter().any(|(p, _)| *p == d);
        let stay: Vec<usize> = (0..a.shape.len()).filter(|&d| !picked(d)).collect();
        let neighbours = picks.windows(2).all(|w| w[0].0 + 1 == w[1].0);
        let at = if neighbours { picks.first().map_or(0, |p| p.0) } else { 0 };
        let rest = Tensor {
            shape: stay.iter().map(|&d| a.shape[d]).collect(),
            strides: stay.iter().map(|&d| a.strides[d]).collect(),
            ..a.clone()
        };
        Ok(Self { rest, picks, shape, at })
    }

    /// Shape of the result.
    fn result(&self) -> Vec<i64> {
        [&self.rest.shape[..self.at], &self.shape, &self.rest.shape[self.at..]].concat()
    }

    /// Calls `visit(part of a, part of the result)` for every combination of indices.
    fn each(
        &self,
        a: &Tensor,
        result: &Tensor,
        mut visit: impl FnMut(Tensor, Tensor) -> Result<(), SimError>,
    ) -> Result<(), SimError> {
        let count = numel(&self.shape);
        let mut offsets = vec![0i64; count];
        for (d, index) in &self.picks {
            let Some(wide) = index.broadcast_to(&self.shape) else { return refused(index.describe()) };
            let values = indices(&wide, a.shape[*d])?;
            offsets.iter_mut().zip(values).for_each(|(o, i)| *o += i * a.strides[*d]);
        }
        let end = self.at + self.shape.len();
        let outside = |v: &[i64]| [&v[..self.at], &v[end..]].concat();
        let steps = row_major(&self.shape);
        for (i, offset) in offsets.into_iter().enumerate() {
            let mut place = result.clone();
            for (d, step) in steps.iter().enumerate() {
                place.offset += (i as i64 / step % self.shape[d]) * result.strides[self.at + d];
            }
            (place.shape, place.strides) = (outside(&result.shape), outside(&result.strides));
            let mut part = self.rest.clone();
            part.offset += offset;
            visit(part, place)?;
        }
        Ok(())
    }
}

/// Elements found by a mask fill the front of `out`; the number found becomes the handle's shape.
fn set_shape(handle: usize, shape: Vec<i64>) {
    // SAFETY: callers of operators with such outputs keep the handle until they have synchronized, to read the shape.
    if let Some(Object::Tensor(t)) = unsafe { handles::get_mut(handle as *mut c_void) } {
        t.strides = row_major(&shape);
        t.shape = shape;
    }
}

fn front(out: &Tensor, shape: Vec<i64>) -> Tensor {
    Tensor { strides: row_major(&shape), shape, ..out.clone() }
}

fn clamp(a: &Tensor, low: Option<Value>, high: Option<Value>, out: Tensor) -> Prepared {
    unary(a, out, move |x| {
        let x = low.filter(|l| order(x, *l).is_some_and(|o| o.is_lt())).unwrap_or(x);
        high.filter(|h| order(x, *h).is_some_and(|o| o.is_gt())).unwrap_or(x)
    })
}

/// Positions of what is not zero: a row for each, or (`by_dimension`) a row for each dimension.
fn nonzero(a: Tensor, out: Handle, by_dimension: bool) -> Prepared {
    // SAFETY: the interface promises a live handle or null.
    let target = unsafe { super::glue::tensor_argument("out", out)? };
    let handle = out as usize;
    work(&[&a.clone()], move || {
        let values = a.read_values()?;
        let found: Vec<i64> = (0..values.len()).filter(|&i| values[i].truth()).map(|i| i as i64).collect();
        let (count, rank) = (found.len() as i64, a.shape.len() as i64);
        let shape = if by_dimension { vec![rank, count] } else { vec![count, rank] };
        let at = |d: usize, i: i64| i / row_major(&a.shape)[d] % a.shape[d];
        let positions: Vec<i64> = if by_dimension {
            (0..a.shape.len()).flat_map(|d| found.iter().map(move |&i| at(d, i))).collect()
        } else {
            found.iter().flat_map(|&i| (0..a.shape.len()).map(move |d| at(d, i))).collect()
        };
        front(&target, shape.clone()).write_i64(&positions)?;
        set_shape(handle, shape);
        Ok(())
    })
}

/// A scalar that may be null.
///
/// # Safety
/// `handle` is null or live.
unsafe fn maybe(handle: *const c_void) -> Option<Value> {
    // SAFETY: the caller's promise.
    unsafe { handles::scalar(handle) }.map(|s| s.value)
}

type Handle = *mut c_void;
type MaybeScalar = *const c_void;

operators! {
    aclnnIndex, aclnnIndexGetWorkspaceSize(a: T, list: TL, out: T) {
        let picked = Picked::new(&a, list)?;
        if picked.result() != out.shape {
            return refused(format!("the indices give {:?}, not {}", picked.result(), out.describe()));
        }
        work(&[&out.clone(), &out.clone()], move || picked.each(&a, &out, |part, place| copy(&place, &part)))
    }
    aclnnIndexPutImpl, aclnnIndexPutImplGetWorkspaceSize(a: T, list: TL, values: T, accumulate: bool, check: bool) {
        let _ = check;
        let picked = Picked::new(&a, list)?;
        let Some(values) = values.broadcast_to(&picked.result()) else {
            return refused(format!("{} does not broadcast to {:?}", values.describe(), picked.result()));
        };
        work(&[&values.clone(), &values.clone()], move || picked.each(&a, &values, |part, value| {
            if !accumulate {
                return copy(&part, &value);
            }
            let sum = |(x, y): (Value, Value)| match (x, y) {
                (Value::Int(x), Value::Int(y)) => Value::Int(x + y),
                _ => Value::Float(x.re() + y.re()),
            };
            part.write_values(part.read_values()?.into_iter().zip(value.read_values()?).map(sum))
        }))
    }
    aclnnMaskedSelect, aclnnMaskedSelectGetWorkspaceSize(a: T, mask: T, out: Handle) {
        // SAFETY: the interface promises a live handle or null.
        let target = unsafe { super::glue::tensor_argument("out", out)? };
        let Some(shape) = broadcast_shape(&a.shape, &mask.shape) else {
            return refused(format!("{} does not broadcast with {}", mask.describe(), a.describe()));
        };
        let wide = Tensor { shape, ..a.clone() };
        let (a, mask, handle) = (broadcast(&a, &wide)?, broadcast(&mask, &wide)?, out as usize);
        work(&[&a.clone(), &mask.clone()], move || {
            let mask = mask.read_values()?;
            let found: Vec<Value> = a.read_values()?.into_iter().zip(mask).filter(|(_, m)| m.truth()).map(|(x, _)| x).collect();
            let shape = vec![found.len() as i64];
            front(&target, shape.clone()).write_values(found)?;
            set_shape(handle, shape);
            Ok(())
        })
    }
    aclnnNonzero, aclnnNonzeroGetWorkspaceSize(a: T, out: Handle) { nonzero(a, out, false) }
    aclnnNonzeroV2, aclnnNonzeroV2GetWorkspaceSize(a: T, out: Handle) { nonzero(a, out, true) }
    aclnnGather, aclnnGatherGetWorkspaceSize(a: T, dim: i64, index: T, out: T) {
        let dim = dimension(dim, a.shape.len())?;
        if index.shape != out.shape || a.shape.len() != index.shape.len() || a.shape.is_empty() {
            return refused(format!("{} by {} does not give {}", a.describe(), index.describe(), out.describe()));
        }
        work(&[&index.clone(), &out.clone(), &out.clone()], move || {
            let steps = row_major(&index.shape);
            let mut bytes = Vec::new();
            for (i, at) in indices(&index, a.shape[dim])?.into_iter().enumerate() {
                let mut element = a.clone();
                for (d, step) in steps.iter().enumerate() {
                    element.offset += if d == dim { at } else { i as i64 / step % index.shape[d] } * a.strides[d];
                }
                (element.shape, element.strides) = Default::default();
                bytes.extend(element.read_bytes()?);
            }
            out.write_bytes(&bytes)
        })
    }
    aclnnInplaceIndexCopy, aclnnInplaceIndexCopyGetWorkspaceSize(a: T, dim: i64, index: T, source: T) {
        let dim = dimension(dim, a.shape.len())?;
        if source.shape.get(dim) != Some(&(index.numel() as i64)) {
            return refused(format!("{} rows of {}", index.describe(), source.describe()));
        }
        work(&[&source.clone(), &source.clone()], move || {
            for (from, to) in indices(&index, a.shape[dim])?.into_iter().enumerate() {
                copy(&narrow(&a, dim, to, 1), &narrow(&source, dim, from as i64, 1))?;
            }
            Ok(())
        })
    }
    aclnnCumsum, aclnnCumsumGetWorkspaceSize(a: T, dim: i64, dtype: i32, out: T) {
        let _ = dtype;
        let dim = dimension(dim, a.shape.len())?;
        work(&[&a.clone(), &out.clone()], move || {
            let mut values = a.read_values()?;
            let size = a.shape.get(dim).map_or(1, |&n| n as usize);
            let step = row_major(&a.shape).get(dim).map_or(1, |&n| n as usize);
            for i in (0..values.len()).filter(|i| i / step % size.max(1) > 0) {
                values[i] = match (values[i], values[i - step]) {
                    (Value::Int(x), Value::Int(y)) => Value::Int(x + y),
                    (x, y) => Value::Float(x.re() + y.re()),
                };
            }
            out.write_values(values)
        })
    }
    aclnnClamp, aclnnClampGetWorkspaceSize(a: T, low: MaybeScalar, high: MaybeScalar, out: T) {
        // SAFETY: the interface promises live handles or null.
        let (low, high) = unsafe { (maybe(low), maybe(high)) };
        clamp(&a, low, high, out)
    }
    aclnnClampMin, aclnnClampMinGetWorkspaceSize(a: T, low: S, out: T) { clamp(&a, Some(low.value), None, out) }
    aclnnClampMax, aclnnClampMaxGetWorkspaceSize(a: T, high: S, out: T) { clamp(&a, None, Some(high.value), out) }
    aclnnConstantPadNd, aclnnConstantPadNdGetWorkspaceSize(a: T, pad: IA, value: S, out: T) {
        let rank = a.shape.len();
        let mut inside = Tensor { shape: a.shape.clone(), ..out.clone() };
        for (i, sides) in pad.chunks_exact(2).enumerate().take(rank) {
            let d = rank - 1 - i;
            if sides.iter().any(|&n| n < 0) || a.shape[d] + sides[0] + sides[1] != out.shape[d] {
                return refused(format!("{} padded by {pad:?} is not {}", a.describe(), out.describe()));
            }
            inside.offset += sides[0] * out.strides[d];
        }
        work(&[&a.clone(), &out.clone()], move || {
            out.write_values(std::iter::repeat_n(value.value, out.numel()))?;
            copy(&inside, &a)
        })
    }
    aclnnComplex, aclnnComplexGetWorkspaceSize(re: T, im: T, out: T) {
        super::elementwise::binary(&re, &im, out, |x, y| Value::Complex(x.re(), y.re()))
    }
}
