//! Builds the plan's document from a program, its plan and its schedule.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::base::{Around, Nanos, OpId, SpecId, SrcSpan, ViewId};
use crate::config::Profile;
use crate::measure::record::{AdviceRecord, FusionRecord, LaneRecord, MemoryRecord, Workload};
use crate::model::{After, Op, OpKind, Program, Step};
use crate::ops;
use crate::plan::{self, Plan, StepPlan};
use crate::report::dump;
use crate::schedule::{self, Schedule, Topology};

use super::{
    CriticalPath, Iteration, KeptMemory, PlanDocument, PlannedDependency, PlannedOperation, Queues, RankCopy, Reason,
    SCHEMA, Slice, Text, kept,
};

/// The inputs of a document.
pub struct DocumentInputs<'a> {
    pub workload: Workload,
    pub program: &'a Program,
    pub plan: &'a Plan,
    pub schedule: &'a Schedule,
    /// The operations that were merged; `None` without `--fuse`.
    pub fusion: Option<FusionRecord>,
    /// Number of the rank that the plan belongs to.
    pub rank: u32,
    /// The device profile for modelled times and for the hardware queues of the schedule.
    pub profile: &'a Profile,
    /// Formats a source location as `file:line:column`.
    pub places: &'a dyn Fn(SrcSpan) -> String,
}

pub fn build(request: DocumentInputs) -> PlanDocument {
    let DocumentInputs { program, plan, schedule, profile, .. } = request;
    let iterations = |program: &Program, plan: &Plan, schedule: &Schedule| -> Vec<Iteration> {
        let mut builder = Builder::new(program, schedule, request.places);
        let durations = schedule::durations(program, schedule, request.rank, profile);
        let steps = program.cycle.iter().zip(&plan.steps).zip(durations);
        steps.map(|((step, graph), durations)| builder.iteration(step, graph, durations)).collect()
    };
    let blocks = program.around.as_ref().zip(plan.around.as_ref()).zip(schedule.around.as_ref());
    let Around { setup, teardown } =
        blocks.map(|((program, plan), schedule)| iterations(program, plan, schedule).pop());
    let advice = schedule::advise(program, plan, schedule, profile);
    PlanDocument {
        advice: advice.into_iter().map(|advice| AdviceRecord::of(advice, request.places)).collect(),
        schema: SCHEMA.to_owned(),
        aorta: env!("CARGO_PKG_VERSION").to_owned(),
        ranks: Some(program.world),
        modelled_on: profile.name.clone(),
        sync: program.step.sync.name().to_owned(),
        depth: schedule.depth,
        streams: program.streams.len(),
        lanes: schedule.lanes.iter().map(|lane| LaneRecord::of(lane, program, Topology::of(profile))).collect(),
        queues: queues(program, schedule, profile),
        waits: schedule.waits(),
        events: schedule.events,
        memory: MemoryRecord::of(program, schedule),
        initial_values: Some(Text::from(dump::initial_values(program))),
        iterations: iterations(program, plan, schedule),
        setup: setup.flatten(),
        teardown: teardown.flatten(),
        fusion: request.fusion,
        workload: request.workload,
    }
}

fn queues(program: &Program, schedule: &Schedule, profile: &Profile) -> Queues {
    let by_priority = profile.queues.by_priority;
    let mut busy = vec![false; schedule.lanes.len()];
    for op in program.cycle.iter().flat_map(|step| &step.ops) {
        busy[schedule.lane_of[op.stream.index()].index()] = true;
    }
    let mut streams: BTreeMap<_, usize> = BTreeMap::new();
    for (lane, _) in schedule.lanes.iter().zip(busy).filter(|(lane, busy)| *busy && lane.threads.is_none()) {
        *streams.entry((by_priority.then_some(lane.priority), lane.queue)).or_default() += 1;
    }
    Queues {
        count: profile.queues.count.value() as u32,
        by_priority,
        used: streams.len(),
        shared: streams.values().filter(|count| **count > 1).count(),
    }
}

/// Figures that operations of the same kind share.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    flops: f64,
    bytes: u64,
}

