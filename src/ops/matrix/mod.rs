//! Matrix products.

mod align;
mod aligned;
mod check;
mod epilogue;
mod folded;
mod gated;
mod grouped;
mod parts;
mod product;
mod scaling;
mod short;
mod thin;
mod thin_text;
mod tiling;

use super::layout::collapse;
use super::*;
use crate::ops::call::error;
use aligned::Aligned;
pub use check::{MISSES, product_radii};
pub use epilogue::{Added, Finish, Function, epilogue_of};
use folded::folded;
pub use gated::Gate;
pub use grouped::GroupedGemm;
use parts::Parts;
pub use product::Factors;
pub use scaling::{BLOCK as SCALE_BLOCK, scales};
use scaling::{factors_fit, unscaled};
pub use tiling::{loses_terms, product_cost};
use tiling::{pack_of, reread};

/// The operations `gemm` and `scaled_gemm`.
pub enum Gemm {
    /// `gemm(a, b)`.
    Plain,
    /// `scaled_gemm(a, b, scale_a, scale_b)`.
    Scaled,
}

const OPTIONS: [OptionSpec; 5] = [
    OptionSpec::bool("transpose_a", false, "multiply by the transpose of `a`"),
    OptionSpec::bool("transpose_b", false, "multiply by the transpose of `b`"),
    OptionSpec::word(
        "compute",
        &["auto", "f32", "tf32"],
        "`tf32` rounds f32 inputs for the matrix units; `auto` never does",
    ),
    OptionSpec::bool("accumulate", false, "add the product to the contents of `c`"),
    OptionSpec::word(
        "epilogue",
        &gated::NAMES,
        "activation of the result; `gelu` is exact, `gelu_tanh` is the tanh approximation; the gated forms `swiglu`, `geglu`, \
         `geglu_tanh` and `reglu` multiply the activation of the first half of the columns by the second half",
    ),
];

