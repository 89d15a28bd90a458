//! Kernels of a reduction. Their text consists of the function's accumulator, the expression, and the division of the
//! work among threads. Partial results are combined in a fixed order, so that results are reproducible.

use super::accumulator::accumulator;
use super::split::{Along, Last};
use super::staged::{STAGE, StagedRows};
use super::*;
use crate::ops::kernels::kernel::{
    HELD_PACK, Parameter, bounds, c_type, geometry_param, index_type, launch, param, u32_param, u64_param,
};
use crate::ops::kernels::occupancy::ROWS_BLOCK;

/// Minimum number of packs per thread of an unaligned row for which the kernel has separate code for whole packs.
const LONG_RAGGED: u64 = 8;

/// Number of terms of a pack whose instructions overlap well enough without those of the next pack.
const OVERLAPPING: u64 = 4;

/// Text that stores the results at the end of a kernel, with the declarations that it needs.
pub struct Finish {
    /// Text before the kernel: functions that `store` calls.
    pub before: String,
    /// Additional parameters of the kernel that stores results.
    pub params: Vec<Parameter>,
    /// Statement that stores `total` in `TO`. `which` is the index of the result.
    pub store: String,
    /// Statement of a kernel that has the result's terms of the first input in shared memory at `row`; `None` if `store` serves it too.
    pub of_row: Option<String>,
}

impl Finish {
    /// Returns the text that stores the result of a function of this many terms.
    pub fn plain(function: Function, terms: u64) -> Finish {
        let (store, params) = match function {
            Function::Mean => ("store<C>(TO, total.v / C(count))", vec![u64_param("count", terms)]),
            Function::ArgMax | Function::ArgMin => ("TO = (i32)total.place", vec![]),
            Function::LogSumExp | Function::LogSumExpAndSum => ("store<C>(TO, total.most + f_log(total.sum))", vec![]),
            Function::Sum | Function::Prod | Function::Max | Function::Min => ("store<C>(TO, total.v)", vec![]),
            Function::Sums(_) => unreachable!("several sums become one result by an expression"),
        };
        Finish { before: String::new(), params, store: store.to_owned(), of_row: None }
    }

    /// Returns the text that stores the outputs of an expression in `places`, lvalues of C. `inputs` are C expressions
    /// of the type `compute`.
    pub fn expression(result: &Expression, inputs: &[String], places: &[&str], compute: DType) -> Finish {
        let constants = result.constants();
        let returned: Vec<String> =
            (0..places.len()).filter(|_| places.len() > 1).map(|place| format!("r{place}")).collect();
        let before = result.c_function("__device__ inline", "result_of", inputs.len());
        let arguments = inputs.iter().cloned().chain((0..constants.len()).map(|i| format!("f{i}")));
        let call = arguments.chain(returned.iter().cloned()).collect::<Vec<_>>().join(", ");
        let store = match places {
            [only] => format!("store<C>({only}, result_of({call}))"),
            _ => {
                let stored = places.iter().zip(&returned).map(|(place, value)| format!("store<C>({place}, {value}); "));
                format!("C {}; result_of({call}); {}", returned.join(", "), stored.collect::<String>())
            }
        };
        let constant = |(i, &value): (usize, &f64)| (format!("C f{i}"), Arg::real(compute, value));
        Finish { before, params: constants.iter().enumerate().map(constant).collect(), store, of_row: None }
    }
}

/// Kernel text that combines the accumulators of a result's threads, which are neighbours.
const ACROSS_NEIGHBOURS: &str = r#"
__device__ inline Acc across(Acc a) {
#pragma unroll
  for (int mask = (T < 32 ? T : 32) / 2; mask > 0; mask /= 2) a = join(a, shuffled(a, mask));
  if (T > 32) {
    __shared__ Acc part[(T * B + 31) / 32];
    u32 warp = threadIdx.x / 32, first = warp - warp % (T > 32 ? T / 32 : 1);
    if (threadIdx.x % 32 == 0) part[warp] = a;
    __syncthreads();
    a = threadIdx.x % 32 < T / 32 ? part[first + threadIdx.x % 32] : none();
#pragma unroll
    for (int mask = 1; mask < T / 32; mask *= 2) a = join(a, shuffled(a, mask));
  }
  return a;
}
"#;

