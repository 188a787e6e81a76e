//! Plans: a copy between two layouts, reduced to the fewest loops. Pure data, reusable for any pair of base pointers.

mod alias;
mod error;
mod kind;
mod simplify;

use crate::layout::{Layout, MAX_ELEMENT_SIZE};
use std::ops::Range;

pub use error::PlanError;
pub use kind::Kind;

/// One loop of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dim {
    /// How often: at least 2.
    pub len: usize,
    /// Bytes from one step to the next in the destination: positive.
    pub dst: isize,
    /// Bytes from one step to the next in the source: any sign, 0 where the source is broadcast.
    pub src: isize,
}

/// What to move, in what pieces.
///
/// Guaranteed after construction:
/// 1. the loops ([`Plan::dims`]) are ordered by destination stride, the widest first, and every destination stride is at
///    least the bytes of everything inside it, so no byte is written twice;
/// 2. neighbouring loops that step alike on both sides are one, and loops of length 1 are gone;
/// 3. the innermost run that is contiguous on both sides is no loop but the [`Plan::unit`];
/// 4. every offset a loop can reach fits an `isize`.
///
/// ```
/// use infini_rearrange::layout::Layout;
/// use infini_rearrange::plan::{Dim, Kind, Plan};
///
/// let src = Layout::new(&[4096, 16, 64], &[3072, 192, 1], 128, 2)?;
/// let dst = Layout::contiguous(src.shape(), 2)?;
/// let plan = Plan::new(&dst, &src)?;
/// // Tokens and heads step alike: one loop over rows of 64 bf16.
/// assert_eq!(plan.dims(), [Dim { len: 4096 * 16, dst: 128, src: 384 }]);
/// assert_eq!((plan.unit(), plan.src_offset(), plan.kind()), (128, 256, Kind::Rows));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    dims: Vec<Dim>,
    unit: usize,
    dst_offset: isize,
    src_offset: isize,
    element_size: usize,
    bytes: usize,
}

impl Plan {
    /// The plan that copies `src` into `dst`, element by element at equal indices.
    ///
    /// Both have one shape, or `src` broadcasts to `dst` as in NumPy: shapes are aligned at the last dimension, and a
    /// dimension that is missing or of length 1 is repeated. A source may repeat or overlap itself by its strides as well.
    ///
    /// # Errors
    /// Different element sizes; a source shape that does not broadcast; a destination in which two indices may share a
    /// byte ([`Layout::may_self_overlap`]).
    pub fn new(dst: &Layout, src: &Layout) -> Result<Plan, PlanError> {
        let element_size = dst.element_size();
        if src.element_size() != element_size {
            return Err(PlanError::ElementSize { dst: element_size, src: src.element_size() });
        }
        // Dimensions the source lacks at the front count as length 1.
        let missing = (dst.ndim().checked_sub(src.ndim())).ok_or_else(|| PlanError::shape(dst, src))?;
        let mut dims = Vec::with_capacity(dst.ndim());
        for (dim, (&len, &dst_stride)) in dst.shape().iter().zip(dst.strides()).enumerate() {
            let (src_len, src_stride) = match dim.checked_sub(missing) {
                Some(dim) => (src.shape()[dim], src.strides()[dim]),
                None => (1, 0),
            };
            if src_len != len && src_len != 1 {
                return Err(PlanError::shape(dst, src));
            }
            // A length above 1 on a side means that its byte stride was checked to fit; where there are no elements
            // it was not, but then the loops are dropped below.
            let size = element_size as isize;
            let src_stride = if src_len == 1 { 0 } else { src_stride.wrapping_mul(size) };
            if len != 1 {
                dims.push(Dim { len, dst: dst_stride.wrapping_mul(size), src: src_stride });
            }
        }
        if dst.may_self_overlap() {
            return Err(PlanError::SelfOverlap { shape: dst.shape().to_vec(), strides: dst.strides().to_vec() });
        }
        let mut plan = Plan {
            dims,
            unit: element_size,
            dst_offset: dst.offset() * element_size as isize,
            src_offset: src.offset() * element_size as isize,
            element_size,
            bytes: dst.bytes(),
        };
        if plan.bytes == 0 {
            plan.dims.clear();
            plan.unit = 0;
        } else {
            simplify::simplify(&mut plan);
        }
        Ok(plan)
    }

    /// The loops around the unit, outermost first; none where a single run, or nothing, is moved.
    pub fn dims(&self) -> &[Dim] {
        &self.dims
    }

    /// Bytes of the run that is contiguous on both sides: a multiple of the element size, 0 for an empty plan.
    pub fn unit(&self) -> usize {
        self.unit
    }

