use super::Layout;
use std::fmt;

/// How a view most likely came to be, judged by its strides alone. Where several causes meet, the one that costs most to
/// copy is named: a broadcast before a reversal, before an overlap, before a transpose, before a slice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Diagnosis {
    /// Nothing to diagnose.
    Contiguous,
    /// A slice `start..end` of rows of `row` elements, as `split`, `chunk` or a slice of the last dimensions gives.
    Columns {
        /// First element of the slice within a row.
        start: usize,
        /// Behind the last element of the slice within a row.
        end: usize,
        /// Elements from one row to the next.
        row: usize,
    },
    /// Axes swapped or permuted. `view.permute(order)` is the order in memory; axes of length 1 stay where they are.
    Transposed {
        /// The view's axes, from the outermost in memory to the innermost.
        order: Vec<usize>,
    },
    /// Expanded: the same elements again along these dimensions.
    Broadcast {
        /// Dimensions with stride 0.
        dims: Vec<usize>,
    },
    /// Only every `step`-th element is part of the view.
    EveryNth {
        /// The dimension closest together in memory.
        dim: usize,
        /// Its stride in elements.
        step: usize,
    },
    /// Runs backwards along these dimensions.
    Reversed {
        /// Dimensions with a negative stride.
        dims: Vec<usize>,
    },
    /// Whole rows with some room behind each.
    Rows {
        /// Elements of a row.
        len: usize,
        /// Elements from one row to the next.
        padded: usize,
    },
    /// Rows that overlap, as `unfold` gives.
    Window,
    /// None of these.
    Other,
}

impl Diagnosis {
    /// The diagnosis of `layout`.
    pub(super) fn of(layout: &Layout) -> Diagnosis {
        if layout.is_contiguous() {
            return Diagnosis::Contiguous;
        }
        let strides = layout.strides();
        let axes: Vec<usize> = (0..layout.ndim()).filter(|&dim| layout.shape()[dim] > 1).collect();
        let with = |test: fn(isize) -> bool| -> Vec<usize> {
            axes.iter().copied().filter(|&dim| test(strides[dim])).collect()
        };

        let dims = with(|stride| stride == 0);
        if !dims.is_empty() {
            return Diagnosis::Broadcast { dims };
        }
        let dims = with(|stride| stride < 0);
        if !dims.is_empty() {
            return Diagnosis::Reversed { dims };
        }
        if layout.may_self_overlap() {
            return Diagnosis::Window;
        }

        let mut memory = axes.clone();
        memory.sort_by_key(|&dim| std::cmp::Reverse(strides[dim]));
        if memory != axes {
            let mut order: Vec<usize> = (0..layout.ndim()).collect();
            for (&place, &axis) in axes.iter().zip(&memory) {
                order[place] = axis;
            }
            return Diagnosis::Transposed { order };
        }
        match axes.last() {
            Some(&dim) if strides[dim] > 1 => Diagnosis::EveryNth { dim, step: strides[dim].unsigned_abs() },
            Some(_) => slice(layout),
            None => Diagnosis::Other,
        }
    }

    /// What to change at the producer so that the copy is no longer needed: one sentence without a full stop.
    pub fn remedy(&self) -> String {
        match self {
            Diagnosis::Contiguous => "nothing: the view is contiguous".into(),
            Diagnosis::Columns { .. } => {
                "let the producer write this slice to a buffer of its own instead of slicing a wider row".into()
            }
            Diagnosis::Transposed { .. } => {
                "let the producer write its result in this axis order, or hand over the tensor before the transpose where \
                 the operator takes that layout"
                    .into()
            }
            Diagnosis::Broadcast { .. } => {
                "hand over the tensor before the expand where the operator broadcasts by itself, or share one copy between \
                 calls"
                    .into()
            }
            Diagnosis::EveryNth { step, .. } => format!(
                "let the producer write these elements next to each other instead of every {}",
                ordinal(*step)
            ),
            Diagnosis::Reversed { .. } => {
                "let the producer write in forward order, or fold the flip into the computation before it".into()
            }
            Diagnosis::Rows { .. } => {
                "allocate the rows without padding, or use an operator that takes a row stride".into()
            }
            Diagnosis::Window => {
                "compute on the tensor before the overlapping windows were taken, or keep one copy of them".into()
            }
            Diagnosis::Other => "let the producer write a contiguous result".into(),
        }
    }
}

/// Tells a slice from padding, for positive nested strides that end in a stride of 1.
///
/// Both look alike: contiguous blocks, further apart than they are long. Padding starts the row and is small; a sixteenth
/// keeps `512 of 576` (a latent split from its rope part) a slice.
fn slice(layout: &Layout) -> Diagnosis {
    let n = layout.strided_outer();
    let len: usize = layout.shape()[n..].iter().product();
    let row = layout.strides()[n - 1].unsigned_abs();
    let start = usize::try_from(layout.offset()).ok().map(|offset| offset % row);
    match start.map(|start| (start, start + len)) {
        Some((0, end)) if row - end <= len / 16 => Diagnosis::Rows { len, padded: row },
        Some((start, end)) if end <= row => Diagnosis::Columns { start, end, row },
        _ => Diagnosis::Rows { len, padded: row },
    }
}

/// A short phrase: `columns 128..192 of rows of 192`, `axes 1 and 2 swapped`.
impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Diagnosis::Contiguous => write!(f, "contiguous"),
            Diagnosis::Columns { start, end, row } => write!(f, "columns {start}..{end} of rows of {row}"),
            Diagnosis::Transposed { order } => match swapped(order) {
                Some((a, b)) => write!(f, "axes {a} and {b} swapped"),
                None => write!(f, "axes permuted ({})", list(order)),
            },
            Diagnosis::Broadcast { dims } => write!(f, "expanded along {} (stride 0)", named(dims)),
            Diagnosis::EveryNth { dim, step } => write!(f, "every {} element along dim {dim}", ordinal(*step)),
            Diagnosis::Reversed { dims } => write!(f, "reversed along {}", named(dims)),
            Diagnosis::Rows { len, padded } => write!(f, "rows of {len} elements padded to {padded}"),
            Diagnosis::Window => write!(f, "overlapping windows"),
            Diagnosis::Other => write!(f, "strided"),
        }
    }
}

/// The two axes that changed places, where exactly two did.
fn swapped(order: &[usize]) -> Option<(usize, usize)> {
    let moved: Vec<usize> = (0..order.len()).filter(|&dim| order[dim] != dim).collect();
    match moved[..] {
        [a, b] => Some((a, b)),
        _ => None,
    }
}

fn list(dims: &[usize]) -> String {
    dims.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

fn named(dims: &[usize]) -> String {
    format!("{} {}", if dims.len() == 1 { "dim" } else { "dims" }, list(dims))
}

fn ordinal(n: usize) -> String {
    let ending = match (n % 10, n % 100) {
        (1, tens) if tens != 11 => "st",
        (2, tens) if tens != 12 => "nd",
        (3, tens) if tens != 13 => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}
