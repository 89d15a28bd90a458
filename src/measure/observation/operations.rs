//! Records of a slot's operations, from the iterations that observed it.

use crate::base::{Bytes, Flops, Nanos, OpId, ViewId};
use crate::exec::{RankSchedule, TracedLaunch};
use crate::model::{OpKind, Program, Step};
use crate::ops::{self, Arithmetic, BusBytes, Category, Direction, Input, Launch, LiveRows, Spec, Tensor};

use super::analysis;
use super::plausible::DeviceLimits;
use super::solo_durations::SoloDurations;
use super::subject::Peaks;
use super::waiting::Iteration;
use crate::measure::record::{LaunchRecord, OperationRecord};
use crate::measure::request::Request;
use crate::measure::statistics::summary::Summary;

/// True if an operation consists of collectives of one rank whose results are in place, so that they move nothing.
fn is_in_place(spec: &Spec, step: &Step, op: OpId) -> bool {
    if spec.operation.category() != Category::Collective || spec.team.ranks > 1 {
        return false;
    }
    let operands: Vec<ViewId> = step.operands(op).map(|(view, _)| view).collect();
    let launches = spec.launch();
    launches.iter().flat_map(Launch::collectives).all(|one| one.is_in_place(|at| operands[usize::from(at)]))
}

/// Records of the operations of a slot of the rank's own cycle.
pub fn operations(
    request: &Request,
    rank: &RankSchedule,
    number: usize,
    iterations: &[&Iteration],
    alone: Option<&SoloDurations>,
    peaks: Option<&Peaks>,
) -> Vec<OperationRecord> {
    let (program, step) = (rank.program, &rank.program.cycle[number]);
    let graph = &rank.plan.steps[number];
    let mut starts: Vec<Vec<f64>> = vec![Vec::new(); step.ops.len()];
    let mut transfers: Vec<Vec<f64>> = vec![Vec::new(); step.ops.len()];
    for iteration in iterations {
        for span in &iteration.trace.spans {
            starts[span.op.index()].push(span.start.0 as f64);
            if iteration.wait(span.op).is_some() {
                transfers[span.op.index()].push(iteration.work(span).0 as f64);
            }
        }
    }
    let mut parts: Vec<Vec<&TracedLaunch>> = vec![Vec::new(); step.ops.len()];
    for part in iterations.iter().flat_map(|iteration| &iteration.trace.parts) {
        parts[part.op.index()].push(part);
    }
    let times = analysis::medians(step.ops.len(), iterations);
    let slack = (!iterations.is_empty()).then(|| graph.timing(&times).slack);
    step.ids()
        .map(|op| {
            let info = step.op(op);
            let spec = program.op_spec(info);
            let cost = spec.map(|spec| spec.cost()).unwrap_or_default();
            let category = spec.map_or(Category::Marker, |spec| spec.operation.category());
            let start = Summary::of(&starts[op.index()]).map(|summary| summary.p50);
            let time = times[op.index()];
            let route = spec.and_then(route);
            let bus_bytes = spec.and_then(ops::bus_bytes).map(BusBytes::larger);
            let ideal = peaks.and_then(|peaks| Some((peaks.ideal(number, op)?, peaks.profile)));
            let bound = ideal.and_then(|(ideal, profile)| Some((ideal.bound()?, profile)));
            let refused = start.and_then(|_| DeviceLimits::of(request, rank).check(time, spec).err());
            let time_ns = start.filter(|_| refused.is_none()).map(|_| Nanos::rounded(time));
            // Report transfers only if they are known in every iteration, so that medians are comparable.
            let transfer = Some(&transfers[op.index()]).filter(|known| known.len() == starts[op.index()].len());
            let transfer_ns =
                time_ns.and(transfer.and_then(|all| Summary::of(all))).map(|summary| Nanos::rounded(summary.p50));
            OperationRecord {
                id: op.0,
                name: program.op_text(info),
                operation: program.op_name(info).to_owned(),
                category: category.name().to_owned(),
                phase: program.phase_text(info.phase),
                stream: program.streams[info.stream.index()].name.clone(),
                lane: rank.schedule.lane_of[info.stream.index()].0,
                place: request.sources.place(info.span),
                shape: shape(program, step, op),
                size: spec.map(size).unwrap_or_default(),
                arithmetic: cost.matrix.map(|arithmetic| arithmetic.name().to_owned()),
                direction: route.map(|(direction, _)| direction.to_owned()),
                pageable: route.is_some_and(|(_, pageable)| pageable),
                pieces: spec.and_then(pieces),
                assumed: spec.is_some_and(ops::assumes_size),
                bus_bytes,
                ranks: spec.filter(|spec| ops::moves_between_ranks(spec)).map(|spec| spec.team.ranks),
                flops: cost.flops,
                bytes: if spec.is_some_and(|spec| is_in_place(spec, step, op)) { 0 } else { cost.bytes() },
                after: graph.incoming(op).map(|edge| edge.from.0).collect(),
                time_ns,
                transfer_ns,
                wait_ns: time_ns.zip(transfer_ns).map(|(time, transfer)| time - transfer),
                start_ns: start.map(Nanos::rounded),
                alone_ns: alone.and_then(|alone| alone.of(number, op)).map(Nanos::rounded),
                slack_ns: slack.as_ref().map(|slack| Nanos::rounded(slack[op.index()])),
                ideal_ns: bound.map(|((_, time), _)| Nanos(time.ceil() as i64)),
                bound: bound.map(|((resource, _), profile)| resource.name(profile).to_owned()),
                cached: ideal.is_some_and(|(ideal, _)| ideal.cache > 0.0),
                refused,
                launches: launches(&parts[op.index()]),
            }
        })
        .collect()
}