/// Kernel text that combines accumulators of `W` results per thread. Threads `B` apart have the same results; the first
/// of them receives the totals.
const ACROSS_ROWS: &str = r#"
__device__ inline void across(Acc (&a)[W], u32 side, u32 lane) {
  if (T == 1) return;
  // Neighbouring threads access neighbouring accumulators, so that no two of a warp are in the same bank.
  __shared__ Acc part[W][T][B];
#pragma unroll
  for (int w = 0; w < W; w++) part[w][lane][side] = a[w];
  for (u32 half = T / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) {
#pragma unroll
      for (int w = 0; w < W; w++) {
        a[w] = join(a[w], part[w][lane + half][side]);
        part[w][lane][side] = a[w];
      }
    }
  }
}
"#;

/// Returns the kernel that reads the terms, and a second one if several blocks share a result.
pub fn launches(
    name: &str,
    function: Function,
    expression: &Expression,
    spec: &Spec,
    extent: &Extent,
    compute: DType,
    finish: Finish,
) -> Vec<Launch> {
    let split = Split::of(spec, extent, compute, function);
    let common =
        Common { function, compute, split: &split, output: &spec.outputs[0], inputs: spec.inputs.len(), finish };
    if let Some(rows) = &split.staged {
        return vec![common.staged(name, expression, spec, rows)];
    }
    let mut launches = vec![common.first(name, expression, spec)];
    if split.last.parts > 1 {
        launches.push(common.second(name, expression, spec));
    }
    launches
}

/// The parts that both kernels of a reduction share.
struct Common<'a> {
    function: Function,
    compute: DType,
    split: &'a Split,
    output: &'a Tensor,
    inputs: usize,
    finish: Finish,
}

