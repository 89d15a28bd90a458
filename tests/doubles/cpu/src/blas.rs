//! Matrix products as plain loops, in columns as the libraries think.

use crate::element::Element;

/// An operand in memory.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    pub address: usize,
    pub element: Element,
    /// The distance between columns, in elements.
    pub leading: usize,
    /// The distance between the matrices of a batch, in elements.
    pub stride: i64,
    /// True if the product uses the transpose of the matrix in memory.
    pub transposed: bool,
}

impl Matrix {
    /// The matrix of one product of the batch, `rows` × `columns`, row by row as single or double precision has it.
    ///
    /// # Safety
    /// All of it is memory that may be read.
    unsafe fn read(&self, number: usize, rows: usize, columns: usize) -> Vec<f64> {
        let start = self.start(number);
        let mut values = Vec::with_capacity(rows * columns);
        for row in 0..rows {
            for column in 0..columns {
                let index = if self.transposed { row * self.leading + column } else { column * self.leading + row };
                // SAFETY: the caller vouches for the memory.
                values.push(unsafe { self.element.load(start, index) });
            }
        }
        values
    }

    fn start(&self, number: usize) -> usize {
        let elements = self.stride * number as i64;
        self.address.wrapping_add_signed(elements as isize * self.element.size() as isize)
    }
}

/// The function that an epilogue applies to each element.
#[derive(Clone, Copy, Debug)]
pub enum Function {
    Identity,
    Relu,
    /// By `tanh`, as the libraries approximate it.
    Gelu,
}

impl Function {
    fn apply(self, x: f64) -> f64 {
        match self {
            Function::Identity => x,
            Function::Relu => {
                if x < 0.0 {
                    0.0
                } else {
                    x
                }
            }
            Function::Gelu => {
                let inner = std::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044715 * x.powi(3));
                0.5 * x * (1.0 + inner.tanh())
            }
        }
    }
}

/// `d = function(alpha · a · b + beta · c + bias)`, for each matrix of a batch: `m` × `k` times `k` × `n`.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub batch: usize,
    pub alpha: f64,
    pub beta: f64,
    pub a: Matrix,
    pub b: Matrix,
    pub c: Matrix,
    pub d: Matrix,
    /// Products are formed and added up in double precision, or else in single.
    pub double: bool,
    /// Address of an element for each row of `d`, of its type; 0 without a bias.
    pub bias: usize,
    /// Addresses of factors in single precision, of `a` and of `b`; 0 without. With `each`, one for each row and column.
    pub scales: [usize; 2],
    pub each: bool,
    pub function: Function,
}

impl Product {
    /// # Safety
    /// The operands are memory of the sizes that the product says, and nobody writes them meanwhile.
    pub unsafe fn run(&self) {
        for number in 0..self.batch {
            // SAFETY: the caller vouches for the memory.
            unsafe {
                let a = self.a.read(number, self.m, self.k);
                // Both are walked along `k`.
                let turned = Matrix { transposed: !self.b.transposed, ..self.b };
                let b = turned.read(number, self.n, self.k);
                if self.double { self.one(number, &a, &b, dot) } else { self.single(number, &a, &b) }
            }
        }
    }

    /// # Safety
    /// As for [`Product::run`].
    unsafe fn single(&self, number: usize, a: &[f64], b: &[f64]) {
        let narrow = |values: &[f64]| values.iter().map(|&value| value as f32).collect::<Vec<f32>>();
        // SAFETY: the caller vouches for the memory.
        unsafe { self.one(number, &narrow(a), &narrow(b), dot_single) };
    }

    /// # Safety
    /// As for [`Product::run`].
    unsafe fn one<T>(&self, number: usize, a: &[T], b: &[T], dot: fn(&[T], &[T]) -> f64) {
        let (from, to) = (self.c.start(number), self.d.start(number));
        for column in 0..self.n {
            for row in 0..self.m {
                let sum = dot(&a[row * self.k..][..self.k], &b[column * self.k..][..self.k]);
                // SAFETY: the caller vouches for the memory.
                unsafe {
                    let old = match self.beta {
                        0.0 => 0.0,
                        beta => beta * self.c.element.load(from, column * self.c.leading + row),
                    };
                    let bias = if self.bias == 0 { 0.0 } else { self.d.element.load(self.bias, row) };
                    let factor = |side: usize, place: usize| match self.scales[side] {
                        0 => 1.0,
                        address => Element::F32.load(address, if self.each { place } else { 0 }),
                    };
                    let sum = sum * factor(0, row) * factor(1, column);
                    let value = self.function.apply(self.alpha * sum + old + bias);
                    self.d.element.store(to, column * self.d.leading + row, value);
                }
            }
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn dot_single(a: &[f32], b: &[f32]) -> f64 {
    // Eight sums side by side, as the compiler can put them into one register.
    let mut sums = [0.0f32; 8];
    let (whole, rest) = (a.chunks_exact(8).zip(b.chunks_exact(8)), a.len() / 8 * 8);
    for (a, b) in whole {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let tail: f32 = a[rest..].iter().zip(&b[rest..]).map(|(a, b)| a * b).sum();
    f64::from(sums.iter().sum::<f32>() + tail)
}
