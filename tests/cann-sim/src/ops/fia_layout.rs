//! Where the row of a (sequence, head, position) lies, for each layout that FusedInferAttentionScore takes.
//!
//! Letters as the operator's documents use them: B batch, S sequence, N heads, D head width, H = N·D, T all tokens of
//! all sequences. Positions are element offsets in the tensor read in logical row-major order.

/// The order of dimensions of one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `[B, S, N·D]`
    Bsh,
    /// `[B, S, N, D]`
    Bsnd,
    /// `[B, N, S, D]`
    Bnsd,
    /// `[T, N, D]`
    Tnd,
    /// `[N, T, D]`
    Ntd,
    /// `[N, B, S, D]`, of outputs only
    Nbsd,
}

/// What `inputLayout` may say, with the layout of the inputs and that of the output.
const NAMES: [(&str, Layout, Layout); 13] = [
    ("BSH", Layout::Bsh, Layout::Bsh),
    ("BSND", Layout::Bsnd, Layout::Bsnd),
    ("BNSD", Layout::Bnsd, Layout::Bnsd),
    ("TND", Layout::Tnd, Layout::Tnd),
    ("NTD", Layout::Ntd, Layout::Ntd),
    ("BNSD_BSND", Layout::Bnsd, Layout::Bsnd),
    ("BSH_BNSD", Layout::Bsh, Layout::Bnsd),
    ("BSND_BNSD", Layout::Bsnd, Layout::Bnsd),
    ("BSH_NBSD", Layout::Bsh, Layout::Nbsd),
    ("BSND_NBSD", Layout::Bsnd, Layout::Nbsd),
    ("BNSD_NBSD", Layout::Bnsd, Layout::Nbsd),
    ("TND_NTD", Layout::Tnd, Layout::Ntd),
    ("NTD_TND", Layout::Ntd, Layout::Tnd),
];

/// The layouts of inputs and output for an `inputLayout` text.
///
/// # Errors
/// A sentence that names the text and what is allowed.
pub fn parse(text: &str) -> Result<(Layout, Layout), String> {
    let found = NAMES.iter().find(|(name, ..)| *name == text);
    found.map(|&(_, input, output)| (input, output)).ok_or_else(|| {
        let names: Vec<_> = NAMES.iter().map(|(name, ..)| *name).collect();
        format!("inputLayout \"{text}\" is not simulated, use one of {}", names.join(", "))
    })
}

impl Layout {
    /// All tokens of all sequences lie in one dimension, and lengths are cumulative.
    pub fn is_packed(self) -> bool {
        matches!(self, Self::Tnd | Self::Ntd)
    }
}

/// A tensor in one of the layouts, its sizes known. In packed layouts `batch` is 1 and `length` counts all tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// The order of dimensions.
    pub layout: Layout,
    /// B
    pub batch: usize,
    /// N
    pub heads: usize,
    /// S, or T in packed layouts
    pub length: usize,
    /// D
    pub width: usize,
}

impl Grid {
    /// Reads the sizes off `shape`; `heads` is what the call says, and must agree where the shape says it too.
    ///
    /// # Errors
    /// A sentence that says what of `shape` does not fit.
    pub fn of(layout: Layout, shape: &[i64], heads: i64) -> Result<Self, String> {
        let rank = match layout {
            Layout::Bsh | Layout::Tnd | Layout::Ntd => 3,
            Layout::Bsnd | Layout::Bnsd | Layout::Nbsd => 4,
        };
        if shape.len() != rank {
            return Err(format!("shape {shape:?} has {} dimensions, layout {layout:?} has {rank}", shape.len()));
        }
        if heads <= 0 || shape.iter().any(|&size| size < 0) {
            return Err(format!(
                "shape {shape:?} with {heads} heads: sizes must not be negative, heads must be positive"
            ));
        }
        let at = |dim: usize| shape[dim] as usize;
        let (batch, found, length, width) = match layout {
            Layout::Bsh if shape[2] % heads != 0 => {
                return Err(format!("shape {shape:?}: the last size must be a multiple of {heads} heads"));
            }
            Layout::Bsh => (at(0), heads as usize, at(1), at(2) / heads as usize),
            Layout::Bsnd => (at(0), at(2), at(1), at(3)),
            Layout::Bnsd => (at(0), at(1), at(2), at(3)),
            Layout::Tnd => (1, at(1), at(0), at(2)),
            Layout::Ntd => (1, at(0), at(1), at(2)),
            Layout::Nbsd => (at(1), at(0), at(2), at(3)),
        };
        if found != heads as usize {
            return Err(format!("shape {shape:?} in layout {layout:?} has {found} heads, the call says {heads}"));
        }
        Ok(Self { layout, batch, heads: found, length, width })
    }

