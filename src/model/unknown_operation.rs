//! Help for operations that do not exist.

use crate::base::{Interner, SrcSpan, suggest};
use crate::ops;
use crate::ops::expression::Unary;
use crate::syntax::ast::{Arg, Call};
use crate::syntax::written;

use super::callee::{GRADIENT, MARKERS};
use super::error::ModelError;

/// Names of operations in other tools, without underscores, and the call to write instead: `$1` and `$2` are its
/// inputs, `$>` the arrow with its outputs.
const CALLS: [(&[&str], &str); 9] = [
    (&["add"], "map($1 + $2$>)"),
    (&["sub", "subtract"], "map($1 - $2$>)"),
    (&["mul", "multiply", "scale"], "map($1 * $2$>)"),
    (&["div", "divide"], "map($1 / $2$>)"),
    (
        &[
            "linear",
            "matmul",
            "mm",
            "bmm",
            "dot",
            "sgemm",
            "hgemm",
            "cublasgemm",
            "batchedgemm",
            "gemmbatched",
            "gemmstridedbatched",
        ],
        "gemm($1, $2$>)",
    ),
    (&["zero", "zeros", "clear"], "fill(0 -> $1)"),
    (&["ones"], "fill(1 -> $1)"),
    (&["all2all", "alltoallsingle"], "all_to_all($1$>)"),
    (&["conv1d", "conv2d", "conv3d", "convolution"], "conv($1, $2$>)"),
];

/// Names of operations in other tools, with a sentence to show, if no single call replaces them.
const TEXTS: [(&[&str], &str); 15] = [
    (
        &["memcpy", "memcpy2d", "memcpypeer", "memcpydtoh", "memcpyhtod", "memcpydtod", "copyto", "clone"],
        "write `copy(src -> dst)`: the direction follows from the spaces of both",
    ),
    (&["record", "eventrecord", "recordevent"], "an event is a `signal()` with a label: `e: signal()`"),
    (
        &["waitevent", "streamwait", "streamwaitevent", "waitstream"],
        "write `wait(e)`, where `e` is the label of a `signal()` or of any other operation",
    ),
    (
        &["synchronize", "devicesynchronize", "streamsynchronize", "eventsynchronize"],
        "an iteration ends when all streams have finished; `sync()` makes all of them wait for each other before \
         that, and \
         `host_sync()` makes the host wait for all of them",
    ),
    (&["print", "printf"], "declare a figure of the report outside of the step: `metric m = time(f)`"),
    (
        &["launch", "graphlaunch", "replay", "launchkernel"],
        "`aorta exec FILE --launch graph` launches the step as a graph",
    ),
    (&["sleep", "usleep", "nanosleep", "delay"], "write `spin(10us)`"),
    (
        &["rand", "randn", "random", "normal", "uniform"],
        "a buffer holds random values before the run: `buffer x: f32[1024] = random(1)`",
    ),
    (&["isend", "irecv"], "write `send` and `recv` in one `group { … }`: there, none waits for the other"),
    (
        &["maxpool", "maxpool1d", "maxpool2d", "maxpool3d"],
        "write `pool(x, mode: max, size: 2)`, for one to three spatial dimensions",
    ),
    (
        &["avgpool", "avgpool1d", "avgpool2d", "avgpool3d", "meanpool"],
        "write `pool(x, mode: mean, size: 2)`, for one to three spatial dimensions",
    ),
    (
        &["view", "reshape", "flatten", "squeeze", "unsqueeze"],
        "other dimensions of the same elements are a value, which moves nothing: `let y = view(x, [4, 8])`",
    ),
    (&["malloc", "mallocasync", "alloc", "empty"], "memory is declared: `buffer x: f32[1024]`"),
    (&["prev", "previous"], "`prev(f)` is the label `f` in the iteration before: `on s after prev(f) { … }`"),
    (&["free", "freeasync", "del"], "remove it: the memory of an output without a name is reused automatically"),
];

