//! The double of AMD's libraries by itself, driven through the functions that a HIP backend calls.

mod library;

use std::ffi::c_void;
use std::process::Command;

use aorta::model::Program;
use aorta::ops::{Kernel, Launch};
use library::{Hip, Stream, good};

use crate::common::{self, doubles};

const FLOATS: usize = 8 * 512;

fn program(text: &str) -> Program {
    common::planned(text).0
}

fn kernels(program: &Program) -> Vec<Kernel> {
    let launches = program.specs.iter().flat_map(|spec| spec.launch());
    let kernel = |launch| match launch {
        Launch::Kernel(kernel) => Some(kernel),
        _ => None,
    };
    launches.filter_map(kernel).collect()
}

/// The kernel of an operation on `x`, which has 8 rows of 512 floats.
fn kernel(operation: &str) -> Kernel {
    let text = format!("stream s\nbuffer x: f32[8, 512]\nstep {{\n  on s {{ y: {operation} }}\n}}\n");
    kernels(&program(&text)).remove(0)
}

fn write(hip: &Hip, to: *mut c_void, values: &[f32], stream: Stream) {
    good(hip.hipMemcpyHtoDAsync(to, values.as_ptr().cast(), size_of_val(values), stream));
    good(hip.hipStreamSynchronize(stream));
}

fn read(hip: &Hip, from: *mut c_void, stream: Stream) -> Vec<f32> {
    let mut values = vec![0f32; FLOATS];
    good(hip.hipMemcpyDtoHAsync(values.as_mut_ptr().cast(), from, size_of_val(values.as_slice()), stream));
    good(hip.hipStreamSynchronize(stream));
    values
}

/// A row of softmax as anybody would write it.
fn softmax(row: &[f32]) -> Vec<f32> {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|x| f64::from(x - most).exp()).sum();
    row.iter().map(|x| (f64::from(x - most).exp() / sum) as f32).collect()
}

#[test]
fn it_says_what_it_is() {
    let Some(hip) = Hip::open() else { return };
    let mut name = [0u8; 64];
    good(hip.hipDeviceGetName(name.as_mut_ptr().cast(), 64, 0));
    let name = String::from_utf8_lossy(&name);
    assert!(name.starts_with("HIP double on a CPU, not an AMD GPU\0"), "{name}");
    let mut stream = std::ptr::null_mut();
    assert_eq!(hip.hipExtStreamCreateWithCUMask(&mut stream, 1, &1), 801, "no mask is claimed");
}

/// Blocks with barriers and shuffles, and such without.
#[test]
fn kernels_compute() {
    let Some(hip) = Hip::open() else { return };
    let stream = hip.stream();
    let (x, y, z) = (hip.memory(4 * FLOATS), hip.memory(4 * FLOATS), hip.memory(4 * FLOATS));
    let input: Vec<f32> = (0..FLOATS).map(|index| (index * 37 % 101) as f32 / 10.0).collect();
    write(&hip, x, &input, stream);
    let (first, second) = (kernel("softmax(x)"), kernel("map(x * 2 + 1)"));
    good(hip.launch(hip.load(&first.source), &first, &[x, y], stream));
    good(hip.launch(hip.load(&second.source), &second, &[y, z], stream));
    let expected: Vec<f32> = input.chunks(512).flat_map(softmax).map(|value| value * 2.0 + 1.0).collect();
    for (value, expected) in read(&hip, z, stream).iter().zip(&expected) {
        assert!((value - expected).abs() < 1e-5, "{value} is not {expected}");
    }
}

#[test]
fn a_wrong_kernel_has_a_log() {
    let Some(hip) = Hip::open() else { return };
    let mut source = (*kernel("softmax(x)").source).clone();
    source.text += "\n__device__ u33 wrong;\n";
    let log = hip.compile(&source, "gfx000").expect_err("there is no such type");
    assert!(log.contains("kernel.hip:") && log.contains("u33"), "{log}");
    let log = hip.compile(&source, "gfx942").expect_err("it is no AMD compiler");
    assert!(log.contains("gfx000 alone"), "{log}");
}

