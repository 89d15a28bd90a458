//! Operations that stand for work without being any.

use crate::base::units::Dimension;
use crate::base::{DType, Dims, Nanos};

use super::kernel::{BLOCK, one_thread, source};
use super::*;

/// `nop()`.
pub struct Nop;

impl Operation for Nop {
    fn name(&self) -> &'static str {
        "nop"
    }

    fn summary(&self) -> &'static str {
        "an empty kernel of one thread"
    }

    fn category(&self) -> Category {
        Category::Synthetic
    }

    fn signature(&self) -> &'static Signature {
        &Signature::NOTHING
    }

    fn infer(&self, _: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        Ok(Vec::new())
    }

    fn cost(&self, _: &Spec) -> Cost {
        Cost { blocks: 1, share: 1, ..Cost::default() }
    }

    fn reference(&self, _: &Spec, _: &[&[f64]], _: &mut [Vec<f64>]) {}

    fn launch(&self, _: &Spec) -> Vec<Launch> {
        one_thread("nop", &[], "", Vec::new())
    }
}

/// `spin(time)`.
pub struct Spin;

impl Operation for Spin {
    fn name(&self) -> &'static str {
        "spin"
    }

    fn summary(&self) -> &'static str {
        "holds compute units for a time, by the device's own clock: a block for each, with all of a block's shared memory"
    }

    fn category(&self) -> Category {
        Category::Synthetic
    }

    fn signature(&self) -> &'static Signature {
        &Signature {
            inputs: &[Input::Scalar(OptionSpec {
                name: "time",
                kind: OptionType::Number(Dimension::TIME),
                default: Preset::Required,
                doc: "how long each block spins",
            })],
            outputs: &[],
            options: &[OptionSpec {
                name: "units",
                kind: OptionType::Int(1, 65_535),
                default: Preset::Int(1),
                doc: "compute units to hold",
            }],
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        let time = call.attrs.number("time");
        if !(0.0..=10e9).contains(&time) {
            let why = "it has to lie between 0 and 10 s".to_owned();
            return Err(call.bad_option("time", why, "write a time in between: `spin(10us)`"));
        }
        Ok(Vec::new())
    }

    fn cost(&self, spec: &Spec) -> Cost {
        Cost {
            blocks: spec.attrs.int("units") as u64,
            share: Cost::WHOLE_UNIT,
            hold: Some(Nanos(spec.attrs.number("time").round() as i64)),
            ..Cost::default()
        }
    }

    fn reference(&self, _: &Spec, _: &[&[f64]], _: &mut [Vec<f64>]) {}

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let body = "  if (threadIdx.x == 0) {\n    u64 start = WHOLE_CLOCK();\n    while (WHOLE_CLOCK() - start < ticks) {}\n  }\n  \
                    __syncthreads();\n";
        vec![Launch::Kernel(Kernel {
            source: source("spin", "", &["u64 ticks".to_owned()], body),
            grid: spec.attrs.int("units") as u64,
            block: 1024,
            shared: Shared::All,
            args: vec![Arg::Ticks(Nanos(spec.attrs.number("time").round() as i64))],
        })]
    }
}

/// A kernel that holds that many compute units for a time, or a thread of one where it is none: what stands in place of
/// something that cannot run here.
pub fn held(time: Nanos, units: u32) -> Spec {
    let mut attrs = Attrs::default();
    attrs.push("time", Attr::Number(time.0 as f64), None);
    attrs.push("units", Attr::Int(i64::from(units)), None);
    let operation: &'static dyn Operation = if units == 0 { &Thread } else { &Spin };
    Spec { operation, attrs, expression: None, inputs: Vec::new(), outputs: Vec::new(), team: Team::ALONE }
}

/// A spin of one thread, which leaves the rest of its unit to others. No text can name it.
struct Thread;

impl Operation for Thread {
    fn name(&self) -> &'static str {
        "thread"
    }

    fn summary(&self) -> &'static str {
        "one thread that spins"
    }

    fn category(&self) -> Category {
        Category::Synthetic
    }

    fn signature(&self) -> &'static Signature {
        &Signature::NOTHING
    }

    fn infer(&self, _: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        Ok(Vec::new())
    }

    fn cost(&self, spec: &Spec) -> Cost {
        Cost { blocks: 1, share: 1, ..Spin.cost(spec) }
    }

    fn reference(&self, _: &Spec, _: &[&[f64]], _: &mut [Vec<f64>]) {}

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let spin = Spin.launch(spec).into_iter().filter_map(|launch| match launch {
            Launch::Kernel(kernel) => Some(Kernel { grid: 1, block: 1, shared: Shared::Bytes(0), ..kernel }),
            _ => None,
        });
        spin.map(Launch::Kernel).collect()
    }
}

