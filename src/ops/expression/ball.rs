//! Values with error bounds: interval arithmetic for the results of an elementwise expression on a device.
//!
//! A device computes in `f32` or `f64`, in the order of the expression, and may fuse a multiplication with an addition.
//! Additions, multiplications, divisions and square roots are rounded correctly; other functions are off by a few units
//! in the last place. A result is exact if its inputs are exact and it is representable; comparisons with exact values
//! can be decided.

use crate::base::DType;

use super::{Binary, Unary};

/// An exact value, and a bound on the difference of a device's value from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ball {
    pub value: f64,
    /// Absolute error bound; infinite if rounding determines the value, so that a device may compute any.
    pub radius: f64,
}

/// Precision of a device's arithmetic.
#[derive(Clone, Copy, Debug)]
pub struct Precision {
    dtype: DType,
    largest: f64,
}

/// Error of the vendors' math functions, in unit roundoffs: four units in the last place. The error tables of CUDA and
/// ROCm promise one or two for most functions.
pub const FUNCTION: f64 = 8.0;

/// Error of powers, in unit roundoffs: sixteen units in the last place, which is OpenCL's limit.
const POWER: f64 = 32.0;

/// Maximum slope of the error function: 2/√π.
const ERF_SLOPE: f64 = std::f64::consts::FRAC_2_SQRT_PI;

impl Precision {
    /// The precision of arithmetic in `f64`, or in `f32` for every other type.
    pub fn of(compute: DType) -> Precision {
        match compute {
            DType::F64 => Precision { dtype: DType::F64, largest: f64::MAX },
            _ => Precision { dtype: DType::F32, largest: f64::from(f32::MAX) },
        }
    }

    /// Unit roundoff: maximum relative error of one rounding.
    pub fn unit(self) -> f64 {
        self.dtype.epsilon()
    }

    /// Smallest normal number. A device may flush smaller results to zero.
    pub fn smallest(self) -> f64 {
        self.dtype.smallest()
    }

    /// True if the type can represent the magnitude of a value.
    pub fn holds(self, value: f64) -> bool {
        value.abs() <= self.largest
    }

    /// A constant of the expression, rounded to the device's type.
    pub fn constant(self, value: f64) -> Ball {
        Ball { value, radius: distance(self.dtype.round(value), value) }
    }

    /// Result of a function of one operand on a device of this precision.
    pub fn unary(self, function: Unary, x: Ball) -> Ball {
        if function == Unary::Gelu {
            return self.gelu(x);
        }
        let value = function.apply(x.value);
        let roots = matches!(function, Unary::Log | Unary::Log2 | Unary::Rsqrt | Unary::Sqrt);
        if !(value.is_finite() && x.is_finite()) {
            let sure = x.radius == 0.0 || (roots && x.value < -x.radius);
            return if sure { Ball::exact(value) } else { Ball::unknown(value) };
        }
        match function {
            Unary::Abs | Unary::Negate => Ball { value, radius: x.radius },
            Unary::Ceil | Unary::Floor | Unary::Round => {
                let crosses = [x.value - x.radius, x.value + x.radius].iter().any(|at| function.apply(*at) != value);
                if crosses { Ball::unknown(value) } else { Ball::exact(value) }
            }
            Unary::Not if x.may_be_zero() => Ball::unknown(value),
            Unary::Not => Ball::exact(value),
            Unary::Relu => Ball { value, radius: if x.value + x.radius < 0.0 { 0.0 } else { x.radius } },
            Unary::Cos | Unary::Sin => self.function(value, x.radius.min(2.0), FUNCTION),
            Unary::Erf => self.function(value, (ERF_SLOPE * x.radius).min(2.0), FUNCTION),
            Unary::Tanh => self.function(value, x.radius.min(2.0), FUNCTION),
            Unary::Exp => self.function(value, value * grown(x.radius), FUNCTION),
            Unary::Log | Unary::Log2 | Unary::Rsqrt if x.radius >= x.value && x.radius > 0.0 => Ball::unknown(value),
            Unary::Log => self.function(value, shrunk(x.radius / x.value), FUNCTION),
            Unary::Log2 => self.function(value, shrunk(x.radius / x.value) * std::f64::consts::LOG2_E, FUNCTION),
            Unary::Rsqrt => self.function(value, value * shrunk(x.radius / x.value), FUNCTION),
            Unary::Sqrt if x.radius > x.value => Ball::unknown(value),
            Unary::Sqrt => {
                let least = (x.value - x.radius).sqrt();
                let moved = if x.radius == 0.0 { None } else { Some(x.radius / (value + least)) };
                self.rounded(value, moved, || (-value).mul_add(value, x.value) == 0.0)
            }
            Unary::Gelu => unreachable!("composed above"),
            Unary::Sigmoid | Unary::Silu => {
                let over = if function == Unary::Silu { x } else { Ball::exact(1.0) };
                // The denominator is at least one. If it overflows, the quotient is zero.
                let moved = grown(x.radius) + 2.0 * FUNCTION * self.unit();
                let radius = value.abs() * moved + over.radius + (1.0 + over.value.abs()) * 4.0 * self.smallest();
                Ball { value, radius }
            }
        }
    }

