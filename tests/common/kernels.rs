//! Every generated kernel: those of all operations for each element type, of buffers, and of the executor.

use std::collections::BTreeMap;

use aorta::backend::gpu;
use aorta::model::{AnalysisOptions, MemoryKind, ParamSetting};
use aorta::ops::unit_report::reporting;
use aorta::ops::{KernelSource, Launch, witness};

/// Operations whose kernels depend on sizes that no other file has: offsets of more than 32 bits, sides and rows that no pack divides,
/// and lists of the terms of rows.
const SIZES: &str = "param dtype = f32
  buffer wide: dtype[2, 2147483648]
  buffer turned: dtype[2147483648, 2]
  buffer odd: dtype[3001, 777]
  buffer of_odd: dtype[777, 3001]
  buffer places: i32[20000]
  buffer many, pairs: dtype[20000, 33]
  buffer rows: dtype[30000, 33]
  buffer few: dtype[600, 33]
  buffer turns, rotated: dtype[60000, 3, 38]
  buffer angles: dtype[3, 19]
  buffer long, of_long: dtype[3000, 1301]
  buffer weight, bias: dtype[1301]
  buffer short, of_short: dtype[500000, 7]
  buffer best: i32[1301]
  buffer picked: dtype[20000, 1301]
  buffer sorted: dtype[40000, 1301]
  buffer choices, places_of_rows: i32[20000, 2]
  buffer counts: i32[8]
  buffer bordered: dtype[3001, 1304]
  buffer heads, mixed: dtype[2, 4, 50, 40]
  buffer biases: dtype[4, 50, 51]
  buffer targets: i32[9500]
  buffer narrow: dtype[9500, 5]
  buffer sums: dtype[300, 5]
  buffer spread: dtype[25000, 5]
  buffer three: dtype[3, 33]
  buffer strips: dtype[3, 50001]
  buffer stripes: dtype[50001, 3]
  buffer everywhere: i32[140000]
  buffer numbers: dtype[140000]
  buffer totals: dtype[1400]
  buffer joined: dtype[3000, 2602]
  buffer planes: dtype[140, 4, 130, 131]
  buffer scales: dtype[4]
  buffer block: dtype[40, 48]
  buffer framed: dtype[42, 64]
  step {
    transpose(wide -> turned)
    transpose(turned -> wide)
    transpose(odd -> of_odd)
    transpose(strips -> stripes)
    transpose(stripes -> strips)
    scatter(many, places, combine: add -> rows)
    scatter(pairs, places, combine: add -> few)
    rope(turns, angles, angles -> rotated)
    layer_norm(long, weight, bias -> of_long)
    rms_norm(short -> of_short)
    argmax(long -> best, dims: [0])
    gather(long, places -> picked)
    concat(long, of_long, dim: 1 -> joined)
    group_norm(planes, scales, scales, groups: 2)
    pad(block, before: [1, 8], after: [1, 8] -> framed)
    permute(picked, choices, experts: 8 -> sorted, places_of_rows, counts)
    unpermute(sorted, places_of_rows -> picked)
    pad(long, before: [1, 2], after: [0, 1] -> bordered)
    attention(heads, heads, heads, biases[.., .., 1..51] -> mixed)
    scatter(pairs, places, combine: add -> three)
    scatter(narrow, targets, combine: add -> sums)
    scatter(narrow, targets -> sums)
    scatter(numbers, everywhere, combine: add -> totals)
    scatter(narrow[0..500], targets[0..500], combine: add -> spread)
  }";

