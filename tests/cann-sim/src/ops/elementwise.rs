//! Operators on one element at a time: of one tensor, of two (broadcast), of a tensor and a scalar.

use super::glue::{Prepared, broadcast, refused, work};
use crate::dtype::Value::{self, Complex, Float, Int};
use crate::operators;
use crate::tensor::Tensor;

/// `out = f(a)`.
pub fn unary(a: &Tensor, out: Tensor, f: impl Fn(Value) -> Value + Send + Sync + 'static) -> Prepared {
    let a = broadcast(a, &out)?;
    work(&[&a.clone(), &out.clone()], move || out.write_values(a.read_values()?.into_iter().map(&f)))
}

fn real(a: &Tensor, out: Tensor, f: fn(f64) -> f64) -> Prepared {
    if a.dtype.is_complex() {
        return refused(format!("{} is not simulated for this operator", a.dtype.name()));
    }
    unary(a, out, move |v| Float(f(v.re())))
}

/// `out = f(a, b)`.
pub fn binary(
    a: &Tensor,
    b: &Tensor,
    out: Tensor,
    f: impl Fn(Value, Value) -> Value + Send + Sync + 'static,
) -> Prepared {
    let (a, b) = (broadcast(a, &out)?, broadcast(b, &out)?);
    work(&[&a.clone(), &b.clone(), &out.clone()], move || {
        let b = b.read_values()?;
        out.write_values(a.read_values()?.into_iter().zip(b).map(|(x, y)| f(x, y)))
    })
}

fn add(x: Value, y: Value) -> Value {
    match (x, y) {
        (Int(x), Int(y)) => Int(x.wrapping_add(y)),
        (Complex(..), _) | (_, Complex(..)) => Complex(x.re() + y.re(), x.im() + y.im()),
        _ => Float(x.re() + y.re()),
    }
}

fn mul(x: Value, y: Value) -> Value {
    match (x, y) {
        (Int(x), Int(y)) => Int(x.wrapping_mul(y)),
        (Complex(..), _) | (_, Complex(..)) => {
            Complex(x.re() * y.re() - x.im() * y.im(), x.re() * y.im() + x.im() * y.re())
        }
        _ => Float(x.re() * y.re()),
    }
}

fn neg(x: Value) -> Value {
    match x {
        Int(x) => Int(-x),
        Float(x) => Float(-x),
        Complex(re, im) => Complex(-re, -im),
    }
}

fn div(x: Value, y: Value) -> Value {
    match (x, y) {
        (Complex(..), _) | (_, Complex(..)) => {
            let square = y.re() * y.re() + y.im() * y.im();
            mul(x, Complex(y.re() / square, -y.im() / square))
        }
        _ => Float(x.re() / y.re()),
    }
}

/// Division cut (1) or rounded down (2) to an integer; 0 is true division.
fn div_mode(mode: i32) -> impl Fn(Value, Value) -> Value + Send + Sync + 'static {
    move |x, y| match (x, y, mode) {
        (Int(_), Int(0), 1 | 2) => Int(0),
        (Int(x), Int(y), 1) => Int(x / y),
        (Int(x), Int(y), 2) => Int(x.div_euclid(y) - i128::from(y < 0 && x.rem_euclid(y) != 0)),
        (_, _, 1) => Float((x.re() / y.re()).trunc()),
        (_, _, 2) => Float((x.re() / y.re()).floor()),
        _ => div(x, y),
    }
}

fn abs(x: Value) -> Value {
    match x {
        Int(x) => Int(x.abs()),
        Float(x) => Float(x.abs()),
        Complex(re, im) => Float(re.hypot(im)),
    }
}

/// Compares as integers where both are, so that 64-bit values keep all their digits.
pub fn order(x: Value, y: Value) -> Option<std::cmp::Ordering> {
    match (x, y) {
        (Int(x), Int(y)) => Some(x.cmp(&y)),
        _ => x.re().partial_cmp(&y.re()),
    }
}

/// Whether two elements are equal.
pub fn equal(x: Value, y: Value) -> bool {
    order(x, y) == Some(std::cmp::Ordering::Equal) && x.im() == y.im()
}

