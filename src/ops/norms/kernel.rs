//! The kernel of a norm. The threads of a row hold it in registers; a row that is too long is read twice.

use super::text::{ADDED, HELPERS, SHARED_ROW, STAGE, UNSTAGE};
use super::*;
use crate::ops::kernels::kernel::{
    HELD_PACK, bounds, c_type, geometry_param, i64_param, index_type, kernel, param, replaced, u32_param, u64_param,
};
use crate::ops::kernels::occupancy::{
    CACHE, LARGEST_BLOCK, RESERVED_SHARED, UNIT_SHARED, UNIT_THREADS, UNITS, WARP, resident_blocks, share_among,
    share_with,
};
use crate::ops::kernels::ragged::RAGGED;
use crate::ops::kernels::rows::{HELD, Rows, Sharing, common_pack, is_shifted, is_stageable};

/// Instructions per element of a norm without a mean.
const EACH: f64 = 7.0;
/// Instructions per element of a norm with a mean.
const EACH_CENTRED: f64 = 10.0;
/// Instructions per thread, for addresses and for exchanging values.
const PER_THREAD: f64 = 80.0;

/// Instructions per pack that a thread loads or stores.
const PER_PACK: f64 = 12.0;

/// Number of registers of a thread, apart from those for the elements of its row.
const REGISTERS: u64 = 28;

/// Additional instructions per element of a shifted row for its weights, which are shifted from aligned packs.
const EACH_SHIFTED: f64 = 5.0;

/// Maximum number of elements of a thread of a row that is staged in shared memory. A row has the fewest threads that hold it,
/// since each takes instructions for exchanging values, and at most a warp.
const STAGED_ELEMENTS: u64 = 16;

/// Number of blocks of a row each that an SM needs: one that loads, one that computes and one that stores.
const PHASES: u64 = 3;

/// Number of elements of a pack of shifted rows that are too short for packs of 16 bytes, in a norm that adds no
/// residual. Rows are long enough for packs of 16 bytes if each thread of a warp has at least two.
const SHORT_PACK: u64 = 4;

/// Maximum size in bytes of the packs that divide rows for which rows are shifted instead. Partial packs, and checks
/// whether a pack is partial, cost more than larger packs save for others.
const SMALL_PACK: u64 = 4;
/// Minimum number of packs of a shifted row.
const LONG_ROW: u64 = WARP;

/// Maximum size in bytes of a row in shared memory. An SM holds two of them: one loads while the other one stores.
const MAX_SHARED: u64 = UNIT_SHARED / 2 - RESERVED_SHARED;

/// Size in bytes of a thread's elements of a piece up to which 32 registers suffice for a norm without a mean whose rows are
/// whole packs.
const FEW_BYTES: u64 = 32;

/// Division of rows among threads.
pub struct NormPartition {
    /// Rows of `y` and `x`, and of the added input and the sum if the norm adds.
    rows: Rows,
    sharing: Sharing,
    /// True if rows may begin inside a pack. Then the first and the last pack of a row are partial.
    shifted: bool,
    /// True if a block copies its rows, which are contiguous, to shared memory in packs that may span rows.
    staged: bool,
    /// True if the registers of a thread hold its elements as they are in memory, two to a register.
    packed: bool,
    /// True if shared memory holds the row of a block.
    shared: bool,
    /// Size in bytes of an element of the input.
    size: u64,
    /// Number of rows of a thread, one after the other: several if a block stages very short rows, otherwise 1.
    several: u64,
}

/// Weights of the elements of a pack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Weights {
    /// Each element has its own weight.
    Columns,
    /// Elements of one row have the same weight.
    OfRow,
    /// Elements of one pack have the same weight.
    OfPack,
    /// Runs of neighbouring elements have the same weight, and may continue in the next pack.
    Runs,
}

