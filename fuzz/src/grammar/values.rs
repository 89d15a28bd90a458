//! Generates expressions with a known value, so that statements that use them are valid.

use super::Generator;

/// Maximum nesting of expressions.
const MAX_DEPTH: usize = 4;

/// Examples of numbers with every unit, grouped by dimension.
pub const QUANTITIES: &[&[&str]] = &[
    &["500ns", "10us", "1ms", "0.25s"],
    &["512B", "4KB", "4KiB", "2MB", "2MiB", "1GB", "1GiB", "1TB", "1TiB"],
    &["64B/s", "64KB/s", "64MB/s", "4GB/s", "1TB/s"],
    &["1000FLOP", "3MFLOP", "2GFLOP", "1TFLOP"],
    &["9FLOP/s", "9GFLOP/s", "9TFLOP/s"],
    &["80%", "0.5", "1e-3", "3"],
];

/// Functions from one positive plain number to a plain number.
const FUNCTIONS: &[&str] = &[
    "sqrt", "rsqrt", "exp", "log", "log2", "sin", "cos", "tanh", "erf", "sigmoid", "relu", "gelu", "silu", "abs",
    "floor", "ceil", "round",
];

impl Generator<'_> {
    /// Generates an expression with the whole number `value`.
    pub fn whole(&mut self, value: u64) -> String {
        self.whole_at(value, 0)
    }

    fn whole_at(&mut self, value: u64, depth: usize) -> String {
        if depth == MAX_DEPTH {
            return value.to_string();
        }
        let more = self.choices.below(7) as u64;
        match self.choices.below(24) {
            12 => format!("({} + 0)", self.whole_at(value, depth + 1)),
            13 => format!("({} - {more})", self.whole_at(value + more, depth + 1)),
            14 => format!("min({}, {})", self.whole_at(value, depth + 1), value + more),
            15 => format!("max({value}, {})", value.saturating_sub(more)),
            16 => format!("floor_div({}, {})", value * (more + 1) + more, self.whole_at(more + 1, depth + 1)),
            17 => format!("ceil_div({}, {})", (value * (more + 1)).saturating_sub(more.min(value)), more + 1),
            18 => format!("if {} {{ {value} }} else {{ {value} }}", self.condition()),
            19 => format!("sum([{value}, {more}, -{more}])"),
            20 => format!("[{more}, {value}][{}]", self.whole_at(1, depth + 1)),
            21 if value > 0 => format!("len(0..{value})"),
            22 => format!("({value} * {} / {})", more + 1, self.whole_at(more + 1, depth + 1)),
            23 => format!("({} % {})", value + (value + 1 + more) * more, value + 1 + more),
            _ => match self.whole_named(value) {
                Some(name) if more % 2 == 1 => name,
                _ if value >= 1000 && more == 2 => format!("{}_{:03}", value / 1000, value % 1000),
                _ => value.to_string(),
            },
        }
    }

    /// A parameter or derived value that equals `value`; `None` if there is none.
    fn whole_named(&self, value: u64) -> Option<String> {
        let same = |(_, low, high): &&(String, u64, u64)| *low == value && *high == value;
        self.wholes.iter().rev().find(same).map(|(name, ..)| name.clone())
    }

    /// Generates a whole number below `count` that may differ between loop turns, iterations and ranks.
    pub fn index(&mut self, count: u64) -> String {
        let last = count - 1;
        match self.choices.below(8) {
            3 if self.in_step => format!("iteration % {}", count.min(4)),
            4 if self.in_step && self.together == 0 => format!("rank % {count}"),
            5 | 6 => {
                let fits = |(_, _, high): &&(String, u64, u64)| *high <= last;
                match self.wholes.iter().rev().find(fits) {
                    Some((name, ..)) => name.clone(),
                    None => self.whole(last),
                }
            }
            7 => {
                let value = self.choices.below(last as usize + 1) as u64;
                self.whole(value)
            }
            other => (other as u64).min(last).to_string(),
        }
    }

    /// Generates a condition that is the same on every rank.
    pub fn condition(&mut self) -> String {
        let quantity = self.choices.pick(QUANTITIES);
        match self.choices.below(12) {
            1 => "false".to_owned(),
            2 => "world > 1".to_owned(),
            3 if self.in_step => format!("iteration % {} == 0", self.choices.below(3) + 2),
            4 if self.in_step => "iteration > 1".to_owned(),
            5 => format!("not {}", self.choices.pick(&["true", "false", "(world == 2)"])),
            6 => format!("world > {} and true", self.choices.below(3)),
            7 => "1 <= 2 or 1 != 1".to_owned(),
            8 => {
                let sign = self.choices.pick(&["<", "<=", ">", ">=", "==", "!="]);
                format!("{} {sign} {}", self.choices.pick(quantity), self.choices.pick(quantity))
            }
            9 => match self.wholes.last() {
                Some((name, ..)) => format!("{name} < 2"),
                None => "sizeof(f32) == 4B".to_owned(),
            },
            10 if self.has_mode => "mode == slow".to_owned(),
            11 => "\"a\" == \"b\"".to_owned(),
            _ => "true".to_owned(),
        }
    }

    /// Generates a quantity with a unit of [`QUANTITIES`]`[kind]`.
    pub fn quantity(&mut self, kind: usize) -> String {
        let (first, second) = (self.choices.pick(QUANTITIES[kind]), self.choices.pick(QUANTITIES[kind]));
        match self.choices.below(8) {
            3 => format!("{first} + {second}"),
            4 => format!("max({first}, {second})"),
            5 => format!("2 * {first}"),
            6 => format!("{first} / {}", self.choices.below(3) + 1),
            7 => format!("if {} {{ {first} }} else {{ {second} }}", self.condition()),
            _ => first.to_owned(),
        }
    }

    /// Generates a value of any type for a `let` that nothing uses.
    pub fn any_value(&mut self) -> String {
        let first = self.choices.below(QUANTITIES.len());
        match self.choices.below(14) {
            1 => format!("({}) / {}", self.quantity(first), self.choices.pick(QUANTITIES[first])),
            2 => format!("{}({})", self.choices.pick(FUNCTIONS), self.choices.pick(&["0.5", "2", "1e2"])),
            3 => "pow(2, 0.5)".to_owned(),
            4 => "mean([1, 2, 6])".to_owned(),
            5 => format!("sizeof({}) * 3", self.choices.pick(&["f32", "bf16[4, 8]", "dtype", "u8[2]"])),
            6 => "[1, 2, 3] * 2".to_owned(),
            7 => "rev([1, 2, 3])[0..2]".to_owned(),
            8 => "max([1, 5], [3, 4])".to_owned(),
            9 => "\"two \\\"words\\\"\"".to_owned(),
            10 => "\"\"\"over\nlines\"\"\"".to_owned(),
            11 => "-(2 + 3) * 4 - -1".to_owned(),
            12 => "not true or 7 / 2 > 3.4".to_owned(),
            13 => "abs(-3us)".to_owned(),
            _ => self.quantity(first),
        }
    }
}
