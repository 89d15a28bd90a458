//! The kernel of a `scatter` of up to some ten thousand indices: each block searches all indices for the terms of its rows.
//!
//! A block owns consecutive rows, or some columns of them. It counts the terms of each of its rows, sorts their positions by row in shared
//! memory, and adds the terms of a row in the order of their positions. The terms of a row with more than an even share of the block's
//! terms are divided into parts, which all threads of the block add, whatever row they belong to. Many blocks share the columns of wide rows,
//! so that a row which most indices name is added by many SMs. The order of additions depends on the indices alone.

use super::super::layout::packs_of_rows;
use super::direct::VOTES;
use super::search_kernels::{ADD, FIND, JOIN, OWN_ROW, SORT};
use super::*;
use crate::ops::kernels::occupancy::{BUSY_BLOCKS, SECTOR, UNITS, WARP, sectors_of, share, share_among};
use crate::ops::kernels::radix::EQUALS;
use crate::ops::movement::gather::Columns;

/// Number of resident threads per SM, which have up to 64 registers.
const RESIDENT_THREADS: u64 = 1024;
/// Number of resident threads per SM that add packs of more than four elements, with up to 80 registers.
const RESIDENT_WIDE: u64 = 768;

/// Number of indices that a thread reads at once.
const EACH: u64 = 8;

/// Number of terms that a thread reads at once: of aligned packs, and of packs that take two loads.
const AHEAD: [u64; 2] = [8, 4];

/// Maximum number of bytes of shared memory for one sum of a pack for each thread of a block.
const SUMS: u64 = 8 << 10;
/// Maximum number of rows per block.
const MAX_ROWS: u64 = 127;

/// Maximum number of terms of a block that are sorted by comparing each with all others.
const FEW: u64 = 256;

/// Minimum number of threads that process neighbouring packs of a wide row: 128 bytes, a cache line.
const LINE: u64 = 8;
/// Maximum number of bytes of one row's terms that a block with more than [`LINE`] threads per row reads: an SM receives 64 bytes a cycle,
/// so that they take half a microsecond.
const ROW_BYTES: u64 = 64 << 10;

/// Maximum number of instructions of all warps, unless the operation writes many zeros: about as many as the SMs execute in the time of a
/// launch.
const MAX_INSTRUCTIONS: u64 = 1 << 20;

/// Number of bytes of a mostly zero output that allows one more instruction of a warp, since SMs search while memory is busy.
const BYTES_OF_AN_INSTRUCTION: u64 = 16;

/// Maximum number of instructions of a thread for its indices and terms if there are fewer blocks than SMs: they take about 5 µs.
const THREAD_INSTRUCTIONS: f64 = 2000.0;

/// Maximum number of indices per thread. Positions within a block's share have 16 bits, and a block sorts all of them
/// at once.
const MAX_EACH: u64 = 24;

/// Minimum average number of terms of a row in each of the blocks that share the indices, unless the sums of all of them have fewer
/// bytes than [`SMALL_SUMS`].
const MIN_TERMS: u64 = 16;
/// Number of bytes of sums that take less time than a launch.
const SMALL_SUMS: u64 = 256 << 10;
/// Minimum number of indices per thread of such a block.
const MIN_EACH: u64 = 2;
/// Number of sums of such blocks that one thread adds.
const SUMS_OF_A_JOINER: u64 = 4;
/// Number of sums that such a thread loads at once, at least.
const JOINED_AT_ONCE: u64 = 4;

/// Instructions per index that a block examines. This and the following are executed instructions of scatters on an H100, from
/// hardware counters.
const PER_LOOK: f64 = 11.0;
/// Instructions per thread and term.
const PER_TERM: f64 = 60.0;
/// Instructions per thread that writes a pack.
const PER_SUM: f64 = 45.0;
/// Other instructions per thread.
const PER_THREAD: f64 = 200.0;

/// Instructions per 16 bytes of zeros.
const PER_ZEROS: f64 = 8.0;

/// Instructions per listed term and pair of terms that a thread compares.
const PER_PAIR: f64 = 4.5;

/// Instructions per index whose row a thread compares with those of its warp: a count in code for sm_90a by NVRTC 13.0.
const PER_MATCHED: f64 = 45.0;
/// Time in exchanges for which such a comparison waits, for one row (docs/measurements/2026-11-29-lost-commands.md).
const OF_MATCH: f64 = 0.23;
/// Time in exchanges for which it waits for each further row that the warp names.
const OF_MATCHED: f64 = 0.052;

/// Exchanges among the threads of a block while it lists few terms, or counts the terms of each row.
const LISTING: u64 = 3;
/// Exchanges among the threads of a block while it sorts terms.
const SORTING: u64 = 3;
/// Exchanges among the threads of a block while it adds the sums of parts of a row.
const JOINING: u64 = 2;

