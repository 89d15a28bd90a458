//! The document as a report: operations, their dependencies, and which operations of several ranks belong together.

use crate::plan::ranks::{Pair, RankPlan};
use crate::report::page::{ABSENT, Page, Section, Table};

use super::PlanDocument;

/// Maximum number of ranks with a column.
const RANKS: usize = 16;

/// Maximum number of rows of a table.
const ROWS: usize = 5000;

/// The page of a plan. `pairs` are those of all ranks of the world.
pub fn page(document: &PlanDocument, ranks: &[RankPlan], pairs: &[Pair]) -> Page {
    let mut page = Page { command: "aorta plan", name: document.workload.name.clone(), ..Page::default() };
    let modelled = format!("times are modelled on an {}; nothing here is measured", document.modelled_on);
    page.lines("", [document.title(), modelled]);
    for (name, iteration) in document.named_parts() {
        let path = &iteration.critical_path;
        let line = format!("{name}: critical path {} of {} in all operations", path.length_ns, path.sum_ns);
        let mut operations =
            Table::new(["operation", "kind", "stream", "duration", "earliest start", "slack", "critical", "place"]);
        for operation in iteration.operations.iter().take(ROWS) {
            operations.row([
                format!("#{} {}", operation.id, operation.name()),
                operation.operation.to_string(),
                operation.stream.to_string(),
                operation.duration_ns.to_string(),
                operation.start_ns.to_string(),
                operation.slack_ns.to_string(),
                if operation.critical { "yes" } else { "" }.to_owned(),
                operation.place.to_string(),
            ]);
        }
        let operations = [1, 2, 6, 7].into_iter().fold(operations, Table::left);
        let title = format!("Operations, {name}");
        page.sections.push(Section { title, lines: vec![line], table: Some(operations), notes: Vec::new() });
        let mut waits = Table::new(["operation", "waits for", "since it"]).left(1).left(2);
        let edges = iteration.edges.iter().filter(|edge| !edge.is_stream());
        for edge in edges.take(ROWS) {
            let operation = |id: u32, of: Option<&super::PlannedOperation>| {
                of.map_or_else(|| format!("#{id}"), |operation| format!("#{id} {}", operation.name()))
            };
            let from = iteration.operations.get(edge.from as usize).filter(|_| edge.distance == 0);
            let to = iteration.operations.get(edge.to as usize);
            let from = format!("{}{}", operation(edge.from, from), edge.distance_suffix());
            waits.row([operation(edge.to, to), from, edge.why()]);
        }
        let title = format!("Waits between streams, {name}");
        page.sections.push(Section { title, table: Some(waits), ..Section::default() });
    }
    page.sections.extend((!pairs.is_empty()).then(|| paired(ranks, pairs)));
    page
}

/// The operations of each rank that belong together.
fn paired(ranks: &[RankPlan], pairs: &[Pair]) -> Section {
    let shown = ranks.len().min(RANKS);
    let names = ["kind".to_owned(), "ranks".to_owned()].into_iter();
    let table = Table::new(names.chain((0..shown).map(|rank| format!("rank {rank}"))));
    let mut table = (1..shown + 2).fold(table, Table::left);
    for pair in pairs.iter().take(ROWS) {
        let text = |(rank, op): &(u32, crate::base::OpId)| {
            let program = &ranks[*rank as usize].program;
            let operation = program.cycle[pair.step].op(*op);
            let name = program.label_text(operation.label).unwrap_or_else(|| program.op_name(operation).to_owned());
            (program.op_name(operation).to_owned(), format!("#{} {name}", op.0))
        };
        let mut kinds: Vec<String> = pair.members.iter().map(|member| text(member).0).collect();
        kinds.dedup();
        let cell = |rank: usize| {
            let own = pair.members.iter().filter(|(of, _)| *of as usize == rank);
            let own: Vec<String> = own.map(|member| text(member).1).collect();
            if own.is_empty() { ABSENT.to_owned() } else { own.join(", ") }
        };
        let mut members: Vec<String> = pair.members.iter().map(|(rank, _)| rank.to_string()).collect();
        members.dedup();
        table.row([kinds.join(", "), members.join(" ")].into_iter().chain((0..shown).map(cell)));
    }
    let hidden = ranks.len() - shown;
    Section {
        title: "Operations of several ranks that belong together".to_owned(),
        table: Some(table),
        notes: Vec::from_iter((hidden > 0).then(|| format!("{hidden} more ranks have no column"))),
        ..Section::default()
    }
}
