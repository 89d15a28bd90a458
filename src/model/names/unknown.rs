//! Help for names that are not declared.

use crate::base::{DType, suggest};
use crate::ops::{self, Category, OptionType};

use crate::model::metrics::figure::Figure;
use crate::model::metrics::statistic::Statistic;

/// Help for a list in the place of a tensor.
pub(in crate::model) const LIST_OF_ELEMENTS: &str =
    "a tensor gets the numbers of a list when it is declared: `buffer x: f32[3] = [1, 2, 3]`";

/// Names of element types in other tools.
const TYPES: [(&[&str], DType); 10] = [
    (&["double", "float64", "fp64"], DType::F64),
    (&["float", "float32", "fp32", "single"], DType::F32),
    (&["half", "float16", "fp16"], DType::F16),
    (&["bfloat16", "bfloat", "nv_bfloat16"], DType::BF16),
    (&["fp8", "f8", "float8", "float8_e4m3fn", "e4m3fn", "fp8_e4m3"], DType::E4M3),
    (&["float8_e5m2", "fp8_e5m2"], DType::E5M2),
    (&["long", "int64", "int64_t", "longlong"], DType::I64),
    (&["int", "int32", "int32_t"], DType::I32),
    (&["int8", "int8_t", "char"], DType::I8),
    (&["uint8", "uint8_t", "byte"], DType::U8),
];

/// Element types of other tools that are not supported.
const OTHERS: [&str; 26] = [
    "bool", "boolean", "i16", "u64", "u32", "u16", "int16", "uint", "uint64", "uint32", "uint16", "short", "fp4",
    "tf32", "size_t", "int4", "uint4", "fp6", "i4", "u4", "nf4", "nvfp4", "mxfp4", "mxfp6", "mxfp8", "e2m1",
];

/// Option words of other tools, and the word to write instead.
const WORDS: [(&[&str], &str); 12] = [
    (&["avg", "average"], "mean"),
    (&["swish"], "silu"),
    (&["prod", "mul"], "product"),
    (&["gpu", "cuda", "vram", "hbm", "global"], "device"),
    (&["cpu", "ram", "dram", "pageable"], "host"),
    (&["page_locked", "host_pinned", "pinned_host"], "pinned"),
    (&["unified", "uvm", "managed_memory"], "managed"),
    (&["highest", "urgent"], "high"),
    (&["lowest"], "low"),
    (&["ce", "engine", "copy_engine"], "dma"),
    (&["sm", "sms"], "kernel"),
    (&["none", "off", "overlap"], "end"),
];

/// Options of other tools, and the option to write instead.
const OPTIONS: [(&[&str], &str); 22] = [
    (&["code", "src", "text", "body"], "source"),
    (&["trans_a", "transa", "transA", "adjoint_a"], "transpose_a"),
    (&["trans_b", "transb", "transB", "adjoint_b"], "transpose_b"),
    (&["sm", "sms", "cu", "cus", "num_sms", "compute_units"], "units"),
    (&["dst", "dest", "destination", "peer", "target"], "to"),
    (&["src", "source", "peer"], "from"),
    (&["src", "source", "owner"], "root"),
    (&["reduction", "reduce_op", "reduce"], "op"),
    (&["engine", "method"], "via"),
    (&["dtype", "type"], "to"),
    (&["perm", "permutation", "axes", "axis", "dim"], "dims"),
    (&["dims", "axes", "axis"], "dim"),
    (&["top", "num"], "k"),
    (&["gridDim", "grid_dim", "blocks", "num_blocks"], "grid"),
    (&["blockDim", "block_dim", "num_threads", "num_warps"], "block"),
    (&["smem", "lds", "sharedMem", "shared_mem", "shared_memory"], "shared"),
    (&["function", "symbol", "name"], "entry"),
    (&["learning_rate", "rate", "step_size"], "lr"),
    (&["softmax_scale", "sm_scale", "scaling"], "scale"),
    (&["is_causal", "tril", "causal_mask", "lower_triangular"], "causal"),
    (&["window_size", "sliding_window"], "window"),
    (&["soft_cap", "logit_softcapping", "attn_logit_softcapping", "logits_soft_cap"], "softcap"),
];