    /// Bytes from the destination's base pointer to the first unit.
    pub fn dst_offset(&self) -> isize {
        self.dst_offset
    }

    /// Bytes from the source's base pointer to the first unit.
    pub fn src_offset(&self) -> isize {
        self.src_offset
    }

    /// Bytes an element.
    pub fn element_size(&self) -> usize {
        self.element_size
    }

    /// Bytes written.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What sort of copy this is.
    pub fn kind(&self) -> Kind {
        Kind::of(self)
    }

    /// The bytes written, from the first to behind the last, relative to the destination's base pointer.
    pub fn dst_range(&self) -> Range<isize> {
        self.range(self.dst_offset, |dim| dim.dst)
    }

    /// The bytes read, from the first to behind the last, relative to the source's base pointer.
    pub fn src_range(&self) -> Range<isize> {
        self.range(self.src_offset, |dim| dim.src)
    }

    fn range(&self, offset: isize, stride: impl Fn(&Dim) -> isize) -> Range<isize> {
        let (mut start, mut last) = (offset, offset);
        for dim in &self.dims {
            // Within the reach of a validated layout.
            let span = stride(dim) * (dim.len as isize - 1);
            if span < 0 { start += span } else { last += span }
        }
        start..last + self.unit as isize
    }

    /// Whether a destination at address `dst_base` and a source at `src_base` may share a byte. `false` is certain.
    ///
    /// Two slices of the same rows interleave without sharing: their ranges overlap, but every address of each lies in a
    /// band of its own modulo the strides' greatest common divisor.
    pub fn may_alias(&self, dst_base: usize, src_base: usize) -> bool {
        alias::may_alias(self, dst_base, src_base)
    }

    /// The widest access in bytes, a power of two up to 16, that is aligned everywhere: it divides the unit, every stride
    /// on both sides, and the addresses of the first units, `dst_base` and `src_base` being the addresses of the base
    /// pointers. May be narrower than an element where a base is.
    ///
    /// ```
    /// use infini_rearrange::layout::Layout;
    /// use infini_rearrange::plan::Plan;
    ///
    /// // Runs of 16 bytes, but 20 bytes apart in the source.
    /// let src = Layout::new(&[4, 3, 4], &[32, 5, 1], 0, 4)?;
    /// let plan = Plan::new(&Layout::contiguous(&[4, 3, 4], 4)?, &src)?;
    /// assert_eq!(plan.unit(), 16);
    /// assert_eq!(plan.access_width(0x1000, 0x2000), 4);
    /// assert_eq!(plan.access_width(0x1000, 0x2002), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn access_width(&self, dst_base: usize, src_base: usize) -> usize {
        // A power of two divides all of several numbers exactly where it divides their bitwise or.
        let bits = (self.dims.iter()).fold(
            self.unit | dst_base.wrapping_add_signed(self.dst_offset) | src_base.wrapping_add_signed(self.src_offset),
            |bits, dim| bits | dim.dst as usize | dim.src as usize,
        );
        1 << (bits | MAX_ELEMENT_SIZE).trailing_zeros()
    }

    /// The plan as two views of the fewest dimensions, for copy engines that take shapes and strides.
    ///
    /// Everything is in elements. The unit is the last dimension, of stride 1 on both sides, where it is more than one
    /// element. Never without a dimension: a single element is shape `[1]`, an empty plan shape `[0]`.
    pub fn simplified(&self) -> Simplified {
        let size = self.element_size as isize;
        let mut dims: Vec<Dim> =
            (self.dims.iter()).map(|dim| Dim { len: dim.len, dst: dim.dst / size, src: dim.src / size }).collect();
        let run = self.unit / self.element_size;
        if run != 1 || dims.is_empty() {
            dims.push(Dim { len: run, dst: 1, src: 1 });
        }
        Simplified {
            shape: dims.iter().map(|dim| dim.len as i64).collect(),
            dst_strides: dims.iter().map(|dim| dim.dst as i64).collect(),
            src_strides: dims.iter().map(|dim| dim.src as i64).collect(),
            dst_offset: (self.dst_offset / size) as i64,
            src_offset: (self.src_offset / size) as i64,
        }
    }
}

/// [`Plan::simplified`]: two views of one shape, all in elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Simplified {
    /// The lengths of the dimensions, outermost first; at least one.
    pub shape: Vec<i64>,
    /// The destination's strides: positive.
    pub dst_strides: Vec<i64>,
    /// The source's strides: any sign.
    pub src_strides: Vec<i64>,
    /// From the destination's base pointer to its first element.
    pub dst_offset: i64,
    /// From the source's base pointer to its first element.
    pub src_offset: i64,
}
