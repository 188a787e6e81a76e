//! Device memory.
//!
//! One file in memory is mapped twice. The first mapping cannot be read or written: its addresses are the "device
//! addresses" that callers see, so host code that touches one faults, as it would on a real device. The second mapping is
//! the simulated device's own way to the same bytes. Between allocations lie gaps, so that a task that runs over the end
//! of its buffer is found out instead of reading its neighbour.

use crate::config;
use crate::error::{SimError, code};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock};

const GAP: usize = 512;
const ALIGN: usize = 512;
const LARGE: usize = 2 << 20;
/// Fresh memory is filled with this, so that reading what nobody wrote shows.
pub const POISON: u8 = 0xCB;
// Filling a whole gigabyte would cost the host real memory; the rest of a very large allocation reads as zero.
const POISON_LIMIT: usize = 256 << 20;

#[derive(Default)]
struct Table {
    /// Live ranges: start to length. Mapped ranges (aclrtMapMem) may adjoin, allocations never do.
    live: BTreeMap<usize, usize>,
    /// Ranges that aclrtReserveMemAddress holds: start to length.
    reserved: BTreeMap<usize, usize>,
    /// Unused address ranges: start to length.
    free: BTreeMap<usize, usize>,
    used: usize,
    peak: usize,
}

struct Device {
    base: usize,
    size: usize,
    alias: usize,
    fd: i32,
    total: usize,
    table: Mutex<Table>,
}

static DEVICE: OnceLock<Result<Device, SimError>> = OnceLock::new();

fn device() -> Result<&'static Device, SimError> {
    DEVICE.get_or_init(Device::open).as_ref().map_err(Clone::clone)
}

/// Where the device addresses lie, if the device has been used: start and length in bytes. Safe in a signal handler.
pub fn range_if_open() -> Option<(usize, usize)> {
    DEVICE.get().and_then(|d| d.as_ref().ok()).map(|d| (d.base, d.size))
}

/// Whether an address is a device address (live or not).
pub fn is_device(address: usize) -> bool {
    range_if_open().is_some_and(|(base, size)| address >= base && address < base + size)
}

