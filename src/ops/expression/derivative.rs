//! Derivatives of elementwise expressions by reverse-mode differentiation.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, LN_2, PI};

use super::{Binary, ExprNode, Unary};
use crate::ops::Expression;

/// Vector-Jacobian products of an expression: for each input, the sum over outputs of derivative times gradient.
pub struct Derivatives {
    /// Nodes of the expression, of the gradients and of the derivatives. Inputs are those of the original expression,
    /// followed by one gradient per output.
    expression: Expression,
    /// Node of the derivative by each input; `None` if it is zero everywhere.
    by_input: Vec<Option<u16>>,
}

impl Derivatives {
    /// Differentiates by the first `inputs` inputs. `given[n]` is true if output `n` has a gradient; each gradient is
    /// multiplied by `factor`. `None` if the expression would have too many nodes.
    pub fn of(expression: &Expression, inputs: usize, given: &[bool], factor: f64) -> Option<Derivatives> {
        let mut made = NodeMaker { expression: expression.without_outputs() };
        let count = expression.nodes().len();
        let mut gradients: Vec<Option<u16>> = vec![None; count];
        for (output, &node) in expression.outputs().iter().enumerate().filter(|(output, _)| given[*output]) {
            let gradient = made.push(ExprNode::Input(u8::try_from(inputs + output).ok()?))?;
            let factor = made.constant(factor)?;
            let scaled = made.multiply(factor, gradient)?;
            made.add_to(&mut gradients[usize::from(node)], scaled)?;
        }
        let mut by_input = vec![None; inputs];
        for number in (0..count).rev() {
            let Some(gradient) = gradients[number] else { continue };
            let value = number as u16;
            match expression.nodes()[number] {
                ExprNode::Input(input) => by_input[usize::from(input)] = Some(gradient),
                ExprNode::Constant(_) => {}
                ExprNode::Unary(function, x) => {
                    if let Some(part) = made.unary(function, gradient, x, value)? {
                        made.add_to(&mut gradients[usize::from(x)], part)?;
                    }
                }
                ExprNode::Binary(function, x, y) => {
                    let [by_x, by_y] = made.binary(function, gradient, (x, y), value)?;
                    for (operand, part) in [(x, by_x), (y, by_y)] {
                        if let Some(part) = part.filter(|_| !made.is_constant(operand)) {
                            made.add_to(&mut gradients[usize::from(operand)], part)?;
                        }
                    }
                }
                ExprNode::Select(condition, yes, no) => {
                    let zero = made.constant(0.0)?;
                    for (operand, sides) in [(yes, (gradient, zero)), (no, (zero, gradient))] {
                        if !made.is_constant(operand) {
                            let part = made.push(ExprNode::Select(condition, sides.0, sides.1))?;
                            made.add_to(&mut gradients[usize::from(operand)], part)?;
                        }
                    }
                }
            }
        }
        Some(Derivatives { expression: made.expression, by_input })
    }

    /// True if the derivative by an input is not zero everywhere.
    pub fn depends_on(&self, input: usize) -> bool {
        self.by_input[input].is_some()
    }

    /// Returns the expression of the derivatives by these inputs, and the numbers of the inputs that it needs: inputs
    /// of the original expression first, then gradients.
    pub fn select(&self, inputs: &[usize]) -> (Expression, Vec<usize>) {
        let outputs: Vec<u16> = inputs.iter().filter_map(|&input| self.by_input[input]).collect();
        self.expression.part(&outputs)
    }
}

/// Builds nodes. Each function returns `None` if the expression would have too many.
struct NodeMaker {
    expression: Expression,
}

impl NodeMaker {
    fn push(&mut self, node: ExprNode) -> Option<u16> {
        self.expression.push(node)
    }

    fn constant(&mut self, value: f64) -> Option<u16> {
        self.expression.push_constant(value)
    }

    /// True if a node is constant.
    fn is_constant(&self, node: u16) -> bool {
        matches!(self.expression.nodes()[usize::from(node)], ExprNode::Constant(_))
    }

    fn is(&self, node: u16, value: f64) -> bool {
        match self.expression.nodes()[usize::from(node)] {
            ExprNode::Constant(constant) => self.expression.constants()[usize::from(constant)] == value,
            _ => false,
        }
    }

