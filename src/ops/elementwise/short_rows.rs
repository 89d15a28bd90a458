//! Elementwise kernels over short rows: the output is written from one end to the other in packs, which go on in the next row. Rows can
//! have any number of dimensions, whose sizes are constants of the kernel.
//!
//! Inputs with the output's strides are read in packs, too. Inputs that are broadcast, or that have gaps, are read element by element; they
//! are small, or a cache holds what neighbouring elements read again.

use crate::ops::kernels::kernel::{BLOCK, c_type, compute_type, index_type, launch, param, u64_param};
use crate::ops::kernels::occupancy;
use crate::ops::kernels::walk::{self, ENOUGH_BLOCKS, ElementSource, Operand, Task};
use crate::ops::layout::halves;
use crate::ops::*;

/// Maximum size in bytes of a pack of the widest operand.
const WIDEST: u64 = 32;
/// Maximum size in bytes of what one instruction reads or writes.
const ACCESS: u64 = 16;

/// Instructions of a thread without those for its position.
const PER_THREAD: f64 = 30.0;
/// Instructions for the position of a thread along a dimension, by a division by a constant.
const PER_DIVISION: f64 = 10.0;
/// Instructions per element, for its position along a dimension.
const PER_ELEMENT: f64 = 4.0;
/// Instructions per access to memory.
const PER_ACCESS: f64 = 3.0;

/// A task whose rows are so short, or begin at such addresses, that threads for parts of single rows would have little work at once.
pub struct ShortRows<'a> {
    task: &'a Task<'a>,
    /// Number of elements of the output.
    total: u64,
    /// Dimensions of the output, merged where every operand allows it.
    dims: Dims,
    /// Number of neighbouring elements of a thread.
    pack: u64,
    /// Strides of each input that is not read in packs.
    steps: Vec<Option<Dims>>,
}