impl NormPartition {
    /// Returns the division for a norm.
    pub fn of(spec: &Spec, norm: &Norm) -> NormPartition {
        let mut tensors = vec![&spec.outputs[0], &spec.inputs[0]];
        if norm.adds {
            tensors.extend([&spec.inputs[1], &spec.outputs[1]]);
        }
        let rows = Rows::of(&tensors);
        let aligned = common_pack(&tensors);
        let size = tensors[0].dtype.size();
        let whole = 16 / size;
        let least = |pack: u64| if pack > SHORT_PACK && !norm.adds { 2 * LONG_ROW } else { LONG_ROW };
        let fits = |pack: &u64| {
            rows.length >= least(*pack) * pack
                && rows.count * rows.length >= UNITS * UNIT_THREADS * pack
                && aligned < *pack
                && (aligned == 1 || *pack == whole)
                && is_shifted(&tensors, *pack)
        };
        // Number of elements in the registers of a thread: 32 floats, or half as many if a second input is added.
        let most = if norm.adds || norm.compute(spec) == DType::F64 { 16 } else { 32 };
        let is_worth = aligned * size <= SMALL_PACK && rows.count >= UNITS;
        let widest = [whole, if norm.adds { whole } else { SHORT_PACK.min(whole) }].into_iter().find(fits);
        let (shifted, pack) = match widest {
            Some(pack) if is_worth => (true, pack),
            _ => (false, aligned),
        };
        // Number of elements from the pack in which a row starts to the one in which it ends.
        let reach = rows.length + if shifted { pack - 1 } else { 0 };
        let mut sharing = Sharing::of(&Rows { length: reach, ..rows.clone() }, pack, most);
        // Twice as many elements of 16 bits fit if each is converted again for each use.
        let packed = !sharing.whole
            && !norm.adds
            && spec.inputs[0].dtype.size() == 2
            && pack > 1
            && reach <= 2 * most * LARGEST_BLOCK;
        if packed {
            sharing =
                Sharing { packs: reach.div_ceil(LARGEST_BLOCK * pack), threads: LARGEST_BLOCK, whole: true, ..sharing };
        }
        // Two blocks per SM, of which one reads while the other writes, if the cache holds their rows until the second pass.
        if !sharing.whole && !norm.adds {
            let is_held = 2 * UNITS * rows.length * size <= CACHE / 2 && rows.count > UNITS;
            sharing = Sharing { packs: most / pack, threads: LARGEST_BLOCK / if is_held { 2 } else { 1 }, ..sharing };
        }
        let is_flat = tensors.iter().all(|tensor| is_stageable(tensor) && tensor.dtype == tensors[0].dtype);
        let staged = is_worth && is_flat && size > 1 && rows.length <= WARP * STAGED_ELEMENTS;
        // Each thread has more than half of the elements that it can have.
        let staged = staged && rows.count * rows.length >= UNITS * UNIT_THREADS * STAGED_ELEMENTS / 2;
        if staged {
            let threads = rows.length.div_ceil(STAGED_ELEMENTS).next_power_of_two();
            sharing = Sharing { pack: 1, packs: rows.length.div_ceil(threads), threads, whole: true };
        }
        let several = if staged { (STAGED_ELEMENTS / rows.length.max(1)).max(1) } else { 1 };
        // Threads copy packs of at least four bytes to shared memory without registers for them, so that an SM has two rows.
        let bytes = reach.next_multiple_of(pack) * spec.inputs[0].dtype.size();
        let shared = packed && pack * spec.inputs[0].dtype.size() >= 4 && bytes <= MAX_SHARED && rows.count > UNITS;
        let packed = packed && !shared;
        NormPartition {
            rows,
            sharing,
            shifted: shifted && !staged,
            staged,
            packed,
            shared,
            size: spec.inputs[0].dtype.size(),
            several,
        }
    }

    /// True if the threads of a block hold a row, so that it is read once.
    pub fn is_whole(&self) -> bool {
        self.sharing.whole
    }

    /// Number of bytes of shared memory that hold a row, which may begin inside a pack.
    fn room(&self) -> u64 {
        let reach = self.rows.length + if self.shifted { self.sharing.pack - 1 } else { 0 };
        reach.next_multiple_of(self.sharing.pack) * self.size
    }

    /// Number of blocks whose rows an SM holds in shared memory.
    fn resident(&self) -> u64 {
        (UNIT_THREADS / self.sharing.threads).min(UNIT_SHARED / (self.room() + RESERVED_SHARED)).max(1)
    }

    /// Number of blocks of the kernel.
    pub fn blocks(&self) -> u64 {
        self.rows.count.div_ceil(self.sharing.block_rows() * self.several).max(1)
    }

