//! Generates declarations of kernels and calls of them.

use super::Generator;
use super::operations::{TYPES, Use};

impl Generator<'_> {
    /// Declares a kernel of two dimensions.
    pub fn kernel(&mut self) {
        let (name, dtype) = (self.fresh("k"), self.choices.pick(&TYPES));
        let dtype = if self.choices.once_in(2) { self.dtype } else { dtype };
        let (grid, block) =
            self.choices.pick(&[("[c, r]", "1"), ("r * c", "[1, 1, 1]"), ("ceil_div(c, 32)", "[32, min(r, 32)]")]);
        let cost = self.choices.pick(&[
            "",
            ", flops: 2 * r * c",
            ", bytes: 64KiB, shared: 16B",
            ", time: 5us",
            ", args: [v, r * c, a, u]",
        ]);
        let reference = self.choices.pick(&["", ", reference: map(a * u)", ", reference: map(u + 1),"]);
        let quotes = self.choices.pick(&["\"", "\"\"\""]);
        self.add(&format!(
            "kernel {name}(u: {dtype}[r, c], a: f32 -> v: {dtype}[r, c]) {{ grid: {grid}, block: {block}{cost}, source: \
             {quotes}void {name}(){quotes}{reference} }}"
        ));
        self.kernels.push((name, dtype));
    }

    /// Calls a declared kernel.
    pub fn call_kernel(&mut self) -> Use {
        let Some((name, dtype)) = self.kernels.last().cloned() else { return Use::new("nop()".to_owned()) };
        let x = self.operand(&[dtype], |x| x.space != "host" && !x.gaps && x.dims.len() == 2);
        let number = self.choices.pick(&["2", "0.5", "1 / 3"]);
        let out = self.result(&x, &[&x]);
        let scratch = if out.is_empty() { vec![("", x.dtype, x.dims)] } else { vec![] };
        Use { text: format!("{name}({}, {number}{out})", x.name), scratch }
    }
}
