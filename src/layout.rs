//! Layouts: the shape, strides, offset and element size of a view, validated once.
//!
//! Everything later (plans, strategies, diagnoses) relies on what [`Layout::new`] has checked: that no address a view can
//! reach overflows 64-bit arithmetic.

mod contiguity;
mod diagnosis;
mod error;

use std::fmt;
use std::ops::Range;

pub use contiguity::{Contiguity, contiguity, rows_ok};
pub use diagnosis::Diagnosis;
pub use error::LayoutError;

/// The largest element in bytes, a complex of two doubles.
pub const MAX_ELEMENT_SIZE: usize = 16;

/// A validated strided view: which elements, relative to a base pointer it does not know.
///
/// Guaranteed after construction:
/// 1. as many strides as dimensions;
/// 2. the element size is a power of two from 1 to 16 bytes;
/// 3. the number of elements, its bytes, and the byte address of every element relative to the base fit an `isize`.
///
/// Strides and offset are in elements, negative ones and zero (a broadcast) included. The stride of a dimension of length
/// 1 never matters, and without elements no stride does.
///
/// ```
/// use infini_rearrange::layout::Layout;
///
/// // The rope part of an MLA key: the last 64 of 192 columns, 16 heads, bf16.
/// let key_rope = Layout::new(&[4096, 16, 64], &[3072, 192, 1], 128, 2)?;
/// assert!(!key_rope.is_contiguous());
/// assert_eq!(key_rope.strided_outer(), 2);
/// assert_eq!(key_rope.bytes(), 4096 * 16 * 64 * 2);
/// assert_eq!(key_rope.diagnosis().to_string(), "columns 128..192 of rows of 192");
/// # Ok::<(), infini_rearrange::layout::LayoutError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    shape: Box<[usize]>,
    strides: Box<[isize]>,
    offset: isize,
    element_size: usize,
    numel: usize,
}

impl Layout {
    /// Validates a view of `shape` whose element at index 0 lies `offset` elements from the base pointer.
    ///
    /// `strides` and `offset` are in elements, `element_size` in bytes.
    ///
    /// # Errors
    /// Different numbers of dimensions and strides; an element size that is no power of two from 1 to 16; a view that
    /// reaches further than 64-bit byte addresses do.
    pub fn new(shape: &[usize], strides: &[isize], offset: isize, element_size: usize) -> Result<Layout, LayoutError> {
        if shape.len() != strides.len() {
            return Err(LayoutError::Rank { dims: shape.len(), strides: strides.len() });
        }
        if !element_size.is_power_of_two() || element_size > MAX_ELEMENT_SIZE {
            return Err(LayoutError::ElementSize { given: element_size });
        }
        let numel = count(shape, element_size)?;
        let layout = Layout { shape: shape.into(), strides: strides.into(), offset, element_size, numel };
        if layout.reach().is_none() {
            return Err(LayoutError::Reach { shape: shape.to_vec(), strides: strides.to_vec(), offset, element_size });
        }
        Ok(layout)
    }

    /// The row-major layout of `shape` at offset 0.
    ///
    /// # Errors
    /// As [`Layout::new`].
    ///
    /// ```
    /// use infini_rearrange::layout::Layout;
    ///
    /// let layout = Layout::contiguous(&[2, 3, 4], 2)?;
    /// assert_eq!(layout.strides(), [12, 4, 1]);
    /// assert!(layout.is_contiguous());
    /// # Ok::<(), infini_rearrange::layout::LayoutError>(())
    /// ```
    pub fn contiguous(shape: &[usize], element_size: usize) -> Result<Layout, LayoutError> {
        Layout::new(shape, &canonical_strides(shape), 0, element_size)
    }

    /// The lengths of the dimensions, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The strides in elements, one a dimension.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// Where the element at index 0 lies, in elements from the base pointer.
    pub fn offset(&self) -> isize {
        self.offset
    }

    /// Bytes an element.
    pub fn element_size(&self) -> usize {
        self.element_size
    }

    /// The number of dimensions; 0 for a scalar.
    pub fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// The number of elements: 1 for a scalar, 0 where any dimension has length 0.
    pub fn numel(&self) -> usize {
        self.numel
    }

    /// The bytes of all elements, which is what a contiguous copy takes.
    pub fn bytes(&self) -> usize {
        self.numel * self.element_size
    }

    /// Whether the elements lie in row-major order without gaps. Dimensions of length 1 do not matter, and no elements
    /// are always contiguous.
    pub fn is_contiguous(&self) -> bool {
        self.strided_outer() == 0
    }

