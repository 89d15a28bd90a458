//! Names of operations in other tools, and what to write instead.

use crate::base::Interner;
use crate::ops::expression::Unary;
use crate::ops::{self, Input, Signature};
use crate::syntax::ast::{Arg, Call, ExprKind};
use crate::syntax::written;

use super::unknown::{input_instead, option_instead};

/// Names of other tools without underscores, and the help for their calls. In a help, `$1`, `$2` and `$3` stand for the
/// inputs of the call, `$>` for the arrow with the outputs, and `$0` for the name as it was called. `$*` stands for all
/// inputs, with those options that the operation before it has too. The members of a list count as inputs of their own.
const HELPS: &[(&[&str], &str)] = &[
    (&["add"], "here that is `map($1 + $2$>)`"),
    (&["sub", "subtract"], "here that is `map($1 - $2$>)`"),
    (&["mul", "multiply", "scale"], "here that is `map($1 * $2$>)`"),
    (&["div", "divide"], "here that is `map($1 / $2$>)`"),
    (&["where"], "here that is `map(if $1 { $2 } else { $3 }$>)`"),
    (&["maskedfill"], "here that is `map(if $2 { $3 } else { $1 }$>)`"),
    (&["clamp", "clip"], "write `map(min(max($1, lowest), highest)$>)`"),
    (
        &[
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
        "here that is `gemm($1, $2$>)`",
    ),
    (
        &["linear"],
        "write `gemm($*, transpose_b: true$>)` for a weight of [outputs, inputs], as PyTorch has it; for one of [inputs, outputs], \
         leave `transpose_b` out",
    ),
    (
        &["addmm", "addbmm", "baddbmm"],
        "write `gemm($2, $3, $1$>)` for a bias with an element for each column; `accumulate: true` adds to a whole matrix",
    ),
    (
        &["einsum", "tensordot"],
        "write a `gemm` with `transpose_a` and `transpose_b`, or a sum over an expression: `sum(x * y, dims: [1])`",
    ),
    (&["groupedmm", "groupgemm", "groupmm", "segmentmm"], "here that is `grouped_gemm($*$>)`"),
    (&["scaledmm"], "here that is `scaled_gemm($*$>)`"),
    (
        &[
            "scaleddotproductattention",
            "sdpa",
            "flashattention",
            "flashattn",
            "flashattnfunc",
            "mha",
            "multiheadattention",
        ],
        "here that is `attention($*$>)`",
    ),
    (
        &["flashattnvarlen", "flashattnvarlenfunc", "varlenattention"],
        "packed sequences have an operation of their own: `ragged_attention(q, k, v, ends, key_ends)`",
    ),
    (&["conv1d", "conv2d", "conv3d", "convolution"], "here that is `conv($*$>)`"),
    (
        &["convtranspose1d", "convtranspose2d", "convtranspose3d", "deconv", "deconvolution"],
        "here that is `conv($*, transposed: true$>)`",
    ),
    (
        &["maxpool", "maxpool1d", "maxpool2d", "maxpool3d"],
        "write `pool(x, mode: max, size: 2)`, for one to three spatial dimensions",
    ),
    (
        &["avgpool", "avgpool1d", "avgpool2d", "avgpool3d", "meanpool"],
        "write `pool(x, mode: mean, size: 2)`, for one to three spatial dimensions",
    ),
    (
        &["adaptiveavgpool1d", "adaptiveavgpool2d", "adaptiveavgpool3d"],
        "write `pool(x, mode: mean, adaptive: true -> y)`: the sizes of `y` determine the windows",
    ),
    (
        &["interpolate", "upsample"],
        "for nearest neighbours, declare `y: f32[n, c, h, 2, w, 2]` and write `copy(x -> y[.., .., .., i, .., j])` for each `i` and \
         `j`; by weights, it is `conv(x, w, transposed: true, stride: 2)`",
    ),
    (&["batchnorm1d", "batchnorm2d", "batchnorm3d"], "here that is `batch_norm($*$>)`"),
    (&["mseloss"], "here that is `mse($*$>)`"),
    (&["l1loss"], "here that is `l1($*$>)`"),
    (&["smoothl1", "smoothl1loss", "huberloss"], "here that is `huber($*$>)`"),
    (&["crossentropyloss"], "here that is `cross_entropy($*$>)`"),
    (&["nllloss"], "`cross_entropy(logits, targets)` includes the logarithm of the softmax"),
    (&["logsoftmax"], "write `l: logsumexp($1, dims: [-1], keepdim: true)`, and `map($1 - l$>)`"),
    (&["lse"], "here that is `logsumexp($*$>)`"),
    (
        &["norm", "l2norm", "vectornorm"],
        "the 2-norm of a whole tensor is `grad_norm($1)`; that of each row is the square root of `sum($1 * $1, dims: [-1])`",
    ),
    (
        &["softplus", "leakyrelu", "elu", "selu", "mish", "hardswish", "hardsigmoid", "softsign"],
        "`std.layers` has it: write `use std.layers` at the top of the file, and `layers.$0(…)`",
    ),
    (
        &["glu", "swiglu", "geglu", "reglu", "siluandmul", "geluandmul"],
        "a gate is the epilogue of its product: `gemm(x, w -> h, epilogue: swiglu)`",
    ),
    (
        &["var", "variance", "std", "stddev"],
        "write `m: mean($1, dims: [-1], keepdim: true)`, and `v: mean(($1 - m) * ($1 - m), dims: [-1])`: the variance, whose square root is the \
         standard deviation",
    ),
    (
        &["bce", "bceloss", "binarycrossentropy"],
        "write `mean(-($2 * log($1) + (1 - $2) * log(1 - $1)))`, for probabilities and targets",
    ),
    (
        &["onehot"],
        "declare `buffer classes: i32[n] = iota`, and write `map(if i == classes { 1 } else { 0 })`, where `i` ends with a dimension of size 1",
    ),
    (&["arange", "linspace"], "a buffer holds 0, 1, 2 and so on before the run: `buffer x: i32[16] = iota`"),
    (
        &["roll"],
        "write two copies: `copy(x[k..n] -> y[0..n - k])` and `copy(x[0..k] -> y[n - k..n])` for $1 of `n` elements",
    ),
    (&["flip", "reverse"], "`gather(x, i)` with descending indices reverses the rows of `x`"),
    (&["cat", "concatenate", "hstack", "vstack"], "here that is `concat($*$>)`"),
    (&["stack"], "write each tensor to a slice of one buffer: `copy($1 -> all[0])` and `copy($2 -> all[1])`"),
    (
        &["split", "chunk", "narrow", "unbind", "slice"],
        "write a slice where it is read: `x[0..4]`, or `x[.., 0..4]` for the second dimension",
    ),
    (
        &["expand", "expandas", "broadcastto", "repeat", "tile"],
        "`map` repeats a dimension of size 1 itself; to store what is repeated, `copy` it to each slice in a `for`",
    ),
    (&["indexselect", "take"], "`gather(x, i)` selects rows of `x`, along its first dimension"),
    (
        &["scatteradd", "indexadd", "segmentsum", "unsortedsegmentsum"],
        "write `scatter(x, i -> y, combine: add)`: it adds row j of `x` to row `i[j]` of `y`, which begins as zeros",
    ),
    (&["embeddingbag"], "write `rows: embedding(table, ids)`, and `sum(rows, dims: [1])` over the ids of each bag"),
    (
        &["triu", "tril", "causalmask"],
        "`attention(q, k, v, causal: true)` needs no mask; another mask is a bias with `-inf`, which a `map` can compute",
    ),
    (&["argsort"], "write `s: sort($1)`; `s.indices` is the order of the elements"),
    (
        &["bincount", "histc", "histogram"],
        "`permute(x, choices, experts: n)` counts how often each number was chosen, in its output `counts`",
    ),
    (
        &["scan", "selectivescan", "associativescan"],
        "the scans are `cumsum` and `cumprod`; another recurrence is a `for` over the positions, or a `kernel` of your own",
    ),
    (&["to", "type", "astype", "convert"], "here that is `cast($1, to: $2$>)`"),
    (&["float"], "here that is `cast($1, to: f32$>)`"),
    (&["half"], "here that is `cast($1, to: f16$>)`"),
    (&["bfloat16"], "here that is `cast($1, to: bf16$>)`"),
    (
        &["quantize", "dequantize", "quantizepertensor"],
        "write `map(round(x / scale) -> y)`: the result is converted to the type of `y`, such as `i8`",
    ),
    (&["zero", "zeros", "clear"], "here that is `fill(0 -> $1)`"),
    (&["ones"], "here that is `fill(1 -> $1)`"),
    (&["full", "fulllike"], "here that is `fill($2 -> $1)`"),
    (
        &["rand", "randn", "random", "normal", "uniform"],
        "a buffer holds random values before the run: `buffer x: f32[1024] = random(1)`",
    ),
    (&["clipgradnorm"], "write `n: grad_norm(g)`, and `map(g * min(1, limit / (n + 1e-6)) -> g)`"),
    (
        &["nograd", "inferencemode", "detach", "stopgradient", "requiresgrad"],
        "remove it: gradients exist only where a `grad` asks for them",
    ),
    (&["zerograd"], "remove it: a `grad` without `accumulate: true` overwrites its outputs"),
    (&["step"], "write the optimizer's operation: `adamw(g -> w, m, v, lr: 1e-3)` or `sgd(g -> w, lr: 0.1)`"),
    (&["backward", "autograd", "vjp"], "gradients are those of a label: `f: layer(x, w)`, and `grad(f, dy -> dx, dw)`"),
    (
        &["checkpoint", "recompute"],
        "to compute values again, call the `def` again, `again: layer(x, w)`, and write `grad(again, dy -> dx, dw)`",
    ),
    (&["all2all", "alltoallsingle"], "here that is `all_to_all($1$>)`"),
    (
        &["isend", "irecv", "sendrecv", "batchisendirecv"],
        "write `send` and `recv` in one `group { … }`: there, none waits for the other",
    ),
    (
        &[
            "memcpy",
            "memcpy2d",
            "memcpypeer",
            "memcpydtoh",
            "memcpyhtod",
            "memcpydtod",
            "memcpyh2d",
            "memcpyd2h",
            "h2d",
            "d2h",
            "d2d",
            "htod",
            "dtoh",
            "copyto",
            "clone",
            "cpu",
            "cuda",
        ],
        "write `copy(src -> dst)`: the direction follows from the spaces of both",
    ),
    (
        &["prefetch", "memprefetch"],
        "a `copy` to device memory on a stream of its own fetches ahead; pages of `managed` memory move when a kernel reads them",
    ),
    (
        &["view", "reshape", "flatten", "squeeze", "unsqueeze"],
        "other dimensions of the same elements are a value, which moves nothing: `let y = view(x, [4, 8])`",
    ),
    (&["malloc", "mallocasync", "alloc", "empty"], "memory is declared: `buffer x: f32[1024]`"),
    (&["free", "freeasync", "del"], "remove it: the memory of an output without a name is reused automatically"),
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
    (&["prev", "previous"], "`prev(f)` is the label `f` in the iteration before: `on s after prev(f) { … }`"),
    (&["print", "printf"], "declare a figure of the report outside of the step: `metric m = time(f)`"),
    (
        &["assert", "check"],
        "outside of the step, `require n > 0 \"n is positive\"` checks parameters, and `expect time < 1ms` figures",
    ),
    (
        &["launch", "graphlaunch", "replay", "launchkernel"],
        "`aorta exec FILE --launch graph` launches the step as a graph",
    ),
    (&["sleep", "usleep", "nanosleep", "delay"], "write `spin(10us)`"),
    (&["compute", "flops", "busy"], "a kernel of a known cost is `work(flops: 2GFLOP, bytes: 64MiB)`"),
];

/// Prefixes and suffixes of names that show their origin.
const PREFIXES: [&str; 5] = ["cuda", "hip", "nccl", "rccl", "cublas"];
const SUFFIXES: [&str; 3] = ["async", "intotensor", "tensor"];

/// A name without underscores, capitals, and the prefixes and suffixes of its origin: `cudaMemcpyAsync` becomes `memcpy`.
pub(super) fn without_origin(name: &str) -> String {
    let lower: String = name.chars().filter(|c| *c != '_').map(|c| c.to_ascii_lowercase()).collect();
    let without = PREFIXES.iter().find_map(|prefix| lower.strip_prefix(prefix)).unwrap_or(&lower);
    let without = SUFFIXES.iter().find_map(|suffix| without.strip_suffix(suffix)).unwrap_or(without);
    if without.is_empty() { lower } else { without.to_owned() }
}

/// True if the name of a function has the prefix of a library, such as `ncclAllReduce`.
pub(in crate::model) fn is_of_library(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(char::is_uppercase)))
}

