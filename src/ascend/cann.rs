//! Questions to CANN, by libloading: nothing links against it, and nothing here initializes a device.

use std::ffi::{CStr, c_char, c_int};
use std::path::Path;
use std::sync::OnceLock;

use libloading::os::unix::Library;

use crate::contract::{Platform, Version};

/// The platform of this process, asked once. What CANN does not tell is `None`, which contracts treat as the strictest.
///
/// Call it when a tensor on the NPU is at hand, not before: until a device is in use CANN may not know its SoC.
pub fn machine() -> &'static Platform {
    static MACHINE: OnceLock<Platform> = OnceLock::new();
    MACHINE.get_or_init(|| {
        let Some(library) = loaded("libascendcl.so") else {
            return Platform::default();
        };
        let platform = Platform { soc: soc_name(&library), cann: version(&library).or_else(version_from_files) };
        tracing::info!(target: "infini_rearrange", soc = ?platform.soc, cann = ?platform.cann, "platform");
        platform
    })
}

/// A library that the process has loaded already; one that nobody loaded is of no interest.
pub(super) fn loaded(name: &str) -> Option<Library> {
    const RTLD_LAZY: c_int = 1;
    const RTLD_NOLOAD: c_int = 4;
    // SAFETY: RTLD_NOLOAD runs no initializer: it only takes another handle on a library that is there.
    unsafe { Library::open(Some(name), RTLD_LAZY | RTLD_NOLOAD) }.ok()
}

/// `const char *aclrtGetSocName()`; null before a device is set.
fn soc_name(library: &Library) -> Option<String> {
    // SAFETY: the signature is that of acl/acl_rt.h; the string is static.
    let name = unsafe {
        let get = library.get::<unsafe extern "C" fn() -> *const c_char>(b"aclrtGetSocName\0").ok()?;
        let name = get();
        if name.is_null() {
            return None;
        }
        CStr::from_ptr(name)
    };
    text(name.to_bytes())
}

/// The version of the operator package that FIA lives in, else that of CANN as a whole.
fn version(library: &Library) -> Option<Version> {
    package_version(library, c"ops_transformer").or_else(|| cann_version(library))
}

/// `aclError aclsysGetVersionStr(char *pkgName, char *versionStr)`; the buffer is of at least 128 bytes.
fn package_version(library: &Library, package: &CStr) -> Option<Version> {
    type Get = unsafe extern "C" fn(*const c_char, *mut c_char) -> c_int;
    let mut buffer = [0u8; 512];
    // SAFETY: the buffer is larger than any version that CANN writes; both pointers live through the call.
    let status =
        unsafe { library.get::<Get>(b"aclsysGetVersionStr\0").ok()?(package.as_ptr(), buffer.as_mut_ptr().cast()) };
    if status != 0 {
        return None;
    }
    text(&buffer)?.parse().ok()
}

/// `aclError aclsysGetCANNVersion(aclCANNPackageName name, aclCANNPackageVersion *version)`, name 0 being CANN.
fn cann_version(library: &Library) -> Option<Version> {
    /// {char version[128], major[64], minor[64], release[64], patch[64], reserved[128]}
    #[repr(C)]
    struct PackageVersion {
        version: [u8; 128],
        rest: [u8; 384],
    }
    type Get = unsafe extern "C" fn(c_int, *mut PackageVersion) -> c_int;
    let mut found = PackageVersion { version: [0; 128], rest: [0; 384] };
    // SAFETY: the struct has the size and layout of acl/acl_base.h.
    let status = unsafe { library.get::<Get>(b"aclsysGetCANNVersion\0").ok()?(0, &mut found) };
    if status != 0 {
        return None;
    }
    text(&found.version)?.parse().ok()
}

/// `version.info` under ASCEND_HOME_PATH, for releases that have no function to ask.
fn version_from_files() -> Option<Version> {
    let home = std::env::var_os("ASCEND_HOME_PATH")?;
    ["version.info", "opp/version.info", "runtime/version.info", "compiler/version.info"]
        .iter()
        .filter_map(|file| std::fs::read_to_string(Path::new(&home).join(file)).ok())
        .find_map(|text| {
            text.lines().find_map(|line| line.trim().strip_prefix("Version=")?.trim_matches('"').parse().ok())
        })
}

/// The bytes up to the first NUL as text, if there are any.
fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let text = std::str::from_utf8(&bytes[..end]).ok()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}
