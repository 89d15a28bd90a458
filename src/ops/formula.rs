//! Builds expressions node by node, for operations that define their own.

use super::Expression;
use super::expression::{Binary, Node, Unary};

/// An expression under construction. Nodes are identified by number.
#[derive(Default)]
pub struct Formula {
    expression: Expression,
}

impl Formula {
    pub fn input(&mut self, input: u8) -> u16 {
        self.push(Node::Input(input))
    }

    pub fn constant(&mut self, value: f64) -> u16 {
        let node = self.expression.push_constant(value);
        node.expect(FITS)
    }

    pub fn add(&mut self, x: u16, y: u16) -> u16 {
        self.push(Node::Binary(Binary::Add, x, y))
    }

    pub fn subtract(&mut self, x: u16, y: u16) -> u16 {
        self.push(Node::Binary(Binary::Subtract, x, y))
    }

    pub fn multiply(&mut self, x: u16, y: u16) -> u16 {
        self.push(Node::Binary(Binary::Multiply, x, y))
    }

    pub fn divide(&mut self, x: u16, y: u16) -> u16 {
        self.push(Node::Binary(Binary::Divide, x, y))
    }

    pub fn less(&mut self, x: u16, y: u16) -> u16 {
        self.push(Node::Binary(Binary::Less, x, y))
    }

    pub fn less_equal(&mut self, x: u16, y: u16) -> u16 {
        self.push(Node::Binary(Binary::LessEqual, x, y))
    }

    pub fn max(&mut self, x: u16, y: u16) -> u16 {
        self.push(Node::Binary(Binary::Max, x, y))
    }

    pub fn min(&mut self, x: u16, y: u16) -> u16 {
        self.push(Node::Binary(Binary::Min, x, y))
    }

    pub fn square(&mut self, x: u16) -> u16 {
        self.multiply(x, x)
    }

    pub fn abs(&mut self, x: u16) -> u16 {
        self.push(Node::Unary(Unary::Abs, x))
    }

    pub fn log(&mut self, x: u16) -> u16 {
        self.push(Node::Unary(Unary::Log, x))
    }

    pub fn relu(&mut self, x: u16) -> u16 {
        self.push(Node::Unary(Unary::Relu, x))
    }

    pub fn rsqrt(&mut self, x: u16) -> u16 {
        self.push(Node::Unary(Unary::Rsqrt, x))
    }

    pub fn equal(&mut self, x: u16, y: u16) -> u16 {
        self.push(Node::Binary(Binary::Equal, x, y))
    }

    pub fn apply(&mut self, function: Unary, x: u16) -> u16 {
        self.push(Node::Unary(function, x))
    }

    pub fn sqrt(&mut self, x: u16) -> u16 {
        self.push(Node::Unary(Unary::Sqrt, x))
    }

    /// Multiplies a node by a number.
    pub fn scale(&mut self, factor: f64, x: u16) -> u16 {
        let factor = self.constant(factor);
        self.multiply(factor, x)
    }

    /// `yes` if the condition is not zero, otherwise `no`.
    pub fn select(&mut self, condition: u16, yes: u16, no: u16) -> u16 {
        self.push(Node::Select(condition, yes, no))
    }

    /// Returns the expression with these nodes as outputs.
    pub fn with_outputs<const N: usize>(mut self, outputs: [u16; N]) -> Expression {
        outputs.into_iter().for_each(|node| self.expression.finish(node));
        self.expression
    }

    fn push(&mut self, node: Node) -> u16 {
        self.expression.push(node).expect(FITS)
    }
}

const FITS: &str = "a formula of the program has few nodes";
