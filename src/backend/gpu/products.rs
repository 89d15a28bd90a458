//! Chooses the vendor's algorithm for each matrix product.
//!
//! The algorithms that the library proposes are timed on the operations' own operands, concurrently on every stream
//! that has the product: the fastest alone is not always the fastest where products overlap. They are timed as a graph,
//! since the host's call takes longer than a small product.

use crate::base::Nanos;
use crate::exec::ExecError;
use crate::ops::{Arithmetic, Gemm};

use super::api::{Addresses, Api, Call};
use super::lower::Product;
use super::runtime::{Event, Graph, Stream};

/// Timed runs of an algorithm, after one untimed run.
const TRIALS: usize = 5;

/// Total time after which an algorithm is not run again.
const TIME_BUDGET: Nanos = Nanos(100_000_000);

/// Minimum arithmetic of a timed graph, so that it contains a small product several times.
const FLOPS: f64 = 1e9;

/// Largest number of copies of a product in a timed graph.
const REPEATS: f64 = 8.0;

/// Ratio of times below which a later proposal replaces an earlier one; a smaller gain may be noise.
const GAIN: f64 = 0.99;

/// What algorithms are timed with.
pub struct Chooser<'a, A: Api> {
    pub api: &'a A,
    pub streams: &'a [Stream],
    /// For each lane, address and size in bytes of the workspace of its products.
    pub workspaces: &'a [(u64, u64)],
    /// Number of algorithms that are timed for each product.
    pub candidates: u32,
    /// Two timed events and one without a timestamp.
    pub from: Event,
    pub to: Event,
    pub order: Event,
}

impl<A: Api> Chooser<'_, A> {
    /// The algorithm for a product, and a note on how it was chosen; `None` if there was only one.
    pub fn choose(&self, product: &Product) -> Result<(A::Product, Option<String>), ExecError> {
        let gemm = &product.gemm;
        let (_, lane) = product.uses[0];
        let candidates = self.api.products(gemm, self.workspaces[lane as usize].1, self.candidates)?;
        let count = candidates.len();
        let mut first = None;
        let mut failed = None;
        let mut best: Option<(Nanos, usize, A::Product)> = None;
        for (place, candidate) in candidates.into_iter().enumerate() {
            if count == 1 {
                let split = product.split.then(|| format!("product {}", describe(product)));
                return Ok((candidate, split));
            }
            match self.time(&candidate, product) {
                Ok(time) if best.as_ref().is_none_or(|(least, ..)| (time.0 as f64) < GAIN * least.0 as f64) => {
                    best = Some((time, place, candidate));
                    continue;
                }
                Ok(_) => {}
                // An algorithm that fails is skipped, unless all fail.
                Err(fault) => failed = failed.or(Some(fault)),
            }
            first.get_or_insert(candidate);
        }
        let what = describe(product);
        match (best, first, failed) {
            (Some((time, place, algorithm)), ..) => {
                let streams = match product.uses.len() {
                    1 => "alone".to_owned(),
                    streams => format!("on {streams} streams at once"),
                };
                let note = format!("product {what}: algorithm {} of {count}, {time} {streams}", place + 1);
                Ok((algorithm, Some(note)))
            }
            (None, Some(algorithm), Some(fault)) => {
                let note = format!("product {what}: algorithm 1 of {count}, since none could be timed: {fault}");
                Ok((algorithm, Some(note)))
            }
            _ => Err(ExecError::Device {
                fault: format!("the library has no algorithm for a product of {what}"),
                help: Some(match gemm.arithmetic {
                    Arithmetic::F8 | Arithmetic::I8 => {
                        "8-bit matrices need `transpose_b: true` without `transpose_a`, rows of `a`, `b` and `c` that \
                                       are multiples of 16 bytes, and not both `e5m2`; f16 holds all of their values"
                            .to_owned()
                    }
                    _ => "try another element type, or sizes that are multiples of 8".to_owned(),
                }),
            }),
        }
    }

    /// Median time of one product when it runs on each of its streams concurrently.
    fn time(&self, algorithm: &A::Product, product: &Product) -> Call<Nanos> {
        let Gemm { m, n, k, batch, .. } = product.gemm;
        let flops = 2.0 * m as f64 * n as f64 * k as f64 * batch as f64 * product.uses.len() as f64;
        let repeats = (FLOPS / flops).ceil().clamp(1.0, REPEATS) as u32;
        let first = self.streams[product.uses[0].1 as usize];
        // SAFETY: the operands are the operations' own, in memory that nothing else uses now. Streams and events are
        // alive until the device is idle, and a capture that was begun is ended.
        unsafe {
            self.api.begin_capture(first)?;
            let issued = self.issue(algorithm, &product.uses, repeats);
            let graph = self.api.end_capture(first)?;
            let time = issued.and_then(|()| self.time_graph(graph, first));
            self.api.destroy_graph(graph);
            Ok(Nanos(time?.0 / i64::from(repeats)))
        }
    }

    /// # Safety
    ///
    /// The graph and the stream are alive.
    unsafe fn time_graph(&self, graph: Graph, stream: Stream) -> Call<Nanos> {
        let mut times = Vec::with_capacity(TRIALS);
        let mut spent = Nanos(0);
        for trial in 0..=TRIALS {
            // SAFETY: the caller guarantees it; the events are the chooser's own.
            let time = unsafe {
                self.api.record(self.from, stream)?;
                self.api.launch_graph(graph, stream)?;
                self.api.record(self.to, stream)?;
                self.api.synchronize()?;
                self.api.elapsed(self.from, self.to)?
            };
            if trial > 0 {
                times.push(time);
                spent = spent + time;
            }
            if spent > TIME_BUDGET {
                break;
            }
        }
        times.sort_unstable();
        Ok(times[times.len() / 2])
    }

    /// Issues the product `repeats` times on each of its streams, between a fork and a join.
    ///
    /// # Safety
    ///
    /// The operands lie in memory that nothing else uses; streams and events are alive.
    unsafe fn issue(&self, algorithm: &A::Product, uses: &[(Addresses, u32)], repeats: u32) -> Call {
        let first = self.streams[uses[0].1 as usize];
        // SAFETY: the caller guarantees it. A wait refers to the latest record before it, so one event serves all.
        unsafe {
            self.api.record(self.order, first)?;
            for &(operands, lane) in uses {
                let stream = self.streams[lane as usize];
                if lane != uses[0].1 {
                    self.api.wait(stream, self.order)?;
                }
                for _ in 0..repeats {
                    self.api.multiply(algorithm, operands, self.workspaces[lane as usize], stream)?;
                }
            }
            for &(_, lane) in &uses[1..] {
                self.api.record(self.order, self.streams[lane as usize])?;
                self.api.wait(first, self.order)?;
            }
        }
        Ok(())
    }
}

fn describe(product: &Product) -> String {
    let gemm = &product.gemm;
    let epilogue = match gemm.epilogue {
        _ if product.split => ", its epilogue by a kernel since the library has no algorithm with it",
        Some(_) => ", with its epilogue",
        None => "",
    };
    let batch = if gemm.batch > 1 { format!("{} × ", gemm.batch) } else { String::new() };
    format!("{batch}[{}, {}] × [{}, {}] {}{epilogue}", gemm.m, gemm.k, gemm.k, gemm.n, gemm.arithmetic.name())
}