/// The division of rows and columns among blocks.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// True if rows are not aligned to a pack.
    ragged: bool,
    /// Number of elements of a pack.
    pack: u64,
    /// Number of threads that process neighbouring packs of a row.
    lanes: u64,
    /// Number of blocks that share the columns of a row.
    chunks: u64,
    /// Number of threads of a block.
    threads: u64,
    /// True if a block sets its rows to zero while it waits for indices, and then writes those that have terms.
    clears: bool,
    /// Number of rows per block.
    own: u64,
    /// Number of blocks that share the indices.
    segments: u64,
    /// Number of rows of the output.
    rows: u64,
    /// Number of indices.
    count: u64,
}

impl Search {
    /// Returns the division; `None` if blocks would examine too many indices, or add too many terms. `sparse` means that most rows of a
    /// contiguous output have no term.
    pub fn of(spec: &Spec, columns: &Columns, sparse: bool) -> Option<Search> {
        let adds = spec.attrs.word("combine") == "add";
        let bytes = spec.outputs[0].bytes();
        let is_fast = |search: &Search| {
            let looks = search.looks() * PER_LOOK / WARP as f64;
            let most = MAX_INSTRUCTIONS + if sparse { bytes / BYTES_OF_AN_INSTRUCTION } else { 0 };
            let terms = (search.share() * search.own / search.rows) as f64 * search.lanes as f64 * PER_TERM;
            let of_thread = (PER_LOOK * search.share() as f64 + terms) / search.threads as f64;
            search.share() <= search.threads * MAX_EACH
                && looks <= most as f64
                && (!adds || search.blocks() >= UNITS || of_thread <= THREAD_INSTRUCTIONS)
        };
        let whole = Some(Search::whole(spec, columns, sparse)).filter(is_fast);
        whole.or_else(|| Search::divided(spec, columns).filter(|_| adds).filter(is_fast))
    }

    /// Returns blocks that search all indices for the terms of few rows.
    fn whole(spec: &Spec, columns: &Columns, sparse: bool) -> Search {
        let count = spec.inputs[1].elements();
        let search = Search::with(spec, columns, (ROW_BYTES / 16 / count.max(1)).clamp(LINE, WARP));
        // Blocks that share the columns of rows of any alignment would write most ends of rows element by element, twice.
        let clears = sparse && (!search.ragged || search.chunks == 1);
        Search { clears, ..search }.among(UNITS * search.resident())
    }

    /// Returns blocks that search a part of the indices for the terms of several rows; `None` if rows have too few terms.
    fn divided(spec: &Spec, columns: &Columns) -> Option<Search> {
        let search = Search::with(spec, columns, LINE);
        let (count, rows) = (search.count, search.rows);
        let room = UNITS * search.resident() / search.owning(MAX_ROWS).blocks();
        let of_a_segment = rows * search.chunks * search.lanes * search.pack * scatter_type(spec).size();
        let few = SMALL_SUMS / of_a_segment;
        let segments = room.min((count / rows / MIN_TERMS).max(few)).min(count / (search.threads * MIN_EACH));
        let share = count.div_ceil(segments.max(1)).max(1);
        (segments > 1).then(|| Search { segments: count.div_ceil(share), ..search }.among(BUSY_BLOCKS))
    }

    /// Returns blocks that own one row and search all indices.
    fn with(spec: &Spec, columns: &Columns, most_lanes: u64) -> Search {
        let (rows, count) = (spec.outputs[0].dims[0].max(1), spec.inputs[1].elements());
        let (pack, ragged) = columns.packs(spec.inputs[0].dtype);
        let packs = packs_of_rows(columns.length, pack, ragged);
        let lanes = lanes(packs, [LINE, most_lanes]);
        let chunks = packs.div_ceil(lanes).max(1);
        let threads = u64::from(BLOCK).min(SUMS / (pack * scatter_type(spec).size()));
        Search { ragged, pack, lanes, chunks, threads, clears: false, own: 1, segments: 1, rows, count }
    }

    /// Returns the same division with about this many blocks, among which the rows are divided.
    fn among(self, blocks: u64) -> Search {
        let groups = blocks / (self.chunks * self.segments);
        self.owning(self.rows.div_ceil(groups.max(1)))
    }

    /// Returns the same division with blocks that own this many rows, or as many as their threads permit: one thread per row finds where
    /// its terms begin, and one more where those of the last row end.
    fn owning(self, own: u64) -> Search {
        Search { own: own.min(self.rows).clamp(1, (self.threads - 1).min(MAX_ROWS)), ..self }
    }

