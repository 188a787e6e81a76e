//! Element types and the conversions between them.

use half::{bf16, f16};

/// An acl data type code (`aclDataType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DType(pub i32);

/// One element, as wide as any element type needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Any integer or boolean; unsigned 64-bit values fit too.
    Int(i128),
    /// Any real floating-point number.
    Float(f64),
    /// Real and imaginary part.
    Complex(f64, f64),
}

#[allow(missing_docs)]
impl DType {
    pub const FLOAT: Self = Self(0);
    pub const FLOAT16: Self = Self(1);
    pub const INT8: Self = Self(2);
    pub const INT32: Self = Self(3);
    pub const UINT8: Self = Self(4);
    pub const INT16: Self = Self(6);
    pub const UINT16: Self = Self(7);
    pub const UINT32: Self = Self(8);
    pub const INT64: Self = Self(9);
    pub const UINT64: Self = Self(10);
    pub const DOUBLE: Self = Self(11);
    pub const BOOL: Self = Self(12);
    pub const COMPLEX64: Self = Self(16);
    pub const COMPLEX128: Self = Self(17);
    pub const BF16: Self = Self(27);
    pub const COMPLEX32: Self = Self(33);
    pub const HIFLOAT8: Self = Self(34);
    pub const F8_E5M2: Self = Self(35);
    pub const F8_E4M3FN: Self = Self(36);
}

impl DType {
    /// Bytes per element; 0 for a code that is not simulated.
    pub fn size(self) -> usize {
        match self {
            Self::INT8 | Self::UINT8 | Self::BOOL | Self::HIFLOAT8 | Self::F8_E5M2 | Self::F8_E4M3FN => 1,
            Self::FLOAT16 | Self::BF16 | Self::INT16 | Self::UINT16 => 2,
            Self::FLOAT | Self::INT32 | Self::UINT32 | Self::COMPLEX32 => 4,
            Self::DOUBLE | Self::INT64 | Self::UINT64 | Self::COMPLEX64 => 8,
            Self::COMPLEX128 => 16,
            _ => 0,
        }
    }

    /// A short name for messages and the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::FLOAT => "f32",
            Self::FLOAT16 => "f16",
            Self::INT8 => "i8",
            Self::INT32 => "i32",
            Self::UINT8 => "u8",
            Self::INT16 => "i16",
            Self::UINT16 => "u16",
            Self::UINT32 => "u32",
            Self::INT64 => "i64",
            Self::UINT64 => "u64",
            Self::DOUBLE => "f64",
            Self::BOOL => "bool",
            Self::COMPLEX64 => "c64",
            Self::COMPLEX128 => "c128",
            Self::BF16 => "bf16",
            Self::COMPLEX32 => "c32",
            Self::HIFLOAT8 => "hif8",
            Self::F8_E5M2 => "f8e5m2",
            Self::F8_E4M3FN => "f8e4m3fn",
            _ => "unknown",
        }
    }

    /// Whether values are computed with as integers (booleans too).
    pub fn is_integer(self) -> bool {
        matches!(
            self,
            Self::INT8
                | Self::UINT8
                | Self::BOOL
                | Self::INT16
                | Self::UINT16
                | Self::INT32
                | Self::UINT32
                | Self::INT64
                | Self::UINT64
        )
    }

    /// Whether an element has an imaginary part.
    pub fn is_complex(self) -> bool {
        matches!(self, Self::COMPLEX32 | Self::COMPLEX64 | Self::COMPLEX128)
    }

    /// The element in the first [`size`](Self::size) bytes; `None` for types that cannot be converted (hif8, unknown).
    pub fn decode(self, bytes: &[u8]) -> Option<Value> {
        macro_rules! at {
            ($t:ty, $i:expr) => {{
                const N: usize = size_of::<$t>();
                <$t>::from_le_bytes(bytes[$i * N..($i + 1) * N].try_into().ok()?)
            }};
        }
        Some(match self {
            Self::FLOAT => Value::Float(at!(f32, 0).into()),
            Self::DOUBLE => Value::Float(at!(f64, 0)),
            Self::FLOAT16 => Value::Float(at!(f16, 0).into()),
            Self::BF16 => Value::Float(at!(bf16, 0).into()),
            Self::F8_E5M2 => Value::Float(f16::from_bits(u16::from(bytes[0]) << 8).into()),
            Self::F8_E4M3FN => Value::Float(e4m3_to_f64(bytes[0])),
            Self::INT8 => Value::Int(at!(i8, 0).into()),
            Self::UINT8 => Value::Int(at!(u8, 0).into()),
            Self::BOOL => Value::Int((bytes[0] != 0).into()),
            Self::INT16 => Value::Int(at!(i16, 0).into()),
            Self::UINT16 => Value::Int(at!(u16, 0).into()),
            Self::INT32 => Value::Int(at!(i32, 0).into()),
            Self::UINT32 => Value::Int(at!(u32, 0).into()),
            Self::INT64 => Value::Int(at!(i64, 0).into()),
            Self::UINT64 => Value::Int(at!(u64, 0).into()),
            Self::COMPLEX32 => Value::Complex(at!(f16, 0).into(), at!(f16, 1).into()),
            Self::COMPLEX64 => Value::Complex(at!(f32, 0).into(), at!(f32, 1).into()),
            Self::COMPLEX128 => Value::Complex(at!(f64, 0), at!(f64, 1)),
            _ => return None,
        })
    }

    /// Appends one element, rounded to this type; integers wrap. `false` for types that cannot be converted.
    pub fn encode(self, value: Value, out: &mut Vec<u8>) -> bool {
        let (f, im) = (value.re(), value.im());
        let i = value.int();
        match self {
            Self::FLOAT => out.extend((f as f32).to_le_bytes()),
            Self::DOUBLE => out.extend(f.to_le_bytes()),
            Self::FLOAT16 => out.extend(f16::from_f64(f).to_le_bytes()),
            Self::BF16 => out.extend(bf16::from_f64(f).to_le_bytes()),
            Self::F8_E5M2 => out.push(nearest(f, |b| f16::from_bits(u16::from(b) << 8).into(), 0x7b, 0x7c, 0x7f)),
            Self::F8_E4M3FN => out.push(nearest(f, e4m3_to_f64, 0x7e, 0x7f, 0x7f)),
            Self::BOOL => out.push(value.truth().into()),
            Self::INT8 | Self::UINT8 => out.push(i as u8),
            Self::INT16 | Self::UINT16 => out.extend((i as u16).to_le_bytes()),
            Self::INT32 | Self::UINT32 => out.extend((i as u32).to_le_bytes()),
            Self::INT64 | Self::UINT64 => out.extend((i as u64).to_le_bytes()),
            Self::COMPLEX32 => out.extend([f16::from_f64(f).to_le_bytes(), f16::from_f64(im).to_le_bytes()].concat()),
            Self::COMPLEX64 => out.extend([(f as f32).to_le_bytes(), (im as f32).to_le_bytes()].concat()),
            Self::COMPLEX128 => out.extend([f.to_le_bytes(), im.to_le_bytes()].concat()),
            _ => return false,
        }
        true
    }
}