    fn push_binary(&mut self, function: Binary, x: u16, y: u16) -> Option<u16> {
        self.push(ExprNode::Binary(function, x, y))
    }

    fn push_unary(&mut self, function: Unary, x: u16) -> Option<u16> {
        self.push(ExprNode::Unary(function, x))
    }

    fn multiply(&mut self, x: u16, y: u16) -> Option<u16> {
        match (self.is(x, 1.0), self.is(y, 1.0)) {
            (true, _) => Some(y),
            (_, true) => Some(x),
            _ => self.push_binary(Binary::Multiply, x, y),
        }
    }

    fn scale(&mut self, factor: f64, x: u16) -> Option<u16> {
        let factor = self.constant(factor)?;
        self.multiply(factor, x)
    }

    /// Returns the node of `1 - x`; `None` if the expression becomes too long.
    fn rest(&mut self, x: u16) -> Option<u16> {
        let one = self.constant(1.0)?;
        self.push_binary(Binary::Subtract, one, x)
    }

    fn add_to(&mut self, sum: &mut Option<u16>, part: u16) -> Option<()> {
        *sum = Some(match *sum {
            Some(before) => self.push_binary(Binary::Add, before, part)?,
            None => part,
        });
        Some(())
    }

    /// Returns the node of `exp(factor * x²)`; `None` if the expression becomes too long.
    fn bell(&mut self, factor: f64, x: u16) -> Option<u16> {
        let square = self.push_binary(Binary::Multiply, x, x)?;
        let scaled = self.scale(factor, square)?;
        self.push_unary(Unary::Exp, scaled)
    }

    /// Returns the gradient with respect to `x` of a function with value `y`. The inner `None` is a gradient of zero, the outer one
    /// an expression that has become too long.
    fn unary(&mut self, function: Unary, gradient: u16, x: u16, y: u16) -> Option<Option<u16>> {
        let factor = match function {
            Unary::Ceil | Unary::Floor | Unary::Round | Unary::Not => return Some(None),
            Unary::Negate => return Some(Some(self.push_unary(Unary::Negate, gradient)?)),
            Unary::Abs => {
                let (zero, negated) = (self.constant(0.0)?, self.push_unary(Unary::Negate, gradient)?);
                let (above, below) =
                    (self.push_binary(Binary::Greater, x, zero)?, self.push_binary(Binary::Less, x, zero)?);
                let other = self.push(ExprNode::Select(below, negated, zero))?;
                return Some(Some(self.push(ExprNode::Select(above, gradient, other))?));
            }
            Unary::Relu => {
                let zero = self.constant(0.0)?;
                let above = self.push_binary(Binary::Greater, x, zero)?;
                return Some(Some(self.push(ExprNode::Select(above, gradient, zero))?));
            }
            Unary::Log => return Some(Some(self.push_binary(Binary::Divide, gradient, x)?)),
            Unary::Log2 => {
                let scaled = self.scale(LN_2, x)?;
                return Some(Some(self.push_binary(Binary::Divide, gradient, scaled)?));
            }
            Unary::Sqrt => {
                let doubled = self.scale(2.0, y)?;
                return Some(Some(self.push_binary(Binary::Divide, gradient, doubled)?));
            }
            Unary::Cos => {
                let sin = self.push_unary(Unary::Sin, x)?;
                self.push_unary(Unary::Negate, sin)?
            }
            Unary::Sin => self.push_unary(Unary::Cos, x)?,
            Unary::Erf => {
                let bell = self.bell(-1.0, x)?;
                self.scale(FRAC_2_SQRT_PI, bell)?
            }
            Unary::Exp => y,
            Unary::Gelu => {
                // The cumulative normal distribution at x, and x times its density.
                let inner = self.scale(FRAC_1_SQRT_2, x)?;
                let erf = self.push_unary(Unary::Erf, inner)?;
                let (half, halved) = (self.constant(0.5)?, self.scale(0.5, erf)?);
                let share = self.push_binary(Binary::Add, half, halved)?;
                let bell = self.bell(-0.5, x)?;
                let density = self.scale(1.0 / (2.0 * PI).sqrt(), bell)?;
                let moved = self.multiply(x, density)?;
                self.push_binary(Binary::Add, share, moved)?
            }
            Unary::Rsqrt => {
                let square = self.multiply(y, y)?;
                let cube = self.multiply(square, y)?;
                self.scale(-0.5, cube)?
            }
            Unary::Sigmoid => {
                let rest = self.rest(y)?;
                self.multiply(y, rest)?
            }
            Unary::Silu => {
                let sigmoid = self.push_unary(Unary::Sigmoid, x)?;
                let rest = self.rest(sigmoid)?;
                let (moved, one) = (self.multiply(x, rest)?, self.constant(1.0)?);
                let slope = self.push_binary(Binary::Add, one, moved)?;
                self.multiply(sigmoid, slope)?
            }
            Unary::Tanh => {
                let square = self.multiply(y, y)?;
                self.rest(square)?
            }
        };
        Some(Some(self.multiply(gradient, factor)?))
    }

