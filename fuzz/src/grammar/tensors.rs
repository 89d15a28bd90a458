//! Operands: tensors that stand above, parts of them, and memory of their own.

use super::Maker;
use super::operations::tensor_type;

/// A tensor that statements may name.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub name: String,
    pub dtype: &'static str,
    pub dims: Vec<u64>,
    pub space: &'static str,
    /// Whether its elements do not lie side by side.
    pub gaps: bool,
    /// What it is a part of: an operation does not write what it reads.
    pub memory: usize,
    pub writable: bool,
    /// Whether it is a declared buffer, whole.
    pub declared: bool,
}

impl Tensor {
    /// Whether both have one element type and the same sizes.
    pub fn fits(&self, other: &Tensor) -> bool {
        self.dtype == other.dtype && self.dims == other.dims
    }
}

impl Maker<'_> {
    /// A part of a tensor that is accepted, if there is one.
    pub fn any_tensor(&mut self, accept: impl Fn(&Tensor) -> bool) -> Option<Tensor> {
        if self.tensors.is_empty() {
            return None;
        }
        for _ in 0..3 {
            let back = self.choices.below(self.tensors.len());
            let whole = self.tensors[self.tensors.len() - 1 - back].clone();
            let part = self.part(whole);
            if accept(&part) {
                return Some(part);
            }
        }
        self.tensors.iter().rev().find(|tensor| accept(tensor)).cloned()
    }

    /// An input: a tensor of one of these types that is accepted, or memory of its own of the first of them.
    pub fn operand(&mut self, types: &[&'static str], accept: impl Fn(&Tensor) -> bool) -> Tensor {
        let found = match self.choices.once_in(8) {
            true => None,
            false => self.any_tensor(|tensor| types.contains(&tensor.dtype) && accept(tensor)),
        };
        found.unwrap_or_else(|| {
            let (dtype, dims) = (types[0], vec![8, 16]);
            let name = tensor_type(dtype, &dims);
            Tensor { name, dtype, dims, space: "device", gaps: false, memory: 0, writable: false, declared: false }
        })
    }

    /// ` -> NAME` of something to write that is like `like`, or nothing, which is memory of its own.
    pub fn result(&mut self, like: &Tensor, inputs: &[&Tensor]) -> String {
        match self.choices.once_in(2) {
            true => self.written(like, inputs).map_or_else(String::new, |name| format!(" -> {name}")),
            false => String::new(),
        }
    }

    /// Something to write that is like `like` and apart from the inputs.
    pub fn written(&mut self, like: &Tensor, inputs: &[&Tensor]) -> Option<String> {
        let apart = |y: &Tensor| inputs.iter().all(|x| x.memory != y.memory);
        let found = self.any_tensor(|y| y.writable && !y.gaps && y.space == "device" && apart(y) && y.fits(like));
        found.map(|tensor| tensor.name)
    }

    pub fn part(&mut self, whole: Tensor) -> Tensor {
        let [first, rest @ ..] = &whole.dims[..] else { return whole };
        let (first, name) = (*first, &whole.name);
        let (name, dims, gaps) = match (self.choices.below(10), rest) {
            (4, [_, ..]) => (format!("{name}[{}]", self.index(first)), rest.to_vec(), false),
            (5, _) if first >= 4 => {
                let from = self.index(first - 1);
                (format!("{name}[{from}..{from} + 2]"), [&[2], rest].concat(), false)
            }
            (6, [second, ..]) => {
                let dims = [&[first][..], &rest[1..]].concat();
                (format!("{name}[.., {}]", self.index(*second)), dims, true)
            }
            (7, [second, ..]) if *second >= 8 => {
                (format!("{name}[.., 4..8]"), [&[first, 4][..], &rest[1..]].concat(), true)
            }
            (8, _) if first >= 4 => (format!("{name}[1..=2]"), [&[2], rest].concat(), false),
            _ => return whole,
        };
        Tensor { name, dims, gaps: gaps || whole.gaps, declared: false, ..whole }
    }
}
