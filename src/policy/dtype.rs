//! Short names of torch's dtypes, as messages and profiles use them.

/// The name of a `c10::ScalarType` code; the codes are stable, new ones are appended.
pub fn dtype_name(code: i8) -> &'static str {
    match code {
        0 => "u8",
        1 => "i8",
        2 => "i16",
        3 => "i32",
        4 => "i64",
        5 => "f16",
        6 => "f32",
        7 => "f64",
        8 => "complex32",
        9 => "complex64",
        10 => "complex128",
        11 => "bool",
        15 => "bf16",
        23 => "f8_e5m2",
        24 => "f8_e4m3fn",
        25 => "f8_e5m2fnuz",
        26 => "f8_e4m3fnuz",
        27 => "u16",
        28 => "u32",
        29 => "u64",
        44 => "f8_e8m0fnu",
        45 => "f4_e2m1fn_x2",
        _ => "other",
    }
}
