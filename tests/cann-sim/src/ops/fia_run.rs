//! FusedInferAttentionScore on the device: reads the inputs as the simulated release does, and solves head by head.

use super::attention::{Band, Pairs, Problem, Rows, attend};
use super::fia::{Call, Sequence, Shapes, Store};
use super::fia_layout::{Grid, Pages, Planes};
use super::fia_reading::{Reading, fused_attention, misread};
use super::glue::refused;
use crate::error::SimError;
use crate::tensor::Tensor;

/// Everything read once, as f32.
struct Data {
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    rope: Option<(Vec<f32>, Vec<f32>)>,
    mask: Option<Vec<bool>>,
    bias: Option<Vec<f32>>,
    table: Option<Table>,
    sink: Option<Vec<f32>>,
}

/// The block table, its numbers replaced by the places of the blocks among those that were read.
struct Table {
    /// Places, row by row; none where the number is no block of the caches.
    places: Vec<Option<usize>>,
    /// Blocks per sequence.
    width: usize,
    /// The blocks that were read, in the order of their places.
    blocks: Vec<usize>,
}

impl Table {
    /// Caches are far larger than what one call looks at: only the blocks that the sequences reach are read.
    fn read(tensor: &Tensor, pages: &Pages, sequences: &[Sequence]) -> Result<Self, SimError> {
        let numbers = tensor.read_i64()?;
        let width = tensor.shape[1] as usize;
        let mut table = Table { places: vec![None; numbers.len()], width, blocks: Vec::new() };
        let mut known = std::collections::HashMap::new();
        for sequence in sequences {
            let reached = sequence.key.end.div_ceil(pages.block_size).min(width);
            for (at, number) in numbers.iter().enumerate().skip(sequence.index * width).take(reached) {
                if let Ok(block) = usize::try_from(*number)
                    && block < pages.blocks
                {
                    table.places[at] = Some(*known.entry(block).or_insert_with(|| {
                        table.blocks.push(block);
                        table.blocks.len() - 1
                    }));
                }
            }
        }
        Ok(table)
    }
}

impl Data {
    fn read(call: &Call, shapes: &Shapes, sequences: &[Sequence]) -> Result<Self, SimError> {
        let all = |tensor: &Option<Tensor>| tensor.as_ref().map(Tensor::read_f32).transpose();
        let mask = call.mask.as_ref().filter(|_| call.sparse_mode < 2).map(Tensor::read_i64).transpose()?;
        let table = match (&call.block_table, &shapes.key) {
            (Some(tensor), Store::Paged(pages)) => Some(Table::read(tensor, pages, sequences)?),
            _ => None,
        };
        let own = |tensor: &Tensor| match &table {
            Some(table) => {
                let blocks = table.blocks.iter().map(|&block| read_own(&block_of(tensor, block)));
                Ok(blocks.collect::<Result<Vec<_>, _>>()?.concat())
            }
            None => read_own(tensor),
        };
        let (key, value) = (own(&call.key)?, own(&call.value)?);
        let rope = match (&call.query_rope, &call.key_rope) {
            (Some(q), Some(k)) => Some((q.read_f32()?, own(k)?)),
            _ => None,
        };
        Ok(Data {
            query: call.query.read_f32()?,
            key,
            value,
            rope,
            mask: mask.map(|mask| mask.into_iter().map(|hides| hides != 0).collect()),
            bias: all(&call.pse_shift)?,
            sink: all(&call.sink)?,
            table,
        })
    }

    /// Where the rows of one sequence and head of a store begin.
    fn starts(&self, store: &Store, sequence: &Sequence, head: usize) -> Result<Vec<usize>, SimError> {
        match store {
            Store::Plain(grid) => Ok(sequence.key.clone().map(|s| grid.start(sequence.index, head, s)).collect()),
            Store::Paged(pages) => {
                let table = self.table.as_ref().expect("a paged store has a table");
                let row = |s: usize| {
                    let at = s / pages.block_size;
                    let entry = table.places.get(sequence.index * table.width + at).filter(|_| at < table.width);
                    match entry.copied().flatten() {
                        Some(place) => Ok(pages.start(place, head, s % pages.block_size)),
                        None => refused(format!(
                            "blockTable has none of the {} blocks for position {s} of sequence {}",
                            pages.blocks, sequence.index
                        )),
                    }
                };
                sequence.key.clone().map(row).collect()
            }
        }
    }
}

/// Key, value or key_rope as the operator takes them here.
fn read_own(tensor: &Tensor) -> Result<Vec<f32>, SimError> {
    match fused_attention() {
        Reading::Misreads => misread(tensor),
        _ => tensor.read_f32(),
    }
}

/// One block of a cache, where the operator takes it to lie.
fn block_of(cache: &Tensor, block: usize) -> Tensor {
    let mut view = match fused_attention() {
        Reading::Misreads => cache.misread_as_contiguous(),
        _ => cache.clone(),
    };
    view.offset += block as i64 * view.strides[0];
    view.shape[0] = 1;
    view
}

fn band(call: &Call, query: &Grid, sequence: &Sequence) -> Option<Band> {
    let shift = sequence.key.len() as i64 - sequence.query.len() as i64;
    match call.sparse_mode {
        // With one query per sequence the limits play no part.
        0 if call.mask.is_some() && query.length > 1 => {
            Some(Band { before: call.pre_tokens, after: call.next_tokens, shift: 0 })
        }
        2 => Some(Band { before: i64::MAX, after: 0, shift: 0 }),
        3 => Some(Band { before: i64::MAX, after: 0, shift }),
        4 => Some(Band { before: call.pre_tokens, after: call.next_tokens, shift }),
        _ => None,
    }
}

/// Computes the call and writes its outputs.
///
/// # Errors
/// When a tensor lies outside of live memory, or the block table names blocks that are not there.
pub(super) fn run(call: &Call, shapes: &Shapes, sequences: &[Sequence]) -> Result<(), SimError> {
    let data = Data::read(call, shapes, sequences)?;
    let mut out = vec![0.0f32; call.out.numel()];
    let mut lse = vec![f32::INFINITY; shapes.query.batch * shapes.query.length * shapes.query.heads];
    let packed = shapes.query.layout.is_packed();
    let group = (call.heads / call.key_heads) as usize;
    for sequence in sequences {
        for head in 0..shapes.query.heads {
            let key_head = head / group;
            let query_starts = |grid: &Grid| -> Vec<usize> {
                sequence.query.clone().map(|s| grid.start(sequence.index, head, s)).collect()
            };
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
                band: band(call, &shapes.query, sequence),
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
            if let (Some(mask), Some(tensor)) = (&data.mask, &call.mask) {
                let planes = Planes::of(&tensor.shape, &shapes.query);
                problem.mask =
                    Some(Pairs { data: mask, starts: planes.starts(sequence.index, head, sequence.query.len()) });
            }
            if let (Some(bias), Some(tensor)) = (&data.bias, &call.pse_shift) {
                let planes = Planes::of(&tensor.shape, &shapes.query);
                problem.bias =
                    Some(Pairs { data: bias, starts: planes.starts(sequence.index, head, sequence.query.len()) });
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
        // Not asked for, it is there all the same, and zero.
        Some(tensor) => tensor.write_f32(&vec![0.0; tensor.numel()]),
        None => Ok(()),
    }
}
