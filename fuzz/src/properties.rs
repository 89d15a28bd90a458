//! Properties that hold for every text, plan and message.

use std::sync::Arc;

use aorta::backend::sim::Sim;
use aorta::base::random::hash;
use aorta::base::{Around, MemoryId, Nanos, SourceMap, SrcSpan};
use aorta::compile::{self, CompileError, Compiled, Parsed, RankCount};
use aorta::config::{EffortPlan, Profile, Settings};
use aorta::exec::{self, Backend, Control, LaunchMode, RankSchedule};
use aorta::measure::{self, Request};
use aorta::model::{self, AnalysisOptions, MemoryKind, Mistake, OpKind, Program};
use aorta::plan::{self, Plan};
use aorta::render::{self, Style};
use aorta::schedule::{self, Schedule, Topology};
use aorta::syntax::{self, Ast, SyntaxError, SyntaxLimits};
use miette::Diagnostic;

use super::grammar::files;
use super::wire::frame::{Frame, FrameKind, KINDS};
use super::wire::seal::{Seal, TAG};
use super::{invariants, oracle, reparsed};

/// Maximum number of errors that a phase reports for one text.
const MAX_ERRORS: usize = 100;

/// Number of operations of all iterations up to which a plan is compared with definitions, which examine each pair.
const MAX_JUDGED: usize = 64;

/// Number of elements of a slice up to which the definitions enumerate them.
const MAX_ELEMENTS: u64 = 4096;

/// Number of operations of all ranks' cycles up to which they are simulated.
const MAX_SIMULATED: usize = 200;

/// Key of the frames in these tests.
const KEY: [u8; TAG] = [7; TAG];

/// Received bytes give frames or an error, never a panic, and never take more memory than has arrived. Reading and
/// writing a frame returns the same bytes. Frames made from the same bytes arrive unchanged, and none is accepted after
/// any change.
pub fn frames(data: &[u8]) {
    let mut from = data;
    let mut seal = Seal::new(KEY);
    let mut again = Vec::new();
    let mut sealed = Seal::new(KEY);
    while let Ok(frame) = Frame::read(&mut from, &mut seal) {
        frame.write(&mut again, &mut sealed).expect("a frame that was read can be written");
    }
    assert_eq!(again, data[..again.len()], "frames have one form");
    let Some((&[kind, at, bit], rest)) = data.split_first_chunk::<3>() else { return };
    // A piece is a part of a message and not a message itself.
    let kind = Some(KINDS[usize::from(kind) % KINDS.len()]).filter(|kind| *kind != FrameKind::Piece);
    let (text, bytes) = rest.split_at(rest.len().min(usize::from(at)));
    let frame = Frame::new(kind.unwrap_or(FrameKind::Message), u32::from(bit), u64::from(at))
        .with_text(&String::from_utf8_lossy(text))
        .with_bytes(bytes.to_vec());
    let (mut sent, mut seal) = (Vec::new(), Seal::new(KEY));
    for piece in frame.clone().pieces().chain(frame.clone().pieces()) {
        piece.write(&mut sent, &mut seal).expect("pieces are short");
    }
    let read = |mut from: &[u8]| {
        let (mut seal, mut whole) = (Seal::new(KEY), Vec::new());
        loop {
            let piece = Frame::read(&mut from, &mut seal)?;
            whole.extend(&piece.bytes);
            if piece.kind != FrameKind::Piece {
                return std::io::Result::Ok(piece.with_bytes(whole));
            }
        }
    };
    assert_eq!(read(&sent).expect("it is what was sent"), frame);
    // The first of two frames that differ only in their sequence numbers.
    let half = sent.len() / 2;
    let place = (usize::from(at) << 8 | usize::from(bit)) % half;
    sent[place] ^= 1 << (bit % 8);
    assert!(read(&sent).is_err(), "altered at {place} of {half}");
    assert!(read(&sent[half..]).is_err(), "the second in place of the first");
    assert!(read(&sent[..place]).is_err(), "cut at {place} of {half}");
    announced(bytes);
}

/// A frame's header with a valid tag announces any length, and no content follows. It must be refused before that much
/// memory is allocated.
fn announced(data: &[u8]) {
    let Some((lengths, rest)) = data.split_first_chunk::<8>() else { return };
    let mut frame = Vec::new();
    Frame::new(FrameKind::Message, 0, 0).write(&mut frame, &mut Seal::new(KEY)).expect("it is short");
    let head = frame.len() - 2 * TAG;
    frame[head - 8..head].copy_from_slice(lengths);
    let tag = Seal::new(KEY).tag("head", &[&frame[..head]]);
    frame.truncate(head);
    frame.extend(tag);
    frame.extend(rest);
    assert!(Frame::read(&mut frame.as_slice(), &mut Seal::new(KEY)).is_err(), "a body without its tag");
}

