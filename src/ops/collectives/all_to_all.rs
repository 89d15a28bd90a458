//! `all_to_all`, with equal or with counted parts.

use crate::ops::movement::counted;
use std::sync::Arc;

use super::reduce::needs_equal_parts;
use super::*;
use crate::ops::movement::counted::row;

/// `all_to_all(src -> dst, counts: [[…], …])`.
pub struct AllToAll;

impl Operation for AllToAll {
    signature! {
        name: "all_to_all",
        summary: "sends the r-th part of each rank's tensor to rank r; received parts are concatenated in rank order",
        category: Category::Collective,
        inputs: &[Input::Tensor("src"), Input::Optional("counts")],
        outputs: &["dst"],
        options: &[
            OptionSpec::absent(
                "counts",
                OptionType::Counts,
                "rows of the first dimension from each rank to each: a list for each sender, or one for all",
            ),
            counted::BACK,
        ],
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        needs_contiguous_device_memory(call)?;
        if counted::has_counts(call)? {
            if call.attrs.counts("counts").is_some() {
                let why = "a tensor counts the rows already".to_owned();
                return Err(call.bad_option("counts", why, "remove the option, or the second operand".to_owned()));
            }
            return counted::infer(call);
        }
        match call.attrs.counts("counts") {
            None => {
                let source = &call.inputs[0];
                needs_equal_parts(call, source)?;
                flat_output(call, source.tensor.dtype, source.tensor.elements(), Some(source.tensor.dims))
            }
            Some(counts) => uneven(call, counts),
        }
    }

    fn cost(&self, spec: &Spec) -> Cost {
        if let Some(counted) = RowCounts::of(spec) {
            let bytes = counted.usual_bytes(spec.inputs[0].dtype);
            let others = u64::from(counted.ranks) - 1;
            if others > 0 {
                return Cost { sent: others * bytes, received: others * bytes, ..Cost::default() };
            }
            let [read, written] =
                [bytes + spec.inputs[1].bytes(), bytes].map(|bytes| Traffic::of(Space::Device, bytes));
            return Cost { read, written, ..Cost::default() };
        }
        match uneven_parts(spec).filter(|_| spec.team.ranks < 2) {
            None => traffic(spec),
            Some(parts) => {
                let bytes = Traffic::of(Space::Device, parts.sent[0] * spec.inputs[0].dtype.size());
                Cost { read: bytes, written: bytes, ..Cost::default() }
            }
        }
    }

    fn live_rows(&self, spec: &Spec, facts: &[Option<RowFact>]) -> LiveOperation {
        match RowCounts::of(spec) {
            Some(counted) => LiveOperation::exchanged(&spec.inputs[0], facts, &spec.outputs, counted.ranks),
            None => LiveOperation::default(),
        }
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        // With one rank, the only part stays on that rank.
        if let Some(counted) = RowCounts::of(spec) {
            counted.copy(inputs[1], (0, inputs[0]), (0, &mut outputs[0]));
            return;
        }
        let count = uneven_parts(spec).map_or(inputs[0].len(), |parts| parts.sent[0] as usize);
        copy(&inputs[0][..count], &mut outputs[0]);
    }

    fn exchange(&self, members: &mut [RankMember]) {
        let ranks = members.len();
        let sent: Vec<Vec<f64>> = members.iter().map(|member| member.inputs[0].clone()).collect();
        if let Some(counted) = RowCounts::of(members[0].spec) {
            for (to, member) in (0..).zip(members.iter_mut()) {
                for (from, values) in (0..).zip(&sent) {
                    counted.copy(&member.inputs[1], (from, values), (to, &mut member.outputs[0]));
                }
            }
            return;
        }
        for (to, member) in members.iter_mut().enumerate() {
            let counts = member.spec.attrs.counts("counts");
            let row = row(&member.spec.inputs[0]);
            let part = |from: usize, to: usize| match counts {
                Some(counts) => (counts.get(from, to) * row) as usize,
                None => sent[from].len() / ranks,
            };
            let mut end = 0;
            for (from, values) in sent.iter().enumerate() {
                let start: usize = (0..to).map(|earlier| part(from, earlier)).sum();
                let count = part(from, to);
                copy(&values[start..][..count], &mut member.outputs[0][end..][..count]);
                end += count;
            }
        }
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        let even = spec.attrs.counts("counts").is_none() && RowCounts::of(spec).is_none();
        even.then(|| Pieces::Blocks(spec.inputs[0].elements() / u64::from(spec.team.ranks)))
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let collective = entry(spec, CollectiveKind::AllToAll);
        let (parts, counted) = (uneven_parts(spec).map(Arc::new), RowCounts::of(spec));
        let ranks = u64::from(spec.team.ranks);
        let count = match (&parts, &counted) {
            (Some(_), _) => 0,
            (None, Some(rows)) => rows.source.min(rows.target) * rows.row / ranks,
            (None, None) => collective.count / ranks,
        };
        launched(Collective { count, parts, counted, ..collective })
    }

