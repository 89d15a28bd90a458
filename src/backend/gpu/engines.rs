//! Whether an engine or a kernel makes a copy: no runtime tells, so it is inferred. A kernel holds every unit of the device,
//! and the copy is issued on another stream. What ends meanwhile needs no unit, so an engine made it.
//!
//! Two trials keep this from saying something wrong. With one unit held, the copy and a kernel of one thread behind it
//! have to end: else their streams wait for that of the kernel that holds, as streams that share a queue do. With all held,
//! the kernel of one thread must not begin. Where one of them goes otherwise, nothing is said.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::base::{Bytes, Nanos};
use crate::model::Priority;
use crate::ops::{Copy as CopyLaunch, Direction, Launch, Source, kernel};

use super::api::{Api, Call};
use super::kernels::Kernels;
use super::lower::{Calls, Prepared};
use super::runtime::{Event, Function, Stream};
use super::timer;

/// How long the units are held at most, whatever the host does.
const TIMEOUT: Nanos = Nanos(250_000_000);

/// What a copy between devices has for its end beside four times the time that it takes alone.
const MARGIN: Duration = Duration::from_millis(2);

/// What a copy to or from the host has, many times what any takes that is tried: the kernel that holds looks at the host's
/// memory, and copies over the same link are several times slower meanwhile.
const HOST_WINDOW: Duration = Duration::from_millis(150);

/// A copy that takes longer alone is not tried: it would be held for too long.
const LONGEST: Duration = Duration::from_millis(15);

/// How long a kernel of one thread is watched that must not begin.
const SETTLED: Duration = Duration::from_micros(300);

/// Time after which no more copies are tried.
const ENOUGH: Duration = Duration::from_secs(2);

/// Threads of a block that holds a unit, and blocks for each unit: more than it has room for.
const THREADS: u32 = 1024;
const BLOCKS: u32 = 4;

/// Words in the host's memory: that the units are let go, that this took too long, that a block has begun.
const WORDS: usize = 3;
const OPEN: usize = 0;
const FORCED: usize = 1;
const BEGUN: usize = 2;

/// The kernel that holds units. Its blocks look at the host's memory now and then: many that look all the time would fill
/// the link, and slow the copy that is tried.
pub fn source() -> Arc<Source> {
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

/// Whether any of these is a copy that can be tried. Ordinary memory of the host is copied in pieces by the host itself.
pub fn can_try<'a>(mut launches: impl Iterator<Item = &'a Launch>) -> bool {
    launches.any(|launch| match launch {
        Launch::Copy(copy) => !copy.pageable,
        Launch::Peer(peer) => peer.sends.as_ref().is_some_and(|sent| matches!(*sent.launch, Launch::Copy(_))),
        _ => false,
    })
}

/// What makes a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Maker {
    Engine,
    Kernel,
}

/// A copy that was tried, and whether it goes to another device.
type Tried = (CopyLaunch, bool);

/// Tries each kind of copy once; a line for each direction. Those to other ranks write their memory, and are tried only
/// where `others` says that they may.
pub fn infer<A: Api>(api: &A, kernels: &Kernels, calls: &Calls<A>, others: bool) -> Call<Vec<String>> {
    let units = api.device().units.unwrap_or(0);
    if units == 0 || api.copy_engines() == 0 {
        return Ok(Vec::new());
    }
    let mut probe = Probe::new(api, kernels, units)?;
    let found = probe.all(calls, others);
    probe.release();
    // What was issued has to end before its events and memory go.
    let ended = api.synchronize();
    // SAFETY: the device is idle, or has failed.
    unsafe { probe.free() };
    ended.and(found).map(|found| told(&found))
}

struct Probe<'a, A: Api> {
    api: &'a A,
    hold: Function,
    null: Function,
    /// For the kernel that holds, the copy, and the kernel that must not begin.
    streams: Vec<Stream>,
    copied: Event,
    passed: Event,
    /// The words: pinned, so at the same address for both sides.
    cell: u64,
    ticks: u64,
    units: u32,
}

