//! Views, known cases and a naive oracle. Nothing here calls the crate: indices and addresses are worked out anew, one
//! element at a time, in 128 bits.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use serde::Deserialize;

/// A view of a storage, in elements.
#[derive(Clone, Debug, Deserialize)]
pub struct View {
    #[serde(default)]
    pub name: String,
    pub shape: Vec<usize>,
    pub strides: Vec<isize>,
    pub offset: isize,
    pub storage_elements: usize,
}

impl View {
    pub fn new(shape: &[usize], strides: &[isize], offset: isize) -> View {
        let mut view =
            View { name: String::new(), shape: shape.to_vec(), strides: strides.to_vec(), offset, storage_elements: 0 };
        view.storage_elements = view.ends().1 as usize;
        view
    }

    /// Row-major, at offset 0.
    pub fn row_major(shape: &[usize]) -> View {
        View::new(shape, &row_major(shape), 0)
    }

    pub fn numel(&self) -> i128 {
        self.shape.iter().map(|&len| len as i128).product()
    }

    /// The position of the `n`-th element in row-major order of the indices.
    pub fn position(&self, n: i128) -> i128 {
        // Dividing in 64 bits is what keeps the large cases quick.
        let mut rest = u64::try_from(n).unwrap();
        let mut position = self.offset as i128;
        for (&len, &stride) in self.shape.iter().zip(&self.strides).rev() {
            position += (rest % len as u64) as i128 * stride as i128;
            rest /= len as u64;
        }
        position
    }

    /// The first position reached, and the one behind the last; `(0, 0)` without elements.
    pub fn ends(&self) -> (i128, i128) {
        if self.numel() == 0 {
            return (0, 0);
        }
        let (mut first, mut last) = (self.offset as i128, self.offset as i128);
        for (&len, &stride) in self.shape.iter().zip(&self.strides) {
            let span = (len as i128 - 1) * stride as i128;
            if span < 0 { first += span } else { last += span }
        }
        (first, last + 1)
    }

    /// Moved and its storage sized so that `before` elements lie in front of the first and `after` behind the last.
    pub fn fit(mut self, before: usize, after: usize) -> View {
        let first = self.ends().0;
        self.offset += before as isize - first as isize;
        self.storage_elements = self.ends().1 as usize + after;
        self
    }

    pub fn layout(&self, element_size: usize) -> infini_rearrange::layout::Layout {
        infini_rearrange::layout::Layout::new(&self.shape, &self.strides, self.offset, element_size).unwrap()
    }
}

/// Row-major strides in elements.
pub fn row_major(shape: &[usize]) -> Vec<isize> {
    (0..shape.len()).map(|dim| shape[dim + 1..].iter().map(|&len| len.max(1) as isize).product()).collect()
}

/// Column-major strides in elements.
pub fn column_major(shape: &[usize]) -> Vec<isize> {
    (0..shape.len()).map(|dim| shape[..dim].iter().map(|&len| len.max(1) as isize).product()).collect()
}

/// Copies element after element; `dst` and `src` have one shape.
pub fn oracle(dst: &View, dst_bytes: &mut [u8], src: &View, src_bytes: &[u8], element_size: usize) {
    assert_eq!(dst.shape, src.shape);
    for n in 0..dst.numel() {
        let to = usize::try_from(dst.position(n) * element_size as i128).unwrap();
        let from = usize::try_from(src.position(n) * element_size as i128).unwrap();
        dst_bytes[to..to + element_size].copy_from_slice(&src_bytes[from..from + element_size]);
    }
}

/// Bytes that differ from their neighbours at every distance that matters.
pub fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15);
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// The layouts of `tests/cases/layouts.json`.
pub fn known() -> Vec<View> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/layouts.json");
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The known layout of that name.
pub fn named(name: &str) -> View {
    known().into_iter().find(|view| view.name == name).unwrap_or_else(|| panic!("no layout named {name}"))
}
