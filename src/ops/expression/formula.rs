//! Writes expressions as arithmetic on terms, for operations with a fixed expression.

use std::cell::RefCell;
use std::ops::{Add, Div, Mul, Neg, Sub};

use super::{Binary, ExprNode, Unary};
use crate::ops::Expression;

/// An expression under construction.
#[derive(Default)]
pub struct Formula {
    expression: RefCell<Expression>,
}

/// A value in a formula: an input, a constant, or a function of other terms. Each becomes a node of the expression as soon as it
/// is written, so the order of the code is the order of the nodes.
#[derive(Clone, Copy)]
pub struct Term<'f> {
    formula: &'f Formula,
    node: u16,
}

/// Returns the expression that `of` writes: it receives a term for each of the `N` inputs and returns the outputs.
pub fn formula<const N: usize, const OUTPUTS: usize>(
    of: impl for<'f> FnOnce([Term<'f>; N]) -> [Term<'f>; OUTPUTS],
) -> Expression {
    let formula = Formula::default();
    let outputs = of(formula.inputs());
    formula.with_outputs(outputs)
}

impl Formula {
    /// Returns the input with this number.
    pub fn input(&self, input: u8) -> Term<'_> {
        self.push(ExprNode::Input(input))
    }

    /// Returns the first `N` inputs.
    pub fn inputs<const N: usize>(&self) -> [Term<'_>; N] {
        std::array::from_fn(|input| self.input(input as u8))
    }

    /// Returns a constant.
    pub fn constant(&self, value: f64) -> Term<'_> {
        let node = self.expression.borrow_mut().push_constant(value);
        Term { formula: self, node: node.expect(FITS) }
    }

    /// Returns the expression with these terms as outputs.
    pub fn with_outputs<'f>(&'f self, outputs: impl IntoIterator<Item = Term<'f>>) -> Expression {
        let outputs: Vec<u16> = outputs.into_iter().map(|term| term.node).collect();
        let mut expression = self.expression.take();
        outputs.into_iter().for_each(|node| expression.finish(node));
        expression
    }

    fn push(&self, node: ExprNode) -> Term<'_> {
        Term { formula: self, node: self.expression.borrow_mut().push(node).expect(FITS) }
    }
}

const FITS: &str = "a formula of the program has few nodes";

/// A term, or a number that becomes a constant.
pub trait IntoTerm<'f> {
    fn term(self, formula: &'f Formula) -> Term<'f>;
}

impl<'f> IntoTerm<'f> for Term<'f> {
    fn term(self, _: &'f Formula) -> Term<'f> {
        self
    }
}

impl<'f> IntoTerm<'f> for f64 {
    fn term(self, formula: &'f Formula) -> Term<'f> {
        formula.constant(self)
    }
}

impl<'f> Term<'f> {
    /// Returns a constant of the same formula.
    pub fn constant(self, value: f64) -> Term<'f> {
        self.formula.constant(value)
    }

    /// Returns the function of this term.
    pub fn apply(self, function: Unary) -> Term<'f> {
        self.formula.push(ExprNode::Unary(function, self.node))
    }

    fn binary(self, function: Binary, other: impl IntoTerm<'f>) -> Term<'f> {
        let other = other.term(self.formula);
        self.formula.push(ExprNode::Binary(function, self.node, other.node))
    }

    /// Returns 1 where both terms are equal, otherwise 0.
    pub fn equals(self, other: impl IntoTerm<'f>) -> Term<'f> {
        self.binary(Binary::Equal, other)
    }

    /// Returns 1 where this term is less than the other one, otherwise 0.
    pub fn less(self, other: impl IntoTerm<'f>) -> Term<'f> {
        self.binary(Binary::Less, other)
    }

    /// Returns 1 where this term is at most the other one, otherwise 0.
    pub fn less_equal(self, other: impl IntoTerm<'f>) -> Term<'f> {
        self.binary(Binary::LessEqual, other)
    }

    /// Returns the larger of two terms.
    pub fn max(self, other: impl IntoTerm<'f>) -> Term<'f> {
        self.binary(Binary::Max, other)
    }

    /// Returns the smaller of two terms.
    pub fn min(self, other: impl IntoTerm<'f>) -> Term<'f> {
        self.binary(Binary::Min, other)
    }

    /// Returns the square of the term.
    pub fn square(self) -> Term<'f> {
        self * self
    }

    /// Returns the absolute value of the term.
    pub fn abs(self) -> Term<'f> {
        self.apply(Unary::Abs)
    }

    /// Returns the square root of the term.
    pub fn sqrt(self) -> Term<'f> {
        self.apply(Unary::Sqrt)
    }

    /// Returns the reciprocal of the square root of the term.
    pub fn rsqrt(self) -> Term<'f> {
        self.apply(Unary::Rsqrt)
    }

    /// Returns the term, or 0 where it is negative.
    pub fn relu(self) -> Term<'f> {
        self.apply(Unary::Relu)
    }

    /// `yes` if this term is not zero, otherwise `no`.
    pub fn select(self, yes: impl IntoTerm<'f>, no: impl IntoTerm<'f>) -> Term<'f> {
        let (yes, no) = (yes.term(self.formula), no.term(self.formula));
        self.formula.push(ExprNode::Select(self.node, yes.node, no.node))
    }
}

impl<'f> Neg for Term<'f> {
    type Output = Term<'f>;

    fn neg(self) -> Term<'f> {
        self.apply(Unary::Negate)
    }
}

macro_rules! operators {
    ($($operator:ident $method:ident $function:ident),*) => {
        $(
            impl<'f, T: IntoTerm<'f>> $operator<T> for Term<'f> {
                type Output = Term<'f>;

                fn $method(self, other: T) -> Term<'f> {
                    self.binary(Binary::$function, other)
                }
            }

            impl<'f> $operator<Term<'f>> for f64 {
                type Output = Term<'f>;

                fn $method(self, other: Term<'f>) -> Term<'f> {
                    other.constant(self).binary(Binary::$function, other)
                }
            }
        )*
    };
}

operators!(Add add Add, Sub sub Subtract, Mul mul Multiply, Div div Divide);
