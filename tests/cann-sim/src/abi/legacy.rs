//! The legacy operator path (aclop) and the runtime entry points below it. Descriptors exist, because torch_npu builds
//! them on the way; executing says which operator has no simulation.

use super::device::text_of;
use crate::error::{code, fail};
use crate::{accepted, acl, capture};
use std::ffi::{c_char, c_void};

struct Desc {
    dtype: i32,
    dims: Vec<i64>,
    format: i32,
}

/// Describes a tensor of the legacy path.
///
/// # Safety
/// `dims` holds `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aclCreateTensorDesc(dtype: i32, count: i32, dims: *const i64, format: i32) -> *mut c_void {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the caller's promise.
    let dims = if dims.is_null() { Vec::new() } else { unsafe { std::slice::from_raw_parts(dims, count) }.to_vec() };
    Box::into_raw(Box::new(Desc { dtype, dims, format })).cast()
}

/// Frees a description.
///
/// # Safety
/// `desc` is null or from [`aclCreateTensorDesc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aclDestroyTensorDesc(desc: *mut c_void) {
    if !desc.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(desc.cast::<Desc>()) });
    }
}

unsafe fn desc<'a>(desc: *const c_void) -> Option<&'a Desc> {
    // SAFETY: the callers of the functions below promise null or a live description.
    unsafe { desc.cast::<Desc>().as_ref() }
}

/// Element type.
///
/// # Safety
/// As for [`aclDestroyTensorDesc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aclGetTensorDescType(d: *const c_void) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { desc(d) }.map_or(-1, |d| d.dtype)
}

/// Format.
///
/// # Safety
/// As for [`aclDestroyTensorDesc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aclGetTensorDescFormat(d: *const c_void) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { desc(d) }.map_or(-1, |d| d.format)
}

/// Number of dimensions.
///
/// # Safety
/// As for [`aclDestroyTensorDesc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aclGetTensorDescNumDims(d: *const c_void) -> usize {
    // SAFETY: the caller's promise.
    unsafe { desc(d) }.map_or(0, |d| d.dims.len())
}

acl! {
    /// Size of one dimension.
    fn aclGetTensorDescDimV2(d: *const c_void, index: usize, out: *mut i64) {
        // SAFETY: as for aclDestroyTensorDesc.
        match unsafe { desc(d) }.and_then(|d| d.dims.get(index)) {
            // SAFETY: the interface promises a pointer to write to.
            Some(&size) => unsafe { super::put("aclGetTensorDescDimV2", out, size) },
            None => fail(code::INVALID_PARAM, "EE1001", format!("aclGetTensorDescDimV2: no dimension {index}")),
        }
    }

    /// Refuses: no legacy operator is simulated.
    fn aclopCompileAndExecute(kind: *const c_char, _inputs: i32, _input_descs: *const c_void, _input_data: *const c_void, _outputs: i32, _output_descs: *const c_void, _output_data: *const c_void, _attributes: *const c_void, _engine: i32, _flag: i32, _path: *const c_char, stream: *mut c_void) {
        // SAFETY: the first argument of the interface is the operator's name.
        no_operator(&unsafe { text_of(kind) }, stream)
    }

    /// Refuses: no legacy operator is simulated.
    fn aclopCompileAndExecuteV2(kind: *const c_char, _inputs: i32, _input_descs: *const c_void, _input_data: *const c_void, _outputs: i32, _output_descs: *const c_void, _output_data: *const c_void, _attributes: *const c_void, _engine: i32, _flag: i32, _path: *const c_char, stream: *mut c_void) {
        // SAFETY: as above.
        no_operator(&unsafe { text_of(kind) }, stream)
    }

    /// Compile options are all "disable".
    fn aclGetCompileopt(_option: i32, out: *mut c_char, length: usize) {
        const TEXT: &[u8] = b"disable\0";
        if out.is_null() || length < TEXT.len() {
            return fail(code::INVALID_PARAM, "EE1001", format!("aclGetCompileopt: {length} bytes; 8 are needed"));
        }
        // SAFETY: the caller's buffer has `length` bytes.
        unsafe { std::ptr::copy_nonoverlapping(TEXT.as_ptr(), out.cast(), TEXT.len()) };
        code::SUCCESS
    }
}

fn no_operator(kind: &str, stream: *mut c_void) -> i32 {
    let name = format!("legacy (aclop) operator {kind}");
    if let Err(error) = capture::forbid_on(stream as usize, &name, code::RT_CAPTURE_MODE_NOT_SUPPORT) {
        return super::status("aclopCompileAndExecute", Err(error));
    }
    fail(
        code::OP_NOT_FOUND,
        "EZ3002",
        format!("operator {kind} is not simulated (legacy path; its aclnn form is missing in cann-sim)"),
    )
}

/// Bytes of a compile option.
#[unsafe(no_mangle)]
pub extern "C" fn aclGetCompileoptSize(_option: i32) -> usize {
    8
}

/// A handle for objects that nothing is asked of.
fn token() -> *mut c_void {
    static TOKEN: u64 = 0;
    (&raw const TOKEN).cast_mut().cast()
}

/// A buffer of the legacy path.
#[unsafe(no_mangle)]
pub extern "C" fn aclCreateDataBuffer(_data: *mut c_void, _size: usize) -> *mut c_void {
    token()
}

/// Attributes of the legacy path.
#[unsafe(no_mangle)]
pub extern "C" fn aclopCreateAttr() -> *mut c_void {
    token()
}

accepted!(
    aclDestroyDataBuffer,
    aclopDestroyAttr,
    aclSetTensorDescName,
    aclSetTensorFormat,
    aclSetTensorPlaceMent,
    aclSetTensorShape,
    aclopSetAttrBool,
    aclopSetAttrDataType,
    aclopSetAttrFloat,
    aclopSetAttrInt,
    aclopSetAttrListBool,
    aclopSetAttrListFloat,
    aclopSetAttrListInt,
    aclopSetAttrListListInt,
    aclopSetAttrString,
    aclSetCompileopt,
    rtDevBinaryRegister,
    rtFunctionRegister,
);

acl! {
    /// Refuses: kernels are not run.
    fn rtKernelLaunch() { fail(code::RT_FEATURE_NOT_SUPPORT, "EE9999", "rtKernelLaunch is not simulated".into()) }

    /// Refuses: one process owns the memory.
    fn aclrtMemExportToShareableHandle() { shared("aclrtMemExportToShareableHandle") }

    /// Refuses: one process owns the memory.
    fn aclrtMemImportFromShareableHandle() { shared("aclrtMemImportFromShareableHandle") }

    /// Refuses: one process owns the memory.
    fn aclrtMemSetPidToShareableHandle() { shared("aclrtMemSetPidToShareableHandle") }
}

fn shared(name: &str) -> i32 {
    fail(code::RT_FEATURE_NOT_SUPPORT, "EE9999", format!("{name}: memory shared between processes is not simulated"))
}
