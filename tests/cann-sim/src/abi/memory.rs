//! Device and host memory, and copies between them.

use super::{guard, put, status};
use crate::clock::Cost;
use crate::error::{SimError, code, fail};
use crate::{accepted, acl, capture, fault, groups, memory, stream};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

// Host memory that the device may use directly: start to bytes.
static PINNED: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn pinned() -> std::sync::MutexGuard<'static, BTreeMap<usize, usize>> {
    PINNED.lock().unwrap_or_else(|e| e.into_inner())
}

fn is_pinned(address: usize, size: usize) -> bool {
    pinned().range(..=address).next_back().is_some_and(|(start, length)| address + size <= start + length)
}

unsafe fn malloc(name: &str, out: *mut *mut c_void, size: usize) -> i32 {
    // torch_npu takes whichever form it finds; counts and faults of aclrtMalloc hold for all of them.
    if name != "aclrtMalloc"
        && let Err(code) = fault::enter("aclrtMalloc")
    {
        return code;
    }
    match memory::allocate(size) {
        // SAFETY: the interface promises a pointer to write to.
        Ok(address) => unsafe { put(name, out, address as *mut c_void) },
        Err(e) => status(name, Err(e)),
    }
}

unsafe fn malloc_host(name: &str, out: *mut *mut c_void, size: usize) -> i32 {
    let mut pointer = std::ptr::null_mut();
    // SAFETY: a plain allocation; the result is checked.
    if unsafe { libc::posix_memalign(&raw mut pointer, 4096, size.max(1)) } != 0 {
        return fail(code::RT_MEMORY_ALLOCATION, "EL0004", format!("{name}: no host memory for {size} bytes"));
    }
    pinned().insert(pointer as usize, size);
    // SAFETY: the interface promises a pointer to write to.
    unsafe { put(name, out, pointer) }
}

/// One side of a copy, as the memcpy kind says where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Host(usize),
    Device(usize),
}

impl Side {
    fn of(address: usize, device: Option<bool>, size: usize) -> Result<Self, SimError> {
        let is = memory::is_device(address);
        if size > 0 && device.is_some_and(|expected| expected != is) {
            let (is, expected) = if is { ("device", "host") } else { ("host", "device") };
            let text = format!("{address:#x} is {is} memory, the copy's kind says {expected} memory");
            return Err(SimError::new(code::RT_PARAM_INVALID, text));
        }
        Ok(if is { Self::Device(address) } else { Self::Host(address) })
    }

    fn pointer(self, size: usize) -> Result<*mut u8, SimError> {
        match self {
            Self::Host(address) => Ok(address as *mut u8),
            Self::Device(address) => memory::access(address, size),
        }
    }

    fn is_pageable(self, size: usize) -> bool {
        matches!(self, Self::Host(address) if !is_pinned(address, size))
    }
}

/// A copy of `height` rows of `width` bytes; the pitches are the bytes between rows.
#[derive(Clone, Copy, Debug)]
struct Copy2d {
    dst: Side,
    dpitch: usize,
    src: Side,
    spitch: usize,
    width: usize,
    height: usize,
}

impl Copy2d {
    fn span(&self, pitch: usize) -> usize {
        if self.height == 0 || self.width == 0 { 0 } else { (self.height - 1) * pitch + self.width }
    }

    fn run(&self) -> Result<(), SimError> {
        let (to, from) = (self.dst.pointer(self.span(self.dpitch))?, self.src.pointer(self.span(self.spitch))?);
        for row in 0..if self.width == 0 { 0 } else { self.height } {
            // SAFETY: device spans were just found live; for host spans the interface makes the caller answer.
            unsafe { std::ptr::copy(from.add(row * self.spitch), to.add(row * self.dpitch), self.width) };
        }
        Ok(())
    }

    fn cost(&self) -> Cost {
        let moved = (self.width * self.height) as u64;
        let rows = |pitch: usize| if pitch == self.width { 1 } else { self.height as u64 };
        let what = format!("{} bytes {:?} <- {:?}", moved, self.dst, self.src);
        Cost { bytes: 2 * moved, bursts: rows(self.dpitch) + rows(self.spitch), what, ..Cost::default() }
    }

