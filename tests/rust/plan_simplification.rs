//! The canonical form of a plan: fewest loops, widest units, and never anything else than the copy asked for.

#[path = "support/random.rs"]
mod random;
mod support;

use infini_rearrange::layout::Layout;
use infini_rearrange::plan::{Dim, Kind, Plan, Simplified};
use proptest::prelude::*;
use support::{View, column_major, named, row_major};

fn plan(shape: &[usize], dst: &[isize], src: &[isize], element_size: usize) -> Plan {
    Plan::new(&View::new(shape, dst, 0).layout(element_size), &View::new(shape, src, 0).layout(element_size)).unwrap()
}

fn to_contiguous(view: &View, element_size: usize) -> Plan {
    Plan::new(&Layout::contiguous(&view.shape, element_size).unwrap(), &view.layout(element_size)).unwrap()
}

/// Where each unit goes and comes from, in bytes from the bases.
fn units(plan: &Plan) -> Vec<(i128, i128)> {
    let mut units = vec![(plan.dst_offset() as i128, plan.src_offset() as i128)];
    for dim in plan.dims() {
        units = (units.iter())
            .flat_map(|&(dst, src)| {
                (0..dim.len as i128).map(move |n| (dst + n * dim.dst as i128, src + n * dim.src as i128))
            })
            .collect();
    }
    units
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn moves_each_element_once_and_cannot_be_shorter(copy in random::copies()) {
        let (dst, src, size) = (&copy.dst, &copy.src, copy.element_size);
        let plan = Plan::new(&dst.layout(size), &src.layout(size)).unwrap();
        prop_assert_eq!(plan.bytes() as i128, dst.numel() * size as i128);
        if dst.numel() == 0 {
            prop_assert_eq!((plan.kind(), plan.dims().len(), plan.unit()), (Kind::Empty, 0, 0));
            return Ok(());
        }

        prop_assert_eq!(plan.unit() % size, 0);
        let mut inside = plan.unit() as isize;
        for dim in plan.dims().iter().rev() {
            prop_assert!(dim.len >= 2);
            prop_assert!(dim.dst >= inside, "destination strides nest: {plan:?}");
            inside += dim.dst * (dim.len as isize - 1);
        }
        for pair in plan.dims().windows(2) {
            let len = pair[1].len as isize;
            prop_assert!(
                pair[0].dst != pair[1].dst * len || pair[0].src != pair[1].src * len, "not merged: {plan:?}"
            );
        }
        if let Some(last) = plan.dims().last() {
            let unit = plan.unit() as isize;
            prop_assert!(last.dst != unit || last.src != unit, "no part of the unit: {plan:?}");
        }

        let mut moved: Vec<(i128, i128)> = (units(&plan).into_iter())
            .flat_map(|(dst, src)| (0..plan.unit() as i128).map(move |byte| (dst + byte, src + byte)))
            .collect();
        let size = size as i128;
        let mut asked: Vec<(i128, i128)> = (0..dst.numel())
            .flat_map(|n| (0..size).map(move |byte| (dst.position(n) * size + byte, src.position(n) * size + byte)))
            .collect();
        moved.sort_unstable();
        asked.sort_unstable();
        prop_assert!(moved == asked, "{plan:?}");

        let range = |of: fn(&(i128, i128)) -> i128| {
            let ends = (moved.iter().map(of).min().unwrap(), moved.iter().map(of).max().unwrap() + 1);
            ends.0 as isize..ends.1 as isize
        };
        prop_assert_eq!(plan.dst_range(), range(|&(dst, _)| dst));
        prop_assert_eq!(plan.src_range(), range(|&(_, src)| src));
    }

    /// The widest width that divides every address of a unit and the unit.
    #[test]
    fn the_access_width_is_aligned_everywhere(
        copy in random::copies(), dst_base in 1usize..100, src_base in 1usize..100, shift in 0u32..5
    ) {
        // A storage may start anywhere, at multiples of 16 too.
        let (dst_base, src_base) = (0x10000 + (dst_base << shift), 0x20000 + (src_base << shift));
        let plan = Plan::new(&copy.dst.layout(copy.element_size), &copy.src.layout(copy.element_size)).unwrap();
        prop_assume!(plan.bytes() > 0);
        let aligned = |width: i128| {
            plan.unit() as i128 % width == 0
                && units(&plan).iter().all(|&(dst, src)| {
                    (dst + dst_base as i128) % width == 0 && (src + src_base as i128) % width == 0
                })
        };
        let widest = [16, 8, 4, 2, 1].into_iter().find(|&width| aligned(width)).unwrap();
        prop_assert_eq!(plan.access_width(dst_base, src_base) as i128, widest);
    }

    /// The views handed to other engines describe the same copy.
    #[test]
    fn the_simplified_views_are_the_same_copy(copy in random::copies()) {
        let (dst, src, size) = (&copy.dst, &copy.src, copy.element_size);
        let Simplified { shape, dst_strides, src_strides, dst_offset, src_offset } =
            Plan::new(&dst.layout(size), &src.layout(size)).unwrap().simplified();
        let shape: Vec<usize> = shape.iter().map(|&len| len as usize).collect();
        let view = |strides: Vec<i64>, offset: i64| View {
            name: String::new(),
            shape: shape.clone(),
            strides: strides.iter().map(|&stride| stride as isize).collect(),
            offset: offset as isize,
            storage_elements: 0,
        };
        let (to, from) = (view(dst_strides, dst_offset), view(src_strides, src_offset));
        prop_assert!(!shape.is_empty() && shape.len() <= dst.shape.len().max(1));
        let pairs = |to: &View, from: &View| {
            let mut pairs: Vec<_> = (0..to.numel()).map(|n| (to.position(n), from.position(n))).collect();
            pairs.sort_unstable();
            pairs
        };
        prop_assert!(pairs(&to, &from) == pairs(dst, src));
    }
}

