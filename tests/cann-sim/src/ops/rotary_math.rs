//! Rotary position embedding in f32: `y = x · cos + rotate(x) · sin`.

/// How the elements of a head pair up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The first half with the second: rotate gives `(-x2, x1)`.
    Half,
    /// Neighbours: rotate gives `(-x1, x0, -x3, x2, …)`.
    Interleave,
    /// Both halves turned by themselves: rotate gives `(-x2, x1, -x4, x3)` of the quarters.
    Quarter,
    /// Even elements first, odd ones behind them, then as `Half`: the result stays in that order.
    InterleaveHalf,
}

impl Mode {
    /// The mode for the number that RotaryPositionEmbedding takes.
    pub fn from_number(number: i64) -> Option<Self> {
        let modes = [Self::Half, Self::Interleave, Self::Quarter, Self::InterleaveHalf];
        usize::try_from(number).ok().and_then(|i| modes.get(i).copied())
    }

    /// The mode for the name that ApplyRotaryPosEmbV2 takes.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "half" => Some(Self::Half),
            "interleave" => Some(Self::Interleave),
            "quarter" => Some(Self::Quarter),
            _ => None,
        }
    }

    /// The width of a head must be a multiple of this.
    pub fn pairs_in(self) -> usize {
        if self == Self::Quarter { 4 } else { 2 }
    }

    /// Which element of `x` stands at `i`, which one is turned into it, and the sign of that one.
    fn sources(self, i: usize, width: usize) -> (usize, usize, f32) {
        let turned = |i: usize, from: usize, width: usize| {
            let half = width / 2;
            if i < half { (from + i + half, -1.0) } else { (from + i - half, 1.0) }
        };
        match self {
            Self::Half => {
                let (other, sign) = turned(i, 0, width);
                (i, other, sign)
            }
            Self::Interleave => (i, i ^ 1, if i.is_multiple_of(2) { -1.0 } else { 1.0 }),
            Self::Quarter => {
                let from = if i < width / 2 { 0 } else { width / 2 };
                let (other, sign) = turned(i - from, from, width / 2);
                (i, other, sign)
            }
            Self::InterleaveHalf => {
                let sorted = |i: usize| {
                    let half = width / 2;
                    if i < half { 2 * i } else { 2 * (i - half) + 1 }
                };
                let (other, sign) = turned(i, 0, width);
                (sorted(i), sorted(other), sign)
            }
        }
    }
}

/// Turns one head `x` by `cos` and `sin` of the same width into `out`.
///
/// # Panics
/// When the four widths differ or do not divide by [`Mode::pairs_in`]: the caller has checked both.
pub fn rotate(mode: Mode, x: &[f32], cos: &[f32], sin: &[f32], out: &mut [f32]) {
    let width = x.len();
    assert!(cos.len() == width && sin.len() == width && out.len() == width);
    assert!(width.is_multiple_of(mode.pairs_in()));
    for (i, y) in out.iter_mut().enumerate() {
        let (same, other, sign) = mode.sources(i, width);
        *y = x[same] * cos[i] + sign * x[other] * sin[i];
    }
}

/// The same with the turn given as a matrix of `[width, width]`: `y = x · cos + (x @ matrix) · sin`.
///
/// # Panics
/// When the sizes do not fit: the caller has checked them.
pub fn rotate_by_matrix(x: &[f32], cos: &[f32], sin: &[f32], matrix: &[f32], out: &mut [f32]) {
    let width = x.len();
    assert!(matrix.len() == width * width && out.len() == width);
    for (i, y) in out.iter_mut().enumerate() {
        let turned: f32 = (0..width).map(|j| x[j] * matrix[j * width + i]).sum();
        *y = x[i] * cos[i] + turned * sin[i];
    }
}

/// `x / sqrt(mean(x²) + epsilon) · gamma`.
///
/// # Panics
/// When the sizes do not fit: the caller has checked them.
pub fn rms_norm(x: &[f32], gamma: &[f32], epsilon: f32, out: &mut [f32]) {
    assert!(gamma.len() == x.len() && out.len() == x.len());
    let mean = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
    let factor = 1.0 / (mean + epsilon).sqrt();
    for (i, y) in out.iter_mut().enumerate() {
        *y = x[i] * factor * gamma[i];
    }
}