impl ShortRows<'_> {
    /// Returns the division of a task; `None` if it has several outputs, if the output has gaps, or if threads for parts of rows have as
    /// much work and write whole sectors.
    pub fn of<'a>(task: &'a Task<'a>) -> Option<ShortRows<'a>> {
        let [output] = &*task.outputs else { return None };
        // Copies keep the bits of elements.
        if task.expression.is_identity() {
            return None;
        }
        let strides: Vec<Dims> = std::iter::once(output).chain(&task.inputs).map(|operand| operand.strides).collect();
        let all = layout::by_output(task.dims, &strides);
        let contiguous = all.dims.contiguous_strides();
        let in_memory = |operand: &Operand| matches!(operand.origin, ElementSource::Memory(_)) && operand.start == 0;
        if all.dims.len() < 2
            || all.strides[0] != contiguous
            || !in_memory(output)
            || !task.inputs.iter().all(in_memory)
        {
            return None;
        }
        let steps: Vec<Option<Dims>> =
            all.strides[1..].iter().map(|&steps| (steps != contiguous).then_some(steps)).collect();
        let whole = std::iter::once(output)
            .chain(task.inputs.iter().zip(&steps).filter(|(_, steps)| steps.is_none()).map(|(input, _)| input));
        let whole: Vec<&Operand> = whole.collect();
        let size = |operand: &&Operand| operand.tensor.dtype.size();
        let widest = whole.iter().map(size).max().unwrap_or(1);
        let narrowest = whole.iter().map(size).min().unwrap_or(1);
        let total = all.dims.iter().product();
        let most = (WIDEST / widest).min(ACCESS / narrowest).min(ACCESS / output.tensor.dtype.size()).max(1);
        let is_aligned = |pack: u64| {
            whole
                .iter()
                .all(|operand| u64::from(operand.tensor.align).is_multiple_of((pack * size(operand)).min(ACCESS)))
        };
        let fits = |pack: &u64| is_aligned(*pack) && total >= pack * u64::from(BLOCK) * ENOUGH_BLOCKS;
        let pack = halves(most).find(fits)?;
        // Elements of a row that are apart are read by neighbouring threads instead.
        let is_apart = steps.iter().flatten().any(|strides| strides[strides.len() - 1] > 1);
        let is_longer = !is_apart && pack as f64 >= 2.0 * walk::elements_of_a_thread(task);
        let is_worth = is_longer || walk::rewrites_sectors(task) || !is_apart && walk::moves_parts_of_lines(task);
        (pack > 1 && is_worth).then_some(ShortRows { task, total, dims: all.dims, pack, steps })
    }

    /// Work of the kernel's threads, for its cost.
    pub fn work(&self) -> walk::Work {
        let threads = self.total.div_ceil(self.pack);
        let packed = self.steps.iter().filter(|steps| steps.is_none()).count() as f64 + 1.0;
        let single = self.steps.len() as f64 + 1.0 - packed;
        let inner = self.dims.len() as f64 - 1.0;
        let of_elements = self.pack as f64 * (inner * PER_ELEMENT + single * PER_ACCESS);
        let bytes: u64 = self.task.outputs.iter().chain(&self.task.inputs).map(|operand| operand.tensor.bytes()).sum();
        walk::Work {
            sectors: bytes as f64 / occupancy::SECTOR as f64,
            instructions: threads as f64 * (PER_THREAD + inner * PER_DIVISION + packed * PER_ACCESS + of_elements),
            blocks: self.blocks(),
        }
    }

    fn blocks(&self) -> u64 {
        self.total.div_ceil(self.pack * u64::from(BLOCK))
    }

    pub fn launch(&self, name: &str, spec: &Spec) -> Launch {
        let ShortRows { task, total, dims, pack, steps } = self;
        let (compute, output) = (compute_type(spec), &task.outputs[0]);
        let place = |operand: &Operand| match operand.origin {
            ElementSource::Memory(place) => place,
            ElementSource::Workspace(_) | ElementSource::Mask { .. } => {
                unreachable!("`of` takes operands in buffers alone")
            }
        };
        let kind = |operand: &Operand| c_type(operand.tensor.dtype);
        let constants = task.expression.constants();
        let mut params = vec![param(format!("{}* out", kind(output)), Arg::Operand(place(output)))];
        let of_input =
            |(i, input): (usize, &Operand)| param(format!("const {}* a{i}", kind(input)), Arg::Operand(place(input)));
        params.extend(task.inputs.iter().enumerate().map(of_input));
        params.extend(
            constants.iter().enumerate().map(|(index, &value)| param(format!("C c{index}"), Arg::real(compute, value))),
        );
        params.push(u64_param("total", *total));
        let before = format!(
            "typedef {} C;\ntypedef {} Index;\n#define V {pack}\n{}",
            c_type(compute),
            index_type(total + pack * u64::from(BLOCK)),
            walk::compute_text(task)
        );
        let width = |operand: &Operand| (*pack).min(ACCESS / operand.tensor.dtype.size());
        // Each operand's elements are in packs, from which the compiler makes registers.
        let element = |name: &str, operand: &Operand| format!("{name}[v / {0}].at[v % {0}]", width(operand));
        let packs = |name: &str, operand: &Operand| {
            format!("  Pack<{}, {width}> {name}[V / {width}];\n", kind(operand), width = width(operand))
        };
        let mut reads = String::new();
        for (i, (input, steps)) in task.inputs.iter().zip(steps).enumerate() {
            let (kind, width, own) = (kind(input), width(input), element(&format!("p{i}"), input));
            reads += &packs(&format!("p{i}"), input);
            reads += &match steps {
                None => format!(
                    "  if (is_whole) {{\n{EACH_PACK}V / {width}; k++) p{i}[k] = *(const Pack<{kind}, {width}>*)(a{i} + e + k * {width});\n  }} else {{\n\
                     {EACH_ELEMENT} {own} = a{i}[e + v];\n  }}\n"
                ),
                Some(strides) => format!("{EACH_ELEMENT} {own} = a{i}[{}];\n", offset(strides)),
            };
        }
        let values =
            task.inputs.iter().enumerate().map(|(i, input)| format!("load<C>({})", element(&format!("p{i}"), input)));
        let values: Vec<String> = values.chain((0..constants.len()).map(|index| format!("c{index}"))).collect();
        let (own, wide, result) = (kind(output), width(output), element("q", output));
        let body = format!(
            "{BEGIN}{}{reads}{}{EACH_ELEMENT} store<C>({result}, compute({}));\n  if (is_whole) {{\n\
             {EACH_PACK}V / {wide}; k++) *(Pack<{own}, {wide}>*)(out + e + k * {wide}) = q[k];\n    return;\n  }}\n\
             {EACH_ELEMENT} out[e + v] = {result};\n",
            positions(dims),
            packs("q", output),
            values.join(", ")
        );
        launch(name, &before, &params, &body, self.blocks(), BLOCK)
    }
}