    /// The shape of a tensor with these sizes.
    pub fn shape(&self) -> Vec<i64> {
        let (b, n, s, d) = (self.batch, self.heads, self.length, self.width);
        let sizes = match self.layout {
            Layout::Bsh => vec![b, s, n * d],
            Layout::Bsnd => vec![b, s, n, d],
            Layout::Bnsd => vec![b, n, s, d],
            Layout::Tnd => vec![s, n, d],
            Layout::Ntd => vec![n, s, d],
            Layout::Nbsd => vec![n, b, s, d],
        };
        sizes.into_iter().map(|size| size as i64).collect()
    }

    /// Where the row of head `n` at position `s` of sequence `b` begins. In packed layouts `s` counts from the first
    /// token of all and `b` plays no part.
    pub fn start(&self, b: usize, n: usize, s: usize) -> usize {
        let row = match self.layout {
            Layout::Bsh | Layout::Bsnd => (b * self.length + s) * self.heads + n,
            Layout::Bnsd => (b * self.heads + n) * self.length + s,
            Layout::Tnd => s * self.heads + n,
            Layout::Ntd => n * self.length + s,
            Layout::Nbsd => (n * self.batch + b) * self.length + s,
        };
        row * self.width
    }
}

/// A paged cache: `[blocks, block size, N·D]` or `[blocks, N, block size, D]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// The heads lie outside of the positions of a block.
    pub heads_first: bool,
    /// How many blocks there are.
    pub blocks: usize,
    /// Positions per block.
    pub block_size: usize,
    /// N
    pub heads: usize,
    /// D
    pub width: usize,
}

impl Pages {
    /// Reads the sizes off the shape of a cache.
    ///
    /// # Errors
    /// A sentence that says what of `shape` does not fit.
    pub fn of(shape: &[i64], heads: i64, block_size: i64) -> Result<Self, String> {
        let (heads_first, found_heads, found_size, width) = match *shape {
            [_, size, row] if heads > 0 && row % heads == 0 => (false, heads, size, row / heads),
            [_, n, size, width] => (true, n, size, width),
            _ => {
                return Err(format!(
                    "cache shape {shape:?} with {heads} heads: [blocks, block size, heads * width] or \
                     [blocks, heads, block size, width] are simulated"
                ));
            }
        };
        if found_heads != heads || found_size != block_size || shape.iter().any(|&size| size < 0) {
            return Err(format!(
                "cache shape {shape:?} has {found_heads} heads and blocks of {found_size}, the call says {heads} heads \
                 and blocks of {block_size}"
            ));
        }
        Ok(Self {
            heads_first,
            blocks: shape[0] as usize,
            block_size: block_size as usize,
            heads: heads as usize,
            width: width as usize,
        })
    }

    /// Where the row of head `n` at position `offset` of block `block` begins.
    pub fn start(&self, block: usize, n: usize, offset: usize) -> usize {
        let row = if self.heads_first {
            (block * self.heads + n) * self.block_size + offset
        } else {
            (block * self.block_size + offset) * self.heads + n
        };
        row * self.width
    }
}

/// A mask or bias of two to four dimensions, as planes of rows: `[batch, heads, rows, columns]`, sizes of 1 shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planes {
    /// Sequences, or 1 for all.
    pub batch: usize,
    /// Heads, or 1 for all.
    pub heads: usize,
    /// Query positions.
    pub rows: usize,
    /// Key positions.
    pub columns: usize,
}

