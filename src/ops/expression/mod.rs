//! Elementwise expressions, as `map` and similar operations compute them.
//!
//! An expression is a list of nodes that refer to earlier nodes only, so that neither evaluation nor code generation
//! recurses. Constants are kernel arguments, so that expressions that differ only in constants share a kernel.

pub(super) mod ball;
pub(super) mod derivative;
pub(super) mod formula;

use std::fmt::Write as _;

use crate::base::equal_by::equal_by;

use ball::{Ball, Precision};

/// A node of an expression. Operands are indices of earlier nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExprNode {
    /// An element of the input with this number.
    Input(u8),
    Constant(u16),
    Unary(Unary, u16),
    Binary(Binary, u16, u16),
    /// The second operand if the first is not zero, otherwise the third.
    Select(u16, u16, u16),
}

impl ExprNode {
    /// Returns the operands of the node.
    fn operands(self) -> impl Iterator<Item = u16> {
        let operands = match self {
            ExprNode::Input(_) | ExprNode::Constant(_) => [None; 3],
            ExprNode::Unary(_, x) => [Some(x), None, None],
            ExprNode::Binary(_, x, y) => [Some(x), Some(y), None],
            ExprNode::Select(condition, yes, no) => [Some(condition), Some(yes), Some(no)],
        };
        operands.into_iter().flatten()
    }

    /// Returns the same function of other operands. `at` returns the number of each.
    pub fn with_operands(self, at: impl Fn(u16) -> u16) -> ExprNode {
        match self {
            ExprNode::Input(_) | ExprNode::Constant(_) => self,
            ExprNode::Unary(function, x) => ExprNode::Unary(function, at(x)),
            ExprNode::Binary(function, x, y) => ExprNode::Binary(function, at(x), at(y)),
            ExprNode::Select(condition, yes, no) => ExprNode::Select(at(condition), at(yes), at(no)),
        }
    }
}

/// An elementwise expression of numbered inputs, with one or more outputs per element.
#[derive(Clone, Debug, Default)]
pub struct Expression {
    nodes: Vec<ExprNode>,
    constants: Vec<f64>,
    /// Node of each output.
    outputs: Vec<u16>,
}

equal_by!(Expression, |expression| {
    let bits: Vec<u64> = expression.constants.iter().map(|constant| constant.to_bits()).collect();
    (&expression.nodes, &expression.outputs, bits)
});

macro_rules! functions {
    ($(#[$doc:meta])* $name:ident: $($variant:ident $text:literal $instructions:literal $special:literal),* $(,)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($variant),* }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// Name in the language; for an operator, the name of its kernel function.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }

            /// Instructions per element.
            fn instructions(self) -> u32 {
                match self { $($name::$variant => $instructions),* }
            }

            /// Instructions of special-function units per element, included in [`Self::instructions`].
            fn special(self) -> u32 {
                match self { $($name::$variant => $special),* }
            }
        }
    };
}

// Each name is followed by its instructions per element, and by how many of them special-function units execute. Both
// were counted in NVRTC 13.0's code for f32 on sm_90, on the path of ordinary numbers: without the branches for huge,
// tiny or non-finite ones. Logarithms, sines and powers are polynomials there. In f64, all functions take more.
functions! {
    /// A function of one value.
    Unary:
    Abs "abs" 1 0, Ceil "ceil" 1 0, Cos "cos" 27 0, Erf "erf" 21 1, Exp "exp" 8 1, Floor "floor" 1 0, Gelu "gelu" 25 1,
    Log "log" 25 0, Log2 "log2" 27 0, Negate "negate" 1 0, Not "not_" 1 0, Relu "relu" 2 0, Round "round" 1 0,
    Rsqrt "rsqrt" 4 1, Sigmoid "sigmoid" 13 2, Silu "silu" 13 2, Sin "sin" 26 0, Sqrt "sqrt" 10 1, Tanh "tanh" 15 2,
}