/// Names of inputs in other tools, and the input's name here.
const INPUTS: [(&[&str], &str); 7] = [
    (&["offs", "offsets", "cu_seqlens"], "ends"),
    (&["mask", "attn_mask", "attention_mask", "attn_bias"], "bias"),
    (&["weight", "weights"], "w"),
    (&["index", "idx", "indices"], "i"),
    (&["query"], "q"),
    (&["key"], "k"),
    (&["value"], "v"),
];

/// Initial values of buffers, which are no values elsewhere.
const INITS: [&str; 3] = ["zeros", "ones", "iota"];

/// Built-in variables of CUDA and HIP kernels.
const THREADS: [&str; 6] = ["threadIdx", "blockIdx", "blockDim", "gridDim", "hipThreadIdx_x", "hipBlockIdx_x"];

/// Names of the number of ranks in other tools.
const RANKS: [&str; 14] = [
    "ranks",
    "nranks",
    "n_ranks",
    "num_ranks",
    "world_size",
    "size",
    "num_gpus",
    "local_world_size",
    "local_rank",
    "my_rank",
    "rank_id",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
];

/// Prefix of metrics that describe the device, such as `device.units`.
const DEVICE: &str = "device";

/// The kind of thing that a name at this location must refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::model) enum NameRole {
    #[default]
    Any,
    /// Memory that an operation reads or writes.
    Operand,
    /// The type of an argument of a definition.
    ArgumentType,
    /// A size in such a type, or a value in a field of a kernel.
    ArgumentSize,
    /// A label to wait for.
    Label,
    /// A family of labels to wait for, with an index.
    LabelFamily,
    /// A label whose gradients are computed.
    Differentiated,
    /// The whole condition of an `if`.
    Condition,
    Stream,
    /// A group of a collective. `mesh` is true if the file declares a mesh that lacks this name.
    Group {
        mesh: bool,
    },
    /// The value of an operation's option.
    Option {
        option: &'static str,
        kind: &'static OptionType,
    },
}

/// Help for an unknown word, given the valid ones; `None` if none is similar.
pub(in crate::model) fn word_help(text: &str, words: &[&str]) -> Option<String> {
    let instead = WORDS
        .iter()
        .find(|(others, instead)| others.contains(&text) && words.contains(instead))
        .map(|(_, instead)| *instead);
    let near = instead.or_else(|| suggest::nearest(text, words.iter().copied()));
    near.map(|near| format!("did you mean `{near}`?"))
}

/// Help for a word that other tools accept as the value of a spatial option; `None` for other words.
pub(in crate::model) fn spatial_word_help(option: &str, word: &str) -> Option<String> {
    match (option, word.to_ascii_lowercase().as_str()) {
        ("padding", "same") => Some(
            "`padding` is a number of zeros on both sides: with a stride of 1, `padding: 1` keeps the size for a kernel \
             of 3, `padding: 2` for one of 5"
                .to_owned(),
        ),
        ("padding", "valid") => Some("`padding: 0` is the default: leave it out".to_owned()),
        _ => None,
    }
}

/// The option among `known` that an unknown one probably means: its name here, or one that is spelled alike. `None` if no option
/// is similar.
pub(in crate::model) fn option_instead<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    // `tflops` and the like are in another unit than `flops`.
    if name.ends_with("flops") && name != "flops" {
        return None;
    }
    let instead = OPTIONS.iter().filter(|(others, _)| others.contains(&name));
    let instead = instead.filter_map(|(_, instead)| known.iter().copied().find(|known| known == instead)).next();
    instead.or_else(|| suggest::nearest(name, known.iter().copied()))
}

/// The name of an input that other tools call `name`; `None` if it is not known.
pub(super) fn input_instead(name: &str) -> Option<&'static str> {
    INPUTS.iter().find(|(others, _)| others.contains(&name)).map(|(_, instead)| *instead)
}