/// Records of the parts of an operation, which are in the order of their start.
fn launches(parts: &[&TracedLaunch]) -> Vec<LaunchRecord> {
    let begin = parts.first().map(|part| part.start).unwrap_or_default();
    let launch = |part: &&TracedLaunch| LaunchRecord {
        after_ns: part.start - begin,
        time_ns: part.end - part.start,
        queue: part.queue,
        node: part.node,
        kernel: part.kernel.clone(),
    };
    parts.iter().map(launch).collect()
}

/// Direction of a contiguous copy by the runtime or within a device, or of one to another rank, and whether the host's memory is
/// pageable. `None` for other operations; copies by rows and of pages have other rates.
fn route(spec: &Spec) -> Option<(&'static str, bool)> {
    if spec.operation.category() != Category::Copy {
        return None;
    }
    if let Some(crossing) = ops::crossing(spec) {
        return crossing.sends.is_some().then_some(("peer", false));
    }
    match &spec.launch()[..] {
        [Launch::Copy(copy)] if copy.rows == 1 => Some((copy.direction.name(), copy.pageable)),
        [Launch::Kernel(_)] if ops::is_whole_copy(spec) => Some((Direction::DeviceToDevice.name(), false)),
        _ => None,
    }
}

/// Number of pieces that copy engines move one by one, of a copy that a kernel could do too; `None` of other operations.
fn pieces(spec: &Spec) -> Option<u64> {
    if spec.operation.name() != "copy" || ops::crossing(spec).is_some() {
        return None;
    }
    let launches = spec.launch();
    let by_engine = |launch: &Launch| matches!(launch, Launch::Copy(copy) if !copy.pageable);
    launches.iter().all(by_engine).then_some(launches.len() as u64)
}

