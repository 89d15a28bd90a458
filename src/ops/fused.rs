//! Fusion of two specs into one: the part of fusion that depends on operations but not on a program.

use std::sync::Arc;

use super::expression::ExprNode;
use super::layout::broadcast;
use super::row_chain::{self, ChainForm, Core};
use super::*;

/// Limits of a fused expression. Larger ones take long to compile and need many registers.
const STEPS: usize = 512;
const INPUTS: usize = 24;

/// Maximum number of instructions per element that fusion recomputes for each row that reads the element.
const CHEAP: u32 = 8;

/// The reason why two operations are not fused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotFused {
    /// The intermediate value is rounded to integers or 8 bits, which changes the result of the second operation.
    Rounded(DType),
    /// The two operations compute in different types.
    Compute(DType, DType),
    /// The shapes differ, so the first operation cannot be computed inside the second.
    Shape,
    /// The kernel would have too many inputs, outputs or nodes.
    Large,
    /// No library computes this as part of a matrix product.
    Library,
    /// No option of a matrix product expresses the operation behind it.
    Epilogue,
    /// Rows are few and so long that several blocks share one, which the fused kernel does not support.
    Rows,
}

/// An operand of the first or the second of two specs, by its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PairOperand {
    First(usize),
    Second(usize),
}

/// An elementwise operation: the spec and its expression.
pub struct Elementwise<'a> {
    spec: &'a Spec,
    expression: Expression,
}

impl<'a> Elementwise<'a> {
    /// Returns the elementwise form of a spec; `None` for other operations, for those of a host stream, and for a benchmark, whose traffic
    /// is its purpose.
    pub fn of(spec: &'a Spec) -> Option<Elementwise<'a>> {
        let expression = spec.operation.elements(spec).filter(|_| spec.threads.is_none())?;
        let is_plain = match spec.operation.category() {
            Category::Synthetic => false,
            Category::Copy => is_plain_copy(spec),
            _ => true,
        };
        (is_plain && expression.outputs().len() == spec.outputs.len()).then_some(Elementwise { spec, expression })
    }

    /// Fails if consumers cannot use an output's value without rounding it to the type of `output`.
    fn unstored(&self, output: usize) -> Result<(), NotFused> {
        let dtype = self.spec.outputs[output].dtype;
        let node = self.expression.outputs()[output];
        let whole = |input: usize| range(self.spec.inputs[input].dtype);
        let fits = match range(dtype) {
            Some((low, high)) => {
                self.expression.whole(node, &whole).is_some_and(|(least, most)| low <= least && most <= high)
            }
            None => !dtype.is_float8(),
        };
        if fits { Ok(()) } else { Err(NotFused::Rounded(dtype)) }
    }
}

/// True if a copy stays within the device, preserves each element's index, and does not request a copy engine.
fn is_plain_copy(spec: &Spec) -> bool {
    let (source, target) = (&spec.inputs[0], &spec.outputs[0]);
    // Kernels compute in `f64`, which cannot represent all 64-bit integers.
    let is_exact = source.dtype != DType::I64;
    let is_near = [source, target].iter().all(|tensor| !tensor.space.in_host());
    keeps_order(spec) && source.dims == target.dims && is_near && is_exact && spec.attrs.word("via") != "dma"
}

/// Range of an integer type that devices compute with exactly; `None` for other types.
fn range(dtype: DType) -> Option<(f64, f64)> {
    match dtype {
        DType::U8 => Some((0.0, 255.0)),
        DType::I8 => Some((-128.0, 127.0)),
        DType::I32 => Some((-2_147_483_648.0, 2_147_483_647.0)),
        DType::I64 => Some((-9_007_199_254_740_992.0, 9_007_199_254_740_992.0)),
        _ => None,
    }
}

/// A fused spec, with the operands of both that it keeps.
#[derive(Debug)]
pub struct Joined {
    pub spec: Spec,
    pub inputs: Vec<PairOperand>,
    pub outputs: Vec<PairOperand>,
}

/// Two specs and the relations between their operands.
pub struct Related<'a> {
    pub first: &'a Spec,
    pub second: &'a Spec,
    /// For each input of the second spec, the output of the first that it reads; `None` if it reads other memory.
    pub passed: &'a [Option<usize>],
    /// For each input of the second spec, the input of the first that is the same slice; `None` if there is none.
    pub shared: &'a [Option<usize>],
    /// For each output of the first spec, whether other operations read it, so that it stays in memory.
    pub kept: &'a [bool],
}

