//! Attention in f32, the plain way: every score of a row, its softmax, the weighted sum of the values.
//!
//! Nothing here knows of devices, layouts or operators. One [`Problem`] is one head of one sequence. Where its rows
//! lie in memory is a list of starting positions, so that every layout, paged caches too, comes down to the same loop.

/// Rows of equal width somewhere in a flat buffer: row `i` is `data[starts[i]..starts[i] + width]` (elements).
#[derive(Clone, Debug)]
pub struct Rows<'a> {
    /// The buffer that the rows lie in.
    pub data: &'a [f32],
    /// Where each row begins, in elements.
    pub starts: Vec<usize>,
    /// Elements per row.
    pub width: usize,
}

impl Rows<'_> {
    fn row(&self, i: usize) -> &[f32] {
        &self.data[self.starts[i]..self.starts[i] + self.width]
    }
}

/// Keys that a query row may look at by position: `j` is visible to `i` where
/// `i + shift - before <= j <= i + shift + after`. `i64::MAX` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// How many positions back from the diagonal are visible.
    pub before: i64,
    /// How many positions beyond the diagonal are visible.
    pub after: i64,
    /// Where the diagonal starts: 0 for the upper left corner, keys − queries for the lower right one.
    pub shift: i64,
}

impl Band {
    /// The visible keys of query row `i` among `keys`, as a range.
    pub fn range(&self, i: usize, keys: usize) -> std::ops::Range<usize> {
        let diagonal = i as i64 + self.shift;
        let clamp = |x: i64| x.clamp(0, keys as i64) as usize;
        let low = clamp(diagonal.saturating_sub(self.before));
        let high = clamp(diagonal.saturating_add(self.after).saturating_add(1));
        low..high.max(low)
    }
}

/// A matrix over (query, key) read at `data[starts[i] + j]`: a mask where true hides, or a bias that is added.
#[derive(Clone, Debug)]
pub struct Pairs<'a, T> {
    /// The buffer of the matrix.
    pub data: &'a [T],
    /// Where the row of each query begins, in elements.
    pub starts: Vec<usize>,
}

/// One head of one sequence.
#[derive(Clone, Debug)]
pub struct Problem<'a> {
    /// Query and key come in parts whose products add up: the plain head, then the rotated part (MLA).
    pub query: Vec<Rows<'a>>,
    /// As many parts as `query`, of the same widths.
    pub key: Vec<Rows<'a>>,
    /// One row per key row.
    pub value: Rows<'a>,
    /// Factor on query · key.
    pub scale: f32,
    /// Visibility by position; none shows everything.
    pub band: Option<Band>,
    /// Visibility by an explicit mask, true hides.
    pub mask: Option<Pairs<'a, bool>>,
    /// Added to the scaled score (pse_shift).
    pub bias: Option<Pairs<'a, f32>>,
    /// A score that takes part in the softmax and has no value (learnable sink).
    pub sink: Option<f32>,
}

/// Solves `problem`: `out` is `[queries, value.width]`, `lse` is `[queries]`, the logarithm of the sum of exponentials.
///
/// A row that sees no key gives zeros and a `lse` of +∞, as the operator documents for rows without work.
///
/// # Panics
/// When `out` or `lse` are not of these sizes, or rows lie outside of their buffers: the caller has checked both.
pub fn attend(problem: &Problem<'_>, out: &mut [f32], lse: &mut [f32]) {
    let queries = problem.query[0].starts.len();
    let keys = problem.value.starts.len();
    let width = problem.value.width;
    assert_eq!(out.len(), queries * width);
    assert_eq!(lse.len(), queries);
    let mut scores = vec![0.0f32; keys];
    for i in 0..queries {
        let out = &mut out[i * width..(i + 1) * width];
        out.fill(0.0);
        lse[i] = f32::INFINITY;

        let visible = problem.band.map_or(0..keys, |band| band.range(i, keys));
        let mut largest = f32::NEG_INFINITY;
        for j in visible.clone() {
            scores[j] = score(problem, i, j);
            largest = largest.max(scores[j]);
        }
        // Nothing visible, by position or by mask: the sink alone has nothing to contribute either.
        if largest == f32::NEG_INFINITY {
            continue;
        }
        if let Some(sink) = problem.sink {
            largest = largest.max(sink);
        }
        let mut total = problem.sink.map_or(0.0, |sink| (sink - largest).exp());
        for j in visible {
            let weight = (scores[j] - largest).exp();
            if weight == 0.0 {
                continue;
            }
            total += weight;
            for (sum, value) in out.iter_mut().zip(problem.value.row(j)) {
                *sum += weight * value;
            }
        }
        out.iter_mut().for_each(|sum| *sum /= total);
        lse[i] = largest + total.ln();
    }
}