impl Device {
    fn open() -> Result<Self, SimError> {
        let total = config::memory();
        // More addresses than memory: address space reserved for growing segments is not memory.
        let size = total * 4;
        // SAFETY: plain system calls; every result is checked before it is used.
        let (fd, base, alias) = unsafe {
            let fd = libc::memfd_create(c"cann-sim".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 || libc::ftruncate(fd, size as libc::off_t) != 0 {
                return Err(os_error("cannot create the device memory"));
            }
            let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
            let map = |prot| libc::mmap(std::ptr::null_mut(), size, prot, flags, fd, 0);
            let (base, alias) = (map(libc::PROT_NONE), map(libc::PROT_READ | libc::PROT_WRITE));
            if base == libc::MAP_FAILED || alias == libc::MAP_FAILED {
                return Err(os_error("cannot map the device memory; a smaller CANN_SIM_MEMORY may help"));
            }
            // Core dumps should not carry 64 GiB of simulated memory.
            libc::madvise(alias, size, libc::MADV_DONTDUMP);
            (fd, base as usize, alias as usize)
        };
        crate::segv::install();
        let table = Table { free: BTreeMap::from([(base, size)]), ..Table::default() };
        Ok(Self { base, size, alias, fd, total, table: Mutex::new(table) })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn alias_of(&self, address: usize) -> *mut u8 {
        (address - self.base + self.alias) as *mut u8
    }
}

fn os_error(what: &str) -> SimError {
    SimError::new(code::RT_INTERNAL, format!("{what}: {}", std::io::Error::last_os_error()))
}

impl Table {
    fn take(&mut self, size: usize, align: usize) -> Option<usize> {
        let (start, length, at) = self.free.iter().find_map(|(&start, &length)| {
            let at = start.checked_next_multiple_of(align)?;
            (at + size <= start + length).then_some((start, length, at))
        })?;
        self.free.remove(&start);
        if at > start {
            self.free.insert(start, at - start);
        }
        if at + size < start + length {
            self.free.insert(at + size, start + length - at - size);
        }
        Some(at)
    }

    fn give_back(&mut self, mut start: usize, mut size: usize) {
        if let Some((&before, &length)) = self.free.range(..start).next_back()
            && before + length == start
        {
            self.free.remove(&before);
            (start, size) = (before, size + length);
        }
        if let Some(length) = self.free.remove(&(start + size)) {
            size += length;
        }
        self.free.insert(start, size);
    }

    fn add_live(&mut self, start: usize, size: usize) {
        self.live.insert(start, size);
        self.used += size;
        self.peak = self.peak.max(self.used);
    }

    fn remove_live(&mut self, start: usize) -> Option<usize> {
        let size = self.live.remove(&start)?;
        self.used -= size;
        Some(size)
    }

    fn holds(&self, start: usize, size: usize) -> bool {
        let mut at = start;
        let Some(end) = start.checked_add(size) else { return false };
        while at < end {
            match self.live.range(..=at).next_back() {
                Some((&from, &length)) if at < from + length => at = from + length,
                _ => return false,
            }
        }
        true
    }
}

fn span(size: usize) -> usize {
    size.next_multiple_of(ALIGN) + GAP
}

fn out_of_memory(device: &Device, table: &Table, size: usize) -> SimError {
    SimError::new(
        code::RT_MEMORY_ALLOCATION,
        format!(
            "out of memory: {size} bytes asked for, {} of {} bytes are free",
            device.total - table.used,
            device.total
        ),
    )
}

/// Allocates `size` bytes of device memory, filled with [`POISON`]; 512-byte aligned, 2 MiB where larger than that.
///
/// # Errors
/// 100000 for zero bytes, 207001 if the memory does not suffice.
pub fn allocate(size: usize) -> Result<usize, SimError> {
    if size == 0 {
        return Err(SimError::new(code::INVALID_PARAM, "aclrtMalloc of 0 bytes; at least 1 is allowed"));
    }
    let device = device()?;
    let mut table = device.table();
    if size > device.total - table.used {
        return Err(out_of_memory(device, &table, size));
    }
    let align = if size >= LARGE { LARGE } else { ALIGN };
    let start = table.take(span(size), align).ok_or_else(|| out_of_memory(device, &table, size))?;
    // SAFETY: the range was just taken from the free ranges, all of which lie inside the mapping.
    unsafe { std::ptr::write_bytes(device.alias_of(start), POISON, size.min(POISON_LIMIT)) };
    table.add_live(start, size);
    Ok(start)
}

/// Frees an allocation. From then on no task may touch it; its pages go back to the host.
///
/// # Errors
/// 107000 if no allocation starts at `address`.
pub fn free(address: usize) -> Result<(), SimError> {
    let device = device()?;
    let mut table = device.table();
    let size = table.remove_live(address).ok_or_else(|| {
        SimError::new(code::RT_PARAM_INVALID, format!("aclrtFree of {address:#x}, where no live allocation starts"))
    })?;
    drop_pages(device, address, size);
    table.give_back(address, span(size));
    Ok(())
}

fn drop_pages(device: &Device, address: usize, size: usize) {
    const PAGE: usize = 4096;
    let start = (address - device.base).next_multiple_of(PAGE);
    let end = (address - device.base + size) / PAGE * PAGE;
    if end > start {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a system call on our own file; failing only means that the pages stay.
        unsafe { libc::fallocate(device.fd, mode, start as libc::off_t, (end - start) as libc::off_t) };
    }
}

/// Reserves addresses without memory behind them (`aclrtReserveMemAddress`).
///
/// # Errors
/// 207001 if the address space does not suffice.
pub fn reserve(size: usize) -> Result<usize, SimError> {
    let device = device()?;
    let mut table = device.table();
    let start = table.take(span(size), LARGE).ok_or_else(|| out_of_memory(device, &table, size))?;
    table.reserved.insert(start, size);
    Ok(start)
}

/// Gives reserved addresses back.
///
/// # Errors
/// 107000 if nothing is reserved there.
pub fn release(address: usize) -> Result<(), SimError> {
    let mut table = device()?.table();
    let size = table.reserved.remove(&address).ok_or_else(|| {
        SimError::new(code::RT_PARAM_INVALID, format!("{address:#x} is not the start of reserved addresses"))
    })?;
    table.give_back(address, span(size));
    Ok(())
}

/// Puts memory behind part of the reserved addresses (`aclrtMapMem`).
///
/// # Errors
/// 107000 outside reserved addresses, 207001 if the memory does not suffice.
pub fn map(address: usize, size: usize) -> Result<(), SimError> {
    let device = device()?;
    let mut table = device.table();
    let inside = table.reserved.range(..=address).next_back().is_some_and(|(s, n)| address + size <= s + n);
    if !inside {
        return Err(SimError::new(code::RT_PARAM_INVALID, format!("{address:#x} (+{size}) is not reserved")));
    }
    if size > device.total - table.used {
        return Err(out_of_memory(device, &table, size));
    }
    // SAFETY: reserved ranges lie inside the mapping.
    unsafe { std::ptr::write_bytes(device.alias_of(address), POISON, size.min(POISON_LIMIT)) };
    table.add_live(address, size);
    Ok(())
}

/// Takes mapped memory away again.
///
/// # Errors
/// 107000 if nothing was mapped there.
pub fn unmap(address: usize) -> Result<(), SimError> {
    let device = device()?;
    let size = device
        .table()
        .remove_live(address)
        .ok_or_else(|| SimError::new(code::RT_PARAM_INVALID, format!("nothing is mapped at {address:#x}")))?;
    drop_pages(device, address, size);
    Ok(())
}

/// Bytes in use and in all, and the most that was ever in use.
///
/// # Errors
/// If the device memory cannot be set up.
pub fn usage() -> Result<(usize, usize, usize), SimError> {
    let device = device()?;
    let table = device.table();
    Ok((table.used, device.total, table.peak))
}

/// The device's own pointer to `size` bytes at a device address.
///
/// # Errors
/// 507899 if any byte lies outside live allocations.
pub fn access(address: usize, size: usize) -> Result<*mut u8, SimError> {
    let device = device()?;
    if !is_device(address) || !device.table().holds(address, size) {
        return Err(SimError::new(
            code::RT_DRV_INTERNAL,
            format!("the task touches {size} bytes at {address:#x}, which do not lie inside a live allocation"),
        ));
    }
    Ok(device.alias_of(address))
}

/// Fills a range with [`POISON`].
///
/// # Errors
/// 507899 if any byte lies outside live allocations.
pub fn poison(address: usize, size: usize) -> Result<(), SimError> {
    let pointer = access(address, size)?;
    // SAFETY: the range was just found live.
    unsafe { std::ptr::write_bytes(pointer, POISON, size) };
    Ok(())
}

/// Device addresses that are live right now: start and bytes of each allocation.
pub fn live() -> Vec<(usize, usize)> {
    device().map(|d| d.table().live.iter().map(|(a, b)| (*a, *b)).collect()).unwrap_or_default()
}