/// Returns a short form of an operation's size:
/// - of a matrix product, `4096×4096×1024 bf16` (rows, columns, inner dimension), after the number of products in all launches if there
///   are several;
/// - of synthetic work, its arithmetic and bytes;
/// - of a copy, the smaller operand;
/// - of any other operation, the largest operand, apart from a bias and its gradient.
fn size(spec: &Spec) -> String {
    let text = |[batch, m, n, k]: [u64; 4], arithmetic: Arithmetic| {
        let batch = if batch > 1 { format!("{batch} × ") } else { String::new() };
        format!("{batch}{m}×{n}×{k} {}", arithmetic.name())
    };
    // Other operations need not format a kernel name for this.
    if spec.operation.category() == Category::Matrix {
        let launches = spec.launch();
        let library: Vec<_> = launches
            .iter()
            .filter_map(|launch| match launch {
                Launch::Gemm(gemm, _) => Some(gemm),
                _ => None,
            })
            .collect();
        if let [gemm, ..] = library[..]
            && !gemm.uses_workspace()
        {
            // Batches with gaps between them take several launches of equal sizes.
            let batch = gemm.batch * library.len() as u64;
            return text([batch, gemm.m, gemm.n, gemm.k], gemm.arithmetic);
        }
        // Generated kernels compute it, or copies of its matrices are multiplied.
        if let Some((sizes, arithmetic)) = spec.operation.product(spec) {
            return text(sizes, arithmetic);
        }
    }
    if spec.operation.category() == Category::Synthetic {
        let cost = spec.cost();
        let by = cost.matrix.map_or_else(String::new, |arithmetic| format!(" {}", arithmetic.name()));
        let flops = (cost.flops > 0.0).then(|| format!("{}{by}", Flops(cost.flops)));
        let bytes = (cost.bytes() > 0).then(|| Bytes(cost.bytes()).to_string());
        return flops.into_iter().chain(bytes).collect::<Vec<_>>().join(", ");
    }
    // The bias of an attention can be larger than its queries, and of another type.
    let signature = spec.operation.signature();
    let is_bias =
        |place: usize| matches!(signature.inputs.get(place), Some(Input::Tensor("bias") | Input::Optional("bias")));
    let inputs = spec.inputs.iter().enumerate().filter(|(place, _)| !is_bias(*place)).map(|(_, tensor)| tensor);
    let is_bias_gradient = |place: usize| signature.outputs.get(place) == Some(&"ds");
    // Indices of floats can have more bytes than the floats.
    let has_floats = spec.inputs.iter().any(|tensor| tensor.dtype.is_float());
    let is_index = |tensor: &Tensor| has_floats && !tensor.dtype.is_float();
    let outputs = spec.outputs.iter().enumerate().filter(|(place, _)| !is_bias_gradient(*place));
    let outputs = outputs.map(|(_, tensor)| tensor).filter(|tensor| !is_index(tensor));
    // A copy of pages moves what its smaller operand holds. The first of equal ones.
    let shown = match spec.operation.category() {
        Category::Copy => {
            spec.inputs.first().into_iter().chain(spec.outputs.first()).min_by_key(|tensor| tensor.bytes())
        }
        _ => inputs.chain(outputs).rev().max_by_key(|tensor| tensor.bytes()),
    };
    shown.map_or_else(String::new, |tensor| live_rows(spec, tensor) + &short_shape(tensor))
}

/// Text before the shape of an operand, if data determines the number of rows that are used: `512 of ` if the number is known,
/// `~512 of ` if it is assumed, and `up to ` if it is unknown; empty if the shape determines the number.
fn live_rows(spec: &Spec, tensor: &Tensor) -> String {
    match spec.live {
        Some(LiveRows { rows, .. }) if tensor.dims.first().is_some_and(|all| *all <= rows) => "up to ".to_owned(),
        Some(LiveRows { rows, exact: true }) => format!("{rows} of "),
        Some(LiveRows { rows, exact: false }) => format!("~{rows} of "),
        None => String::new(),
    }
}

/// Formats a tensor as `4096×1024 bf16`, or `bf16` for a single element.
fn short_shape(tensor: &Tensor) -> String {
    let dims: Vec<String> = tensor.dims.iter().map(u64::to_string).collect();
    if dims.is_empty() { tensor.dtype.to_string() } else { format!("{} {}", dims.join("×"), tensor.dtype) }
}

/// Formats types and shapes as `bf16[4, 8], bf16[8, 2] -> bf16[4, 2]`.
fn shape(program: &Program, step: &Step, op: OpId) -> String {
    let OpKind::Run(_) = step.op(op).kind else { return String::new() };
    let list = |views: &[crate::base::ViewId]| {
        views.iter().map(|view| program.views.tensor(*view).to_string()).collect::<Vec<_>>().join(", ")
    };
    let (inputs, outputs) = (list(step.inputs(op)), list(step.outputs(op)));
    match (inputs.is_empty(), outputs.is_empty()) {
        (_, true) => inputs,
        (true, false) => format!("-> {outputs}"),
        (false, false) => format!("{inputs} -> {outputs}"),
    }
}