    /// True if all blocks run at the same time, so that the device searches the indices once.
    pub fn is_one_wave(&self) -> bool {
        self.blocks() <= UNITS * self.resident()
    }

    /// True if a block sets its rows to zero while it waits for indices.
    pub fn clears(&self) -> bool {
        self.clears
    }

    /// True if a thread reads all of its indices at once.
    pub fn reads_at_once(&self) -> bool {
        self.share() <= self.threads * EACH
    }

    fn blocks(&self) -> u64 {
        self.rows.div_ceil(self.own).saturating_mul(self.chunks * self.segments)
    }

    /// Number of indices that a block searches.
    fn share(&self) -> u64 {
        self.count.div_ceil(self.segments).max(1)
    }

    /// Number of indices that all blocks search.
    fn looks(&self) -> f64 {
        self.blocks() as f64 * self.share() as f64
    }

    /// True if random indices seldom name the rows of a block more often than each thread can compare its term with all others.
    fn finds_few(&self) -> bool {
        self.share() * self.own / self.rows <= FEW.min(self.threads) * 2 / 3
    }

    /// Number of the segments' sums of packs.
    fn partials(&self) -> u64 {
        if self.segments == 1 { 0 } else { self.segments * self.rows * self.chunks * self.lanes }
    }

    /// Number of blocks of the kernel that adds the segments' sums.
    fn joining(&self) -> u64 {
        if self.segments == 1 { 0 } else { joining(self.rows * self.chunks * self.lanes, self.segments) }
    }