impl Operation for Gemm {
    fn signature(&self) -> &'static Signature {
        const PLAIN: Signature = Signature {
            name: "gemm",
            summary: "(batched) matrix multiplication, accumulated in f32, with an optional bias and activation",
            category: Category::Matrix,
            inputs: &[Input::Tensor("a"), Input::Tensor("b"), Input::Optional("bias")],
            outputs: &["c", "sums"],
            options: &OPTIONS,
        };
        const SCALED: Signature = Signature {
            name: "scaled_gemm",
            summary: "matrix multiplication of 8-bit floats with f32 scales: one per tensor, per row of `a` and column of `b`, \
                      or per block",
            inputs: &[
                Input::Tensor("a"),
                Input::Tensor("b"),
                Input::Tensor("scale_a"),
                Input::Tensor("scale_b"),
                Input::Optional("bias"),
            ],
            ..PLAIN
        };
        match self {
            Gemm::Plain => &PLAIN,
            Gemm::Scaled => &SCALED,
        }
    }

    /// Returns the number of outputs: with a gated epilogue, the sums are a second output.
    fn outputs(&self, attrs: &Attrs, _: usize, _: usize) -> usize {
        1 + usize::from(gated::function(attrs).is_some())
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        let is_gated = gated::function(call.attrs).is_some();
        if is_gated && call.attrs.bool("accumulate") {
            let why = "a gated epilogue has half as many columns as the product".to_owned();
            return Err(call.bad_option("accumulate", why, "remove `accumulate`, and add with `map`".to_owned()));
        }
        if call.attrs.bool("accumulate") && call.outputs[0].is_none() {
            return Err(call.no_output("write the tensor that the product is added to: `-> c`"));
        }
        for (place, input) in call.inputs.iter().enumerate() {
            match self {
                Gemm::Scaled if place < 2 => {
                    call.needs_dtype(input, input.tensor.dtype.is_float8(), "matrices of type e4m3 or e5m2")?;
                }
                Gemm::Scaled if place < 4 => {
                    call.needs_dtype(input, input.tensor.dtype == DType::F32, "scales of type f32")?
                }
                // Integers are summed exactly; a floating-point epilogue cannot follow.
                Gemm::Plain if input.tensor.dtype == DType::I8 && place < 2 => {}
                Gemm::Plain if input.tensor.dtype == DType::I32 && place == 2 && call.attrs.bool("accumulate") => {}
                _ => call.needs_float(input, "floating-point matrices, or i8")?,
            }
        }
        call.needs_rank(0, 2, "rows and columns")?;
        call.needs_rank(1, 2, "rows and columns")?;
        let (a, b) = (&call.inputs[0].tensor, &call.inputs[1].tensor);
        let narrow = a.dtype.is_float8() && b.dtype.is_float8();
        if a.dtype != b.dtype && !narrow {
            return Err(call.differs(
                0,
                format!("this is {}", a.dtype),
                1,
                format!("this is {}", b.dtype),
                &format!("both matrices need the same element type: {}", call.cast_to(a.dtype.promote(b.dtype))),
            ));
        }
        if call.attrs.word("compute") == "tf32" && a.dtype != DType::F32 {
            let why = format!("`tf32` is for f32 matrices, and these are {}", a.dtype);
            return Err(call.bad_option("compute", why, "remove `compute`"));
        }
        let (m, k) = rows_columns(a, call.attrs.bool("transpose_a"));
        let (k2, n) = rows_columns(b, call.attrs.bool("transpose_b"));
        if k != k2 {
            let transposed = |t: bool| if t { " when transposed" } else { "" };
            return Err(call.differs(
                0,
                format!("{a} has {k} columns{}", transposed(call.attrs.bool("transpose_a"))),
                1,
                format!("{b} has {k2} rows{}", transposed(call.attrs.bool("transpose_b"))),
                "the first matrix needs as many columns as the second has rows; `transpose_a: true` or \
                 `transpose_b: true` transposes one",
            ));
        }
        let [lead_a, lead_b] = [a, b].map(|tensor| tensor.dims.part(..tensor.dims.len() - 2));
        let mut dims = match (lead_a.len(), lead_b.len()) {
            _ if lead_a == lead_b => lead_a,
            (_, 0) => lead_a,
            (0, _) => lead_b,
            _ => {
                return Err(call.differs(
                    0,
                    format!("leading dimensions {lead_a}"),
                    1,
                    format!("leading dimensions {lead_b}"),
                    "leading dimensions have to agree, or one side has none",
                ));
            }
        };
        let too_many = || OpError::Rank {
            op: self.name(),
            needs: format!("at most {} dimensions", Dims::MAX),
            found: a.to_string(),
            help: error::OTHER_DIMENSIONS,
            at: call.span.into(),
        };
        dims.push(m).ok_or_else(too_many)?;
        dims.push(n).ok_or_else(too_many)?;
        let dtype = match call.given_dtype(0) {
            Some(DType::F32) if a.dtype.size() == 2 || narrow => DType::F32,
            _ if a.dtype == DType::I8 => DType::I32,
            Some(DType::F16) if narrow => DType::F16,
            _ if narrow => DType::BF16,
            _ => a.dtype,
        };
        let results = match is_gated {
            true => Gate::outputs(call, (dtype, dims))?,
            false => vec![call.output(0, dtype, dims)?],
        };
        if a.dtype == DType::I8 {
            whole_sums_fit(call, k)?;
        }
        if let Gemm::Scaled = self {
            factors_fit(call, (m, n, k), dims.len())?;
        }
        let factors = self.factors();
        let has_bias = call.inputs.len() - usize::from(call.attrs.bool("accumulate")) > factors;
        if let Some(bias) = call.inputs.get(factors).filter(|_| has_bias) {
            let fits = bias.tensor.dims.len() == 1 && bias.tensor.dims[0] == n && bias.tensor.dtype == dtype;
            if !fits {
                let help = match bias.tensor.dims == dims && call.outputs[0].is_none() {
                    true => "the output follows an arrow: `gemm(a, b -> c)`; `accumulate: true` adds to what it holds",
                    false => "a bias has one element for each column of the product, of the product's element type",
                };
                let (product, row) =
                    (format!("the product is {dtype}{dims}"), format!("this is {}, not {dtype}[{n}]", bias.tensor));
                return Err(call.differs(0, product, factors, row, help));
            }
        }
        // The vendors' libraries support a stride between rows, but not between elements of a row.
        let operands = call.inputs[..2].iter().chain(call.outputs.iter().flatten());
        for operand in operands {
            let tensor = &operand.tensor;
            let last = tensor.dims.len() - 1;
            if tensor.strides[last] != 1 && tensor.dims[last] != 1 {
                return Err(call
                    .gaps(operand, "the elements of a row have to be contiguous: copy the slice first, or transpose"));
            }
        }
        Ok(results)
    }

    fn cost(&self, spec: &Spec) -> Cost {
        if let Some(gate) = self.gate(spec) {
            return gate.cost(spec, self.cost(&gate.sums(spec)));
        }
        let spec = &*folded(spec);
        if short::applies(spec) {
            return short::cost(spec);
        }
        if let Some(costs) = thin::costs(spec) {
            return costs.into_iter().sum();
        }
        let (m, n, k, batch) = sizes(spec);
        let finish = Finish::of(spec);
        let output = &spec.outputs[0];
        let each = if finish.has_epilogue() { f64::from(finish.expression().flops()) } else { 0.0 };
        let terms = if finish.before.is_some() { each + 1.0 } else { each };
        // A separate kernel reads the sums that the product has written, and overwrites them with the result.
        let twice = match finish.has_epilogue() && library_epilogue(spec).is_none() {
            true => Traffic::of(output.space, 2 * output.bytes()),
            false => Traffic::NONE,
        };
        let flops = 2.0 * m as f64 * n as f64 * k as f64 * batch as f64;
        if let Some(aligned) = Aligned::of(spec, &products(spec)) {
            return aligned.cost(spec, flops);
        }
        if let Some(parts) = Parts::of(spec, &products(spec)) {
            return parts.cost(spec, flops);
        }
        let (blocks, tiling) = tiling::tiling(self, spec);
        // The blocks of a library's product apply its epilogue.
        let applied = if library_epilogue(spec).is_some() { output.elements() as f64 } else { 0.0 };
        let expression = finish.expression();
        Cost {
            instructions: f64::from(expression.instructions()) * applied,
            special: f64::from(expression.special()) * applied,
            flops: flops + terms * output.elements() as f64,
            read: Spec::bytes_of(&spec.inputs),
            written: Spec::bytes_of(&spec.outputs),
            reread: reread(spec, m, n) + twice,
            blocks,
            share: Cost::WHOLE_UNIT,
            matrix: Some(arithmetic(spec)),
            tiling,
            waits: tiling::waits(self, spec),
            ..Cost::default()
        }
    }

    /// Returns the costs of the products, which are equal, and of the kernel after them; none without such a kernel.
    fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        let spec = &*folded(spec);
        let finish = Finish::of(spec);
        match thin::costs(spec) {
            _ if self.gate(spec).is_some() || short::applies(spec) => return Vec::new(),
            Some(costs) => return costs,
            None if let Some(aligned) = Aligned::of(spec, &products(spec)) => return aligned.costs(spec),
            None if let Some(parts) = Parts::of(spec, &products(spec)) => return parts.costs(spec),
            None if !finish.has_epilogue() || library_epilogue(spec).is_some() => return Vec::new(),
            None => {}
        }
        let (m, n, ..) = sizes(spec);
        let walk = batches(spec);
        let products: u64 = walk.dims[..walk.dims.len().saturating_sub(1)].iter().product();
        let product = Cost { reread: reread(spec, m, n), ..self.cost(spec) }.each_of(products.max(1));
        let output = &spec.outputs[0];
        let bytes = Traffic::of(output.space, output.bytes());
        let epilogue = Cost {
            instructions: f64::from(finish.expression().instructions()) * output.elements() as f64,
            read: bytes,
            written: bytes,
            ..spec.streaming_cost(0.0, 1024)
        };
        std::iter::repeat_n(product, products.max(1) as usize).chain([epilogue]).collect()
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        if let Some(gate) = self.gate(spec) {
            self.reference(&gate.sums(spec), &inputs[..self.factors()], &mut outputs[1..]);
            return gate.apply(spec, inputs, outputs);
        }
        let finish = Finish::of(spec);
        sums(spec, inputs, &mut outputs[0]);
        outputs[0].iter_mut().for_each(|value| *value = finish.apply(*value));
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        if let Some(gate) = self.gate(spec) {
            let of_sums = self.enclose(&gate.sums(spec), &inputs[..self.factors()], &mut outputs[1..]);
            return gate.enclosed(spec, inputs, outputs, of_sums);
        }
        let finish = Finish::of(spec);
        sums(spec, inputs, &mut outputs[0]);
        let tolerance = check::tolerance(spec, inputs, &outputs[0]);
        outputs[0].iter_mut().for_each(|value| *value = finish.apply(*value));
        vec![tolerance]
    }

    fn check(&self, spec: &Spec, inputs: &[&[f64]], _: PriorOutputs, actual: &[Vec<f64>]) -> Vec<Check> {
        if let Some(gate) = self.gate(spec) {
            let of_sums = check::check(&gate.sums(spec), &inputs[..self.factors()], &actual[1]);
            return vec![gate.check(spec, inputs, actual), of_sums];
        }
        vec![check::check(spec, inputs, &actual[0])]
    }

    fn product(&self, spec: &Spec) -> Option<([u64; 4], Arithmetic)> {
        if let Some(gate) = self.gate(spec) {
            return self.product(&gate.sums(spec));
        }
        let (m, n, k, batch) = sizes(spec);
        Some(([batch, m, n, k], arithmetic(spec)))
    }

    /// The product has a row for each row of `a`, with or without data.
    fn live_rows(&self, spec: &Spec, facts: &[Option<RowFact>]) -> LiveOperation {
        let rows = spec.inputs[0].dims.len() == 2 && !spec.attrs.bool("transpose_a");
        LiveOperation::of_rows(spec, facts, usize::from(rows))
    }

    fn updates(&self, attrs: &Attrs) -> bool {
        attrs.bool("accumulate")
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        if let Some(gate) = self.gate(spec) {
            return gate.launch(spec, self.launch(&gate.sums(spec)));
        }
        let spec = &*folded(spec);
        if short::applies(spec) {
            return vec![short::launch(spec)];
        }
        if let Some(launches) = thin::launches(spec) {
            return launches;
        }
        let products = products(spec);
        match Aligned::of(spec, &products) {
            Some(aligned) => aligned.launches(spec),
            None if let Some(parts) = Parts::of(spec, &products) => parts.launches(spec),
            None => library_launches(spec, products),
        }
    }

    /// Returns the library's product of the factors as they lie in memory, instead of that of copies or of parts.
    fn sparing_launch(&self, spec: &Spec) -> Option<Vec<Launch>> {
        if let Some(gate) = self.gate(spec) {
            return Some(gate.launch(spec, self.sparing_launch(&gate.sums(spec))?));
        }
        let spec = &*folded(spec);
        if short::applies(spec) || thin::applies(spec) {
            return None;
        }
        let products = products(spec);
        let can_spare = match Aligned::of(spec, &products) {
            Some(aligned) => !aligned.is_needed,
            None => Parts::of(spec, &products).is_some(),
        };
        can_spare.then(|| library_launches(spec, products))
    }

    fn outputs_with_gradients(&self, _: &Spec) -> usize {
        1
    }

    fn implementation(&self, spec: &Spec) -> Option<&'static str> {
        if self.gate(spec).is_some() {
            return Some(gated::IMPLEMENTATION);
        }
        let spec = &*folded(spec);
        match (Finish::of(spec).has_epilogue(), library_epilogue(spec)) {
            (false, _) if short::applies(spec) => Some("a generated kernel computes the short product"),
            (true, _) if short::applies(spec) => Some("one generated kernel computes the short product and its epilogue"),
            _ if thin::applies(spec) => Some("a generated kernel computes the thin product and its epilogue"),
            _ if let Some(aligned) = Aligned::of(spec, &products(spec)) => Some(aligned.implementation()),
            _ if Parts::of(spec, &products(spec)).is_some() => Some(parts::IMPLEMENTATION),
            (true, Some(_)) => {
                Some("the library's epilogue, or a generated kernel behind the product where that is faster")
            }
            (true, None) => Some("a generated kernel behind the library's product computes the epilogue"),
            (false, _) => (batches(spec).dims.len() > 1).then_some(
                "several launches, each of one batch of the library: the batches have gaps between them, so that no single stride \
                 leads from each to the next",
            ),
        }
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::gemm(rule)
    }
}

