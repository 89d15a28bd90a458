//! Infers whether a copy engine or a kernel makes a copy, because no runtime reports it. A kernel occupies every SM
//! (compute unit) and the copy is issued on another stream. A copy that completes meanwhile needed no SM, so an engine
//! made it.
//!
//! Two control trials prevent wrong conclusions. With one SM occupied, the copy and a one-thread kernel behind it must
//! complete; otherwise their streams share a hardware queue with the occupying kernel. With all SMs occupied, the
//! one-thread kernel must not start. If either trial goes otherwise, nothing is reported.
//!
//! The test follows all measurements. After a copying kernel has waited for occupied SMs for a tenth of a millisecond, every
//! later kernel in a graph of the same process takes 0.18 µs longer (H100, driver 580; cause unknown).

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::backend::gpu::api::runtime::{Event, Function, Stream};
use crate::backend::gpu::api::{Api, Call};
use crate::base::{Bytes, Nanos};
use crate::model::Priority;
use crate::ops::{CopyLaunch, Direction, KernelSource, Launch, kernel};

use super::kernels::Kernels;
use super::lower::{Calls, Prepared};
use super::timer;

/// Maximum time for which the SMs are occupied, even if the host does not release them.
const TIMEOUT: Nanos = Nanos(250_000_000);

/// Time allowed to a copy between devices, in addition to four times its time alone.
const MARGIN: Duration = Duration::from_millis(2);

/// Time allowed to a copy to or from the host. It is generous: the occupying kernel polls host memory, which makes
/// copies over the same link several times slower.
const HOST_WINDOW: Duration = Duration::from_millis(150);

/// Copies that take longer than this alone are not tried, because the SMs cannot be occupied for long enough.
const LONGEST_COPY: Duration = Duration::from_millis(15);

/// Time for which the one-thread kernel is watched when it must not start.
const SETTLING_TIME: Duration = Duration::from_micros(300);

/// Time after which no further copies are tried.
const TIME_BUDGET: Duration = Duration::from_secs(2);

/// Number of threads of a block that occupies an SM.
const THREADS: u32 = 1024;
/// Number of such blocks launched for each SM: more than fit at once.
const BLOCKS: u32 = 4;

/// Number of words in host memory.
const WORDS: usize = 3;
/// Index of the word that the host sets to release the SMs.
const OPEN: usize = 0;
/// Index of the word that a kernel sets when it times out.
const FORCED: usize = 1;
/// Index of the word that is set once a block has started.
const BEGUN: usize = 2;

/// The occupying kernel. Its blocks poll host memory at intervals, since continuous polling would saturate the link and
/// slow the copy under test.
pub fn source() -> Arc<KernelSource> {
    let body = "  if (threadIdx.x == 0) {
    volatile u32* word = cell;
    u64 start = WHOLE_CLOCK();
    word[2] = 1u;
    while (word[0] == 0u) {
      u64 looked = WHOLE_CLOCK();
      if (looked - start >= ticks) {
        word[1] = 1u;
        __threadfence_system();
        break;
      }
      while (WHOLE_CLOCK() - looked < ticks / 1000u) { }
    }
  }
  __syncthreads();
";
    kernel::source("hold", "", &["u32* cell".to_owned(), "u64 ticks".to_owned()], body)
}

/// True if any of the launches is a copy that can be tried. The host itself copies pageable memory in pieces, so such
/// copies are excluded.
pub fn can_try<'a>(mut launches: impl Iterator<Item = &'a Launch>) -> bool {
    launches.any(|launch| match launch {
        Launch::Copy(copy) => !copy.pageable,
        Launch::Peer(peer) => peer.sends.as_ref().is_some_and(|sent| matches!(*sent.launch, Launch::Copy(_))),
        _ => false,
    })
}

/// Hardware that executes a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyUnit {
    Engine,
    Kernel,
}

/// A copy that was tried, and whether its target is another device.
type TriedCopy = (CopyLaunch, bool);

/// Tries each kind of copy once, and returns a note for each direction. Copies to other ranks overwrite the ranks'
/// memory; they are tried only if `others` is true.
pub fn infer<A: Api>(api: &A, kernels: &Kernels, calls: &Calls<A>, others: bool) -> Call<Vec<String>> {
    let units = api.device().units.unwrap_or(0);
    if units == 0 || api.copy_engines() == 0 {
        return Ok(Vec::new());
    }
    let mut probe = EngineProbe::new(api, kernels, units)?;
    let found = probe.all(calls, others);
    probe.release();
    // The issued work must complete before its events and memory are freed.
    let ended = api.synchronize();
    // SAFETY: the device is idle or has failed.
    unsafe { probe.free() };
    ended.and(found).map(|found| notes(&found))
}

