//! Collectives that combine values of all ranks: `all_reduce`, `reduce_scatter`, `reduce`.

use crate::base::{DType, Dims};

use super::*;

const OP: OptionSpec = OptionSpec::word("op", &["sum", "mean", "min", "max", "product"], "the reduction");

fn reduction(attrs: &Attrs) -> Reduction {
    match attrs.word("op") {
        "mean" => Reduction::Mean,
        "min" => Reduction::Min,
        "max" => Reduction::Max,
        "product" => Reduction::Product,
        _ => Reduction::Sum,
    }
}

/// The mean of integers may not be an integer.
fn needs_reducible(call: &Call) -> Result<(), OpError> {
    needs_stretches(call)?;
    let source = &call.inputs[0];
    if reduction(call.attrs) == Reduction::Mean && !source.tensor.dtype.is_float() {
        let why = format!("the mean of {} may be no whole number", source.tensor.dtype);
        return Err(call.bad_option("op", why, "reduce by `sum`, or `cast` to a type with fractions before"));
    }
    Ok(())
}

/// Reduces the elements of all members. Also returns the tolerance: a library rounds each partial result to the
/// element type and may combine ranks in any order.
fn reduced(members: &[Member]) -> (Vec<f64>, Tolerance) {
    let Some(first) = members.first() else { return (Vec::new(), Tolerance::Exact) };
    let (reduction, dtype) = (reduction(&first.spec.attrs), first.spec.inputs[0].dtype);
    let join = |a: f64, b: f64| match reduction {
        Reduction::Sum | Reduction::Mean => a + b,
        Reduction::Product => a * b,
        Reduction::Min => a.min(b),
        Reduction::Max => a.max(b),
    };
    // Integer sums wrap: communication libraries do not saturate.
    let join_whole = |a: f64, b: f64| match (reduction, a as i64, b as i64) {
        (Reduction::Sum | Reduction::Mean, a, b) => wrapped(dtype, a.wrapping_add(b)),
        (Reduction::Product, a, b) => wrapped(dtype, a.wrapping_mul(b)),
        _ => join(a, b),
    };
    let mut all = first.inputs[0].clone();
    for member in &members[1..] {
        let pairs = all.iter_mut().zip(&member.inputs[0]);
        match dtype.is_float() {
            true => pairs.for_each(|(all, value)| *all = join(*all, *value)),
            false => pairs.for_each(|(all, value)| *all = join_whole(*all, *value)),
        }
    }
    let share = if reduction == Reduction::Mean { 1.0 / members.len() as f64 } else { 1.0 };
    if reduction == Reduction::Mean {
        all.iter_mut().for_each(|value| *value /= members.len() as f64);
    }
    if !dtype.is_float() || matches!(reduction, Reduction::Min | Reduction::Max) {
        return (all, Tolerance::Exact);
    }
    // A mean divides before or after the sum, by a factor that is rounded too.
    let roundings = members.len() as f64 + if reduction == Reduction::Mean { 2.0 } else { 0.0 };
    let radius = |index: usize| {
        let sizes = members.iter().map(|member| member.inputs[0][index].abs());
        let size = share * sizes.reduce(join).unwrap_or(0.0);
        // Near overflow, a partial result may be infinite although the total is finite.
        if dtype.round(2.0 * size).is_finite() {
            roundings * dtype.epsilon() * (size + dtype.smallest())
        } else {
            f64::INFINITY
        }
    };
    let radii = (0..all.len()).map(radius).collect();
    (all, Tolerance::Within(radii))
}

/// Wraps an integer to its type.
fn wrapped(dtype: DType, value: i64) -> f64 {
    match dtype {
        DType::I8 => f64::from(value as i8),
        DType::U8 => f64::from(value as u8),
        DType::I64 => value as f64,
        _ => f64::from(value as i32),
    }
}

/// `all_reduce(src -> dst, op: sum)`.
pub struct AllReduce;

impl Operation for AllReduce {
    fn signature(&self) -> &'static Signature {
        &Signature {
            name: "all_reduce",
            summary: "reduces the tensors of all ranks elementwise (a sum, or another `op`); every rank receives the result",
            category: Category::Collective,
            inputs: &[Input::Tensor("src")],
            outputs: &["dst"],
            options: &[OP],
        }
    }

    fn properties(&self) -> &'static [Property] {
        &[Property::InPlace]
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        needs_reducible(call)?;
        let source = call.inputs[0].tensor;
        stretch(call, source.dtype, source.elements(), Some(source.dims))
    }

    fn cost(&self, spec: &Spec) -> Cost {
        traffic(spec)
    }

    fn reference(&self, _: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        outputs[0].copy_from_slice(inputs[0]);
    }

    fn exchange(&self, members: &mut [Member]) {
        self.enclose_exchange(members);
    }

    fn enclose_exchange(&self, members: &mut [Member]) -> Vec<Vec<Tolerance>> {
        let (all, tolerance) = reduced(members);
        members.iter_mut().for_each(|member| copy(&all, &mut member.outputs[0]));
        members.iter().map(|_| vec![tolerance.clone()]).collect()
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        Some(Pieces::Blocks(spec.inputs[0].elements()))
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        launched(Collective { reduction: reduction(&spec.attrs), ..entry(spec, CollectiveKind::AllReduce) })
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::all_reduce(rule)
    }
}

