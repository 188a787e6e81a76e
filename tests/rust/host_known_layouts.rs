//! Layouts met in practice, in every element size.

mod support;

use infini_rearrange::{host, plan::Plan};
use support::{View, column_major, known, noise, oracle, row_major};

fn check(dst: &View, src: &View, element_size: usize) {
    let source = noise(src.storage_elements * element_size, 3);
    let mut given = vec![0xa5; dst.storage_elements * element_size];
    let mut expected = given.clone();
    oracle(dst, &mut expected, src, &source, element_size);
    let plan = Plan::new(&dst.layout(element_size), &src.layout(element_size)).unwrap();
    host::run_checked(&plan, &mut given, &source).unwrap();
    assert!(given == expected, "{} {:?} {:?}, {element_size}-byte elements", src.name, src.shape, src.strides);
}

/// The same strides over fewer of the outermost indices, so that the largest cases stay quick.
fn scaled_down(mut view: View) -> View {
    while view.numel() > 1 << 18 {
        let largest =
            (0..view.shape.len()).max_by_key(|&dim| view.strides[dim].unsigned_abs() * view.shape[dim]).unwrap();
        view.shape[largest] = (view.shape[largest] / 2).max(1);
        if view.shape[largest] == 1 {
            break;
        }
    }
    view.fit(3, 5)
}

#[test]
fn become_contiguous() {
    let views = known();
    assert!(views.len() >= 38, "the case file lost cases");
    for view in views {
        let src = if view.numel() == 0 { view } else { scaled_down(view) };
        let dst = View::row_major(&src.shape);
        for element_size in [1, 2, 4, 8, 16] {
            check(&dst, &src, element_size);
        }
    }
}

#[test]
fn are_written_from_contiguous_memory() {
    for view in known() {
        // A destination that repeats an element is not one.
        let broadcast = view.shape.iter().zip(&view.strides).any(|(&len, &stride)| len > 1 && stride == 0);
        if broadcast || view.name == "overlapping_window" || view.numel() == 0 {
            continue;
        }
        let dst = scaled_down(view);
        let src = View::row_major(&dst.shape);
        for element_size in [1, 2, 4, 8, 16] {
            check(&dst, &src, element_size);
        }
    }
}

#[test]
fn of_infinicore_and_infiniops() {
    let rows: &[(&[usize], &[isize], &[isize])] = &[
        (&[100, 100], &[1, 100], &[100, 1]),
        (&[4, 4], &[1, 4], &[4, 1]),
        (&[4, 6, 64], &[64, 256, 1], &[384, 64, 1]),
        (&[2000, 2000], &[1, 2000], &[2000, 1]),
        (&[2001, 2001], &[1, 2001], &[2001, 1]),
        (&[2, 2, 2, 4], &[16, 8, 4, 1], &[16, 8, 1, 2]),
        (&[3, 4, 7, 53, 9], &row_major(&[3, 4, 7, 53, 9]), &column_major(&[3, 4, 7, 53, 9])),
        (&[3, 4, 50, 50, 5, 7], &row_major(&[3, 4, 50, 50, 5, 7]), &column_major(&[3, 4, 50, 50, 5, 7])),
        (&[15, 10752], &[0, 1], &[10752, 1]),
        (&[2; 6], &[4, 8, 16, 32, 64, 128], &[64, 32, 16, 8, 4, 2]),
        (&[8, 4, 20, 64], &[5120, 64, 256, 1], &[5120, 1280, 64, 1]),
        (&[8, 4, 20, 64], &[5120, 64, 256, 1], &[1048576, 262144, 64, 1]),
        (&[15, 64], &[0, 1], &[64, 1]),
        (&[8, 4, 64], &[0, 0, 1], &[256, 64, 1]),
        // Their planner moves 16-byte units against 20-byte strides here.
        (&[4, 3, 4], &[32, 5, 1], &[12, 4, 1]),
    ];
    for (shape, src, dst) in rows {
        for element_size in [1, 2, 4, 8, 16] {
            check(&View::new(shape, dst, 0), &View::new(shape, src, 0), element_size);
        }
    }
}

#[test]
fn a_key_value_cache_slot_takes_one_token_at_a_position() {
    // cache.narrow(2, 17, 1), as a static cache is updated.
    let dst = View::new(&[2, 8, 1, 128], &[8 * 512 * 128, 512 * 128, 128, 1], 17 * 128);
    let src = View::new(&[2, 8, 1, 128], &[1024, 128, 1024, 1], 0);
    check(&dst, &src, 2);
}
