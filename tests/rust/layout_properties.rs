//! Contiguity, reach and overlap of random small views, against an enumeration of all their elements.

#[path = "support/random.rs"]
mod random;
mod support;

use infini_rearrange::layout::{Contiguity, Layout, contiguity, rows_ok};
use proptest::prelude::*;
use std::collections::HashSet;
use support::{View, named};

fn positions(view: &View) -> Vec<i128> {
    (0..view.numel()).map(|n| view.position(n)).collect()
}

/// Contiguous by the definition: the elements in order of their indices are neighbours.
fn contiguous(view: &View) -> bool {
    positions(view).windows(2).all(|pair| pair[1] == pair[0] + 1)
}

/// The dimensions from `n` on.
fn inner(view: &View, n: usize) -> View {
    View { shape: view.shape[n..].to_vec(), strides: view.strides[n..].to_vec(), ..view.clone() }
}

fn in_i64(view: &View) -> (Vec<i64>, Vec<i64>) {
    (view.shape.iter().map(|&len| len as i64).collect(), view.strides.iter().map(|&stride| stride as i64).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agree_with_an_enumeration(copy in random::copies(), from_dst in any::<bool>()) {
        let view = if from_dst { copy.dst } else { copy.src };
        let layout = view.layout(copy.element_size);
        let (shape, strides) = in_i64(&view);

        prop_assert_eq!(layout.is_contiguous(), contiguous(&view));
        let n = (0..=view.shape.len()).find(|&n| view.numel() == 0 || contiguous(&inner(&view, n))).unwrap();
        prop_assert_eq!(layout.strided_outer(), n);
        let found = contiguity(&shape, &strides);
        if n > 0 {
            prop_assert_eq!(found, Contiguity::Outer(n));
        } else if view.numel() == 0 || view.strides == support::row_major(&view.shape) {
            prop_assert_eq!(found, Contiguity::Contiguous);
        } else {
            prop_assert_eq!(found, Contiguity::SizeOneStrides);
        }

        let (first, end) = view.ends();
        let range = layout.byte_range();
        if view.numel() == 0 {
            prop_assert!(range.is_empty());
        } else {
            let size = copy.element_size as i128;
            prop_assert_eq!((range.start as i128, range.end as i128), (first * size, end * size));
        }

        let distinct = positions(&view).into_iter().collect::<HashSet<_>>().len() as i128;
        if distinct < view.numel() {
            prop_assert!(layout.may_self_overlap());
        } else if from_dst {
            // Made of nested strides, so that certainty is possible.
            prop_assert!(!layout.may_self_overlap());
        }
    }

    /// Rows: blocks of the inner dimensions, each at a higher address than all of the block before.
    #[test]
    fn rows_are_contiguous_blocks_in_order(copy in random::copies(), from_dst in any::<bool>(), n in 0usize..4) {
        let view = if from_dst { copy.dst } else { copy.src };
        let n = n.min(view.shape.len());
        let (shape, strides) = in_i64(&view);
        let block: i128 = view.shape[n..].iter().map(|&len| len as i128).product();
        let expected = view.numel() == 0 || {
            let all = positions(&view);
            contiguous(&inner(&view, n)) && all.chunks(block as usize).collect::<Vec<_>>().windows(2).all(|pair| {
                pair[0].last() < pair[1].first()
            })
        };
        prop_assert_eq!(rows_ok(&shape, &strides, n), expected);
    }
}

#[test]
fn the_contract_rows_takes_no_expand_no_transpose_and_no_reversal() {
    assert!(rows_ok(&[4096, 4096], &[6144, 1], 1));
    assert!(rows_ok(&[4096, 16, 64], &[3072, 192, 1], 2));
    assert!(!rows_ok(&[4096, 16, 64], &[3072, 192, 1], 1));
    assert!(!rows_ok(&[8, 64], &[0, 1], 1));
    assert!(!rows_ok(&[8, 64], &[-64, 1], 1));
    assert!(!rows_ok(&[8, 64], &[63, 1], 1));
    assert!(rows_ok(&[8, 64], &[64, 1], 0));
    assert!(rows_ok(&[1, 64], &[0, 1], 1));
    assert!(rows_ok(&[0, 64], &[0, 5], 1));
    assert!(rows_ok(&[8, 64], &[192, 3], 2), "gaps within the rows as well");
    assert!(rows_ok(&[], &[], 3));
    // Saturates instead of wrapping around to a small extent.
    assert!(!rows_ok(&[4, i64::MAX, 2], &[1, i64::MAX, 1], 3));
}

#[test]
fn cases_met_in_practice() {
    let cases = [
        ("mla_prefill_k_rope", Contiguity::Outer(2)),
        ("gqa_qkv_split_q_mrope", Contiguity::Outer(1)),
        ("mrope_query_inner_strided", Contiguity::Outer(2)),
        ("mla_prefix_chunk_k_rope_expand", Contiguity::Outer(2)),
        ("rotary_mul_half_slice", Contiguity::Outer(1)),
        ("size_one_dim_odd_stride", Contiguity::SizeOneStrides),
        ("infinilm_unsqueeze_stride0", Contiguity::SizeOneStrides),
        ("zero_tokens", Contiguity::Contiguous),
        ("scalar", Contiguity::Contiguous),
        ("paged_cache_padded_blocks", Contiguity::Outer(1)),
    ];
    for (name, expected) in cases {
        let (shape, strides) = in_i64(&named(name));
        assert_eq!(contiguity(&shape, &strides), expected, "{name}");
    }
}

#[test]
fn beyond_32_bits() {
    let layout = Layout::new(&[3, 1 << 31, 2], &[1 << 33, 2, 1], 1 << 34, 16).unwrap();
    assert_eq!(layout.numel(), 3 << 32);
    assert_eq!(layout.bytes(), 3 << 36);
    assert_eq!(layout.byte_range(), 1 << 38..(1 << 38) + (2 << 37) + (1 << 36));
    assert_eq!(layout.strided_outer(), 1);
    assert!(!layout.may_self_overlap());
    assert_eq!(contiguity(&[3, 1 << 31, 2], &[1 << 33, 2, 1]), Contiguity::Outer(1));
    assert_eq!(contiguity(&[3, 1 << 31, 2], &[1 << 32, 2, 1]), Contiguity::Contiguous);
}

#[test]
fn overlap_that_cannot_be_ruled_out_is_reported() {
    let overlap = |shape: &[usize], strides: &[isize]| Layout::new(shape, strides, 0, 4).unwrap().may_self_overlap();
    assert!(overlap(&[8, 64], &[0, 1]));
    assert!(overlap(&[1000, 32], &[1, 1]));
    assert!(overlap(&[2, 2], &[1, -1]));
    // Interleaved without a clash; the answer is the careful one.
    assert!(overlap(&[3, 2], &[2, 3]));
    assert!(!overlap(&[8, 1, 64], &[64, 0, 1]));
    assert!(!overlap(&[64, 8], &[-1, 64]));
}