fn pick(x: Value, y: Value, wanted: std::cmp::Ordering) -> Value {
    match order(x, y) {
        None if x.re().is_nan() => x,
        None => y,
        Some(o) if o == wanted => x,
        Some(_) => y,
    }
}

fn truth(
    f: impl Fn(Value, Value) -> bool + Send + Sync + 'static,
) -> impl Fn(Value, Value) -> Value + Send + Sync + 'static {
    move |x, y| Int(f(x, y).into())
}

/// A scalar takes the tensor's kind of number: 2.0 times an integer tensor stays an integer where the output is one.
macro_rules! two_operands {
    ($($tensor:ident $tensor_first:ident $scalar:ident $scalar_first:ident = $f:expr;)*) => {
        operators! {$(
            $tensor, $tensor_first(a: T, b: T, out: T) { binary(&a, &b, out, $f) }
            $scalar, $scalar_first(a: T, b: S, out: T) { let f = $f; unary(&a, out, move |x| f(x, b.value)) }
        )*}
    };
}

macro_rules! two_operands_in_place {
    ($($tensor:ident $tensor_first:ident $scalar:ident $scalar_first:ident = $f:expr;)*) => {
        operators! {$(
            $tensor, $tensor_first(a: T, b: T) { binary(&a, &b, a.clone(), $f) }
            $scalar, $scalar_first(a: T, b: S) { let f = $f; unary(&a, a.clone(), move |x| f(x, b.value)) }
        )*}
    };
}

two_operands! {
    aclnnMul aclnnMulGetWorkspaceSize aclnnMuls aclnnMulsGetWorkspaceSize = mul;
    aclnnDiv aclnnDivGetWorkspaceSize aclnnDivs aclnnDivsGetWorkspaceSize = div;
    aclnnEqTensor aclnnEqTensorGetWorkspaceSize aclnnEqScalar aclnnEqScalarGetWorkspaceSize = truth(equal);
    aclnnNeTensor aclnnNeTensorGetWorkspaceSize aclnnNeScalar aclnnNeScalarGetWorkspaceSize = truth(|x, y| !equal(x, y));
    aclnnGtTensor aclnnGtTensorGetWorkspaceSize aclnnGtScalar aclnnGtScalarGetWorkspaceSize = truth(|x, y| order(x, y).is_some_and(|o| o.is_gt()));
    aclnnGeTensor aclnnGeTensorGetWorkspaceSize aclnnGeScalar aclnnGeScalarGetWorkspaceSize = truth(|x, y| order(x, y).is_some_and(|o| o.is_ge()));
    aclnnLtTensor aclnnLtTensorGetWorkspaceSize aclnnLtScalar aclnnLtScalarGetWorkspaceSize = truth(|x, y| order(x, y).is_some_and(|o| o.is_lt()));
    aclnnLeTensor aclnnLeTensorGetWorkspaceSize aclnnLeScalar aclnnLeScalarGetWorkspaceSize = truth(|x, y| order(x, y).is_some_and(|o| o.is_le()));
    aclnnPowTensorTensor aclnnPowTensorTensorGetWorkspaceSize aclnnPowTensorScalar aclnnPowTensorScalarGetWorkspaceSize = power;
    aclnnBitwiseAndTensor aclnnBitwiseAndTensorGetWorkspaceSize aclnnBitwiseAndScalar aclnnBitwiseAndScalarGetWorkspaceSize = |x: Value, y: Value| Int(x.int() & y.int());
    aclnnBitwiseOrTensor aclnnBitwiseOrTensorGetWorkspaceSize aclnnBitwiseOrScalar aclnnBitwiseOrScalarGetWorkspaceSize = |x: Value, y: Value| Int(x.int() | y.int());
    aclnnFloorDivide aclnnFloorDivideGetWorkspaceSize aclnnFloorDivides aclnnFloorDividesGetWorkspaceSize = div_mode(2);
    aclnnRemainderTensorTensor aclnnRemainderTensorTensorGetWorkspaceSize aclnnRemainderTensorScalar aclnnRemainderTensorScalarGetWorkspaceSize = remainder;
}