    /// How many of the outer dimensions need a stride of their own: 0 where the layout is contiguous, otherwise the
    /// smallest `n` such that dimensions `n..` are contiguous among themselves.
    pub fn strided_outer(&self) -> usize {
        if self.numel == 0 {
            return 0;
        }
        let mut expected = 1;
        for (dim, (&len, &stride)) in self.shape.iter().zip(&self.strides).enumerate().rev() {
            if len == 1 {
                continue;
            }
            if stride != expected {
                return dim + 1;
            }
            // At most the number of elements, which fits.
            expected *= len as isize;
        }
        0
    }

    /// The bytes from the first to behind the last element reached, relative to the base pointer. The start may be
    /// negative; the range is empty where there are no elements.
    pub fn byte_range(&self) -> Range<isize> {
        self.reach().unwrap_or(0..0)
    }

    /// Whether two different indices may reach the same byte.
    ///
    /// `false` is certain. `true` is certain for a stride of 0; for strides that interleave without nesting (shape
    /// `[3, 2]` with strides `[2, 3]`) it is the careful answer.
    ///
    /// Sort the dimensions by stride. Where each stride is at least the extent of everything inside it, every index has
    /// a place of its own, like the digits of a number.
    pub fn may_self_overlap(&self) -> bool {
        if self.numel == 0 {
            return false;
        }
        let mut dims: Vec<(usize, usize)> = (self.shape.iter().zip(&self.strides))
            .filter(|&(&len, _)| len > 1)
            .map(|(&len, &stride)| (stride.unsigned_abs(), len))
            .collect();
        dims.sort_unstable();
        let mut extent = 1;
        for (stride, len) in dims {
            if stride < extent {
                return true;
            }
            // At most the elements between the ends of the view's reach, which fits.
            extent += stride * (len - 1);
        }
        false
    }

    /// How the view most likely came to be.
    pub fn diagnosis(&self) -> Diagnosis {
        Diagnosis::of(self)
    }

    /// One line for people, led by the name of the element type:
    /// `bf16 [4096, 16, 64] strides [3072, 192, 1] offset 128`.
    pub fn describe(&self, dtype: &str) -> String {
        format!("{dtype} {self}")
    }

    /// [`Layout::byte_range`], or `None` where an address overflows. The offset counts even without elements.
    fn reach(&self) -> Option<Range<isize>> {
        let size = self.element_size as isize;
        let mut start = self.offset.checked_mul(size)?;
        if self.numel == 0 {
            return Some(start..start);
        }
        let mut last = start;
        for (&len, &stride) in self.shape.iter().zip(&self.strides).filter(|&(&len, _)| len > 1) {
            let span = stride.checked_mul(size)?.checked_mul(len as isize - 1)?;
            if span < 0 {
                start = start.checked_add(span)?;
            } else {
                last = last.checked_add(span)?;
            }
        }
        let end = last.checked_add(size)?;
        // Distances between any two elements have to fit as well.
        end.checked_sub(start)?;
        Some(start..end)
    }
}

/// `[4096, 16, 64] strides [3072, 192, 1] offset 128`; an offset of 0 is left out.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} strides {:?}", self.shape, self.strides)?;
        if self.offset != 0 {
            write!(f, " offset {}", self.offset)?;
        }
        Ok(())
    }
}

/// The row-major strides of `shape` in elements. Lengths of 0 count as 1, as in torch. Saturates where a stride would
/// not fit, which only a shape without elements (or one [`Layout::new`] refuses) can bring about.
///
/// ```
/// assert_eq!(infini_rearrange::layout::canonical_strides(&[2, 3, 4]), [12, 4, 1]);
/// ```
pub fn canonical_strides(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1; shape.len()];
    let mut stride: isize = 1;
    for (place, &len) in strides.iter_mut().zip(shape).rev() {
        *place = stride;
        stride = stride.saturating_mul(isize::try_from(len.max(1)).unwrap_or(isize::MAX));
    }
    strides
}

/// The number of elements of `shape`, where their bytes fit an `isize`.
fn count(shape: &[usize], element_size: usize) -> Result<usize, LayoutError> {
    if shape.contains(&0) {
        return Ok(0);
    }
    (shape.iter().try_fold(1usize, |numel, &len| numel.checked_mul(len)))
        .filter(|numel| numel.checked_mul(element_size).is_some_and(|bytes| bytes <= isize::MAX as usize))
        .ok_or_else(|| LayoutError::Size { shape: shape.to_vec(), element_size })
}