impl Planes {
    /// Reads the sizes off `shape`, for queries of the layout and sizes of `query`.
    pub fn of(shape: &[i64], query: &Grid) -> Self {
        let at = |from_end: usize| shape.len().checked_sub(from_end).map_or(1, |dim| shape[dim].max(0) as usize);
        let (batch, heads, rows, columns) = match shape.len() {
            // With one query per sequence two dimensions are sequences and keys.
            2 if query.length == 1 && !query.layout.is_packed() => (at(2), 1, 1, at(1)),
            // With three the outermost counts sequences.
            3 => (at(3), 1, at(2), at(1)),
            _ => (at(4), at(3), at(2), at(1)),
        };
        Self { batch, heads, rows, columns }
    }

    /// Where the first `count` rows of sequence `b` and head `n` begin.
    pub fn starts(&self, b: usize, n: usize, count: usize) -> Vec<usize> {
        let sequences_before = if self.batch > 1 { b * self.heads } else { 0 };
        let plane = sequences_before + if self.heads > 1 { n } else { 0 };
        (0..count).map(|row| (plane * self.rows + row) * self.columns).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_visits_each_row_once_and_gives_its_shape_back() {
        let layouts = [Layout::Bsh, Layout::Bsnd, Layout::Bnsd, Layout::Tnd, Layout::Ntd, Layout::Nbsd];
        for layout in layouts {
            let batch = if layout.is_packed() { 1 } else { 2 };
            let (heads, length, width) = (3, 5, 7);
            let grid = Grid { layout, batch, heads, length, width };
            assert_eq!(Grid::of(layout, &grid.shape(), 3), Ok(grid));
            let mut starts = Vec::new();
            for b in 0..batch {
                for n in 0..heads {
                    starts.extend((0..length).map(|s| grid.start(b, n, s)));
                }
            }
            starts.sort_unstable();
            let all: Vec<_> = (0..batch * heads * length).map(|row| row * width).collect();
            assert_eq!(starts, all, "{layout:?}");
        }
    }

    #[test]
    fn pages_tell_the_two_forms_apart() {
        let by_position = Pages::of(&[4, 16, 6], 2, 16).unwrap();
        assert_eq!((by_position.heads_first, by_position.width), (false, 3));
        assert_eq!(by_position.start(1, 1, 2), ((16 + 2) * 2 + 1) * 3);
        let by_head = Pages::of(&[4, 2, 16, 3], 2, 16).unwrap();
        assert_eq!(by_head.start(1, 1, 2), ((2 + 1) * 16 + 2) * 3);
        assert!(Pages::of(&[4, 16, 2, 3], 2, 16).is_err());
        assert!(Pages::of(&[4, 16, 6], 2, 32).is_err());
    }

    #[test]
    fn masks_share_sizes_of_one() {
        let many = Grid { layout: Layout::Bnsd, batch: 2, heads: 3, length: 4, width: 8 };
        let whole = Planes::of(&[2, 3, 4, 5], &many);
        assert_eq!(whole.starts(1, 2, 2), [5 * 20, 5 * 20 + 5]);
        assert_eq!(Planes::of(&[2, 1, 4, 5], &many).starts(1, 2, 1), [20]);
        assert_eq!(Planes::of(&[2, 4, 5], &many).starts(1, 2, 1), [20]);
        assert_eq!(Planes::of(&[4, 5], &many).starts(1, 2, 2), [0, 5]);
        let single = Grid { length: 1, ..many };
        assert_eq!(Planes::of(&[2, 5], &single).starts(1, 2, 1), [5]);
    }

    #[test]
    fn an_unknown_layout_is_named() {
        let text = parse("SBH").unwrap_err();
        assert!(text.contains("\"SBH\"") && text.contains("BNSD_BSND"), "{text}");
    }

    #[test]
    fn heads_that_disagree_are_named() {
        let text = Grid::of(Layout::Tnd, &[9, 4, 8], 2).unwrap_err();
        assert!(text.contains("4 heads") && text.contains("says 2"), "{text}");
    }
}
