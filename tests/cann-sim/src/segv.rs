//! A fault on a device address explains itself before the process dies of it.

use std::sync::{Once, OnceLock};

static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the handler, once; whatever was installed before is called after the message.
pub fn install() {
    static ONCE: Once = Once::new();
    // SAFETY: sigaction with zero-initialized structures and a handler that only makes async-signal-safe calls.
    ONCE.call_once(|| unsafe {
        let mut previous: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGSEGV, std::ptr::null(), &raw mut previous);
        let _ = PREVIOUS.set(previous);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut());
    });
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid siginfo to an SA_SIGINFO handler.
    let address = unsafe { (*info).si_addr() } as usize;
    if crate::memory::is_device(address) {
        let mut line = *b"cann-sim: host code touched device memory at 0x0000000000000000\n";
        let end = line.len() - 1;
        for (i, digit) in line[end - 16..end].iter_mut().rev().enumerate() {
            *digit = b"0123456789abcdef"[address >> (4 * i) & 15];
        }
        // SAFETY: write(2) of a buffer on the stack.
        unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
    }
    let Some(previous) = PREVIOUS.get() else { return };
    // SAFETY: calling, or restoring, what was installed before us; returning then repeats the faulting access.
    unsafe {
        if previous.sa_sigaction > 1 && previous.sa_flags & libc::SA_SIGINFO != 0 {
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                std::mem::transmute(previous.sa_sigaction);
            handler(signal, info, context);
        } else {
            libc::sigaction(libc::SIGSEGV, previous, std::ptr::null_mut());
        }
    }
}
