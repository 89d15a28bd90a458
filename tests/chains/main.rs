//! The quality of verification over random chains of operations: how often it rejects correct results, and how many
//! planted mistakes it finds.
//!
//! By default it runs a few chains on the CPU, which then rounds as GPUs do. The tests are one program that can be
//! copied to a machine with a GPU: `cargo test --release --test chains --no-run` prints its path. Variables:
//!
//! | variable | is |
//! | --- | --- |
//! | `AORTA_CHAINS` | minimum number of chains of each test |
//! | `AORTA_CHAINS_SEED` | seed of the first program; the others follow |
//! | `AORTA_CHAINS_BACKEND` | `rough` (the CPU), `cuda` or `hip` |
//! | `AORTA_CHAINS_RANKS` | number of ranks: with several, chains have collectives, and each rank needs a GPU |
//! | `AORTA_CHAINS_SECONDS` | time after which no program is started |
//! | `AORTA_CHAINS_PRESET` | preset of shipped files; by default `tiny` on the CPU, and the default size on a GPU |
//!
//! `chains --nocapture --test-threads 1` prints a table for each test.

#[path = "../common/mod.rs"]
mod common;
mod generate;
mod planted;
mod random;
mod rough;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

use aorta::backend::cuda::{self, Cuda};
use aorta::backend::gpu::Gpu;
use aorta::backend::hip::{self, Hip};
use aorta::base::MemoryId;
use aorta::exec::{Backend, Control, ExecError, LaunchMode};
use aorta::measure::{self, Verification, record};
use aorta::model::Program;
use aorta::plan::Plan;
use aorta::schedule::{self, Schedule};
use common::altered::Altered;
use common::effort;
use common::shipped::{self, Shipped};
use generate::{Shape, chain_of};
use planted::{Device, Kind};
use random::Random;
use rough::{Rough, Style};

/// Chains of a program.
const CHAINS: usize = 200;

/// Rounding styles, used by one program after the other.
const STYLES: [Style; 4] = [
    Style { order: 0, fused: false, sloppy: 0, cut: false, bits: None },
    Style { order: 1, fused: true, sloppy: 2, cut: true, bits: None },
    Style { order: 2, fused: true, sloppy: 1, cut: false, bits: None },
    Style { order: 3, fused: false, sloppy: 2, cut: true, bits: None },
];

/// The values of the variables.
struct Asked {
    chains: usize,
    seeds: Vec<u64>,
    ranks: u32,
    backend: String,
    until: Option<Instant>,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(format!("AORTA_CHAINS{name}")).ok()
}

fn number<T: std::str::FromStr>(name: &str) -> Option<T> {
    variable(name).map(|text| text.parse().unwrap_or_else(|_| panic!("AORTA_CHAINS{name} is no number: {text}")))
}

impl Asked {
    /// Without variables: a few fixed chains, and as many new ones; fewer in a plain `cargo test`.
    fn new() -> Asked {
        let fresh = RandomState::new().build_hasher().finish() >> 16;
        let seeds = match number("_SEED") {
            Some(seed) => vec![seed],
            None => vec![1, fresh],
        };
        Asked {
            chains: number("").unwrap_or(if effort::is_full() { 120 } else { 40 }),
            seeds,
            ranks: number("_RANKS").unwrap_or(1),
            backend: variable("_BACKEND").unwrap_or_else(|| "rough".to_owned()),
            until: number("_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds)),
        }
    }

    /// The programs' seeds and sizes, until the time is over.
    fn programs(&self) -> impl Iterator<Item = (u64, Shape)> + '_ {
        let each = self.chains.div_ceil(self.seeds.len());
        let of_seed = move |&seed: &u64| {
            (0..each.div_ceil(CHAINS) as u64).map(move |file| {
                let chains = (each - file as usize * CHAINS).min(CHAINS);
                (seed + file, Shape { chains, operations: 10, ranks: u64::from(self.ranks) })
            })
        };
        self.seeds.iter().flat_map(of_seed).take_while(|_| self.until.is_none_or(|until| Instant::now() < until))
    }

