use thiserror::Error;

/// Why a plan was not run from slice to slice.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The plan writes outside of the destination slice.
    #[error(
        "the plan writes bytes {start}..{end} of a destination of {given} bytes: give the whole storage that the layout's \
         offset refers to"
    )]
    Destination {
        /// First byte written, relative to the slice.
        start: isize,
        /// Behind the last byte written.
        end: isize,
        /// Bytes of the slice.
        given: usize,
    },
    /// The plan reads outside of the source slice.
    #[error(
        "the plan reads bytes {start}..{end} of a source of {given} bytes: give the whole storage that the layout's offset \
         refers to"
    )]
    Source {
        /// First byte read, relative to the slice.
        start: isize,
        /// Behind the last byte read.
        end: isize,
        /// Bytes of the slice.
        given: usize,
    },
}