    /// Result of `gelu`, by the formula of the kernels.
    fn gelu(self, x: Ball) -> Ball {
        let scaled = self.binary(Binary::Multiply, x, self.constant(std::f64::consts::FRAC_1_SQRT_2));
        let sum = self.binary(Binary::Add, Ball::exact(1.0), self.unary(Unary::Erf, scaled));
        let half = self.binary(Binary::Multiply, Ball::exact(0.5), x);
        self.binary(Binary::Multiply, half, sum)
    }

    /// Result of a function of two operands on a device of this precision.
    pub fn binary(self, function: Binary, x: Ball, y: Ball) -> Ball {
        if function == Binary::Remainder {
            let quotient = self.unary(Unary::Floor, self.binary(Binary::Divide, x, y));
            let whole = self.binary(Binary::Multiply, y, quotient);
            return Ball { value: function.apply(x.value, y.value), ..self.binary(Binary::Subtract, x, whole) };
        }
        let value = function.apply(x.value, y.value);
        let exact = x.radius == 0.0 && y.radius == 0.0;
        let known = |known: bool| if known { Ball::exact(value) } else { Ball::unknown(value) };
        match function {
            Binary::Equal
            | Binary::NotEqual
            | Binary::Less
            | Binary::LessEqual
            | Binary::Greater
            | Binary::GreaterEqual => {
                // The difference to NaN, or between infinities, is NaN, and no rounding changes that.
                return known(exact || (x.value - y.value).abs() > x.radius + y.radius);
            }
            Binary::And | Binary::Or => return known(!x.may_be_zero() && !y.may_be_zero()),
            Binary::Max | Binary::Min => {
                // The selected operand, unless the other one is close enough to be selected too.
                let (chosen, other) = if value == x.value { (x, y) } else { (y, x) };
                let apart = (chosen.value - other.value).abs() > chosen.radius + other.radius;
                let radius = if apart { chosen.radius } else { chosen.radius.max(other.radius) };
                return Ball { value, radius };
            }
            _ if value.is_finite() && x.is_finite() && y.is_finite() => {}
            Binary::Pow => return known(exact),
            // NaN stays NaN, and an infinite value stays infinite if the sign of the other operand is known.
            _ => {
                let none = [x, y].iter().any(|ball| ball.value.is_nan() && ball.radius == 0.0);
                let infinite = x.value.is_infinite() || y.value.is_infinite();
                return known(exact || none || (infinite && !x.may_be_zero() && !y.may_be_zero()));
            }
        }
        let moved = |by: f64| (!exact).then_some(by);
        match function {
            Binary::Add | Binary::Subtract => {
                let term = if function == Binary::Add { y.value } else { -y.value };
                let kept = value - x.value;
                self.rounded(value, moved(x.radius + y.radius), || x.value - (value - kept) == kept - term)
            }
            Binary::Multiply => {
                let by = x.value.abs() * y.radius + y.value.abs() * x.radius + x.radius * y.radius;
                self.rounded(value, moved(by), || x.value.mul_add(y.value, -value) == 0.0)
            }
            Binary::Divide if y.radius >= y.value.abs() => Ball::unknown(value),
            Binary::Divide => {
                let by = (x.radius + value.abs() * y.radius) / (y.value.abs() - y.radius);
                self.rounded(value, moved(by), || (-value).mul_add(y.value, x.value) == 0.0)
            }
            // C and its successors define powers of one to be one.
            Binary::Pow if x == Ball::exact(1.0) => Ball::exact(value),
            Binary::Pow => {
                let base = x.value.abs();
                let whole = y.radius == 0.0 && y.value.fract() == 0.0;
                if !exact && (x.radius >= base || (x.value < 0.0 && !whole)) {
                    return Ball::unknown(value);
                }
                let log = if base > 0.0 { base.ln().abs() } else { 0.0 };
                let stretch = if exact { 0.0 } else { shrunk(x.radius / base) };
                let exponent = (y.value.abs() + y.radius) * stretch + log * y.radius;
                self.function(value, value.abs() * grown(exponent), POWER)
            }
            _ => unreachable!("comparisons and choices have returned"),
        }
    }

