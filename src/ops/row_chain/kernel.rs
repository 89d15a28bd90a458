//! The kernel of a chain: the threads of a row have it in registers, or compute what is before the core twice where it is too
//! long.

use super::super::kernel::{bounds, c_type, geometry_param, geometry_words, index_type, source};
use super::super::layout::broadcast_strides;
use super::super::norms::HELPERS;
use super::super::occupancy::{UNITS, share};
use super::super::rows::{Rows, Sharing, common_pack};
use super::*;

/// Tensors of a whole row up to which a thread has 32 elements in registers, and not 16.
const FEW: usize = 2;

/// How threads share rows.
pub struct Split {
    /// The rows of the outputs, then of the inputs, which repeat where they are smaller.
    rows: Rows,
    /// Elements of each input that can be read as one.
    widths: Vec<u64>,
    sharing: Sharing,
}

/// A function of the kernel, made of an expression.
struct Function {
    text: String,
    name: &'static str,
    /// Numbers of the chain's inputs that are its arguments: 0 is the core's result, [`BEFORE`] what the core works on.
    inputs: Vec<usize>,
    /// Prefix of the kernel's parameters for its constants, and their values.
    prefix: &'static str,
    constants: Vec<f64>,
}

/// The input that stands for what the core works on, behind all that a spec can have.
const BEFORE: usize = u8::MAX as usize;

impl Split {
    pub fn of(spec: &Spec) -> Split {
        let dims = spec.outputs[0].dims;
        let views: Vec<Tensor> = spec
            .inputs
            .iter()
            .map(|input| Tensor { dims, strides: broadcast_strides(input, dims), ..*input })
            .collect();
        let outputs: Vec<&Tensor> = spec.outputs.iter().collect();
        let rows = Rows::of(&outputs.iter().copied().chain(&views).collect::<Vec<_>>());
        let pack = common_pack(&outputs);
        let widths = views.iter().map(|view| common_pack(&[view]).min(pack)).collect();
        let whole_rows = spec.inputs.iter().filter(|input| input.dims == dims).count();
        let wide = compute_type(spec) == DType::F64 || whole_rows > FEW;
        let sharing = Sharing::of(rows.length, pack, if wide { 16 } else { 32 });
        Split { rows, widths, sharing }
    }

    pub fn keeps_busy(&self) -> bool {
        self.sharing.whole || self.rows.count >= UNITS
    }

    pub fn cost(&self, spec: &Spec, flops: f64) -> Cost {
        let again = |again: bool| if again { Spec::bytes_of(&spec.inputs) } else { Traffic::NONE };
        Cost {
            reread: again(!self.sharing.whole),
            blocks: self.rows.count.div_ceil(self.sharing.block_rows()).max(1),
            share: share(self.sharing.block()),
            ..spec.streaming_cost(flops, 1)
        }
    }