functions! {
    /// A function or an operator of two values.
    Binary:
    Add "add" 1 0, Subtract "subtract" 1 0, Multiply "multiply" 1 0, Divide "divide" 10 1, Remainder "remainder" 12 1,
    Max "max" 3 0, Min "min" 3 0, Pow "pow" 86 1,
    Equal "equal" 1 0, NotEqual "not_equal" 1 0, Less "less" 1 0, LessEqual "less_equal" 1 0, Greater "greater" 1 0,
    GreaterEqual "greater_equal" 1 0, And "and_" 3 0, Or "or_" 3 0,
}

impl Unary {
    /// Returns the function with this name; `None` if no function is called by it.
    pub fn from_name(name: &str) -> Option<Unary> {
        Self::ALL
            .iter()
            .copied()
            .find(|function| function.name() == name && !matches!(function, Unary::Negate | Unary::Not))
    }

    /// Computes the function in double precision.
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

    fn apply_all(self, x: &[f64], values: &mut [f64]) {
        values.iter_mut().zip(x).for_each(|(value, x)| *value = self.apply(*x));
    }
}

impl Binary {
    /// Returns the function with this name; `None` if no function is called by it.
    pub fn from_name(name: &str) -> Option<Binary> {
        [Binary::Max, Binary::Min, Binary::Pow].into_iter().find(|function| function.name() == name)
    }

