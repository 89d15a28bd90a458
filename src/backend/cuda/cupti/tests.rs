//! Tests against a double of the library, which delivers records of the calls that it announces, in the layout of the
//! real library.

use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize};

use super::*;

static SUBSCRIBES: AtomicI32 = AtomicI32::new(0);
static DROPPED: AtomicUsize = AtomicUsize::new(0);
static LOST_BUFFERS: AtomicUsize = AtomicUsize::new(0);
static FINALIZED: AtomicUsize = AtomicUsize::new(0);
static ENABLED: Mutex<Vec<u32>> = Mutex::new(Vec::new());
static REGISTERED: Mutex<Option<(Requested, Completed)>> = Mutex::new(None);
/// A record that the next flush delivers: kind, number of the call, node, start and end.
type Waiting = (u32, u32, u64, u64, u64);

static WAITING: Mutex<Vec<Waiting>> = Mutex::new(Vec::new());

/// Size of every record of the double. Real records have several sizes, and the library iterates over them.
const SIZE: usize = 216;

unsafe extern "C" fn version(version: *mut u32) -> i32 {
    // SAFETY: the caller passes a valid pointer, as in all functions of the double.
    unsafe { *version = 130_001 };
    0
}

unsafe extern "C" fn result_string(_: i32, text: *mut *const c_char) -> i32 {
    // SAFETY: as above.
    unsafe { *text = c"told".as_ptr() };
    0
}

unsafe extern "C" fn subscribe(subscriber: *mut Subscriber, _: Callback, _: *mut c_void) -> i32 {
    // SAFETY: as above.
    unsafe { *subscriber = std::ptr::dangling_mut() };
    SUBSCRIBES.load(Ordering::Relaxed)
}

unsafe extern "C" fn unsubscribe(_: Subscriber) -> i32 {
    0
}

unsafe extern "C" fn enable_domain(_: u32, _: Subscriber, _: u32) -> i32 {
    0
}

unsafe extern "C" fn enable_callback(_: u32, _: Subscriber, _: u32, _: u32) -> i32 {
    0
}

unsafe extern "C" fn register(requested: Requested, completed: Completed) -> i32 {
    *lock(&REGISTERED) = Some((requested, completed));
    0
}

unsafe extern "C" fn enable(kind: u32) -> i32 {
    lock(&ENABLED).push(kind);
    // Simulates versions that record copies between devices with the other copies.
    if kind == MEMCPY_PEER { 1 } else { 0 }
}

unsafe extern "C" fn disable(kind: u32) -> i32 {
    lock(&ENABLED).retain(|other| *other != kind);
    0
}

unsafe extern "C" fn flush_all(_: u32) -> i32 {
    let Some((requested, completed)) = *lock(&REGISTERED) else { return 0 };
    let waiting = std::mem::take(&mut *lock(&WAITING));
    // Uses a few records per buffer, so that there are several buffers.
    for records in waiting.chunks(3) {
        let (mut buffer, mut size, mut most) = (std::ptr::null_mut(), 0, 0);
        // SAFETY: the buffer has the size that is returned, which three records do not exceed.
        unsafe {
            requested(&mut buffer, &mut size, &mut most);
            assert!(size >= 3 * SIZE && most == 0 && buffer.addr().is_multiple_of(8));
            for (index, &(kind, call, node, start, end)) in records.iter().enumerate() {
                let record = buffer.add(index * SIZE);
                record.write_bytes(0xA5, SIZE);
                record.cast::<u32>().write(kind);
                let (call_at, node_at, channel_at) = offsets(kind).unwrap_or((92, 144, 168));
                record.add(channel_at).cast::<u32>().write_unaligned(9);
                if kind == CONCURRENT_KERNEL {
                    record.add(REGISTERS).cast::<u16>().write_unaligned(40);
                    for (at, value) in
                        [(GRID, 7), (GRID + 4, 2), (GRID + 8, 1), (BLOCK, 128), (BLOCK + 4, 1), (BLOCK + 8, 1)]
                    {
                        record.add(at).cast::<u32>().write_unaligned(value);
                    }
                    for (at, value) in [(STATIC_SHARED, 1024), (DYNAMIC_SHARED, 512), (SHARED_EXECUTED, 0)] {
                        record.add(at).cast::<u32>().write_unaligned(value);
                    }
                    record.add(NAME).cast::<*const c_char>().write_unaligned(c"work".as_ptr());
                }
                record.add(START).cast::<u64>().write_unaligned(start);
                record.add(END).cast::<u64>().write_unaligned(end);
                record.add(call_at).cast::<u32>().write_unaligned(call);
                record.add(node_at).cast::<u64>().write_unaligned(node);
            }
            completed(std::ptr::null_mut(), 0, buffer, size, records.len() * SIZE);
        }
    }
    0
}

