//! Times candidates for the same work: algorithms of a product, and ways to compute an operation.
//!
//! Candidates are timed as graphs, since the host's call takes longer than a small product. The first times of a candidate come from few
//! runs, one candidate after the other, while the device's clock may change. So the fastest candidates are timed again: they run in turn,
//! each as a graph that is long enough to show how the work runs among other work.

use std::time::{Duration, Instant};

use crate::backend::gpu::api::runtime::{Graph, Stream};
use crate::backend::gpu::api::{Api, Call};
use crate::base::Nanos;

use super::final_choice::finalists;
use super::products::Chooser;

/// Number of timed runs of a candidate, after one untimed run.
const TRIALS: usize = 5;

/// Time after which a candidate is not run again, for all its runs together.
const TIME_BUDGET: Nanos = Nanos(100_000_000);

/// Minimum number of floating-point operations of a graph for first times, which contains small work several times.
const MIN_FLOPS: f64 = 1e9;

/// Largest number of copies of the work in a graph for first times.
const MAX_COPIES: f64 = 8.0;

/// Maximum time that the host may take to issue all copies in a timed graph. A library computes some operations by
/// thousands of launches, whose capture takes minutes.
const MAX_ISSUE: Duration = Duration::from_millis(2);

/// Time of a graph for the second times.
const FINAL_TIME: Nanos = Nanos(1_000_000);

/// Largest number of copies of the work in such a graph.
const FINAL_COPIES: i64 = 20;

impl<A: Api> Chooser<'_, A> {
    /// Median time of one execution of the work that `issue` issues, when all these lanes execute it concurrently.
    /// `issue` gets the lane's index in the list and its stream; `flops` is the number of operations on one lane.
    pub fn time_lanes(&self, lanes: &[u32], flops: f64, issue: &dyn Fn(usize, Stream) -> Call) -> Call<Nanos> {
        let first = self.streams[lanes[0] as usize];
        // The first one may load code.
        issue(0, first)?;
        self.api.synchronize()?;
        let began = Instant::now();
        issue(0, first)?;
        let most = (MAX_ISSUE.as_secs_f64() / began.elapsed().as_secs_f64()).clamp(1.0, MAX_COPIES);
        self.api.synchronize()?;
        let copies = (MIN_FLOPS / (flops * lanes.len() as f64)).ceil().clamp(1.0, most) as u32;
        let graph = self.captured(lanes, copies, issue)?;
        let time = self.time_in_turn(lanes, &[graph]);
        self.destroy(graph);
        Ok(Nanos(time?[0].0 / i64::from(copies)))
    }

    /// Returns the candidates that may be the fastest, by number, with their times in a second trial. `first` has
    /// the number and the first time of each candidate; `issue` gets the number, the lane's index in the list and its stream. Returns
    /// the first times if the second trial fails.
    pub fn time_again(
        &self,
        lanes: &[u32],
        first: Vec<(usize, Nanos)>,
        issue: &dyn Fn(usize, usize, Stream) -> Call,
    ) -> Vec<(usize, Nanos)> {
        let finalists = finalists(first);
        if finalists.len() < 2 {
            return finalists;
        }
        let (mut graphs, mut copies) = (Vec::new(), Vec::new());
        for &(number, time) in &finalists {
            let count = (FINAL_TIME.0 / time.0.max(1)).clamp(1, FINAL_COPIES);
            match self.captured(lanes, count as u32, &|lane, stream| issue(number, lane, stream)) {
                Ok(graph) => graphs.push(graph),
                Err(_) => break,
            }
            copies.push(count);
        }
        let times = if graphs.len() == finalists.len() { self.time_in_turn(lanes, &graphs).ok() } else { None };
        graphs.into_iter().for_each(|graph| self.destroy(graph));
        match times {
            Some(times) => {
                let each = finalists.iter().zip(times).zip(copies);
                each.map(|((&(number, _), time), copies)| (number, Nanos(time.0 / copies))).collect()
            }
            None => finalists,
        }
    }

    /// Captures the work of all lanes, with this many copies on each, as a graph.
    fn captured(&self, lanes: &[u32], copies: u32, issue: &dyn Fn(usize, Stream) -> Call) -> Call<Graph> {
        let first = self.streams[lanes[0] as usize];
        // SAFETY: streams and events are alive until the device is idle, and a capture that was begun is ended.
        unsafe {
            self.api.begin_capture(first)?;
            let issued = self.issue(lanes, copies, issue);
            let ended = self.api.end_capture(first);
            // A refused call can end the capture; its own error says why.
            if let Err(fault) = issued {
                ended.into_iter().for_each(|graph| self.destroy(graph));
                return Err(fault);
            }
            ended
        }
    }

    /// Destroys a graph that is not launched again.
    fn destroy(&self, graph: Graph) {
        // SAFETY: the device has executed all runs of the graph, unless a call failed after a launch. CUDA then frees the graph
        // once its run ends.
        unsafe { self.api.destroy_graph(graph) };
    }

    /// Returns the median time of each graph, which run in turn.
    fn time_in_turn(&self, lanes: &[u32], graphs: &[Graph]) -> Call<Vec<Nanos>> {
        let stream = self.streams[lanes[0] as usize];
        let mut times = vec![Vec::with_capacity(TRIALS); graphs.len()];
        let mut spent = Nanos(0);
        for trial in 0..=TRIALS {
            for (graph, times) in graphs.iter().zip(&mut times) {
                // SAFETY: graphs and stream are alive; the events are the chooser's own.
                let time = unsafe {
                    self.api.record(self.from, stream)?;
                    self.api.launch_graph(*graph, stream)?;
                    self.api.record(self.to, stream)?;
                    self.api.synchronize()?;
                    self.api.elapsed(self.from, self.to)?
                };
                if trial > 0 {
                    times.push(time);
                    spent += time;
                }
            }
            if spent > TIME_BUDGET {
                break;
            }
        }
        let median = |mut times: Vec<Nanos>| {
            times.sort_unstable();
            times[times.len() / 2]
        };
        Ok(times.into_iter().map(median).collect())
    }

    /// Issues work `copies` times on each lane, between a fork and a join.
    ///
    /// # Safety
    ///
    /// Nothing else uses the memory of the issued work meanwhile; the streams and events are alive.
    unsafe fn issue(&self, lanes: &[u32], copies: u32, issue: &dyn Fn(usize, Stream) -> Call) -> Call {
        let first = self.streams[lanes[0] as usize];
        // SAFETY: the caller guarantees it. A wait refers to the latest record before it, so one event serves all.
        unsafe {
            self.api.record(self.order, first)?;
            for (number, &lane) in lanes.iter().enumerate() {
                let stream = self.streams[lane as usize];
                if number > 0 {
                    self.api.wait(stream, self.order)?;
                }
                (0..copies).try_for_each(|_| issue(number, stream))?;
            }
            for &lane in &lanes[1..] {
                self.api.record(self.order, self.streams[lane as usize])?;
                self.api.wait(first, self.order)?;
            }
        }
        Ok(())
    }
}
