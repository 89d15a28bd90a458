//! Elementwise expressions: what `map` and its like compute for each element.
//!
//! An expression is a list of nodes, each using earlier ones only, so that neither evaluation nor the making of a
//! kernel recurses. Constants are arguments of the kernel: expressions that differ in them share one.

use std::fmt::Write as _;

/// One step of an expression; operands are indices of earlier nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// The element of an input.
    Input(u8),
    Constant(u16),
    Unary(Unary, u16),
    Binary(Binary, u16, u16),
    /// The second where the first is not zero, else the third.
    Select(u16, u16, u16),
}

/// An elementwise expression over numbered inputs; its value is that of its last node.
#[derive(Clone, Debug, Default)]
pub struct Expression {
    nodes: Vec<Node>,
    constants: Vec<f64>,
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        let bits = |constants: &[f64]| constants.iter().map(|c| c.to_bits()).collect::<Vec<_>>();
        self.nodes == other.nodes && bits(&self.constants) == bits(&other.constants)
    }
}

impl Eq for Expression {}

impl std::hash::Hash for Expression {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.nodes.hash(state);
        for constant in &self.constants {
            constant.to_bits().hash(state);
        }
    }
}

macro_rules! functions {
    ($(#[$doc:meta])* $name:ident: $($variant:ident $text:literal $flops:literal),* $(,)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($variant),* }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The name in the language; operators have the name of their kernel function.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }

            /// Operations that it counts as.
            fn flops(self) -> u32 {
                match self { $($name::$variant => $flops),* }
            }
        }
    };
}

functions! {
    /// A function of one value.
    Unary:
    Abs "abs" 1, Ceil "ceil" 1, Cos "cos" 1, Erf "erf" 1, Exp "exp" 1, Floor "floor" 1, Gelu "gelu" 1, Log "log" 1,
    Log2 "log2" 1, Negate "negate" 1, Not "not_" 1, Relu "relu" 1, Round "round" 1, Rsqrt "rsqrt" 1, Sigmoid "sigmoid" 1,
    Silu "silu" 1, Sin "sin" 1, Sqrt "sqrt" 1, Tanh "tanh" 1,
}

functions! {
    /// A function or an operator of two values.
    Binary:
    Add "add" 1, Subtract "subtract" 1, Multiply "multiply" 1, Divide "divide" 1, Remainder "remainder" 1,
    Max "max" 1, Min "min" 1, Pow "pow" 1,
    Equal "equal" 1, NotEqual "not_equal" 1, Less "less" 1, LessEqual "less_equal" 1, Greater "greater" 1,
    GreaterEqual "greater_equal" 1, And "and_" 1, Or "or_" 1,
}

impl Unary {
    /// The function of that name, if it is one that is called by name.
    pub fn from_name(name: &str) -> Option<Unary> {
        Self::ALL
            .iter()
            .copied()
            .find(|function| function.name() == name && !matches!(function, Unary::Negate | Unary::Not))
    }

    pub fn apply(self, x: f64) -> f64 {
        match self {
            Unary::Abs => x.abs(),
            Unary::Ceil => x.ceil(),
            Unary::Cos => x.cos(),
            Unary::Erf => libm::erf(x),
            Unary::Exp => x.exp(),
            Unary::Floor => x.floor(),
            Unary::Gelu => 0.5 * x * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2)),
            Unary::Log => x.ln(),
            Unary::Log2 => x.log2(),
            Unary::Negate => -x,
            Unary::Not => f64::from(x == 0.0),
            // A comparison, so that NaN stays NaN, as on the GPU.
            Unary::Relu => {
                if x < 0.0 {
                    0.0
                } else {
                    x
                }
            }
            Unary::Round => x.round_ties_even(),
            Unary::Rsqrt => 1.0 / x.sqrt(),
            Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Unary::Silu => x / (1.0 + (-x).exp()),
            Unary::Sin => x.sin(),
            Unary::Sqrt => x.sqrt(),
            Unary::Tanh => x.tanh(),
        }
    }
}

impl Binary {
    /// The function of that name, if it is one that is called by name.
    pub fn from_name(name: &str) -> Option<Binary> {
        [Binary::Max, Binary::Min, Binary::Pow].into_iter().find(|function| function.name() == name)
    }

    pub fn apply(self, x: f64, y: f64) -> f64 {
        match self {
            Binary::Add => x + y,
            Binary::Subtract => x - y,
            Binary::Multiply => x * y,
            Binary::Divide => x / y,
            // Of the sign of the divisor, as everywhere in the language.
            Binary::Remainder => x - y * (x / y).floor(),
            Binary::Max => {
                if x > y || x.is_nan() {
                    x
                } else {
                    y
                }
            }
            Binary::Min => {
                if x < y || x.is_nan() {
                    x
                } else {
                    y
                }
            }
            Binary::Pow => x.powf(y),
            Binary::Equal => f64::from(x == y),
            Binary::NotEqual => f64::from(x != y),
            Binary::Less => f64::from(x < y),
            Binary::LessEqual => f64::from(x <= y),
            Binary::Greater => f64::from(x > y),
            Binary::GreaterEqual => f64::from(x >= y),
            Binary::And => f64::from(x != 0.0 && y != 0.0),
            Binary::Or => f64::from(x != 0.0 || y != 0.0),
        }
    }
}

