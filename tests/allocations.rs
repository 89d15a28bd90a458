//! The measured loop does not allocate: a thousand iterations need the same number of allocations as ten.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use aorta::exec::{Control, LaunchMode};
use aorta::model::Program;
use aorta::plan::Plan;
use aorta::schedule;

use crate::common::mock::Mock;
use crate::common::{self, shipped};

thread_local! {
    /// Number of allocations by this thread.
    static REQUESTS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator with a counter.
struct Counting;

fn count() {
    // A thread that ends may still allocate after its counter is gone.
    let _ = REQUESTS.try_with(|requests| requests.set(requests.get() + 1));
}

// SAFETY: every call is forwarded to the system's allocator unchanged; the counter is a thread-local cell.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Number of allocations while `iterations` iterations run.
fn requests((program, plan): &(Program, Plan), mode: LaunchMode, iterations: u64) -> u64 {
    let mock = Mock::silent();
    let schedule = common::placed(program, plan, &mock, &schedule::ScheduleOptions::default());
    let mut session = common::session(program, plan, &schedule, &mock);
    session.capture().expect("the mock captures");
    let control = Control::default();
    let before = REQUESTS.get();
    let samples = session.iterate(mode, 5, iterations, &control).expect("the mock does not fail");
    let after = REQUESTS.get();
    assert_eq!(samples.time.len() as u64, iterations);
    after - before
}

#[test]
fn requests_are_counted() {
    let before = REQUESTS.get();
    let boxed = std::hint::black_box(Box::new(1));
    let list: Vec<i32> = std::hint::black_box((0..100).collect());
    assert_eq!(REQUESTS.get() - before, 2, "{boxed} {}", list.len());
}

#[test]
fn the_measured_loop_allocates_nothing() {
    let overlapping = "
        stream a
        stream b
        buffer x, y: f32[4]
        step(sync: end, depth: 2) {
          on a { map(x * 0.5 -> x) }
          on b { map(x + 1 -> y) }
        }";
    let in_turns = "
        stream a
        stream b
        buffer x, y: f32[4]
        step {
          if iteration % 2 == 0 { on a { map(x * 0.5 -> x) } } else { on b { map(y + 1 -> y) } }
        }";
    let own = [("overlapping", overlapping), ("in turns", in_turns)];
    let mut programs = Vec::from(own.map(|(name, text)| (name.to_owned(), common::planned(text))));
    programs.extend(shipped::all().iter().map(|file| (file.path.clone(), file.small(&[]))));
    for (name, program) in &programs {
        for mode in [LaunchMode::Stream, LaunchMode::Graph] {
            let few = requests(program, mode, 10);
            let many = requests(program, mode, 1000);
            // The two vectors of samples, device times and host times, are allocated before the first iteration.
            assert_eq!((few, many), (2, 2), "{name}, {mode:?}");
        }
    }
}
