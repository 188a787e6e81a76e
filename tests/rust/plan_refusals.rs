//! Copies that have no plan, and copies within one storage.

mod support;

use infini_rearrange::layout::Layout;
use infini_rearrange::plan::{Plan, PlanError};
use proptest::prelude::*;
use support::View;

fn layout(shape: &[usize], strides: &[isize], element_size: usize) -> Layout {
    Layout::new(shape, strides, 0, element_size).unwrap()
}

#[test]
fn nothing_is_converted() {
    let error = Plan::new(&layout(&[4], &[1], 4), &layout(&[4], &[1], 2)).unwrap_err();
    assert_eq!(error, PlanError::ElementSize { dst: 4, src: 2 });
    assert_eq!(
        error.to_string(),
        "destination elements have 4 bytes, source elements 2: a rearrangement does not convert, so give both the same dtype"
    );
}

#[test]
fn shapes_must_agree_or_broadcast() {
    let contiguous = |shape: &[usize]| Layout::contiguous(shape, 2).unwrap();
    for (dst, src) in [
        (&[4, 3][..], &[3, 4][..]),
        (&[4, 3], &[4]),
        (&[3], &[1, 3]), // a destination does not broadcast, not even by a leading 1
        (&[1, 3], &[2, 3]),
        (&[], &[1]),
        (&[3], &[0]),
        (&[0], &[3]),
        (&[0, 3], &[0, 4]),
    ] {
        let error = Plan::new(&contiguous(dst), &contiguous(src)).unwrap_err();
        assert_eq!(error, PlanError::Shape { dst: dst.to_vec(), src: src.to_vec() });
    }
    assert_eq!(
        Plan::new(&contiguous(&[4, 3]), &contiguous(&[4])).unwrap_err().to_string(),
        "source shape [4] does not broadcast to destination shape [4, 3]: aligned at the last dimension, every source \
         dimension must equal the destination's or be 1"
    );
}

#[test]
fn a_destination_must_not_overlap_itself() {
    for (shape, strides) in [(&[8, 64][..], &[0, 1][..]), (&[1000, 32], &[1, 1]), (&[2, 2], &[1, -1])] {
        let src = Layout::contiguous(shape, 2).unwrap();
        let error = Plan::new(&layout(shape, strides, 2), &src).unwrap_err();
        assert_eq!(error, PlanError::SelfOverlap { shape: shape.to_vec(), strides: strides.to_vec() });
        // As a source it is fine.
        Plan::new(&src, &layout(shape, strides, 2)).unwrap();
    }
    assert_eq!(
        Plan::new(&layout(&[2], &[0], 2), &layout(&[2], &[1], 2)).unwrap_err().to_string(),
        "destination shape [2] with strides [0] may write some element twice: give a destination in which every element has \
         memory of its own"
    );
    // Stride 0 of a single index repeats nothing, nor does any stride without elements.
    Plan::new(&layout(&[1, 4], &[0, 1], 2), &layout(&[1, 4], &[4, 1], 2)).unwrap();
    Plan::new(&layout(&[0, 4], &[0, 0], 2), &layout(&[0, 4], &[4, 1], 2)).unwrap();
}

#[test]
fn extreme_strides_neither_panic_nor_merge() {
    // The whole inner loop, 4 × 2^61 bytes, is further than any address.
    let far = 1 << 61;
    let src = Layout::new(&[2, 4], &[1, far], -far, 1).unwrap();
    let plan = Plan::new(&Layout::contiguous(&[2, 4], 1).unwrap(), &src).unwrap();
    assert_eq!(plan.dims().len(), 2);
    assert_eq!(plan.src_range(), -far..2 * far + 2);
    // About the lowest stride there can be, turned around with the destination.
    let src = Layout::new(&[2], &[isize::MIN + 2], isize::MAX - 2, 1).unwrap();
    assert_eq!(Plan::new(&layout(&[2], &[-1], 1), &src).unwrap().src_offset(), -1);
}

#[test]
fn slices_of_the_same_rows_do_not_alias() {
    // x[:, 0:64] = x[:, 64:128], rows of 192 bf16.
    let slice = |start| Layout::new(&[100, 64], &[192, 1], start, 2).unwrap();
    let alias = |dst, src| Plan::new(&slice(dst), &slice(src)).unwrap().may_alias(0x1000, 0x1000);
    assert!(!alias(0, 64));
    assert!(!alias(128, 64));
    assert!(alias(0, 63));
    assert!(alias(64, 64));
    assert!(alias(100, 64));
    let apart = Plan::new(&slice(0), &slice(0)).unwrap();
    assert!(!apart.may_alias(0x100000, 0x1000));
    assert!(!apart.may_alias(0x1000, 0x100000));
    // Different base pointers into one storage come to the same.
    assert!(!apart.may_alias(0x1000, 0x1000 + 128));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Never "no" where the two share a byte.
    #[test]
    fn every_shared_byte_is_reported(
        rows in 1usize..5, columns in 1usize..5, gap in 0isize..4, src_row in -9isize..9, src_column in -3isize..4,
        shift in -40isize..40, element_size in prop_oneof![Just(1usize), Just(2), Just(4)],
    ) {
        let shape = [rows, columns];
        let dst = View::new(&shape, &[columns as isize + gap, 1], 0).fit(0, 0);
        let src = View::new(&shape, &[src_row, src_column], 0).fit(0, 0);
        let plan = Plan::new(&dst.layout(element_size), &src.layout(element_size)).unwrap();
        let bytes = |view: &View, base: isize| -> Vec<i128> {
            let size = element_size as i128;
            (0..view.numel()).flat_map(|n| (0..size).map(move |byte| base as i128 + view.position(n) * size + byte)).collect()
        };
        let written = bytes(&dst, 1000);
        let shared = bytes(&src, 1000 + shift).iter().any(|byte| written.contains(byte));
        if shared {
            prop_assert!(plan.may_alias(1000, (1000 + shift) as usize));
        }
    }
}