/// Returns the fused spec of two operations; `None` if no operation can do the work of both.
pub fn joined(related: &Related) -> Option<Result<Joined, NotFused>> {
    if [related.first, related.second].iter().any(|spec| spec.threads.is_some()) {
        return None;
    }
    [maps, reduced, product, transposed, along_rows].iter().find_map(|rule| rule(related))
}

/// Returns one map for two operations that read the same tensor, where the second does not read the first's output;
/// `None` if no map can.
pub fn sharing_an_input(related: &Related) -> Option<Joined> {
    let Related { first, second, shared, .. } = *related;
    let dims = first.outputs.first()?.dims;
    let is_whole = |(input, shared): (usize, &Option<usize>)| shared.is_some() && second.inputs[input].dims == dims;
    let alike = second.outputs.iter().all(|output| output.dims == dims) && shared.iter().enumerate().any(is_whole);
    if alike { maps(related)?.ok() } else { None }
}

/// Fuses two elementwise operations into a map; `None` if one is not elementwise.
fn maps(related: &Related) -> Option<Result<Joined, NotFused>> {
    let (first, second) = (Elementwise::of(related.first)?, Elementwise::of(related.second)?);
    Some(joined_maps(related, &first, &second))
}

fn joined_maps(related: &Related, first: &Elementwise, second: &Elementwise) -> Result<Joined, NotFused> {
    let kept: Vec<usize> = (0..related.kept.len()).filter(|&output| related.kept[output]).collect();
    let (expression, inputs) = grafted(related, first, &second.expression, &kept)?;
    let outputs: Vec<PairOperand> = kept
        .into_iter()
        .map(PairOperand::First)
        .chain((0..second.spec.outputs.len()).map(PairOperand::Second))
        .collect();
    let map = find("map").expect("the catalogue has it");
    if outputs.len() > map.signature().outputs.len() {
        return Err(NotFused::Large);
    }
    let joined = related.joined(map, Attrs::default(), Some(expression), inputs, outputs).ok_or(NotFused::Shape)?;
    joined.computes_as(related)
}

/// Fuses an elementwise operation into a row-wise operation or a reduction that reads its result; `None` if the
/// operations are others. The inner error says why a fusion is refused.
fn reduced(related: &Related) -> Option<Result<Joined, NotFused>> {
    let first = Elementwise::of(related.first)?;
    let identity = Expression::identity();
    let takes_expression = related.second.operation.has(Property::TakesExpression) && related.second.threads.is_none();
    let expression = related.second.expression.as_deref().or(Some(&identity)).filter(|_| takes_expression)?;
    // Inputs that remain tensors, such as weights, follow the inputs of the expression.
    let own = expression.inputs();
    if related.passed[own..].iter().any(Option::is_some) || (own > 1 && related.second.expression.is_none()) {
        return None;
    }
    let of_expression = Related { passed: &related.passed[..own], shared: &related.shared[..own], ..*related };
    Some(grafted(&of_expression, &first, expression, &[]).and_then(|(expression, mut inputs)| {
        // The reduced shape must stay, so that each element is counted as often as before.
        let shape =
            |tensors: &mut dyn Iterator<Item = Dims>| tensors.map(Some).reduce(|a, b| broadcast(a?, b?)).flatten();
        let before = shape(&mut related.second.inputs[..own].iter().map(|input| input.dims));
        if before != shape(&mut inputs.iter().map(|input| related.input(input).dims)) {
            return Err(NotFused::Shape);
        }
        inputs.extend((own..related.passed.len()).map(PairOperand::Second));
        let Spec { operation, ref attrs, .. } = *related.second;
        let joined = related.joined(operation, attrs.clone(), Some(expression), inputs, vec![PairOperand::Second(0)]);
        joined.ok_or(NotFused::Shape)?.computes_as(related)
    }))
}

