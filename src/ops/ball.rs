//! Values with a bound on how far rounding may have moved them: what an elementwise expression may give on a device.
//!
//! A device computes in `f32` or `f64`, in the order of the expression, and may fuse a multiplication with an addition.
//! Additions, multiplications, divisions and square roots are rounded correctly; other functions are off by a few units
//! in the last place. Where inputs are exact and the result has no digits to round away, it is exact: a comparison with
//! it can be decided.

use crate::base::DType;

use super::expression::{Binary, Unary};

/// A value as an exact computation has it, and how far a device's value may be from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ball {
    pub value: f64,
    /// Absolute; infinite where rounding decides what the value is, so that a device may have any.
    pub radius: f64,
}

/// The type that a device computes in.
#[derive(Clone, Copy, Debug)]
pub struct Precision {
    dtype: DType,
    largest: f64,
}

/// What functions of the vendors' libraries are off by, in unit roundoffs: four units in the last place. CUDA's and
/// ROCm's tables of errors promise one or two for most of them.
pub const FUNCTION: f64 = 8.0;

/// The same for powers: sixteen units in the last place, which is what OpenCL asks for.
const POWER: f64 = 32.0;

/// The steepest slope of the error function: 2/√π.
const ERF_SLOPE: f64 = std::f64::consts::FRAC_2_SQRT_PI;

impl Precision {
    /// That of arithmetic in `f64`, or in `f32` for every other type.
    pub fn of(compute: DType) -> Precision {
        match compute {
            DType::F64 => Precision { dtype: DType::F64, largest: f64::MAX },
            _ => Precision { dtype: DType::F32, largest: f64::from(f32::MAX) },
        }
    }

    /// The unit roundoff: what one rounding is off by, relative to the result.
    pub fn unit(self) -> f64 {
        self.dtype.epsilon()
    }

    /// The smallest number with all digits: results below it may be taken for zero.
    pub fn smallest(self) -> f64 {
        self.dtype.smallest()
    }

    /// Whether a value is not too large for the type.
    pub fn holds(self, value: f64) -> bool {
        value.abs() <= self.largest
    }

    /// A constant of the expression, which a device has in its own type.
    pub fn constant(self, value: f64) -> Ball {
        Ball { value, radius: distance(self.dtype.round(value), value) }
    }

