//! aclTensor, aclScalar, the arrays and lists; executors' ends; the per-thread memory hooks of libopapi.

use crate::accepted;
use crate::acl;
use crate::dtype::DType;
use crate::error::{code, fail};
use crate::executor::drop_executor;
use crate::handles::{self, Object, Scalar};
use crate::strided::row_major;
use crate::tensor::Tensor;
use std::ffi::c_void;

unsafe fn slice<'a, T>(data: *const T, count: u64) -> &'a [T] {
    if data.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the interface promises `count` members.
    unsafe { std::slice::from_raw_parts(data, count as usize) }
}

/// A view of device memory. Null strides are row-major; null on a type that is not simulated or a negative size.
///
/// # Safety
/// The arrays have as many members as their counts say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aclCreateTensor(
    dims: *const i64,
    count: u64,
    dtype: i32,
    strides: *const i64,
    offset: i64,
    format: i32,
    storage_dims: *const i64,
    storage_count: u64,
    data: *mut c_void,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    let (shape, storage_dims) = unsafe { (slice(dims, count).to_vec(), slice(storage_dims, storage_count).to_vec()) };
    if DType(dtype).size() == 0 || shape.iter().any(|&n| n < 0) {
        fail(code::NNOP_INVALID, "EZ1001", format!("aclCreateTensor: data type {dtype}, shape {shape:?}"));
        return std::ptr::null_mut();
    }
    // SAFETY: as above.
    let strides = if strides.is_null() { row_major(&shape) } else { unsafe { slice(strides, count) }.to_vec() };
    let data = data as usize;
    handles::create(Object::Tensor(Tensor { dtype: DType(dtype), shape, strides, offset, format, storage_dims, data }))
}

/// A single value.
///
/// # Safety
/// `value` points to a value of that type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aclCreateScalar(value: *mut c_void, dtype: i32) -> *mut c_void {
    let dtype = DType(dtype);
    // SAFETY: the caller's promise.
    let bytes = unsafe { slice(value.cast::<u8>().cast_const(), dtype.size() as u64) };
    match (!bytes.is_empty()).then(|| dtype.decode(bytes)).flatten() {
        Some(value) => handles::create(Object::Scalar(Scalar { dtype, value })),
        None => std::ptr::null_mut(),
    }
}

/// Numbers.
///
/// # Safety
/// `data` has `count` members.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aclCreateIntArray(data: *const i64, count: u64) -> *mut c_void {
    // SAFETY: the caller's promise.
    handles::create(Object::Ints(unsafe { slice(data, count) }.to_vec()))
}

/// Numbers.
///
/// # Safety
/// `data` has `count` members.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aclCreateFloatArray(data: *const f32, count: u64) -> *mut c_void {
    // SAFETY: the caller's promise.
    handles::create(Object::Floats(unsafe { slice(data, count) }.to_vec()))
}

/// Truth values.
///
/// # Safety
/// `data` has `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aclCreateBoolArray(data: *const u8, count: u64) -> *mut c_void {
    // SAFETY: the caller's promise.
    handles::create(Object::Bools(unsafe { slice(data, count) }.iter().map(|b| *b != 0).collect()))
}

/// Takes the tensors over: they are destroyed, the list holds what they described.
///
/// # Safety
/// `tensors` has `count` members, each null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aclCreateTensorList(tensors: *const *const c_void, count: u64) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe {
        let list = slice(tensors, count).iter().map(|&t| handles::tensor(t)).collect();
        slice(tensors, count).iter().for_each(|&t| {
            handles::destroy(t);
        });
        handles::create(Object::Tensors(list))
    }
}

/// Takes the scalars over.
///
/// # Safety
/// `scalars` has `count` members, each a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aclCreateScalarList(scalars: *const *const c_void, count: u64) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe {
        let list = slice(scalars, count).iter().filter_map(|&s| handles::scalar(s)).collect();
        slice(scalars, count).iter().for_each(|&s| {
            handles::destroy(s);
        });
        handles::create(Object::Scalars(list))
    }
}

macro_rules! destroys {
    ($($name:ident),* $(,)?) => {$(
        acl! {
            /// Frees a handle; null is 161001.
            fn $name(handle: *const c_void) {
                // SAFETY: the interface promises a live handle or null.
                if unsafe { handles::destroy(handle) } {
                    return code::SUCCESS;
                }
                fail(code::NNOP_NULL, "EZ1001", format!("{}: {handle:?} is not a live handle", stringify!($name)))
            }
        }
    )*};
}

destroys!(
    aclDestroyTensor,
    aclDestroyScalar,
    aclDestroyIntArray,
    aclDestroyFloatArray,
    aclDestroyBoolArray,
    aclDestroyTensorList,
    aclDestroyScalarList,
);

acl! {
    /// Forgets an executor that is not launched.
    fn aclDestroyAclOpExecutor(executor: *const c_void) {
        drop_executor(executor);
        code::SUCCESS
    }

    /// Executors are good for one launch here, as those of InplaceCopy are on the device.
    fn aclSetAclOpExecutorRepeatable(_executor: *mut c_void) {
        fail(code::NNOP_INVALID, "EZ9999", "aclSetAclOpExecutorRepeatable: repeatable executors are not simulated".into())
    }

    /// Shape of a tensor, in an array that the caller deletes.
    fn aclGetViewShape(tensor: *const c_void, dims: *mut *mut i64, count: *mut u64) {
        // SAFETY: the interface promises a live handle or null.
        let Some(tensor) = (unsafe { handles::tensor(tensor) }) else {
            return fail(code::NNOP_NULL, "EZ1001", "aclGetViewShape: the tensor is null".into());
        };
        // The caller frees with delete[], which is free() in every C++ library this runs with; so malloc it is.
        // SAFETY: the allocation has room for every dimension and is checked.
        unsafe {
            let array = libc::malloc(8 * tensor.shape.len().max(1)).cast::<i64>();
            if array.is_null() {
                return fail(code::RT_MEMORY_ALLOCATION, "EZ9999", "aclGetViewShape: no host memory".into());
            }
            std::ptr::copy_nonoverlapping(tensor.shape.as_ptr(), array, tensor.shape.len());
            super::put("aclGetViewShape", dims, array);
            super::put("aclGetViewShape", count, tensor.shape.len() as u64)
        }
    }
}

accepted!(InitHugeMemThreadLocal, UnInitHugeMemThreadLocal, ReleaseHugeMem);