/// For each element of a row-major `shape`, where the element of `other` that broadcasts to it lies.
///
/// # Errors
/// A sentence that names both shapes when `other` does not broadcast to `shape`.
pub fn broadcast(shape: &[i64], other: &[i64]) -> Result<Vec<usize>, String> {
    let fits = shape.len() == other.len()
        && shape.iter().zip(other).all(|(&x, &o)| o == x || o == 1)
        && shape.iter().all(|&size| size >= 0);
    if !fits {
        return Err(format!("shape {other:?} does not broadcast to {shape:?}: every size must be the same or 1"));
    }
    let mut positions = vec![0usize];
    let mut stride = other.iter().product::<i64>().max(1) as usize;
    for (&size, &own) in shape.iter().zip(other) {
        stride /= own.max(1) as usize;
        let step = if own == 1 { 0 } else { stride };
        positions = positions.iter().flat_map(|from| (0..size as usize).map(move |i| from + i * step)).collect();
    }
    Ok(positions)
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: [f32; 4] = [1.0, 2.0, 3.0, 4.0];

    /// With cos 0 and sin 1 only the turned elements are left.
    fn turned(mode: Mode) -> [f32; 4] {
        let mut out = [0.0; 4];
        rotate(mode, &X, &[0.0; 4], &[1.0; 4], &mut out);
        out
    }

    #[test]
    fn each_mode_turns_as_documented() {
        assert_eq!(turned(Mode::Half), [-3.0, -4.0, 1.0, 2.0]);
        assert_eq!(turned(Mode::Interleave), [-2.0, 1.0, -4.0, 3.0]);
        assert_eq!(turned(Mode::Quarter), [-2.0, 1.0, -4.0, 3.0]);
        assert_eq!(turned(Mode::InterleaveHalf), [-2.0, -4.0, 1.0, 3.0]);
        let wide: Vec<f32> = (1..=8).map(|i| i as f32).collect();
        let mut out = [0.0; 8];
        rotate(Mode::Quarter, &wide, &[0.0; 8], &[1.0; 8], &mut out);
        assert_eq!(out, [-3.0, -4.0, 1.0, 2.0, -7.0, -8.0, 5.0, 6.0]);
    }

    #[test]
    fn only_interleave_half_reorders_without_a_turn() {
        let mut out = [0.0; 4];
        rotate(Mode::InterleaveHalf, &X, &[1.0; 4], &[0.0; 4], &mut out);
        assert_eq!(out, [1.0, 3.0, 2.0, 4.0]);
        rotate(Mode::Half, &X, &[1.0; 4], &[0.0; 4], &mut out);
        assert_eq!(out, X);
    }

    #[test]
    fn the_matrix_of_half_does_what_half_does() {
        let mut matrix = [0.0; 16];
        for i in 0..2 {
            matrix[i * 4 + i + 2] = 1.0;
            matrix[(i + 2) * 4 + i] = -1.0;
        }
        let (cos, sin) = ([0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]);
        let (mut plain, mut by_matrix) = ([0.0; 4], [0.0; 4]);
        rotate(Mode::Half, &X, &cos, &sin, &mut plain);
        rotate_by_matrix(&X, &cos, &sin, &matrix, &mut by_matrix);
        assert_eq!(plain, by_matrix);
    }

    #[test]
    fn rms_norm_by_hand() {
        let mut out = [0.0; 2];
        rms_norm(&[3.0, 4.0], &[1.0, 2.0], 12.5, &mut out);
        assert!((out[0] - 0.6).abs() < 1e-6 && (out[1] - 1.6).abs() < 1e-6, "{out:?}");
    }

    #[test]
    fn broadcasting_repeats_sizes_of_one() {
        assert_eq!(broadcast(&[2, 2, 2], &[2, 1, 2]), Ok(vec![0, 1, 0, 1, 2, 3, 2, 3]));
        assert_eq!(broadcast(&[2, 2], &[1, 1]), Ok(vec![0; 4]));
        assert!(broadcast(&[2, 2], &[2, 3]).is_err());
        assert_eq!(broadcast(&[0, 2], &[0, 2]), Ok(vec![]));
    }
}