    /// The device for a program; `None` with a message if there is none.
    fn device(&self, seed: u64, kernels: &tempfile::TempDir) -> Option<(Box<dyn Backend>, Device)> {
        let cache = Some(kernels.path().to_owned());
        let ranks = 0..self.ranks;
        match self.backend.as_str() {
            "rough" => {
                let style = STYLES[seed as usize % STYLES.len()];
                Some((Box::new(Rough(style)), Device::References(style)))
            }
            "cuda" => {
                let paths = aorta::cli::library_paths();
                if !matches!(cuda::find(&paths), Ok(count) if count >= self.ranks) {
                    println!("skipped: there are no {} CUDA devices", self.ranks);
                    return None;
                }
                let open = |index| Cuda::open(paths.clone(), index, None).unwrap_or_else(|error| panic!("{error}"));
                Some((Box::new(Gpu::new(ranks.map(open).collect(), cache)), Device::Kernels))
            }
            "hip" => {
                let paths = aorta::cli::rocm_paths();
                if !matches!(hip::find(&paths), Ok(count) if count >= self.ranks) {
                    println!("skipped: there are no {} HIP devices", self.ranks);
                    return None;
                }
                let open = |index| Hip::open(paths.clone(), index, None).unwrap_or_else(|error| panic!("{error}"));
                Some((Box::new(Gpu::new(ranks.map(open).collect(), cache)), Device::Kernels))
            }
            other => panic!("AORTA_CHAINS_BACKEND is `rough`, `cuda` or `hip`, not `{other}`"),
        }
    }
}

/// A program for all ranks.
struct Case {
    seed: u64,
    text: String,
    ranks: Vec<(Program, Plan)>,
}

impl Case {
    fn new(seed: u64, shape: &Shape) -> Case {
        let text = generate::text(seed, shape);
        let ranks = common::planned_ranks(&text, shape.ranks as u32);
        Case { seed, text, ranks }
    }

    fn verified(&self, backend: &dyn Backend, streams: Option<u32>, modes: &[LaunchMode]) -> Verification {
        self.tried(backend, streams, modes).unwrap_or_else(|error| panic!("seed {}: {error}", self.seed))
    }

    fn tried(
        &self,
        backend: &dyn Backend,
        streams: Option<u32>,
        modes: &[LaunchMode],
    ) -> Result<Verification, ExecError> {
        let ranks = (0..).zip(&self.ranks).map(|(rank, (program, plan))| (rank, program, plan));
        let question = measure::VerifyRequest {
            ranks: &ranks.collect::<Vec<_>>(),
            backend,
            streams,
            modes,
            options: common::exec_options(),
            control: &Control::default(),
        };
        measure::verify(&question).map(|verification| verification.expect("nobody stops it"))
    }

    fn schedule(&self, backend: &dyn Backend, streams: Option<u32>) -> Schedule {
        let (program, plan) = &self.ranks[0];
        common::placed(program, plan, backend, &schedule::ScheduleOptions { streams, share_scratch: false })
    }

    /// A hash of what each chain leaves in memory after the first and the last iteration.
    fn left(&self, backend: &dyn Backend, schedule: &Schedule, state: &RandomState) -> BTreeMap<usize, u64> {
        let (program, plan) = &self.ranks[0];
        let mut session = common::session(program, plan, schedule, backend);
        let mut hashers = BTreeMap::new();
        for iterations in [1, schedule.period.len() as u64 + 1] {
            session.reset().unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
            let samples = session.iterate(LaunchMode::Stream, 0, iterations, &Control::default());
            samples.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
            for memory in (0..program.memories.len()).map(MemoryId::from) {
                let Some(chain) = chain_of(program.names.name(program.memory(memory).name)) else { continue };
                let bytes = session.read(memory).unwrap_or_else(|error| panic!("{error}")).unwrap_or_default();
                hashers.entry(chain).or_insert_with(|| state.build_hasher()).write(&bytes);
            }
        }
        hashers.into_iter().map(|(chain, hasher)| (chain, hasher.finish())).collect()
    }