#[test]
fn what_is_contiguous_on_both_sides_is_one_run() {
    for shape in [&[2, 3, 4][..], &[24], &[1, 24, 1], &[]] {
        let plan = plan(shape, &row_major(shape), &row_major(shape), 4);
        assert_eq!((plan.kind(), plan.dims().len(), plan.unit()), (Kind::Bulk, 0, plan.bytes()));
    }
    // Column-major to column-major as well: the order of the indices is free.
    let shape = [3, 4, 5];
    assert_eq!(plan(&shape, &column_major(&shape), &column_major(&shape), 2).kind(), Kind::Bulk);
    // Reversed on both sides.
    let both = View::new(&[3, 4], &[-4, -1], 11).layout(8);
    let plan = Plan::new(&both, &both).unwrap();
    assert_eq!((plan.unit(), plan.dst_offset(), plan.src_offset()), (96, 0, 0));
}

#[test]
fn units_are_no_wider_than_the_contiguous_run() {
    let plan = to_contiguous(&named("ic_misaligned_unit"), 4);
    assert_eq!(plan.unit(), 16);
    assert_eq!(plan.dims(), [Dim { len: 4, dst: 48, src: 128 }, Dim { len: 3, dst: 16, src: 20 }]);
    assert_eq!(plan.access_width(0, 0), 4);
}

#[test]
fn kinds() {
    for (name, kind) in [
        ("zero_tokens", Kind::Empty),
        ("scalar", Kind::Bulk),
        ("infinilm_unsqueeze_stride0", Kind::Bulk),
        ("mla_prefill_k_rope", Kind::Rows),
        ("bnsd_query_transposed", Kind::Rows),
        ("overlapping_window", Kind::Rows),
        ("mla_prefix_chunk_k_rope_expand", Kind::Broadcast),
        ("bool_mask_expand", Kind::Broadcast),
        ("ic_100x100_cm", Kind::Transpose),
        ("ic_6d_cm", Kind::Transpose),
        ("every_other_column", Kind::Gather),
    ] {
        assert_eq!(to_contiguous(&named(name), 2).kind(), kind, "{name}");
    }
    // Pairs that stay together are transposed as one.
    assert_eq!(plan(&[64, 64, 2], &[128, 2, 1], &[2, 128, 1], 4).kind(), Kind::Transpose);
    // Not dense in the destination.
    assert_eq!(plan(&[64, 64], &[128, 2], &[1, 64], 4).kind(), Kind::Gather);
    // Backwards in the source.
    assert_eq!(plan(&[64], &[1], &[-1], 4).kind(), Kind::Gather);
}