two_operands_in_place! {
    aclnnInplaceMul aclnnInplaceMulGetWorkspaceSize aclnnInplaceMuls aclnnInplaceMulsGetWorkspaceSize = mul;
    aclnnInplaceDiv aclnnInplaceDivGetWorkspaceSize aclnnInplaceDivs aclnnInplaceDivsGetWorkspaceSize = div;
}

fn power(x: Value, y: Value) -> Value {
    match (x, y) {
        (Int(x), Int(y)) if (0..=127).contains(&y) => Int(x.checked_pow(y as u32).unwrap_or(0)),
        _ => Float(x.re().powf(y.re())),
    }
}

fn remainder(x: Value, y: Value) -> Value {
    match (x, y) {
        (Int(_), Int(0)) => Int(0),
        (Int(x), Int(y)) => Int(((x % y) + y) % y),
        _ => Float(x.re() - y.re() * (x.re() / y.re()).floor()),
    }
}

operators! {
    aclnnAdd, aclnnAddGetWorkspaceSize(a: T, b: T, alpha: S, out: T) {
        binary(&a, &b, out, move |x, y| add(x, mul(y, alpha.value)))
    }
    aclnnAdds, aclnnAddsGetWorkspaceSize(a: T, b: S, alpha: S, out: T) {
        let b = mul(b.value, alpha.value);
        unary(&a, out, move |x| add(x, b))
    }
    aclnnInplaceAdd, aclnnInplaceAddGetWorkspaceSize(a: T, b: T, alpha: S) {
        binary(&a, &b, a.clone(), move |x, y| add(x, mul(y, alpha.value)))
    }
    aclnnInplaceAdds, aclnnInplaceAddsGetWorkspaceSize(a: T, b: S, alpha: S) {
        let b = mul(b.value, alpha.value);
        unary(&a, a.clone(), move |x| add(x, b))
    }
    aclnnSub, aclnnSubGetWorkspaceSize(a: T, b: T, alpha: S, out: T) {
        binary(&a, &b, out, move |x, y| add(x, neg(mul(y, alpha.value))))
    }
    aclnnSubs, aclnnSubsGetWorkspaceSize(a: T, b: S, alpha: S, out: T) {
        let b = neg(mul(b.value, alpha.value));
        unary(&a, out, move |x| add(x, b))
    }
    aclnnInplaceSub, aclnnInplaceSubGetWorkspaceSize(a: T, b: T, alpha: S) {
        binary(&a, &b, a.clone(), move |x, y| add(x, neg(mul(y, alpha.value))))
    }
    aclnnInplaceSubs, aclnnInplaceSubsGetWorkspaceSize(a: T, b: S, alpha: S) {
        let b = neg(mul(b.value, alpha.value));
        unary(&a, a.clone(), move |x| add(x, b))
    }
    aclnnRsubs, aclnnRsubsGetWorkspaceSize(a: T, b: S, alpha: S, out: T) {
        unary(&a, out, move |x| add(b.value, neg(mul(x, alpha.value))))
    }
    aclnnDivMod, aclnnDivModGetWorkspaceSize(a: T, b: T, mode: i32, out: T) { binary(&a, &b, out, div_mode(mode)) }
    aclnnDivMods, aclnnDivModsGetWorkspaceSize(a: T, b: S, mode: i32, out: T) {
        let f = div_mode(mode);
        unary(&a, out, move |x| f(x, b.value))
    }
    aclnnMaximum, aclnnMaximumGetWorkspaceSize(a: T, b: T, out: T) {
        binary(&a, &b, out, |x, y| pick(x, y, std::cmp::Ordering::Greater))
    }
    aclnnMinimum, aclnnMinimumGetWorkspaceSize(a: T, b: T, out: T) {
        binary(&a, &b, out, |x, y| pick(x, y, std::cmp::Ordering::Less))
    }
    aclnnLogicalAnd, aclnnLogicalAndGetWorkspaceSize(a: T, b: T, out: T) {
        binary(&a, &b, out, truth(|x, y| x.truth() && y.truth()))
    }
    aclnnLogicalOr, aclnnLogicalOrGetWorkspaceSize(a: T, b: T, out: T) {
        binary(&a, &b, out, truth(|x, y| x.truth() || y.truth()))
    }
    aclnnLogicalNot, aclnnLogicalNotGetWorkspaceSize(a: T, out: T) { unary(&a, out, |x| Int((!x.truth()).into())) }
    aclnnBitwiseNot, aclnnBitwiseNotGetWorkspaceSize(a: T, out: T) {
        let boolean = a.dtype == crate::dtype::DType::BOOL;
        unary(&a, out, move |x| Int(if boolean { (!x.truth()).into() } else { !x.int() }))
    }
    aclnnIsClose, aclnnIsCloseGetWorkspaceSize(a: T, b: T, rtol: f64, atol: f64, equal_nan: bool, out: T) {
        binary(&a, &b, out, truth(move |x, y| {
            let (x, y) = (x.re(), y.re());
            x == y || (equal_nan && x.is_nan() && y.is_nan()) || (y.is_finite() && (x - y).abs() <= atol + rtol * y.abs())
        }))
    }
    aclnnIsFinite, aclnnIsFiniteGetWorkspaceSize(a: T, out: T) {
        unary(&a, out, |x| Int((x.re().is_finite() && x.im().is_finite()).into()))
    }
    aclnnAbs, aclnnAbsGetWorkspaceSize(a: T, out: T) { unary(&a, out, abs) }
    aclnnNeg, aclnnNegGetWorkspaceSize(a: T, out: T) { unary(&a, out, neg) }
    aclnnSqrt, aclnnSqrtGetWorkspaceSize(a: T, out: T) { real(&a, out, f64::sqrt) }
    aclnnRsqrt, aclnnRsqrtGetWorkspaceSize(a: T, out: T) { real(&a, out, |x| 1.0 / x.sqrt()) }
    aclnnReciprocal, aclnnReciprocalGetWorkspaceSize(a: T, out: T) { real(&a, out, f64::recip) }
    aclnnExp, aclnnExpGetWorkspaceSize(a: T, out: T) { real(&a, out, f64::exp) }
    aclnnLog, aclnnLogGetWorkspaceSize(a: T, out: T) { real(&a, out, f64::ln) }
    aclnnSin, aclnnSinGetWorkspaceSize(a: T, out: T) { real(&a, out, f64::sin) }
    aclnnCos, aclnnCosGetWorkspaceSize(a: T, out: T) { real(&a, out, f64::cos) }
    aclnnTanh, aclnnTanhGetWorkspaceSize(a: T, out: T) { real(&a, out, f64::tanh) }
    aclnnFloor, aclnnFloorGetWorkspaceSize(a: T, out: T) { real(&a, out, f64::floor) }
    aclnnCeil, aclnnCeilGetWorkspaceSize(a: T, out: T) { real(&a, out, f64::ceil) }
    aclnnRelu, aclnnReluGetWorkspaceSize(a: T, out: T) { real(&a, out, |x| x.max(0.0)) }
    aclnnSigmoid, aclnnSigmoidGetWorkspaceSize(a: T, out: T) { real(&a, out, |x| 1.0 / (1.0 + (-x).exp())) }
    aclnnSilu, aclnnSiluGetWorkspaceSize(a: T, out: T) { real(&a, out, |x| x / (1.0 + (-x).exp())) }
    aclnnSWhere, aclnnSWhereGetWorkspaceSize(condition: T, a: T, b: T, out: T) {
        let (condition, a, b) = (broadcast(&condition, &out)?, broadcast(&a, &out)?, broadcast(&b, &out)?);
        work(&[&condition.clone(), &a.clone(), &b.clone(), &out.clone()], move || {
            let (a, b) = (a.read_values()?, b.read_values()?);
            let pick = |(i, c): (usize, Value)| if c.truth() { a[i] } else { b[i] };
            out.write_values(condition.read_values()?.into_iter().enumerate().map(pick))
        })
    }
    aclnnInplaceMaskedFillScalar, aclnnInplaceMaskedFillScalarGetWorkspaceSize(a: T, mask: T, value: S) {
        binary(&a, &mask, a.clone(), move |x, m| if m.truth() { value.value } else { x })
    }
}