/// All kernels by name and source. Of two kernels for `f16` and `bf16` that differ in the name of the type alone, one is there,
/// or both with `AORTA_LONG`. Kernels of gradients are `map`s and reductions of other expressions: with `AORTA_LONG` all of
/// them, otherwise those of one element type, for compilers that are as fast as that.
pub fn all(of_gradients: bool) -> BTreeMap<String, KernelSource> {
    let mut sources = BTreeMap::new();
    let is_long = super::effort::is_long();
    for dtype in ["f64", "f32", "f16", "bf16"] {
        of_file(include_str!("../workloads/operations.aorta"), dtype, &mut sources);
        of_file(SIZES, dtype, &mut sources);
        if is_long || (of_gradients && dtype == "bf16") {
            of_file(include_str!("../workloads/gradients.aorta"), dtype, &mut sources);
            of_file(include_str!("../workloads/row_gradients.aorta"), dtype, &mut sources);
        }
    }
    of_file(include_str!("../../examples/09-kernels.aorta"), "f32", &mut sources);
    of_file(include_str!("../workloads/constructs.aorta"), "f32", &mut sources);
    for spec in [witness::mark(), witness::check(0)] {
        for launch in spec.launch() {
            let Launch::Kernel(kernel) = launch else { panic!("a witness is a kernel") };
            sources.insert(kernel.source.name.clone(), (*kernel.source).clone());
        }
    }
    for source in gpu::own_kernels() {
        sources.insert(source.name.clone(), (*source).clone());
    }
    if is_long { sources } else { one_of_each_pair(sources) }
}

/// Kernels that together have every name, and every line of any kernel, apart from its numbers and types; and one of 16 others. Whether a
/// text compiles depends on its lines, and rarely on the sizes in them: successive revisions take different ones of the others.
pub fn covering_lines() -> BTreeMap<String, KernelSource> {
    let features = |(_, source): &(String, KernelSource)| {
        let lines = source.text.lines().map(|line| without_numbers_and_types(line.trim()));
        lines.chain([format!("name {}", source.name)]).collect()
    };
    super::effort::covering(all(true), 16, features).into_iter().collect()
}

/// A line in which each word that is a type has the same name, and each number is `0`.
fn without_numbers_and_types(line: &str) -> String {
    const TYPES: [&str; 12] = ["f64", "f32", "f16", "bf16", "e4m3", "e5m2", "i64", "i32", "i8", "u64", "u32", "u8"];
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (mut shown, mut rest) = (String::new(), line);
    while !rest.is_empty() {
        let end = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        match TYPES.contains(&word) {
            true => shown.push('T'),
            false => word.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty()).for_each(|part| {
                shown += part;
                shown.push('0');
            }),
        }
        let symbols = behind.find(is_of_word).unwrap_or(behind.len());
        shown += &behind[..symbols];
        rest = &behind[symbols..];
    }
    shown
}

/// Keeps one of two kernels that differ in the words `f16` and `bf16` alone: that of either type, in turn.
fn one_of_each_pair(sources: BTreeMap<String, KernelSource>) -> BTreeMap<String, KernelSource> {
    let mut pairs: BTreeMap<String, Vec<(String, KernelSource)>> = BTreeMap::new();
    for (key, source) in sources {
        let text = format!("{}\n{}", source.name, source.text).replace("bf16", "f16");
        pairs.entry(text).or_default().push((key, source));
    }
    pairs.into_values().enumerate().map(|(turn, mut pair)| pair.swap_remove(turn % pair.len())).collect()
}

/// Adds every kernel of a file, for one element type.
fn of_file(text: &str, dtype: &str, sources: &mut BTreeMap<String, KernelSource>) {
    let text = text.replace("param dtype = f32", &format!("param dtype = {dtype}"));
    let program =
        super::analyze_with(&text, &AnalysisOptions { set: Vec::<ParamSetting>::new(), ..AnalysisOptions::default() })
            .unwrap_or_else(|errors| panic!("{errors}"));
    // Of the variants that report compute units, one of each name.
    for launch in program.specs.iter().flat_map(|spec| reporting(&spec.launch(), 0).unwrap_or_default()) {
        for kernel in launch.kernels() {
            let name = format!("{} reports", kernel.source.name);
            sources.entry(name).or_insert_with(|| (*kernel.source).clone());
        }
    }
    let mut add = |source: &KernelSource| {
        sources.insert(format!("{}\n{}", source.name, source.text), source.clone());
    };
    for spec in &program.specs {
        for launch in spec.launch() {
            if let Launch::Kernel(kernel) = launch {
                add(&kernel.source);
            }
        }
    }
    for memory in &program.memories {
        if let MemoryKind::Buffer(init) | MemoryKind::Bare(init) = &memory.kind {
            init.kernels(program.shapes.get(memory.shape).0, 1000).iter().for_each(|kernel| add(&kernel.source));
        }
    }
}
