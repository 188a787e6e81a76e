//! Device memory: allocation, checks of what a task touches, accounting.

use cann_sim::dtype::DType;
use cann_sim::memory::{POISON, access, allocate, free, is_device};
use cann_sim::tensor::Tensor;

fn view(data: usize, shape: &[i64], strides: &[i64], offset: i64) -> Tensor {
    Tensor {
        dtype: DType::INT32,
        shape: shape.into(),
        strides: strides.into(),
        offset,
        format: 2,
        storage_dims: vec![],
        data,
    }
}

#[test]
fn fresh_memory_is_poisoned_and_aligned() {
    let address = allocate(1000).unwrap();
    assert!(is_device(address) && address.is_multiple_of(512));
    let pointer = access(address, 1000).unwrap();
    // SAFETY: `access` found the 1000 bytes live.
    let bytes = unsafe { std::slice::from_raw_parts(pointer, 1000) };
    assert!(bytes.iter().all(|&b| b == POISON));
    free(address).unwrap();
}

#[test]
fn touching_one_byte_too_many_is_found() {
    let address = allocate(512).unwrap();
    assert!(access(address, 512).is_ok());
    let error = access(address, 513).unwrap_err();
    assert_eq!(error.code, 507_899);
    assert!(error.text.contains(&format!("{address:#x}")), "{error}");
    free(address).unwrap();
    assert!(access(address, 1).is_err());
    assert!(free(address).is_err());
}

#[test]
fn a_strided_view_must_lie_inside_as_a_whole() {
    let address = allocate(4 * 12).unwrap();
    let whole = view(address, &[12], &[1], 0);
    whole.write_i64(&(0..12).collect::<Vec<_>>()).unwrap();
    let transposed = view(address, &[4, 3], &[1, 4], 0);
    assert_eq!(transposed.read_i64().unwrap(), [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]);
    assert_eq!(view(address, &[3], &[-2], 11).read_i64().unwrap(), [11, 9, 7]);
    assert!(view(address, &[4, 3], &[1, 4], 1).read_i64().is_err());
    assert!(view(address, &[3], &[-2], 3).read_i64().is_err());
    free(address).unwrap();
}

#[test]
fn misreading_keeps_shape_and_offset() {
    let strided = view(4096, &[2, 3], &[8, 2], 5);
    assert_eq!(strided.first_bad_dim(), Some(1));
    let misread = strided.misread_as_contiguous();
    assert_eq!((misread.strides, misread.offset, misread.shape), (vec![3, 1], 5, vec![2, 3]));
}

#[test]
fn size_one_dimensions_and_empty_tensors_are_contiguous_whatever_their_strides() {
    assert!(view(0, &[1, 3, 1], &[77, 1, 5], 0).is_contiguous());
    assert!(view(0, &[0, 3], &[7, 7], 0).is_contiguous());
    assert_eq!(view(0, &[2, 3], &[4, 1], 0).first_bad_dim(), Some(0));
}