    pub fn launch(&self, core: Core, name: &str, spec: &Spec) -> Launch {
        let Split { rows, widths, sharing } = self;
        let expression = spec.expression.as_deref().expect("fusion makes chains with an expression");
        let compute = compute_type(spec);
        let outputs = spec.outputs.len();
        let [before, behind] = functions(expression, outputs);
        let option = match core {
            Core::Softmax => Some("scale"),
            Core::RmsNorm | Core::LayerNorm => Some("eps"),
            Core::Sum | Core::Mean => None,
        };
        let (mut params, mut args) = (Vec::new(), Vec::new());
        let mut param = |text: String, arg: Arg| {
            params.push(text);
            args.push(arg);
        };
        let operands = || spec.inputs.iter().chain(&spec.outputs).map(|tensor| c_type(tensor.dtype)).enumerate();
        for (place, dtype) in operands() {
            let constant = if place < spec.inputs.len() { "const " } else { "" };
            param(format!("{constant}{dtype}* m{place}"), Arg::Operand(place as u8));
        }
        for (tensor, step) in rows.steps.iter().enumerate() {
            param(format!("i64 step{tensor}"), Arg::U64(*step));
        }
        if let Some(option) = option {
            param(format!("C {option}"), Arg::real(compute, spec.attrs.number(option)));
        }
        for Function { prefix, constants, .. } in [&before, &behind] {
            for (place, value) in constants.iter().enumerate() {
                param(format!("C {prefix}{place}"), Arg::real(compute, *value));
            }
        }
        param(geometry_param(&rows.geometry), Arg::Words(geometry_words(&rows.geometry)));
        param("u64 rows".to_owned(), Arg::U64(rows.count));
        param("u32 n".to_owned(), Arg::U32(rows.length as u32));
        let definitions = format!(
            "{}typedef {} C;\n#define T {}\n#define V {}\n#define K {}\n#define BLOCK {}\n#define EVEN {}\n#define CENTRED {}\n\
             {HELPERS}{SOFTMAX}{}{}",
            bounds(sharing.block() as u32),
            c_type(compute),
            sharing.threads,
            sharing.pack,
            sharing.packs,
            sharing.block(),
            rows.length.is_multiple_of(sharing.threads * sharing.pack * sharing.packs),
            u32::from(core == Core::LayerNorm),
            before.text,
            behind.text,
        );
        let index = index_type(rows.count);
        let mut body = format!(
            "  u32 lane = threadIdx.x % T;\n  u64 row = (u64)blockIdx.x * (BLOCK / T) + threadIdx.x / T;\n  \
             bool live = row < rows;\n  {index} at = ({index})(live ? row : 0);\n"
        );
        for (place, dtype) in operands() {
            // In the walk, outputs come first.
            let (constant, which) = match place < spec.inputs.len() {
                true => ("const ", outputs + place),
                false => ("", place - spec.inputs.len()),
            };
            body += &format!("  {constant}{dtype}* a{place} = m{place} + g.offset(at, {which});\n");
            if rows.steps[which] == 0 && place < spec.inputs.len() {
                body += &format!("  C s{place} = load<C>(*a{place});\n");
            }
        }
        // Reads of the inputs of a function, and its arguments.
        let reads = |function: &Function| {
            let read = |&input: &usize| match input {
                0 | BEFORE => String::new(),
                _ if rows.steps[outputs + input - 1] == 0 => String::new(),
                _ => {
                    let (place, width) = (input - 1, widths[input - 1]);
                    format!("C e{place}[V]; columns<{width}>(a{place}, step{}, j, e{place}); ", outputs + place)
                }
            };
            function.inputs.iter().map(read).collect::<String>()
        };
        let call = |function: &Function, result: &str, own: &[String]| {
            let argument = |&input: &usize| match input {
                0 => result.to_owned(),
                BEFORE => "v[k][i]".to_owned(),
                _ if rows.steps[outputs + input - 1] == 0 => format!("s{}", input - 1),
                _ => format!("e{}[i]", input - 1),
            };
            let constants = (0..function.constants.len()).map(|place| format!("{}{place}", function.prefix));
            let all = function.inputs.iter().map(argument).chain(constants).chain(own.iter().cloned());
            format!("{}({})", function.name, all.collect::<Vec<_>>().join(", "))
        };
        let fill = format!("EACH_PACK(start) {{ {}EACH v[k][i] = {}; }}\n", reads(&before), call(&before, "", &[]));
        // Registers hold exponentials in place of what they are of, unless that is needed once more.
        let keeps = behind.inputs.contains(&BEFORE);
        let result = match core {
            Core::Softmax if sharing.whole && !keeps => "v[k][i] * share",
            Core::Softmax => "f_exp(v[k][i] * scale - top) * share",
            Core::Sum | Core::Mean => "total",
            Core::RmsNorm | Core::LayerNorm => "(v[k][i] - all.mean) * factor",
        };
        let stored: Vec<String> = (0..outputs).map(|output| format!("o{output}[i]")).collect();
        let declared: String = (0..outputs).map(|output| format!("C o{output}[V]; ")).collect();
        let assigned = match &*stored {
            [only] => format!("{only} = {}", call(&behind, result, &[])),
            _ => call(&behind, result, &stored),
        };
        let write = |output: usize| format!("write(a{}, step{output}, j, o{output}); ", spec.inputs.len() + output);
        let finish = format!(
            "EACH_PACK(start) {{ {}{declared}EACH {assigned}; {} }}\n",
            reads(&behind),
            (0..outputs).map(write).collect::<String>()
        );
        let steps = "for (u32 start = 0; start < n; start += T * K * V)";
        let leave = "  if (!live) return;\n";
        body += "  C v[K][V];\n";
        body += &match (core, sharing.whole) {
            (Core::Softmax, true) => {
                let texts = if keeps { SUM_AGAIN } else { SUM };
                format!("  const u32 start = 0;\n  {fill}{LARGEST}{texts}{leave}  {finish}")
            }
            (Core::Softmax, false) => {
                format!(
                    "  Peak all;\n  {steps} {{\n    {fill}{PEAK}  }}\n{SHARE}{leave}  {steps} {{\n    {fill}    {finish}  }}\n"
                )
            }
            (_, true) => {
                format!("  const u32 start = 0;\n  {fill}  Part all = of_row(v, n, lane);\n{FACTOR}{leave}  {finish}")
            }
            (_, false) => format!(
                "  Part all = {{0, 0, 0}};\n  {steps} {{\n    {fill}    all = join(all, part_of(v, start, n, lane));\n  }}\n  \
                 all = across(all, Join());\n{FACTOR}{leave}  {steps} {{\n    {fill}    {finish}  }}\n"
            ),
        };
        Launch::Kernel(Kernel {
            source: source(name, &definitions, &params, &body),
            grid: Kernel::along_x(rows.count.div_ceil(sharing.block_rows()).max(1)),
            block: Kernel::along_x(sharing.block() as u32),
            shared: Shared::Bytes(0),
            args,
        })
    }
}

