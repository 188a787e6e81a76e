//! Encoding and decoding of element types.

use cann_sim::dtype::{DType, Value};

const CONVERTIBLE: [DType; 18] = [
    DType::FLOAT,
    DType::FLOAT16,
    DType::INT8,
    DType::INT32,
    DType::UINT8,
    DType::INT16,
    DType::UINT16,
    DType::UINT32,
    DType::INT64,
    DType::UINT64,
    DType::DOUBLE,
    DType::BOOL,
    DType::COMPLEX64,
    DType::COMPLEX128,
    DType::BF16,
    DType::COMPLEX32,
    DType::F8_E5M2,
    DType::F8_E4M3FN,
];

fn encode(dtype: DType, value: Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    assert!(dtype.encode(value, &mut bytes));
    bytes
}

#[test]
fn every_type_takes_as_many_bytes_as_it_says() {
    for dtype in CONVERTIBLE {
        assert_eq!(encode(dtype, Value::Int(1)).len(), dtype.size(), "{}", dtype.name());
    }
}

#[test]
fn small_numbers_survive_every_type() {
    for dtype in CONVERTIBLE {
        let back = dtype.decode(&encode(dtype, Value::Int(1))).unwrap();
        assert_eq!((back.re(), back.im()), (1.0, 0.0), "{}", dtype.name());
    }
}

#[test]
fn all_bit_patterns_of_the_8_bit_floats_survive() {
    for dtype in [DType::F8_E5M2, DType::F8_E4M3FN] {
        for bits in 0..=255u8 {
            let value = dtype.decode(&[bits]).unwrap();
            let back = encode(dtype, value)[0];
            let same = back == bits || dtype.decode(&[back]).unwrap().re().is_nan() && value.re().is_nan();
            assert!(same, "{} {bits:#04x} came back as {back:#04x}", dtype.name());
        }
    }
}

#[test]
fn f8_e4m3_rounds_ties_to_even_and_has_no_infinity() {
    let code = |f: f64| encode(DType::F8_E4M3FN, Value::Float(f))[0];
    assert_eq!(code(1.0), 0x38);
    // Between 1.0 (even) and 1.125.
    assert_eq!(code(1.0625), 0x38);
    // Between 1.125 (odd) and 1.25.
    assert_eq!(code(1.1875), 0x3a);
    assert_eq!(code(448.0), 0x7e);
    assert_eq!(code(f64::INFINITY), 0x7f);
    assert_eq!(code(-1.0), 0xb8);
}

#[test]
fn integers_wrap_and_keep_all_their_digits() {
    assert_eq!(encode(DType::INT8, Value::Int(300)), [44]);
    let large = i128::from(u64::MAX) - 1;
    assert_eq!(DType::UINT64.decode(&encode(DType::UINT64, Value::Int(large))), Some(Value::Int(large)));
}

#[test]
fn truth_is_not_the_integer_part() {
    assert_eq!(encode(DType::BOOL, Value::Float(0.5)), [1]);
    assert_eq!(encode(DType::BOOL, Value::Complex(0.0, 2.0)), [1]);
    assert_eq!(encode(DType::BOOL, Value::Float(0.0)), [0]);
}

#[test]
fn hif8_has_no_values() {
    assert_eq!(DType::HIFLOAT8.decode(&[1]), None);
    assert!(!DType::HIFLOAT8.encode(Value::Int(1), &mut Vec::new()));
    assert_eq!(DType::HIFLOAT8.size(), 1);
}