/// Help for a dimension that is given to an operation of the last one.
pub(in crate::model) fn last_dimension(of: &str) -> String {
    let other = match of {
        "softmax" => "`layers.softmax_along(x, 0 -> y)`, after `use std.layers`, works along dimension 0",
        _ => "`transpose` brings another one there",
    };
    format!("`{of}` works along the last dimension, which is not written; {other}")
}

/// Help for an unknown option of `of`, given the known ones.
pub(in crate::model) fn option_help(of: &str, name: &str, known: &[&str]) -> String {
    let near = option_instead(name, known);
    let along = ["dim", "axis", "axes"].contains(&name);
    let by_rows = ops::find(of).is_some_and(|operation| operation.category() == Category::RowWise);
    let collective = ops::find(of).is_some_and(|operation| operation.category() == Category::Collective);
    match (near, known) {
        _ if name == "stream" && ops::find(of).is_some() => {
            format!("write it in a block of its stream: `on s {{ {of}(…) }}`")
        }
        _ if ops::find(of).is_some() && ["async", "async_op", "non_blocking", "blocking"].contains(&name) => {
            "leave it out: no operation waits for another one, except for one that it depends on".to_owned()
        }
        _ if of == "copy" && ["kind", "direction", "device"].contains(&name) => {
            "leave it out: the direction follows from the spaces of both buffers".to_owned()
        }
        _ if collective && ["algo", "algorithm", "proto", "protocol", "channels"].contains(&name) => {
            "NCCL reads it from a variable: `aorta exec FILE --env NCCL_ALGO=Ring`".to_owned()
        }
        _ if of == "stream" && ["device", "gpu", "flags", "blocking", "non_blocking"].contains(&name) => {
            "leave it out: each rank has one device, and no stream blocks another".to_owned()
        }
        _ if known.contains(&"accumulate") && ["alpha", "beta"].contains(&name) => {
            "a product has no factors: `accumulate: true` adds to the output, and a `map` multiplies".to_owned()
        }
        _ if of == "step" && ["graph", "launch", "capture"].contains(&name) => {
            "the launch is an option of the run: `aorta exec FILE --launch graph`".to_owned()
        }
        _ if known.contains(&"flops") && name != "flops" && name.ends_with("flops") => {
            "write the unit after the number: `flops: 2GFLOP`".to_owned()
        }
        _ if collective && ["over", "group", "comm", "process_group", "ranks"].contains(&name) => {
            format!("write the group of ranks after the call: `{of}(…) over tp`")
        }
        _ if of == "meta" && ["description", "desc", "about", "summary", "title", "name"].contains(&name) => {
            "the description of a file is its first lines, as `//! What the file is about`".to_owned()
        }
        _ if of == "attention" && ["heads", "num_heads", "n_heads", "nhead"].contains(&name) => {
            "heads are a dimension of the inputs: `f16[batch, heads, positions, features]`".to_owned()
        }
        _ if of == "attention" && ["dropout", "dropout_p"].contains(&name) => {
            "leave it out: `attention` drops nothing; `dropout` is an operation of its own".to_owned()
        }
        _ if of == "attention" && ["enable_gqa", "num_kv_heads", "num_key_value_heads"].contains(&name) => {
            "leave it out: `k` and `v` may have fewer heads than `q`".to_owned()
        }
        _ if of == "attention" && ["mask", "attn_mask"].contains(&name) => {
            "write `causal: true`; any other mask is the fourth input, a bias with `-inf`".to_owned()
        }
        _ if of == "reduce" && ["dim", "dims", "axis", "axes", "keepdim"].contains(&name) => {
            "`reduce` is a collective of several ranks; along a dimension, write `sum(x, dims: [0])`, `max` or `mean`"
                .to_owned()
        }
        (None, _)
            if ops::find(of).is_some_and(|found| !found.signature().outputs.is_empty())
                && ["out", "dtype", "out_dtype", "output_dtype", "type"].contains(&name) =>
        {
            format!("write the output or its type after an arrow: `{of}(… -> y)`, `{of}(… -> f32[4, 8])`")
        }
        (None, _) if of == "gather" && along => {
            "`gather(x, i)` selects rows of `x`, along its first dimension".to_owned()
        }
        (None, _) if name == "reduction" && by_rows => {
            format!("`{of}` has a value for each row: give it a label, `l: {of}(…)`, and write `mean(l -> y)`")
        }
        (None, _) if along && by_rows => last_dimension(of),
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, []) => format!("`{of}` has no options"),
        (None, [only]) => format!("`{of}` has one option, `{only}`"),
        (None, known) => format!("the options of `{of}` are {}", suggest::listed(known)),
    }
}

