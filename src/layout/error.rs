use thiserror::Error;

/// Why a shape, strides and offset are no layout.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Dimensions and strides differ in number.
    #[error("{dims} dimensions but {strides} strides: give one stride (in elements) for each dimension")]
    Rank {
        /// Dimensions given.
        dims: usize,
        /// Strides given.
        strides: usize,
    },
    /// Not an element size this crate moves.
    #[error("elements of {given} bytes: allowed are 1, 2, 4, 8 and 16; view the data as one of these")]
    ElementSize {
        /// Bytes an element, as given.
        given: usize,
    },
    /// More elements than memory can be addressed in.
    #[error("shape {shape:?} of {element_size}-byte elements is larger than 2^63 - 1 bytes: copy it in smaller pieces")]
    Size {
        /// The shape given.
        shape: Vec<usize>,
        /// Bytes an element.
        element_size: usize,
    },
    /// Some element's address overflows.
    #[error(
        "shape {shape:?} strides {strides:?} offset {offset} of {element_size}-byte elements reaches beyond 64-bit byte \
         addresses (±2^63): check the strides and the offset, which are in elements"
    )]
    Reach {
        /// The shape given.
        shape: Vec<usize>,
        /// The strides given, in elements.
        strides: Vec<isize>,
        /// The offset given, in elements.
        offset: isize,
        /// Bytes an element.
        element_size: usize,
    },
}
