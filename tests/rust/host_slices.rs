//! Running from slice to slice: what is refused, and what is never touched.

mod support;

use infini_rearrange::host::{RunError, run, run_checked};
use infini_rearrange::layout::Layout;
use infini_rearrange::plan::Plan;

fn plan(dst: &Layout, src: &Layout) -> Plan {
    Plan::new(dst, src).unwrap()
}

#[test]
fn a_destination_too_short_is_refused_untouched() {
    let layout = Layout::contiguous(&[4, 3], 2).unwrap();
    let mut dst = [7u8; 23];
    let error = run_checked(&plan(&layout, &layout), &mut dst, &[0; 24]).unwrap_err();
    assert_eq!(error, RunError::Destination { start: 0, end: 24, given: 23 });
    assert_eq!(
        error.to_string(),
        "the plan writes bytes 0..24 of a destination of 23 bytes: give the whole storage that the layout's offset refers to"
    );
    assert_eq!(dst, [7; 23]);
}

#[test]
fn a_source_that_starts_before_its_slice_is_refused() {
    let dst = Layout::contiguous(&[4], 4).unwrap();
    let src = Layout::new(&[4], &[-1], 2, 4).unwrap();
    let error = run_checked(&plan(&dst, &src), &mut [0; 16], &[0; 64]).unwrap_err();
    assert_eq!(error, RunError::Source { start: -4, end: 12, given: 64 });
}

#[test]
fn a_source_one_byte_short_is_refused() {
    let dst = Layout::contiguous(&[2, 2], 1).unwrap();
    let src = Layout::new(&[2, 2], &[1, 10], 5, 1).unwrap();
    assert!(run_checked(&plan(&dst, &src), &mut [0; 4], &[0; 17]).is_ok());
    let error = run_checked(&plan(&dst, &src), &mut [0; 4], &[0; 16]).unwrap_err();
    assert_eq!(error, RunError::Source { start: 5, end: 17, given: 16 });
}

#[test]
fn no_elements_need_no_memory() {
    let dst = Layout::new(&[3, 0], &[1, 1], 100, 4).unwrap();
    let src = Layout::new(&[3, 0], &[-50, 7], -9, 4).unwrap();
    let plan = plan(&dst, &src);
    run_checked(&plan, &mut [], &[]).unwrap();
    // SAFETY: an empty plan touches neither side.
    unsafe { run(&plan, std::ptr::null_mut(), std::ptr::null()) };
}

#[test]
fn a_scalar_is_copied_at_its_offset() {
    let view = support::named("scalar");
    let plan = plan(&Layout::new(&[], &[], 1, 4).unwrap(), &view.layout(4));
    let src: Vec<u8> = (0..32).collect();
    let mut dst = [0xffu8; 12];
    run_checked(&plan, &mut dst, &src).unwrap();
    assert_eq!(dst, [255, 255, 255, 255, 12, 13, 14, 15, 255, 255, 255, 255]);
}

#[test]
fn a_base_outside_of_the_storage_is_led_into_it_by_the_offset() {
    // Two views reversed by hand: the base is the last element.
    let dst = Layout::new(&[3], &[1], -2, 2).unwrap();
    let src = Layout::new(&[3], &[-1], 0, 2).unwrap();
    let from = [1u16, 2, 3];
    let mut to = [0u16; 3];
    let (dst_base, src_base) = (to.as_mut_ptr().wrapping_add(2), from.as_ptr().wrapping_add(2));
    // SAFETY: the offsets lead to the three elements of each array.
    unsafe { run(&plan(&dst, &src), dst_base.cast(), src_base.cast()) };
    assert_eq!(to, [3, 2, 1]);
}

#[test]
fn offsets_beyond_32_bits_are_reached() {
    // Zeroed pages are only backed once touched, so this takes a few kilobytes.
    let stride = (1isize << 32) + 3;
    let src = Layout::new(&[2, 4], &[stride, 1], 1, 1).unwrap();
    let dst = Layout::new(&[4, 2], &[1, stride - 1], 5, 1).unwrap();
    let storage = (stride + 16) as usize;
    let mut far = vec![0u8; storage];
    for (n, place) in [1, 2, 3, 4, 1 + stride, 2 + stride, 3 + stride, 4 + stride].into_iter().enumerate() {
        far[place as usize] = n as u8 + 1;
    }
    let mut near = [0u8; 8];
    run_checked(&plan(&Layout::contiguous(&[2, 4], 1).unwrap(), &src), &mut near, &far).unwrap();
    assert_eq!(near, [1, 2, 3, 4, 5, 6, 7, 8]);

    run_checked(&plan(&dst, &Layout::contiguous(&[4, 2], 1).unwrap()), &mut far, &near).unwrap();
    let second = (stride - 1) as usize;
    assert_eq!([&far[5..9], &far[5 + second..9 + second]], [[1, 3, 5, 7], [2, 4, 6, 8]]);

    // By the offset alone, on either side.
    let beyond = Layout::new(&[4], &[1], 5 + stride - 1, 1).unwrap();
    let close = Layout::contiguous(&[4], 1).unwrap();
    let mut four = [0u8; 4];
    run_checked(&plan(&close, &beyond), &mut four, &far).unwrap();
    assert_eq!(four, [2, 4, 6, 8]);
    run_checked(&plan(&beyond, &close), &mut far, &[9, 10, 11, 12]).unwrap();
    assert_eq!(far[5 + second..9 + second], [9, 10, 11, 12]);
}
