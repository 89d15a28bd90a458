//! Random programs of many chains of operations. Each chain has its own buffers, and its operations use each other's
//! results. All operations of the catalogue occur, with all types, odd sizes, broadcasts, strided slices, values of
//! different magnitudes, cancelling terms, and in-place updates.

mod operations;

use aorta::base::DType;

use crate::random::Random;

/// Properties of a generated program.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub chains: usize,
    /// Maximum number of operations of a chain.
    pub operations: usize,
    /// Number of ranks; with several, chains contain collectives.
    pub ranks: u64,
}

/// A tensor that a chain can use.
#[derive(Clone, Debug)]
struct Tensor {
    /// The name or slice in source form.
    text: String,
    dtype: DType,
    dims: Vec<u64>,
    /// True for a whole buffer, which can be sliced.
    whole: bool,
    /// True if it is in device memory.
    near: bool,
}

impl Tensor {
    fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    fn last(&self) -> u64 {
        self.dims.last().copied().unwrap_or(1)
    }

    fn rank(&self) -> usize {
        self.dims.len()
    }
}

/// Streams of a program.
const STREAMS: usize = 8;

/// Maximum number of elements of a tensor.
const ELEMENTS: u64 = 6000;

const SIZES: [u64; 14] = [1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 33, 64, 65, 100];
const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

/// All types but the floats of 8 bits: chains of operations overflow them.
const TYPES: [DType; 8] =
    [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32, DType::I8, DType::U8];
const INITS: [&str; 8] = ["", "1", "0.001", "1000", "0.03", "30", "1e-6", "3"];

/// The program of a seed.
pub fn text(seed: u64, shape: &Shape) -> String {
    let mut random = Random::new(seed);
    let cycle = random.of(&[1, 1, 1, 2, 3]);
    let options = random.of(&["", "", "(sync: end, depth: 2)"]);
    let (mut buffers, mut steps) = (String::new(), String::new());
    for number in 0..shape.chains {
        let mut chain = Chain { number, cycle, ranks: shape.ranks, random, ..Chain::default() };
        chain.write(shape.operations);
        random = chain.random;
        buffers += &chain.buffers;
        steps += &chain.steps;
    }
    format!("stream s[{STREAMS}]\n{buffers}step{options} {{\n{steps}}}\n")
}

/// The chain that a name belongs to, such as `c12_b3` or `output of c12_4`; `None` for any other name.
pub fn chain_of(name: &str) -> Option<usize> {
    let at = name.split(' ').find(|word| word.starts_with('c') && word.contains('_'))?;
    at[1..].split('_').next()?.parse().ok()
}

#[derive(Debug)]
struct Chain {
    number: usize,
    cycle: u64,
    ranks: u64,
    random: Random,
    buffers: String,
    steps: String,
    /// Number of buffers, and of operations.
    declared: usize,
    written: usize,
    tensors: Vec<Tensor>,
}

impl Default for Chain {
    fn default() -> Self {
        Chain {
            number: 0,
            cycle: 1,
            ranks: 1,
            random: Random::new(0),
            buffers: String::new(),
            steps: String::new(),
            declared: 0,
            written: 0,
            tensors: Vec::new(),
        }
    }
}

impl Chain {
    fn write(&mut self, most: usize) {
        for _ in 0..2 {
            let (dtype, dims) = (self.dtype(), self.dims());
            let tensor = self.buffer(dtype, &dims);
            self.tensors.push(tensor);
        }
        let wanted = self.random.between(1, most as u64) as usize;
        for _ in 0..4 * wanted {
            if self.written >= wanted {
                return;
            }
            self.operation();
        }
    }

    // --- Tensors ----------------------------------------------------------------------------------------------

    fn dtype(&mut self) -> DType {
        if self.random.once_in(6) { self.random.of(&TYPES) } else { self.random.of(&FLOATS) }
    }

    fn dims(&mut self) -> Vec<u64> {
        let rank = self.random.of(&[1, 2, 2, 2, 3]);
        // Occasionally long rows.
        if self.random.once_in(12) {
            let (rows, columns) = (self.random.between(1, 3), self.random.between(300, 2600));
            return vec![rows, columns];
        }
        let mut dims = Vec::new();
        for _ in 0..rank {
            let room = ELEMENTS / dims.iter().product::<u64>();
            let fits: Vec<u64> = SIZES.iter().copied().filter(|size| *size <= room).collect();
            dims.push(self.random.of(&fits));
        }
        dims
    }