    pub fn cost(&self, spec: &Spec, norm: &Norm) -> Cost {
        let elements = spec.inputs[0].elements() as f64;
        let threads = (self.rows.count.div_ceil(self.several) * self.sharing.threads) as f64;
        let each = if norm.centred { EACH_CENTRED } else { EACH } + if self.shifted { EACH_SHIFTED } else { 0.0 };
        let again = if norm.adds { &spec.outputs[1] } else { &spec.inputs[0] };
        // A thread waits for each round of packs of a row that registers do not hold.
        let Sharing { pack, packs, whole, .. } = self.sharing;
        let accesses = if whole { 2.0 } else { 3.0 } + if norm.adds && !self.staged { 2.0 } else { 0.0 };
        let rounds = self.rows.length.div_ceil(self.sharing.threads * pack * packs);
        let of_packs = PER_PACK * accesses * elements / pack as f64;
        let held = if self.packed { spec.inputs[0].dtype.size() } else { norm.compute(spec).size() };
        let registers = REGISTERS + if self.shared { 0 } else { pack * packs * held / 4 };
        let share = match self.shared {
            true => share_among(self.resident()),
            false => share_with(self.sharing.block(), registers),
        };
        Cost {
            instructions: each * elements + of_packs + PER_THREAD * threads,
            special: threads,
            waits: if whole { 0.0 } else { (2 * rounds - 2) as f64 },
            // Several warps exchange their sums, and then their squares.
            exchanges: if self.sharing.threads > WARP { 1.0 + f64::from(u8::from(norm.centred)) } else { 0.0 },
            reread: if self.sharing.whole { Traffic::NONE } else { Traffic::of(again.space, again.bytes()) },
            blocks: self.blocks(),
            share,
            // At most a square, an addition, a subtraction and a multiplication per element.
            ..spec.streaming_cost(4.0 * elements, 1)
        }
    }