    /// The second operand if the first is not zero, otherwise the third.
    pub fn select(condition: Ball, yes: Ball, no: Ball) -> Ball {
        let chosen = if condition.value != 0.0 { yes } else { no };
        if condition.may_be_zero() { Ball::unknown(chosen.value) } else { chosen }
    }

    /// A correctly rounded result of operands with error `moved`; `None` if the operands are exact. `whole` returns
    /// whether the reference's `f64` value is exact. A device that fuses the operation with an addition does not round
    /// it.
    fn rounded(self, value: f64, moved: Option<f64>, whole: impl FnOnce() -> bool) -> Ball {
        let by = moved.unwrap_or(0.0);
        let lost = match (self.dtype, moved) {
            (DType::F64, None) if !whole() => self.unit() * value.abs(),
            (_, None) => distance(self.dtype.round(value), value),
            // In `f64`, the reference is rounded too, and differently from the device.
            (DType::F64, Some(_)) => 2.0 * self.unit() * (value.abs() + by) + self.tiny(),
            (_, Some(_)) => self.unit() * (value.abs() + by) + self.tiny(),
        };
        self.in_range(Ball { value, radius: by + lost })
    }

    /// The result of a math function.
    fn function(self, value: f64, moved: f64, roundings: f64) -> Ball {
        self.in_range(Ball { value, radius: moved + roundings * self.unit() * (value.abs() + moved) + self.smallest() })
    }

    /// Returns the ball, or one without a bound if its value overflows: fused with the next operation, the value may be finite.
    fn in_range(self, ball: Ball) -> Ball {
        match self.holds(ball.value.abs() + ball.radius) {
            true => ball,
            false => Ball::unknown(ball.value),
        }
    }

    /// Twice the spacing of the smallest numbers: the rounding of the device and of the reference near zero.
    fn tiny(self) -> f64 {
        4.0 * self.smallest() * self.unit()
    }
}

impl Ball {
    /// Returns a value without an error.
    pub fn exact(value: f64) -> Ball {
        Ball { value, radius: 0.0 }
    }

    fn unknown(value: f64) -> Ball {
        Ball { value, radius: f64::INFINITY }
    }

    fn is_finite(self) -> bool {
        self.value.is_finite() && self.radius.is_finite()
    }

    /// True if rounding determines whether the value is zero. A value that rounding may turn into NaN may be zero too.
    fn may_be_zero(self) -> bool {
        self.radius > 0.0 && (self.value.is_nan() || self.value.abs() <= self.radius)
    }
}

/// Bound on the relative growth of an exponential whose argument grows by `by`.
fn grown(by: f64) -> f64 {
    if by < 1.0 { by * (1.0 + by) } else { by.exp_m1() }
}

/// Bound on the change of a logarithm whose argument shrinks by this relative amount, less than 1. It bounds the
/// relative change of a reciprocal square root too.
fn shrunk(share: f64) -> f64 {
    share / (1.0 - share)
}

