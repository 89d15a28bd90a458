//! Adds the machine's state to a digest.

use crate::cost::{Busy, Task};

use super::super::digest::Digest;
use super::units::Blocks;
use super::{Action, Engines, EventKind, Owner, SimDevice, SimMachine, TaskState};

impl SimMachine {
    /// The oldest task that is kept.
    pub fn oldest(&self) -> u64 {
        self.first
    }

    /// Adds all state that affects the future.
    pub fn digest(&self, digest: &mut Digest) {
        let SimMachine {
            now,
            events,
            // Only the order of simultaneous events matters, which sorting preserves.
            event_number: _,
            flows,
            // Added in the order of first use, and never removed.
            paths: _,
            tasks,
            first: _,
            devices,
            device_of: _,
            capacity: _,
            kernel_floor: _,
            most_urgent: _,
            longest_gap: _,
            further_gaps: _,
            blocks,
            meetings,
            // `awaited` and `awaited_lanes` follow from the state of the ranks that wait.
            awaited: _,
            awaited_lanes: _,
            moved: _,
            queues,
            rule: _,
            front_end_times,
            outstanding,
            parts,
            stamps,
            // Used for messages about hangs only.
            paces: _,
            // Only iterations that are observed are watched, and none of them repeats another.
            watched: _,
        } = self;
        let mut sorted: Vec<_> = events.iter().collect();
        sorted.sort_unstable_by_key(|event| (event.time, event.number));
        digest.size(sorted.len());
        for event in sorted {
            digest.moment(event.time);
            what(digest, event.what);
        }
        flows.digest(digest, |digest, owner| match owner {
            Owner::Blocks(group) => digest.word(group),
            Owner::Copy(task) => digest.task(task),
            Owner::Transfer(transfer) => digest.word(transfer),
        });
        digest.size(tasks.len());
        let latest = tasks.iter().map(|task| task.placing.stamps_before).max().unwrap_or(0);
        tasks.iter().for_each(|task| state(digest, task, latest));
        devices.iter().for_each(|device| {
            of_device(digest, device);
            device.front_end.digest(digest, *now, *front_end_times);
        });
        digest.size(blocks.iter().count());
        for (number, &Blocks { task, count, held }) in blocks.iter() {
            digest.word(number);
            digest.task(task);
            digest.words([count, held]);
        }
        meetings.digest(digest);
        queues.iter().for_each(|queue| digest.tasks(queue.iter().copied()));
        outstanding.iter().for_each(|&count| digest.word(count));
        parts.iter().for_each(|&(_, used)| digest.word(used));
        digest.size(stamps.len());
        for &(stamp, time) in stamps {
            digest.stamp(Some(stamp));
            digest.moment(time);
        }
    }
}

fn what(digest: &mut Digest, what: EventKind) {
    let (kind, task) = match what {
        EventKind::Ready(task) => (0u64, task),
        EventKind::Begin(task) => (1, task),
        EventKind::CopyStarts(task) => (2, task),
        EventKind::Dispatch(task) => (5, task),
        EventKind::Launched { device, end } => {
            digest.words([6, u64::from(device)]);
            return digest.maybe_task(end);
        }
        EventKind::BlocksEnd(group) => return digest.words([3, u64::from(group)]),
        EventKind::Transferred(transfer) => return digest.words([4, u64::from(transfer)]),
    };
    digest.word(kind);
    digest.task(task);
}

/// Adds a task's state to a digest. `latest` is the largest number of stamps before any task up to this one.
fn state(digest: &mut Digest, state: &TaskState, latest: u64) {
    let TaskState {
        action,
        placing,
        open,
        ready,
        visible,
        followers,
        end,
        waiting,
        running,
        left_out,
        observed,
        counted,
        relaunch,
    } = state;
    if let Some(end) = end {
        // Dependents only need its end.
        digest.word(0u64);
        return digest.moment(*end);
    }
    digest.word(1u64);
    of_action(digest, *action);
    digest.word(placing.lane);
    digest.word(placing.queue.map_or(u64::MAX, u64::from));
    // Only hardware queues compare iterations.
    digest.word(placing.queue.map_or(0, |_| latest - placing.stamps_before));
    digest.duration(placing.priority.into());
    digest.word(*open);
    digest.not_before(*ready);
    digest.not_before(*visible);
    digest.size(followers.len());
    for &(follower, gap) in followers {
        digest.task(follower);
        digest.duration(gap);
    }
    digest.words([*waiting, *running]);
    digest.number(*left_out);
    observed.iter().for_each(|&stamp| digest.stamp(stamp));
    match counted {
        None => digest.word(0u64),
        Some((lane, counts)) => digest.words([1, u64::from(*lane), counts[0].into(), counts[1].into()]),
    }
    digest.maybe_task(relaunch.map(|(begin, ..)| begin));
    if let Some((_, call, delay)) = relaunch {
        digest.moment(*call);
        digest.duration(*delay);
    }
}

fn of_action(digest: &mut Digest, action: Action) {
    match action {
        Action::Mark(stamp) => {
            digest.word(0u64);
            digest.stamp(stamp);
        }
        Action::Exchange(exchange) => digest.words([1, u64::from(exchange)]),
        Action::Meet(exchange) => digest.words([2, u64::from(exchange)]),
        Action::BranchEnd => digest.word(7u64),
        Action::Run(Task::Kernel { blocks, share, block_time, busy, floor }) => {
            digest.words([3, blocks, share.into()]);
            let Busy { vector, matrix, memory, to_device, to_host, peer } = busy;
            digest.numbers([block_time, vector, matrix, memory, to_device, to_host, floor]);
            let (to, time) = peer.unwrap_or((u32::MAX, 0.0));
            digest.word(to);
            digest.number(time);
        }
        Action::Run(Task::Copy { direction, bytes, pageable }) => {
            digest.words([4, direction as u64, pageable.into()]);
            digest.number(bytes);
        }
        Action::Run(Task::Peer { to, bytes, rate }) => {
            digest.words([5, u64::from(to)]);
            digest.numbers([bytes, rate]);
        }
        Action::Run(Task::Host { time, share }) => {
            digest.word(6u64);
            digest.numbers([time, share]);
        }
    }
}

fn of_device(digest: &mut Digest, device: &SimDevice) {
    let SimDevice { free, admitted, copies, front_end: _ } = device;
    digest.word(*free);
    digest.tasks(admitted.iter().copied());
    for Engines { free, waiting, latency: _ } in copies {
        digest.word(*free);
        digest.tasks(waiting.iter().copied());
    }
}