impl Common<'_> {
    /// Returns the definitions before a kernel whose blocks have `threads` × `beside` threads with `held` results each.
    fn before(&self, threads: u64, beside: u64, held: u64, across: &str) -> String {
        format!(
            "{}typedef {} C;\n#define T {threads}\n#define B {beside}\n#define W {held}\n{}{across}{}",
            bounds((threads * beside) as u32),
            c_type(self.compute),
            accumulator(self.function),
            self.finish.before,
        )
    }

    /// Returns the workspace argument: for each part, its accumulator of each result.
    fn workspace(&self) -> Arg {
        let Last { results, parts, .. } = self.split.last;
        let parts = if parts > 1 { parts } else { 0 };
        Arg::Workspace(parts * results * self.function.accumulator_size(self.compute))
    }

    /// Returns text that stores the accumulators of a thread's pack of `results` results, up to 16 bytes at once.
    fn stored_part(&self, results: u64) -> String {
        let size = self.function.accumulator_size(self.compute);
        let fits =
            |width: &u64| results.is_multiple_of(*width) && (width * size).is_power_of_two() && width * size <= 16;
        match (2..=results).rev().find(fits) {
            Some(width) => format!(
                "#pragma unroll\n    for (int v = 0; v < {results}; v += {width}) {{\n      Pack<Acc, {width}> some;\n#pragma unroll\n      \
                 for (int i = 0; i < {width}; i++) some.at[i] = acc[h * {results} + v + i];\n      \
                 *(Pack<Acc, {width}>*)(partial + (u64)part * results + which + v) = some;\n    }}\n"
            ),
            None => format!(
                "#pragma unroll\n    for (int v = 0; v < {results}; v++) partial[(u64)part * results + which + v] = acc[h * {results} + v];\n"
            ),
        }
    }

    /// Returns the parameters of a kernel with these results, which it stores or not.
    fn parameters(&self, kept: &Geometry, results: u64, stores: bool) -> Vec<Parameter> {
        let mut params = vec![
            param(format!("{}* out", c_type(self.output.dtype)), Arg::Operand(self.inputs as u8)),
            param("Acc* partial", self.workspace()),
            geometry_param("kept", kept),
            u64_param("results", results),
        ];
        if stores {
            params.extend(self.finish.params.iter().cloned());
        }
        params
    }

    /// Returns text that computes the offset of a piece in each operand. `place` is the position of the piece, `j` its
    /// first term.
    fn offsets(&self, place: &str) -> String {
        let split = self.split;
        let operands = self.inputs + 1;
        if split.walks() {
            return format!("        i64 to[{operands}];\n        reduced.offsets(j, to);\n");
        }
        let offset =
            |operand: usize| if split.stride(operand) == 1 { format!("(i64)({place})") } else { "0".to_owned() };
        let offsets: Vec<String> = (0..operands).map(offset).collect();
        format!("        const i64 to[{operands}] = {{{}}};\n", offsets.join(", "))
    }

    fn stored(&self, to: &str) -> String {
        self.finish.store.replace("TO", to)
    }

    /// Returns the function `compute` of the expression, whose arguments are an element of each input and the constants.
    fn compute_function(&self, expression: &Expression) -> String {
        let constants = expression.constants().len();
        let arguments = (0..self.inputs).map(|i| format!("C x{i}")).chain((0..constants).map(|i| format!("C c{i}")));
        let arguments = arguments.collect::<Vec<_>>().join(", ");
        match self.function {
            Function::Sums(sums) => {
                let outputs = (0..sums).map(|i| format!("r{i}")).collect::<Vec<_>>().join(", ");
                format!(
                    "__device__ inline Values compute({arguments}) {{\n  C {outputs};\n{}  Values all = {{{outputs}}};\n  \
                     return all;\n}}\n",
                    expression.c_text()
                )
            }
            _ => format!("__device__ inline C compute({arguments}) {{\n{}}}\n", expression.c_text()),
        }
    }

    /// Returns the parameters of the inputs, and of the constants of the expression.
    fn operands(&self, expression: &Expression, spec: &Spec) -> Vec<Parameter> {
        let input = |(i, x): (usize, &Tensor)| param(format!("const {}* a{i}", c_type(x.dtype)), Arg::Operand(i as u8));
        let constant = |(i, &value): (usize, &f64)| param(format!("C c{i}"), Arg::real(self.compute, value));
        let inputs = spec.inputs.iter().enumerate().map(input);
        inputs.chain(expression.constants().iter().enumerate().map(constant)).collect()
    }

    fn first(&self, name: &str, expression: &Expression, spec: &Spec) -> Launch {
        let split = self.split;
        let Split { along, pack, threads, beside, held: packs, under_way, parts, written, .. } = *split;
        let count = self.inputs;
        let constants = expression.constants();
        let stores = split.last.parts == 1;
        let mut params = self.parameters(&split.kept, split.results, stores);
        params.extend(self.operands(expression, spec));
        let index = index_type(split.results * split.terms + split.block() * pack * packs * under_way);
        params.extend(split.walks().then(|| geometry_param("reduced", &split.reduced)));
        params.extend([
            u64_param("terms", split.terms),
            u64_param("pieces", split.pieces()),
            u64_param("span", split.span()),
            u64_param("groups", split.groups()),
            u32_param("parts", parts),
        ]);

        let terms = along == Along::Terms;
        let is_short = terms && (split.ragged || !split.terms.is_multiple_of(pack));
        // Position of a thread's piece `e`. Its constant part becomes a part of the load's address.
        let place = format!("(i64)base * {pack} + e * {}", threads * pack);
        // Access to each input along a pack: all elements at once, several at a time, or one by one.
        let mut read = String::new();
        let mut held = String::new();
        // Number of elements between the start of the first pack and the start of the row.
        let mut lead = String::new();
        let mut elements = Vec::new();
        for i in 0..count {
            let (dtype, step) = (c_type(spec.inputs[i].dtype), split.steps[i + 1]);
            let width = if split.ragged && step == 1 { pack } else { split.widths[i] };
            let (pieces, distance) = match step {
                _ if pack == 1 => (1, "1".to_owned()),
                0 => (1, "0".to_owned()),
                1 => (pack / width, width.to_string()),
                _ => {
                    params.push(u64_param(&format!("step{i}"), step));
                    (pack, format!("step{i}"))
                }
            };
            held += &format!("    HeldPack<{dtype}, {width}> p{i}[{under_way}][{}] = {{}};\n", packs * pieces);
            if split.ragged && step == 1 {
                read += &format!(
                    "        if ((u64)piece * {pack} < terms + lead) p{i}[e][0] = *(const HeldPack<{dtype}, {pack}>*)(a{i} + {place});\n"
                );
                lead = format!("  const u32 lead = (u32)((u64)a{i} / sizeof({dtype}) % {pack});\n  a{i} -= lead;\n");
                elements.push(format!("load<C>(p{i}[e][0][v])"));
                continue;
            }
            // Terms of one result are read from the result's first element, to which the input's pointer is set.
            let first = if terms { String::new() } else { format!("at[k / {pieces}][{}] + ", i + 1) };
            // A load of several elements may end behind the row: a pack never crosses the end of allocated memory.
            let exists = match is_short && pieces > 1 {
                true => format!("if (j + k * {} < terms) ", pack / pieces),
                false => String::new(),
            };
            read += &format!(
                "#pragma unroll\n        for (int k = 0; k < {}; k++) {exists}p{i}[e][k] = \
                 *(const HeldPack<{dtype}, {width}>*)(a{i} + {first}to[{}] + k % {pieces} * {distance});\n",
                packs * pieces,
                i + 1
            );
            // Elements of a pack that share a load: all of them if they are the same element.
            elements.push(format!("load<C>(p{i}[e][v / {}][v % {width}])", pack / pieces));
        }
        elements.extend((0..constants.len()).map(|i| format!("c{i}")));
        let results = if terms { 1 } else { pack };
        let across = if terms { ACROSS_NEIGHBOURS } else { ACROSS_ROWS };
        let even = split.span() * parts == split.pieces() && split.span().is_multiple_of(threads * under_way);
        let is_exponential = matches!(self.function, Function::LogSumExp | Function::LogSumExpAndSum);
        let in_packs = terms && is_exponential;
        let (side, lane) =
            if terms { ("threadIdx.x / T", "threadIdx.x % T") } else { ("threadIdx.x % B", "threadIdx.x / B") };
        let mut body =
            format!("  u32 side = {side}, lane = {lane};\n  {index} block = ({index})blockIdx.x, part = 0;\n");
        if parts > 1 {
            body += "  part = block % parts;\n  block /= parts;\n";
        }
        body += &format!(
            r#"  {index} begin = part * ({index})span, end = begin + ({index})span;
  if (end > ({index})pieces) end = ({index})pieces;
  {index} begins_at[{packs}];
  i64 at[{packs}][{operands}];
#pragma unroll
  for (int h = 0; h < {packs}; h++) {{
    {index} group = (block * {packs} + h) * B + side;
    begins_at[h] = group < groups ? group * {results} : ({index})results;
    kept.offsets(group < groups ? begins_at[h] : 0, at[h]);
  }}
"#,
            operands = count + 1
        );
        if terms {
            (0..count).for_each(|i| body += &format!("  a{i} += at[0][{}];\n", i + 1));
        }
        body += &lead;
        // A thread issues all of its loads before it uses the first value.
        let within = if even { "true" } else { "piece < end" };
        let each = format!(
            "#pragma unroll\n    for (int e = 0; e < {under_way}; e++) {{\n      {index} piece = base + e * T;\n"
        );
        let (first, term) = match terms {
            true if split.ragged => (format!("({index})(piece * {pack} - lead)"), "j + v"),
            true => (format!("piece * {pack}"), "j + v"),
            false => ("piece".to_owned(), "j"),
        };
        let to = self.offsets(if terms { &place } else { "j" });
        // A branch around a term would separate it from the next one, so terms beyond the end are computed from zeros. A
        // whole pack beyond it is left out if packs have terms enough to overlap.
        let leaves_packs = in_packs || (!even && pack >= OVERLAPPING);
        let guard = if even || leaves_packs { String::new() } else { format!("if ({within}) ") };
        let result = if terms { "0" } else { "v" };
        let elements = elements.join(", ");
        let of_each = |guard: &str| {
            format!(
                "#pragma unroll\n        for (int v = 0; v < {}; v++) {{\n          auto x = compute({elements});\n          \
                 {guard}take(acc[{result}], x, {term});\n        }}\n",
                packs * pack
            )
        };
        // Only the first and the last pack of a row may be partial. The others need no comparison for each term, unless rows are so short
        // that most warps have a partial pack.
        let whole = match is_short {
            true if split.ragged && split.pieces() < LONG_RAGGED * threads => "false".to_owned(),
            true if split.ragged => format!("j < ({index})terms && j + {pack} <= ({index})terms"),
            true => format!("j + {pack} <= ({index})terms"),
            false => "true".to_owned(),
        };
        let (all, partial) = match in_packs {
            true => (
                format!("        take(acc[0], all, {}u);\n", (1 << pack) - 1),
                format!(
                    "        u32 live = 0;\n#pragma unroll\n        for (int v = 0; v < {pack}; v++) live |= (u32)(j + v < ({index})terms) << v;\n        \
                     take(acc[0], all, live);\n"
                ),
            ),
            false => (of_each(&guard), of_each(&format!("if ({within} && j + v < ({index})terms) "))),
        };
        let held_terms = match in_packs {
            true => format!(
                "        C all[{pack}];\n#pragma unroll\n        for (int v = 0; v < {pack}; v++) all[v] = compute({elements});\n"
            ),
            false => String::new(),
        };
        let take = match &*whole {
            "true" => held_terms + &all,
            "false" => held_terms + &partial,
            _ => format!("{held_terms}        if ({whole}) {{\n{all}        }} else {{\n{partial}        }}\n"),
        };
        let take = if leaves_packs { format!("      if ({within}) {{\n{take}      }}\n") } else { take };
        // Several terms of a result are taken at once, by one exponential each. Only the last ones may be beyond the end.
        let taken = match is_exponential && !terms {
            true => format!(
                r#"    auto take_all = [&](bool are_valid) {{
#pragma unroll
      for (int v = 0; v < W; v++) {{
        C all[{under_way}];
        u32 live = 0;
#pragma unroll
        for (int e = 0; e < {under_way}; e++) {{
          all[e] = compute({elements});
          live |= (u32)(are_valid || base + e * T < end) << e;
        }}
        take(acc[v], all, live);
      }}
    }};
    if ({is_even} || base + {last} * T < end) take_all(true);
    else take_all(false);
"#,
                is_even = even,
                last = under_way - 1,
            ),
            false => format!("{each}      {index} j = {first};\n{take}    }}\n"),
        };
        body += &format!(
            r#"  Acc acc[W];
#pragma unroll
  for (int w = 0; w < W; w++) acc[w] = none();
  for ({index} base = begin + lane; base < end; base += T * {under_way}) {{
{held}{each}      if ({within}) {{
        {index} j = {first};
{to}{read}      }}
    }}
{taken}  }}
"#
        );
        if matches!(self.function, Function::ArgMax | Function::ArgMin) {
            let first = match (terms, split.ragged) {
                (true, true) => format!("(begin + lane > 0 ? (u64)(begin + lane) * {pack} - lead : 0)"),
                (true, false) => format!("(u64)(begin + lane) * {pack}"),
                (false, _) => "(u64)(begin + lane)".to_owned(),
            };
            body += &format!(
                "#pragma unroll\n  for (int w = 0; w < W; w++) if (begin + lane < end && {first} < terms) settled(acc[w], {first});\n"
            );
        }
        body += if terms { "  acc[0] = across(acc[0]);\n" } else { "  across(acc, side, lane);\n" };
        let each_of_pack = format!("#pragma unroll\n    for (int v = 0; v < {results}; v++)");
        let stored = match (stores, written) {
            (true, 1) => format!(
                "{each_of_pack} {{\n      Acc total = acc[h * {results} + v];\n      {};\n      which++;\n    }}\n",
                self.stored("out[at[h][0] + v * out_step]")
            ),
            (true, _) => format!(
                "    Pack<{out}, {written}> r[{count}];\n{each_of_pack} {{\n      Acc total = acc[h * {results} + v];\n      \
                 {};\n      which++;\n    }}\n#pragma unroll\n    for (int k = 0; k < {count}; k++) \
                 *(Pack<{out}, {written}>*)(out + at[h][0] + k * {written}) = r[k];\n",
                self.stored(&format!("r[v / {written}].at[v % {written}]")),
                out = c_type(self.output.dtype),
                count = pack / written,
            ),
            _ => self.stored_part(results),
        };
        body += &format!(
            "  if (lane != 0) return;\n#pragma unroll\n  for (int h = 0; h < {packs}; h++) {{\n    {index} which = begins_at[h];\n    \
             if (which == results) continue;\n{stored}  }}\n"
        );
        if stores && written == 1 {
            params.push(u64_param("out_step", split.steps[0]));
        }
        let mut before =
            self.before(threads, beside, packs * results, across) + HELD_PACK + &self.compute_function(expression);
        if !terms {
            let (block, resident) = (split.block(), split.resident());
            before += &format!("#undef BOUNDS\n#define BOUNDS __launch_bounds__({block}, {resident})\n");
        }
        launch(name, &before, &params, &body, split.blocks(), split.block() as u32)
    }

    /// Returns the kernel whose blocks stage their rows in shared memory. A thread stores its results of a tile after the last one, so that
    /// loads for several results are under way at the same time.
    fn staged(&self, name: &str, expression: &Expression, spec: &Spec, rows: &StagedRows) -> Launch {
        let StagedRows { input, pack, .. } = *rows;
        let mut params = self.parameters(&self.split.kept, self.split.results, true);
        params.extend(self.operands(expression, spec));
        let index = index_type(self.split.results);
        let others = (0..self.inputs).filter(|other| *other != input);
        let others: String = others
            .map(|other| format!("      const C own{other} = load<C>(a{other}[kept.offset(which, {})]);\n", other + 1))
            .collect();
        let elements = (0..self.inputs).map(|other| match other == input {
            true => format!("load<C>(some[v / {pack}].at[v % {pack}])"),
            false => format!("own{other}"),
        });
        let elements = elements.chain((0..expression.constants().len()).map(|i| format!("c{i}")));
        let computed = format!("compute({})", elements.collect::<Vec<_>>().join(", "));
        let taken = match self.function {
            Function::LogSumExp | Function::LogSumExpAndSum => format!(
                "        C all[AT_ONCE];\n#pragma unroll\n        for (u32 v = 0; v < AT_ONCE; v++) all[v] = first + v < TERMS ? {computed} : C(0);\n        \
                 take(total, all, TERMS - first < AT_ONCE ? (1u << (TERMS - first)) - 1 : (1u << AT_ONCE) - 1, first == 0);\n"
            ),
            _ => format!(
                "#pragma unroll\n        for (u32 v = 0; v < AT_ONCE; v++) if (first + v < TERMS) take(total, {computed}, first + v);\n"
            ),
        };
        let settled = match self.function {
            Function::ArgMax | Function::ArgMin => "      settled(total, 0);\n",
            _ => "",
        };
        let body = format!(
            r#"{stage}    {out} found[SEVERAL];
#pragma unroll
    for (u32 r = 0; r < SEVERAL; r++) {{
      // Threads without a row compute the last one.
      const u32 place = r * THREADS + threadIdx.x, own = place < live ? place : live - 1;
      const {index} which = ({index})(begin + own);
{others}      const Piece* pieces = (const Piece*)staged + own * (TERMS / {pack});
      const Element* row = (const Element*)pieces;
      Acc total = none();
#pragma unroll
      for (u32 first = 0; first < TERMS; first += AT_ONCE) {{
        Piece some[AT_ONCE / {pack}];
#pragma unroll
        for (u32 k = 0; k < AT_ONCE / {pack}; k++) if (first + k * {pack} < TERMS) some[k] = pieces[first / {pack} + k];
{taken}      }}
{settled}      {store};
    }}
#pragma unroll
    for (u32 r = 0; r < SEVERAL; r++) {{
      const u32 own = r * THREADS + threadIdx.x;
      if (own < live) out[kept.offset(({index})(begin + own), 0)] = found[r];
    }}
    __syncthreads();
  }}
