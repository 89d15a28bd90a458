//! The arithmetic and the bytes of a transformer by part, counted from the operations of its program.

use indexmap::IndexMap;
use serde::Serialize;

use crate::base::units::{NamedCount, plain};
use crate::base::{Bytes, DType, Flops, Nanos, OpId, Rate, ViewId, counted, json};
use crate::config::Profile;
use crate::cost::{Ideal, Resource};
use crate::model::{Op, Program};

use super::page::{ABSENT, Page, Section, Table, cell};

/// Name and version of the schema of the JSON form.
const SCHEMA: &str = "aorta.model/1";

/// Labels of operations in the workload `transformer`, after the label of the layer or of another call, and the part that
/// each belongs to.
const PARTS: [(&str, &str); 25] = [
    ("attended.n", NORMS),
    ("fed.n", NORMS),
    ("n_2", NORMS),
    ("attended.qkv", "attention projections"),
    ("attended.out", "attention projections"),
    ("attended.q", "rotary positions"),
    ("attended.k", "rotary positions"),
    ("attended.seen", "attention"),
    ("fed.gate", FEED_FORWARD),
    ("fed.up", FEED_FORWARD),
    ("fed.act", FEED_FORWARD),
    ("fed.down", FEED_FORWARD),
    ("routed.up", FEED_FORWARD),
    ("routed.act", FEED_FORWARD),
    ("routed.outbox", FEED_FORWARD),
    ("routed.scores", ROUTING),
    ("routed.probs", ROUTING),
    ("routed.way", ROUTING),
    ("routed.inbox", ROUTING),
    ("routed", ROUTING),
    ("attended", RESIDUALS),
    ("fed", RESIDUALS),
    ("", RESIDUALS),
    ("logits", "logits"),
    ("n", "last norm"),
];
const NORMS: &str = "norms";
const FEED_FORWARD: &str = "feed-forward network";
const ROUTING: &str = "routing";
const RESIDUALS: &str = "residuals";

/// The sizes of a transformer.
#[derive(Clone, Debug, Serialize)]
pub struct ModelSizes {
    pub layers: u64,
    pub hidden: u64,
    pub heads: u64,
    pub kv_heads: u64,
    pub ffn: u64,
    /// Number of feed-forward networks of a layer; 1 without experts.
    pub experts: u64,
    /// Number of feed-forward networks that a token takes; 1 without experts.
    pub top_k: u64,
    pub vocab: u64,
    pub seq: u64,
    pub batch: u64,
    #[serde(serialize_with = "name_of")]
    pub dtype: DType,
}

fn name_of<S: serde::Serializer>(dtype: &DType, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(dtype.name())
}

impl ModelSizes {
    /// Tokens of an iteration.
    pub fn tokens(&self) -> u64 {
        self.batch.saturating_mul(self.seq)
    }

    /// Bytes of the keys and values of one token in all layers.
    pub fn kv_bytes_per_token(&self) -> u64 {
        let size = self.hidden / self.heads.max(1);
        2 * self.layers * self.kv_heads * size * self.dtype.size()
    }
}

/// Arithmetic and bytes of some operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FlopsAndBytes {
    pub flops: f64,
    pub bytes: f64,
    /// Operations of arithmetic for each byte; `None` without bytes.
    pub intensity: Option<f64>,
    /// The time that the operations take at the peaks of the device, one after the other; `None` without a device.
    pub least_ns: Option<f64>,
    /// The part of `least_ns` that memory bounds.
    #[serde(skip)]
    by_memory: f64,
}

impl FlopsAndBytes {
    fn and(self, other: FlopsAndBytes, times: f64) -> FlopsAndBytes {
        let (flops, bytes) = (self.flops + times * other.flops, self.bytes + times * other.bytes);
        let least_ns = other.least_ns.map_or(self.least_ns, |more| Some(self.least_ns.unwrap_or(0.0) + times * more));
        let by_memory = self.by_memory + times * other.by_memory;
        FlopsAndBytes { flops, bytes, intensity: (bytes > 0.0).then(|| flops / bytes), least_ns, by_memory }
    }

    fn of(program: &Program, op: &Op, profile: Option<&Profile>) -> FlopsAndBytes {
        let Some(spec) = program.op_spec(op) else { return FlopsAndBytes::default() };
        let bound = profile.map(|profile| Ideal::of(spec, &[0], 0.0, profile).bound());
        let least = bound.map(|bound| bound.map_or(0.0, |(_, time)| time));
        let memory = bound.flatten().filter(|(resource, _)| *resource == Resource::Memory);
        let cost = spec.cost();
        let work = FlopsAndBytes {
            flops: cost.flops,
            bytes: (cost.read + cost.written).total() as f64,
            least_ns: least,
            by_memory: memory.map_or(0.0, |(_, time)| time),
            intensity: None,
        };
        FlopsAndBytes::default().and(work, 1.0)
    }

    /// The resource that bounds most of the work, in a word; `None` without a device or without work.
    fn bound(&self) -> Option<&'static str> {
        let least = self.least_ns.filter(|least| *least > 0.0)?;
        Some(if self.by_memory * 2.0 >= least { "memory" } else { "arithmetic" })
    }
}