/// Small limits, so that each is reached and every run is short.
fn options() -> AnalysisOptions {
    AnalysisOptions { cycle: 4, max_operations: 2000, max_memory: 1 << 30, ..AnalysisOptions::default() }
}

/// The text as the only source.
fn source(text: &str) -> SourceMap {
    let mut sources = SourceMap::new();
    sources.add("fuzz.aorta", text).expect("inputs are small");
    sources
}

/// Checks that errors are few and sorted, refer to locations in the sources, and can be formatted.
fn check_errors<D: Diagnostic>(sources: &SourceMap, errors: &[D]) {
    let offset = |error: &D| error.labels().and_then(|mut labels| labels.next()).map_or(0, |label| label.offset());
    assert!(errors.len() <= MAX_ERRORS, "{} errors", errors.len());
    assert!(errors.is_sorted_by_key(offset), "errors out of order");
    check_labels(sources, &errors.iter().map(|error| error as &dyn Diagnostic).collect::<Vec<_>>());
}

/// Checks that errors refer to locations in the sources and can be formatted.
fn check_labels(sources: &SourceMap, errors: &[&dyn Diagnostic]) {
    for (index, error) in errors.iter().enumerate() {
        for label in error.labels().into_iter().flatten() {
            let (start, end) = (label.offset(), label.offset() + label.len());
            assert!(sources.locate(start as u32).is_some(), "{error}: begins at {start}, outside of the sources");
            let text = sources.text(SrcSpan::new(start, end));
            assert_eq!(text.len(), label.len(), "{error}: ends at {end}, outside of its source or in a character");
        }
        if index < 3 {
            assert!(!render::text(*error, sources, Style::default()).is_empty());
        }
    }
}

/// The locations in a tree's `{:?}` output.
fn places(shown: &str) -> Vec<(usize, usize)> {
    let number =
        |text: &str| text.bytes().take_while(u8::is_ascii_digit).fold(0, |n, b| n * 10 + usize::from(b - b'0'));
    let spans = shown.split("SrcSpan { start: ").skip(1);
    spans.map(|rest| (number(rest), rest.split("len: ").nth(1).map_or(0, number))).collect()
}

/// Checks the properties of a text, and of its program and plan if it is valid. Faster than [`text`] and [`plan`].
pub fn text_and_plan(text: &str) {
    if let Some(analysis) = up_to_program(text) {
        from_program_on(text, analysis);
    }
}

/// Checks all properties of a text up to its program.
pub fn text(text: &str) {
    up_to_program(text);
}

/// Checks all properties of a text up to its program, and returns its analysis as [`analyzed`] does.
fn up_to_program(text: &str) -> Option<Analysis> {
    let (ast, errors) = parse(text);
    format(text, &ast, &errors);
    reparse(text, ast);
    compiled(text, 1);
    analyze(text)
}

/// Every location of the tree lies in the text, declarations do not overlap, and errors are sorted. If a text parses
/// without errors, so does each of its declarations alone. The result does not depend on the base offset. Returns the tree
/// and the errors.
fn parse(text: &str) -> (Ast, Vec<SyntaxError>) {
    let (ast, errors) = syntax::parse(text, 0, &SyntaxLimits::default());
    check_errors(&source(text), &errors);
    // A declaration's location is that of its head; its block ends before the next declaration.
    let starts = ast.decls.iter().map(|decl| decl.span.start as usize);
    let ends = starts.clone().skip(1).chain([text.len()]);
    for ((decl, start), end) in ast.decls.iter().zip(starts).zip(ends) {
        assert!(start < end && decl.span.end() as usize <= end, "declarations overlap");
        for (at, length) in places(&format!("{decl:?}")) {
            assert!(start <= at && at + length <= end, "a place outside of its declaration");
            assert!(text.is_char_boundary(at) && text.is_char_boundary(at + length), "a cut character");
        }
        if errors.is_empty() {
            let (alone, errors) = syntax::parse(&text[start..end], 0, &SyntaxLimits::default());
            // The text before a declaration may end with the next one's description, which is stray there.
            let stray = errors.iter().all(|error| matches!(error, SyntaxError::StrayDoc { .. }));
            assert!(stray && alone.decls.len() == 1, "a declaration alone: {errors:?}");
        }
    }
    let base = 1000;
    let (_, elsewhere) = syntax::parse(text, base, &SyntaxLimits::default());
    let at = |errors: &[SyntaxError], base: usize| -> Vec<(usize, String)> {
        errors.iter().map(|error| (error.offset().saturating_sub(base), error.to_string())).collect()
    };
    assert_eq!(at(&errors, 0), at(&elsewhere, base as usize), "where a text lies changes its errors");
    (ast, errors)
}