impl Gemm {
    /// Returns the gate of a product; `None` without one.
    fn gate(&self, spec: &Spec) -> Option<Gate> {
        Gate::of(spec, self.factors())
    }

    /// Number of inputs before the bias.
    fn factors(&self) -> usize {
        match self {
            Gemm::Plain => 2,
            Gemm::Scaled => 4,
        }
    }
}

/// True if the vendors' libraries support the layout of the matrices: with 8-bit elements, `b` transposed and `a` not.
pub fn has_library_layout(spec: &Spec) -> bool {
    spec.inputs[0].dtype.size() > 1 || (spec.attrs.bool("transpose_b") && !spec.attrs.bool("transpose_a"))
}

/// Number of inputs of a product before the bias.
pub fn factors(spec: &Spec) -> usize {
    if scales(spec).is_some() { 4 } else { 2 }
}

/// Fails if a sum of products of `i8` may overflow `i32`, or if the epilogue requires floating-point numbers.
fn whole_sums_fit(call: &Call, k: u64) -> Result<(), OpError> {
    /// Number of products of 128 × 128 whose sum fits `i32`.
    const MAX_DEPTH: u64 = (1 << 31) / (128 * 128) - 1;
    if call.attrs.word("epilogue") != "none" {
        let why = "products of i8 are whole numbers".to_owned();
        return Err(call.bad_option("epilogue", why, "remove `epilogue`, and write `map` behind the product"));
    }
    if k > MAX_DEPTH {
        let [a, b] = [0, 1].map(|input| call.inputs[input].tensor.to_string());
        let help = format!("sums of more than {MAX_DEPTH} products of i8 do not fit i32: split the product");
        return Err(call.differs(0, format!("this is {a}"), 1, format!("this is {b}"), &help));
    }
    Ok(())
}