/// Substitutes the first expression for the inputs of the second that read its outputs. The outputs are the kept ones
/// of the first, then those of the second.
fn grafted(
    related: &Related,
    first: &Elementwise,
    second: &Expression,
    kept: &[usize],
) -> Result<(Expression, Vec<PairOperand>), NotFused> {
    let Related { passed, shared, .. } = *related;
    passed.iter().flatten().try_for_each(|&output| first.unstored(output))?;
    let Spec { ref inputs, ref outputs, .. } = *related.second;
    let elements = inputs.iter().chain(outputs).map(Tensor::elements).max();
    let is_repeated = elements > Some(first.spec.outputs[0].elements());
    let is_stored_apart = !kept.is_empty() && first.spec.outputs[0].dims != outputs[0].dims;
    if is_stored_apart || (is_repeated && first.expression.instructions() > CHEAP) {
        return Err(NotFused::Shape);
    }
    let mut expression = first.expression.without_outputs();
    let mut inputs: Vec<PairOperand> = (0..first.spec.inputs.len()).map(PairOperand::First).collect();
    let mut values = Vec::with_capacity(passed.len());
    for input in 0..passed.len() {
        let node = match (passed[input], shared[input]) {
            (Some(output), _) => Some(first.expression.outputs()[output]),
            (None, Some(same)) => expression.push(ExprNode::Input(u8::try_from(same).map_err(|_| NotFused::Large)?)),
            (None, None) => {
                inputs.push(PairOperand::Second(input));
                expression.push(ExprNode::Input(u8::try_from(inputs.len() - 1).map_err(|_| NotFused::Large)?))
            }
        };
        values.push(node.ok_or(NotFused::Large)?);
    }
    let results = expression.graft(second, &values).ok_or(NotFused::Large)?;
    let outputs: Vec<u16> = kept.iter().map(|&output| first.expression.outputs()[output]).chain(results).collect();
    let (expression, used) = expression.part(&outputs);
    let inputs: Vec<PairOperand> = used.into_iter().map(|input| inputs[input]).collect();
    match expression.nodes().len() <= STEPS && inputs.len() <= INPUTS {
        true => Ok((expression, inputs)),
        false => Err(NotFused::Large),
    }
}

/// Fuses an elementwise operation into the epilogue of the matrix product before it; `None` for other operations.
fn product(related: &Related) -> Option<Result<Joined, NotFused>> {
    let Related { first, second, passed, .. } = *related;
    let map = Elementwise::of(second)?;
    let is_product = matches!(first.operation.name(), "gemm" | "scaled_gemm") && first.threads.is_none();
    if !is_product {
        return None;
    }
    if first.attrs.word("epilogue") != "none" || second.outputs.len() != 1 {
        return Some(Err(NotFused::Epilogue));
    }
    let sum = &first.outputs[0];
    if range(sum.dtype).is_some() || sum.dtype.is_float8() {
        return Some(Err(NotFused::Rounded(sum.dtype)));
    }
    let column = sum.dims.last().copied();
    let own = usize::from(first.attrs.bool("accumulate"));
    let factors = matrix::factors(first);
    let (mut bias, mut before) = (first.inputs.len() - own > factors, own > 0);
    let mut inputs: Vec<PairOperand> = (0..first.inputs.len() - own).map(PairOperand::First).collect();
    let mut last = (own > 0).then(|| PairOperand::First(first.inputs.len() - 1));
    for (input, tensor) in second.inputs.iter().enumerate().filter(|(input, _)| passed[*input].is_none()) {
        if !before && tensor.dims == sum.dims {
            // Only the tensor that the result replaces can be accumulated; the program compares the slices.
            (before, last) = (true, Some(PairOperand::Second(input)));
        } else if !bias && tensor.dims.len() == 1 && tensor.dims.last().copied() == column {
            bias = true;
            inputs.push(PairOperand::Second(input));
        } else {
            return Some(Err(NotFused::Epilogue));
        }
    }
    let accumulates = last.is_some();
    inputs.extend(last);
    let name = match matrix::epilogue_of(&map.expression, second.inputs.len()) {
        Some(name) => name,
        None => return Some(Err(NotFused::Epilogue)),
    };
    let attrs = first.attrs.with("epilogue", Attr::Word(name)).with("accumulate", Attr::Bool(accumulates));
    let joined = related.joined(first.operation, attrs, None, inputs, vec![PairOperand::Second(0)]);
    let gains = |joined: &Joined| traffic(&joined.spec) < traffic(first) + traffic(second);
    Some(joined.filter(gains).ok_or(NotFused::Epilogue))
}

/// Fuses a transpose into a matrix product that reads its result; `None` for other operations.
fn transposed(related: &Related) -> Option<Result<Joined, NotFused>> {
    let Related { first, second, passed, .. } = *related;
    let is_product = matches!(second.operation.name(), "gemm" | "scaled_gemm");
    if !is_product || !exchanges_last(first) {
        return None;
    }
    let is_matrix = |input: usize| input < 2;
    let mut attrs = second.attrs.clone();
    let mut inputs = Vec::with_capacity(passed.len());
    for (input, passed) in passed.iter().enumerate() {
        match passed {
            None => inputs.push(PairOperand::Second(input)),
            Some(_) if is_matrix(input) => {
                let option = ["transpose_a", "transpose_b"][input];
                attrs = attrs.with(option, Attr::Bool(!attrs.bool(option)));
                inputs.push(PairOperand::First(0));
            }
            Some(_) => return Some(Err(NotFused::Shape)),
        }
    }
    let joined = related.joined(second.operation, attrs, None, inputs, vec![PairOperand::Second(0)]);
    Some(match joined {
        Some(joined) if !matrix::has_library_layout(&joined.spec) => Err(NotFused::Library),
        joined => joined.ok_or(NotFused::Shape),
    })
}