    /// A new buffer with random contents.
    fn buffer(&mut self, dtype: DType, dims: &[u64]) -> Tensor {
        let init = match self.random.below(10) {
            0 => " = ones".to_owned(),
            1 => " = iota".to_owned(),
            _ => match self.random.of(&INITS) {
                "" => String::new(),
                deviation => format!(" = random({}, {deviation})", self.random.between(1, 1_000_000)),
            },
        };
        self.declare(dtype, dims, "", &init)
    }

    /// A new buffer for results.
    fn target(&mut self, dtype: DType, dims: &[u64]) -> Tensor {
        self.declare(dtype, dims, "", " = zeros")
    }

    fn declare(&mut self, dtype: DType, dims: &[u64], space: &str, init: &str) -> Tensor {
        let name = format!("c{}_b{}", self.number, self.declared);
        self.declared += 1;
        let sizes = list(dims);
        self.buffers += &format!("buffer {name}: {dtype}[{sizes}]{space}{init}\n");
        Tensor { text: name, dtype, dims: dims.to_vec(), whole: true, near: space.is_empty() }
    }

    /// A tensor that satisfies `fits`, or a slice of one.
    fn pick(&mut self, fits: impl Fn(&Tensor) -> bool) -> Option<Tensor> {
        let found: Vec<Tensor> = self.tensors.iter().filter(|tensor| fits(tensor)).cloned().collect();
        if found.is_empty() {
            return None;
        }
        // Prefers the latest tensor, so that chains are deep.
        let place = if self.random.once_in(2) { found.len() - 1 } else { self.random.below(found.len()) };
        let tensor = found[place].clone();
        match tensor.whole && self.random.once_in(3) {
            true => Some(self.slice(&tensor)).filter(&fits).or(Some(tensor)),
            false => Some(tensor),
        }
    }

    /// A slice of a buffer: one index of a dimension, or a range of it.
    fn slice(&mut self, tensor: &Tensor) -> Tensor {
        let mut dims = tensor.dims.clone();
        let axis = self.random.below(dims.len());
        let size = dims[axis];
        let mut indices: Vec<String> = vec!["..".to_owned(); dims.len()];
        if dims.len() > 1 && self.random.once_in(3) {
            indices[axis] = match self.cycle > 1 && size >= self.cycle {
                true => format!("iteration % {}", self.cycle),
                false => self.random.between(0, size - 1).to_string(),
            };
            dims.remove(axis);
        } else {
            let from = self.random.between(0, size - 1);
            let to = self.random.between(from + 1, size);
            indices[axis] = format!("{from}..{to}");
            dims[axis] = to - from;
        }
        let text = format!("{}[{}]", tensor.text, indices.join(", "));
        Tensor { text, dims, whole: false, ..tensor.clone() }
    }

    /// Memory for a result: scratch, a buffer of its own, or a part of a larger one whose other elements must stay
    /// unchanged.
    fn place(&mut self, dtype: DType, dims: &[u64]) -> Option<Tensor> {
        match self.random.below(3) {
            0 => None,
            1 => Some(self.target(dtype, dims)),
            _ => {
                let mut larger: Vec<u64> = dims.to_vec();
                let axis = self.random.below(dims.len());
                let from = self.random.between(0, 3);
                larger[axis] += from + self.random.between(0, 3);
                let around = self.buffer(dtype, &larger);
                let mut indices: Vec<String> = vec!["..".to_owned(); dims.len()];
                indices[axis] = format!("{from}..{}", from + dims[axis]);
                let text = format!("{}[{}]", around.text, indices.join(", "));
                Some(Tensor { text, dims: dims.to_vec(), whole: false, ..around })
            }
        }
    }

    /// Writes an operation with a single result of that type and shape.
    fn emit(&mut self, call: &str, options: &str, dtype: DType, dims: &[u64], to: Option<Tensor>) {
        let label = self.label();
        let stream = self.random.below(STREAMS);
        let arrow = to.as_ref().map_or(String::new(), |to| format!(" -> {}", to.text));
        self.steps += &format!("  on s[{stream}] {{ {label}: {call}{arrow}{options}) }}\n");
        self.tensors.push(match to {
            Some(to) => to,
            None => Tensor { text: label, dtype, dims: dims.to_vec(), whole: false, near: true },
        });
    }

    fn label(&mut self) -> String {
        self.written += 1;
        format!("c{}_{}", self.number, self.written - 1)
    }
}

fn list<T: ToString>(values: &[T]) -> String {
    values.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}
