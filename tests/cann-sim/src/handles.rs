//! The objects behind aclTensor, aclScalar and the lists: created by callers, copied by operators while preparing.

use crate::dtype::{DType, Value};
use crate::tensor::Tensor;
use std::ffi::c_void;

const MAGIC: u64 = 0x5349_4d43_414e_4e21;

/// What a handle holds.
#[derive(Clone, Debug)]
pub enum Object {
    /// aclTensor.
    Tensor(Tensor),
    /// aclScalar.
    Scalar(Scalar),
    /// aclTensorList; an absent member is `None`.
    Tensors(Vec<Option<Tensor>>),
    /// aclScalarList.
    Scalars(Vec<Scalar>),
    /// aclIntArray.
    Ints(Vec<i64>),
    /// aclFloatArray.
    Floats(Vec<f32>),
    /// aclBoolArray.
    Bools(Vec<bool>),
}

/// A single value with its type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scalar {
    /// Type it was given in.
    pub dtype: DType,
    /// The value.
    pub value: Value,
}

/// Layout of a handle. The arrays' `data` points into `object`, for the functions that hand it out.
struct Handle {
    magic: u64,
    object: Object,
}

/// Makes a handle that [`destroy`] frees.
pub fn create(object: Object) -> *mut c_void {
    Box::into_raw(Box::new(Handle { magic: MAGIC, object })).cast()
}

/// Frees a handle; `false` if it is null or none of ours.
///
/// # Safety
/// `handle` is null or comes from [`create`] and was not destroyed.
pub unsafe fn destroy(handle: *const c_void) -> bool {
    let handle = handle.cast_mut().cast::<Handle>();
    // SAFETY: the caller's promise; the magic number only catches plain mix-ups.
    unsafe {
        if handle.is_null() || (*handle).magic != MAGIC {
            return false;
        }
        (*handle).magic = 0;
        drop(Box::from_raw(handle));
    }
    true
}

/// The object behind a handle; `None` for null.
///
/// # Safety
/// As for [`destroy`].
pub unsafe fn get<'a>(handle: *const c_void) -> Option<&'a Object> {
    let handle = handle.cast::<Handle>();
    // SAFETY: the caller's promise.
    unsafe {
        if handle.is_null() || (*handle).magic != MAGIC {
            return None;
        }
        Some(&(*handle).object)
    }
}

/// The object behind a handle, to be changed; `None` for null.
///
/// # Safety
/// As for [`destroy`], and nobody else looks at it meanwhile.
pub unsafe fn get_mut<'a>(handle: *mut c_void) -> Option<&'a mut Object> {
    let handle = handle.cast::<Handle>();
    // SAFETY: the caller's promise.
    unsafe {
        if handle.is_null() || (*handle).magic != MAGIC {
            return None;
        }
        Some(&mut (*handle).object)
    }
}

/// A copy of the tensor behind an aclTensor; `None` for null or another kind of handle.
///
/// # Safety
/// `handle` is null or a live handle.
pub unsafe fn tensor(handle: *const c_void) -> Option<Tensor> {
    // SAFETY: the caller's promise.
    match unsafe { get(handle) } {
        Some(Object::Tensor(t)) => Some(t.clone()),
        _ => None,
    }
}

/// Copies of the tensors of an aclTensorList, absent ones left out; empty for null.
///
/// # Safety
/// As for [`tensor`].
pub unsafe fn tensor_list(handle: *const c_void) -> Vec<Tensor> {
    // SAFETY: the caller's promise.
    unsafe { tensor_list_with_gaps(handle) }.into_iter().flatten().collect()
}

/// As [`tensor_list`], with `None` for absent members.
///
/// # Safety
/// As for [`tensor`].
pub unsafe fn tensor_list_with_gaps(handle: *const c_void) -> Vec<Option<Tensor>> {
    // SAFETY: the caller's promise.
    match unsafe { get(handle) } {
        Some(Object::Tensors(list)) => list.clone(),
        _ => Vec::new(),
    }
}

/// The numbers of an aclIntArray; `None` for null.
///
/// # Safety
/// As for [`tensor`].
pub unsafe fn int_array(handle: *const c_void) -> Option<Vec<i64>> {
    // SAFETY: the caller's promise.
    match unsafe { get(handle) } {
        Some(Object::Ints(list)) => Some(list.clone()),
        _ => None,
    }
}

/// The value of an aclScalar; `None` for null.
///
/// # Safety
/// As for [`tensor`].
pub unsafe fn scalar(handle: *const c_void) -> Option<Scalar> {
    // SAFETY: the caller's promise.
    match unsafe { get(handle) } {
        Some(Object::Scalar(s)) => Some(*s),
        _ => None,
    }
}