/// Distance of two values; 0 if both are the same infinity or NaN.
fn distance(a: f64, b: f64) -> f64 {
    if a == b || (a.is_nan() && b.is_nan()) { 0.0 } else { (a - b).abs() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::hash;

    /// Random numbers of all magnitudes and both signs, including small integers.
    fn number(seed: u64, index: u64) -> f64 {
        let bits = hash(seed, index);
        match bits % 4 {
            0 => f64::from((bits >> 8) as i8),
            1 => f64::from(f32::from_bits((bits >> 32) as u32)),
            _ => f64::from(((bits >> 8) as i16 as f32) / 3000.0),
        }
    }

    /// A ball around an `f32` number, and another number inside it.
    fn ball(seed: u64, index: u64) -> (Ball, f64) {
        let value = number(seed, index);
        let radius = if hash(seed + 1, index).is_multiple_of(3) { 0.0 } else { value.abs() * 1e-5 };
        let share = (hash(seed + 2, index) % 201) as f64 / 100.0 - 1.0;
        let inside = f64::from((value + share * radius) as f32);
        (Ball { value, radius }, if (inside - value).abs() <= radius { inside } else { value })
    }

    #[track_caller]
    fn holds(ball: Ball, value: f64, what: &str) {
        let same = ball.value == value || (ball.value.is_nan() && value.is_nan());
        assert!(
            same || ball.radius == f64::INFINITY || (ball.value - value).abs() <= ball.radius,
            "{what}: {value} is not in {ball:?}"
        );
    }

    /// The result of a function for any value in a ball, rounded to `f32`, lies in the ball of the result.
    #[test]
    fn results_lie_in_their_balls() {
        let single = Precision::of(DType::F32);
        for index in 0..20_000 {
            let ((x, inside_x), (y, inside_y)) = (ball(1, index), ball(2, index));
            for &function in Unary::ALL {
                let value = f64::from(function.apply(inside_x) as f32);
                holds(single.unary(function, x), value, &format!("{function:?} of {x:?}, {inside_x}"));
            }
            for &function in Binary::ALL {
                let value = f64::from(function.apply(inside_x, inside_y) as f32);
                holds(single.binary(function, x, y), value, &format!("{function:?} of {x:?} and {y:?}"));
            }
        }
    }

    /// A difference smaller than its rounding errors gets a radius of that size.
    #[test]
    fn cancellation_is_known() {
        let single = Precision::of(DType::F32);
        let grown = single.unary(Unary::Exp, Ball::exact(4e-4));
        let left = single.binary(Binary::Subtract, grown, Ball::exact(1.0));
        assert!(left.radius / left.value > 1e-4, "{left:?}");
        assert!(grown.radius / grown.value < 1e-6, "{grown:?}");
    }

    #[test]
    fn results_without_rounding_have_radius_zero() {
        let single = Precision::of(DType::F32);
        let exact = |ball: Ball| ball.radius == 0.0;
        let [half, three] = [0.5, 3.0].map(Ball::exact);
        let product = single.binary(Binary::Multiply, half, three);
        assert!(exact(product) && exact(single.unary(Unary::Floor, product)));
        assert!(exact(single.binary(Binary::Remainder, three, half)));
        assert!(exact(single.binary(Binary::Equal, product, Ball::exact(1.5))));
        // A third has no finite binary fraction, so that three thirds can be 1 or less.
        let third = single.binary(Binary::Divide, Ball::exact(1.0), three);
        let whole = single.binary(Binary::Multiply, third, three);
        assert!(!exact(third) && single.unary(Unary::Floor, whole).radius.is_infinite());
        assert!(single.binary(Binary::Less, whole, Ball::exact(1.0)).radius.is_infinite());
        assert_eq!(Precision::select(whole, half, three), half);
    }

    #[test]
    fn certain_nan_and_infinity_have_radius_zero() {
        let single = Precision::of(DType::F32);
        let near = |value: f64| Ball { value, radius: 1e-6 };
        assert_eq!(single.unary(Unary::Sqrt, near(-1.0)).radius, 0.0);
        assert_eq!(single.unary(Unary::Sqrt, near(1e-7)).radius, f64::INFINITY);
        assert_eq!(single.binary(Binary::Add, Ball::exact(f64::INFINITY), near(1.0)).radius, 0.0);
        assert_eq!(single.binary(Binary::Divide, Ball::exact(1.0), near(0.0)).radius, f64::INFINITY);
        // Infinity times a remainder that may be zero is NaN or infinite, and so is its product with infinity.
        let infinite = Ball::exact(f64::INFINITY);
        let undecided = single.binary(Binary::Multiply, near(0.0), infinite);
        assert_eq!(undecided.radius, f64::INFINITY);
        assert_eq!(single.binary(Binary::Multiply, undecided, infinite).radius, f64::INFINITY);
        // A product may overflow the type, unless it is fused with the next operation and not rounded.
        assert_eq!(single.binary(Binary::Multiply, Ball::exact(1e30), Ball::exact(1e30)).radius, f64::INFINITY);
    }
}