/// The operation that other tools call `name`; `None` if no known tool has it.
pub fn operation_elsewhere(name: &str) -> Option<&'static str> {
    let plain = without_origin(name);
    if Unary::from_name(&plain).is_some() {
        return Some("map");
    }
    let (_, help) = HELPS.iter().find(|(others, _)| others.contains(&plain.as_str()))?;
    let names = help.split('`').skip(1).step_by(2).map(|code| code.split('(').next().unwrap_or(code));
    names.map(|name| name.rsplit(": ").next().unwrap_or(name)).find(|name| ops::find(name).is_some())
}

/// Help for a call of an operation that other tools call `name`; `None` if no known tool has it. `receiver` is the tensor of a
/// method call, `x` in `x.add_(1)`.
pub(in crate::model) fn help(name: &str, receiver: Option<&str>, call: &Call, names: &Interner) -> Option<String> {
    let plain = without_origin(name);
    if let Some(function) = Unary::from_name(&plain) {
        return Some(filled(&format!("here that is `map({}($1)$>)`", function.name()), name, receiver, call, names));
    }
    let moves =
        ["cpu", "cuda", "gpu"].iter().any(|device| inputs(call, names).iter().any(|input| input.contains(device)));
    let plain = if plain == "to" && moves { "copyto" } else { &plain };
    let (_, help) = HELPS.iter().find(|(others, _)| others.contains(&plain))?;
    Some(filled(help, name, receiver, call, names))
}