/// The functions before the core and behind it. The second reads what the core works on, where it needs that, instead of
/// computing it again.
fn functions(expression: &Expression, outputs: usize) -> [Function; 2] {
    let (before, numbers) = expression.part(&expression.outputs()[..1]);
    let mut behind = Expression::default();
    let own = expression.outputs()[0];
    let mut places: Vec<u16> = Vec::with_capacity(expression.nodes().len());
    let full = "fusion limits the nodes";
    for (number, node) in expression.nodes().iter().enumerate() {
        let at = |operand: u16| places[usize::from(operand)];
        let place = match *node {
            _ if number == usize::from(own) => behind.push(Node::Input(BEFORE as u8)),
            Node::Input(input) => behind.push(Node::Input(input)),
            Node::Constant(constant) => behind.push_constant(expression.constants()[usize::from(constant)]),
            Node::Unary(function, x) => behind.push(Node::Unary(function, at(x))),
            Node::Binary(function, x, y) => behind.push(Node::Binary(function, at(x), at(y))),
            Node::Select(condition, yes, no) => behind.push(Node::Select(at(condition), at(yes), at(no))),
        };
        places.push(place.expect(full));
    }
    let results: Vec<u16> = expression.outputs()[1..].iter().map(|&node| places[usize::from(node)]).collect();
    let (behind, behind_numbers) = behind.part(&results);
    let function = |expression: Expression, name, prefix, inputs: Vec<usize>, results: usize| {
        let constants = expression.constants().to_vec();
        let arguments = (0..inputs.len()).map(|input| format!("C x{input}"));
        let arguments = arguments.chain((0..constants.len()).map(|constant| format!("C c{constant}")));
        let arguments = arguments.chain((0..results).filter(|_| results > 1).map(|result| format!("C& r{result}")));
        let text = format!(
            "__device__ inline {} {name}({}) {{\n{}}}\n",
            if results > 1 { "void" } else { "C" },
            arguments.collect::<Vec<_>>().join(", "),
            expression.c_text()
        );
        Function { text, name, inputs, prefix, constants }
    };
    [function(before, "before", "b", numbers, 1), function(behind, "behind", "c", behind_numbers, outputs)]
}

/// The largest element of a row, and the sum of exponentials relative to it, of its parts.
const SOFTMAX: &str = r#"
#define LOWEST (-C(1) / C(0))
struct Top { C value = LOWEST; };
struct Peak { C top = LOWEST, sum = 0; };
__device__ inline Top shuffled(Top a, int mask) { a.value = SHUFFLE_XOR(a.value, mask); return a; }
__device__ inline Peak shuffled(Peak a, int mask) {
  a.top = SHUFFLE_XOR(a.top, mask);
  a.sum = SHUFFLE_XOR(a.sum, mask);
  return a;
}
struct Larger { __device__ Top operator()(Top a, Top b) const { return b.value > a.value ? b : a; } };
struct Beside {
  __device__ Peak operator()(Peak a, Peak b) const {
    Peak all;
    all.top = b.top > a.top ? b.top : a.top;
    all.sum = (a.top > LOWEST ? a.sum * f_exp(a.top - all.top) : a.sum) + (b.top > LOWEST ? b.sum * f_exp(b.top - all.top) : b.sum);
    return all;
  }
};
"#;

/// Where registers hold the row.
const LARGEST: &str = r#"  Top largest;
  EACH_PACK(0) { EACH if (v[k][i] * scale > largest.value) largest.value = v[k][i] * scale; }
  C top = across(largest, Larger()).value, sum = 0;
"#;

const SUM: &str = r#"  EACH_PACK(0) { EACH { v[k][i] = f_exp(v[k][i] * scale - top); sum += v[k][i]; } }
  C share = C(1) / across(sum, Sum());
"#;

const SUM_AGAIN: &str = r#"  EACH_PACK(0) { EACH sum += f_exp(v[k][i] * scale - top); }
  C share = C(1) / across(sum, Sum());
"#;

/// Where they hold a piece of it. The sum is scaled each time that a larger element comes.
const PEAK: &str = r#"    C most = all.top;
    EACH_PACK(start) { EACH if (v[k][i] * scale > most) most = v[k][i] * scale; }
    if (most > all.top) { all.sum *= f_exp(all.top - most); all.top = most; }
    if (most > LOWEST) { EACH_PACK(start) { EACH all.sum += f_exp(v[k][i] * scale - most); } }
    else { EACH_PACK(start) { EACH all.sum += v[k][i] * scale == LOWEST ? C(0) : v[k][i] * scale; } }
"#;

const SHARE: &str = r#"  all = across(all, Beside());
  C top = all.top, share = C(1) / all.sum;
"#;

const FACTOR: &str = "  C factor = f_rsqrt(all.squares / C(n) + eps);\n";