/// A part of a model.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PartCost {
    pub parameters: u64,
    pub forward: FlopsAndBytes,
    pub backward: FlopsAndBytes,
    pub optimizer: FlopsAndBytes,
}

impl PartCost {
    fn and(self, other: &PartCost, times: u64) -> PartCost {
        let factor = times as f64;
        PartCost {
            parameters: self.parameters.saturating_add(other.parameters.saturating_mul(times)),
            forward: self.forward.and(other.forward, factor),
            backward: self.backward.and(other.backward, factor),
            optimizer: self.optimizer.and(other.optimizer, factor),
        }
    }
}

/// The arithmetic and the bytes of a transformer.
#[derive(Clone, Debug, Serialize)]
pub struct ModelCost {
    schema: &'static str,
    pub sizes: ModelSizes,
    /// Parts of one layer.
    pub layer: IndexMap<&'static str, PartCost>,
    /// Parts that the model has once.
    pub once: IndexMap<&'static str, PartCost>,
    /// The whole model: its layers, and the parts that it has once.
    pub model: PartCost,
    pub kv_bytes_per_token: u64,
    pub device: Option<Balance>,
}

/// The peaks of a device for a type.
#[derive(Clone, Debug, Serialize)]
pub struct Balance {
    pub name: String,
    pub flops_per_second: f64,
    pub bytes_per_second: f64,
    /// Operations for each byte at which both peaks are reached.
    pub balance: f64,
}

impl ModelCost {
    /// Counts the operations of `program`, the workload `transformer` with one layer, for a model of these sizes.
    pub fn of(sizes: ModelSizes, program: &Program, profile: Option<&Profile>) -> ModelCost {
        let (mut layer, mut once) = (IndexMap::new(), IndexMap::new());
        let step = &program.cycle[0];
        for (number, op) in step.ops.iter().enumerate() {
            let (in_layer, name) = part_of(&program.label_text(op.label).unwrap_or_default());
            let part: &mut PartCost =
                if in_layer { layer.entry(name).or_default() } else { once.entry(name).or_default() };
            let work = FlopsAndBytes::of(program, op, profile);
            match program.phase_text(op.phase).as_deref() {
                Some("backward") => part.backward = part.backward.and(work, 1.0),
                Some("optimizer") => part.optimizer = part.optimizer.and(work, 1.0),
                _ => {
                    part.forward = part.forward.and(work, 1.0);
                    part.parameters += parameters(program, step.inputs(OpId::from(number)));
                }
            }
        }
        // In the order of the table of labels. The optimizer is not in the table and comes last.
        let place = |name: &str| PARTS.iter().position(|(_, part)| *part == name).unwrap_or(PARTS.len());
        layer.sort_by(|a, _, b, _| place(a).cmp(&place(b)));
        let of_layers = layer.values().fold(PartCost::default(), |sum, part| sum.and(part, sizes.layers));
        let model = once.values().fold(of_layers, |sum, part| sum.and(part, 1));
        let device = profile.and_then(|profile| Balance::of(profile, sizes.dtype));
        let kv_bytes_per_token = sizes.kv_bytes_per_token();
        ModelCost { schema: SCHEMA, sizes, layer, once, model, kv_bytes_per_token, device }
    }

    pub fn one_layer(&self) -> PartCost {
        self.layer.values().fold(PartCost::default(), |sum, part| sum.and(part, 1))
    }

    /// Number of parameters that a token uses: those of all experts are weighted by the share of experts that it takes.
    fn active_parameters(&self) -> f64 {
        let networks = self.layer.get(FEED_FORWARD).map_or(0, |part| part.parameters);
        let idle = 1.0 - self.sizes.top_k as f64 / self.sizes.experts as f64;
        self.model.parameters as f64 - networks as f64 * self.sizes.layers as f64 * idle
    }

    /// Returns the cost as JSON with a final newline.
    pub fn to_json(&self) -> String {
        json::document(self)
    }

    pub fn page(&self) -> Page {
        let mut page = Page { command: "aorta explain model", name: "transformer".to_owned(), ..Page::default() };
        page.lines("", self.heading());
        page.sections.push(Section { table: Some(self.table()), notes: self.notes(), ..Section::default() });
        page
    }

    fn heading(&self) -> Vec<String> {
        let ModelSizes { layers, hidden, heads, kv_heads, ffn, experts, top_k, vocab, seq, batch, dtype } = &self.sizes;
        let parameters = self.model.parameters;
        let networks = if *experts > 1 { format!(" of {experts} experts, {top_k} for a token") } else { String::new() };
        vec![
            format!(
                "A decoder of {}: width {hidden}, {}, {kv_heads} of keys and values, \
                 feed-forward width {ffn}{networks}, vocabulary {vocab}",
                counted(*layers as usize, "layer"),
                counted(*heads as usize, "head")
            ),
            format!(
                "{batch} × {seq} tokens in {}, counted from the operations of `transformer`: nothing was measured",
                dtype.name()
            ),
            format!(
                "parameters: {}, {} in {}; keys and values: {} for a token, {} for all tokens",
                NamedCount(parameters as f64, ""),
                Bytes(parameters.saturating_mul(dtype.size())),
                dtype.name(),
                Bytes(self.kv_bytes_per_token),
                Bytes(self.kv_bytes_per_token.saturating_mul(self.sizes.tokens())),
            ),
        ]
    }

