//! FusedInferAttentionScore: from the operator's arguments to sequences of checked rows. `fia_run` computes them.

use super::fia_layout::{Grid, Pages, Planes, parse};
use super::fia_reading::{Reading, fused_attention, not_contiguous};
use super::fia_run::run;
use super::glue::{Prepared, refused};
use crate::clock::Cost;
use crate::error::SimError;
use crate::tensor::Tensor;
use std::sync::Arc;

/// The arguments that the simulation knows; what it does not know must not be given.
#[derive(Clone)]
pub struct Call {
    pub operator: &'static str,
    pub query: Tensor,
    pub key: Tensor,
    pub value: Tensor,
    pub query_rope: Option<Tensor>,
    pub key_rope: Option<Tensor>,
    pub pse_shift: Option<Tensor>,
    pub mask: Option<Tensor>,
    pub block_table: Option<Tensor>,
    pub sink: Option<Tensor>,
    /// key_antiquant_scale and value_antiquant_scale: not computed with, but checked as on the simulated release.
    pub scales: [(&'static str, Option<Tensor>); 2],
    pub query_lengths: Vec<i64>,
    pub key_lengths: Vec<i64>,
    pub heads: i64,
    pub key_heads: i64,
    pub scale: f32,
    pub pre_tokens: i64,
    pub next_tokens: i64,
    pub layout: String,
    pub sparse_mode: i64,
    pub block_size: i64,
    pub with_lse: bool,
    pub out: Tensor,
    pub lse: Option<Tensor>,
}

/// Where the rows of key, value or key_rope lie: in a layout like the query's, or in pages.
#[derive(Clone, Copy)]
pub(super) enum Store {
    Plain(Grid),
    Paged(Pages),
}

impl Store {
    fn of(call: &Call, tensor: &Tensor, grid: &Grid) -> Result<Self, SimError> {
        let store = if call.block_table.is_some() {
            Pages::of(&tensor.shape, call.key_heads, call.block_size).map(Store::Paged)
        } else {
            Grid::of(grid.layout, &tensor.shape, call.key_heads).map(Store::Plain)
        };
        store.or_else(refused)
    }

    fn width(&self) -> usize {
        match self {
            Store::Plain(grid) => grid.width,
            Store::Paged(pages) => pages.width,
        }
    }

    /// Whether rows of `other` lie under the same sequences, heads and positions, whatever their width.
    fn matches(&self, other: &Self) -> bool {
        match (*self, *other) {
            (Store::Plain(a), Store::Plain(b)) => Grid { width: b.width, ..a } == b,
            (Store::Paged(a), Store::Paged(b)) => Pages { width: b.width, ..a } == b,
            _ => false,
        }
    }

    fn sequences(&self) -> Option<(usize, usize)> {
        match self {
            Store::Plain(grid) => Some((grid.batch, grid.length)),
            Store::Paged(_) => None,
        }
    }
}

/// One sequence: which rows of the query and which of the key belong together.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    pub index: usize,
    pub query: std::ops::Range<usize>,
    pub key: std::ops::Range<usize>,
}

/// Checks the call and prepares its work.
pub fn prepare(mut call: Call, unsupported: &[(&str, bool)]) -> Prepared {
    check_contiguity(&call)?;
    for (name, given) in unsupported {
        if *given {
            return refused(format!("{}: {name} is not simulated", call.operator));
        }
    }
    if call.key_heads == 0 {
        call.key_heads = call.heads;
    }
    if call.heads <= 0 || call.key_heads <= 0 || call.heads % call.key_heads != 0 {
        return refused(format!("{} heads cannot share {} key heads", call.heads, call.key_heads));
    }
    if call.query_rope.is_some() != call.key_rope.is_some() {
        return refused("queryRope and keyRope go together");
    }
    if matches!(call.sparse_mode, 2..=4) && call.mask.is_none() {
        return refused(format!("sparseMode {} needs attenMask", call.sparse_mode));
    }
    if !(0..=4).contains(&call.sparse_mode) {
        return refused(format!("sparseMode {} is not simulated, use 0 to 4", call.sparse_mode));
    }
    let (input, output) = parse(&call.layout).or_else(refused)?;
    let query = Grid::of(input, &call.query.shape, call.heads).or_else(refused)?;
    let out = Grid::of(output, &call.out.shape, call.heads).or_else(refused)?;
    let key = Store::of(&call, &call.key, &query)?;
    let value = Store::of(&call, &call.value, &query)?;
    if key.width() != query.width || value.width() != out.width {
        return refused(format!(
            "widths: query {} and key {}, value {} and output {} must be the same",
            query.width,
            key.width(),
            value.width(),
            out.width
        ));
    }
    let rope = match (&call.query_rope, &call.key_rope) {
        (Some(q), Some(k)) => {
            Some((Grid::of(input, &q.shape, call.heads).or_else(refused)?, Store::of(&call, k, &query)?))
        }
        _ => None,
    };
    let shapes = Shapes { query, out, key, value, rope };
    shapes.check(&call)?;
    let sequences = sequences(&call, &query, &key)?;
    check_pairs(&call, &query, &sequences)?;
    let pairs: usize = sequences.iter().map(|s| s.query.len() * s.key.len()).sum();
    let cost = cost(&call).flops((2 * pairs * call.heads as usize * (query.width + out.width)) as u64);
    Ok((cost, Arc::new(move || run(&call, &shapes, &sequences))))
}

/// Key, value and key_rope are the operator's own business: see [`fused_attention`].
fn check_contiguity(call: &Call) -> Result<(), SimError> {
    if fused_attention() != Reading::Refuses {
        return Ok(());
    }
    let (case, paged) = match call.block_table {
        Some(_) => ("In PA and not MXFP8 Fullquant scenarios", true),
        None => ("In non-PA scenarios", false),
    };
    for (name, tensor) in [("key", &call.key), ("value", &call.value)] {
        if !tensor.is_contiguous() {
            return Err(not_contiguous(name, call.operator, &format!("{case}, {name} tensor must be contiguous")));
        }
    }
    match &call.key_rope {
        Some(rope) if !rope.is_contiguous() => {
            let case = if paged { "In PA scenarios" } else { case };
            let reason = format!("{case}, keyRope does not support non-contiguous tensors");
            Err(not_contiguous("keyRope", call.operator, &reason))
        }
        _ => match call.scales.iter().find(|(_, scale)| scale.as_ref().is_some_and(|s| !s.is_contiguous())) {
            Some((name, _)) => {
                let reason = format!("In antiquant scenario, {name} not support non-contiguous");
                Err(not_contiguous(name, call.operator, &reason))
            }
            None => Ok(()),
        },
    }
}

/// Masks and biases must reach as far as the sequences do.
fn check_pairs(call: &Call, query: &Grid, sequences: &[Sequence]) -> Result<(), SimError> {
    let explicit = call.mask.as_ref().filter(|_| call.sparse_mode < 2).map(|mask| ("attenMask", mask));
    for (name, tensor) in explicit.into_iter().chain(call.pse_shift.as_ref().map(|bias| ("pseShift", bias))) {
        let planes = Planes::of(&tensor.shape, query);
        let fits = |s: &Sequence| {
            let rows = if query.layout.is_packed() { s.query.len() } else { s.query.end };
            planes.rows >= rows && planes.columns >= s.key.len() && (planes.batch == 1 || planes.batch > s.index)
        };
        if tensor.shape.is_empty() || ![1, query.heads].contains(&planes.heads) || !sequences.iter().all(fits) {
            return refused(format!(
                "{name} of shape {:?} does not cover {} heads and the sequences {:?} by {:?}",
                tensor.shape,
                query.heads,
                sequences.iter().map(|s| s.query.len()).collect::<Vec<_>>(),
                sequences.iter().map(|s| s.key.len()).collect::<Vec<_>>()
            ));
        }
    }
    Ok(())
}

fn cost(call: &Call) -> Cost {
    let auto = [&call.pse_shift, &call.mask, &call.block_table, &call.query_rope, &call.sink];
    let own = [Some(&call.key), Some(&call.value), call.key_rope.as_ref()];
    let mut cost = Cost::of(&[&call.query]).hidden_copy(&call.query);
    for tensor in own.into_iter().flatten() {
        cost = cost.touching(tensor);
        if fused_attention() == Reading::Copies {
            cost = cost.hidden_copy(tensor);
        }
    }
    for tensor in auto.into_iter().flatten() {
        cost = cost.touching(tensor).hidden_copy(tensor);
    }
    cost.touching(&call.out)
}

fn sequences(call: &Call, query: &Grid, key: &Store) -> Result<Vec<Sequence>, SimError> {
    let packed = query.layout.is_packed();
    let count = if packed { call.query_lengths.len() } else { query.batch };
    let mut found = Vec::with_capacity(count);
    let (mut query_start, mut key_start) = (0usize, 0usize);
    for index in 0..count {
        let length = |lengths: &[i64], whole: Option<usize>| -> Result<usize, SimError> {
            // One length stands for all sequences, unless lengths are counted from the first sequence on.
            let shared = lengths.first().filter(|_| lengths.len() == 1 && !packed);
            match (lengths.get(index).or(shared), whole) {
                (Some(length), _) if *length >= 0 => Ok(*length as usize),
                (None, Some(whole)) => Ok(whole),
                _ => refused(format!("actual sequence lengths {lengths:?} say nothing of sequence {index} of {count}")),
            }
        };
        let query_rows = if packed {
            let end = length(&call.query_lengths, None)?;
            query_start..end
        } else {
            0..length(&call.query_lengths, Some(query.length))?
        };
        let key_rows = match key.sequences() {
            // Paged lengths are of each sequence, also where the query is packed.
            None => 0..length(&call.key_lengths, None)?,
            Some(_) if packed => key_start..length(&call.key_lengths, None)?,
            Some((_, whole)) => 0..length(&call.key_lengths, Some(whole))?,
        };
        let key_limit = key.sequences().map_or(usize::MAX, |(_, whole)| whole);
        if query_rows.start > query_rows.end
            || key_rows.start > key_rows.end
            || query_rows.end > query.length
            || key_rows.end > key_limit
        {
            return refused(format!(
                "actual sequence lengths {:?} and {:?} do not fit {} query rows and {key_limit} key rows",
                call.query_lengths, call.key_lengths, query.length
            ));
        }
        (query_start, key_start) = (query_rows.end, key_rows.end);
        found.push(Sequence { index, query: query_rows, key: key_rows });
    }
    Ok(found)
}

/// The layouts of all tensors.
pub(super) struct Shapes {
    pub query: Grid,
    pub out: Grid,
    pub key: Store,
    pub value: Store,
    pub rope: Option<(Grid, Store)>,
}

impl Shapes {
    /// What belongs together must have the same sequences, heads and positions.
    fn check(&self, call: &Call) -> Result<(), SimError> {
        let same = |other: &Grid| (other.batch, other.length) == (self.query.batch, self.query.length);
        let tensors = |a: &Tensor, b: &Tensor| format!("{} and {}", a.describe(), b.describe());
        if !same(&self.out) {
            return refused(format!("query and output do not fit: {}", tensors(&call.query, &call.out)));
        }
        if !self.key.matches(&self.value) {
            return refused(format!("key and value do not fit: {}", tensors(&call.key, &call.value)));
        }
        if let (Some((grid, store)), Some(q), Some(k)) = (&self.rope, &call.query_rope, &call.key_rope) {
            if !same(grid) {
                return refused(format!("query and queryRope do not fit: {}", tensors(&call.query, q)));
            }
            if !self.key.matches(store) {
                return refused(format!("key and keyRope do not fit: {}", tensors(&call.key, k)));
            }
            if grid.width != store.width() {
                return refused(format!("queryRope and keyRope differ in width: {}", tensors(q, k)));
            }
        }
        let packed = self.query.layout.is_packed();
        let batch = self.key.sequences().map_or(self.query.batch, |(batch, _)| batch);
        let sequences = if packed { call.query_lengths.len() } else { self.query.batch };
        if batch != self.query.batch {
            return refused(format!("query and key do not fit: {}", tensors(&call.query, &call.key)));
        }
        if let Some(table) = &call.block_table
            && (table.shape.len() != 2 || table.shape[0] < sequences as i64)
        {
            return refused(format!("blockTable {} must be [{sequences} sequences, blocks of each]", table.describe()));
        }
        if let Some(sink) = &call.sink
            && sink.numel() != self.query.heads
        {
            return refused(format!("learnableSink {} must hold one value per head", sink.describe()));
        }
        let rows = self.query.batch * self.query.length * self.query.heads;
        match &call.lse {
            Some(lse) if call.with_lse && lse.numel() != rows => {
                refused(format!("softmaxLse {} must hold {rows} values", lse.describe()))
            }
            None if call.with_lse => refused("softmaxLseFlag needs softmaxLse"),
            _ => Ok(()),
        }
    }
}