/// An operation of a chain along rows: an elementwise operation, or one that [`row_chain::form`] supports.
struct ChainMember<'a> {
    spec: &'a Spec,
    core: Option<Core>,
    /// The expression of a chain with a core has the core's result as input 0 and the core's operand as output 0.
    expression: Expression,
    /// Shape of the rows of the core, or of the outputs without a core.
    dims: Dims,
    is_reduction: bool,
}

impl<'a> ChainMember<'a> {
    fn of(spec: &'a Spec) -> Option<ChainMember<'a>> {
        if let Some(ChainForm { core, expression, dims, is_reduction }) = row_chain::form(spec) {
            return Some(ChainMember { spec, core: Some(core), expression, dims, is_reduction });
        }
        let Elementwise { spec, expression } = Elementwise::of(spec)?;
        Some(ChainMember { spec, core: None, expression, dims: spec.outputs[0].dims, is_reduction: false })
    }

    /// Fails if the output must be rounded to its type before the next operation uses it.
    fn unstored(&self, output: usize) -> Result<(), NotFused> {
        let dtype = self.spec.outputs[output].dtype;
        match Elementwise::of(self.spec) {
            Some(elementwise) => elementwise.unstored(output),
            None if dtype.is_float8() || range(dtype).is_some() => Err(NotFused::Rounded(dtype)),
            None => Ok(()),
        }
    }

    /// Adds the link's expression to another one. Returns the node of the core's operand (`None` without a core) and
    /// those of the outputs; `None` if the expression becomes too long.
    fn graft(&self, all: &mut Expression, core: u16, inputs: Vec<u16>) -> Option<(Option<u16>, Vec<u16>)> {
        let inputs: Vec<u16> = self.core.map(|_| core).into_iter().chain(inputs).collect();
        let mut results = all.graft(&self.expression, &inputs)?;
        Some((self.core.map(|_| results.remove(0)), results))
    }
}

/// Fuses a softmax, norm or sum of rows with an elementwise operation before or after it; `None` if the operations are
/// others. The inner error says why a fusion is refused.
fn along_rows(related: &Related) -> Option<Result<Joined, NotFused>> {
    let (first, second) = (ChainMember::of(related.first)?, ChainMember::of(related.second)?);
    let (core, rows) = match (first.core, second.core) {
        (Some(core), None) => (core, &first),
        // Fusing into a reduction with an expression is left to [`reduced`].
        (None, Some(core)) if !second.is_reduction => (core, &second),
        _ => return None,
    };
    Some(joined_rows(related, [&first, &second], core, rows))
}

fn joined_rows(
    related: &Related,
    [first, second]: [&ChainMember; 2],
    core: Core,
    rows: &ChainMember,
) -> Result<Joined, NotFused> {
    related.passed.iter().flatten().try_for_each(|&output| first.unstored(output))?;
    let is_alike = |spec: &Spec| spec.outputs.iter().all(|output| output.dims == rows.dims);
    // The caller checks whether other operations read the result of a reduction, since the chain does not store it.
    let is_kept = |output: &usize| related.kept[*output] && !first.is_reduction;
    let kept: Vec<usize> = (0..related.kept.len()).filter(is_kept).collect();
    let is_repeated = first.core.is_none() && !is_alike(first.spec) && first.expression.instructions() > CHEAP;
    if !is_alike(second.spec) || is_repeated || (!kept.is_empty() && !is_alike(first.spec)) {
        return Err(NotFused::Shape);
    }
    // Input 0 is the core's result.
    let mut sources = vec![None];
    let mut all = Expression::default();
    let result = all.push(ExprNode::Input(0)).ok_or(NotFused::Large)?;
    let mut input = |all: &mut Expression, from: PairOperand| {
        sources.push(Some(from));
        all.push(ExprNode::Input(u8::try_from(sources.len() - 1).ok()?))
    };
    let own: Option<Vec<u16>> =
        (0..first.spec.inputs.len()).map(|one| input(&mut all, PairOperand::First(one))).collect();
    let own = own.ok_or(NotFused::Large)?;
    let (before, firsts) = first.graft(&mut all, result, own.clone()).ok_or(NotFused::Large)?;
    let mut operand = |place: usize| match (related.passed[place], related.shared[place]) {
        (Some(output), _) => Some(firsts[output]),
        (None, Some(same)) => Some(own[same]),
        (None, None) => input(&mut all, PairOperand::Second(place)),
    };
    let operands: Option<Vec<u16>> = (0..second.spec.inputs.len()).map(&mut operand).collect();
    let (later, seconds) = second.graft(&mut all, result, operands.ok_or(NotFused::Large)?).ok_or(NotFused::Large)?;
    let before = before.or(later).ok_or(NotFused::Shape)?;
    let results = kept.iter().map(|&output| firsts[output]).chain(seconds);
    let nodes: Vec<u16> = std::iter::once(before).chain(results).collect();
    let (expression, used) = all.part(&nodes);
    let inputs: Option<Vec<PairOperand>> = used.iter().skip(1).map(|&input| sources[input]).collect();
    let (Some(0), Some(inputs)) = (used.first(), inputs) else { return Err(NotFused::Shape) };
    let outputs =
        kept.into_iter().map(PairOperand::First).chain((0..second.spec.outputs.len()).map(PairOperand::Second));
    let outputs: Vec<PairOperand> = outputs.collect();
    let operation = core.operation();
    let is_large = expression.nodes().len() > STEPS || inputs.len() > INPUTS;
    if is_large || outputs.len() > operation.signature().outputs.len() {
        return Err(NotFused::Large);
    }
    let joined = related.joined(operation, rows.spec.attrs.clone(), Some(expression), inputs, outputs);
    let joined = joined.ok_or(NotFused::Shape)?.computes_as(related)?;
    if row_chain::keeps_device_busy(&joined.spec) { Ok(joined) } else { Err(NotFused::Rows) }
}

/// True if an operation and one that reads its result form a chain, which fusion merges or gives a reason for: one of them is
/// elementwise, or both are row-wise.
pub fn forms_chain(first: &Spec, second: &Spec) -> bool {
    let both = [first, second];
    both.iter().any(|spec| Elementwise::of(spec).is_some())
        || both.iter().all(|spec| spec.operation.category() == Category::RowWise && spec.threads.is_none())
}

/// Bytes that an operation moves.
pub fn traffic(spec: &Spec) -> u64 {
    let cost = spec.cost();
    cost.bytes() + cost.reread.total()
}

impl Related<'_> {
    fn input(&self, from: &PairOperand) -> Tensor {
        match *from {
            PairOperand::First(input) => self.first.inputs[input],
            PairOperand::Second(input) => self.second.inputs[input],
        }
    }