/// Prefixes and suffixes of names that show their origin.
const PREFIXES: [&str; 5] = ["cuda", "hip", "nccl", "rccl", "cublas"];
const SUFFIXES: [&str; 3] = ["async", "intotensor", "tensor"];

/// Maximum number of definitions listed beside the operations.
const MAX_SHOWN: usize = 20;

/// The error for a call of an unknown operation. `defs` are the file's definitions; `on_stream` is true if the name
/// before the dot is a stream.
pub(super) fn unknown_operation(call: &Call, names: &Interner, defs: &[&str], on_stream: bool) -> ModelError {
    let parts: Vec<&str> = call.callee.iter().map(|part| names.name(part.symbol)).collect();
    let last = parts.last().copied().unwrap_or_default();
    let plain = plain_name(last);
    let known = ops::CATALOGUE.iter().map(|operation| operation.name()).chain(MARKERS).chain([GRADIENT]);
    let all = known.clone().chain(defs.iter().copied());
    let help = if on_stream && all.clone().any(|name| name == last) {
        format!(
            "write operations in a block of their stream: `on {} {{ {} }}`",
            parts[0],
            written_as(last, call, names)
        )
    } else if parts.len() > 1 && all.clone().any(|name| name == last) {
        format!("leave out what precedes the dot: `{}`", written_as(last, call, names))
    } else if let Some(call) = instead(&plain, call, names) {
        format!("here that is `{call}`")
    } else if let Some((_, text)) = TEXTS.iter().find(|(others, _)| others.contains(&plain.as_str())) {
        (*text).to_owned()
    } else if let Some(near) = suggest::nearest(last, all.clone()).or_else(|| suggest::nearest(&plain, all)) {
        format!("did you mean `{near}`?")
    } else {
        // A long list would not help.
        let shown = if defs.len() <= MAX_SHOWN { defs } else { &[] };
        let all: Vec<&str> = known.chain(shown.iter().copied()).collect();
        format!("there are {}", suggest::listed(&all))
    };
    let at = call.callee.iter().map(|part| part.span).reduce(SrcSpan::to).unwrap_or(call.span);
    ModelError::UnknownOperation { name: parts.join("."), at: at.into(), help: Some(help) }
}

/// A name without underscores, capitals, and prefixes of its origin: `cudaMemcpyAsync` becomes `memcpy`.
fn plain_name(name: &str) -> String {
    let lower: String = name.chars().filter(|c| *c != '_').map(|c| c.to_ascii_lowercase()).collect();
    let without = PREFIXES.iter().find_map(|prefix| lower.strip_prefix(prefix)).unwrap_or(&lower);
    let without = SUFFIXES.iter().find_map(|suffix| without.strip_suffix(suffix)).unwrap_or(without);
    if without.is_empty() { lower } else { without.to_owned() }
}

/// The call that replaces a call of other tools, with the arguments that were given.
fn instead(plain: &str, call: &Call, names: &Interner) -> Option<String> {
    let template = match Unary::from_name(plain) {
        Some(function) => format!("map({}($1)$>)", function.name()),
        None => CALLS.iter().find(|(others, _)| others.contains(&plain)).map(|(_, call)| (*call).to_owned())?,
    };
    let input = |place: usize, default: &str| {
        call.inputs.get(place).map_or(default.to_owned(), |arg| written(&arg.value, names))
    };
    let arrow = if call.outputs.is_empty() { String::new() } else { format!(" -> {}", list(&call.outputs, names)) };
    let filled = template.replace("$1", &input(0, "x")).replace("$2", &input(1, "y")).replace("$>", &arrow);
    Some(filled)
}

/// A call of an operation with the inputs and outputs of another.
fn written_as(name: &str, call: &Call, names: &Interner) -> String {
    let arrow = if call.outputs.is_empty() { String::new() } else { format!(" -> {}", list(&call.outputs, names)) };
    format!("{name}({}{arrow})", list(&call.inputs, names))
}

fn list(args: &[Arg], names: &Interner) -> String {
    args.iter().map(|arg| written(&arg.value, names)).collect::<Vec<_>>().join(", ")
}
