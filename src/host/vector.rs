//! 16 bytes in a register, by whatever every CPU of the architecture has.

/// Sixteen bytes, seen as lanes of any width.
#[derive(Clone, Copy)]
pub(super) struct Vector(imp::Register);

impl Vector {
    /// The bytes of a vector.
    pub(super) const BYTES: usize = 16;

    /// Reads a vector from any address.
    ///
    /// # Safety
    /// 16 bytes must be readable at `at`.
    #[inline(always)]
    pub(super) unsafe fn load(at: *const u8) -> Vector {
        // SAFETY: as demanded of the caller; the read is unaligned.
        Vector(unsafe { at.cast::<imp::Register>().read_unaligned() })
    }

    /// Writes the vector to any address.
    ///
    /// # Safety
    /// 16 bytes must be writable at `at`.
    #[inline(always)]
    pub(super) unsafe fn store(self, at: *mut u8) {
        // SAFETY: as demanded of the caller; the write is unaligned.
        unsafe { at.cast::<imp::Register>().write_unaligned(self.0) }
    }

    /// Lanes of `N` bytes (1, 2, 4, 8) taken from `self` and `other` in turn: first those of the lower halves, then those
    /// of the upper halves.
    #[inline(always)]
    pub(super) fn zip<const N: usize>(self, other: Vector) -> (Vector, Vector) {
        let (low, high) = imp::zip::<N>(self.0, other.0);
        (Vector(low), Vector(high))
    }
}

#[cfg(target_arch = "x86_64")]
mod imp {
    use std::arch::x86_64::*;

    pub(super) type Register = __m128i;

    #[inline(always)]
    pub(super) fn zip<const N: usize>(a: Register, b: Register) -> (Register, Register) {
        // SAFETY: SSE2 is part of x86-64.
        unsafe {
            match N {
                1 => (_mm_unpacklo_epi8(a, b), _mm_unpackhi_epi8(a, b)),
                2 => (_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b)),
                4 => (_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b)),
                _ => (_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b)),
            }
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod imp {
    use std::arch::aarch64::*;

    pub(super) type Register = uint8x16_t;

    #[inline(always)]
    pub(super) fn zip<const N: usize>(a: Register, b: Register) -> (Register, Register) {
        // SAFETY: NEON is part of every aarch64 target with an operating system.
        unsafe {
            match N {
                1 => (vzip1q_u8(a, b), vzip2q_u8(a, b)),
                2 => {
                    let (a, b) = (vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b));
                    (vreinterpretq_u8_u16(vzip1q_u16(a, b)), vreinterpretq_u8_u16(vzip2q_u16(a, b)))
                }
                4 => {
                    let (a, b) = (vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b));
                    (vreinterpretq_u8_u32(vzip1q_u32(a, b)), vreinterpretq_u8_u32(vzip2q_u32(a, b)))
                }
                _ => {
                    let (a, b) = (vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b));
                    (vreinterpretq_u8_u64(vzip1q_u64(a, b)), vreinterpretq_u8_u64(vzip2q_u64(a, b)))
                }
            }
        }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod imp {
    pub(super) type Register = [u8; 16];

    #[inline(always)]
    pub(super) fn zip<const N: usize>(a: Register, b: Register) -> (Register, Register) {
        let lanes = |first: usize| {
            std::array::from_fn(|byte| {
                let from = if byte / N % 2 == 0 { &a } else { &b };
                from[first + byte / (2 * N) * N + byte % N]
            })
        };
        (lanes(0), lanes(8))
    }
}
