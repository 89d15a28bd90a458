//! The plan of an iteration: operations by stream, their dependencies with reasons, and slack.

use indexmap::IndexSet;

use crate::report::plan::{Iteration, PlanDocument, PlannedDependency, PlannedOperation, Reason};

use super::chart::{BarRows, ROW};
use super::{Gallery, Picture, SvgElement, WIDTH, shortened};

/// Maximum number of operations in a graph.
const GRAPH: usize = 400;
/// Maximum number of operations along a time axis.
const ALONG_TIME: usize = 4000;

/// Room for the names of streams, and size of the place of an operation.
const NAMES: f64 = 110.0;
const COLUMN: f64 = 132.0;
const STREAM: f64 = 62.0;

/// Width of a letter of small text in pixels.
const SMALL: f64 = 5.6;

/// Size of an operation's box.
const BOX: (f64, f64) = (96.0, 30.0);

/// Pictures of each part of a plan: its dependencies, and its operations along modelled time. `None` if every part is empty or
/// too large.
pub fn streams(document: &PlanDocument) -> Option<Gallery> {
    let mut pictures = Vec::new();
    for (name, iteration) in document.iterations_first() {
        let operations = iteration.operations.len();
        if (1..=GRAPH).contains(&operations) {
            pictures.push((format!("{name}, dependencies"), graph(&name, iteration)));
        }
        if (1..=ALONG_TIME).contains(&operations) {
            pictures.push((format!("{name}, modelled time"), along_time(&name, iteration, &document.modelled_on)));
        }
    }
    let notes = [
        "A row is a stream of the file. An arrow leads from an operation to one that waits for it; its text is the data that \
         both access, or the statement that orders them. Red is the critical path. Along the time axis, the thin line \
         behind an operation is its slack: how much later it may end without a longer iteration. Times are those of a \
         model.",
    ];
    Gallery::of("plan", "Operations by stream", &notes, "Part", pictures)
}

/// The streams of an iteration, in the order of their first operations.
fn streams_of(iteration: &Iteration) -> IndexSet<&str> {
    iteration.operations.iter().map(|operation| &*operation.stream).collect()
}

/// For each operation, the number of operations on the longest chain before it.
fn depths(iteration: &Iteration) -> Vec<usize> {
    let mut depths = vec![0; iteration.operations.len()];
    let streams = streams_of(iteration);
    let mut last = vec![None; streams.len()];
    let mut edges = iteration.edges.iter().peekable();
    for operation in &iteration.operations {
        let id = operation.id as usize;
        let stream = streams.get_index_of(&*operation.stream).unwrap_or(0);
        let mut depth = last[stream].map_or(0, |before: usize| before + 1);
        while let Some(edge) = edges.next_if(|edge| edge.to <= operation.id) {
            if edge.to == operation.id && edge.distance == 0 && (edge.from as usize) < id {
                depth = depth.max(depths[edge.from as usize] + 1);
            }
        }
        depths[id] = depth;
        last[stream] = Some(depth);
    }
    depths
}

fn title(operation: &PlannedOperation) -> String {
    format!(
        "{} ({}), {}, slack {}, {}",
        operation.name(),
        operation.operation,
        operation.duration_ns,
        operation.slack_ns,
        operation.place
    )
}

fn graph(name: &str, iteration: &Iteration) -> Picture {
    let (streams, depths) = (streams_of(iteration), depths(iteration));
    let place = |id: u32| {
        let operation = &iteration.operations[id as usize];
        let row = streams.get_index_of(&*operation.stream).unwrap_or(0) as f64;
        (NAMES + depths[id as usize] as f64 * COLUMN, row * STREAM + 16.0)
    };
    let mut shapes = Vec::new();
    for (row, stream) in streams.iter().enumerate() {
        let y = row as f64 * STREAM + 16.0 + BOX.1 / 2.0;
        shapes.push(SvgElement::text("strong", (0.0, y + 4.0), shortened(stream, 16)).titled(*stream));
    }
    for edge in iteration.edges.iter().filter(|edge| edge.distance == 0) {
        draw_edge(&mut shapes, edge, iteration, place(edge.from), place(edge.to));
    }
    for operation in &iteration.operations {
        let (x, y) = place(operation.id);
        let class = if operation.critical { "box critical" } else { "box" };
        shapes.push(SvgElement::rect(class, x, y, BOX.0, BOX.1).titled(title(operation)));
        shapes.push(SvgElement::text("ink", (x + 5.0, y + 12.0), shortened(operation.name(), 14)));
        shapes.push(SvgElement::text("faint", (x + 5.0, y + 25.0), operation.duration_ns.to_string()));
    }
    let columns = depths.iter().max().map_or(0, |depth| depth + 1) as f64;
    Picture {
        width: (NAMES + columns * COLUMN).max(WIDTH),
        height: streams.len() as f64 * STREAM + 16.0,
        description: format!("{name}: operations by stream, with their dependencies"),
        shapes,
        plots: Vec::new(),
    }
}