impl Value {
    /// The real part.
    pub fn re(self) -> f64 {
        match self {
            Self::Int(i) => i as f64,
            Self::Float(f) | Self::Complex(f, _) => f,
        }
    }

    /// The imaginary part.
    pub fn im(self) -> f64 {
        match self {
            Self::Complex(_, im) => im,
            _ => 0.0,
        }
    }

    /// As an integer; floats are cut toward zero, not-a-number is zero.
    pub fn int(self) -> i128 {
        match self {
            Self::Int(i) => i,
            Self::Float(f) | Self::Complex(f, _) => f as i128,
        }
    }

    /// Whether it is not zero.
    pub fn truth(self) -> bool {
        match self {
            Self::Int(i) => i != 0,
            Self::Float(f) => f != 0.0,
            Self::Complex(re, im) => re != 0.0 || im != 0.0,
        }
    }
}

fn e4m3_to_f64(bits: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
    let magnitude = match (exponent, bits & 7) {
        (15, 7) => f64::NAN,
        (0, _) => mantissa / 512.0,
        _ => (1.0 + mantissa / 8.0) * f64::from(exponent - 7).exp2(),
    };
    if bits & 0x80 == 0 { magnitude } else { -magnitude }
}

/// The 8-bit float nearest to `f`, ties to even. The codes 0..=`largest` are in ascending order of magnitude, so the
/// neighbours are found by bisection. Beyond the largest (by half a step) lies `above`; not-a-number is `nan`.
fn nearest(f: f64, decode: impl Fn(u8) -> f64, largest: u8, above: u8, nan: u8) -> u8 {
    let sign = if f.is_sign_negative() { 0x80 } else { 0 };
    if f.is_nan() {
        return sign | nan;
    }
    let magnitude = f.abs();
    let (mut low, mut high) = (0u8, largest);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if decode(middle) <= magnitude { low = middle } else { high = middle - 1 }
    }
    let below = decode(low);
    let next = if low == largest { 2.0 * below - decode(low - 1) } else { decode(low + 1) };
    let up = magnitude - below > next - magnitude || (magnitude - below == next - magnitude && low & 1 == 1);
    let code = match (up, low == largest) {
        (true, true) => above,
        (true, false) => low + 1,
        _ => low,
    };
    sign | code
}
