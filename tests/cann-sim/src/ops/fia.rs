//! FusedInferAttentionScore: from the operator's arguments to one attention problem per sequence and head.

use super::attention::{Band, Pairs, Problem, Rows, attend};
use super::fia_layout::{Grid, Pages, parse};
use super::fia_reading::{Reading, fused_attention, misread, not_contiguous};
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
enum Store {
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

    fn sequences(&self) -> Option<(usize, usize)> {
        match self {
            Store::Plain(grid) => Some((grid.batch, grid.length)),
            Store::Paged(_) => None,
        }
    }
}

/// One sequence: which rows of the query and which of the key belong together.
#[derive(Clone, Debug)]
struct Sequence {
    index: usize,
    query: std::ops::Range<usize>,
    key: std::ops::Range<usize>,
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
        (Some(q), Some(k)) => Some((Grid::of(input, &q.shape, call.heads).or_else(refused)?, Store::of(&call, k, &query)?)),
        _ => None,
    };
    let sequences = sequences(&call, &query, &key)?;
    let shapes = Shapes { query, out, key, value, rope };
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
        _ => Ok(()),
    }
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
            match (lengths.get(index).or(lengths.first().filter(|_| lengths.len() == 1)), whole) {
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

struct Shapes {
    query: Grid,
    out: Grid,
    key: Store,
    value: Store,
    rope: Option<(Grid, Store)>,
}

/// Everything read once, as f32.
struct Data {
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    rope: Option<(Vec<f32>, Vec<f32>)>,
    mask: Option<Vec<bool>>,
    bias: Option<Vec<f32>>,
    table: Option<(Vec<i64>, usize)>,
    sink: Option<Vec<f32>>,
}

impl Data {
    fn read(call: &Call) -> Result<Self, SimError> {
        let own = |tensor: &Tensor| match fused_attention() {
            Reading::Misreads => misread(tensor),
            _ => tensor.read_f32(),
        };
        let all = |tensor: &Option<Tensor>| tensor.as_ref().map(Tensor::read_f32).transpose();
        let mask = call.mask.as_ref().map(Tensor::read_i64).transpose()?;
        let table = call.block_table.as_ref().map(|t| Ok((t.read_i64()?, *t.shape.last().unwrap_or(&0) as usize)));
        Ok(Data {
            query: call.query.read_f32()?,
            key: own(&call.key)?,
            value: own(&call.value)?,
            rope: match (&call.query_rope, &call.key_rope) {
                (Some(q), Some(k)) => Some((q.read_f32()?, own(k)?)),
                _ => None,
            },
            mask: mask.map(|mask| mask.into_iter().map(|hides| hides != 0).collect()),
            bias: all(&call.pse_shift)?,
            table: table.transpose()?,
            sink: all(&call.sink)?,
        })
    }

    /// Where the rows of one sequence and head of a store begin.
    fn starts(&self, store: &Store, sequence: &Sequence, head: usize) -> Result<Vec<usize>, SimError> {
        match store {
            Store::Plain(grid) => Ok(sequence.key.clone().map(|s| grid.start(sequence.index, head, s)).collect()),
            Store::Paged(pages) => {
                let (table, width) = self.table.as_ref().expect("a paged store has a table");
                let block_of = |s: usize| {
                    let at = s / pages.block_size;
                    let block = table.get(sequence.index * width + at).filter(|_| at < *width).copied().unwrap_or(-1);
                    match usize::try_from(block) {
                        Ok(block) if block < pages.blocks => Ok(pages.start(block, head, s % pages.block_size)),
                        _ => refused(format!("block {block} of {}, for position {s}", pages.blocks)),
                    }
                };
                sequence.key.clone().map(block_of).collect()
            }
        }
    }
}

/// Where the rows of a mask or bias of up to four dimensions begin, for one sequence and head.
fn pair_starts(shape: &[i64], sequence: &Sequence, head: usize, packed: bool) -> Vec<usize> {
    let at = |from_end: usize| shape.len().checked_sub(from_end).map_or(1, |dim| shape[dim].max(0) as usize);
    let (columns, rows, heads, batch) = (at(1), at(2), at(3), at(4));
    // With three dimensions the outermost is the batch.
    let (heads, batch) = if shape.len() == 3 { (1, heads) } else { (heads, batch) };
    let plane = if batch > 1 { sequence.index * heads } else { 0 } + if heads > 1 { head } else { 0 };
    let first = if packed { 0 } else { sequence.query.start };
    (0..sequence.query.len()).map(|i| (plane * rows + (first + i).min(rows.saturating_sub(1))) * columns).collect()
}

fn band(call: &Call, sequence: &Sequence) -> Option<Band> {
    let shift = sequence.key.len() as i64 - sequence.query.len() as i64;
    match call.sparse_mode {
        0 if call.mask.is_some() => Some(Band { before: call.pre_tokens, after: call.next_tokens, shift: 0 }),
        2 => Some(Band { before: i64::MAX, after: 0, shift: 0 }),
        3 => Some(Band { before: i64::MAX, after: 0, shift }),
        4 => Some(Band { before: call.pre_tokens, after: call.next_tokens, shift }),
        _ => None,
    }
}

fn run(call: &Call, shapes: &Shapes, sequences: &[Sequence]) -> Result<(), SimError> {
    let data = Data::read(call)?;
    let mut out = vec![0.0f32; call.out.numel()];
    let mut lse = vec![f32::INFINITY; shapes.query.batch * shapes.query.length * shapes.query.heads];
    let packed = shapes.query.layout.is_packed();
    let group = (call.heads / call.key_heads) as usize;
    for sequence in sequences {
        for head in 0..shapes.query.heads {
            let key_head = head / group;
            let query_starts =
                |grid: &Grid| -> Vec<usize> { sequence.query.clone().map(|s| grid.start(sequence.index, head, s)).collect() };
            let mut problem = Problem {
                query: vec![Rows { data: &data.query, starts: query_starts(&shapes.query), width: shapes.query.width }],
                key: vec![Rows {
                    data: &data.key,
                    starts: data.starts(&shapes.key, sequence, key_head)?,
                    width: shapes.query.width,
                }],
                value: Rows {
                    data: &data.value,
                    starts: data.starts(&shapes.value, sequence, key_head)?,
                    width: shapes.out.width,
                },
                scale: call.scale,
                band: band(call, sequence),
                mask: None,
                bias: None,
                sink: data.sink.as_ref().and_then(|sink| sink.get(head).copied()),
            };
            if let (Some((grid, store)), Some((q, k))) = (&shapes.rope, &data.rope) {
                problem.query.push(Rows { data: q, starts: query_starts(grid), width: grid.width });
                let starts = data.starts(store, sequence, key_head)?;
                problem.key.push(Rows { data: k, starts, width: grid.width });
            }
            // The masks of modes 2 to 4 are compressed: a fixed triangle, of which only the positions matter.
            if let (Some(mask), Some(tensor), 0 | 1) = (&data.mask, &call.mask, call.sparse_mode) {
                problem.mask = Some(Pairs { data: mask, starts: pair_starts(&tensor.shape, sequence, head, packed) });
            }
            if let (Some(bias), Some(tensor)) = (&data.bias, &call.pse_shift) {
                problem.bias = Some(Pairs { data: bias, starts: pair_starts(&tensor.shape, sequence, head, packed) });
            }
            let mut rows = vec![0.0; sequence.query.len() * shapes.out.width];
            let mut sums = vec![0.0; sequence.query.len()];
            attend(&problem, &mut rows, &mut sums);
            for (i, s) in sequence.query.clone().enumerate() {
                let to = shapes.out.start(sequence.index, head, s);
                out[to..to + shapes.out.width].copy_from_slice(&rows[i * shapes.out.width..][..shapes.out.width]);
                let to = if packed {
                    s * shapes.query.heads + head
                } else {
                    (sequence.index * shapes.query.heads + head) * shapes.query.length + s
                };
                lse[to] = sums[i];
            }
        }
    }
    call.out.write_f32(&out)?;
    match &call.lse {
        Some(tensor) if call.with_lse => tensor.write_f32(&lse),
        _ => Ok(()),
    }
}