/// `work(flops: n, bytes: m)`.
pub struct Work;

impl Work {
    fn blocks(spec: &Spec) -> u64 {
        let (flops, bytes) = (spec.attrs.number("flops"), spec.attrs.number("bytes"));
        // 16 KiB of memory or 1 MFLOP a block: enough blocks to fill a device when the work is large.
        ((bytes / 16_384.0).max(flops / 1e6).ceil() as u64).clamp(1, 8192)
    }
}

impl Operation for Work {
    fn name(&self) -> &'static str {
        "work"
    }

    fn summary(&self) -> &'static str {
        "a kernel that does a number of f32 operations and reads a number of bytes of its own"
    }

    fn category(&self) -> Category {
        Category::Synthetic
    }

    fn signature(&self) -> &'static Signature {
        &Signature {
            inputs: &[],
            outputs: &[],
            options: &[
                OptionSpec {
                    name: "flops",
                    kind: OptionType::Number(Dimension::FLOPS),
                    default: Preset::Number(0.0),
                    doc: "operations, such as `2GFLOP`",
                },
                OptionSpec {
                    name: "bytes",
                    kind: OptionType::Number(Dimension::BYTES),
                    default: Preset::Number(0.0),
                    doc: "bytes to read, such as `64MiB`",
                },
            ],
        }
    }

    fn own_inputs(&self, attrs: &Attrs) -> Vec<(DType, Dims)> {
        let bytes = attrs.number("bytes").clamp(16.0, 1e15) as u64;
        let dims = Dims::from_slice(&[bytes.next_multiple_of(16)]).expect("a tensor has room for one dimension");
        vec![(DType::U8, dims)]
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        for name in ["flops", "bytes"] {
            if !(0.0..=1e15).contains(&call.attrs.number(name)) {
                let why = "it has to lie between 0 and 1e15".to_owned();
                return Err(call.bad_option(name, why, "write a smaller number"));
            }
        }
        Ok(Vec::new())
    }

    fn cost(&self, spec: &Spec) -> Cost {
        Cost {
            flops: spec.attrs.number("flops"),
            read: Traffic::of(Space::Device, spec.attrs.number("bytes") as u64),
            blocks: Self::blocks(spec),
            share: 4,
            ..Cost::default()
        }
    }

    fn reference(&self, _: &Spec, _: &[&[f64]], _: &mut [Vec<f64>]) {}

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let blocks = Self::blocks(spec);
        let packs = spec.attrs.number("bytes") as u64 / 16;
        // Eight fused multiply-adds a round and thread.
        let rounds = spec.attrs.number("flops") / (16.0 * (blocks * u64::from(BLOCK)) as f64);
        let body = r#"  f32 a[8];
  u32 sum = 0;
#pragma unroll
  for (int l = 0; l < 8; l++) a[l] = (f32)(threadIdx.x + l);
  for (u64 i = GLOBAL_INDEX; i < packs; i += (u64)gridDim.x * blockDim.x) {
    Pack<u32, 4> p = ((const Pack<u32, 4>*)x)[i];
    sum += p.at[0] ^ p.at[1] ^ p.at[2] ^ p.at[3];
  }
  for (u64 r = 0; r < rounds; r++)
#pragma unroll
    for (int l = 0; l < 8; l++) a[l] = a[l] * 0.999f + 0.5f;
  f32 all = 0;
#pragma unroll
  for (int l = 0; l < 8; l++) all += a[l];
  // Never so: the compiler cannot know, and keeps the work.
  if (all == -1.0f && sum == 0x12345u) x[0] = 1;
"#;
        let params = ["u8* x".to_owned(), "u64 packs".into(), "u64 rounds".into()];
        vec![Launch::Kernel(Kernel {
            source: source("work", "", &params, body),
            grid: blocks,
            block: BLOCK,
            shared: Shared::Bytes(0),
            args: vec![Arg::Operand(0), Arg::U64(packs), Arg::U64(rounds.round() as u64)],
        })]
    }
}