/// True if tensors have a member of that name in other tools.
pub(super) fn is_tensor_member(member: &str) -> bool {
    ["T", "mT", "t", "shape", "size", "numel", "dtype"].contains(&member)
}

/// Help for a member of a tensor.
pub(in crate::model) fn tensor_member(name: &str, member: &str) -> String {
    match member {
        "T" | "mT" | "t" => format!(
            "write `transpose_a: true` or `transpose_b: true` in a `gemm`; elsewhere, `transpose({name})` exchanges the \
             last two dimensions"
        ),
        member if is_tensor_member(member) => {
            format!(
                "write what the declaration of `{name}` has in that place: a number, a type, or the name of a `param` or `let`"
            )
        }
        _ => format!("`{name}` is a tensor; only labels and groups of ranks have members"),
    }
}

/// The metric to write for a figure of other tools, as a help; `None` if it is not known.
pub fn figure_elsewhere(name: &str) -> Option<&'static str> {
    const FIGURES: [(&[&str], &str); 14] = [
        (
            &["latency", "duration", "elapsed", "runtime", "wall_time", "wall", "makespan"],
            "write `time`, or `time(f)` of a label",
        ),
        (&["throughput", "rate"], "write what is done over the time: `flops / time`, or `tokens / time \"tokens/s\"`"),
        (&["tflops", "gflops", "flop_rate"], "write `flops / time`, or `flops(f) / time(f)` of a label"),
        (&["mfu"], "write `flops / time / device.flops`"),
        (&["gbps", "bw", "membw"], "write `bandwidth`, or `bandwidth(f)` of a label"),
        (&["busbw", "algbw"], "write `bus_bandwidth`"),
        (
            &[
                "tokens_per_second",
                "tokens_per_sec",
                "samples_per_second",
                "images_per_second",
                "qps",
                "iterations_per_second",
            ],
            "write what an iteration processes over the time: `tokens / time \"tokens/s\"`",
        ),
        (&["peak_memory", "max_memory", "memory_allocated", "memory_usage"], "write `memory.peak`"),
        (&["power", "energy", "watts", "temperature"], "no metric has it: `nvidia-smi` shows it while the run goes on"),
        (&["occupancy", "util"], "write `utilization`: the share of an iteration in which operations run"),
        (
            &["host_time", "launch_time", "host_launch_time", "launch_overhead", "cpu_time"],
            "no metric has it: every report has the row `host launch time`",
        ),
        (
            &["hidden", "hiding", "overlapped", "hidden_share"],
            "write `overlap(load, compute)`: the share of the time of `load` during which `compute` runs too",
        ),
        (
            &["concurrency", "parallelism", "scaling"],
            "write `speedup`: the time on one stream over the time of the iteration",
        ),
        (&["idle", "bubble"], "write `1 - utilization(s)` of a stream, or `gap(s)` for each gap"),
    ];
    FIGURES.iter().find(|(names, _)| names.contains(&name)).map(|(_, help)| *help)
}

