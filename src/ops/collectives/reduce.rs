//! Collectives that combine values of all ranks: `all_reduce`, `reduce_scatter`, `reduce`.

use super::*;

const OP: OptionSpec = OptionSpec::word("op", &Reduction::NAMES, "the reduction");

fn reduction(attrs: &Attrs) -> Reduction {
    Reduction::from_name(attrs.word("op")).expect("the words of the option are names of reductions")
}

/// Returns an error unless the operand can be reduced. The mean of integers is refused, since it may not be an integer.
fn needs_reducible(call: &Call) -> Result<(), OpError> {
    needs_contiguous_device_memory(call)?;
    let source = &call.inputs[0];
    if reduction(call.attrs) == Reduction::Mean && !source.tensor.dtype.is_float() {
        let why = format!("the mean of {} may be no whole number", source.tensor.dtype);
        return Err(call.bad_option("op", why, "reduce by `sum`, or `cast` to a type with fractions before"));
    }
    Ok(())
}

/// Reduces the elements of all members. Also returns the tolerance: a library rounds each partial result to the
/// element type and may combine ranks in any order.
fn reduced(members: &[RankMember]) -> (Vec<f64>, Tolerance) {
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

/// A collective that reduces elementwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reducing {
    /// `all_reduce(src -> dst, op: sum)`.
    AllReduce,
    /// `reduce_scatter(src -> dst, op: sum)`.
    ReduceScatter,
    /// `reduce(src -> dst, op: sum, root: 0)`.
    Reduce,
}

impl Operation for Reducing {
    fn signature(&self) -> &'static Signature {
        const ROOT: OptionSpec = OptionSpec {
            name: "root",
            kind: MEMBER,
            default: Preset::Int(0),
            doc: "destination rank within the group",
        };
        const ALL_REDUCE: Signature = signature(
            "all_reduce",
            "reduces the tensors of all ranks elementwise (a sum, or another `op`); every rank receives the result",
            &[OP],
        );
        const REDUCE_SCATTER: Signature = signature(
            "reduce_scatter",
            "reduces the tensors of all ranks elementwise (a sum, or another `op`) and scatters the result: rank r receives the r-th part",
            &[OP],
        );
        const REDUCE: Signature = signature(
            "reduce",
            "reduces the tensors of all ranks elementwise (a sum, or another `op`); rank `root` alone receives the result",
            &[OP, ROOT],
        );
        match self {
            Reducing::AllReduce => &ALL_REDUCE,
            Reducing::ReduceScatter => &REDUCE_SCATTER,
            Reducing::Reduce => &REDUCE,
        }
    }

    fn properties(&self) -> &'static [Property] {
        match self {
            Reducing::AllReduce | Reducing::Reduce => &[Property::InPlace],
            Reducing::ReduceScatter => &[Property::OwnPart],
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        needs_reducible(call)?;
        let (source, ranks) = (&call.inputs[0], u64::from(call.team.ranks));
        let Tensor { dtype, mut dims, .. } = source.tensor;
        let elements = source.tensor.elements();
        match self {
            Reducing::AllReduce => flat_output(call, dtype, elements, Some(dims)),
            Reducing::ReduceScatter => {
                needs_equal_parts(call, source)?;
                // The part is a slice of the first dimension if that is divisible.
                let first = dims.first().copied().filter(|first| first.is_multiple_of(ranks));
                let dims = first.map(|first| {
                    dims.set(0, first / ranks);
                    dims
                });
                flat_output(call, dtype, elements / ranks, dims)
            }
            Reducing::Reduce => {
                member(call, "root")?;
                if call.outputs[0].is_none() {
                    let help = "the root alone writes it, so that it needs a buffer: write `-> y`; \
                                `all_reduce` gives every rank the result";
                    return Err(call.no_output(help));
                }
                flat_output(call, dtype, elements, None)
            }
        }
    }

    fn cost(&self, spec: &Spec) -> Cost {
        traffic(spec)
    }

    fn reference(&self, _: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        outputs[0].copy_from_slice(inputs[0]);
    }

    fn exchange(&self, members: &mut [RankMember]) {
        self.enclose_exchange(members);
    }

    fn enclose_exchange(&self, members: &mut [RankMember]) -> Vec<Vec<Tolerance>> {
        let (all, tolerance) = reduced(members);
        let part = all.len() / members.len().max(1);
        let root = members.first().filter(|_| *self == Reducing::Reduce).map(|member| member.spec.attrs.int("root"));
        let of_rank = |(rank, member): (usize, &mut RankMember)| {
            let received = match self {
                Reducing::AllReduce => 0..all.len(),
                Reducing::ReduceScatter => rank * part..(rank + 1) * part,
                Reducing::Reduce if root == Some(rank as i64) => 0..all.len(),
                Reducing::Reduce => return check::exactly(member.outputs),
            };
            copy(&all[received.clone()], &mut member.outputs[0]);
            vec![match &tolerance {
                Tolerance::Exact => Tolerance::Exact,
                Tolerance::Within(radii) => Tolerance::Within(radii[received].to_vec()),
            }]
        };
        members.iter_mut().enumerate().map(of_rank).collect()
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        let received = if *self == Reducing::ReduceScatter { &spec.outputs } else { &spec.inputs };
        Some(Pieces::Blocks(received[0].elements()))
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let kind = match self {
            Reducing::AllReduce => CollectiveKind::AllReduce,
            Reducing::ReduceScatter => CollectiveKind::ReduceScatter,
            Reducing::Reduce => CollectiveKind::Reduce,
        };
        let mut collective = Collective { reduction: reduction(&spec.attrs), ..entry(spec, kind) };
        match self {
            Reducing::AllReduce => {}
            Reducing::ReduceScatter => collective.count = spec.outputs[0].elements(),
            Reducing::Reduce => collective.peer = spec.attrs.int("root") as u32,
        }
        launched(collective)
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        match self {
            Reducing::AllReduce => backward::all_reduce(rule),
            Reducing::ReduceScatter => backward::reduce_scatter(rule),
            Reducing::Reduce => backward::reduce(rule),
        }
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
        help: "every rank has the same part of it: change a size where it is declared to a multiple of the number of ranks, such as `n * world`",
        at: operand.span.into(),
    })
}