/// A stream that waits for an event of another sees what that one did.
#[test]
fn events_order_streams() {
    let Some(hip) = Hip::open() else { return };
    let (first, second, event) = (hip.stream(), hip.stream(), hip.event());
    let (x, y) = (hip.memory(4 * FLOATS), hip.memory(4 * FLOATS));
    let (spin, start) = (kernel_of("spin(20ms)"), hip.event());
    good(hip.hipEventRecord(start, first));
    good(hip.launch(hip.load(&spin.source), &spin, &[], first));
    good(hip.hipMemsetAsync(x, 0, 4 * FLOATS, first));
    good(hip.hipEventRecord(event, first));
    good(hip.hipStreamWaitEvent(second, event, 0));
    good(hip.hipMemcpyDtoDAsync(y, x, 4 * FLOATS, second));
    assert_eq!(read(&hip, y, second), vec![0.0; FLOATS]);
    good(hip.hipEventQuery(event));
    let mut milliseconds = 0.0;
    good(hip.hipEventElapsedTime(&mut milliseconds, start, event));
    assert!(milliseconds > 0.0, "{milliseconds} ms");
}

fn kernel_of(operation: &str) -> Kernel {
    kernels(&program(&format!("stream s\nstep {{\n  on s {{ {operation} }}\n}}\n"))).remove(0)
}

#[test]
fn accesses_outside_of_memory_are_refused() {
    let Some(hip) = Hip::open() else { return };
    let stream = hip.stream();
    let x = hip.memory(100);
    assert_eq!(hip.hipMemsetAsync(x, 0, 101, stream), 1, "past the end");
    assert_eq!(hip.hipMemcpyHtoDAsync(x, [0u8; 200].as_ptr().cast(), 200, stream), 1, "past the end");
    assert_eq!(hip.hipMemcpyDtoDAsync(x, hip.pinned(100), 100, stream), 1, "no device memory");
    good(hip.hipStreamDestroy(stream));
    assert_eq!(hip.hipStreamQuery(stream), 400, "destroyed before");
    assert_eq!(hip.hipGetLastError(), 400);
    assert_eq!(hip.hipGetLastError(), 0, "it is forgotten");
}

#[test]
fn rows_are_copied_with_their_gaps() {
    let Some(hip) = Hip::open() else { return };
    let stream = hip.stream();
    let x = hip.memory(4 * FLOATS);
    write(&hip, x, &vec![0.0; FLOATS], stream);
    let rows = [1.0f32, 2.0, 3.0, 4.0];
    good(hip.hipMemcpy2DAsync(x, 40, rows.as_ptr().cast(), 8, 8, 2, 1, stream));
    let values = read(&hip, x, stream);
    assert_eq!((values[0], values[1], values[2], values[10], values[11]), (1.0, 2.0, 0.0, 3.0, 4.0));
}

/// A fork and a join become a graph, each launch of which does everything again.
#[test]
fn captures_become_graphs() {
    let Some(hip) = Hip::open() else { return };
    let (first, second) = (hip.stream(), hip.stream());
    let (fork, join) = (hip.event(), hip.event());
    let (x, y) = (hip.memory(4 * FLOATS), hip.memory(4 * FLOATS));
    let more = kernel("map(x + 1)");
    let function = hip.load(&more.source);
    write(&hip, x, &vec![0.0; FLOATS], first);
    good(hip.hipStreamBeginCapture(first, 1));
    good(hip.launch(function, &more, &[x, x], first));
    good(hip.hipEventRecord(fork, first));
    good(hip.hipStreamWaitEvent(second, fork, 0));
    good(hip.hipMemcpyDtoDAsync(y, x, 4 * FLOATS, second));
    good(hip.hipEventRecord(join, second));
    good(hip.hipStreamWaitEvent(first, join, 0));
    let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
    good(hip.hipStreamEndCapture(first, &mut graph));
    assert_eq!(read(&hip, x, first)[0], 0.0, "nothing ran yet");
    good(hip.hipGraphInstantiateWithFlags(&mut exec, graph, 0));
    for _ in 0..3 {
        good(hip.hipGraphLaunch(exec, first));
    }
    assert_eq!(read(&hip, y, first), vec![3.0; FLOATS]);
}

