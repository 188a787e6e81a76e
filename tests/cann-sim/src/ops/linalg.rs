//! Matrix products and softmax, accumulated in f32 at least.

use super::glue::{Prepared, broadcast, dimension, refused, work};
use crate::operators;
use crate::tensor::Tensor;
use std::sync::Arc;

/// The last two dimensions are multiplied, those before broadcast.
fn matmul(a: Tensor, b: Tensor, out: Tensor) -> Prepared {
    // A vector is a matrix of one row or one column, and that dimension is missing in the output.
    let insert = |mut t: Tensor, at: usize| {
        t.shape.insert(at, 1);
        t.strides.insert(at, 1);
        t
    };
    let (row, column) = (a.shape.len() == 1, b.shape.len() == 1);
    let mut wide = out;
    let a = if row { insert(a, 0) } else { a };
    let b = if column { insert(b, 1) } else { b };
    if column {
        let end = wide.shape.len();
        wide = insert(wide, end);
    }
    if row {
        let at = wide.shape.len().saturating_sub(1);
        wide = insert(wide, at);
    }
    let wrong = || format!("{} times {} does not give {}", a.describe(), b.describe(), wide.describe());
    let (Some(&[m, k]), Some(&[k2, n]), Some((batch, &[om, on]))) =
        (a.shape.last_chunk::<2>(), b.shape.last_chunk::<2>(), wide.shape.split_last_chunk::<2>())
    else {
        return refused(wrong());
    };
    if k != k2 || om != m || on != n {
        return refused(wrong());
    }
    let with_batch = |t: &Tensor, matrix: [i64; 2]| t.broadcast_to(&[batch, &matrix[..]].concat());
    let (Some(a), Some(b)) = (with_batch(&a, [m, k]), with_batch(&b, [k, n])) else {
        return refused(wrong());
    };
    let (m, n, k) = (m as usize, n as usize, k as usize);
    let (mut cost, run) = work(&[&a.clone(), &b.clone(), &wide.clone()], move || {
        let (left, right) = (a.read_f32()?, b.read_f32()?);
        let mut result = vec![0f32; wide.numel()];
        for (i, row) in result.chunks_exact_mut(n.max(1)).enumerate() {
            let matrix = i / m.max(1);
            for p in 0..k {
                let factor = left[i * k + p];
                let values = &right[(matrix * k + p) * n..][..n];
                row.iter_mut().zip(values).for_each(|(sum, value)| *sum += factor * value);
            }
        }
        wide.write_f32(&result)
    })?;
    cost = cost.flops(2 * (m * n * k) as u64);
    Ok((cost, run))
}

fn softmax(a: Tensor, dim: i64, out: Tensor, finish: fn(f64, f64) -> f64) -> Prepared {
    if a.shape != out.shape {
        return refused(format!("{} and {} differ in shape", a.describe(), out.describe()));
    }
    let dim = dimension(dim, a.shape.len())?;
    // With the dimension last, every row of the walk is one softmax.
    let last = |t: &Tensor| {
        let mut t = t.clone();
        if !t.shape.is_empty() {
            let (size, stride) = (t.shape.remove(dim), t.strides.remove(dim));
            t.shape.push(size);
            t.strides.push(stride);
        }
        t
    };
    let (from, to) = (last(&a), last(&out));
    work(&[&a, &out], move || {
        let mut values: Vec<f64> = from.read_values()?.into_iter().map(|v| v.re()).collect();
        let count = from.shape.last().map_or(1, |&n| n.max(1) as usize);
        for row in values.chunks_exact_mut(count) {
            let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = row.iter().map(|v| (v - largest).exp()).sum();
            row.iter_mut().for_each(|v| *v = finish(*v - largest, total));
        }
        to.write_values(values.into_iter().map(crate::dtype::Value::Float))
    })
}

/// `beta * c + alpha * a b`: the product first, then the rest on top of it.
fn addmm(c: Tensor, a: Tensor, b: Tensor, beta: f64, alpha: f64, out: Tensor) -> Prepared {
    let c = broadcast(&c, &out)?;
    let (cost, product) = matmul(a, b, out.clone())?;
    let run = move || {
        // `c` may be what is written to.
        let c = c.read_f32()?;
        product()?;
        let sum =
            out.read_f32()?.into_iter().zip(c).map(|(ab, c)| (beta * f64::from(c) + alpha * f64::from(ab)) as f32);
        out.write_f32(&sum.collect::<Vec<_>>())
    };
    Ok((cost, Arc::new(run)))
}

operators! {
    aclnnAddmm, aclnnAddmmGetWorkspaceSize(c: T, a: T, b: T, beta: S, alpha: S, out: T, math: i8) {
        let _ = math;
        addmm(c, a, b, beta.value.re(), alpha.value.re(), out)
    }
    aclnnMatmul, aclnnMatmulGetWorkspaceSize(a: T, b: T, out: T, math: i8) { let _ = math; matmul(a, b, out) }
    aclnnMm, aclnnMmGetWorkspaceSize(a: T, b: T, out: T, math: i8) { let _ = math; matmul(a, b, out) }
    aclnnBatchMatMul, aclnnBatchMatMulGetWorkspaceSize(a: T, b: T, out: T, math: i8) { let _ = math; matmul(a, b, out) }
    aclnnSoftmax, aclnnSoftmaxGetWorkspaceSize(a: T, dim: i64, out: T) { softmax(a, dim, out, |x, total| x.exp() / total) }
    aclnnLogSoftmax, aclnnLogSoftmaxGetWorkspaceSize(a: T, dim: i64, out: T) {
        softmax(a, dim, out, |x, total| x - total.ln())
    }
}
