//! Tests against a double of the library.

use std::ffi::CStr;
use std::sync::Mutex;

use super::*;

/// The state of the double. One test uses it.
static STATE: Mutex<State> = Mutex::new(State::new());

struct State {
    /// The status that a function returns instead of 0.
    fails: Option<(&'static str, i32)>,
    /// Beginning of the names of metrics that the library refuses.
    refuses: Option<&'static str>,
    /// Number of passes of a range.
    passes: usize,
    /// Host objects and profilers that exist.
    objects: i32,
    profilers: i32,
    /// The pass and the level that the last configuration had.
    configured: (usize, u16),
    /// Number of ranges that were pushed and not popped.
    open: i32,
    dropped: usize,
}

impl State {
    const fn new() -> State {
        let (fails, refuses) = (None, None);
        State { fails, refuses, passes: 1, objects: 0, profilers: 0, configured: (0, 0), open: 0, dropped: 0 }
    }
}

/// Applies a call to the state. Returns the status of the function.
fn call(name: &str, change: impl FnOnce(&mut State) -> i32) -> i32 {
    let mut state = STATE.lock().expect("no call panics");
    match state.fails {
        Some((fails, code)) if fails == name => code,
        _ => change(&mut state),
    }
}

/// The functions of the double: each gets the parameters and the state, and returns its status.
macro_rules! double {
    ($($name:ident($params:ident: $type:ty, $state:ident) $body:block)*) => {
        $(
            unsafe extern "C" fn $name(params: *mut $type) -> i32 {
                // SAFETY: the caller passes a valid pointer.
                let $params = unsafe { &mut *params };
                assert_eq!($params.size, <$type>::SIZE);
                call(stringify!($name), |$state: &mut State| $body)
            }
        )*
    };
}

double! {
    initialize(_params: Initialize, _state) { 0 }
    chip_name(params: ChipName, _state) { params.name = c"GH100".as_ptr(); 0 }
    availability(params: Availability, _state) { params.bytes = 8; 0 }
    host_initialize(params: HostInitialize, state) {
        assert!(!params.availability.is_null());
        params.host = std::ptr::dangling_mut();
        state.objects += 1;
        0
    }
    host_deinitialize(_params: Host, state) { state.objects -= 1; 0 }
    add_metrics(params: AddMetrics, state) {
        // SAFETY: there are as many names as the parameters say.
        let name = |index: usize| unsafe { CStr::from_ptr(*params.names.add(index)) }.to_string_lossy();
        let refuses = state.refuses.is_some_and(|start| (0..params.count).any(|index| name(index).starts_with(start)));
        if refuses { 17 } else { 0 }
    }
    config_size(params: ConfigSize, _state) { params.bytes = 24; 0 }
    config(params: Config, _state) { assert_eq!(params.bytes, 24); 0 }
    enable(params: Enable, state) { params.profiler = std::ptr::dangling_mut(); state.profilers += 1; 0 }
    disable(_params: Profiler, state) { state.profilers -= 1; 0 }
    data_size(params: DataSize, _state) { params.bytes = 8 * params.count; 0 }
    initialize_data(_params: InitializeData, state) { state.configured = (0, 0); 0 }
    set_config(params: SetConfig, state) {
        assert_eq!((params.config_bytes, params.ranges), (24, 1));
        state.configured = (params.pass, params.level);
        0
    }
    start(_params: Profiler, _state) { 0 }
    push(_params: Push, state) { state.open += 1; 0 }
    pop(_params: Profiler, state) { state.open -= 1; 0 }
    stop(params: Stop, state) {
        assert_eq!(state.open, 0);
        params.pass = state.configured.0 + 1;
        params.level = 1;
        params.complete = u8::from(params.pass == state.passes);
        0
    }
    decode(params: Decode, state) { params.dropped = state.dropped; 0 }
    evaluate(params: Evaluate, _state) {
        // The value of a metric is the length of its name.
        for index in 0..params.count {
            // SAFETY: there are as many names and values as the parameters say.
            unsafe { *params.values.add(index) = CStr::from_ptr(*params.names.add(index)).count_bytes() as f64 };
        }
        0
    }
}

unsafe extern "C" fn result_string(_: i32, text: *mut *const c_char) -> i32 {
    // SAFETY: the caller passes a valid pointer.
    unsafe { *text = c"told".as_ptr() };
    0
}

const DOUBLE: Table = Table {
    initialize,
    chip_name,
    availability,
    host_initialize,
    host_deinitialize,
    add_metrics,
    config_size,
    config,
    evaluate,
    enable,
    disable,
    data_size,
    initialize_data,
    set_config,
    start,
    stop,
    push,
    pop,
    decode,
    result_string,
};

fn enable_double() -> Result<RangeProfiler, String> {
    RangeProfiler::enable(DOUBLE, 0, std::ptr::null_mut())
}

/// Changes the state of the double.
fn set(change: impl FnOnce(&mut State)) {
    change(&mut STATE.lock().expect("no call panics"));
}

fn assert_nothing_is_left() {
    let state = STATE.lock().expect("no call panics");
    assert_eq!((state.objects, state.profilers, state.open), (0, 0, 0));
}

#[test]
fn counts_and_faults() {
    // A count takes two passes; each continues with the numbers that the library has returned.
    let mut profiler = enable_double().expect("it is enabled");
    set(|state| state.passes = 2);
    for _ in 0..2 {
        for (pass, is_complete) in [(0, false), (1, true)] {
            profiler.begin().expect("it begins");
            assert_eq!(STATE.lock().expect("no call panics").configured, (pass, 1));
            assert_eq!(profiler.end(), Ok(is_complete));
        }
        let counts = profiler.values().expect("it counts");
        let values: Vec<Option<f64>> = counts.iter().map(|count| count.value).collect();
        let length = |quantity: &CounterQuantity| match quantity.metrics {
            [part, whole] => Some(100.0 * part.len() as f64 / whole.len() as f64),
            metrics => Some(metrics[0].len() as f64),
        };
        assert_eq!(values, QUANTITIES.iter().map(length).collect::<Vec<_>>());
    }
    set(|state| state.dropped = 1);
    assert_eq!(profiler.values(), Err("the library dropped the counts".to_owned()));
    drop(profiler);
    assert_nothing_is_left();
    set(|state| *state = State::new());

    // A metric that the library refuses has no value, and the others keep theirs.
    for refuses in ["nvl", "sm__cycles", "pcie__read"] {
        set(|state| state.refuses = Some(refuses));
        let mut profiler = enable_double().expect("it counts the others");
        profiler.begin().expect("it begins");
        assert_eq!(profiler.end(), Ok(true));
        for (count, quantity) in profiler.values().expect("it counts").iter().zip(&QUANTITIES) {
            assert_eq!(count.value.is_none(), quantity.metrics[0].starts_with(refuses), "{}", count.metric);
            assert!(quantity.metrics.len() > 1 || count.value.is_none_or(|value| value == count.metric.len() as f64));
        }
    }
    assert_nothing_is_left();

    for (function, code, why) in [
        ("initialize", 39, "another profiler is attached to the process"),
        ("availability", 35, "the driver permits only administrators to use CUPTI: run as root"),
        ("enable", 35, "the driver permits only administrators to use CUPTI: run as root"),
        ("enable", 39, "another profiler is attached to the process"),
        ("start", 26, "another program, such as DCGM, reads the counters of this GPU"),
        ("chip_name", 27, "`cuptiDeviceGetChipName` returned 27 (told)"),
        ("set_config", 7, "`cuptiRangeProfilerSetConfig` returned 7 (told)"),
        ("stop", 999, "`cuptiRangeProfilerStop` returned 999 (told)"),
    ] {
        set(|state| *state = State { fails: Some((function, code)), ..State::new() });
        let error = enable_double().err().expect("it fails");
        assert!(error.starts_with(why), "{function}: {error}");
        set(|state| (state.fails, state.open) = (None, 0));
        assert_nothing_is_left();
    }
}

/// A library without the functions, as CUPTI was before it had a range profiler.
#[test]
fn an_older_library_is_named() {
    let names = ["libm.so.6".to_owned()];
    let error = Table::open(&SearchPaths::default(), &names).err().expect("it has no such function");
    assert!(error.starts_with("a newer CUPTI is needed: "), "{error}");
    assert!(error.contains("`cuptiProfilerInitialize`"), "{error}");
}
