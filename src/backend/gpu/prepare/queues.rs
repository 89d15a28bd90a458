//! Determines by experiment which streams share a hardware queue: the host blocks one stream, and another stream that
//! makes no progress meanwhile is queued behind it.
//!
//! Nothing else may run on the device. The result holds for streams created in the same way; a runtime may map others
//! differently, or change the mapping while it runs.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::backend::gpu::api::runtime::{Function, Stream};
use crate::backend::gpu::api::{Api, Call};
use crate::backend::gpu::time::gate::{self, Gates};
use crate::exec::{ExecError, Fault, QueueMapping};
use crate::model::Priority;

use super::kernels::{Kernels, RequestedKernel};
use super::timer;

/// Time after which an empty kernel counts as blocked: thousands of times its duration, and less than half of the time
/// after which a gate opens by itself.
const KERNEL_TIMEOUT: Duration = Duration::from_millis(100);

/// Maximum number of streams that are tried.
const STREAMS: u32 = 64;

/// Creates streams of normal priority and determines which of them share a queue. `cache` is the folder for the two
/// kernels; `None` disables caching.
pub fn probe<A: Api>(api: &A, cache: Option<&Path>, streams: u32) -> Result<QueueMapping, ExecError> {
    api.make_current().map_err(ExecError::device)?;
    let mut kernels = Kernels::load(api, &RequestedKernel::gate_and_null("queues"), cache)?;
    let probed = on_streams(api, &kernels, streams.clamp(1, STREAMS));
    kernels.unload(api);
    let predicted = QueueMapping::round_robin(streams.clamp(1, STREAMS), api.topology().queues);
    probed.map(|(groups, at_once)| predicted.found(groups, at_once)).map_err(ExecError::device)
}

fn on_streams<A: Api>(api: &A, kernels: &Kernels, count: u32) -> Call<(Vec<Vec<u32>>, u32)> {
    let mut gates = Gates::new(api, kernels.get(&gate::source()), 1)?;
    let mut streams = Vec::new();
    let made = (0..count).try_for_each(|_| api.stream(Priority::Normal).map(|stream| streams.push(stream)));
    let groups = made.and_then(|()| {
        let mut probe = QueueProbe { api, gates: &mut gates, null: kernels.get(&timer::null()), streams: &streams };
        Ok((probe.groups()?, probe.at_once()?))
    });
    gates.release_all();
    let _ = api.synchronize();
    // SAFETY: all were made above, and the device is idle.
    unsafe {
        gates.free(api);
        streams.into_iter().for_each(|stream| api.destroy_stream(stream));
    }
    groups
}

/// The streams under test, with the kernels of the test.
struct QueueProbe<'a, A: Api> {
    api: &'a A,
    gates: &'a mut Gates,
    null: Function,
    streams: &'a [Stream],
}

impl<A: Api> QueueProbe<'_, A> {
    /// Returns the groups of streams that share a queue, by the streams' indices.
    fn groups(&mut self) -> Call<Vec<Vec<u32>>> {
        // The first launch may load the kernel and create the queue, which takes long.
        for &stream in self.streams {
            self.gates.hold(self.api, 0, stream)?;
            self.gates.release(0);
            self.launch_empty(stream)?;
            self.api.synchronize()?;
        }
        let mut groups: Vec<Vec<u32>> = Vec::new();
        for stream in 0..self.streams.len() as u32 {
            let mut queue_of_stream = None;
            for (index, group) in groups.iter().enumerate() {
                // A single late launch may be due to a slow host, so the test is repeated.
                if self.shares_queue(&group[..1], stream)? && self.shares_queue(&group[..1], stream)? {
                    queue_of_stream = Some(index);
                    break;
                }
            }
            match queue_of_stream {
                Some(index) => groups[index].push(stream),
                None => groups.push(vec![stream]),
            }
        }
        Ok(groups)
    }

    /// Number of streams that can block at the same time before the next one is queued behind a blocked stream; all
    /// streams if that never happens. `groups` blocks only one stream at a time and does not show this.
    fn at_once(&mut self) -> Call<u32> {
        let streams: Vec<u32> = (0..self.streams.len() as u32).collect();
        for (count, &next) in streams.iter().enumerate().skip(1) {
            let blocked = &streams[..count];
            if self.shares_queue(blocked, next)? && self.shares_queue(blocked, next)? {
                return Ok(count as u32);
            }
        }
        Ok(streams.len() as u32)
    }

    /// Launches an empty kernel.
    fn launch_empty(&self, stream: Stream) -> Call {
        // SAFETY: kernel and stream are alive, and the kernel takes no arguments.
        unsafe { self.api.launch(self.null, [1; 3], [1; 3], 0, stream, std::ptr::null_mut()) }
    }

    /// True if a stream makes no progress while others are blocked.
    fn shares_queue(&mut self, blocked: &[u32], stream: u32) -> Call<bool> {
        let stream = self.streams[stream as usize];
        let issued = blocked.iter().map(|&blocked| self.streams[blocked as usize]).try_for_each(|blocked| {
            self.gates.hold(self.api, 0, blocked)?;
            // Some queues continue once the command at their head has started. An empty kernel after the gate makes
            // them stop.
            self.launch_empty(blocked)
        });
        let issued = issued.and_then(|()| self.launch_empty(stream));
        let start = Instant::now();
        let mut idle = Ok(false);
        while issued.is_ok() && matches!(idle, Ok(false)) {
            let late = start.elapsed() > KERNEL_TIMEOUT;
            // SAFETY: the stream is alive.
            idle = unsafe { self.api.idle(stream) };
            if late {
                break;
            }
        }
        self.gates.release(0);
        issued?;
        self.api.synchronize()?;
        if self.gates.forced(0) {
            return Err(Fault::new("queues", "every call is synchronous, so no stream can be blocked"));
        }
        idle.map(|idle| !idle)
    }
}