    fn new(dst: (usize, usize), src: (usize, usize), width: usize, height: usize, kind: i32) -> Result<Self, SimError> {
        let (to, from) = match kind {
            0 => (Some(false), Some(false)),
            1 => (Some(true), Some(false)),
            2 => (Some(false), Some(true)),
            3 => (Some(true), Some(true)),
            4..=7 => (None, None),
            _ => return Err(SimError::new(code::RT_PARAM_INVALID, format!("copy kind {kind}; 0 to 4 are allowed"))),
        };
        if dst.1 < width || src.1 < width {
            let text = format!("{width} bytes to move, {} fit the destination, {} the source", dst.1, src.1);
            return Err(SimError::new(code::RT_PARAM_INVALID, text));
        }
        let size = width * height;
        let (to, from) = (Side::of(dst.0, to, size)?, Side::of(src.0, from, size)?);
        Ok(Self { dst: to, dpitch: dst.1, src: from, spitch: src.1, width, height })
    }

    /// Queues the copy. Pageable host memory is not left to the device: its bytes are taken at once on the way in, and
    /// waited for on the way out, as the driver's staging buffers do it.
    fn submit(self, name: &'static str, handle: *mut c_void) -> i32 {
        if let Err(error) = self.check_capture(name, handle) {
            return status(name, Err(error));
        }
        let cost = self.cost();
        if let Side::Host(from) = self.src
            && self.src.is_pageable(self.span(self.spitch))
        {
            // SAFETY: the interface makes the caller answer for the source.
            let bytes = unsafe { std::slice::from_raw_parts(from as *const u8, self.span(self.spitch)) }.to_vec();
            return stream::submit(
                handle,
                name,
                cost,
                Arc::new(move || Self { src: Side::Host(bytes.as_ptr() as usize), ..self }.run()),
            );
        }
        let code = stream::submit(handle, name, cost, Arc::new(move || self.run()));
        if code == 0 && self.dst.is_pageable(self.span(self.dpitch)) {
            return match stream::find(handle) {
                Ok(stream) => status(name, stream.synchronize(None)),
                Err(code) => code,
            };
        }
        code
    }

    /// A copy of pageable host memory becomes a synchronous one, which captures do not allow.
    fn check_capture(&self, name: &str, handle: *mut c_void) -> Result<(), SimError> {
        if !self.src.is_pageable(self.span(self.spitch)) && !self.dst.is_pageable(self.span(self.dpitch)) {
            return Ok(());
        }
        groups::forbid(handle as usize, name)?;
        let name = format!("{name} of pageable host memory (not from aclrtMallocHost)");
        capture::forbid_on(handle as usize, &name, code::RT_CAPTURE_MODE_BLOCK_ASYNC)?;
        capture::forbid_unsafe(&name, code::RT_CAPTURE_MODE_BLOCK_ASYNC)
    }

    fn now(self, name: &'static str) -> i32 {
        status(name, capture::forbid_unsafe(name, code::RT_CAPTURE_MODE_NOT_SUPPORT).and_then(|()| self.run()))
    }
}

fn memset(device: usize, max: usize, value: i32, count: usize) -> Result<(), SimError> {
    if count > max {
        return Err(SimError::new(code::RT_PARAM_INVALID, format!("{count} bytes to set, {max} fit the buffer")));
    }
    let pointer = Side::of(device, None, count)?.pointer(count)?;
    // SAFETY: a device range was just found live; for host memory the caller answers.
    unsafe { std::ptr::write_bytes(pointer, value as u8, count) };
    Ok(())
}