    /// The line of an operation, and the declarations of the names in it.
    fn lines(&self, label: &str) -> String {
        let line = self.text.lines().find(|line| line.contains(&format!("{label}:"))).unwrap_or_default();
        let words: BTreeSet<&str> = line.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let declared = |line: &&str| words.iter().any(|word| line.starts_with(&format!("buffer {word}:")));
        let used = |other: &&str| words.iter().any(|word| other.contains(&format!("{{ {word}:")) && *other != line);
        let lines = self.text.lines().filter(|line| declared(line) || used(line)).chain([line]);
        lines.map(|line| format!("    {}\n", line.trim())).collect()
    }
}

/// The chains that failed verification, each with the reason.
fn wrong(record: &record::VerificationRecord) -> BTreeMap<usize, String> {
    let mut wrong = BTreeMap::new();
    for mistake in &record.mistakes {
        let chain = chain_of(&mistake.operation).expect("operations have labels");
        wrong.entry(chain).or_insert_with(|| format!("{mistake:?}"));
    }
    for output in record.variants.iter().flat_map(|variant| &variant.outputs).filter(|output| !output.held) {
        let chain = chain_of(&output.name).expect("buffers are a chain's");
        wrong.entry(chain).or_insert_with(|| format!("{output:?}"));
    }
    wrong
}

/// No chain is rejected on a device that computes correctly.
#[test]
fn right_results_are_not_called_wrong() {
    let asked = Asked::new();
    let kernels = tempfile::tempdir().expect("a temporary folder");
    let (mut chains, mut programs, mut differing, mut alarms, mut failed) = (0, 0, 0, 0, 0);
    let mut operations: BTreeMap<String, record::CheckedOperations> = BTreeMap::new();
    for (seed, shape) in asked.programs() {
        let Some((backend, _)) = asked.device(seed, &kernels) else { return };
        let case = Case::new(seed, &shape);
        let record = match case.tried(&*backend, None, &[LaunchMode::Stream, LaunchMode::Graph]) {
            Ok(Verification { record, .. }) => record,
            Err(error) => {
                failed += 1;
                println!("seed {seed}: {error}");
                continue;
            }
        };
        for (chain, what) in wrong(&record) {
            alarms += 1;
            let label = what.split('"').nth(1).unwrap_or_default().to_owned();
            println!("seed {seed}, chain {chain}: {what}\n{}", case.lines(&label));
        }
        for missed in record.variants.iter().flat_map(|variant| &variant.missed) {
            alarms += 1;
            println!("seed {seed}: {missed}");
        }
        let outputs = record.variants.iter().flat_map(|variant| &variant.outputs);
        differing += outputs.filter(|output| output.error > 0.0).count();
        for one in record.operations {
            operations.entry(one.operation.clone()).or_default().add(one);
        }
        (chains, programs) = (chains + shape.chains, programs + 1);
    }
    println!("\n{chains} chains in {programs} programs, seeds {:?} on, {}", asked.seeds, asked.backend);
    println!("{:16} {:>10} {:>12} {:>11} {:>14}", "operation", "compared", "elements", "undecided", "largest error");
    for (name, one) in &operations {
        let undecided = 100.0 * one.undecided as f64 / one.elements.max(1) as f64;
        let (count, elements, error) = (one.count, one.elements, 100.0 * one.error);
        println!("{name:16} {count:>10} {elements:>12} {undecided:>9.2} % {error:>12.1} %");
    }
    println!(
        "outputs with other bits in a second run: {differing}; false alarms: {alarms}; programs that failed: {failed}"
    );
    assert_eq!((alarms, failed), (0, 0), "right results were called wrong, or programs failed");
}