fn rows_columns(tensor: &Tensor, transposed: bool) -> (u64, u64) {
    let rank = tensor.dims.len();
    let (rows, columns) = (tensor.dims[rank - 2], tensor.dims[rank - 1]);
    if transposed { (columns, rows) } else { (rows, columns) }
}

/// Returns the leading dimensions of the output, merged where possible, and the strides of `a`, `b` and `c` along them.
fn batches(spec: &Spec) -> Geometry {
    let output = &spec.outputs[0];
    let lead = output.dims.len() - 2;
    let strides = |tensor: &Tensor| {
        let own = tensor.dims.len() - 2;
        (0..lead).map(|axis| if own == lead { tensor.strides[axis] } else { 0 }).collect()
    };
    let dims = output.dims.part(..lead);
    collapse(dims, &[&spec.inputs[0], &spec.inputs[1], output].map(strides))
}

/// Returns the library's products: several if batches have gaps between them. A single one has the epilogue that the library can
/// compute.
fn products(spec: &Spec) -> Vec<launch::Gemm> {
    let (m, n, k, _) = sizes(spec);
    let output = &spec.outputs[0];
    // A product with several batches has one kernel after all of them.
    let epilogue = Finish::of(spec).in_library(spec).filter(|_| batches(spec).dims.len() <= 1);
    let tensors = [&spec.inputs[0], &spec.inputs[1], output];
    let operand_of = [0, 1, spec.inputs.len()];
    let walk = batches(spec);
    // The innermost remaining dimension is the library's batch; each index of the others is a separate product.
    let (batch, inner) = match walk.dims.last() {
        Some(&last) => (last, walk.dims.len() - 1),
        None => (1, 0),
    };
    let outer = walk.dims.part(..inner);
    let offsets: Vec<Vec<u64>> =
        walk.strides.iter().map(|strides| layout::offsets(outer, strides.part(..inner)).collect()).collect();
    let matrix = |operand: usize, transposed: bool, index: usize| {
        let tensor = tensors[operand];
        let rank = tensor.dims.len();
        let (rows, columns, stride) = (tensor.dims[rank - 2], tensor.dims[rank - 1], tensor.strides[rank - 2]);
        // A contiguous column is a row of its transpose, which libraries read in packs.
        let is_turned = columns == 1 && stride == 1 && operand < 2;
        // A matrix of one row has an arbitrary row stride; libraries require at least the length of a row.
        let row = if is_turned || rows == 1 { rows.max(columns) } else { stride.max(columns) };
        let offset = offsets[operand][index];
        Matrix {
            operand: operand_of[operand] as u8,
            offset,
            dtype: tensor.dtype,
            row: row.max(1),
            transposed: transposed != is_turned,
            batch: walk.strides[operand].last().copied().unwrap_or(0),
            align: if (offset * tensor.dtype.size()).is_multiple_of(16) {
                tensor.align
            } else {
                tensor.dtype.size() as u8
            },
        }
    };
    let product = |index: usize| {
        let product = launch::Gemm {
            m,
            n,
            k,
            batch,
            a: matrix(0, spec.attrs.bool("transpose_a"), index),
            b: matrix(1, spec.attrs.bool("transpose_b"), index),
            c: matrix(2, false, index),
            arithmetic: arithmetic(spec),
            accumulate: Finish::of(spec).before.is_some(),
            epilogue,
            scales: scales(spec),
        };
        aligned::as_row(&product).unwrap_or(product)
    };
    (0..offsets[2].len()).map(product).collect()
}