unsafe extern "C" fn next_record(buffer: *mut u8, valid: usize, record: *mut *mut u8) -> i32 {
    // SAFETY: as above.
    unsafe {
        let next = if (*record).is_null() { buffer } else { (*record).add(SIZE) };
        if next.addr() >= buffer.addr() + valid {
            return MAX_LIMIT_REACHED;
        }
        *record = next;
    }
    0
}

unsafe extern "C" fn dropped(_: *mut c_void, _: u32, count: *mut usize) -> i32 {
    // SAFETY: as above.
    unsafe { *count = DROPPED.swap(0, Ordering::Relaxed) };
    LOST_BUFFERS.load(Ordering::Relaxed) as i32
}

/// In this double, the handle of a node is its number.
unsafe extern "C" fn node_id(node: *mut c_void, id: *mut u64) -> i32 {
    // SAFETY: as above.
    unsafe { *id = node.addr() as u64 };
    0
}

unsafe extern "C" fn finalize() -> i32 {
    FINALIZED.fetch_add(1, Ordering::Relaxed);
    0
}

static DOUBLE: Table = Table {
    version,
    result_string,
    subscribe,
    unsubscribe,
    enable_domain,
    enable_callback,
    register,
    enable,
    disable,
    flush_all,
    next_record,
    dropped,
    node_id,
    finalize: Some(finalize),
};

static NEXT: AtomicU64 = AtomicU64::new(100);

/// Makes a call that the library announces twice and records. Returns the call's number.
fn call(kind: u32, node: u64) -> u32 {
    let number = NEXT.fetch_add(1, Ordering::Relaxed) as u32;
    let mut data = [0u64; 9];
    data[CALL_CORRELATION / 8] = u64::from(number);
    // SAFETY: the data have the size of `CUpti_CallbackData`, and the user's pointer is the table.
    unsafe {
        noted(std::ptr::from_ref(&DOUBLE).cast_mut().cast(), DRIVER, 307, data.as_ptr().cast());
        noted(std::ptr::from_ref(&DOUBLE).cast_mut().cast(), DRIVER, 307, data.as_ptr().cast());
    }
    if kind != 0 {
        let start = 1_000 * u64::from(number);
        lock(&WAITING).push((kind, number, node, start, start + 10));
    }
    number
}

/// Announces that a node has been created, or cloned from another.
fn node(callback: u32, id: u64, original: u64) {
    let graph = [0u64, 0, id, original];
    let data = [0u64, 0, graph.as_ptr() as u64];
    // SAFETY: the data have the size of `CUpti_ResourceData`, and point to what they describe.
    unsafe { noted(std::ptr::from_ref(&DOUBLE).cast_mut().cast(), RESOURCE, callback, data.as_ptr().cast()) };
}