impl<'a, A: Api> Probe<'a, A> {
    fn new(api: &'a A, kernels: &Kernels, units: u32) -> Call<Self> {
        let (hold, null) = (kernels.get(&source()), kernels.get(&timer::null()));
        let streams: Call<Vec<Stream>> = (0..3).map(|_| api.stream(Priority::Normal)).collect();
        let (copied, passed) = (api.event(false)?, api.event(false)?);
        let cell = api.allocate_pinned(4 * WORDS as u64)?;
        Ok(Probe { api, hold, null, streams: streams?, copied, passed, cell, ticks: api.ticks(TIMEOUT), units })
    }

    /// # Safety
    /// Nothing of it is under way.
    unsafe fn free(self) {
        // SAFETY: each was made by `new`, and the caller says that nothing uses it.
        unsafe {
            self.api.free_pinned(self.cell);
            self.api.destroy_event(self.copied);
            self.api.destroy_event(self.passed);
            self.streams.into_iter().for_each(|stream| self.api.destroy_stream(stream));
        }
    }

    fn word(&self, which: usize) -> &AtomicU32 {
        // SAFETY: the word lies in the probe's memory, which lives as long, and is only used as an atomic.
        unsafe { AtomicU32::from_ptr((self.cell as usize + 4 * which) as *mut u32) }
    }

    fn release(&self) {
        self.word(OPEN).store(1, Ordering::Release);
    }

    fn all(&mut self, calls: &Calls<A>, others: bool) -> Call<Vec<(Tried, Maker)>> {
        let mut tried: Vec<(u32, bool)> = Vec::new();
        let mut found = Vec::new();
        let start = Instant::now();
        for (index, call) in (0..).zip(&calls.calls) {
            let Prepared::Copy { copy, source, target, .. } = *call else { continue };
            let (launch, away) = (&calls.copies[copy as usize], calls.away.contains(&index));
            if launch.pageable || away && !others || tried.contains(&(copy, away)) || start.elapsed() > ENOUGH {
                continue;
            }
            tried.push((copy, away));
            found.extend(self.maker(launch, source, target)?.map(|maker| ((launch.clone(), away), maker)));
            if self.word(FORCED).load(Ordering::Acquire) != 0 {
                // Every call waits for the device, or something lets kernels run one by one.
                break;
            }
        }
        Ok(found)
    }

    fn maker(&self, copy: &CopyLaunch, source: u64, target: u64) -> Call<Option<Maker>> {
        let within_or_across = copy.direction == Direction::DeviceToDevice;
        let issue = || {
            // SAFETY: the operands are an operation's own, which nothing else uses now; the stream is alive.
            unsafe {
                self.api.copy(copy, source, target, self.streams[1])?;
                self.api.record(self.copied, self.streams[1])
            }
        };
        // The first may load what it needs, and wait for the device to do so.
        issue()?;
        self.api.synchronize()?;
        let start = Instant::now();
        issue()?;
        self.api.synchronize()?;
        let alone = start.elapsed();
        if alone > LONGEST {
            return Ok(None);
        }
        let window = if within_or_across { 4 * alone + MARGIN } else { HOST_WINDOW };
        // The kernel comes behind the copy: where both share a queue, the copy waits for nothing of it.
        let both = || -> Call<(bool, bool)> {
            issue()?;
            // SAFETY: the kernel takes no arguments; kernel, stream and event are alive.
            unsafe {
                self.api.launch(self.null, 1, 1, 0, self.streams[2], std::ptr::null_mut())?;
                self.api.record(self.passed, self.streams[2])?;
            }
            Ok((self.within(window, self.copied)?, self.within(SETTLED, self.passed)?))
        };
        if self.held(1, both)? != Some((true, true)) {
            return Ok(None);
        }
        Ok(match self.held(BLOCKS * self.units, both)? {
            Some((true, false)) => Some(Maker::Engine),
            // Where only an engine can be meant, something else has kept it from its end.
            Some((false, false)) if A::HOST_COPIES_BY_KERNEL || within_or_across => Some(Maker::Kernel),
            _ => None,
        })
    }

