//! Generates operands: earlier tensors, slices of them, and new memory.

use super::Generator;
use super::operations::tensor_type;

/// A tensor that statements can use.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub name: String,
    pub dtype: &'static str,
    pub dims: Vec<u64>,
    pub space: &'static str,
    /// True if its elements are not contiguous.
    pub gaps: bool,
    /// Number of the memory that contains it; 0 for a bare type. An operation must not write a memory that it reads.
    pub memory: usize,
    pub writable: bool,
    /// True if it is a whole declared buffer.
    pub declared: bool,
}

impl Tensor {
    /// True for a bare type, which is memory of its own at each place.
    pub fn is_bare(&self) -> bool {
        self.memory == 0
    }

    /// True if both have the same element type and sizes.
    pub fn fits(&self, other: &Tensor) -> bool {
        self.dtype == other.dtype && self.dims == other.dims
    }
}

impl Generator<'_> {
    /// Returns a slice of a known tensor that satisfies `accept`; `None` if none is found.
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

    /// Generates an input: a tensor of one of these types that satisfies `accept`, or new memory of the first type.
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

    /// Generates ` -> NAME` of a writable tensor with the type of `like`, or an empty text for scratch memory.
    pub fn result(&mut self, like: &Tensor, inputs: &[&Tensor]) -> String {
        match self.choices.once_in(2) {
            true => self.written(like, inputs).map_or_else(String::new, |name| format!(" -> {name}")),
            false => String::new(),
        }
    }

    /// A writable tensor with the type of `like` that does not overlap the inputs; `None` if there is none.
    pub fn written(&mut self, like: &Tensor, inputs: &[&Tensor]) -> Option<String> {
        let apart = |y: &Tensor| inputs.iter().all(|x| x.memory != y.memory);
        let found = self.any_tensor(|y| y.writable && !y.gaps && y.space == "device" && apart(y) && y.fits(like));
        found.map(|tensor| tensor.name)
    }

    pub fn part(&mut self, whole: Tensor) -> Tensor {
        let [first, rest @ ..] = &whole.dims[..] else { return whole };
        let (first, name) = (*first, &whole.name);
        // A slice of a part has no gaps.
        let is_part = name.contains('.');
        let (name, dims, gaps) = match (self.choices.below(10), rest) {
            (4, [_, ..]) => (format!("{name}[{}]", self.index(first)), rest.to_vec(), false),
            (5, _) if first >= 4 => {
                let from = self.index(first - 1);
                (format!("{name}[{from}..{from} + 2]"), [&[2], rest].concat(), false)
            }
            (6, [second, ..]) if !is_part => {
                let dims = [&[first][..], &rest[1..]].concat();
                (format!("{name}[.., {}]", self.index(*second)), dims, true)
            }
            (7, [second, ..]) if *second >= 8 && !is_part => {
                (format!("{name}[.., 4..8]"), [&[first, 4][..], &rest[1..]].concat(), true)
            }
            (8, _) if first >= 4 => (format!("{name}[1..=2]"), [&[2], rest].concat(), false),
            _ => return whole,
        };
        Tensor { name, dims, gaps: gaps || whole.gaps, declared: false, ..whole }
    }
}
