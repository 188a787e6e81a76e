use crate::layout::Layout;
use thiserror::Error;

/// Why there is no plan between two layouts.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Elements of different sizes.
    #[error(
        "destination elements have {dst} bytes, source elements {src}: a rearrangement does not convert, so give both the \
         same dtype"
    )]
    ElementSize {
        /// Bytes an element of the destination.
        dst: usize,
        /// Bytes an element of the source.
        src: usize,
    },
    /// The source's shape is not the destination's and does not broadcast to it.
    #[error(
        "source shape {src:?} does not broadcast to destination shape {dst:?}: aligned at the last dimension, every source \
         dimension must equal the destination's or be 1"
    )]
    Shape {
        /// The destination's shape.
        dst: Vec<usize>,
        /// The source's shape.
        src: Vec<usize>,
    },
    /// Two elements of the destination may share memory.
    #[error(
        "destination shape {shape:?} with strides {strides:?} may write some element twice: give a destination in which \
         every element has memory of its own"
    )]
    SelfOverlap {
        /// The destination's shape.
        shape: Vec<usize>,
        /// The destination's strides in elements.
        strides: Vec<isize>,
    },
}

impl PlanError {
    pub(super) fn shape(dst: &Layout, src: &Layout) -> PlanError {
        PlanError::Shape { dst: dst.shape().to_vec(), src: src.shape().to_vec() }
    }
}