    pub fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        let lanes = (self.chunks * self.lanes) as f64;
        let (sums, zeros) = match self.clears {
            true => (self.count.min(self.rows), spec.outputs[0].bytes() / 16),
            false => (self.rows * self.segments, 0),
        };
        let instructions = PER_LOOK * self.looks()
            + (PER_TERM * self.count as f64 + PER_SUM * sums as f64) * lanes
            + PER_ZEROS * zeros as f64
            + PER_THREAD * (self.blocks() * self.threads) as f64;
        let (sorting, exchanges) = self.sorting(spec);
        let partials = Traffic::of(Space::Device, self.partials() * self.pack * scatter_type(spec).size());
        let is_whole = self.segments == 1;
        let mut costs = vec![Cost {
            instructions: instructions + sorting,
            read: Spec::bytes_of(&spec.inputs),
            written: if is_whole { Spec::bytes_of(&spec.outputs) } else { partials },
            sectors: self.sectors(spec),
            blocks: self.blocks(),
            share: share_among(self.resident()),
            waits: self.waits(spec) as f64,
            exchanges,
            ..Cost::default()
        }];
        if !is_whole {
            costs.push(Cost {
                instructions: PER_SUM * (self.joining() * u64::from(BLOCK)) as f64,
                read: partials,
                written: Spec::bytes_of(&spec.outputs),
                blocks: self.joining(),
                share: share(u64::from(BLOCK)),
                waits: join_waits(self.segments),
                ..Cost::default()
            });
        }
        costs
    }

    /// Maximum number of resident blocks per SM.
    fn resident(&self) -> u64 {
        if self.pack > 4 { RESIDENT_WIDE / self.threads } else { RESIDENT_THREADS / self.threads }
    }

    /// Average number of terms of a block.
    fn terms(&self) -> u64 {
        self.share() * self.own / self.rows
    }

    /// Maximum number of terms of a row that a group of threads adds, if the block has an average number of terms.
    fn part(&self) -> u64 {
        self.terms().div_ceil(self.threads / self.lanes).next_multiple_of(self.ahead()).max(1)
    }

    /// True if groups of threads add parts of rows with an average number of terms.
    fn divides_rows(&self, spec: &Spec) -> bool {
        spec.attrs.word("combine") == "add" && self.terms().div_ceil(self.own) > self.part()
    }

    /// Number of accesses after the first for which a thread waits: its indices, and then its terms, several at a time.
    fn waits(&self, spec: &Spec) -> u64 {
        let (groups, terms) = (self.threads / self.lanes, self.terms());
        let looks = self.share().div_ceil(self.threads * EACH);
        // Rows without terms take no time.
        let named = self.own.min(terms.max(1));
        let adds = match spec.attrs.word("combine") == "add" {
            true if self.divides_rows(spec) => {
                terms.div_ceil(self.part()).div_ceil(groups) * self.part().div_ceil(self.ahead())
            }
            true => named.div_ceil(groups) * terms.div_ceil(named).div_ceil(self.ahead()),
            false => named.div_ceil(groups),
        };
        looks - 1 + adds
    }

    /// Instructions of all threads that sort the terms of blocks by row, and exchanges among the threads of a block, of all its steps.
    ///
    /// Few terms are compared with each other. Otherwise the threads of a warp compare their indices, one of each thread at a time, unless
    /// none of them names a row of the block.
    fn sorting(&self, spec: &Spec) -> (f64, f64) {
        let terms = self.terms() as f64;
        let (instructions, of_indices) = match self.finds_few() {
            true => {
                let comparing = (self.terms().max(self.own) + 1).next_multiple_of(WARP).min(self.threads);
                (PER_PAIR * terms * (self.blocks() * comparing) as f64, 0.0)
            }
            false => {
                let of_warp = |rows: u64| 1.0 - (1.0 - rows as f64 / self.rows as f64).powi(WARP as i32);
                let named = of_warp(self.own);
                let matching = OF_MATCH + OF_MATCHED * self.own as f64 * of_warp(1);
                let compared = named * self.share().div_ceil(self.threads) as f64;
                (PER_MATCHED * named * self.looks(), compared * matching)
            }
        };
        let joins = if self.divides_rows(spec) { JOINING } else { 0 };
        (instructions, of_indices + (LISTING + SORTING + joins) as f64)
    }

    /// Number of sectors of memory that blocks access. A row of terms begins in any sector.
    fn sectors(&self, spec: &Spec) -> f64 {
        let (x, i, y) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let streamed = (self.blocks() / self.segments * i.bytes() + y.bytes()) / SECTOR;
        streamed as f64 + self.count as f64 * sectors_of(x.bytes() / self.count.max(1))
    }

    fn ahead(&self) -> u64 {
        AHEAD[usize::from(self.ragged || self.pack > 4)]
    }

    pub fn launches(&self, spec: &Spec, columns: &Columns) -> Vec<Launch> {
        let sum = self.pack * scatter_type(spec).size();
        let parts = Parts::of(spec, columns, 0, self.partials() * sum);
        let adds = spec.attrs.word("combine") == "add";
        let before = format!(
            "typedef u32 P;\ntypedef {} Index;\n{EQUALS}{VOTES}{SET_ZERO}{OWN_ROW}#define ADDS {}\n#define CLEARS {}\n#define LANES {}\n#define CHUNKS {}\n#define OWN {}u\n\
             #define SEGMENTS {}u\n#define SHARE {}u\n#define EACH {}\n#define AHEAD {}\n\
             #define FEW {}u\n#define FEW_EXPECTED {}\n#define JOINERS {}u\n{}",
            c_type(spec.inputs[1].dtype),
            u32::from(adds),
            u32::from(self.clears),
            self.lanes,
            self.chunks,
            self.own,
            self.segments,
            self.share(),
            self.share().div_ceil(self.threads).min(EACH),
            self.ahead(),
            FEW.min(self.threads),
            u32::from(self.finds_few()),
            joiners(self.segments),
            columns.text_of_packs(self.pack, self.ragged),
        );
        let launch = |name, body: &str, grid: u64, threads: u64| {
            let resident = if self.pack > 4 { RESIDENT_WIDE } else { RESIDENT_THREADS } / threads;
            let bounds = format!(
                "#undef BOUNDS\n#define BOUNDS __launch_bounds__({threads}, {resident})\n#define THREADS {threads}u\n"
            );
            parts.launch(name, &format!("{before}{bounds}"), body, grid, threads as u32)
        };
        let mut launches = vec![launch("scatter", &format!("{FIND}{SORT}{ADD}"), self.blocks(), self.threads)];
        if self.segments > 1 {
            launches.push(launch("scatter_join", JOIN, self.joining(), u64::from(BLOCK)));
        }
        launches
    }
}

/// Number of threads that add the sums of this many segments.
pub fn joiners(segments: u64) -> u64 {
    segments.div_ceil(SUMS_OF_A_JOINER).next_power_of_two().min(WARP)
}

/// Number of accesses after the first for which a thread waits that adds the sums of this many segments.
pub fn join_waits(segments: u64) -> f64 {
    (segments.div_ceil(joiners(segments)).div_ceil(JOINED_AT_ONCE) - 1) as f64
}

/// Number of blocks that add the sums of segments of this many packs.
pub fn joining(packs: u64, segments: u64) -> u64 {
    (packs * joiners(segments)).div_ceil(u64::from(BLOCK))
}

/// Returns the number of threads that share the packs of a row: a power of two of at most `most` that leaves few threads idle.
/// Rows with more than `least` packs have at least `least` threads.
pub fn lanes(packs: u64, [least, most]: [u64; 2]) -> u64 {
    let idle = |lanes: u64| packs.next_multiple_of(lanes);
    let mut lanes = packs.next_power_of_two().min(1 << most.ilog2());
    while lanes > least && idle(lanes) * 8 > idle(least) * 9 {
        lanes /= 2;
    }
    lanes
}