acl! {
    /// Allocates device memory.
    fn aclrtMalloc(out: *mut *mut c_void, size: usize, _policy: i32) {
        // SAFETY: the interface promises a pointer to write to.
        unsafe { malloc("aclrtMalloc", out, size) }
    }

    /// As aclrtMalloc.
    fn aclrtMallocAlign32(out: *mut *mut c_void, size: usize, _policy: i32) {
        // SAFETY: as above.
        unsafe { malloc("aclrtMallocAlign32", out, size) }
    }

    /// As aclrtMalloc.
    fn aclrtMallocCached(out: *mut *mut c_void, size: usize, _policy: i32) {
        // SAFETY: as above.
        unsafe { malloc("aclrtMallocCached", out, size) }
    }

    /// Frees device memory.
    fn aclrtFree(device: *mut c_void) { status("aclrtFree", memory::free(device as usize)) }

    /// Allocates host memory that the device may use directly.
    fn aclrtMallocHost(out: *mut *mut c_void, size: usize) {
        // SAFETY: as above.
        unsafe { malloc_host("aclrtMallocHost", out, size) }
    }

    /// As aclrtMallocHost.
    fn aclrtMallocHostWithCfg(out: *mut *mut c_void, size: u64, _config: *mut c_void) {
        // SAFETY: as above.
        unsafe { malloc_host("aclrtMallocHostWithCfg", out, size as usize) }
    }

    /// Frees host memory of aclrtMallocHost.
    fn aclrtFreeHost(host: *mut c_void) {
        if pinned().remove(&(host as usize)).is_none() {
            return fail(code::RT_PARAM_INVALID, "EE1001", format!("aclrtFreeHost: {host:?} is not from aclrtMallocHost"));
        }
        // SAFETY: it came from posix_memalign and was still registered.
        unsafe { libc::free(host) };
        code::SUCCESS
    }

    /// Lets the device use host memory directly.
    fn aclrtHostRegister(host: *mut c_void, size: u64, _kind: i32, device: *mut *mut c_void) {
        pinned().insert(host as usize, size as usize);
        // SAFETY: as above.
        unsafe { put("aclrtHostRegister", device, host) }
    }

    /// As aclrtHostRegister.
    fn aclrtHostRegisterV2(host: *mut c_void, size: u64, _flags: u32) {
        pinned().insert(host as usize, size as usize);
        code::SUCCESS
    }

    /// Undoes aclrtHostRegister.
    fn aclrtHostUnregister(host: *mut c_void) {
        pinned().remove(&(host as usize));
        code::SUCCESS
    }

    /// Where an address lies: {id, type (0 host, 1 device, 2 unregistered), page size, reserved[4]}.
    fn aclrtPointerGetAttributes(pointer: *const c_void, out: *mut [u32; 7]) {
        let kind = match pointer as usize {
            address if memory::is_device(address) => 1,
            address if is_pinned(address, 1) => 0,
            _ => 2,
        };
        // SAFETY: as above.
        unsafe { put("aclrtPointerGetAttributes", out, [0, kind, 4096, 0, 0, 0, 0]) }
    }

    /// Free and total bytes of device memory.
    fn aclrtGetMemInfo(_attribute: i32, free: *mut usize, total: *mut usize) {
        match memory::usage() {
            Err(e) => status("aclrtGetMemInfo", Err(e)),
            // SAFETY: as above.
            Ok((used, all, _)) => unsafe {
                put("aclrtGetMemInfo", total, all);
                put("aclrtGetMemInfo", free, all - used)
            },
        }
    }

    /// Copies at once.
    fn aclrtMemcpy(dst: *mut c_void, max: usize, src: *const c_void, count: usize, kind: i32) {
        if count > max {
            return fail(code::RT_PARAM_INVALID, "EE1001", format!("aclrtMemcpy: {count} bytes do not fit {max}"));
        }
        match Copy2d::new((dst as usize, count), (src as usize, count), count, 1, kind) {
            Ok(copy) => copy.now("aclrtMemcpy"),
            Err(e) => status("aclrtMemcpy", Err(e)),
        }
    }

    /// Copies on a stream.
    fn aclrtMemcpyAsync(dst: *mut c_void, max: usize, src: *const c_void, count: usize, kind: i32, stream: *mut c_void) {
        if count > max {
            return fail(code::RT_PARAM_INVALID, "EE1001", format!("aclrtMemcpyAsync: {count} bytes do not fit {max}"));
        }
        match Copy2d::new((dst as usize, count), (src as usize, count), count, 1, kind) {
            Ok(copy) => copy.submit("aclrtMemcpyAsync", stream),
            Err(e) => status("aclrtMemcpyAsync", Err(e)),
        }
    }

    /// Copies on a stream.
    fn aclrtMemcpyAsyncWithCondition(dst: *mut c_void, max: usize, src: *const c_void, count: usize, kind: i32, stream: *mut c_void) {
        // SAFETY: the same arguments under the same terms.
        unsafe { aclrtMemcpyAsync(dst, max, src, count, kind, stream) }
    }

    /// Copies rows at once.
    fn aclrtMemcpy2d(dst: *mut c_void, dpitch: usize, src: *const c_void, spitch: usize, width: usize, height: usize, kind: i32) {
        match copy_2d((dst as usize, dpitch), (src as usize, spitch), width, height, kind) {
            Ok(copy) => copy.now("aclrtMemcpy2d"),
            Err(e) => status("aclrtMemcpy2d", Err(e)),
        }
    }

    /// Copies rows on a stream.
    fn aclrtMemcpy2dAsync(dst: *mut c_void, dpitch: usize, src: *const c_void, spitch: usize, width: usize, height: usize, kind: i32, stream: *mut c_void) {
        match copy_2d((dst as usize, dpitch), (src as usize, spitch), width, height, kind) {
            Ok(copy) => copy.submit("aclrtMemcpy2dAsync", stream),
            Err(e) => status("aclrtMemcpy2dAsync", Err(e)),
        }
    }

    /// Fills at once.
    fn aclrtMemset(device: *mut c_void, max: usize, value: i32, count: usize) {
        let allowed = capture::forbid_unsafe("aclrtMemset", code::RT_CAPTURE_MODE_NOT_SUPPORT);
        status("aclrtMemset", allowed.and_then(|()| memset(device as usize, max, value, count)))
    }

    /// Fills on a stream.
    fn aclrtMemsetAsync(device: *mut c_void, max: usize, value: i32, count: usize, stream: *mut c_void) {
        let device = device as usize;
        let cost = Cost { bytes: count as u64, bursts: 1, what: format!("{count} bytes"), ..Cost::default() };
        stream::submit(stream, "aclrtMemsetAsync", cost, Arc::new(move || memset(device, max, value, count)))
    }

    /// Reserves addresses.
    fn aclrtReserveMemAddress(out: *mut *mut c_void, size: usize, _align: usize, _expect: *mut c_void, _flags: u64) {
        match memory::reserve(size) {
            // SAFETY: as above.
            Ok(address) => unsafe { put("aclrtReserveMemAddress", out, address as *mut c_void) },
            Err(e) => status("aclrtReserveMemAddress", Err(e)),
        }
    }

    /// Gives reserved addresses back.
    fn aclrtReleaseMemAddress(address: *mut c_void) { status("aclrtReleaseMemAddress", memory::release(address as usize)) }

    /// A piece of memory to be mapped. It gets bytes only where it is mapped, so the handle is its size.
    fn aclrtMallocPhysical(out: *mut *mut c_void, size: usize, _properties: *const c_void, _flags: u64) {
        // SAFETY: as above.
        unsafe { put("aclrtMallocPhysical", out, size as *mut c_void) }
    }

    /// Maps memory behind reserved addresses.
    fn aclrtMapMem(address: *mut c_void, size: usize, _offset: usize, _handle: *mut c_void, _flags: u64) {
        status("aclrtMapMem", memory::map(address as usize, size))
    }

    /// Takes it away.
    fn aclrtUnmapMem(address: *mut c_void) { status("aclrtUnmapMem", memory::unmap(address as usize)) }
}