/// Kernel text: loops over the packs of a thread, up to a number that follows, and over its elements that exist.
const EACH_PACK: &str = "#pragma unroll\n  for (int k = 0; k < ";
const EACH_ELEMENT: &str = "#pragma unroll\n  for (int v = 0; v < V; v++) if (e + v < (Index)total)";

/// Kernel text: the first element of a thread.
const BEGIN: &str = r#"  const Index e = (Index)GLOBAL_INDEX * V;
  if (e >= (Index)total) return;
  const bool is_whole = e + V <= (Index)total;
"#;

/// Returns kernel text that finds the index of each element of a thread along each dimension: that of the first element by divisions by
/// constants, those of the others by counting.
fn positions(dims: &Dims) -> String {
    let (mut first, mut next) = ("  Index rest = e;\n".to_owned(), "    bool ends = true;\n".to_owned());
    for (axis, size) in dims.iter().enumerate().rev() {
        if axis == 0 {
            first += "  Index i0[V];\n  i0[0] = rest;\n";
            next += "    i0[v] = i0[v - 1] + ends;\n";
        } else {
            first += &format!("  Index i{axis}[V];\n  i{axis}[0] = rest % {size}, rest /= {size};\n");
            next += &format!(
                "    i{axis}[v] = i{axis}[v - 1] + ends, ends = i{axis}[v] == {size}, i{axis}[v] = ends ? 0 : i{axis}[v];\n"
            );
        }
    }
    format!("{first}#pragma unroll\n  for (int v = 1; v < V; v++) {{\n{next}  }}\n")
}

/// Returns kernel text: the offset of element `v` of a thread in an input with these strides.
fn offset(strides: &Dims) -> String {
    let terms = strides.iter().enumerate().filter(|(_, stride)| **stride > 0);
    let terms: Vec<String> = terms.map(|(axis, stride)| format!("(i64)i{axis}[v] * {stride}")).collect();
    if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::expression::formula;

    #[test]
    fn rows_of_narrow_elements_that_begin_at_any_address_are_written_as_one() {
        let chooses = |dtype: DType, length: u64| {
            let sum = formula::formula(|[a, b]| [a + b]);
            let inputs = vec![Tensor::packed(dtype, &[1000, length]), Tensor::packed(dtype, &[length])];
            let spec =
                Spec::new(&elementwise::Map, Attrs::default(), inputs, vec![Tensor::packed(dtype, &[1000, length])]);
            let task = elementwise::task(&sum, &spec);
            ShortRows::of(&task).map(|rows| rows.pack)
        };
        assert_eq!(chooses(DType::BF16, 12_345), Some(8));
        assert_eq!(chooses(DType::BF16, 12_344), None);
        // An access of a warp moves a whole line.
        assert_eq!(chooses(DType::F32, 12_345), None);
    }
}