/// Builds iterations. Caches texts and figures that may be needed again.
struct Builder<'a> {
    program: &'a Program,
    schedule: &'a Schedule,
    find_place: &'a dyn Fn(SrcSpan) -> String,
    streams: Vec<Text>,
    kinds: FxHashMap<&'a str, Text>,
    labels: Vec<Option<Text>>,
    phases: Vec<Option<Text>>,
    slices: Vec<Option<Slice>>,
    shapes: FxHashMap<u32, Text>,
    places: FxHashMap<SrcSpan, Text>,
    figures: FxHashMap<SpecId, Figures>,
    computes: FxHashMap<SpecId, Text>,
    implementations: FxHashMap<SpecId, Option<Text>>,
}

impl<'a> Builder<'a> {
    fn new(program: &'a Program, schedule: &'a Schedule, find_place: &'a dyn Fn(SrcSpan) -> String) -> Self {
        Builder {
            program,
            schedule,
            find_place,
            streams: program.streams.iter().map(|stream| Text::from(stream.name.as_str())).collect(),
            kinds: FxHashMap::default(),
            labels: vec![None; program.labels.len()],
            phases: vec![None; program.phases.len()],
            slices: vec![None; program.views.len()],
            shapes: FxHashMap::default(),
            places: FxHashMap::default(),
            figures: FxHashMap::default(),
            computes: FxHashMap::default(),
            implementations: FxHashMap::default(),
        }
    }

    fn iteration(&mut self, step: &Step, graph: &StepPlan, durations: Vec<f64>) -> Iteration {
        let figures: Vec<Figures> = step.ids().map(|op| self.figures(step.op(op))).collect();
        // Rounded to whole nanoseconds, so that sums are exact.
        let durations: Vec<f64> = durations.into_iter().map(f64::round).collect();
        let timing = graph.timing(&durations);
        let mut operations: Vec<PlannedOperation> = step.ids().map(|op| self.operation(step, op)).collect();
        for (index, operation) in operations.iter_mut().enumerate() {
            operation.flops = figures[index].flops;
            operation.bytes = figures[index].bytes;
            operation.duration_ns = Nanos::rounded(durations[index]);
            operation.start_ns = Nanos::rounded(timing.starts[index]);
            operation.slack_ns = Nanos::rounded(timing.slack[index]);
        }
        timing.path.ops.iter().for_each(|op| operations[op.index()].critical = true);
        let kept = kept::find(self.program, step).into_iter().map(|kept| self.kept(&kept, &operations)).collect();
        Iteration {
            kept,
            flops: figures.iter().map(|figures| figures.flops).sum(),
            bytes: figures.iter().map(|figures| figures.bytes).sum(),
            operations,
            edges: self.edges(step, graph),
            critical_path: CriticalPath {
                length_ns: Nanos::rounded(timing.path.length),
                sum_ns: Nanos::rounded(durations.iter().sum()),
                operations: timing.path.ops.iter().map(|op| op.0).collect(),
            },
        }
    }

    fn kept(&mut self, found: &kept::KeptValue, operations: &[PlannedOperation]) -> KeptMemory {
        let program = self.program;
        let memory = program.views.memory(found.view);
        let layout = program.layout(memory);
        let (from, to) = (&operations[found.from.index()], &operations[found.to.index()]);
        KeptMemory {
            memory: Text::from(format!("output of {}", program.names.name(program.memory(memory).name))),
            space: Text::from(layout.space.name()),
            form: Text::from(format!("{}{}", layout.dtype.name(), layout.dims)),
            bytes: program.memory_bytes(memory),
            from: from.id,
            to: to.id,
            from_ns: from.start_ns,
            to_ns: Nanos(to.start_ns.0 + to.duration_ns.0),
        }
    }

    fn figures(&mut self, op: &Op) -> Figures {
        let OpKind::Run(id) = op.kind else { return Figures::default() };
        let program = self.program;
        *self.figures.entry(id).or_insert_with(|| {
            let cost = program.spec(id).cost();
            Figures { flops: cost.flops, bytes: cost.bytes() }
        })
    }

    fn computes(&mut self, op: &Op) -> Option<Text> {
        let OpKind::Run(id) = op.kind else { return None };
        let program = self.program;
        Some(self.computes.entry(id).or_insert_with(|| Text::from(dump::computes(program.spec(id)))).clone())
    }