"#,
            stage = STAGE.replace("INPUT", &format!("a{input}")),
            out = c_type(self.output.dtype),
            store = self.finish.of_row.as_ref().unwrap_or(&self.finish.store).replace("TO", "found[r]"),
        );
        let before = self.before(ROWS_BLOCK, 1, 1, "")
            + &self.compute_function(expression)
            + &rows.constants(c_type(spec.inputs[input].dtype));
        launch(name, &before, &params, &body, rows.blocks(), ROWS_BLOCK as u32)
    }

    /// Returns the kernel that combines the parts, and adds the rows that no joined row contains.
    fn second(&self, name: &str, expression: &Expression, spec: &Spec) -> Launch {
        let (beside, threads, blocks) = self.split.second();
        let Last { kept, results, parts, left } = &self.split.last;
        let mut params = self.parameters(kept, *results, true);
        params.push(u32_param("parts", *parts));
        let mut before = self.before(threads, beside, 1, ACROSS_ROWS);
        let mut rest = String::new();
        if left.count > 0 {
            params.extend(self.operands(expression, spec));
            params.push(u64_param("left", left.first));
            before += &self.compute_function(expression);
            let constants = (0..expression.constants().len()).map(|i| format!(", c{i}")).collect::<String>();
            rest = format!(
                "  for (u32 e = lane; live && e < {}; e += T) {{\n    \
                 auto x = compute(load<C>(a0[(left + e) * results + which]){constants});\n    take(acc[0], x, 0);\n  }}\n",
                left.count
            );
        }
        let index = index_type(results + beside);
        let body = format!(
            r#"  u32 side = threadIdx.x % B, lane = threadIdx.x / B;
  {index} which = ({index})blockIdx.x * B + side;
  bool live = which < results;
  Acc held[{each}], acc[1] = {{none()}};
#pragma unroll
  for (int e = 0; e < {each}; e++) {{
    u32 part = lane + e * T;
    held[e] = live && part < parts ? partial[(u64)part * results + which] : none();
  }}
#pragma unroll
  for (int e = 0; e < {each}; e++) acc[0] = join(acc[0], held[e]);
{rest}  across(acc, side, lane);
  if (lane != 0 || !live) return;
  Acc total = acc[0];
  {};
"#,
            self.stored("out[kept.offset(which, 0)]"),
            each = parts.div_ceil(threads),
        );
        launch(&format!("{name}_rest"), &before, &params, &body, blocks, (beside * threads) as u32)
    }
}