    fn table(&self) -> Table {
        let timed = self.device.is_some();
        let side = |name: &str| {
            let more: &[&str] = if timed { &["at peak", "bound by"] } else { &[] };
            let names = ["FLOP", "bytes", "FLOP/B"].iter().chain(more);
            names.map(|of| format!("{name} {of}")).collect::<Vec<_>>()
        };
        let names =
            ["part".to_owned(), "parameters".to_owned()].into_iter().chain(side("forward")).chain(side("backward"));
        let mut table = Table::new(names);
        let mut row = |name: String, part: &PartCost| {
            let parameters =
                Some(part.parameters).filter(|count| *count > 0).map(|count| NamedCount(count as f64, "").to_string());
            let cells = [name, cell(parameters)].into_iter();
            let of = |work: &FlopsAndBytes| -> Vec<String> {
                let some = |text: String| if work.bytes > 0.0 { text } else { ABSENT.to_owned() };
                let mut cells = vec![
                    some(Flops(work.flops).to_string()),
                    some(Bytes(work.bytes as u64).to_string()),
                    some(cell(work.intensity.map(plain))),
                ];
                if timed {
                    cells.push(some(cell(work.least_ns.map(Nanos::rounded))));
                    cells.push(cell(work.bound()));
                }
                cells
            };
            table.row(cells.chain(of(&part.forward)).chain(of(&part.backward)));
        };
        let has_work = |part: &PartCost| part.forward.bytes + part.backward.bytes > 0.0;
        for (name, part) in self.layer.iter().filter(|(_, part)| has_work(part)) {
            row((*name).to_owned(), part);
        }
        row("a layer".to_owned(), &self.one_layer());
        let all = self.layer.values().fold(PartCost::default(), |sum, part| sum.and(part, self.sizes.layers));
        row(counted(self.sizes.layers as usize, "layer"), &all);
        for (name, part) in self.once.iter().filter(|(_, part)| has_work(part)) {
            row((*name).to_owned(), part);
        }
        row("the model".to_owned(), &self.model);
        table
    }

    fn notes(&self) -> Vec<String> {
        let FlopsAndBytes { flops: forward, .. } = self.model.forward;
        let step = forward + self.model.backward.flops;
        let rule = 6.0 * self.active_parameters() * self.sizes.tokens() as f64;
        let optimizer = &self.model.optimizer;
        let mut notes = vec![
            format!(
                "a step of training: {} forward and backward, {:.2} × the rule 6 × {}parameters × tokens ({})",
                Flops(step),
                step / rule,
                if self.sizes.experts > 1 { "active " } else { "" },
                Flops(rule)
            ),
            format!("AdamW: {}, {}", Flops(optimizer.flops), Bytes(optimizer.bytes as u64)),
        ];
        if let Some(device) = &self.device {
            notes.push(format!(
                "{}: {} over {} is a balance of {} FLOP/B in {}: memory bounds a part with less",
                device.name,
                Rate(device.flops_per_second, "FLOP/s"),
                Rate(device.bytes_per_second, "B/s"),
                plain(device.balance),
                self.sizes.dtype.name(),
            ));
        }
        notes
    }
}

impl Balance {
    /// The peaks of a device; `None` if its profile has none for the type.
    fn of(profile: &Profile, dtype: DType) -> Option<Balance> {
        let flops_per_second = profile.peak.get(dtype.name())?.value();
        let bytes_per_second = profile.bandwidth.value();
        let balance = flops_per_second / bytes_per_second;
        Some(Balance { name: profile.name.clone(), flops_per_second, bytes_per_second, balance })
    }
}

/// Returns, by an operation's label, true if it belongs to a layer, and the part of the model that it belongs to.
fn part_of(label: &str) -> (bool, &'static str) {
    let (call, rest) = label.split_once('.').unwrap_or((label, ""));
    let call = call.split('[').next().unwrap_or_default();
    let known = |rest: &str| PARTS.iter().find(|(label, _)| *label == rest).map(|(_, part)| *part);
    match call {
        "f" | "b" => (true, known(rest).unwrap_or(RESIDUALS)),
        "u" => (true, "optimizer"),
        "u_root" => (false, "optimizer"),
        "f_words" | "b_words" => (false, "embedding"),
        _ => (false, known(rest).filter(|part| *part != RESIDUALS).unwrap_or("loss")),
    }
}

/// Number of parameters among the inputs of an operation.
fn parameters(program: &Program, inputs: &[ViewId]) -> u64 {
    let is_weight = |view: &&ViewId| {
        let name = program.names.name(program.memory(program.views.memory(**view)).name);
        matches!(name.split('.').next(), Some("w" | "root"))
    };
    inputs.iter().filter(is_weight).map(|view| program.views.tensor(*view).dims.iter().product::<u64>()).sum()
}