/// The streams, events and memory of the test.
struct EngineProbe<'a, A: Api> {
    api: &'a A,
    hold: Function,
    null: Function,
    /// Streams of the occupying kernel, the copy, and the one-thread kernel.
    streams: Vec<Stream>,
    copied: Event,
    passed: Event,
    /// Address of the words in pinned memory, the same on host and device.
    cell: u64,
    ticks: u64,
    units: u32,
}

impl<'a, A: Api> EngineProbe<'a, A> {
    fn new(api: &'a A, kernels: &Kernels, units: u32) -> Call<Self> {
        let (hold, null) = (kernels.get(&source()), kernels.get(&timer::null()));
        let streams: Call<Vec<Stream>> = (0..3).map(|_| api.stream(Priority::Normal)).collect();
        let (copied, passed) = (api.event(false)?, api.event(false)?);
        let cell = api.allocate_pinned(4 * WORDS as u64)?;
        Ok(EngineProbe { api, hold, null, streams: streams?, copied, passed, cell, ticks: api.ticks(TIMEOUT), units })
    }

    /// # Safety
    ///
    /// No work of the probe is under way.
    unsafe fn free(self) {
        // SAFETY: `new` made each of these, and the caller guarantees that nothing uses them.
        unsafe {
            self.api.free_pinned(self.cell);
            self.api.destroy_event(self.copied);
            self.api.destroy_event(self.passed);
            self.streams.into_iter().for_each(|stream| self.api.destroy_stream(stream));
        }
    }

    fn word(&self, which: usize) -> &AtomicU32 {
        // SAFETY: the word lies in the probe's memory, which lives as long, and is only accessed atomically.
        unsafe { AtomicU32::from_ptr((self.cell as usize + 4 * which) as *mut u32) }
    }

    fn release(&self) {
        self.word(OPEN).store(1, Ordering::Release);
    }

    fn all(&mut self, calls: &Calls<A>, others: bool) -> Call<Vec<(TriedCopy, CopyUnit)>> {
        let mut tried: Vec<(u32, bool)> = Vec::new();
        let mut found = Vec::new();
        let start = Instant::now();
        for (index, call) in (0..).zip(&calls.calls) {
            let Prepared::Copy { copy, source, target, .. } = *call else { continue };
            let (launch, writes_remote) = (&calls.copies[copy as usize], calls.remote_writes.contains(&index));
            if launch.pageable
                || writes_remote && !others
                || tried.contains(&(copy, writes_remote))
                || start.elapsed() > TIME_BUDGET
            {
                continue;
            }
            tried.push((copy, writes_remote));
            found.extend(self.maker(launch, source, target)?.map(|maker| ((launch.clone(), writes_remote), maker)));
            if self.word(FORCED).load(Ordering::Acquire) != 0 {
                // Calls are synchronous or kernels are serialized, for example by an environment variable or a
                // debugger.
                break;
            }
        }
        Ok(found)
    }

    fn maker(&self, copy: &CopyLaunch, source: u64, target: u64) -> Call<Option<CopyUnit>> {
        let within_or_across = copy.direction == Direction::DeviceToDevice;
        let issue = || {
            // SAFETY: the operands belong to an operation that is not running; the stream is alive.
            unsafe {
                self.api.copy(copy, source, target, self.streams[1])?;
                self.api.record(self.copied, self.streams[1])
            }
        };
        // The first copy may load code and synchronize with the device.
        issue()?;
        self.api.synchronize()?;
        let start = Instant::now();
        issue()?;
        self.api.synchronize()?;
        let alone = start.elapsed();
        if alone > LONGEST_COPY {
            return Ok(None);
        }
        let window = if within_or_across { 4 * alone + MARGIN } else { HOST_WINDOW };
        // The one-thread kernel follows the copy, so the copy never waits for it even on a shared queue.
        let both = || -> Call<(bool, bool)> {
            issue()?;
            // SAFETY: the kernel takes no arguments; kernel, stream and event are alive.
            unsafe {
                self.api.launch(self.null, [1; 3], [1; 3], 0, self.streams[2], std::ptr::null_mut())?;
                self.api.record(self.passed, self.streams[2])?;
            }
            Ok((self.within(window, self.copied)?, self.within(SETTLING_TIME, self.passed)?))
        };
        if self.while_occupied(1, both)? != Some((true, true)) {
            return Ok(None);
        }
        Ok(match self.while_occupied(BLOCKS * self.units, both)? {
            Some((true, false)) => Some(CopyUnit::Engine),
            // If a kernel cannot have made the copy, something else delayed it, and nothing is concluded.
            Some((false, false)) if A::HOST_COPIES_BY_KERNEL || within_or_across => Some(CopyUnit::Kernel),
            _ => None,
        })
    }