/// Help for an unknown name; `known` are the similar names.
pub(in crate::model) fn help<'a>(name: &str, place: NameRole, known: impl IntoIterator<Item = &'a str>) -> String {
    if let Some((_, dtype)) = TYPES.iter().find(|(names, _)| names.contains(&name)) {
        return format!("that element type is `{dtype}` here");
    }
    if OTHERS.contains(&name) {
        let all = DType::NAMES;
        return format!("the element types are {}", suggest::listed(&all));
    }
    if name.starts_with('p') && Statistic::from_name(name).is_some() {
        return format!("a statistic follows its figure: `time.{name}`");
    }
    if place == NameRole::Any && ["high", "low"].contains(&name) {
        return format!("it is a priority of a stream: `stream s(priority: {name})`");
    }
    if ["yes", "no"].contains(&name) {
        return format!("write `{}`", name == "yes");
    }
    if INITS.contains(&name) {
        return format!("`{name}` is the initial value of a buffer: `buffer y: f32[4] = {name}`");
    }
    if ["None", "newaxis", "null", "nullptr"].contains(&name) {
        return "nothing has no value here: leave the argument out; `view(x, [4, 1])` adds a dimension of size 1"
            .to_owned();
    }
    if ["os", "environ", "env", "argv", "args"].contains(&name) {
        return "a value from outside is a parameter: `param n = 4`, which `--set n=8` changes".to_owned();
    }
    if ["torch", "dist", "ReduceOp", "np", "nn", "F"].contains(&name) {
        return "operations and words have no module before them: `gemm(a, b)`, `op: sum`".to_owned();
    }
    if THREADS.contains(&name) {
        return "an operation processes a whole tensor, and `map` evaluates an expression for each element: `map(x + 1 -> x)`".to_owned();
    }
    if place == NameRole::Any && RANKS.contains(&name) {
        return "the number of ranks is `world`, and that of this rank is `rank`".to_owned();
    }
    if let NameRole::Any | NameRole::Operand = place
        && ["inf", "infinity", "INFINITY", "INF", "nan", "NaN", "NAN"].contains(&name)
    {
        return "infinity and NaN have no literal: `map(log(m) -> x)` writes `-inf` where `m` is 0, as a mask of `attention` needs"
            .to_owned();
    }
    if name == "_" {
        return "`_` discards an output and has no value: give the operation a label, and write the label; to discard an output \
                only in some cases, write two calls: `if c { f(x -> y) } else { f(x -> _) }`"
            .to_owned();
    }
    if place == NameRole::Any && name.len() > 1 && crate::base::units::unit(name).is_some() {
        return format!("a unit follows its number without a space: `4{name}`, or `n * 1{name}` for a computed number");
    }
    if let Some(near) = suggest::nearest(name, known) {
        return format!("did you mean `{near}`?");
    }
    match place {
        NameRole::Any if name == DEVICE => {
            "a program is the same on every machine: only `metric` and `expect` know the properties of the device"
                .to_owned()
        }
        NameRole::Any if Figure::NAMES.contains(&name) => {
            format!("`{name}` is a metric, which only `metric` and `expect` know: `expect {name} > 0`")
        }
        NameRole::Any => {
            format!("declare it above: `param {name} = 4` for a number, `buffer {name}: f32[4]` for a tensor")
        }
        NameRole::Operand if ["causal", "is_causal"].contains(&name) => {
            "it is an option of `attention`: `causal: true`".to_owned()
        }
        NameRole::Operand => format!("declare it above: `buffer {name}: f32[4]`"),
        NameRole::ArgumentType => {
            "write the type of a tensor, such as `f32[8]`; an argument that is no tensor has no type".to_owned()
        }
        NameRole::ArgumentSize => {
            format!("add `{name}` to the inputs of the signature, or declare `param {name} = 4` above")
        }
        NameRole::Condition => format!("declare it above, `param {name} = true`, or compare a number: `{name} > 0`"),
        NameRole::Label | NameRole::Differentiated => format!("give an operation above that label: `{name}: nop()`"),
        NameRole::LabelFamily => format!("give an operation above that label: `{name}[i]: nop()`"),
        NameRole::Stream if name == "stream" => {
            "streams have names: declare `stream s[2]`, and write `on s[0] { … }`".to_owned()
        }
        NameRole::Stream => format!("declare it above: `stream {name}`"),
        NameRole::Option { option, kind } => spatial_word_help(option, name).unwrap_or_else(|| {
            format!("`{option}` takes {}: write it here, or declare `param {name}` above", kind.describe())
        }),
        NameRole::Group { mesh: false } => {
            format!("declare the group above: `mesh {name} = world`; a collective without `over` runs over all ranks")
        }
        NameRole::Group { mesh: true } => {
            format!(
                "make it a factor of the mesh, such as `mesh dp = world / 4, {name} = 4`; `over world` is all ranks"
            )
        }
    }
}
