//! `work`: a synthetic kernel with a given cost, in place of another kernel.

use crate::base::units::Dimension;

use crate::ops::kernels::kernel::{BLOCK, Parameter, kernel, param, u64_param};
use crate::ops::kernels::occupancy::SECTOR;
use crate::ops::*;

/// `work(flops: n, bytes: m)`, or `work(time: t, units: n, bytes: m)`.
pub struct Work;

/// Bytes per read of a thread.
const PACK: u64 = 16;

/// Maximum number of bytes read in random order: positions have 32 bits.
const MAX_RANDOM: f64 = (1u64 << 36) as f64;

/// The work that a call requests.
struct WorkRequest {
    flops: f64,
    /// Number of reads, each of a [`PACK`].
    packs: u64,
    /// Distance between the positions of reads, in units of [`PACK`].
    step: u64,
    is_random: bool,
    /// Duration; `None` if it is not prescribed.
    time: Option<Nanos>,
    units: u64,
    /// Element type of the matrices if matrix units do the arithmetic; `None` for vector units.
    matrix: Option<DType>,
}

impl WorkRequest {
    fn of(attrs: &Attrs) -> WorkRequest {
        let time = attrs.number("time");
        WorkRequest {
            flops: attrs.number("flops"),
            packs: (attrs.number("bytes").min(1e15) as u64).div_ceil(PACK),
            step: (attrs.number("stride") as u64 / PACK).max(1),
            is_random: attrs.word("access") == "random",
            time: (time > 0.0).then_some(Nanos::rounded(time)),
            units: attrs.int("units") as u64,
            matrix: (attrs.word("unit") == "matrix").then(|| attrs.dtype("dtype").unwrap_or(DType::BF16)),
        }
    }

    fn blocks(&self) -> u64 {
        match self.time {
            Some(_) => self.units,
            // A block has 16 KiB of memory or a fixed amount of arithmetic, so that large work fills a device.
            None => {
                let of_a_block = if self.matrix.is_some() { MATRIX_BLOCK } else { VECTOR_BLOCK };
                ((self.packs as f64 / 1024.0).max(self.flops / of_a_block).ceil() as u64).clamp(1, 8192)
            }
        }
    }

    /// Kernel text of the arithmetic, and arithmetic operations per thread and round.
    fn arithmetic(&self) -> (String, f64) {
        match self.matrix {
            None => (FREE.replace("ARITHMETIC", VECTOR), 16.0),
            Some(_) => (FREE.replace("ARITHMETIC", MATRIX), 512.0),
        }
    }

    /// Kernel text of `multiply`, which adds the product of two small matrices to a third; empty for vector units.
    fn multiply(&self) -> String {
        let Some(dtype) = self.matrix else { return String::new() };
        let (element, suffix) = if dtype == DType::F16 { ("_Float16", "f16") } else { ("short", "bf16_1k") };
        MULTIPLY.replace("TYPE", dtype.name()).replace("ELEMENT", element).replace("SUFFIX", suffix)
    }

    /// Bytes that memory moves, in whole sectors.
    fn moved(&self) -> u64 {
        let alone = self.is_random || self.step * PACK >= SECTOR;
        self.packs * if alone { SECTOR } else { PACK }
    }

    /// Kernel text of `read`, which reads the value with this number.
    fn text(&self) -> String {
        let place = match self.is_random {
            true => {
                "u64 z = (i + 1) * 0x9e3779b97f4a7c15ull;\n  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;\n  \
                     z = (z ^ z >> 27) * 0x94d049bb133111ebull;\n  i = (z >> 32) * packs >> 32;\n  "
            }
            false => "",
        };
        format!(
            "__device__ inline u32 read(const u8* x, u64 i, u64 packs, u64 step) {{\n  {place}\
             Pack<u32, 4> p = ((const Pack<u32, 4>*)x)[i * step];\n  \
             return p.at[0] ^ p.at[1] ^ p.at[2] ^ p.at[3];\n}}\n"
        )
    }
}

/// Arithmetic operations per block of vector units.
const VECTOR_BLOCK: f64 = 1e6;
/// Arithmetic operations per block of matrix units.
const MATRIX_BLOCK: f64 = 16e6;

/// Kernel text: independent reads, then arithmetic on their combination `all`.
const FREE: &str = r#"  u32 sum = 0;
  for (u64 i = GLOBAL_INDEX; i < packs; i += (u64)gridDim.x * blockDim.x) sum += read(x, i, packs, step);
ARITHMETIC  // Never so: the compiler cannot know, and keeps the work.
  if (all == -1.0f && sum == 0x12345u) x[0] = 1;
"#;

/// Kernel text: eight fused multiply-adds per round and thread.
const VECTOR: &str = r#"  f32 a[8];
#pragma unroll
  for (int l = 0; l < 8; l++) a[l] = (f32)(threadIdx.x + l);
  for (u64 r = 0; r < rounds; r++)
