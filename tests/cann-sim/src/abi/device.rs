//! Process, device and context; names and versions.

use super::{put, status};
use crate::config::{soc, version};
use crate::error::{code, fail, take_recent};
use crate::{accepted, acl, capture, stream};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Cube cores; there are twice as many vector cores.
const CORES: i64 = 24;

static INITIALIZED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static DEVICE_SET: Cell<bool> = const { Cell::new(false) };
}

// Any address that is not null serves as the one context; nobody looks behind it.
static CONTEXT: u64 = 0;

fn context() -> *mut c_void {
    (&raw const CONTEXT).cast_mut().cast()
}

fn check_device(name: &str, device: i32) -> i32 {
    if device == 0 {
        return code::SUCCESS;
    }
    fail(
        code::RT_INVALID_DEVICE,
        "EE1003",
        format!("{name}: device {device} does not exist; 0 is the only one simulated"),
    )
}

fn synchronize_all(name: &str, timeout: Option<Duration>) -> i32 {
    if let Err(error) = capture::forbid(name, code::RT_STREAM_CAPTURED) {
        return status(name, Err(error));
    }
    let results = stream::all().into_iter().map(|s| s.synchronize(timeout)).collect::<Vec<_>>();
    status(name, results.into_iter().collect())
}

/// `timeout` in milliseconds as the interface has it: negative is for ever.
pub fn milliseconds(timeout: i32) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