    /// Does something while that many blocks hold units; nothing where they had to let go of them before.
    fn held<T>(&self, blocks: u32, work: impl FnOnce() -> Call<T>) -> Call<Option<T>> {
        (0..WORDS).for_each(|word| self.word(word).store(0, Ordering::Release));
        let (mut cell, mut ticks) = (self.cell, self.ticks);
        let mut args: [*mut c_void; 2] = [(&raw mut cell).cast(), (&raw mut ticks).cast()];
        // SAFETY: the kernel takes two values of 64 bits, which are read before the call returns.
        unsafe { self.api.launch(self.hold, blocks, THREADS, 0, self.streams[0], args.as_mut_ptr())? };
        let start = Instant::now();
        while self.word(BEGUN).load(Ordering::Acquire) == 0 && start.elapsed().as_nanos() < TIMEOUT.0 as u128 {
            std::hint::spin_loop();
        }
        // The other blocks take their places.
        std::thread::sleep(SETTLED);
        let done = work();
        self.release();
        self.api.synchronize()?;
        let forced = self.word(FORCED).load(Ordering::Acquire) != 0;
        done.map(|done| (!forced).then_some(done))
    }

    /// Whether an event is reached within that time.
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

/// One line for each direction and way, with the sizes that each maker made.
fn told(found: &[(Tried, Maker)]) -> Vec<String> {
    /// The direction, whether to another device, whether an engine was asked for, whether in rows.
    type CopyKind = (Direction, bool, bool, bool);
    let mut kinds: BTreeMap<CopyKind, Vec<(u64, Maker)>> = BTreeMap::new();
    for ((copy, away), maker) in found {
        let kind = (copy.direction, *away, copy.engine, copy.rows > 1);
        kinds.entry(kind).or_default().push((copy.bytes(), *maker));
    }
    let line = |((direction, away, engine, rows), mut sizes): (CopyKind, Vec<(u64, Maker)>)| {
        let way = match direction {
            Direction::HostToDevice => "to the device",
            Direction::DeviceToHost => "to the host",
            Direction::DeviceToDevice if away => "to another device",
            Direction::DeviceToDevice => "within the device",
        };
        let (asked, rows) = (if engine { ", `via: dma`" } else { "" }, if rows { ", in rows" } else { "" });
        sizes.sort_unstable_by_key(|&(bytes, _)| bytes);
        let runs: Vec<String> = sizes.chunk_by(|a, b| a.1 == b.1).map(run).collect();
        format!(
            "copies {way}{rows}{asked}: {}; inferred from whether they end while a kernel holds all units",
            runs.join(", ")
        )
    };
    kinds.into_iter().map(line).collect()
}

/// `an engine (4 KiB to 1 MiB)`.
fn run(sizes: &[(u64, Maker)]) -> String {
    let (least, most) = (sizes[0].0, sizes[sizes.len() - 1].0);
    let maker = match sizes[0].1 {
        Maker::Engine => "an engine",
        Maker::Kernel => "a kernel",
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
    fn a_line_tells_where_the_maker_changes() {
        let copy = |direction, away, engine, bytes, maker| {
            let launch = CopyLaunch {
                source: 0,
                target: 1,
                direction,
                pageable: false,
                engine,
                row_bytes: bytes,
                rows: 1,
                source_pitch: bytes,
                target_pitch: bytes,
            };
            ((launch, away), maker)
        };
        let (up, within) = (Direction::HostToDevice, Direction::DeviceToDevice);
        let lines = told(&[
            copy(up, false, false, 64 << 10, Maker::Engine),
            copy(up, false, false, 4 << 10, Maker::Kernel),
            copy(up, false, false, 16 << 10, Maker::Kernel),
            copy(within, false, true, 1 << 20, Maker::Engine),
            copy(within, true, false, 1 << 20, Maker::Kernel),
        ]);
        let tail = "; inferred from whether they end while a kernel holds all units";
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