impl Expression {
    /// The expression that is its one input.
    pub fn identity() -> Expression {
        Expression { nodes: vec![Node::Input(0)], constants: Vec::new() }
    }

    /// The expression that is one value everywhere.
    pub fn constant(value: f64) -> Expression {
        Expression { nodes: vec![Node::Constant(0)], constants: vec![value] }
    }

    /// Adds a node, or finds an equal one; nothing when the expression has 65 536 already.
    pub fn push(&mut self, node: Node) -> Option<u16> {
        if let Some(index) = self.nodes.iter().position(|existing| *existing == node) {
            return u16::try_from(index).ok();
        }
        self.nodes.push(node);
        u16::try_from(self.nodes.len() - 1).ok()
    }

    pub fn push_constant(&mut self, value: f64) -> Option<u16> {
        let same = |existing: &f64| existing.to_bits() == value.to_bits();
        let index = self.constants.iter().position(same).unwrap_or_else(|| {
            self.constants.push(value);
            self.constants.len() - 1
        });
        self.push(Node::Constant(u16::try_from(index).ok()?))
    }

    /// Makes `node` the last, whose value the expression has.
    pub fn finish(&mut self, node: u16) {
        self.nodes.truncate(usize::from(node) + 1);
    }

    /// Takes everything out, to be filled anew.
    pub fn clear(&mut self) {
        self.nodes.clear();
        self.constants.clear();
    }

    pub fn constants(&self) -> &[f64] {
        &self.constants
    }

    /// Operations for each element.
    pub fn flops(&self) -> u32 {
        self.nodes
            .iter()
            .map(|node| match node {
                Node::Unary(function, _) => function.flops(),
                Node::Binary(function, ..) => function.flops(),
                Node::Select(..) => 1,
                Node::Input(_) | Node::Constant(_) => 0,
            })
            .sum()
    }

    /// The value for the given elements of the inputs; `values` is room for the nodes, used again from call to call.
    pub fn evaluate(&self, inputs: &[f64], values: &mut Vec<f64>) -> f64 {
        values.clear();
        for node in &self.nodes {
            let at = |index: u16| values[usize::from(index)];
            let value = match *node {
                Node::Input(index) => inputs[usize::from(index)],
                Node::Constant(index) => self.constants[usize::from(index)],
                Node::Unary(function, x) => function.apply(at(x)),
                Node::Binary(function, x, y) => function.apply(at(x), at(y)),
                Node::Select(condition, yes, no) => {
                    if at(condition) != 0.0 {
                        at(yes)
                    } else {
                        at(no)
                    }
                }
            };
            values.push(value);
        }
        values.last().copied().unwrap_or(0.0)
    }

    /// The body of a C function over `x0`, `x1`, … and `c0`, `c1`, … of type `C`, in the kernels' own functions.
    pub fn c_text(&self) -> String {
        let mut text = String::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let value = match *node {
                Node::Input(input) => format!("x{input}"),
                Node::Constant(constant) => format!("c{constant}"),
                Node::Unary(function, x) => format!("f_{}(v{x})", function.name()),
                Node::Binary(function, x, y) => format!("f_{}(v{x}, v{y})", function.name()),
                Node::Select(condition, yes, no) => format!("v{condition} != C(0) ? v{yes} : v{no}"),
            };
            let _ = writeln!(text, "  C v{index} = {value};");
        }
        let _ = writeln!(text, "  return v{};", self.nodes.len().saturating_sub(1));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evaluates_and_shares() {
        let mut expression = Expression::default();
        let x = expression.push(Node::Input(0)).unwrap();
        let two = expression.push_constant(2.0).unwrap();
        let square = expression.push(Node::Binary(Binary::Multiply, x, x)).unwrap();
        assert_eq!(expression.push(Node::Binary(Binary::Multiply, x, x)), Some(square));
        let sum = expression.push(Node::Binary(Binary::Add, square, two)).unwrap();
        expression.finish(sum);
        assert_eq!(expression.evaluate(&[3.0], &mut Vec::new()), 11.0);
        assert_eq!(expression.flops(), 2);
    }

    #[test]
    fn gelu_is_the_exact_one() {
        assert!((Unary::Gelu.apply(1.0) - 0.841_344_746_068_543).abs() < 1e-12);
        assert_eq!(Binary::Remainder.apply(-1.0, 4.0), 3.0);
    }
}
