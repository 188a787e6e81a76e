//! Contiguity straight from borrowed sizes and strides, for call sites that ask before there is a [`Layout`](super::Layout).

/// What [`contiguity`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contiguity {
    /// The strides are exactly row-major, or there are no elements.
    Contiguous,
    /// Contiguous in memory, but some dimension of length 1 carries another stride than row-major order gives it.
    /// Readers that compare strides without skipping such dimensions take it for strided.
    SizeOneStrides,
    /// Not contiguous. As [`Layout::strided_outer`](super::Layout::strided_outer): the smallest `n` such that the
    /// dimensions `n..` are contiguous among themselves.
    Outer(usize),
}

/// Whether a view of `shape` and `strides` (elements) is contiguous, and if not, from which dimension on.
///
/// Allocates nothing and does not validate: lengths are taken to be non-negative, and surplus entries of the longer slice
/// are ignored.
///
/// ```
/// use infini_rearrange::layout::{Contiguity, contiguity};
///
/// assert_eq!(contiguity(&[4096, 64], &[64, 1]), Contiguity::Contiguous);
/// assert_eq!(contiguity(&[8, 1, 128], &[128, 999, 1]), Contiguity::SizeOneStrides);
/// assert_eq!(contiguity(&[4096, 16, 64], &[3072, 192, 1]), Contiguity::Outer(2));
/// ```
#[inline]
pub fn contiguity(shape: &[i64], strides: &[i64]) -> Contiguity {
    let ndim = shape.len().min(strides.len());
    let (shape, strides) = (&shape[..ndim], &strides[..ndim]);
    let mut expected: i64 = 1;
    let mut exact = true;
    for dim in (0..ndim).rev() {
        if strides[dim] != expected {
            if shape[dim] != 1 {
                return outer(shape, dim + 1);
            }
            exact = false;
        }
        // No tensor that exists has 2^63 elements; wrapping only keeps nonsense from panicking.
        expected = expected.wrapping_mul(shape[dim]);
    }
    if exact || expected == 0 { Contiguity::Contiguous } else { Contiguity::SizeOneStrides }
}

/// The strided answer, unless there are no elements. Apart, to keep the loop above small.
#[cold]
fn outer(shape: &[i64], n: usize) -> Contiguity {
    if shape.contains(&0) { Contiguity::Contiguous } else { Contiguity::Outer(n) }
}

/// Whether a view meets the contract `rows`: dimensions `n..` are contiguous, and the first `n` only leave gaps between
/// what lies inside them. Their strides must be positive and, in the order given, each at least the extent of everything
/// inside, so neither an expand (stride 0) nor a transposed view passes. Strides are in elements; dimensions of length 1
/// do not matter; no elements always pass.
///
/// ```
/// use infini_rearrange::layout::rows_ok;
///
/// assert!(rows_ok(&[4096, 1024], &[6144, 1], 1)); // a slice of wider rows
/// assert!(!rows_ok(&[4096, 1024], &[0, 1], 1)); // the same row 4096 times
/// assert!(!rows_ok(&[256, 4096], &[1, 256], 1)); // transposed
/// ```
#[inline]
pub fn rows_ok(shape: &[i64], strides: &[i64], n: usize) -> bool {
    let ndim = shape.len().min(strides.len());
    let (shape, strides) = (&shape[..ndim], &strides[..ndim]);
    if shape.contains(&0) {
        return true;
    }
    let mut extent: i64 = 1;
    for dim in (0..ndim).rev() {
        let (len, stride) = (shape[dim], strides[dim]);
        if len == 1 {
            continue;
        }
        let fits = if dim < n { stride >= extent } else { stride == extent };
        if !fits {
            return false;
        }
        extent = stride.saturating_mul(len - 1).saturating_add(extent);
    }
    true
}