fn score(problem: &Problem<'_>, i: usize, j: usize) -> f32 {
    if let Some(mask) = &problem.mask
        && mask.data[mask.starts[i] + j]
    {
        return f32::NEG_INFINITY;
    }
    let parts = problem.query.iter().zip(&problem.key);
    let product: f32 = parts.map(|(q, k)| dot(q.row(i), k.row(j))).sum();
    let bias = problem.bias.as_ref();
    product * problem.scale + bias.map_or(0.0, |bias| bias.data[bias.starts[i] + j])
}

/// Sixteen running sums, so that the loop vectorizes and rounding errors stay small.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut sums = [0.0f32; LANES];
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest = a.remainder().iter().zip(b.remainder());
    let rest: f32 = rest.map(|(x, y)| x * y).sum();
    for (a, b) in a.zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(data: &[f32], width: usize) -> Rows<'_> {
        let starts = (0..data.len() / width).map(|i| i * width).collect();
        Rows { data, starts, width }
    }

    fn problem<'a>(q: &'a [f32], k: &'a [f32], v: &'a [f32], width: usize) -> Problem<'a> {
        Problem {
            query: vec![rows(q, width)],
            key: vec![rows(k, width)],
            value: rows(v, v.len() / (k.len() / width)),
            scale: 1.0,
            band: None,
            mask: None,
            bias: None,
            sink: None,
        }
    }

    fn solve(problem: &Problem<'_>) -> (Vec<f32>, Vec<f32>) {
        let queries = problem.query[0].starts.len();
        let mut out = vec![f32::NAN; queries * problem.value.width];
        let mut lse = vec![f32::NAN; queries];
        attend(problem, &mut out, &mut lse);
        (out, lse)
    }

    fn close(a: &[f32], b: &[f32]) {
        assert_eq!(a.len(), b.len());
        for (x, y) in a.iter().zip(b) {
            assert!((x - y).abs() < 1e-6, "{a:?} is not {b:?}");
        }
    }

    #[test]
    fn two_keys_by_hand() {
        // Scores ln 3 and 0: weights 3/4 and 1/4, lse = ln 4.
        let (out, lse) = solve(&problem(&[1.0], &[3f32.ln(), 0.0], &[4.0, 8.0, 0.0, 4.0], 1));
        close(&out, &[3.0, 7.0]);
        close(&lse, &[4f32.ln()]);
    }

    /// Rows of 20 as a part of 17 and one of 3.
    fn parts<'a>(whole: &Rows<'a>) -> Vec<Rows<'a>> {
        let part = |from: usize, width: usize| Rows {
            data: whole.data,
            starts: whole.starts.iter().map(|start| start + from).collect(),
            width,
        };
        vec![part(0, 17), part(17, 3)]
    }

    #[test]
    fn parts_add_up_to_the_joined_head() {
        let q: Vec<f32> = (0..3 * 20).map(|i| (i as f32 * 0.37).sin()).collect();
        let k: Vec<f32> = (0..5 * 20).map(|i| (i as f32 * 0.11).cos()).collect();
        let v: Vec<f32> = (0..5 * 4).map(|i| i as f32).collect();
        let joined = problem(&q, &k, &v, 20);
        let mut split = joined.clone();
        split.query = parts(&joined.query[0]);
        split.key = parts(&joined.key[0]);
        close(&solve(&joined).0, &solve(&split).0);
    }

    #[test]
    fn lower_right_causality_shows_the_last_query_everything() {
        let band = Band { before: i64::MAX, after: 0, shift: 2 };
        assert_eq!(band.range(0, 5), 0..3);
        assert_eq!(band.range(2, 5), 0..5);
        let narrow = Band { before: 1, after: 0, shift: 0 };
        assert_eq!(narrow.range(3, 5), 2..4);
        let nothing = Band { before: i64::MAX, after: 0, shift: -3 };
        assert_eq!(nothing.range(0, 5).len(), 0);
    }

    #[test]
    fn a_row_that_sees_nothing_is_zero_with_infinite_lse() {
        let mut p = problem(&[1.0, 1.0], &[1.0, 2.0], &[5.0, 6.0], 1);
        p.mask = Some(Pairs { data: &[true, true, true, false], starts: vec![0, 2] });
        let (out, lse) = solve(&p);
        close(&out, &[0.0, 6.0]);
        assert_eq!(lse[0], f32::INFINITY);
        close(&lse[1..], &[2.0]);
    }

    #[test]
    fn the_sink_takes_weight_and_gives_no_value() {
        let mut p = problem(&[1.0], &[0.0], &[8.0], 1);
        p.sink = Some(3f32.ln());
        let (out, lse) = solve(&p);
        close(&out, &[2.0]);
        close(&lse, &[4f32.ln()]);
    }

    #[test]
    fn bias_is_added_after_the_scale() {
        let mut p = problem(&[1.0], &[2.0, 2.0], &[4.0, 0.0], 1);
        p.scale = 0.5;
        let bias = [3f32.ln(), 0.0];
        p.bias = Some(Pairs { data: &bias, starts: vec![0] });
        close(&solve(&p).0, &[3.0]);
    }
}