    /// The operation without its figures.
    fn operation(&mut self, step: &Step, op: OpId) -> PlannedOperation {
        let info = step.op(op);
        let program = self.program;
        let computes = self.computes(info);
        let label = &mut self.labels[info.label.index()];
        if label.is_none() {
            *label = program.label_text(info.label).map(Text::from);
        }
        let phase = &mut self.phases[info.phase.index()];
        if phase.is_none() {
            *phase = program.phase_text(info.phase).map(Text::from);
        }
        let kind = program.op_name(info);
        PlannedOperation {
            id: op.0,
            label: label.clone(),
            operation: self.kinds.entry(kind).or_insert_with(|| Text::from(kind)).clone(),
            computes,
            phase: phase.clone(),
            stream: self.streams[info.stream.index()].clone(),
            lane: self.schedule.lane_of[info.stream.index()].0,
            place: self.place(info.span),
            inputs: step.inputs(op).iter().map(|view| self.slice(*view)).collect(),
            outputs: step.outputs(op).iter().map(|view| self.slice(*view)).collect(),
            peer: self.peer(step, op),
            implementation: self.implementation(info),
            flops: 0.0,
            bytes: 0,
            duration_ns: Nanos(0),
            start_ns: Nanos(0),
            slack_ns: Nanos(0),
            critical: false,
        }
    }

    fn implementation(&mut self, op: &Op) -> Option<Text> {
        let OpKind::Run(id) = op.kind else { return None };
        let spec = self.program.spec(id);
        let found =
            self.implementations.entry(id).or_insert_with(|| spec.operation.implementation(spec).map(Text::from));
        found.clone()
    }

    fn peer(&mut self, step: &Step, op: OpId) -> Option<RankCopy> {
        let crossing = ops::crossing(self.program.op_spec(step.op(op))?)?;
        let to = step.peer(op)?.to.map(|(to, target)| (to, self.slice(target)));
        Some(RankCopy { to, from: crossing.from.clone() })
    }

    fn slice(&mut self, view: ViewId) -> Slice {
        let views = &self.program.views;
        if let Some(slice) = &self.slices[view.index()] {
            return slice.clone();
        }
        let shape = self.shapes.entry(views.tensor_key(view));
        let shape = shape.or_insert_with(|| Text::from(views.tensor(view).to_string())).clone();
        let slice = Slice { slice: Text::from(self.program.view_text(view)), shape };
        self.slices[view.index()].insert(slice).clone()
    }

    fn place(&mut self, span: SrcSpan) -> Text {
        self.places.entry(span).or_insert_with(|| Text::from((self.find_place)(span))).clone()
    }

    fn edges(&mut self, step: &Step, graph: &StepPlan) -> Vec<PlannedDependency> {
        let mut edges = Vec::with_capacity(graph.edges() + graph.across.len());
        for op in step.ids() {
            let waits = step.op(op).kind == OpKind::Wait;
            for edge in graph.waits(op) {
                let (from, distance) = (edge.from.0, edge.distance);
                let (reason, declared) = (self.reason(edge.reason, waits), self.declared(step, &edge));
                edges.push(PlannedDependency { from, to: op.0, distance, reason, declared });
            }
        }
        edges
    }

    /// The location of an `after` that declares a dependency which the data requires too; `None` if there is none.
    fn declared(&mut self, step: &Step, edge: &plan::Edge) -> Option<Text> {
        if !matches!(edge.reason, plan::Reason::Data { .. }) {
            return None;
        }
        let says = |after: &&After| after.op == edge.from && u32::from(after.previous) == edge.distance;
        step.after(edge.to).iter().find(says).map(|after| self.place(after.span))
    }

    fn reason(&mut self, reason: plan::Reason, waits: bool) -> Reason {
        match reason {
            plan::Reason::Stream => Reason::Stream,
            plan::Reason::Sync => Reason::Sync,
            plan::Reason::After { span } if waits => Reason::Wait { place: self.place(span) },
            plan::Reason::After { span } => Reason::After { place: self.place(span) },
            plan::Reason::Data { hazard, view, source } => {
                Reason::Data { hazard, slice: self.slice(view).slice, from_slice: self.slice(source).slice }
            }
        }
    }
}