accepted!(aclrtFreePhysical);

/// Largest width and height of a 2D copy.
const LIMITS: (usize, usize) = (5_000_000, 5_242_880);

fn copy_2d(
    dst: (usize, usize),
    src: (usize, usize),
    width: usize,
    height: usize,
    kind: i32,
) -> Result<Copy2d, SimError> {
    if width > LIMITS.0 || height > LIMITS.1 {
        let text = format!("{width} x {height}; a width of {} and a height of {} are allowed", LIMITS.0, LIMITS.1);
        return Err(SimError::new(code::RT_PARAM_INVALID, text));
    }
    Copy2d::new(dst, src, width, height, kind)
}

/// Free memory for tools that ask the C way; not part of CANN.
#[unsafe(no_mangle)]
pub extern "C" fn cann_sim_memory_used() -> u64 {
    let mut used = 0;
    guard("cann_sim_memory_used", || {
        used = memory::usage().map_or(0, |u| u.0 as u64);
        0
    });
    used
}

/// Fills device memory with the byte of fresh memory at once, whatever runs; 0, or an error code if it is not all live.
/// For tests that want to see who reads memory that he does not own any more. Not part of CANN.
#[unsafe(no_mangle)]
pub extern "C" fn cann_sim_poison(device: *mut c_void, bytes: usize) -> i32 {
    guard("cann_sim_poison", || status("cann_sim_poison", memory::poison(device as usize, bytes)))
}
