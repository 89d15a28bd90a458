//! Initial contents of memory, before the first iteration.

use std::sync::Arc;

use crate::base::DType;
use crate::base::random::{SUM_DEVIATION, bell, hash};

use super::kernels::kernel::{BLOCK, c_type, kernel, param, u64_param};
use super::{Arg, Kernel};

/// Number of listed values that one launch writes.
const LISTED: usize = 64;

/// Initial contents of a buffer.
#[derive(Clone, Debug, PartialEq)]
pub enum Init {
    /// Normally distributed values with mean 0 and this standard deviation; for integers, uniform from 0 to 99.
    Random {
        seed: u64,
        deviation: f64,
    },
    Zeros,
    Ones,
    /// 0, 1, 2, …
    Iota,
    /// Listed numbers, from the first element on; after the last number, the first one follows again.
    Listed(Arc<[f64]>),
}

impl Init {
    /// Contents that a file names by a word.
    pub const WORDS: [&str; 4] = ["zeros", "ones", "iota", "random"];

    /// Initial contents on a rank. Random contents differ between ranks; those of rank 0 equal a run with one rank.
    pub fn of_rank(&self, rank: u32) -> Init {
        match *self {
            Init::Random { seed, deviation } if rank > 0 => {
                Init::Random { seed: hash(seed, u64::from(rank)), deviation }
            }
            _ => self.clone(),
        }
    }

    /// Value of element `index`. The kernel computes the same bits.
    pub fn value(&self, dtype: DType, index: u64) -> f64 {
        match *self {
            Init::Random { seed, deviation } if dtype.is_float() => f64::from(bell(seed, index) * deviation as f32),
            Init::Random { seed, .. } => (hash(seed, index) % 100) as f64,
            Init::Zeros => 0.0,
            Init::Ones => 1.0,
            Init::Iota => index as f64,
            Init::Listed(ref numbers) => dtype.round(numbers[(index % numbers.len() as u64) as usize]),
        }
    }

    /// Returns the kernels that fill `elements` elements of operand 0. Each writes elements of its own.
    pub fn kernels(&self, dtype: DType, elements: u64) -> Vec<Kernel> {
        match self {
            Init::Listed(numbers) => listed(numbers, dtype, elements),
            _ => vec![self.computed(dtype, elements)],
        }
    }

    /// Returns the kernel for contents that a formula determines.
    fn computed(&self, dtype: DType, elements: u64) -> Kernel {
        let compute = if dtype.is_float() { "f32" } else { "f64" };
        let (name, value, seed, deviation) = match *self {
            Init::Random { seed, deviation } if dtype.is_float() => {
                ("init_random", "bell(seed, i) * scale", seed, deviation as f32)
            }
            Init::Random { seed, .. } => ("init_random_whole", "(f64)(hash(seed, i) % 100)", seed, 0.0),
            Init::Zeros => ("init_zeros", "C(0)", 0, 0.0),
            Init::Ones => ("init_ones", "C(1)", 0, 0.0),
            Init::Iota => ("init_iota", "(f64)i", 0, 0.0),
            Init::Listed(_) => unreachable!("listed numbers have kernels of their own"),
        };
        let compute = if matches!(self, Init::Iota) { "f64" } else { compute };
        let scale = (1.0f32 / SUM_DEVIATION).to_bits();
        let before = format!(
            r#"typedef {compute} C;
__device__ inline u64 hash(u64 seed, u64 index) {{
  u64 z = seed * 0xd1b54a32d192ed03ull + (index + 1ull) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}}
__device__ inline f32 bell(u64 seed, u64 index) {{
  u64 bits = hash(seed, index);
  u64 sum = (bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) + (bits >> 48);
  return ((f32)sum - 131070.0f) * bits_to_float({scale:#x}u);
}}
"#
        );
        let params = [
            param(format!("{}* x", c_type(dtype)), Arg::Operand(0)),
            u64_param("seed", seed),
            param("f32 scale", Arg::F32(deviation)),
            u64_param("n", elements),
        ];
        let body = format!(
            "  for (u64 i = GLOBAL_INDEX; i < n; i += (u64)gridDim.x * blockDim.x) store<C>(x[i], (C)({value}));\n"
        );
        let blocks = elements.div_ceil(u64::from(BLOCK)).clamp(1, 1 << 16);
        kernel(name, &before, &params, &body, blocks, BLOCK)
    }
}

/// Returns the kernels that write numbers to the elements of operand 0, again and again from the first number on. The numbers are
/// arguments, so that all lists share one source for each element type.
fn listed(numbers: &[f64], dtype: DType, elements: u64) -> Vec<Kernel> {
    let before = format!("struct Numbers {{ f64 of[{LISTED}]; }};\n");
    let body = "  for (u64 i = GLOBAL_INDEX; i < rounds * count; i += (u64)gridDim.x * blockDim.x) {\n    \
                const u64 at = i / count * length + first + i % count;\n    \
                if (at < n) store<f64>(x[at], numbers.of[i % count]);\n  }\n";
    let length = numbers.len() as u64;
    let rounds = elements.div_ceil(length);
    let of_part = |(part, numbers): (usize, &[f64])| {
        let mut words: Vec<u64> = numbers.iter().map(|&number| dtype.round(number).to_bits()).collect();
        words.resize(LISTED, 0);
        let count = numbers.len() as u64;
        let params = [
            param(format!("{}* x", c_type(dtype)), Arg::Operand(0)),
            param("const Numbers numbers", Arg::Words(words)),
            u64_param("first", (part * LISTED) as u64),
            u64_param("count", count),
            u64_param("length", length),
            u64_param("rounds", rounds),
            u64_param("n", elements),
        ];
        let blocks = (rounds * count).div_ceil(u64::from(BLOCK)).clamp(1, 1 << 16);
        kernel("init_listed", &before, &params, body, blocks, BLOCK)
    };
    numbers.chunks(LISTED).enumerate().map(of_part).collect()
}