#[test]
fn captures_are_refused_as_by_the_vendor() {
    let Some(hip) = Hip::open() else { return };
    let (first, second, event) = (hip.stream(), hip.stream(), hip.event());
    let x = hip.memory(100);
    let mut graph = std::ptr::null_mut();

    good(hip.hipStreamBeginCapture(first, 1));
    good(hip.hipMemsetAsync(x, 0, 100, first));
    good(hip.hipEventRecord(event, first));
    good(hip.hipStreamWaitEvent(second, event, 0));
    good(hip.hipMemsetAsync(x, 1, 100, second));
    assert_eq!(hip.hipStreamEndCapture(first, &mut graph), 904, "nobody waits for the other stream");

    good(hip.hipStreamBeginCapture(first, 1));
    assert_eq!(hip.hipStreamQuery(first), 900, "a captured stream cannot be asked");
    assert_eq!(hip.hipStreamEndCapture(first, &mut graph), 901, "the question has broken it");

    good(hip.hipStreamBeginCapture(first, 1));
    assert_eq!(hip.hipDeviceSynchronize(), 900, "nor can its device be waited for");
    assert_eq!(hip.hipStreamEndCapture(first, &mut graph), 901);

    good(hip.hipEventRecord(event, second));
    good(hip.hipStreamBeginCapture(first, 1));
    assert_eq!(hip.hipStreamWaitEvent(first, event, 0), 905, "the event is of no capture");
    assert_eq!(hip.hipStreamEndCapture(first, &mut graph), 901);
    assert_eq!(hip.hipStreamEndCapture(second, &mut graph), 903, "it has begun none");
    good(hip.hipStreamSynchronize(first));
}

/// Two ranks: a sum, then an exchange in both directions at once.
#[test]
fn ranks_meet() {
    let Some(hip) = Hip::open() else { return };
    let mut id = [0; 128];
    good(hip.ncclGetUniqueId(&mut id));
    let rank = |rank: i32| {
        good(hip.hipSetDevice(rank));
        let stream = hip.stream();
        let mut comm = std::ptr::null_mut();
        good(hip.ncclCommInitRank(&mut comm, 2, id, rank));
        let (x, y) = (hip.memory(4 * FLOATS), hip.memory(4 * FLOATS));
        write(&hip, x, &vec![rank as f32 + 1.0; FLOATS], stream);
        good(hip.ncclAllReduce(x, y, FLOATS, 7, 0, comm, stream));
        assert_eq!(read(&hip, y, stream), vec![3.0; FLOATS]);
        good(hip.ncclGroupStart());
        good(hip.ncclSend(x, FLOATS, 7, 1 - rank, comm, stream));
        good(hip.ncclRecv(y, FLOATS, 7, 1 - rank, comm, stream));
        good(hip.ncclGroupEnd());
        assert_eq!(read(&hip, y, stream), vec![2.0 - rank as f32; FLOATS]);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| rank(1));
        rank(0);
    });
}

/// Runs a test of this file in a process of its own, with a fault or, for an empty text, without one.
fn with_fault(fault: &str, test: &str) {
    let tests = std::env::current_exe().expect("a test is a file");
    let mut command = Command::new(tests);
    command.args(["--exact", test, "--ignored"]).env("HIP_DOUBLE_FAULT", fault);
    let output = command.output().expect("the test runs");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && printed.contains("1 passed"), "{fault}: {printed}");
}

/// In this process, another test may get the memory at once.
#[test]
fn memory_is_freed_once() {
    with_fault("", "double::a_second_free_fails");
}

#[test]
#[ignore = "runs in a process of its own"]
fn a_second_free_fails() {
    let Some(hip) = Hip::open() else { return };
    let x = hip.memory(100);
    good(hip.hipFree(x));
    assert_eq!(hip.hipFree(x), 1, "freed before");
}

#[test]
fn faults_strike() {
    with_fault("alloc:2", "double::the_second_allocation_fails");
    with_fault("launch:2", "double::the_second_launch_fails");
    with_fault("late:map:2", "double::the_second_kernel_fails_late");
    with_fault("hang:2", "double::the_second_kernel_hangs");
    with_fault("capture,compile", "double::captures_and_compilations_fail");
}