/// Pieces that an edit inserts: brackets, quotes and comments, which change what the rest of the text is.
const INSERTED: [&str; 12] = ["", "", "{", "}", "(", "]", "\"", "//", "\n", " 7 ", "if c { nop() }", "on s {"];

/// Reparsing after an edit gives the same as parsing the whole, for three edits in a row that the text determines. `ast` is
/// the tree of the text.
fn reparse(text: &str, mut ast: Ast) {
    let mut text = text.to_owned();
    let seed = text.bytes().fold(text.len() as u64, |seed, byte| hash(seed, byte.into()));
    for number in 0..3 {
        let choice = |which: u64, of: usize| (hash(seed, 3 * number + which) % of as u64) as usize;
        let before = text.clone();
        let edit = reparsed::edit(&mut text, choice(0, before.len() + 1), choice(1, 12), INSERTED[choice(2, 12)]);
        ast = reparsed::reparse(ast, &edit, &text, 0)
            .unwrap_or_else(|differ| panic!("{edit:?} of\n{before}\ngives\n{text}\n{differ}"));
    }
}

/// Formatting is idempotent and only changes white space and commas. A valid text keeps its meaning and every comment. `ast`
/// and `errors` are the text's.
fn format(text: &str, ast: &Ast, errors: &[SyntaxError]) {
    let essence = |text: &str| -> String { text.chars().filter(|c| !" \t\r\n,".contains(*c)).collect() };
    let formatted = syntax::format(text, &SyntaxLimits::default());
    check_errors(&source(text), &formatted.errors);
    assert_eq!(essence(text), essence(&formatted.text), "something was lost");
    let again = syntax::format(&formatted.text, &SyntaxLimits::default());
    assert_eq!(formatted.text, again.text, "formatting twice is not the same as once");
    assert_eq!(errors.is_empty(), formatted.errors.is_empty(), "{errors:?} and {:?}", formatted.errors);
    if errors.is_empty() {
        let (after, errors) = syntax::parse(&formatted.text, 0, &SyntaxLimits::default());
        assert!(errors.is_empty(), "formatting broke it: {errors:?}\n{}", formatted.text);
        assert_eq!(syntax::tree(ast), syntax::tree(&after), "formatting changed the tree");
    }
}

/// A parsed text with its program, or with the mistakes in it.
type Analysis = (Parsed, Result<Program, Vec<Mistake>>);

/// A text without syntax errors, linked with its modules, and its analysis. Any other text is analyzed too, as the program
/// does, but not returned.
fn analyzed(text: &str) -> Option<Analysis> {
    let parsed = compile::parse("fuzz.aorta", text, &SyntaxLimits::default(), &files::find).expect("inputs are small");
    let result = model::analyze(&parsed.ast, &linked(&parsed));
    if let Err(errors) = &result {
        check_errors(&parsed.sources, errors);
    }
    parsed.errors.is_empty().then_some((parsed, result))
}

/// Options of an analysis with the files that a text names.
fn linked(parsed: &Parsed) -> AnalysisOptions {
    AnalysisOptions { traces: parsed.traces.clone(), files: parsed.files.clone(), ..options() }
}

/// The program keeps its limits, its operands lie in their memories, its dependencies refer to earlier operations; and
/// the analysis is deterministic. Returns it.
fn analyze(text: &str) -> Option<Analysis> {
    let (parsed, result) = analyzed(text)?;
    if let Ok(program) = &result {
        check_program(program);
    }
    let again = model::analyze(&parsed.ast, &linked(&parsed));
    match (&result, &again) {
        (Ok(first), Ok(second)) if first.cycle.iter().map(|step| step.ops.len()).sum::<usize>() < 100 => {
            assert_eq!(format!("{:?}", first.cycle), format!("{:?}", second.cycle));
            assert_eq!(format!("{:?}", first.memories), format!("{:?}", second.memories));
            assert_eq!(format!("{:?}", first.metrics), format!("{:?}", second.metrics));
        }
        (Ok(first), Ok(second)) => assert_eq!(first.cycle.len(), second.cycle.len()),
        (Err(first), Err(second)) => assert_eq!(format!("{first:?}"), format!("{second:?}")),
        _ => panic!("once a program, once not"),
    }
    Some((parsed, result))
}

