//! Faults on demand: `HIP_DOUBLE_FAULT=alloc:3,late:softmax` makes the third allocation fail, and the first kernel of that
//! name fail after it was launched.
//!
//! | kind | what fails |
//! | --- | --- |
//! | `alloc`, `pinned` | an allocation of device memory, or of pinned memory: out of memory |
//! | `import` | memory of another process cannot be opened |
//! | `compile` | the compilation of a kernel |
//! | `launch` | a launch: out of resources |
//! | `stuck` | a launch: the call never returns |
//! | `dies` | a launch: the process ends |
//! | `late` | a kernel while it runs: an illegal access, told by every later call on its device |
//! | `hang` | a kernel, which never ends |
//! | `capture` | the end of a capture |
//! | `uncapturable` | a launch in a capture, which it breaks |
//! | `call` | a call of the exported function of that name, with the library's number for an error |
//! | `kill` | the process, which ends as by `kill -9`, at a call of that function |
//! | `halt` | a call of that function, which never returns |
//!
//! Behind the kind stand a kernel's name, where kernels are meant, a number that counts from 1, or `name:number`.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::PoisonError;

/// How often each exported function was called.
static CALLS: Mutex<BTreeMap<&str, u64>> = Mutex::new(BTreeMap::new());

unsafe extern "C" {
    fn raise(signal: std::ffi::c_int) -> std::ffi::c_int;
}

/// Counts a call of an exported function. Returns true if it must fail; `hipStreamEndCapture` checks by itself, since
/// it has work to do in any case.
pub fn fails(function: &'static str) -> bool {
    *CALLS.lock().unwrap_or_else(PoisonError::into_inner).entry(function).or_default() += 1;
    if strikes("kill", function) {
        // SAFETY: the function takes any number; this one ends the process as `kill -9` does.
        unsafe { raise(9) };
    }
    if strikes("halt", function) {
        loop {
            std::thread::park();
        }
    }
    function != "hipStreamEndCapture" && strikes("call", function)
}

/// Whether an exported function was called before.
pub fn called(function: &str) -> bool {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner).contains_key(function)
}

/// At the regular end of the process, writes lines `FUNCTION COUNT` to the file that `HIP_DOUBLE_CALLS` names.
extern "C" fn write_calls() {
    let Ok(path) = std::env::var("HIP_DOUBLE_CALLS") else { return };
    let calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    let lines: String = calls.iter().map(|(function, count)| format!("{function} {count}\n")).collect();
    let _ = std::fs::write(path, lines);
}

/// The loader calls the functions in this section when the process ends.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_THE_END: extern "C" fn() = write_calls;

/// A fault, and how many more calls of its kind succeed.
struct Fault {
    kind: String,
    name: Option<String>,
    left: u64,
}

fn parse(text: &str) -> Vec<Fault> {
    let one = |part: &str| {
        let mut words = part.trim().split(':').map(str::to_owned);
        let kind = words.next().filter(|kind| !kind.is_empty())?;
        let (mut name, mut left) = (None, 1);
        for word in words {
            match word.parse() {
                Ok(number) => left = number,
                Err(_) => name = Some(word),
            }
        }
        Some(Fault { kind, name, left })
    };
    text.split(',').filter_map(one).collect()
}

/// True if this call must fail.
pub fn strikes(kind: &str, name: &str) -> bool {
    static FAULTS: OnceLock<Mutex<Vec<Fault>>> = OnceLock::new();
    let faults = FAULTS.get_or_init(|| Mutex::new(parse(&std::env::var("HIP_DOUBLE_FAULT").unwrap_or_default())));
    let mut faults = faults.lock().unwrap_or_else(PoisonError::into_inner);
    let mut struck = false;
    for fault in faults.iter_mut().filter(|fault| fault.kind == kind) {
        if fault.name.as_deref().is_none_or(|wanted| wanted == name) && fault.left > 0 {
            fault.left -= 1;
            struck |= fault.left == 0;
        }
    }
    struck
}