#[test]
#[ignore = "runs in a process of its own"]
fn the_second_allocation_fails() {
    let Some(hip) = Hip::open() else { return };
    let x = hip.memory(10);
    let mut address = std::ptr::null_mut();
    assert_eq!(hip.hipMalloc(&mut address, 10), 2);
    good(hip.hipMalloc(&mut address, 10));
    good(hip.hipFree(x));
}

#[test]
#[ignore = "runs in a process of its own"]
fn the_second_launch_fails() {
    let Some(hip) = Hip::open() else { return };
    let (stream, x, more) = (hip.stream(), hip.memory(4 * FLOATS), kernel("map(x + 1)"));
    let function = hip.load(&more.source);
    good(hip.launch(function, &more, &[x, x], stream));
    assert_eq!(hip.launch(function, &more, &[x, x], stream), 701);
    good(hip.hipDeviceSynchronize());
}

#[test]
#[ignore = "runs in a process of its own"]
fn the_second_kernel_fails_late() {
    let Some(hip) = Hip::open() else { return };
    let (stream, x, more) = (hip.stream(), hip.memory(4 * FLOATS), kernel("map(x + 1)"));
    let function = hip.load(&more.source);
    good(hip.launch(function, &more, &[x, x], stream));
    good(hip.hipStreamSynchronize(stream));
    good(hip.launch(function, &more, &[x, x], stream));
    assert_eq!(hip.hipStreamSynchronize(stream), 700);
    assert_eq!(hip.launch(function, &more, &[x, x], stream), 700, "the device is lost");
    good(hip.hipSetDevice(1));
    good(hip.hipDeviceSynchronize());
}

#[test]
#[ignore = "runs in a process of its own"]
fn the_second_kernel_hangs() {
    let Some(hip) = Hip::open() else { return };
    let (stream, event, other) = (hip.stream(), hip.event(), hip.stream());
    let (x, more) = (hip.memory(4 * FLOATS), kernel("map(x + 1)"));
    let function = hip.load(&more.source);
    good(hip.launch(function, &more, &[x, x], stream));
    good(hip.hipStreamSynchronize(stream));
    good(hip.launch(function, &more, &[x, x], stream));
    good(hip.hipEventRecord(event, stream));
    good(hip.launch(function, &more, &[x, x], other));
    good(hip.hipStreamSynchronize(other));
    assert_eq!(hip.hipStreamQuery(stream), 600);
    assert_eq!(hip.hipEventQuery(event), 600);
}

#[test]
#[ignore = "runs in a process of its own"]
fn captures_and_compilations_fail() {
    let Some(hip) = Hip::open() else { return };
    let (stream, mut graph) = (hip.stream(), std::ptr::null_mut());
    good(hip.hipStreamBeginCapture(stream, 1));
    assert_eq!(hip.hipStreamEndCapture(stream, &mut graph), 901);
    let source = kernel("map(x + 1)").source;
    let log = hip.compile(&source, "gfx000").expect_err("the first compilation");
    assert!(log.contains("HIP_DOUBLE_FAULT"), "{log}");
    hip.load(&source);
}

/// The other double, as far as it goes without a GPU: it resolves, says that there is none, and compiles for NVIDIA's.
#[test]
fn the_forwarding_double_resolves_and_compiles() {
    let Some(folder) = doubles::forward() else { return };
    let hip = Hip::load_from(folder);
    let mut stream = std::ptr::null_mut();
    assert_eq!(hip.hipExtStreamCreateWithCUMask(&mut stream, 1, &1), 801, "no mask is claimed");
    let (mut major, mut minor) = (0, 0);
    if hip.hiprtcVersion(&mut major, &mut minor) != 0 {
        println!("skipped: no NVRTC in the folders of AORTA_LIBRARY_PATH, nor where the loader looks");
        return;
    }
    let code = hip.compile(&kernel("softmax(x)").source, "gfx000:sm_90").unwrap_or_else(|log| panic!("{log}"));
    assert!(code.starts_with(b"\x7fELF"), "a text becomes machine code");
    let mut source = (*kernel("softmax(x)").source).clone();
    source.text += "\n__device__ u33 wrong;\n";
    let log = hip.compile(&source, "gfx000:sm_90").expect_err("there is no such type");
    assert!(log.contains("u33"), "{log}");
}