/// Shipped files verify, as streams and as a graph: all of them on a device. On another machine they are searched in the current folder.
#[test]
fn shipped_files_are_right() {
    let asked = Asked::new();
    let kernels = tempfile::tempdir().expect("a temporary folder");
    let (mut rows, mut wrong) = (Vec::new(), Vec::new());
    let on_a_device = asked.backend != "rough";
    let files: Vec<Shipped> = if on_a_device { shipped::all() } else { effort::chosen(shipped::all()).collect() };
    for (seed, file) in (0..).zip(&files) {
        let Some((backend, device)) = asked.device(seed, &kernels) else { return };
        let preset = variable("_PRESET").or_else(|| (device != Device::Kernels).then(|| "tiny".to_owned()));
        let (program, plan) = file.program(preset.as_deref(), &[]);
        let case = Case { seed, text: file.text.clone(), ranks: vec![(program, plan)] };
        let begin = Instant::now();
        let verified = case.tried(&*backend, None, &[LaunchMode::Stream, LaunchMode::Graph]);
        let seconds = begin.elapsed().as_secs_f64();
        rows.push(match verified {
            Ok(Verification { record, warnings }) => {
                if !record.held {
                    println!("{}: {:?} {:?}", file.path, record.mistakes, record.variants);
                    wrong.push(file.path.clone());
                }
                warnings.iter().for_each(|warning| println!("{}: {warning}", file.path));
                let sum = |of: fn(&record::CheckedOperations) -> u64| record.operations.iter().map(of).sum::<u64>();
                let error = 100.0 * record.operations.iter().map(|one| one.error).fold(0.0, f64::max);
                let (count, vectors) = (sum(|one| one.count), sum(|one| one.by_vectors));
                format!("{seconds:>8.1} s {count:>9} {vectors:>11} {error:>12.1} %")
            }
            Err(error) => {
                wrong.push(file.path.clone());
                format!("{seconds:>8.1} s {error}")
            }
        });
        println!("{:44} {}", file.path, rows.last().expect("it was just added"));
    }
    println!("\nshipped files on {}, wrong: {wrong:?}", asked.backend);
    println!("{:44} {:>10} {:>9} {:>11} {:>14}", "file", "time", "compared", "by vectors", "largest error");
    for (file, row) in files.iter().zip(&rows) {
        println!("{:44} {row}", file.path);
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Required fraction of planted mistakes that are found, among those that change a result; the actual fraction is
/// higher.
const LEAST: f64 = 0.9;

/// Planted mistakes that change any bit of a chain's results are found.
#[test]
fn planted_mistakes_are_found() {
    let asked = Asked::new();
    let kernels = tempfile::tempdir().expect("a temporary folder");
    let state = RandomState::new();
    let mut table: BTreeMap<Kind, (usize, usize, usize)> = BTreeMap::new();
    for (seed, shape) in asked.programs() {
        let Some((backend, device)) = asked.device(seed, &kernels) else { return };
        let case = Case::new(seed, &Shape { ranks: 1, ..shape });
        // On one stream, an operation that runs too late always does so.
        let [spread, one] = [None, Some(1)].map(|streams| {
            let schedule = case.schedule(&*backend, streams);
            let right = case.left(&*backend, &schedule, &state);
            (streams, schedule, right)
        });
        for kind in Kind::ALL {
            let (streams, schedule, right) = if kind == Kind::StaleRead { &one } else { &spread };
            let mut random = Random::new(seed ^ 0x5eed);
            let planted = planted::plant(kind, &case.ranks[0].0, schedule, device, &mut random);
            let altered = match kind {
                Kind::StaleRead => Altered::late(&*backend, planted.late.clone()),
                _ => Altered::changing(&*backend, |image| planted.apply(image)),
            };
            let left = case.left(&altered, schedule, &state);
            let found = wrong(&case.verified(&altered, *streams, &[LaunchMode::Stream]).record);
            let row = table.entry(kind).or_default();
            for (chain, label) in &planted.chains {
                row.0 += 1;
                if right[chain] != left[chain] {
                    row.1 += 1;
                    row.2 += usize::from(found.contains_key(chain));
                    if !found.contains_key(chain) && asked.chains > 1000 && row.1 - row.2 <= 8 {
                        println!("not found, seed {seed}, {}, {label}:\n{}", kind.name(), case.lines(label));
                    }
                }
            }
        }
    }
    println!("\nplanted mistakes, seeds {:?} on, {}", asked.seeds, asked.backend);
    println!("{:14} {:>8} {:>12} {:>8} {:>8}", "mistake", "planted", "that matter", "found", "share");
    for (kind, (planted, matter, found)) in &table {
        let share = 100.0 * *found as f64 / (*matter).max(1) as f64;
        println!("{:14} {planted:>8} {matter:>12} {found:>8} {share:>6.1} %", kind.name());
    }
    for (kind, (_, matter, found)) in table {
        assert!(found as f64 >= LEAST * matter as f64, "{}: {found} of {matter}", kind.name());
    }
}