#[test]
fn nine_dimensions_collapse() {
    let plan = to_contiguous(&named("nine_dims"), 2);
    assert!(plan.dims().len() <= 7, "{plan:?}");
    assert!(plan.simplified().shape.len() <= 8);
}

#[test]
fn sources_broadcast_as_in_numpy() {
    let layout = |shape: &[usize]| Layout::contiguous(shape, 2).unwrap();
    let one_row = Plan::new(&layout(&[15, 64]), &layout(&[1, 64])).unwrap();
    let lower_rank = Plan::new(&layout(&[15, 64]), &layout(&[64])).unwrap();
    assert_eq!(one_row, lower_rank);
    assert_eq!(one_row.dims(), [Dim { len: 15, dst: 128, src: 0 }]);
    assert_eq!(one_row.kind(), Kind::Broadcast);
    let scalar = Plan::new(&layout(&[8, 4]), &layout(&[])).unwrap();
    assert_eq!(scalar.dims(), [Dim { len: 32, dst: 2, src: 0 }]);
    // The stride of a repeated dimension does not matter, nor is an empty destination an error.
    let odd = Layout::new(&[1, 64], &[77, 1], 0, 2).unwrap();
    assert_eq!(Plan::new(&layout(&[15, 64]), &odd).unwrap(), one_row);
    assert_eq!(Plan::new(&layout(&[0, 64]), &layout(&[1, 64])).unwrap().kind(), Kind::Empty);
}

#[test]
fn a_single_element_and_nothing_have_a_dimension_for_other_engines() {
    let one = plan(&[], &[], &[], 4).simplified();
    assert_eq!((one.shape, one.dst_strides, one.src_strides), (vec![1], vec![1], vec![1]));
    assert_eq!(to_contiguous(&named("zero_tokens"), 2).simplified().shape, [0]);
}

#[test]
fn beyond_32_bits() {
    // 3 × 2^32 elements; the source's rows lie 2^35 bytes apart.
    let shape = [3, 1 << 31, 2];
    let dst = Layout::contiguous(&shape, 2).unwrap();
    let src = Layout::new(&shape, &[1 << 34, 2, 1], 1 << 33, 2).unwrap();
    let plan = Plan::new(&dst, &src).unwrap();
    assert_eq!(plan.bytes(), 3 << 33);
    assert_eq!(plan.unit(), 1 << 33);
    assert_eq!(plan.dims(), [Dim { len: 3, dst: 1 << 33, src: 1 << 35 }]);
    assert_eq!((plan.src_offset(), plan.src_range()), (1 << 34, 1 << 34..(1 << 34) + (1 << 36) + (1 << 33)));
    let simplified = plan.simplified();
    assert_eq!(simplified.shape, [3, 1 << 32]);
    assert_eq!((simplified.src_strides, simplified.src_offset), (vec![1 << 34, 1], 1 << 33));
    // Transposed, it is one loop of more than 2^31.
    let src = Layout::new(&[1 << 33, 2], &[1, 1 << 33], 0, 1).unwrap();
    let plan = Plan::new(&Layout::contiguous(&[1 << 33, 2], 1).unwrap(), &src).unwrap();
    assert_eq!(plan.dims(), [Dim { len: 1 << 33, dst: 2, src: 1 }, Dim { len: 2, dst: 1, src: 1 << 33 }]);
}