fn draw_edge(
    shapes: &mut Vec<SvgElement>,
    edge: &PlannedDependency,
    iteration: &Iteration,
    from: (f64, f64),
    to: (f64, f64),
) {
    let (x1, y1) = (from.0 + BOX.0, from.1 + BOX.1 / 2.0);
    let (x2, y2) = (to.0, to.1 + BOX.1 / 2.0);
    let bend = ((x2 - x1) / 2.0).max(12.0);
    // An arrow along a stream that passes other operations goes above them.
    let lift = if y1 == y2 && x2 - x1 > COLUMN { -26.0 } else { 0.0 };
    let path = format!(
        "M{x1:.1} {y1:.1}C{:.1} {:.1} {:.1} {:.1} {x2:.1} {y2:.1}M{:.1} {:.1}L{x2:.1} {y2:.1}L{:.1} {:.1}",
        x1 + bend,
        y1 + lift,
        x2 - bend,
        y2 + lift,
        x2 - 5.0,
        y2 - 3.0,
        x2 - 5.0,
        y2 + 3.0,
    );
    let ends = [edge.from, edge.to].map(|id| iteration.operations[id as usize].name().to_owned());
    let class = if iteration.on_path(edge) { "critical" } else { "edge" };
    let why = format!("{} waits for {}: {}", ends[1], ends[0], edge.why());
    shapes.push(SvgElement::path(class, path).titled(why.clone()));
    let word = match &edge.reason {
        Reason::Stream => return,
        Reason::Data { slice, .. } => shortened(slice, 10),
        Reason::After { .. } => "after".to_owned(),
        Reason::Wait { .. } => "wait".to_owned(),
        Reason::Sync => "sync".to_owned(),
    };
    let at = (f64::midpoint(x1, x2), f64::midpoint(y1, y2) + lift * 0.7 - 3.0);
    // The arrow ends beside the text, so that both are legible.
    let width = word.chars().count() as f64 * SMALL;
    shapes.push(SvgElement::rect("fill-page", at.0 - width / 2.0, at.1 - 9.0, width, 12.0));
    shapes.push(SvgElement::text("faint small", at, word).anchored("middle").titled(why));
}

fn along_time(name: &str, iteration: &Iteration, device: &str) -> Picture {
    let streams = streams_of(iteration);
    let ends = iteration.operations.iter().map(|operation| operation.start_ns + operation.duration_ns);
    let most = ends.max().unwrap_or_default();
    let mut rows = BarRows::new(&streams.iter().collect::<Vec<_>>(), most.0 as f64);
    for operation in &iteration.operations {
        let row = streams.get_index_of(&*operation.stream).unwrap_or(0);
        let start = operation.start_ns.0 as f64;
        let end = start + operation.duration_ns.0 as f64;
        let y = row as f64 * ROW + ROW / 2.0 - 1.0;
        let slack = rows.x((end + operation.slack_ns.0 as f64).min(most.0 as f64));
        if slack - rows.x(end) > 0.5 {
            rows.shapes.push(SvgElement::line("dashed", (rows.x(end), y), (slack, y)));
        }
        rows.bar(if operation.critical { "fill-accent" } else { "fill-part-1" }, row, (start, end), title(operation));
    }
    rows.picture(format!("{name}: operations at their earliest start, modelled on an {device}"))
}