    /// Runs `work` while `blocks` blocks occupy SMs. Returns `None` if the blocks timed out before `work` ended.
    fn while_occupied<T>(&self, blocks: u32, work: impl FnOnce() -> Call<T>) -> Call<Option<T>> {
        (0..WORDS).for_each(|word| self.word(word).store(0, Ordering::Release));
        let (mut cell, mut ticks) = (self.cell, self.ticks);
        let mut args: [*mut c_void; 2] = [(&raw mut cell).cast(), (&raw mut ticks).cast()];
        // SAFETY: the kernel takes two 64-bit values, which the call reads before it returns.
        unsafe { self.api.launch(self.hold, [blocks, 1, 1], [THREADS, 1, 1], 0, self.streams[0], args.as_mut_ptr())? };
        let start = Instant::now();
        while self.word(BEGUN).load(Ordering::Acquire) == 0 && start.elapsed().as_nanos() < TIMEOUT.0 as u128 {
            std::hint::spin_loop();
        }
        // The remaining blocks start.
        std::thread::sleep(SETTLING_TIME);
        let done = work();
        self.release();
        self.api.synchronize()?;
        let forced = self.word(FORCED).load(Ordering::Acquire) != 0;
        done.map(|done| (!forced).then_some(done))
    }

    /// True if an event completes within `window`.
    fn within(&self, window: Duration, event: Event) -> Call<bool> {
        let start = Instant::now();
        loop {
            // SAFETY: the event is alive.
            if unsafe { self.api.reached(event)? } {
                return Ok(true);
            }
            if start.elapsed() >= window {
                return Ok(false);
            }
        }
    }
}

/// Returns a note for each direction and kind of copy, with the sizes that engines copied and those that kernels
/// copied.
fn notes(found: &[(TriedCopy, CopyUnit)]) -> Vec<String> {
    /// Direction; whether the copy goes to another device; whether an engine was requested; whether there are several
    /// rows.
    type CopyKind = (Direction, bool, bool, bool);
    let mut kinds: BTreeMap<CopyKind, Vec<(u64, CopyUnit)>> = BTreeMap::new();
    for ((copy, writes_remote), maker) in found {
        let kind = (copy.direction, *writes_remote, copy.engine, copy.rows > 1);
        kinds.entry(kind).or_default().push((copy.bytes(), *maker));
    }
    let line = |((direction, writes_remote, engine, rows), mut sizes): (CopyKind, Vec<(u64, CopyUnit)>)| {
        let way = match direction {
            Direction::HostToDevice => "to the device",
            Direction::DeviceToHost => "to the host",
            Direction::DeviceToDevice if writes_remote => "to another device",
            Direction::DeviceToDevice => "within the device",
        };
        let (asked, rows) = (if engine { ", `via: dma`" } else { "" }, if rows { ", in rows" } else { "" });
        sizes.sort_unstable_by_key(|&(bytes, _)| bytes);
        let runs: Vec<String> = sizes.chunk_by(|a, b| a.1 == b.1).map(run).collect();
        format!(
            "copies {way}{rows}{asked}: {}; inferred from whether they complete while a kernel occupies all units",
            runs.join(", ")
        )
    };
    kinds.into_iter().map(line).collect()
}

/// Describes which unit copied these sizes, such as `an engine (4 KiB to 1 MiB)`.
fn run(sizes: &[(u64, CopyUnit)]) -> String {
    let (least, most) = (sizes[0].0, sizes[sizes.len() - 1].0);
    let maker = match sizes[0].1 {
        CopyUnit::Engine => "an engine",
        CopyUnit::Kernel => "a kernel",
    };
    match least == most {
        true => format!("{maker} ({})", Bytes(least)),
        false => format!("{maker} ({} to {})", Bytes(least), Bytes(most)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_gives_the_size_at_which_another_engine_copies() {
        let copy = |direction, writes_remote, engine, bytes, maker| {
            let launch = CopyLaunch {
                source: 0,
                target: 1,
                source_offset: 0,
                target_offset: 0,
                direction,
                pageable: false,
                engine,
                row_bytes: bytes,
                rows: 1,
                source_pitch: bytes,
                target_pitch: bytes,
            };
            ((launch, writes_remote), maker)
        };
        let (up, within) = (Direction::HostToDevice, Direction::DeviceToDevice);
        let lines = notes(&[
            copy(up, false, false, 64 << 10, CopyUnit::Engine),
            copy(up, false, false, 4 << 10, CopyUnit::Kernel),
            copy(up, false, false, 16 << 10, CopyUnit::Kernel),
            copy(within, false, true, 1 << 20, CopyUnit::Engine),
            copy(within, true, false, 1 << 20, CopyUnit::Kernel),
        ]);
        let tail = "; inferred from whether they complete while a kernel occupies all units";
        assert_eq!(
            lines,
            [
                format!("copies to the device: a kernel (4 KiB to 16 KiB), an engine (64 KiB){tail}"),
                format!("copies within the device, `via: dma`: an engine (1 MiB){tail}"),
                format!("copies to another device: a kernel (1 MiB){tail}"),
            ]
        );
    }
}