    /// Gradients by both operands of a function with this value. An inner `None` means zero.
    fn binary(&mut self, function: Binary, gradient: u16, (x, y): (u16, u16), value: u16) -> Option<[Option<u16>; 2]> {
        Some(match function {
            Binary::Add => [Some(gradient), Some(gradient)],
            Binary::Subtract => [Some(gradient), Some(self.push_unary(Unary::Negate, gradient)?)],
            Binary::Multiply => [Some(self.multiply(gradient, y)?), Some(self.multiply(gradient, x)?)],
            Binary::Divide => {
                let by_x = self.push_binary(Binary::Divide, gradient, y)?;
                let product = self.multiply(by_x, value)?;
                [Some(by_x), Some(self.push_unary(Unary::Negate, product)?)]
            }
            Binary::Remainder => {
                let quotient = self.push_binary(Binary::Divide, x, y)?;
                let whole = self.push_unary(Unary::Floor, quotient)?;
                let product = self.multiply(gradient, whole)?;
                [Some(gradient), Some(self.push_unary(Unary::Negate, product)?)]
            }
            // Equal operands get half of the derivative each.
            Binary::Max | Binary::Min => {
                let wins = if function == Binary::Max { Binary::Greater } else { Binary::Less };
                let (zero, half) = (self.constant(0.0)?, self.scale(0.5, gradient)?);
                let equal = self.push_binary(Binary::Equal, x, y)?;
                let shared = self.push(ExprNode::Select(equal, half, zero))?;
                let mut side = |a, b| {
                    let ahead = self.push_binary(wins, a, b)?;
                    self.push(ExprNode::Select(ahead, gradient, shared))
                };
                [Some(side(x, y)?), Some(side(y, x)?)]
            }
            Binary::Pow => [Some(self.power(gradient, x, y)?), Some(self.exponent(gradient, x, value)?)],
            Binary::Equal
            | Binary::NotEqual
            | Binary::Less
            | Binary::LessEqual
            | Binary::Greater
            | Binary::GreaterEqual
            | Binary::And
            | Binary::Or => [None, None],
        })
    }

    /// Gradient of `pow(x, y)` by `x`: `y * pow(x, y - 1)`, or zero where `y` is zero; `None` if the
    /// expression becomes too long.
    fn power(&mut self, gradient: u16, x: u16, y: u16) -> Option<u16> {
        if self.is(y, 2.0) {
            let doubled = self.scale(2.0, x)?;
            return self.multiply(gradient, doubled);
        }
        let (one, zero) = (self.constant(1.0)?, self.constant(0.0)?);
        let less = self.push_binary(Binary::Subtract, y, one)?;
        let power = self.push_binary(Binary::Pow, x, less)?;
        let slope = self.multiply(y, power)?;
        let product = self.multiply(gradient, slope)?;
        self.push(ExprNode::Select(y, product, zero))
    }

    /// Gradient of `pow(x, y)`, with this value, by `y`: `value * log(x)`, or zero where `x` is zero;
    /// `None` if the expression becomes too long.
    fn exponent(&mut self, gradient: u16, x: u16, value: u16) -> Option<u16> {
        let (logarithm, zero) = (self.push_unary(Unary::Log, x)?, self.constant(0.0)?);
        let slope = self.multiply(value, logarithm)?;
        let product = self.multiply(gradient, slope)?;
        self.push(ExprNode::Select(x, product, zero))
    }
}