/// A help with the parts of a call in their places.
fn filled(help: &str, name: &str, receiver: Option<&str>, call: &Call, names: &Interner) -> String {
    let mut inputs = inputs(call, names);
    inputs.splice(0..0, receiver.map(str::to_owned));
    // A method of PyTorch whose name ends with `_` writes to its tensor.
    let arrow = match receiver {
        Some(receiver) if name.ends_with('_') && call.outputs.is_empty() => format!(" -> {receiver}"),
        _ => arrow(call, names),
    };
    let input = |place: usize, default: &str| inputs.get(place).cloned().unwrap_or_else(|| default.to_owned());
    let filled = match help.split_once("($*") {
        Some((before, _)) => {
            let operation = ops::find(before.rsplit('`').next().unwrap_or_default());
            // A layer of PyTorch is made from sizes, which are no operands: `nn.Linear(64, 64)`.
            let is_size = |arg: &Arg| matches!(arg.value.kind, ExprKind::Int(_));
            let has_sizes = receiver.is_none() && !call.inputs.is_empty() && call.inputs.iter().all(is_size);
            let all = operation.map_or_else(Vec::new, |operation| {
                let signature = operation.signature();
                let inputs = if has_sizes { operands(signature) } else { inputs.clone() };
                arguments(signature, inputs, call, names)
            });
            help.replace("$*", &if all.is_empty() { "…".to_owned() } else { all.join(", ") })
        }
        None => help.to_owned(),
    };
    filled
        .replace("$0", name)
        .replace("$1", &input(0, "x"))
        .replace("$2", &input(1, "y"))
        .replace("$3", &input(2, "z"))
        .replace("$>", &arrow)
}