/// The library's state belongs to the process, so one test runs all cases one after another.
#[test]
fn records_are_collected_and_everything_is_detached() {
    let cupti = Cupti { table: &DOUBLE, version: 130_001, path: "double" };
    assert_eq!(cupti.name(), "CUPTI 13.0");

    // Another profiler is attached, or permission is missing: the error has the reason in words, and nothing stays
    // enabled.
    for (code, why) in [
        (MULTIPLE_SUBSCRIBERS, "another profiler is attached to the process"),
        (INSUFFICIENT_PRIVILEGES, "the driver permits only administrators to use CUPTI: run as root"),
        (999, "`cuptiSubscribe` returned 999 (told)"),
    ] {
        SUBSCRIBES.store(code, Ordering::Relaxed);
        let error = cupti.begin().unwrap_err();
        assert!(error.starts_with(why), "{error}");
        assert!(lock(&ENABLED).is_empty());
    }
    SUBSCRIBES.store(0, Ordering::Relaxed);

    // Two ranks of a process; this thread is one of them.
    cupti.begin().expect("it attaches");
    cupti.begin().expect("it is attached");
    assert_eq!(lock(&ENABLED).len(), KINDS.len());
    let purpose = |op| Some(CallPurpose::Operation { iteration: 0, op });
    cupti.set_purpose(purpose(3));
    let own = [call(CONCURRENT_KERNEL, 0), call(MEMCPY, 0), call(MEMSET, 0), call(MEMCPY_PEER, 0)];
    cupti.set_purpose(None);
    let foreign = call(CONCURRENT_KERNEL, 0);
    lock(&WAITING).push((38, foreign, 0, 1, 2));
    // The nodes of a graph that is cloned twice; one node belongs to no operation.
    cupti.set_purpose(purpose(4));
    node(NODE_CREATED, 11, 0);
    cupti.set_purpose(None);
    node(NODE_CREATED, 12, 0);
    node(NODE_CLONED, 21, 11);
    node(NODE_CLONED, 22, 12);
    node(NODE_CLONED, 31, 21);
    let (calls, mut nodes) = cupti.take_notes();
    nodes.sort_by_key(|node| node.id);
    assert_eq!(
        calls,
        own.map(|correlation| LaunchCall { correlation, purpose: CallPurpose::Operation { iteration: 0, op: 3 } })
    );
    assert_eq!(nodes, [11, 21, 31].map(|id| GraphNode { id, op: 4 }));
    assert!(cupti.take_notes().0.is_empty());

    let (activities, dropped) = cupti.end(&own.into_iter().collect()).expect("there are records");
    let launch = KernelLaunch {
        name: Some("work".into()),
        grid: [7, 2, 1],
        block: [128, 1, 1],
        registers: Some(40),
        shared_bytes: 1536,
        ..KernelLaunch::default()
    };
    let expected = own.map(|correlation| {
        let start = 1_000 * u64::from(correlation);
        let kernel = (correlation == own[0]).then(|| launch.clone());
        Activity { correlation, node: 0, start, end: start + 10, queue: Some(9), kernel }
    });
    assert_eq!((activities.as_slice(), dropped), (expected.as_slice(), 0));
    assert_eq!((lock(&ENABLED).len(), FINALIZED.load(Ordering::Relaxed)), (KINDS.len(), 0), "a rank still records");
    // The records of the other rank were read together with those of this one. The other rank dropped records.
    DROPPED.store(2, Ordering::Relaxed);
    let (activities, dropped) = cupti.end(&HashSet::from([foreign])).expect("there are records");
    assert_eq!((activities.len(), dropped), (1, 2));
    assert!(lock(&ENABLED).is_empty());
    assert_eq!(FINALIZED.load(Ordering::Relaxed), 1);
    assert!(lock(&FULL).is_empty() && !lock(&EMPTY).is_empty(), "buffers are kept for the next pass");

    // A later pass does not see records of this one, and the library is detached even if one of its functions fails.
    cupti.begin().expect("it attaches again");
    LOST_BUFFERS.store(7, Ordering::Relaxed);
    let why = cupti.end(&HashSet::new()).unwrap_err();
    assert_eq!(why, "`cuptiActivityGetNumDroppedRecords` returned 7 (told)");
    assert!(lock(&ENABLED).is_empty());
}