fn check_program(program: &Program) {
    let options = options();
    let buffers = (0..program.memories.len()).map(MemoryId::from);
    let buffers = buffers.filter(|&id| program.memory(id).kind != MemoryKind::Scratch);
    let total: u64 = buffers.map(|id| program.memory_bytes(id)).sum();
    assert!(total <= options.max_memory, "{total} bytes");
    assert!(program.cycle.iter().any(|step| !step.ops.is_empty()), "nothing to run");
    for (iteration, step) in program.cycle.iter().enumerate() {
        assert!(step.ops.len() <= options.max_operations, "{} operations", step.ops.len());
        for op in step.ids() {
            let info = step.op(op);
            assert!(info.stream.index() < program.streams.len());
            if let OpKind::Run(spec) = info.kind {
                let cost = program.spec(spec).cost();
                assert!(cost.flops.is_finite() && cost.flops >= 0.0, "flops");
            }
            for &view in step.inputs(op).iter().chain(step.outputs(op)) {
                let dims = program.layout(program.views.memory(view)).dims;
                let extents = program.views.extents(view);
                assert_eq!(extents.len(), dims.len());
                for (extent, size) in extents.iter().zip(dims.iter()) {
                    assert!(extent.len > 0 && extent.end() <= *size, "a slice outside of its memory");
                }
            }
            for after in step.after(op) {
                let before = program.cycle.len() + iteration - 1;
                let there = if after.previous { &program.cycle[before % program.cycle.len()] } else { step };
                assert!(after.op.index() < there.ops.len() && (after.previous || after.op < op), "waits ahead");
            }
        }
    }
}

/// Events, waits, shared memory and races of a program agree with their definitions. Three ranks match, or an error
/// says why not. Simulated runs keep the invariants of every run.
pub fn plan(text: &str) {
    if let Some(analysis) = analyzed(text) {
        from_program_on(text, analysis);
    }
}

/// Checks the properties of [`plan`], given the text's analysis.
fn from_program_on(text: &str, (parsed, result): Analysis) {
    let Ok(program) = result else { return };
    let ranks = compiled(text, 3).map_or_else(Vec::new, |compiled| compiled.ranks);
    let planned = plan::build(&program);
    if let Err(errors) = &planned {
        check_errors(&parsed.sources, errors);
    }
    let ceiling = [None, Some(1), Some(2), Some(3)][text.len() % 4];
    let topology =
        Topology { queues: 8, by_priority: text.len().is_multiple_of(3), limits_units: text.len().is_multiple_of(2) };
    let options = schedule::ScheduleOptions { streams: ceiling, ..schedule::ScheduleOptions::default() };
    match planned {
        Ok(plan) => {
            let schedule = schedule::place(&program, &plan, topology, &options);
            judge(&program, &plan, &schedule);
            for (_, ((program, plan), schedule)) in
                program.around.as_ref().zip(plan.around.as_ref()).zip(schedule.around.as_ref()).iter()
            {
                judge(program, plan, schedule);
            }
            let alone = [plan::RankPlan { program: Arc::new(program), plan: Arc::new(plan) }];
            simulate(&alone, &options);
            if text.len().is_multiple_of(4) {
                simulate(&ranks, &options);
            }
        }
        // At most twenty races are reported, so there may be more.
        Err(errors) if errors.len() < 20 => {
            // The iterations are planned first, and then each block, up to the first with a race.
            let blocks = program.around.iter().map(|(_, block)| &**block);
            let racing = |program: &&Program| plan::build(program).is_err();
            let mut alone = program.clone();
            alone.around = Around::default();
            let racing = std::iter::once(&alone).chain(blocks).find(racing).expect("one of them has races");
            if can_be_judged(racing) {
                oracle::judge_races(racing, &errors).expect("the races are all true ones");
            }
        }
        Err(_) => {}
    }
}

/// Checks the plan and the schedule of the iterations, or of a block around them.
fn judge(program: &Program, plan: &Plan, schedule: &Schedule) {
    check_plan(program, plan);
    if can_be_judged(program) {
        oracle::judge_plan(program, plan).expect("the plan is what the definitions say");
        oracle::judge_events(program, plan, schedule).expect("events keep the plan and no more");
        oracle::judge_waits(program, schedule).expect("every wait is needed");
        oracle::judge_memory(program, schedule).expect("what shares memory is never alive together");
        if program.step.declared_order && !program.step.allow_races {
            oracle::judge_races(program, &[]).expect("there is no race");
        }
    }
}