#pragma unroll
    for (int l = 0; l < 8; l++) a[l] = a[l] * 0.999f + 0.5f;
  f32 all = 0;
#pragma unroll
  for (int l = 0; l < 8; l++) all += a[l];
"#;

/// Kernel text: four independent products per round, each of 128 operations per thread.
const MATRIX: &str = r#"  f32 d[4][4];
  u32 a[4], b[2];
#pragma unroll
  for (int l = 0; l < 4; l++) a[l] = 0x3c003c00u + threadIdx.x;
#pragma unroll
  for (int l = 0; l < 2; l++) b[l] = 0x34003400u + threadIdx.x;
#pragma unroll
  for (int l = 0; l < 16; l++) d[l / 4][l % 4] = 0;
  for (u64 r = 0; r < rounds; r++)
#pragma unroll
    for (int l = 0; l < 4; l++) multiply(d[l], a, b);
  f32 all = 0;
#pragma unroll
  for (int l = 0; l < 16; l++) all += d[l / 4][l % 4];
"#;

/// Kernel text of `multiply`: for a warp of 32 threads, a product of 16 × 16 and 16 × 8; for a wavefront of 64, of 16 × 16 and 16 × 16. A device
/// without matrix units executes as many multiply-adds.
const MULTIPLY: &str = r#"
#if defined(__CUDA_ARCH__)
__device__ inline void multiply(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm volatile(
    "mma.sync.aligned.m16n8k16.row.col.f32.TYPE.TYPE.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#elif defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__)
typedef ELEMENT Factor __attribute__((ext_vector_type(4)));
typedef f32 Product __attribute__((ext_vector_type(4)));
__device__ inline void multiply(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  union { u32 bits[2]; Factor factor; } left = {{a[0], a[1]}}, right = {{b[0], b[1]}};
  Product sum = {d[0], d[1], d[2], d[3]};
  sum = __builtin_amdgcn_mfma_f32_16x16x16SUFFIX(left.factor, right.factor, sum, 0, 0, 0);
  for (int l = 0; l < 4; l++) d[l] = sum[l];
}
#else
__device__ inline void multiply(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  f32 left = bits_to_float(a[0]), right = bits_to_float(b[0]);
  for (int l = 0; l < 64; l++) d[l % 4] = d[l % 4] * left + right;
}
#endif
"#;

/// Kernel text: a block distributes its reads over the time by the device's clock: it continues when the next read is due.
const PACED: &str = r#"  u64 start = WHOLE_CLOCK();
  u32 sum = 0;
  u64 own = (packs + gridDim.x - 1) / gridDim.x, from = own * blockIdx.x;
  u64 to = from + own < packs ? from + own : packs;
  for (u64 at = from; at < to; at += 4096) {
#pragma unroll
    for (int k = 0; k < 4; k++) {
      u64 i = at + k * 1024 + threadIdx.x;
      if (i < to) sum += read(x, i, packs, step);
    }
    if (threadIdx.x == 0) {
      u64 done = at + 4096 - from, due = done < own ? (u64)((f64)ticks * (f64)done / (f64)own) : ticks;
      while (WHOLE_CLOCK() - start < due) {}
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) while (WHOLE_CLOCK() - start < ticks) {}
  __syncthreads();
  // Never true, but the compiler cannot know it and therefore keeps the reads.
  if (sum == 0x12345u && packs == ~0ull) x[0] = 1;
"#;

impl Operation for Work {
    signature! {
        name: "work",
        summary: "a synthetic kernel with a given amount of arithmetic or a given duration, and a given number of bytes to read",
        category: Category::Synthetic,
        inputs: &[],
        outputs: &[],
        options: &[
            OptionSpec::quantity("flops", Dimension::FLOPS, 0.0, "arithmetic operations, such as `2GFLOP`"),
            OptionSpec::quantity("bytes", Dimension::BYTES, 0.0, "bytes to read, such as `64MiB`"),
            OptionSpec::quantity(
                "stride",
                Dimension::BYTES,
                PACK as f64,
                "the distance between reads of 16 bytes each",
            ),
            OptionSpec::word("access", &["sequential", "random"], "access pattern of the reads"),
            OptionSpec::quantity("time", Dimension::TIME, 0.0, "duration; 0 for as long as the work takes"),
            OptionSpec::int("units", 1, 65_535, 1, "number of SMs (compute units) to occupy for that time"),
            OptionSpec::word("unit", &["vector", "matrix"], "vector units, or matrix units (tensor cores)"),
            OptionSpec::absent(
                "dtype",
                OptionType::DType,
                "element type of the matrices, `bf16` by default, or `f16`; products accumulate in `f32`",
            ),
        ],
    }

    fn own_inputs(&self, attrs: &Attrs) -> Vec<(DType, Dims)> {
        let asked = WorkRequest::of(attrs);
        let bytes = asked.packs.max(1).saturating_mul(asked.step * PACK).min(1 << 50);
        let dims = Dims::from([bytes]);
        vec![(DType::U8, dims)]
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        let between = |name: &'static str, least: f64, most: f64, text: &str, help: &'static str| match (least..=most)
            .contains(&call.attrs.number(name))
        {
            true => Ok(()),
            false => Err(call.bad_option(name, format!("it has to be between {text}"), help)),
        };
        between("flops", 0.0, 1e15, "0 and 1 PFLOP", "write a number in between: `flops: 1GFLOP`")?;
        between("bytes", 0.0, 1e15, "0 and 1 PB", "write a number in between: `bytes: 1GB`")?;
        between("time", 0.0, 10e9, "0 and 10 s", "write a time in between: `work(time: 50us, units: 16)`")?;
        between(
            "stride",
            PACK as f64,
            (1u64 << 30) as f64,
            "16 B and 1 GiB",
            "write a distance in between: `stride: 128B`",
        )?;
        let asked = WorkRequest::of(call.attrs);
        if call.attrs.number("stride") != (asked.step * PACK) as f64 {
            let why = "each read is of 16 bytes, at a multiple of 16".to_owned();
            return Err(call.bad_option("stride", why, "write a multiple of 16: `stride: 128B`"));
        }
        if asked.packs.saturating_mul(asked.step) > 1 << 46 {
            let why = "the reads are spread over more than 1 PiB".to_owned();
            return Err(call.bad_option("stride", why, "write a smaller number"));
        }
        if asked.is_random && call.attrs.number("bytes") > MAX_RANDOM {
            let why = "in random order, at most 64 GiB are read".to_owned();
            return Err(call.bad_option("access", why, "lower `bytes`"));
        }
        match (asked.matrix, call.attrs.dtype("dtype")) {
            (None, Some(_)) => {
                let why = "the vector units compute in f32".to_owned();
                return Err(call.bad_option("dtype", why, "remove `dtype`, or write `unit: matrix`"));
            }
            (Some(dtype), _) if !matches!(dtype, DType::BF16 | DType::F16) => {
                let why = format!("matrices of {dtype} are not in this version");
                return Err(call.bad_option("dtype", why, "write `dtype: bf16` or `dtype: f16`"));
            }
            (Some(_), _) if asked.time.is_some() => {
                let why = "a kernel that lasts for a given time does no arithmetic".to_owned();
                return Err(call.bad_option("unit", why, "remove `unit` or `time`"));
            }
            _ => {}
        }
        match asked.time {
            Some(_) if asked.flops > 0.0 => {
                let why = "a kernel that lasts for a given time does no counted arithmetic".to_owned();
                Err(call.bad_option("flops", why, "remove `flops` or `time`"))
            }
            None if call.attrs.span("units").is_some() => {
                let why = "without a time it takes as many units as there are".to_owned();
                Err(call.bad_option("units", why, "write how long it holds them: `work(time: 50us, units: 16)`"))
            }
            _ => Ok(Vec::new()),
        }
    }

    fn cost(&self, spec: &Spec) -> Cost {
        let asked = WorkRequest::of(&spec.attrs);
        Cost {
            flops: asked.flops,
            read: Traffic::of(Space::Device, asked.moved()),
            blocks: asked.blocks(),
            share: if asked.time.is_some() { Cost::WHOLE_UNIT } else { 4 },
            hold: asked.time.map(Hold::Block),
            matrix: asked.matrix.map(|dtype| if dtype == DType::F16 { Arithmetic::F16 } else { Arithmetic::BF16 }),
            ..Cost::default()
        }
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let asked = WorkRequest::of(&spec.attrs);
        let grid = asked.blocks();
        let params = |last: Parameter| {
            [param("u8* x", Arg::Operand(0)), u64_param("packs", asked.packs), u64_param("step", asked.step), last]
        };
        let kernel = match asked.time {
            Some(time) => Kernel {
                shared: Shared::All,
                ..kernel("work_paced", &asked.text(), &params(param("u64 ticks", Arg::Ticks(time))), PACED, grid, 1024)
            },
            None => {
                let (body, of_a_thread) = asked.arithmetic();
                let rounds = asked.flops / (of_a_thread * (grid * u64::from(BLOCK)) as f64);
                let name = if asked.matrix.is_some() { "work_matrix" } else { "work" };
                let params = params(u64_param("rounds", rounds.round() as u64));
                kernel(name, &(asked.text() + &asked.multiply()), &params, &body, grid, BLOCK)
            }
        };
        vec![Launch::Kernel(kernel)]
    }
}
