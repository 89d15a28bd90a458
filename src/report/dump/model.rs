//! The program as text, with everything evaluated.

use std::fmt::Write as _;

use crate::base::{MemoryId, OpId, ViewId};
use crate::model::{MemoryKind, Program, Step};
use crate::ops::Attrs;
use crate::ops::init::Init;

use super::figures::figure;
use super::{iteration, operation};

/// Returns a program's streams, memories and operations as text.
pub fn model(program: &Program) -> String {
    let mut text = format!("rank {} of {}\n", program.rank, program.world);
    for (name, value) in &program.params {
        let _ = writeln!(text, "param {name} = {value}");
    }
    for group in program.groups.iter().skip(1) {
        let ranks: Vec<String> = group.ranks.iter().map(u32::to_string).collect();
        let _ = writeln!(text, "group {}: ranks {}", group.name, ranks.join(", "));
    }
    for stream in &program.streams {
        let units = stream.units.map(|units| format!(", {}", units.text())).unwrap_or_default();
        let queue = stream.queue.map(|queue| format!(", queue {queue}")).unwrap_or_default();
        let _ = match stream.threads {
            Some(threads) => writeln!(text, "stream {}: on the host, threads {threads}", stream.name),
            None => writeln!(text, "stream {}: priority {}{units}{queue}", stream.name, stream.priority.name()),
        };
    }
    for id in (0..program.memories.len()).map(MemoryId::from) {
        let _ = writeln!(text, "memory {}", memory(program, id));
    }
    let step = program.step;
    let order = if step.declared_order { "declared" } else { "data" };
    let races = if step.allow_races { "allowed" } else { "refused" };
    let _ = writeln!(text, "step: sync {}, depth {}, order {order}, races {races}", step.sync.name(), step.depth);
    for metric in &program.metrics {
        let unit = metric.unit.as_ref().map(|unit| format!(", in {unit:?}")).unwrap_or_default();
        let value = figure(program, &metric.value);
        let _ = writeln!(text, "metric {} = {value}: {}{unit}", metric.name, metric.dimension.describe());
    }
    for expectation in &program.expectations {
        let when = expectation.when.as_ref().map(|when| format!(" when {}", figure(program, when))).unwrap_or_default();
        let _ = writeln!(text, "expect {}{when}", figure(program, &expectation.condition));
    }
    for (index, step) in program.cycle.iter().enumerate() {
        text.push('\n');
        text += &iteration(program, index);
        step.ids().for_each(|op| run(program, step, op, &mut text));
    }
    for (which, block) in program.around.iter() {
        let _ = writeln!(text, "\n{}", which.name());
        block.cycle.iter().for_each(|step| step.ids().for_each(|op| run(block, step, op, &mut text)));
    }
    text
}

/// Maximum length of a list of initial contents that is printed.
const SHORT_LIST: usize = 16;

/// A memory, such as `x: f32[4, 8] in device, Random { seed: 1, deviation: 1.0 }`.
pub(super) fn memory(program: &Program, id: MemoryId) -> String {
    let memory = program.memory(id);
    let layout = program.layout(id);
    let (kind, init) = match &memory.kind {
        MemoryKind::Buffer(init) => ("", Some(init)),
        MemoryKind::Bare(init) => ("input of ", Some(init)),
        MemoryKind::Scratch => ("output of ", None),
    };
    let init = init.map_or_else(
        || "scratch".to_owned(),
        |init| match init {
            Init::Listed(numbers) if numbers.len() > SHORT_LIST => {
                format!("{} listed numbers, from {}", numbers.len(), numbers[0])
            }
            _ => format!("{init:?}"),
        },
    );
    let family = match memory.family {
        0 => String::new(),
        family => format!(", {family} of its dimensions a family"),
    };
    let name = program.names.name(memory.name);
    format!("{kind}{name}: {}{} in {}{family}, {init}", layout.dtype, layout.dims, layout.space.name())
}

fn run(program: &Program, step: &Step, op: OpId, text: &mut String) {
    let info = step.op(op);
    let stream = &program.streams[info.stream.index()].name;
    let phase = program.phase_text(info.phase).map(|phase| format!(", phase {phase}")).unwrap_or_default();
    let _ = writeln!(text, "{} on {stream}{phase}", operation(program, step, op));
    if let Some(spec) = program.op_spec(info) {
        if spec.team.group.index() > 0 {
            let _ = writeln!(text, "  over {}", program.groups[spec.team.group.index()].name);
        }
        if spec.attrs != Attrs::default() {
            let _ = writeln!(text, "  options {:?}", spec.attrs);
        }
        if let Some(expression) = &spec.expression {
            // The expression that a kernel computes for an element: one value per line, operands before their uses.
            let lines: Vec<String> = expression.c_text().lines().map(|line| line.trim().to_owned()).collect();
            let _ = writeln!(text, "  expression {}", lines.join(" "));
            for (index, constant) in expression.constants().iter().enumerate() {
                let _ = writeln!(text, "  constant c{index} = {constant}");
            }
        }
    }
    let list = |word: &str, views: &[ViewId], text: &mut String| {
        for view in views {
            let _ = writeln!(text, "  {word} {} {:?}", program.view_text(*view), program.views.tensor(*view));
        }
    };
    list("reads", step.inputs(op), text);
    list("writes", step.outputs(op), text);
    for after in step.after(op) {
        let of = if after.previous { " of the iteration before" } else { "" };
        let _ = writeln!(text, "  after #{}{of}", after.op.0);
    }
}