/// `reduce_scatter(src -> dst, op: sum)`.
pub struct ReduceScatter;

impl Operation for ReduceScatter {
    fn signature(&self) -> &'static Signature {
        &Signature {
            name: "reduce_scatter",
            summary: "reduces the tensors of all ranks elementwise (a sum, or another `op`) and scatters the result: rank r receives the r-th part",
            category: Category::Collective,
            inputs: &[Input::Tensor("src")],
            outputs: &["dst"],
            options: &[OP],
        }
    }

    fn properties(&self) -> &'static [Property] {
        &[Property::OwnPart]
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        needs_reducible(call)?;
        let (source, ranks) = (&call.inputs[0], u64::from(call.team.ranks));
        let tensor = source.tensor;
        needs_equal_parts(call, source)?;
        // The part is a slice of the first dimension if that is divisible.
        let dims = tensor.dims.first().copied().filter(|first| first.is_multiple_of(ranks)).map(|first| {
            let mut dims = tensor.dims;
            dims.set(0, first / ranks);
            dims
        });
        stretch(call, tensor.dtype, tensor.elements() / ranks, dims)
    }

    fn cost(&self, spec: &Spec) -> Cost {
        traffic(spec)
    }

    fn reference(&self, _: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        outputs[0].copy_from_slice(inputs[0]);
    }

    fn exchange(&self, members: &mut [Member]) {
        self.enclose_exchange(members);
    }

    fn enclose_exchange(&self, members: &mut [Member]) -> Vec<Vec<Tolerance>> {
        let (all, tolerance) = reduced(members);
        let part = all.len() / members.len().max(1);
        let mut tolerances = Vec::with_capacity(members.len());
        for (rank, member) in members.iter_mut().enumerate() {
            let own = rank * part..(rank + 1) * part;
            copy(&all[own.clone()], &mut member.outputs[0]);
            tolerances.push(vec![match &tolerance {
                Tolerance::Exact => Tolerance::Exact,
                Tolerance::Within(radii) => Tolerance::Within(radii[own].to_vec()),
            }]);
        }
        tolerances
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        Some(Pieces::Blocks(spec.outputs[0].elements()))
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let count = spec.outputs[0].elements();
        let all = entry(spec, CollectiveKind::ReduceScatter);
        launched(Collective { count, reduction: reduction(&spec.attrs), ..all })
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::reduce_scatter(rule)
    }
}

/// `reduce(src -> dst, op: sum, root: 0)`.
pub struct Reduce;

impl Operation for Reduce {
    fn signature(&self) -> &'static Signature {
        &Signature {
            name: "reduce",
            summary: "reduces the tensors of all ranks elementwise (a sum, or another `op`); rank `root` alone receives the result",
            category: Category::Collective,
            inputs: &[Input::Tensor("src")],
            outputs: &["dst"],
            options: &[
                OP,
                OptionSpec {
                    name: "root",
                    kind: MEMBER,
                    default: Preset::Int(0),
                    doc: "destination rank within the group",
                },
            ],
        }
    }

    fn properties(&self) -> &'static [Property] {
        &[Property::InPlace]
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        needs_reducible(call)?;
        member(call, "root")?;
        if call.outputs[0].is_none() {
            return Err(OpError::OutputMissing {
                op: "reduce",
                help: "the root alone writes it, so that it needs a buffer: write `-> y`; \
                       `all_reduce` gives every rank the result",
                at: call.span.into(),
            });
        }
        let source = call.inputs[0].tensor;
        stretch(call, source.dtype, source.elements(), None)
    }

    fn cost(&self, spec: &Spec) -> Cost {
        traffic(spec)
    }

    fn reference(&self, _: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        outputs[0].copy_from_slice(inputs[0]);
    }

    fn exchange(&self, members: &mut [Member]) {
        self.enclose_exchange(members);
    }

    fn enclose_exchange(&self, members: &mut [Member]) -> Vec<Vec<Tolerance>> {
        let (all, tolerance) = reduced(members);
        let mut tolerances: Vec<Vec<Tolerance>> = members.iter().map(|member| check::exactly(member.outputs)).collect();
        let root = members.first().map_or(0, |first| first.spec.attrs.int("root") as usize);
        if let Some(member) = members.get_mut(root) {
            copy(&all, &mut member.outputs[0]);
            tolerances[root] = vec![tolerance];
        }
        tolerances
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        Some(Pieces::Blocks(spec.inputs[0].elements()))
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let peer = spec.attrs.int("root") as u32;
        let all = entry(spec, CollectiveKind::Reduce);
        launched(Collective { reduction: reduction(&spec.attrs), peer, ..all })
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::reduce(rule)
    }
}

/// Returns an error unless the operand can be divided equally among the ranks.
pub(super) fn needs_equal_parts(call: &Call, operand: &Operand) -> Result<(), OpError> {
    let (tensor, ranks) = (operand.tensor, call.team.ranks);
    if tensor.elements().is_multiple_of(u64::from(ranks)) {
        return Ok(());
    }
    Err(OpError::Rank {
        op: call.operation.name(),
        needs: format!("a number of elements that {ranks} ranks can share"),
        found: format!("{tensor}, {} elements", tensor.elements()),
        at: operand.span.into(),
    })
}
