//! What is no layout, and what the refusal says.

use infini_rearrange::layout::{Layout, LayoutError, canonical_strides};

fn refused(shape: &[usize], strides: &[isize], offset: isize, element_size: usize) -> LayoutError {
    Layout::new(shape, strides, offset, element_size).unwrap_err()
}

#[test]
fn one_stride_a_dimension() {
    let error = refused(&[2, 3], &[1], 0, 4);
    assert_eq!(error, LayoutError::Rank { dims: 2, strides: 1 });
    assert_eq!(error.to_string(), "2 dimensions but 1 strides: give one stride (in elements) for each dimension");
}

#[test]
fn element_sizes_are_powers_of_two_up_to_16() {
    for given in [0, 3, 5, 6, 7, 12, 15, 17, 24, 32, usize::MAX] {
        assert_eq!(refused(&[2], &[1], 0, given), LayoutError::ElementSize { given });
    }
    for allowed in [1, 2, 4, 8, 16] {
        assert_eq!(Layout::contiguous(&[2], allowed).unwrap().bytes(), 2 * allowed);
    }
    assert_eq!(
        refused(&[], &[], 0, 3).to_string(),
        "elements of 3 bytes: allowed are 1, 2, 4, 8 and 16; view the data as one of these"
    );
}

#[test]
fn more_bytes_than_addresses() {
    let huge = 1 << 32;
    assert!(matches!(refused(&[huge, huge], &[0, 0], 0, 1), LayoutError::Size { .. }));
    assert!(matches!(refused(&[1 << 60], &[1], 0, 8), LayoutError::Size { .. }));
    assert!(matches!(refused(&[usize::MAX], &[0], 0, 1), LayoutError::Size { .. }));
    assert_eq!(
        refused(&[1 << 62], &[0], 0, 2).to_string(),
        "shape [4611686018427387904] of 2-byte elements is larger than 2^63 - 1 bytes: copy it in smaller pieces"
    );
    // One byte less is a layout.
    assert_eq!(Layout::new(&[isize::MAX as usize], &[0], 0, 1).unwrap().numel(), isize::MAX as usize);
}

#[test]
fn addresses_beyond_64_bits() {
    let max = isize::MAX;
    for (shape, strides, offset, element_size) in [
        (&[2usize, 2][..], &[max, 1][..], 0, 1), // the last element's end
        (&[3], &[max], 0, 1),                    // the last element
        (&[2], &[max / 2], 0, 4),                // the stride in bytes
        (&[2], &[isize::MIN], 0, 2),
        (&[2], &[isize::MIN], -1, 1),
        (&[1], &[1], max, 1), // the end of the only element
        (&[], &[], max / 4, 8),
        (&[0], &[1], max, 2),                            // the offset counts even without elements
        (&[2, 2], &[max / 2 + 1, -(max / 2) - 1], 0, 1), // each end fits, their distance does not
    ] {
        let error = refused(shape, strides, offset, element_size);
        assert!(matches!(error, LayoutError::Reach { .. }), "{shape:?} {strides:?} {offset}: {error}");
    }
    assert_eq!(
        refused(&[2], &[isize::MAX], 1, 4).to_string(),
        "shape [2] strides [9223372036854775807] offset 1 of 4-byte elements reaches beyond 64-bit byte addresses (±2^63): \
         check the strides and the offset, which are in elements"
    );
}

#[test]
fn strides_that_are_never_taken_may_be_anything() {
    let layout = Layout::new(&[1, 4, 1], &[isize::MIN, 1, isize::MAX], 0, 16).unwrap();
    assert!(layout.is_contiguous());
    assert_eq!(layout.byte_range(), 0..64);
    let empty = Layout::new(&[usize::MAX, 0, 7], &[isize::MAX, isize::MIN, 5], -3, 8).unwrap();
    assert_eq!((empty.numel(), empty.bytes(), empty.is_contiguous()), (0, 0, true));
    assert!(empty.byte_range().is_empty());
    assert!(!empty.may_self_overlap());
}

#[test]
fn a_scalar_has_one_element() {
    let scalar = Layout::new(&[], &[], 3, 4).unwrap();
    assert_eq!((scalar.ndim(), scalar.numel(), scalar.bytes()), (0, 1, 4));
    assert!(scalar.is_contiguous());
    assert_eq!(scalar.byte_range(), 12..16);
}

#[test]
fn row_major_strides_count_lengths_of_0_as_1() {
    assert_eq!(canonical_strides(&[]), [] as [isize; 0]);
    assert_eq!(canonical_strides(&[5]), [1]);
    assert_eq!(canonical_strides(&[2, 0, 3]), [3, 3, 1]);
    assert_eq!(canonical_strides(&[2, usize::MAX, 3]), [isize::MAX, 3, 1]);
}

#[test]
fn described_in_one_line() {
    let layout = Layout::new(&[4096, 16, 64], &[3072, 192, 1], 128, 2).unwrap();
    assert_eq!(layout.describe("bf16"), "bf16 [4096, 16, 64] strides [3072, 192, 1] offset 128");
    assert_eq!(Layout::contiguous(&[2, 3], 4).unwrap().to_string(), "[2, 3] strides [3, 1]");
    assert_eq!(Layout::contiguous(&[], 4).unwrap().describe("f32"), "f32 [] strides []");
}