    /// Computes the operator in double precision.
    pub fn apply(self, x: f64, y: f64) -> f64 {
        match self {
            Binary::Add => x + y,
            Binary::Subtract => x - y,
            Binary::Multiply => x * y,
            Binary::Divide => x / y,
            // The remainder has the sign of the divisor, as everywhere in the language.
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

    fn apply_all(self, x: &[f64], y: &[f64], values: &mut [f64]) {
        fn all(x: &[f64], y: &[f64], values: &mut [f64], of: impl Fn(f64, f64) -> f64) {
            values.iter_mut().zip(x.iter().zip(y)).for_each(|(value, (x, y))| *value = of(*x, *y));
        }
        // Single-instruction functions have a loop each, which the compiler vectorizes.
        match self {
            Binary::Add => all(x, y, values, |x, y| x + y),
            Binary::Subtract => all(x, y, values, |x, y| x - y),
            Binary::Multiply => all(x, y, values, |x, y| x * y),
            Binary::Divide => all(x, y, values, |x, y| x / y),
            _ => all(x, y, values, |x, y| self.apply(x, y)),
        }
    }
}

impl Expression {
    /// The expression that returns its only input.
    pub fn identity() -> Expression {
        Expression { nodes: vec![ExprNode::Input(0)], constants: Vec::new(), outputs: vec![0] }
    }

    /// True if the expression returns its only input.
    pub fn is_identity(&self) -> bool {
        *self == Expression::identity()
    }

    /// The expression that returns a constant.
    pub fn constant(value: f64) -> Expression {
        Expression { nodes: vec![ExprNode::Constant(0)], constants: vec![value], outputs: vec![0] }
    }

    /// Adds a node, or returns an equal existing one; `None` if the expression already has 65 536 nodes.
    pub fn push(&mut self, node: ExprNode) -> Option<u16> {
        if let Some(index) = self.nodes.iter().position(|existing| *existing == node) {
            return u16::try_from(index).ok();
        }
        self.nodes.push(node);
        u16::try_from(self.nodes.len() - 1).ok()
    }

    /// Adds a constant and returns its node. `None` if the expression would have too many nodes.
    pub fn push_constant(&mut self, value: f64) -> Option<u16> {
        let same = |existing: &f64| existing.to_bits() == value.to_bits();
        let index = self.constants.iter().position(same).unwrap_or_else(|| {
            self.constants.push(value);
            self.constants.len() - 1
        });
        self.push(ExprNode::Constant(u16::try_from(index).ok()?))
    }

    /// Adds an output with the value of `node`.
    pub fn finish(&mut self, node: u16) {
        self.outputs.push(node);
    }

    /// Removes all nodes and outputs, but keeps the memory.
    pub fn clear(&mut self) {
        self.nodes.clear();
        self.constants.clear();
        self.outputs.clear();
    }

    /// Returns a copy without outputs, to which nodes can be added.
    pub fn without_outputs(&self) -> Expression {
        Expression { outputs: Vec::new(), ..self.clone() }
    }

    /// Extracts the expression of these nodes as outputs, without unused nodes. Also returns the original numbers of
    /// its inputs.
    pub fn part(&self, outputs: &[u16]) -> (Expression, Vec<usize>) {
        let mut needed = vec![false; self.nodes.len()];
        outputs.iter().for_each(|output| needed[usize::from(*output)] = true);
        for (index, node) in self.nodes.iter().enumerate().rev() {
            if needed[index] {
                node.operands().for_each(|operand| needed[usize::from(operand)] = true);
            }
        }
        let (mut part, mut inputs, mut places) = (Expression::default(), Vec::new(), vec![0; self.nodes.len()]);
        for (index, node) in self.nodes.iter().enumerate().filter(|(index, _)| needed[*index]) {
            let node = match *node {
                ExprNode::Input(input) => {
                    inputs.push(usize::from(input));
                    ExprNode::Input(inputs.len() as u8 - 1)
                }
                ExprNode::Constant(constant) => {
                    part.constants.push(self.constants[usize::from(constant)]);
                    ExprNode::Constant(part.constants.len() as u16 - 1)
                }
                function => function.with_operands(|operand| places[usize::from(operand)]),
            };
            part.nodes.push(node);
            places[index] = part.nodes.len() as u16 - 1;
        }
        part.outputs = outputs.iter().map(|output| places[usize::from(*output)]).collect();
        (part, inputs)
    }

    /// Adds the nodes of another expression whose inputs are these nodes, and returns its output nodes; `None` if
    /// there would be too many nodes.
    pub fn graft(&mut self, other: &Expression, inputs: &[u16]) -> Option<Vec<u16>> {
        let mut places: Vec<u16> = Vec::with_capacity(other.nodes.len());
        for node in &other.nodes {
            let place = match *node {
                ExprNode::Input(input) => Some(inputs[usize::from(input)]),
                ExprNode::Constant(constant) => self.push_constant(other.constants[usize::from(constant)]),
                function => self.push(function.with_operands(|operand| places[usize::from(operand)])),
            };
            places.push(place?);
        }
        Some(other.outputs.iter().map(|output| places[usize::from(*output)]).collect())
    }

    /// Returns the minimum and maximum of a node that is an integer for any input; `None` for other nodes. `input`
    /// returns the same for an input.
    pub fn whole(&self, node: u16, input: &impl Fn(usize) -> Option<(f64, f64)>) -> Option<(f64, f64)> {
        use Binary::*;
        let mut values: Vec<Option<(f64, f64)>> = Vec::with_capacity(usize::from(node) + 1);
        for node in &self.nodes[..=usize::from(node)] {
            let of = |operand: u16| values[usize::from(operand)];
            values.push(match *node {
                ExprNode::Input(number) => input(usize::from(number)),
                ExprNode::Constant(number) => {
                    let value = self.constants[usize::from(number)];
                    (value.trunc() == value).then_some((value, value))
                }
                ExprNode::Unary(Unary::Not, _)
                | ExprNode::Binary(Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual | And | Or, ..) => {
                    Some((0.0, 1.0))
                }
                ExprNode::Select(_, yes, no) => of(yes).zip(of(no)).map(|(yes, no)| (yes.0.min(no.0), yes.1.max(no.1))),
                ExprNode::Unary(..) | ExprNode::Binary(..) => None,
            });
        }
        values.pop().flatten()
    }

    /// Nodes in order; each refers to earlier ones only.
    pub fn nodes(&self) -> &[ExprNode] {
        &self.nodes
    }

    /// The constants of the expression, in the order of their numbers.
    pub fn constants(&self) -> &[f64] {
        &self.constants
    }

    /// Node of each output.
    pub fn outputs(&self) -> &[u16] {
        &self.outputs
    }

    /// Number of inputs.
    pub fn inputs(&self) -> usize {
        let number = |node: &ExprNode| if let ExprNode::Input(input) = node { usize::from(*input) + 1 } else { 0 };
        self.nodes.iter().map(number).max().unwrap_or(0)
    }

    /// Numbers of the inputs that an output depends on, in ascending order.
    pub fn inputs_of(&self, output: usize) -> Vec<usize> {
        let mut needed = vec![false; self.nodes.len()];
        needed[usize::from(self.outputs[output])] = true;
        let mut inputs = Vec::new();
        for (index, node) in self.nodes.iter().enumerate().rev() {
            if !needed[index] {
                continue;
            }
            if let ExprNode::Input(input) = *node {
                inputs.push(usize::from(input));
            }
            node.operands().for_each(|operand| needed[usize::from(operand)] = true);
        }
        inputs.sort_unstable();
        inputs
    }

    /// Arithmetic operations per element. Each function counts as one.
    pub fn flops(&self) -> u32 {
        self.nodes.iter().filter(|node| !matches!(node, ExprNode::Input(_) | ExprNode::Constant(_))).count() as u32
    }

    /// Instructions per element.
    pub fn instructions(&self) -> u32 {
        self.sum(Unary::instructions, Binary::instructions, 2)
    }

    /// Instructions of special-function units per element, included in [`Expression::instructions`].
    pub fn special(&self) -> u32 {
        self.sum(Unary::special, Binary::special, 0)
    }

    fn sum(&self, unary: fn(Unary) -> u32, binary: fn(Binary) -> u32, select: u32) -> u32 {
        let of = |node: &ExprNode| match *node {
            ExprNode::Unary(function, _) => unary(function),
            ExprNode::Binary(function, ..) => binary(function),
            ExprNode::Select(..) => select,
            ExprNode::Input(_) | ExprNode::Constant(_) => 0,
        };
        self.nodes.iter().map(of).sum()
    }

    /// Evaluates the expression for `count` elements of each input and returns the values of the first output. `room`
    /// receives the values of all nodes and can be reused; [`Expression::values`] returns those of other outputs from
    /// it.
    pub fn evaluate<'a>(&self, count: usize, inputs: &[&[f64]], room: &'a mut Vec<f64>) -> &'a [f64] {
        room.resize(self.nodes.len().max(1) * count, 0.0);
        for (number, node) in self.nodes.iter().enumerate() {
            let (earlier, later) = room.split_at_mut(number * count);
            let (at, values) = (|index: u16| &earlier[usize::from(index) * count..][..count], &mut later[..count]);
            match *node {
                ExprNode::Input(index) => values.copy_from_slice(inputs[usize::from(index)]),
                ExprNode::Constant(index) => values.fill(self.constants[usize::from(index)]),
                ExprNode::Unary(function, x) => function.apply_all(at(x), values),
                ExprNode::Binary(function, x, y) => function.apply_all(at(x), at(y), values),
                ExprNode::Select(condition, yes, no) => {
                    let elements = at(condition).iter().zip(at(yes)).zip(at(no));
                    for (value, ((condition, yes), no)) in values.iter_mut().zip(elements) {
                        *value = if *condition != 0.0 { *yes } else { *no };
                    }
                }
            }
        }
        self.values(0, count, room)
    }

