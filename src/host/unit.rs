//! Moving one unit. A length known to the compiler is a load and a store; others cost a few branches, all predicted.

use std::ptr::copy_nonoverlapping;

/// Something that moves a fixed number of bytes.
pub(super) trait Unit: Copy {
    /// Copies one unit.
    ///
    /// # Safety
    /// One unit must be readable at `src` and writable at `dst`, and they must not overlap.
    unsafe fn copy(self, dst: *mut u8, src: *const u8);
}

/// `N` bytes.
#[derive(Clone, Copy)]
pub(super) struct Fixed<const N: usize>;

impl<const N: usize> Unit for Fixed<N> {
    #[inline(always)]
    unsafe fn copy(self, dst: *mut u8, src: *const u8) {
        // SAFETY: as demanded of the caller.
        unsafe { copy_nonoverlapping(src, dst, N) }
    }
}

/// Any number of bytes from 1.
#[derive(Clone, Copy)]
pub(super) struct Any(pub usize);

impl Unit for Any {
    /// Below 64 bytes a call to memcpy costs more than the copy: two pieces of half the length or more, which overlap in
    /// the middle, cover every length without a loop over bytes.
    #[inline(always)]
    unsafe fn copy(self, dst: *mut u8, src: *const u8) {
        let len = self.0;
        // SAFETY: each arm moves the first and the last N bytes of a unit of N to 2 N bytes.
        unsafe {
            match len {
                32..64 => ends::<32>(len, dst, src),
                16..32 => ends::<16>(len, dst, src),
                8..16 => ends::<8>(len, dst, src),
                4..8 => ends::<4>(len, dst, src),
                2..4 => ends::<2>(len, dst, src),
                _ => copy_nonoverlapping(src, dst, len),
            }
        }
    }
}

/// Copies the first and the last `N` of `len` bytes.
///
/// # Safety
/// As [`Unit::copy`]; `N <= len <= 2 * N`.
#[inline(always)]
unsafe fn ends<const N: usize>(len: usize, dst: *mut u8, src: *const u8) {
    // SAFETY: N is at most the length.
    unsafe {
        copy_nonoverlapping(src, dst, N);
        copy_nonoverlapping(src.add(len - N), dst.add(len - N), N);
    }
}

/// Evaluates `$call` with `$unit` bound to the mover for `$bytes`, once for each compiled length.
macro_rules! with_unit {
    ($bytes:expr, $unit:ident => $call:expr) => {{
        use $crate::host::unit::{Any, Fixed};
        macro_rules! fixed {
            ($n:literal) => {{
                let $unit = Fixed::<$n>;
                $call
            }};
        }
        match $bytes {
            1 => fixed!(1),
            2 => fixed!(2),
            4 => fixed!(4),
            8 => fixed!(8),
            16 => fixed!(16),
            32 => fixed!(32),
            64 => fixed!(64),
            bytes => {
                let $unit = Any(bytes);
                $call
            }
        }
    }};
}
pub(super) use with_unit;