/// True if matrix units multiply, and some row is not whole packs of 16 bytes, so that a library loads and stores a few elements at once.
fn is_odd(spec: &Spec) -> bool {
    arithmetic(spec) != Arithmetic::F32 && products(spec).first().and_then(pack_of).is_some()
}

/// Returns the launches of the library's products of a call, and of the kernel after them.
fn library_launches(spec: &Spec, products: Vec<launch::Gemm>) -> Vec<Launch> {
    let kernel = Finish::of(spec).kernel(spec);
    match &products[..] {
        [product] if product.epilogue.is_some() => vec![Launch::Gemm(product.clone(), kernel)],
        _ => {
            let products = products.into_iter().map(|product| Launch::Gemm(product, None));
            products.chain(kernel.map(Launch::Kernel)).collect()
        }
    }
}

/// Returns the epilogue for the library to compute; `None` if a kernel computes it, or without an epilogue.
fn library_epilogue(spec: &Spec) -> Option<super::Epilogue> {
    products(spec).first().and_then(|product| product.epilogue)
}

/// Writes the sums, before the epilogue.
fn sums(spec: &Spec, inputs: &[&[f64]], output: &mut [f64]) {
    let mut room = [Vec::new(), Vec::new()];
    let inputs = &*unscaled(spec, inputs, &mut room);
    let finish = Finish::of(spec);
    let (m, n, ..) = sizes(spec);
    let (size, columns) = ((m * n) as usize, n as usize);
    for (index, (factors, c)) in Factors::of(spec, inputs).zip(output.chunks_mut(size.max(1))).enumerate() {
        let added = finish.added(inputs, (index, size, columns));
        factors.multiply(c);
        let added = added.iter().flat_map(|added| &added.sums);
        c.iter_mut().zip(added).for_each(|(sum, added)| *sum += added);
    }
}

/// Returns the numbers of rows and columns of a product, its depth, and the number of products.
fn sizes(spec: &Spec) -> (u64, u64, u64, u64) {
    let (m, k) = rows_columns(&spec.inputs[0], spec.attrs.bool("transpose_a"));
    let (_, n) = rows_columns(&spec.inputs[1], spec.attrs.bool("transpose_b"));
    let output = &spec.outputs[0].dims;
    (m, n, k, output[..output.len() - 2].iter().product())
}

/// Returns the arithmetic of a product or a convolution, by the type of the first input and the option `compute`.
pub(super) fn arithmetic(spec: &Spec) -> Arithmetic {
    match spec.inputs[0].dtype {
        DType::F64 => Arithmetic::F64,
        DType::F16 => Arithmetic::F16,
        DType::BF16 => Arithmetic::BF16,
        DType::E4M3 | DType::E5M2 => Arithmetic::F8,
        DType::I8 => Arithmetic::I8,
        _ if spec.attrs.find_word("compute") == Some("tf32") => Arithmetic::Tf32,
        _ => Arithmetic::F32,
    }
}