    /// Values of an output for `count` elements, from the buffer that [`Expression::evaluate`] filled.
    pub fn values<'a>(&self, output: usize, count: usize, room: &'a [f64]) -> &'a [f64] {
        &room[usize::from(self.outputs[output]) * count..][..count]
    }

    /// Evaluates one element with an error bound for a device that computes in `precision`, and returns the first
    /// output. `values` receives the values of all nodes.
    pub fn enclose(&self, precision: Precision, inputs: &[f64], values: &mut Vec<Ball>) -> Ball {
        self.propagate(precision, |input| Ball::exact(inputs[input]), values)
    }

    /// Evaluates one element as [`Expression::enclose`] does, for inputs that may contain rounding errors already.
    pub fn propagate(&self, precision: Precision, input: impl Fn(usize) -> Ball, values: &mut Vec<Ball>) -> Ball {
        values.clear();
        for node in &self.nodes {
            let at = |index: u16| values[usize::from(index)];
            let value = match *node {
                ExprNode::Input(index) => input(usize::from(index)),
                ExprNode::Constant(index) => precision.constant(self.constants[usize::from(index)]),
                ExprNode::Unary(function, x) => precision.unary(function, at(x)),
                ExprNode::Binary(function, x, y) => precision.binary(function, at(x), at(y)),
                ExprNode::Select(condition, yes, no) => Precision::select(at(condition), at(yes), at(no)),
            };
            values.push(value);
        }
        values[usize::from(self.outputs[0])]
    }

    /// Returns a C function that evaluates the expression. `head` is its text before the type, such as `__device__ inline`. Its arguments
    /// are an element of each of `inputs` inputs, the constants, and references to the outputs if there are several.
    pub fn c_function(&self, head: &str, name: &str, inputs: usize) -> String {
        let outputs = self.outputs.len();
        let arguments =
            (0..inputs).map(|i| format!("C x{i}")).chain((0..self.constants.len()).map(|i| format!("C c{i}")));
        let arguments = arguments.chain((0..outputs).filter(|_| outputs > 1).map(|i| format!("C& r{i}")));
        let result = if outputs > 1 { "void" } else { "C" };
        format!("{head} {result} {name}({}) {{\n{}}}\n", arguments.collect::<Vec<_>>().join(", "), self.c_text())
    }

    /// Returns the body of a C function of `x0`, `x1`, … and `c0`, `c1`, … of type `C`. A single output is returned;
    /// several are assigned to `r0`, `r1`, …
    pub fn c_text(&self) -> String {
        let mut text = String::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let value = match *node {
                ExprNode::Input(input) => format!("x{input}"),
                ExprNode::Constant(constant) => format!("c{constant}"),
                ExprNode::Unary(function, x) => format!("f_{}(v{x})", function.name()),
                ExprNode::Binary(function, x, y) => format!("f_{}(v{x}, v{y})", function.name()),
                ExprNode::Select(condition, yes, no) => format!("v{condition} != C(0) ? v{yes} : v{no}"),
            };
            let _ = writeln!(text, "  C v{index} = {value};");
        }
        // Writing to a string does not fail.
        let _ = match &*self.outputs {
            [only] => writeln!(text, "  return v{only};"),
            several => {
                several.iter().enumerate().try_for_each(|(output, node)| writeln!(text, "  r{output} = v{node};"))
            }
        };
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evaluates_and_shares() {
        let mut expression = Expression::default();
        let x = expression.push(ExprNode::Input(0)).unwrap();
        let two = expression.push_constant(2.0).unwrap();
        let square = expression.push(ExprNode::Binary(Binary::Multiply, x, x)).unwrap();
        assert_eq!(expression.push(ExprNode::Binary(Binary::Multiply, x, x)), Some(square));
        let sum = expression.push(ExprNode::Binary(Binary::Add, square, two)).unwrap();
        expression.finish(sum);
        assert_eq!(expression.evaluate(2, &[&[3.0, -1.0]], &mut Vec::new()), [11.0, 3.0]);
        assert_eq!((expression.flops(), expression.instructions(), expression.special()), (2, 2, 0));
        let root = expression.push(ExprNode::Unary(Unary::Sqrt, sum)).unwrap();
        expression.finish(root);
        assert_eq!((expression.flops(), expression.instructions(), expression.special()), (3, 12, 1));
        // Uses two outputs, the second of which depends on the first.
        let mut room = Vec::new();
        assert_eq!(expression.evaluate(2, &[&[1.0, -1.0]], &mut room), [3.0, 3.0]);
        assert_eq!(expression.values(1, 2, &room), [3f64.sqrt(), 3f64.sqrt()]);
        assert!(expression.c_text().ends_with("  r0 = v3;\n  r1 = v4;\n"));
        assert_eq!(expression.inputs_of(0), [0]);
    }

    #[test]
    fn gelu_is_the_exact_one() {
        assert!((Unary::Gelu.apply(1.0) - 0.841_344_746_068_543).abs() < 1e-12);
        assert_eq!(Binary::Remainder.apply(-1.0, 4.0), 3.0);
    }
}
