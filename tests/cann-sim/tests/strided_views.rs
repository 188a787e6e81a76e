//! Walking over strided views: order of the elements, length of the runs, extent.

use cann_sim::strided::{broadcast_shape, bursts, extent, merge, row_major, runs};

fn positions(shape: &[i64], strides: &[i64]) -> Vec<i64> {
    let mut out = Vec::new();
    runs(shape, strides, |at, count, step| out.extend((0..count as i64).map(|i| at + i * step)));
    out
}

fn by_definition(shape: &[i64], strides: &[i64]) -> Vec<i64> {
    let total: i64 = shape.iter().product();
    let steps = row_major(shape);
    (0..total).map(|i| (0..shape.len()).map(|d| i / steps[d] % shape[d] * strides[d]).sum()).collect()
}

#[test]
fn runs_visit_every_element_in_logical_order() {
    let views: [(&[i64], &[i64]); 8] = [
        (&[2, 3, 4], &[12, 4, 1]),
        (&[4, 3], &[1, 4]),
        (&[3, 2, 2], &[0, 1, 7]),
        (&[2, 1, 3], &[-3, 99, -1]),
        (&[5], &[2]),
        (&[], &[]),
        (&[1, 1], &[3, 5]),
        (&[2, 2, 2, 2, 2, 2, 2, 2], &[1, 2, 4, 8, 16, 32, 64, 128]),
    ];
    for (shape, strides) in views {
        assert_eq!(positions(shape, strides), by_definition(shape, strides), "{shape:?} {strides:?}");
    }
}

#[test]
fn a_view_without_elements_has_no_runs() {
    assert!(positions(&[3, 0, 2], &[2, 2, 1]).is_empty());
    assert_eq!(extent(&[3, 0, 2], &[2, 2, 1]), None);
    assert_eq!(bursts(&[0], &[1]), 0);
}

#[test]
fn neighbours_merge_into_one_run() {
    assert_eq!(merge(&[2, 3, 1, 4], &[12, 4, 77, 1]), (vec![24], vec![1]));
    assert_eq!(merge(&[2, 3, 4], &[24, 4, 1]), (vec![2, 12], vec![24, 1]));
}

#[test]
fn bursts_count_pieces_without_a_gap() {
    assert_eq!(bursts(&[4, 8], &[8, 1]), 1);
    assert_eq!(bursts(&[4, 8], &[16, 1]), 4);
    assert_eq!(bursts(&[8, 4], &[1, 8]), 32);
}

#[test]
fn extent_counts_negative_strides_downward() {
    assert_eq!(extent(&[3, 4], &[-10, 2]), Some((-20, 6)));
    assert_eq!(extent(&[], &[]), Some((0, 0)));
}

#[test]
fn shapes_broadcast_from_the_right() {
    assert_eq!(broadcast_shape(&[3, 1], &[2, 1, 4]), Some(vec![2, 3, 4]));
    assert_eq!(broadcast_shape(&[3], &[2]), None);
    assert_eq!(broadcast_shape(&[0], &[1]), Some(vec![0]));
}