/// The names of the tensors that an operation must have.
fn operands(signature: &Signature) -> Vec<String> {
    let name = |input: &Input| match input {
        Input::Tensor(name) => Some((*name).to_owned()),
        _ => None,
    };
    signature.inputs.iter().filter_map(name).collect()
}

/// The inputs of a call as they are written; a list counts as its members.
fn inputs(call: &Call, names: &Interner) -> Vec<String> {
    let members = |arg: &Arg| match &arg.value.kind {
        ExprKind::List(items) => items.iter().map(|item| written(item, names)).collect(),
        _ => vec![written(&arg.value, names)],
    };
    call.inputs.iter().flat_map(members).collect()
}

/// The inputs and the options of a call under the names of an operation; options that it does not have are left out.
fn arguments(signature: &Signature, inputs: Vec<String>, call: &Call, names: &Interner) -> Vec<String> {
    let known: Vec<&str> = signature.options.iter().map(|option| option.name).collect();
    let mut arguments = inputs;
    let mut options = Vec::new();
    for given in &call.options {
        let (key, value) = (names.name(given.key.symbol), written(&given.value, names));
        if input_place(signature, key).is_some() {
            arguments.push(value);
        } else if let Some(option) = known.iter().copied().find(|name| *name == key).or(option_instead(key, &known)) {
            options.push(format!("{option}: {value}"));
        }
    }
    arguments.extend(options);
    arguments
}

/// The place of the input that this tool or another calls `name`; `None` if the operation has none.
pub(in crate::model) fn input_place(signature: &Signature, name: &str) -> Option<usize> {
    signature.inputs.iter().position(|input| match input {
        Input::Tensor(known) | Input::Optional(known) => *known == name || input_instead(name) == Some(known),
        Input::Scalar(option) => option.name == name,
        Input::Expression | Input::Expressions | Input::Tensors(_) => false,
    })
}

/// The arrow of a call with its outputs; empty without outputs.
pub(in crate::model) fn arrow(call: &Call, names: &Interner) -> String {
    let outputs: Vec<String> = call.outputs.iter().map(|arg| written(&arg.value, names)).collect();
    if outputs.is_empty() { String::new() } else { format!(" -> {}", outputs.join(", ")) }
}