    pub fn unary(self, function: Unary, x: Ball) -> Ball {
        let value = function.apply(x.value);
        let roots = matches!(function, Unary::Log | Unary::Log2 | Unary::Rsqrt | Unary::Sqrt);
        if !(value.is_finite() && x.is_finite()) {
            let sure = x.radius == 0.0 || (roots && x.value < -x.radius);
            return if sure { Ball::exact(value) } else { Ball::unknown(value) };
        }
        let one = Ball::exact(1.0);
        match function {
            Unary::Abs | Unary::Negate => Ball { value, radius: x.radius },
            Unary::Ceil | Unary::Floor | Unary::Round => {
                let crosses = [x.value - x.radius, x.value + x.radius].iter().any(|at| function.apply(*at) != value);
                if crosses { Ball::unknown(value) } else { Ball::exact(value) }
            }
            Unary::Not => {
                if x.may_be_zero() {
                    Ball::unknown(value)
                } else {
                    Ball::exact(value)
                }
            }
            Unary::Relu => Ball { value, radius: if x.value + x.radius < 0.0 { 0.0 } else { x.radius } },
            Unary::Cos | Unary::Sin => self.function(value, x.radius.min(2.0), FUNCTION),
            Unary::Erf => self.function(value, (ERF_SLOPE * x.radius).min(2.0), FUNCTION),
            Unary::Tanh => self.function(value, x.radius.min(2.0), FUNCTION),
            Unary::Exp => self.function(value, value * x.radius.exp_m1(), FUNCTION),
            Unary::Log | Unary::Log2 | Unary::Rsqrt if x.radius >= x.value && x.radius > 0.0 => Ball::unknown(value),
            Unary::Log => self.function(value, -(-x.radius / x.value).ln_1p(), FUNCTION),
            Unary::Log2 => self.function(value, -(-x.radius / x.value).ln_1p() * std::f64::consts::LOG2_E, FUNCTION),
            Unary::Rsqrt => self.function(value, value * ((1.0 - x.radius / x.value).powf(-0.5) - 1.0), FUNCTION),
            Unary::Sqrt if x.radius > x.value => Ball::unknown(value),
            Unary::Sqrt => {
                let least = (x.value - x.radius).sqrt();
                let moved = if x.radius == 0.0 { None } else { Some(x.radius / (value + least)) };
                self.rounded(value, moved, (-value).mul_add(value, x.value) == 0.0)
            }
            // As the kernels compose them; what these divide by a huge number may be taken for zero.
            Unary::Gelu => {
                let scaled = self.binary(Binary::Multiply, x, self.constant(std::f64::consts::FRAC_1_SQRT_2));
                let sum = self.binary(Binary::Add, one, self.unary(Unary::Erf, scaled));
                let half = self.binary(Binary::Multiply, Ball::exact(0.5), x);
                Ball { value, ..self.binary(Binary::Multiply, half, sum) }
            }
            Unary::Sigmoid | Unary::Silu => {
                let over = if function == Unary::Silu { x } else { one };
                // The denominator is at least one, and where it is too large for the type the quotient is none.
                let moved = x.radius.exp_m1() + 2.0 * FUNCTION * self.unit();
                let radius = value.abs() * moved + over.radius + (1.0 + over.value.abs()) * 4.0 * self.smallest();
                Ball { value, radius }
            }
        }
    }

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
                // The difference to a NaN, or of two infinities, is none: rounding decides nothing.
                return known(exact || (x.value - y.value).abs() > x.radius + y.radius);
            }
            Binary::And | Binary::Or => return known(!x.may_be_zero() && !y.may_be_zero()),
            Binary::Max | Binary::Min => {
                // The one that is chosen, unless the other comes close enough to be chosen too.
                let (chosen, other) = if value == x.value { (x, y) } else { (y, x) };
                let apart = (chosen.value - other.value).abs() > chosen.radius + other.radius;
                let radius = if apart { chosen.radius } else { chosen.radius.max(other.radius) };
                return Ball { value, radius };
            }
            _ if value.is_finite() && x.is_finite() && y.is_finite() => {}
            Binary::Pow => return known(exact),
            // What is no number remains none; and what is infinite remains so, beside numbers whose sign is known.
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
                self.rounded(value, moved(x.radius + y.radius), x.value - (value - kept) == kept - term)
            }
            Binary::Multiply => {
                let by = x.value.abs() * y.radius + y.value.abs() * x.radius + x.radius * y.radius;
                self.rounded(value, moved(by), x.value.mul_add(y.value, -value) == 0.0)
            }
            Binary::Divide if y.radius >= y.value.abs() => Ball::unknown(value),
            Binary::Divide => {
                let by = (x.radius + value.abs() * y.radius) / (y.value.abs() - y.radius);
                self.rounded(value, moved(by), (-value).mul_add(y.value, x.value) == 0.0)
            }
            Binary::Pow => {
                let base = x.value.abs();
                let whole = y.radius == 0.0 && y.value.fract() == 0.0;
                if !exact && (x.radius >= base || (x.value < 0.0 && !whole)) {
                    return Ball::unknown(value);
                }
                let log = if base > 0.0 { base.ln().abs() } else { 0.0 };
                let stretch = if exact { 0.0 } else { -(-x.radius / base).ln_1p() };
                let exponent = (y.value.abs() + y.radius) * stretch + log * y.radius;
                self.function(value, value.abs() * exponent.exp_m1(), POWER)
            }
            _ => unreachable!("comparisons and choices have returned"),
        }
    }

    /// The second where the first is not zero, else the third.
    pub fn select(condition: Ball, yes: Ball, no: Ball) -> Ball {
        let chosen = if condition.value != 0.0 { yes } else { no };
        if condition.may_be_zero() { Ball::unknown(chosen.value) } else { chosen }
    }

    /// A result that is rounded correctly, of operands that have moved it so far; `None` where they are exact. `whole` says
    /// that `value` lost nothing in the reference's `f64`. Where it is fused with an addition it is not rounded at all.
    fn rounded(self, value: f64, moved: Option<f64>, whole: bool) -> Ball {
        let by = moved.unwrap_or(0.0);
        let lost = match (self.dtype, moved) {
            (DType::F64, None) if !whole => self.unit() * value.abs(),
            (_, None) => distance(self.dtype.round(value), value),
            // In `f64` the reference is rounded too, and not as the device is.
            (DType::F64, Some(_)) => 2.0 * self.unit() * (value.abs() + by) + self.tiny(),
            (_, Some(_)) => self.unit() * (value.abs() + by) + self.tiny(),
        };
        self.in_range(Ball { value, radius: by + lost })
    }

    /// The result of a library's function.
    fn function(self, value: f64, moved: f64, roundings: f64) -> Ball {
        self.in_range(Ball { value, radius: moved + roundings * self.unit() * (value.abs() + moved) + self.smallest() })
    }

    /// Nothing is known of what is too large for the type: fused with what follows, it may still be a number.
    fn in_range(self, ball: Ball) -> Ball {
        match self.holds(ball.value.abs() + ball.radius) {
            true => ball,
            false => Ball::unknown(ball.value),
        }
    }

    /// The distance between the smallest numbers, twice: what a device and the reference round such a result by.
    fn tiny(self) -> f64 {
        4.0 * self.smallest() * self.unit()
    }
}

impl Ball {
    pub fn exact(value: f64) -> Ball {
        Ball { value, radius: 0.0 }
    }

    fn unknown(value: f64) -> Ball {
        Ball { value, radius: f64::INFINITY }
    }

    fn is_finite(self) -> bool {
        self.value.is_finite() && self.radius.is_finite()
    }

    /// Whether rounding decides if it is zero.
    fn may_be_zero(self) -> bool {
        self.radius > 0.0 && self.value.abs() <= self.radius
    }
}

/// How far two values lie apart: not at all where both are the same infinity, or NaN.
fn distance(a: f64, b: f64) -> f64 {
    if a == b || (a.is_nan() && b.is_nan()) { 0.0 } else { (a - b).abs() }
}