    fn implementation(&self, spec: &Spec) -> Option<&'static str> {
        RowCounts::of(spec)
            .map(|_| "the host reads the counts first and waits for the device: as streams, never as a graph")
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::all_to_all(rule)
    }
}

/// Numbers of elements exchanged with each rank; `None` if all parts are equal.
fn uneven_parts(spec: &Spec) -> Option<PartSizes> {
    let counts = spec.attrs.counts("counts")?;
    let (row, rank) = (row(&spec.inputs[0]), spec.team.rank as usize);
    let ranks = 0..spec.team.ranks as usize;
    Some(PartSizes {
        sent: ranks.clone().map(|to| counts.get(rank, to) * row).collect(),
        received: ranks.map(|from| counts.get(from, rank) * row).collect(),
    })
}

/// Shape rule for counted parts: each operand must have space for the rows that its rank sends or receives.
fn uneven(call: &Call, counts: &ElementCounts) -> Result<Vec<(DType, Dims)>, OpError> {
    let source = &call.inputs[0];
    let tensor = source.tensor;
    let ranks = call.team.ranks as usize;
    call.needs_rank(0, 1, "to count rows of the first")?;
    let bad = |found: String, given: usize| {
        let more =
            if ranks == 1 && given > 1 { format!("; `--ranks {given}` checks it with {given}") } else { String::new() };
        let help = format!(
            "the group has {}: write a number for each, or a list of such lists, one for each{more}",
            counted(ranks, "rank")
        );
        Err(call.bad_option("counts", found, help))
    };
    let rows: &[Vec<u64>] = match counts {
        ElementCounts::Rows(rows) if rows.len() != ranks => {
            return bad(format!("it has {}", counted(rows.len(), "list")), rows.len());
        }
        ElementCounts::Rows(rows) => rows,
        ElementCounts::Each(row) => std::slice::from_ref(row),
    };
    if let Some(row) = rows.iter().find(|row| row.len() != ranks) {
        return bad(format!("a list of it has {}", counted(row.len(), "number")), row.len());
    }
    let rank = call.team.rank as usize;
    let (mut sent, mut received) = (0u64, 0u64);
    for other in 0..ranks {
        sent = sent.saturating_add(counts.get(rank, other));
        received = received.saturating_add(counts.get(other, rank));
    }
    let holds = tensor.dims[0];
    if sent > holds {
        return Err(OpError::Rank {
            op: "all_to_all",
            needs: format!("the {sent} rows that rank {rank} sends"),
            found: format!("{tensor}, {holds} rows"),
            help: "the counts of a rank add up to the rows that it sends: lower them, or make the first dimension larger where it is declared",
            at: source.span.into(),
        });
    }
    let row: u64 = row(&tensor);
    match call.outputs[0] {
        Some(given) => {
            let found = given.tensor;
            let enough = received.checked_mul(row).is_some_and(|needed| needed <= found.elements());
            if found.dtype != tensor.dtype || !enough {
                let expected = format!("at least {received} rows of {row} {} each", tensor.dtype);
                return Err(call.bad_output(&given, expected, in_elements(&found)));
            }
            Ok(vec![(found.dtype, found.dims)])
        }
        None => {
            let mut dims = tensor.dims;
            // A rank that receives nothing has an output of one row, so that the output can have a name.
            dims.set(0, received.max(1));
            Ok(vec![(tensor.dtype, dims)])
        }
    }
}