acl! {
    /// Starts the simulation; a second time is 100002.
    fn aclInit(_config: *const c_char) {
        // Reading both now makes a wrong setting stop the program here.
        let _ = (soc(), version());
        if INITIALIZED.swap(true, Ordering::SeqCst) {
            return fail(code::REPEAT_INITIALIZE, "EE1001", "aclInit: repeat initialize".into());
        }
        code::SUCCESS
    }

    /// Ends it.
    fn aclFinalize() {
        INITIALIZED.store(false, Ordering::SeqCst);
        code::SUCCESS
    }

    /// One device.
    fn aclrtGetDeviceCount(count: *mut u32) {
        // SAFETY: the interface promises a pointer to write to.
        unsafe { put("aclrtGetDeviceCount", count, 1) }
    }

    /// Makes the device the thread's current one.
    fn aclrtSetDevice(device: i32) {
        let code = check_device("aclrtSetDevice", device);
        DEVICE_SET.set(DEVICE_SET.get() || code == 0);
        code
    }

    /// The thread's current device; 107002 before any was set.
    fn aclrtGetDevice(device: *mut i32) {
        if !DEVICE_SET.get() {
            return fail(code::RT_CONTEXT_NULL, "EE1001", "aclrtGetDevice: no device was set in this thread".into());
        }
        // SAFETY: as above.
        unsafe { put("aclrtGetDevice", device, 0) }
    }

    /// Waits for everything on the device.
    fn aclrtResetDevice(device: i32) {
        let code = check_device("aclrtResetDevice", device);
        if code != 0 { code } else { synchronize_all("aclrtResetDevice", None) }
    }

    /// The one context, once the thread has a device.
    fn aclrtGetCurrentContext(out: *mut *mut c_void) {
        if !DEVICE_SET.get() {
            return fail(code::RT_CONTEXT_NULL, "EE1001", "aclrtGetCurrentContext: no device was set in this thread".into());
        }
        // SAFETY: as above.
        unsafe { put("aclrtGetCurrentContext", out, context()) }
    }

    /// The one context again.
    fn aclrtCreateContext(out: *mut *mut c_void, device: i32) {
        let code = check_device("aclrtCreateContext", device);
        if code != 0 {
            return code;
        }
        DEVICE_SET.set(true);
        // SAFETY: as above.
        unsafe { put("aclrtCreateContext", out, context()) }
    }

    /// Makes the context the thread's current one.
    fn aclrtSetCurrentContext(given: *mut c_void) {
        if given.is_null() {
            return fail(code::RT_CONTEXT_NULL, "EE1001", "aclrtSetCurrentContext: the context is null".into());
        }
        DEVICE_SET.set(true);
        code::SUCCESS
    }

    /// Whether the device is in use.
    fn aclrtGetPrimaryCtxState(device: i32, flags: *mut u32, active: *mut i32) {
        let code = check_device("aclrtGetPrimaryCtxState", device);
        if code != 0 {
            return code;
        }
        // SAFETY: as above.
        unsafe {
            if !flags.is_null() {
                *flags = 0;
            }
            put("aclrtGetPrimaryCtxState", active, crate::memory::range_if_open().is_some().into())
        }
    }

    /// Waits for every stream; a failed task's error comes out here.
    fn aclrtSynchronizeDevice() { synchronize_all("aclrtSynchronizeDevice", None) }

    /// The same, at most so many milliseconds.
    fn aclrtSynchronizeDeviceWithTimeout(timeout: i32) {
        synchronize_all("aclrtSynchronizeDeviceWithTimeout", milliseconds(timeout))
    }

    /// The host's side of the house: 1 is a host with a device.
    fn aclrtGetRunMode(mode: *mut i32) {
        // SAFETY: as above.
        unsafe { put("aclrtGetRunMode", mode, 1) }
    }

    /// No other device, so no peer.
    fn aclrtDeviceCanAccessPeer(can: *mut i32, _device: i32, _peer: i32) {
        // SAFETY: as above.
        unsafe { put("aclrtDeviceCanAccessPeer", can, 0) }
    }

    /// The process id.
    fn aclrtDeviceGetBareTgid(pid: *mut i32) {
        // SAFETY: as above.
        unsafe { put("aclrtDeviceGetBareTgid", pid, std::process::id() as i32) }
    }

    /// Cores, memory, cache: round figures, the same for every chip.
    fn aclrtGetDeviceInfo(_device: u32, attribute: i32, value: *mut i64) {
        let figure = match attribute {
            101 | 102 => CORES,
            201 => 2 * CORES,
            204 => 192 << 10,
            301 => crate::config::memory() as i64,
            302 => 128 << 20,
            _ => 1,
        };
        // SAFETY: as above.
        unsafe { put("aclrtGetDeviceInfo", value, figure) }
    }

    /// One of everything.
    fn aclGetDeviceCapability(_device: u32, _info: i32, value: *mut i64) {
        // SAFETY: as above.
        unsafe { put("aclGetDeviceCapability", value, 1) }
    }

    /// Cores that a device may use.
    fn aclrtGetDeviceResLimit(_device: i32, _kind: i32, value: *mut u32) {
        // SAFETY: as above.
        unsafe { put("aclrtGetDeviceResLimit", value, CORES as u32) }
    }

    /// Cores that a stream may use.
    fn aclrtGetStreamResLimit(_stream: *mut c_void, _kind: i32, value: *mut u32) {
        // SAFETY: as above.
        unsafe { put("aclrtGetStreamResLimit", value, CORES as u32) }
    }

    /// Cores that the thread may use.
    fn aclrtGetResInCurrentThread(_kind: i32, value: *mut u32) {
        // SAFETY: as above.
        unsafe { put("aclrtGetResInCurrentThread", value, CORES as u32) }
    }

    /// An identifier of 16 bytes.
    fn aclrtDeviceGetUuid(_device: i32, uuid: *mut [u8; 16]) {
        // SAFETY: as above.
        unsafe { put("aclrtDeviceGetUuid", uuid, *b"cann-sim-device0") }
    }

    /// No attribute of CANN's is offered.
    fn aclGetCannAttributeList(list: *mut *const i32, count: *mut usize) {
        // SAFETY: as above.
        unsafe {
            put("aclGetCannAttributeList", list, std::ptr::null());
            put("aclGetCannAttributeList", count, 0)
        }
    }

    /// Never there.
    fn aclGetCannAttribute(_attribute: i32, value: *mut i32) {
        // SAFETY: as above.
        unsafe { put("aclGetCannAttribute", value, 0) }
    }

    /// Version of the acl interface.
    fn aclrtGetVersion(major: *mut i32, minor: *mut i32, patch: *mut i32) {
        // SAFETY: as above.
        unsafe {
            put("aclrtGetVersion", major, 1);
            put("aclrtGetVersion", minor, 16);
            put("aclrtGetVersion", patch, 0)
        }
    }

    /// Fills {version[128], major[64], minor[64], release[64], patch[64], reserved[128]}.
    fn aclsysGetCANNVersion(_package: i32, out: *mut [u8; 512]) {
        let version = version();
        let mut fields = [0u8; 512];
        let mut text = |at: usize, text: String| fields[at..at + text.len()].copy_from_slice(text.as_bytes());
        text(0, version.text.into());
        text(128, version.major.to_string());
        text(192, version.minor.to_string());
        text(256, version.patch.to_string());
        text(320, if version.pre { "pre".into() } else { String::new() });
        // SAFETY: as above.
        unsafe { put("aclsysGetCANNVersion", out, fields) }
    }

    /// Version text of an operator package; all have the one version.
    fn aclsysGetVersionStr(_package: *mut c_char, out: *mut c_char) {
        if out.is_null() {
            return fail(code::INVALID_PARAM, "EE1001", "aclsysGetVersionStr: the out-pointer is null".into());
        }
        let text = version().text;
        // SAFETY: the caller's buffer has 128 bytes, the longest text has 10.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), out.cast(), text.len());
            *out.add(text.len()) = 0;
        }
        code::SUCCESS
    }

    /// No error is kept per thread besides the text.
    fn aclrtGetLastError(_level: i32) { code::SUCCESS }

    /// As aclrtGetLastError.
    fn aclrtPeekAtLastError(_level: i32) { code::SUCCESS }
}

accepted!(
    aclrtDestroyContext,
    aclrtDeviceEnablePeerAccess,
    aclrtCtxSetSysParamOpt,
    aclrtSetSysParamOpt,
    aclrtSetDeviceSatMode,
    aclrtSetOpExecuteTimeOut,
    aclrtSetOpExecuteTimeOutV2,
    aclrtSetOpWaitTimeout,
    aclrtDeviceTaskAbort,
    aclrtSetDeviceResLimit,
    aclrtResetDeviceResLimit,
    aclrtUseStreamResInCurrentThread,
    aclrtUnuseStreamResInCurrentThread,
    HcclSetConfig,
);

/// Name of the chip.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetSocName() -> *const c_char {
    static NAME: OnceLock<std::ffi::CString> = OnceLock::new();
    NAME.get_or_init(|| std::ffi::CString::new(soc()).unwrap_or_default()).as_ptr()
}

/// Text of the last failed call of this thread; null if there is none. It is taken by asking.
#[unsafe(no_mangle)]
pub extern "C" fn aclGetRecentErrMsg() -> *const c_char {
    take_recent()
}

/// A text from a C caller, for messages.
///
/// # Safety
/// `text` is null or a C string.
pub unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return "(null)".into();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