    pub fn launch(&self, name: &str, spec: &Spec, norm: &Norm, channels: &Channels) -> Launch {
        let NormPartition { rows, sharing, shifted, staged, packed, shared, several, .. } = self;
        let Sharing { pack, packs, threads, whole } = sharing;
        let compute = norm.compute(spec);
        let (x, y) = (c_type(spec.inputs[0].dtype), c_type(spec.outputs[0].dtype));
        let inputs = spec.inputs.len();
        let mut params = vec![
            param(format!("{y}* y"), Arg::Operand(inputs as u8)),
            param(format!("const {x}* x"), Arg::Operand(0)),
            param("C eps", Arg::real(compute, spec.attrs.number("eps"))),
        ];
        // The compiler folds a stride of 1.
        let (ones, steps): (Vec<_>, Vec<_>) =
            rows.steps.iter().zip(["sy", "sx", "sr", "st"]).partition(|one| *one.0 == 1);
        params.extend(steps.into_iter().map(|(step, name)| i64_param(name, *step)));
        params.extend([
            geometry_param("g", &rows.geometry),
            u64_param("rows", rows.count),
            u32_param("n", rows.length),
        ]);
        if norm.adds {
            params.push(param(format!("const {x}* residual"), Arg::Operand(1)));
            params.push(param(format!("{x}* total"), Arg::Operand(inputs as u8 + 1)));
        }
        let weights = match channels.alike {
            1 => Weights::Columns,
            _ if channels.each == 1 => Weights::OfRow,
            alike if !shifted && alike.is_multiple_of(*pack) => Weights::OfPack,
            _ => Weights::Runs,
        };
        for (input, name) in (norm.rows()..inputs).zip(["weight", "bias"]) {
            let tensor = &spec.inputs[input];
            params.push(param(format!("const {}* {name}", c_type(tensor.dtype)), Arg::Operand(input as u8)));
            params.push(i64_param(&format!("{name}_step"), tensor.strides[0]));
        }
        let is_whole = *shifted && spec.inputs[0].dtype.size() * pack == 16;
        let cached = if *whole { "" } else { "#define CACHED \".cs\"\n" };
        let held = if is_whole { format!("#define RAGGED 1\n{cached}{RAGGED}") } else { String::new() };
        // Two blocks of a long row each are resident if threads hold few elements.
        let resident = if !shifted && !norm.centred && pack * packs * compute.size() <= FEW_BYTES {
            UNIT_THREADS
        } else {
            LARGEST_BLOCK
        } / threads;
        let bounds = match whole {
            true if *shared => {
                format!("#undef BOUNDS\n#define BOUNDS __launch_bounds__({threads}, {})\n", self.resident())
            }
            true => bounds(sharing.block() as u32),
            false => format!("#undef BOUNDS\n#define BOUNDS __launch_bounds__({threads}, {resident})\n"),
        };
        let of_row = match shared {
            true => format!("typedef {x} X;\n#define ROOM {}\n{SHARED_ROW}", self.room()),
            false => String::new(),
        };
        let before = format!(
            "{}typedef {} C;\n#define T {threads}\n#define V {pack}\n#define K {packs}\n#define BLOCK {}\n#define EVEN {}\n\
             #define SHIFTED {}\n#define CENTRED {}\n{held}{HELD_PACK}{HELPERS}{of_row}",
            bounds,
            c_type(compute),
            sharing.block(),
            !shifted && rows.length.is_multiple_of(threads * pack * packs),
            u32::from(*shifted),
            norm.centred,
        );
        let index = index_type(rows.count);
        let mut body = String::new();
        if *staged {
            let names: &[_] = match norm.adds {
                true => &[("ADDS", "true"), ("OTHER", "residual"), ("SUM", "total")],
                false => &[("ADDS", "false"), ("OTHER", "x"), ("SUM", "y")],
            };
            body += &format!(
                "  typedef {x} E;\n  const u32 SEVERAL = {several}, ROWS = BLOCK / T * SEVERAL, LENGTH = {};\n  n = LENGTH;\n{}  \
                 for (u32 turn = 0; turn < SEVERAL; turn++) {{\n  const u32 own = turn * (BLOCK / T) + threadIdx.x / T;\n",
                rows.length,
                replaced(STAGE, names),
            );
        }
        body += &format!(
            "  u32 lane = threadIdx.x % T;\n  u64 row = {};\n  bool live = row < rows;\n  {index} at = ({index})(live ? row : 0);\n",
            if *staged { "(u64)blockIdx.x * ROWS + own" } else { "(u64)blockIdx.x * (BLOCK / T) + threadIdx.x / T" },
        );
        body += &match staged {
            true => "  E* const to = (E*)staged + ahead + own * LENGTH;\n  const E* const from = to;\n".to_owned(),
            false => format!("  const {x}* from = x + g.offset(at, 1);\n  {y}* to = y + g.offset(at, 0);\n"),
        };
        ones.into_iter().for_each(|(_, name)| body += &format!("  const i64 {name} = 1;\n"));
        if norm.adds && !staged {
            body +=
                &format!("  const {x}* other = residual + g.offset(at, 2);\n  {x}* kept = total + g.offset(at, 3);\n");
        }
        // Number of elements between the first pack and the row. Positions count from the pack.
        body += &match shifted {
            true => format!(
                "  const u32 lead = (u32)((u64)from / sizeof({x}) % V);\n  from -= lead;\n  to -= lead;\n{}  n += lead;\n",
                if norm.adds { "  other -= lead;\n  kept -= lead;\n" } else { "" }
            ),
            false => "  const u32 lead = 0;\n".to_owned(),
        };
        let read = match norm.adds && !staged {
            false if *shared => "    EACH_PACK(start) { v.copy(k); }\n    v.wait();\n",
            false if *packed => "    EACH_PACK(start) { v.packs[k] = *(const Pack<u32, (V + 1) / 2>*)(from + j); }\n",
            false => "    EACH_PACK(start) { read(from, sx, j, v[k]); }\n",
            true => &ADDED.replace("TYPE", x),
        };
        let declared = match (shared, packed) {
            (true, _) => "extern __shared__ Pack<u32, 4> room[];\n  \
                          SharedRow v = {(Pack<X, V>*)room + lane, (const Pack<X, V>*)from + lane}"
                .to_owned(),
            (false, true) => format!("Packed<{x}> v"),
            (false, false) => "C v[K][V]".to_owned(),
        };
        let again = if norm.adds { "read(kept, st, j, v[k])" } else { "read(from, sx, j, v[k])" };
        // The first weight of a row depends on its group.
        let of_group = if channels.groups > 1 { "first_weight + " } else { "" };
        if channels.groups > 1 {
            params.extend([u64_param("groups", channels.groups), u64_param("each", channels.each)]);
            body += "  i64 first_weight = (i64)(at % groups * each);\n";
        }
        if matches!(weights, Weights::OfPack | Weights::Runs) {
            // A constant, by which divisions take few instructions.
            body += &format!("  const u32 alike = {}u;\n", channels.alike);
        }
        // Number of elements of a weight or bias that a thread loads at once, as many as are aligned.
        let width = |input: usize| {
            let tensor = &spec.inputs[input];
            let fits = |width: &u64| {
                let bytes = width * tensor.dtype.size();
                let begins = !shifted && (channels.groups == 1 || channels.each.is_multiple_of(*width));
                tensor.strides[0] == 1 && bytes <= 16 && begins && u64::from(tensor.align).is_multiple_of(bytes)
            };
            std::iter::successors(Some(*pack), |width| (*width > 1).then_some(width / 2)).find(fits).unwrap_or(1)
        };
        let columns = (norm.rows()..inputs).zip(["weight", "bias"]);
        let registers = columns.clone().map(|(input, _)| sharing.registers(width(input), spec.inputs[input].dtype));
        // A row in registers has its weights there too if they fit, so that no load waits for the statistics.
        let registers = registers.sum::<u64>() * packs;
        let all = REGISTERS + pack * packs * compute.size() / 4 + registers;
        let is_early = *whole && !packed && !shared && !is_whole && channels.alike == 1 && registers <= HELD;
        let is_early = is_early && resident_blocks(sharing.block(), all) >= PHASES;
        // Weights of a shifted row are unaligned packs of 16 bytes if they are contiguous and as wide as the row's elements.
        let is_ragged = |input: usize| {
            let tensor = &spec.inputs[input];
            is_whole && tensor.strides[0] == 1 && tensor.dtype.size() == spec.inputs[0].dtype.size()
        };
        let (mut early, mut result, mut used) = (String::new(), "      ".to_owned(), String::new());
        for (input, name) in columns {
            let (dtype, width) = (c_type(spec.inputs[input].dtype), width(input));
            let step = if spec.inputs[input].strides[0] == 1 { "1".to_owned() } else { format!("{name}_step") };
            match weights {
                Weights::Columns => {
                    let fetched = match shifted {
                        true if is_ragged(input) => {
                            let from = format!("{name} + ({of_group}0)");
                            result += &format!(
                                "const Held<{dtype}> {name}_held = read_row({from}, j - lead, (i64)(n - lead)); "
                            );
                            used += &format!(
                                "C {name}s[V]; {{ const Pack<{dtype}, V> p = {name}_held.elements(); EACH {name}s[i] = load<C>(p.at[i]); }} "
                            );
                            continue;
                        }
                        true => format!("fetch_row({name} + ({of_group}0) * {step}, {step}, j, lead, n, "),
                        false => format!("fetch({name}, {step}, {of_group}j, "),
                    };
                    let packs = format!("HeldPack<{dtype}, {width}> {name}_packs");
                    if is_early {
                        early += &format!(
                            "  {packs}[K][V / {width}] = {{}};\n  EACH_PACK(0) {{ {fetched}{name}_packs[k]); }}\n"
                        );
                    } else {
                        result += &format!("{packs}[1][V / {width}] = {{}}; {fetched}{name}_packs[0]); ");
                    }
                    let held = if is_early { "k" } else { "0" };
                    result += &format!("C {name}s[V]; EACH {name}s[i] = element({name}_packs[{held}], i); ");
                }
                Weights::OfRow => {
                    body += &format!("  const C own_{name} = load<C>({name}[({of_group}0) * {step}]);\n");
                    result += &format!("C {name}s[V]; EACH {name}s[i] = own_{name}; ");
                }
                Weights::OfPack => {
                    let place = format!("({of_group}(u32)j / alike) * {step}");
                    result +=
                        &format!("C {name}s[V]; {name}s[0] = load<C>({name}[{place}]); EACH {name}s[i] = {name}s[0]; ");
                }
                Weights::Runs => {
                    let from = format!("{name} + ({of_group}0) * {step}");
                    result += &format!("C {name}s[V]; runs({from}, {step}, j, lead, n, alike, {name}s); ");
                }
            }
        }
        let weight = if inputs > norm.rows() { " * weights[i]" } else { "" };
        let bias = if inputs > norm.rows() + 1 { " + biass[i]" } else { "" };
        result += &used;
        result += &format!("EACH r[i] = (v[k][i] - all.mean) * scale{weight}{bias};");
        // Most packs belong to a run as a whole, whose weight scales all their elements.
        if weights == Weights::Runs && channels.alike >= *pack && inputs > norm.rows() {
            let of_run = |input: usize, name: &str| {
                let step = if spec.inputs[input].strides[0] == 1 { "1".to_owned() } else { format!("{name}_step") };
                format!("load<C>({name}[({of_group}run) * {step}])")
            };
            let factor = of_run(norm.rows(), "weight");
            let shift = if bias.is_empty() { "C(0)".to_owned() } else { of_run(norm.rows() + 1, "bias") };
            result = format!(
                "      const u32 run = ((u32)j < lead ? 0 : (u32)j - lead) / alike;\n      \
                 if ((u32)j + V <= lead + (run + 1) * alike) {{\n        \
                 const C factor = scale * {factor}, shift = {shift};\n        \
                 EACH r[i] = (v[k][i] - all.mean) * factor + shift;\n      }} else {{\n{result}\n      }}"
            );
        }
        result = format!("      C r[V];\n{result}\n      write_row(to, sy, j, lead, n, r);\n");
        // Reads the registers a second time for the squares: two sums take fewer instructions than merging means.
        let finish = format!(
            "  C scale = f_rsqrt(all.squares / C(n - lead) + eps);\n{}",
            if *staged { "" } else { "  if (!live) return;\n" }
        );
        body += &match whole {
            true => format!(
                "  {declared};\n  Part all = {{0, 0, 0}};\n  const u32 start = 0;\n{read}{early}    all = of_row(v, n, lane, lead);\n{finish}  \
                 {}EACH_PACK(0) {{\n{result}  }}\n{}",
                if *staged { "if (live) " } else { "" },
                if *staged { UNSTAGE } else { "" },
            ),
            // The second pass begins with the last piece, which registers hold, and the pieces that a cache may hold.
            false => format!(
                "  C v[K][V];\n  Taken taken = {{0, 0, 0, 0}};\n  u32 start = 0;\n  for (;; start += T * K * V) {{\n{read}    \
                 take(taken, v, start, n, lane, lead);\n    if (n - start <= T * K * V) break;\n  }}\n  \
                 Part all = across(part_of(taken), Join());\n{finish}  \
                 for (bool is_held = true;; is_held = false, start -= T * K * V) {{\n    \
                 if (!is_held) {{ EACH_PACK(start) {{ {again}; }} }}\n    EACH_PACK(start) {{\n{result}    }}\n    \
                 if (start == 0) break;\n  }}\n"
            ),
        };
        let kernel = kernel(name, &before, &params, &body, self.blocks(), sharing.block() as u32);
        let bytes = if *shared { self.room() } else { 0 };
        Launch::Kernel(Kernel {
            shared: if bytes > 0 { Shared::AtMost(bytes as u32) } else { kernel.shared },
            ..kernel
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The threads of a row hold it in their registers if they read it once, and staged blocks begin at multiples of 16 bytes.
        #[test]
        fn threads_hold_their_rows(
            (count, length) in prop_oneof![(1..3_000_000u64, 1..300u64), (1..20_000u64, 1..60_000u64)],
            dtype in prop::sample::select(vec![DType::F64, DType::F32, DType::BF16]),
            adds in any::<bool>(),
        ) {
            let norm = Norm { centred: true, adds };
            let tensors = vec![Tensor::packed(dtype, &[count, length]); 2];
            let [inputs, outputs] = [(); 2].map(|()| tensors[..if adds { 2 } else { 1 }].to_vec());
            let spec = Spec::new(find("layer_norm").unwrap(), Attrs::default(), inputs, outputs);
            let NormPartition { sharing, shifted, staged, packed, shared, several, .. } = NormPartition::of(&spec, &norm);
            let Sharing { pack, packs, threads, whole } = sharing;
            let reach = length + if shifted { pack - 1 } else { 0 };
            prop_assert!(!whole || reach <= threads * packs * pack);
            let held = if packed || shared { dtype.size() } else { dtype.compute().size() };
            prop_assert!(packs * pack * held <= 128);
            prop_assert!(!staged || (whole && several * sharing.block_rows() * length * dtype.size() <= 16 << 10));
        }
    }
}