    fn joined(
        &self,
        operation: &'static dyn Operation,
        attrs: Attrs,
        expression: Option<Expression>,
        inputs: Vec<PairOperand>,
        outputs: Vec<PairOperand>,
    ) -> Option<Joined> {
        let output = |from: &PairOperand| match *from {
            PairOperand::First(output) => self.first.outputs[output],
            PairOperand::Second(output) => self.second.outputs[output],
        };
        let operands = inputs.iter().map(|input| self.input(input)).collect();
        let plain = Spec::new(operation, attrs, operands, outputs.iter().map(output).collect());
        let spec = Spec { expression: expression.map(Arc::new), team: self.second.team, ..plain };
        is_valid(&spec).then_some(Joined { spec, inputs, outputs })
    }
}

/// True if the operation's shape rule accepts the spec.
fn is_valid(spec: &Spec) -> bool {
    let outputs: Vec<Option<Tensor>> = spec.outputs.iter().copied().map(Some).collect();
    let types = spec.outputs.iter().map(|output| (output.dtype, output.dims));
    spec.infer(&outputs, SrcSpan::default()).is_ok_and(|inferred| inferred.into_iter().eq(types))
}

impl Joined {
    /// Returns an error unless the fused operation computes in the same type as both operations.
    fn computes_as(self, related: &Related) -> Result<Joined, NotFused> {
        let of = |spec: &Spec| spec.operation.compute_type(spec);
        let [first, second, both] = [related.first, related.second, &self.spec].map(of);
        if first != second {
            return Err(NotFused::Compute(first, second));
        }
        if both == first { Ok(self) } else { Err(NotFused::Compute(first, both)) }
    }
}
