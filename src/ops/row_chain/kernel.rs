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
        let sharing = Sharing::of(&rows, pack, if wide { 16 } else { 32 });
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
        let Split { rows, sharing, .. } = self;
        let expression = spec.expression.as_deref().expect("fusion makes chains with an expression");
        let compute = compute_type(spec);
        let functions = functions(expression, spec.outputs.len());
        let (params, args) = self.parameters(core, spec, &functions);
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
            functions[0].text,
            functions[1].text,
        );
        let body = self.pointers(spec) + &self.work(core, spec, &functions);
        Launch::Kernel(Kernel {
            source: source(name, &definitions, &params, &body),
            grid: Kernel::along_x(rows.count.div_ceil(sharing.block_rows()).max(1)),
            block: Kernel::along_x(sharing.block() as u32),
            shared: Shared::Bytes(0),
            args,
        })
    }

    /// The kernel's parameters and their arguments.
    fn parameters(&self, core: Core, spec: &Spec, functions: &[Function; 2]) -> (Vec<String>, Vec<Arg>) {
        let Split { rows, .. } = self;
        let compute = compute_type(spec);
        let mut all: Vec<(String, Arg)> = Vec::new();
        for (place, tensor) in spec.inputs.iter().chain(&spec.outputs).enumerate() {
            let constant = if place < spec.inputs.len() { "const " } else { "" };
            all.push((format!("{constant}{}* m{place}", c_type(tensor.dtype)), Arg::Operand(place as u8)));
        }
        let steps = rows.steps.iter().enumerate();
        all.extend(steps.map(|(tensor, step)| (format!("i64 step{tensor}"), Arg::U64(*step))));
        let option = match core {
            Core::Softmax => Some("scale"),
            Core::RmsNorm | Core::LayerNorm => Some("eps"),
            Core::Sum | Core::Mean => None,
        };
        let real = |value: f64| Arg::real(compute, value);
        all.extend(option.map(|option| (format!("C {option}"), real(spec.attrs.number(option)))));
        for Function { prefix, constants, .. } in functions {
            let constants = constants.iter().enumerate();
            all.extend(constants.map(|(place, value)| (format!("C {prefix}{place}"), real(*value))));
        }
        all.push((geometry_param(&rows.geometry), Arg::Words(geometry_words(&rows.geometry))));
        all.push(("u64 rows".to_owned(), Arg::U64(rows.count)));
        all.push(("u32 n".to_owned(), Arg::U32(rows.length as u32)));
        all.into_iter().unzip()
    }

    /// Text that finds a thread's row in each tensor, and reads the inputs that have one value for it.
    fn pointers(&self, spec: &Spec) -> String {
        let index = index_type(self.rows.count);
        let mut text = format!(
            "  u32 lane = threadIdx.x % T;\n  u64 row = (u64)blockIdx.x * (BLOCK / T) + threadIdx.x / T;\n  \
             bool live = row < rows;\n  {index} at = ({index})(live ? row : 0);\n"
        );
        for (place, tensor) in spec.inputs.iter().chain(&spec.outputs).enumerate() {
            // In the walk, outputs come first.
            let (constant, which) = match place < spec.inputs.len() {
                true => ("const ", spec.outputs.len() + place),
                false => ("", place - spec.inputs.len()),
            };
            text += &format!("  {constant}{}* a{place} = m{place} + g.offset(at, {which});\n", c_type(tensor.dtype));
            if place < spec.inputs.len() && self.is_scalar(spec, place) {
                text += &format!("  C s{place} = load<C>(*a{place});\n");
            }
        }
        text
    }

    /// True if an input has one value for each row.
    fn is_scalar(&self, spec: &Spec, input: usize) -> bool {
        self.rows.steps[spec.outputs.len() + input] == 0
    }

    /// Text that reads a pack of each input of a function.
    fn reads(&self, spec: &Spec, function: &Function) -> String {
        let read = |&number: &usize| match number {
            0 | BEFORE => String::new(),
            _ if self.is_scalar(spec, number - 1) => String::new(),
            _ => {
                let (input, width) = (number - 1, self.widths[number - 1]);
                let step = spec.outputs.len() + input;
                format!("C e{input}[V]; columns<{width}>(a{input}, step{step}, j, e{input}); ")
            }
        };
        function.inputs.iter().map(read).collect()
    }

    /// A call of a function for element `i` of a pack: `result` is the core's result, `targets` are what it assigns.
    fn call(&self, spec: &Spec, function: &Function, result: &str, targets: &[String]) -> String {
        let argument = |&number: &usize| match number {
            0 => result.to_owned(),
            BEFORE => "v[k][i]".to_owned(),
            _ if self.is_scalar(spec, number - 1) => format!("s{}", number - 1),
            _ => format!("e{}[i]", number - 1),
        };
        let constants = (0..function.constants.len()).map(|place| format!("{}{place}", function.prefix));
        let all = function.inputs.iter().map(argument).chain(constants).chain(targets.iter().cloned());
        format!("{}({})", function.name, all.collect::<Vec<_>>().join(", "))
    }

    /// Text that computes the rows.
    fn work(&self, core: Core, spec: &Spec, [before, behind]: &[Function; 2]) -> String {
        let (inputs, outputs, whole) = (spec.inputs.len(), spec.outputs.len(), self.sharing.whole);
        let values = self.call(spec, before, "", &[]);
        let fill = format!("EACH_PACK(start) {{ {}EACH v[k][i] = {values}; }}\n", self.reads(spec, before));
        // Registers hold exponentials in place of what they are of, unless that is needed once more.
        let keeps = behind.inputs.contains(&BEFORE);
        let (part, joined, result) = match core {
            Core::Softmax if whole && keeps => (SUM_AGAIN, "", "f_exp(v[k][i] * scale - top) * share"),
            Core::Softmax if whole => (SUM, "", "v[k][i] * share"),
            Core::Softmax => (PEAK, SHARE, "f_exp(v[k][i] * scale - top) * share"),
            Core::RmsNorm | Core::LayerNorm if whole => (ROW, FACTOR, "(v[k][i] - all.mean) * factor"),
            Core::RmsNorm | Core::LayerNorm => (PART, JOIN, "(v[k][i] - all.mean) * factor"),
            Core::Sum => (ADD, TOTAL, "total"),
            Core::Mean => (ADD, TOTAL, "total / C(n)"),
        };
        let begin = match core {
            Core::Softmax => "  Peak all;\n",
            Core::RmsNorm | Core::LayerNorm => "  Part all = {0, 0, 0};\n",
            Core::Sum | Core::Mean => "  C all = 0;\n",
        };
        let targets: Vec<String> = (0..outputs).map(|output| format!("o{output}[i]")).collect();
        let assigned = match &*targets {
            [only] => format!("{only} = {}", self.call(spec, behind, result, &[])),
            _ => self.call(spec, behind, result, &targets),
        };
        let declared: String = (0..outputs).map(|output| format!("C o{output}[V]; ")).collect();
        let write = |output: usize| format!("write(a{}, step{output}, j, o{output}); ", inputs + output);
        let writes: String = (0..outputs).map(write).collect();
        let finish = format!("EACH_PACK(start) {{ {}{declared}EACH {assigned}; {writes}}}\n", self.reads(spec, behind));
        let leave = "  if (!live) return;\n";
        match whole {
            true => format!("  C v[K][V];\n{begin}  const u32 start = 0;\n  {fill}{part}{joined}{leave}  {finish}"),
            false => {
                let pieces = "  for (u32 start = 0; start < n; start += T * K * V) {\n    ";
                let second = format!("{pieces}{fill}    {finish}  }}\n");
                format!("  C v[K][V];\n{begin}{pieces}{fill}{part}  }}\n{joined}{leave}{second}")
            }
        }
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
#define LOWEST (-C(INFINITE))
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

/// The softmax of a row that registers hold.
const SUM: &str = r#"  Top largest;
  EACH_PACK(0) { EACH if (v[k][i] * scale > largest.value) largest.value = v[k][i] * scale; }
  C top = across(largest, Larger()).value, sum = 0;
  EACH_PACK(0) { EACH { v[k][i] = f_exp(v[k][i] * scale - top); sum += v[k][i]; } }
  C share = C(1) / across(sum, Sum());
"#;

/// The same, where what exponentials are of is needed once more.
const SUM_AGAIN: &str = r#"  Top largest;
  EACH_PACK(0) { EACH if (v[k][i] * scale > largest.value) largest.value = v[k][i] * scale; }
  C top = across(largest, Larger()).value, sum = 0;
  EACH_PACK(0) { EACH sum += f_exp(v[k][i] * scale - top); }
  C share = C(1) / across(sum, Sum());
"#;

/// A piece of a longer row. The sum is scaled each time that a larger element comes.
const PEAK: &str = r#"    C most = all.top;
    EACH_PACK(start) { EACH if (v[k][i] * scale > most) most = v[k][i] * scale; }
    if (most > all.top) { all.sum *= f_exp(all.top - most); all.top = most; }
    if (most > LOWEST) { EACH_PACK(start) { EACH all.sum += f_exp(v[k][i] * scale - most); } }
    else { EACH_PACK(start) { EACH all.sum += v[k][i] * scale == LOWEST ? C(0) : v[k][i] * scale; } }
"#;

const SHARE: &str = r#"  all = across(all, Beside());
  C top = all.top, share = C(1) / all.sum;
"#;

/// The norm of a row that registers hold, and of a piece of a longer one.
const ROW: &str = "  all = of_row(v, n, lane);\n";
const FACTOR: &str = "  C factor = f_rsqrt(all.squares / C(n) + eps);\n";
const PART: &str = "    all = join(all, part_of(v, start, n, lane));\n";
const JOIN: &str = "  all = across(all, Join());\n  C factor = f_rsqrt(all.squares / C(n) + eps);\n";

/// The sum of a row, or of a piece of it.
const ADD: &str = "  EACH_PACK(start) { EACH all += v[k][i]; }\n";
const TOTAL: &str = "  C total = across(all, Sum());\n";