/// Compiles a text for `ranks` ranks. Returns `None` if the text has mistakes, after checking that they can be
/// formatted.
fn compiled(text: &str, ranks: u32) -> Option<Compiled> {
    let model::AnalysisOptions { cycle, max_operations, max_memory, .. } = options();
    let ranks = RankCount::Exactly(ranks);
    let find = &files::find;
    let options = compile::CompileOptions {
        ranks,
        cycle,
        max_operations,
        max_memory,
        find,
        ..compile::CompileOptions::default()
    };
    match aorta::compile("fuzz.aorta", text, &options) {
        Ok(compiled) => Some(compiled),
        Err(CompileError::Mistakes(mistakes)) => {
            let all: Vec<&dyn Diagnostic> = mistakes.all.iter().map(|one| one.as_ref() as &dyn Diagnostic).collect();
            // Syntax errors and analysis errors come together, each up to the limit.
            assert!(!all.is_empty() && all.len() <= 2 * MAX_ERRORS, "{} errors", all.len());
            check_labels(&mistakes.sources, &all);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Simulates all ranks if they are short, and checks that the record keeps the invariants of every run and that a
/// second run is equal.
fn simulate(ranks: &[plan::RankPlan], options: &schedule::ScheduleOptions) {
    let operations = ranks.iter().flat_map(|rank| &rank.program.cycle).map(|step| step.ops.len()).sum::<usize>();
    if ranks.is_empty() || operations > MAX_SIMULATED {
        return;
    }
    let profile = Profile::named("h200").expect("embedded");
    let sim = Sim::new(profile.clone());
    let place = |rank: &plan::RankPlan| schedule::place(&rank.program, &rank.plan, sim.topology(), options);
    let schedules: Vec<_> = ranks.iter().map(place).collect();
    let requests = RankSchedule::all(0, ranks, &schedules);
    let measure = || {
        measure::measure(&Request {
            plans: ranks,
            ranks: &requests,
            backend: &sim,
            modes: &[LaunchMode::Stream, LaunchMode::Graph],
            effort: EffortPlan { warmup: 0, iterations: 2 },
            observed_iterations: 1,
            exec: exec::SessionOptions {
                timeout: Nanos(i64::MAX / 4),
                ..exec::SessionOptions::of(&Settings::default())
            },
            control: &Control::default(),
            profile: Some(&profile),
            sources: &SourceMap::new(),
            keep: &|_| {},
            shares: std::cell::OnceCell::new(),
        })
    };
    match (measure(), measure()) {
        (Ok(first), Ok(second)) => {
            let json = |variants: &[_]| serde_json::to_string(variants).expect("numbers and text");
            assert_eq!(json(&first.variants), json(&second.variants), "simulated twice, with two results");
            for variant in &first.variants {
                let broken = invariants::check(ranks.iter().map(|rank| &*rank.program), &profile, variant);
                assert!(broken.is_empty(), "{broken}");
            }
        }
        (Err(first), Err(second)) => assert_eq!(first.to_string(), second.to_string()),
        (first, second) => panic!("once {:?}, once {:?}", first.err(), second.err()),
    }
}

fn can_be_judged(program: &Program) -> bool {
    let depth = program.step.depth.max(1) as usize;
    let operations: usize = program.cycle.iter().map(|step| step.ops.len()).sum();
    let mut views = program.cycle.iter().flat_map(|step| {
        step.ids().flat_map(move |op| step.inputs(op).iter().chain(step.outputs(op)).copied().collect::<Vec<_>>())
    });
    let elements = |view| -> u64 {
        let dims = program.layout(program.views.memory(view)).dims;
        dims.iter().fold(1, |all: u64, size| all.saturating_mul(*size))
    };
    operations * depth <= MAX_JUDGED && depth <= 8 && views.all(|view| elements(view) <= MAX_ELEMENTS)
}

/// Checks that edges lead forward, and that the critical path is no longer than the sum of all operations.
fn check_plan(program: &Program, plan: &Plan) {
    for (step, graph) in program.cycle.iter().zip(&plan.steps) {
        assert_eq!(step.ops.len(), graph.operations());
        for op in step.ids() {
            assert!(graph.incoming(op).all(|edge| edge.from < op), "an edge leads back");
        }
        assert!(graph.across.iter().all(|across| across.distance > 0), "an edge to nowhere");
        let path = graph.critical_path(&vec![1.0; step.ops.len()]);
        assert!(path.length <= step.ops.len() as f64 && path.ops.is_sorted(), "a path that is none");
    }
}
