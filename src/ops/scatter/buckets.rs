//! The kernels of a `scatter` with `combine: add` of many indices, whose blocks own buckets of consecutive rows.
//!
//! A first kernel sorts the positions of each tile of indices by bucket. A block reads the runs of its bucket in all tiles, groups their
//! positions by row in their order, and divides all terms evenly among its threads, however many belong to one row. Blocks share a bucket
//! that has far more positions than others. So every run adds terms in the same order.

use super::super::layout::packs_of_rows;
use super::bucket_kernels::{ADD, ADD_RANKED, CONSECUTIVE, CROWD, GROUP, JOIN_PARTS, OWN_ROWS, RUNS, SPLIT, WRITE};
use super::direct::{VOTES, lanes_of_warp};
use super::search::{join_waits, joiners, joining};
use super::search_kernels::JOIN;
use super::*;
use crate::ops::kernels::occupancy::{BUSY_BLOCKS, SECTOR, UNITS, WARP, sectors_of, share, share_among};
use crate::ops::kernels::radix::EQUALS;
use crate::ops::movement::gather::Columns;

/// Minimum and maximum number of positions that a block groups by row at once.
const ROUND: [u64; 2] = [512, 2816];

/// Size in bytes of the shared memory of a block, without that of sums over its threads.
const SHARED: u64 = 46 << 10;

/// Maximum number of rows per bucket.
const MAX_ROWS: u64 = 1 << 10;

/// Maximum number of buckets that a tile is sorted by, for each number of threads and maximum number of positions per thread: the kernel
/// counts the positions of each warp and bucket in shared memory, which also has the sorted positions.
const SPLITS: [(u64, u64, u64); 5] = [(640, 512, 8), (1024, 256, 16), (2048, 256, 8), (4096, 128, 16), (8192, 64, 16)];

/// Minimum number of positions per thread of that kernel, and number of tiles that suffices.
const MIN_HELD: u64 = 2;
const ENOUGH_TILES: u64 = 256;

/// Number of resident blocks per SM.
const RESIDENT: u64 = 4;
/// Number of resident blocks per SM if a thread adds up more than four numbers, which take more registers.
const RESIDENT_WIDE: u64 = 3;

/// Average number of terms of a bucket.
const PER_BUCKET: u64 = 1024;

/// Maximum average number of terms of a block before blocks share a bucket.
const PER_BLOCK: u64 = 4096;

/// Factor above which blocks share an item: if its positions exceed this number of parts and this multiple of the average.
const HEAVY: u64 = 2;

/// Number of parts of an item whose sums a block adds up.
const JOINED: u64 = 16;

/// Minimum number of threads that process the rows of a bucket, for which sums of each warp are faster than terms grouped by row:
/// with fewer, many of a warp's terms have the same row.
const MIN_SPREAD: u64 = 16;
/// Maximum number of threads per row for which sums of each warp are faster: with more, few terms share the work of grouping.
const MAX_RANKED_LANES: u64 = 4;

/// Maximum number of positions that a thread reads at once.
const MAX_EACH: u64 = 8;
/// Number of terms that a thread reads at once: terms of more than four elements, and others.
const AHEAD: [u64; 2] = [4, 8];

/// Instructions of the kernel that adds, per position that it groups by row. This and the following are executed instructions of
/// ten scatters on an H100, from hardware counters.
const PER_PLACE: f64 = 142.0;
/// Instructions of that kernel per thread that adds a term.
const PER_TERM: f64 = 48.0;
/// Instructions of that kernel per thread that writes a sum.
const PER_SUM: f64 = 45.0;
/// Other instructions of that kernel per thread.
const PER_THREAD: f64 = 500.0;
/// Instructions of the kernel that sorts tiles, per position.
const PER_SPLIT: f64 = 163.0;
/// Other instructions of the kernel that sorts tiles, per thread.
const PER_SPLITTER: f64 = 162.0;

/// Exchanges among the threads of a block that sorts a tile.
const SPLITTING: u64 = 4;
/// Exchanges among the threads of a block in a round of positions that are grouped by row.
const GROUPING: u64 = 8;
/// Exchanges among the threads of a block in a round of positions of one row.
const ADDING: u64 = 4;

/// The division of rows, columns and indices among blocks.
#[derive(Clone, Copy, Debug)]
pub struct Buckets {
    /// Number of threads of a block that sorts a tile.
    splitters: u64,
    /// Number of positions per thread of such a block.
    held: u64,
    /// True if each warp has sums of all rows of a bucket, to which it adds terms in their order without grouping them by row.
    is_ranked: bool,
    /// True if rows are not aligned to a pack.
    ragged: bool,
    /// Number of elements of a pack.
    pack: u64,
    /// Number of threads that process neighbouring packs of a row.
    lanes: u64,
    /// Number of blocks that share a row.
    chunks: u64,
    /// Number of rows per bucket.
    own: u64,
    /// Number of blocks that share the tiles of a bucket.
    segments: u64,
    /// Number of positions that a block groups by row at once.
    round: u64,
    /// Number of rows of the output.
    rows: u64,
    /// Number of indices.
    count: u64,
}

impl Buckets {
    /// Returns the division; `None` if there are too many buckets or indices.
    pub fn of(spec: &Spec, columns: &Columns) -> Option<Buckets> {
        let count = spec.inputs[1].elements();
        let [least_round, most_round] = ROUND;
        let wanted = (count / PER_BUCKET).clamp(BUSY_BLOCKS, RESIDENT * UNITS);
        let average = count.div_ceil(wanted);
        let round = (average + average / 4).next_multiple_of(u64::from(BLOCK)).clamp(least_round, most_round);
        let mut tiled = Buckets::with(spec, columns, round)?.owning(wanted, spec);
        let (_, splitters, most_held) = SPLITS.into_iter().find(|(most, ..)| tiled.buckets() <= *most)?;
        tiled.splitters = splitters;
        tiled.held = count.div_ceil(ENOUGH_TILES * splitters).next_power_of_two().clamp(MIN_HELD, most_held);
        let own = Buckets { own: tiled.rows.div_ceil((wanted / tiled.chunks).max(1)).min(MAX_ROWS), ..tiled };
        let of_warps = u64::from(BLOCK) / WARP * own.own * own.lanes * own.pack * scatter_type(spec).size();
        let is_spread = own.own * own.lanes >= MIN_SPREAD && own.lanes <= MAX_RANKED_LANES;
        if is_spread && of_warps + 6 * round + 12 * u64::from(BLOCK) <= SHARED {
            tiled = Buckets { is_ranked: true, ..own };
        }
        let average = count / tiled.buckets();
        tiled.segments = (average / PER_BLOCK).min(RESIDENT * UNITS / tiled.blocks()).min(tiled.tiles()).max(1);
        Some(tiled)
    }

    /// Returns the division with one row per bucket; `None` if positions need more than 31 bits.
    fn with(spec: &Spec, columns: &Columns, round: u64) -> Option<Buckets> {
        let (rows, count) = (spec.outputs[0].dims[0].max(1), spec.inputs[1].elements());
        let (pack, ragged) = columns.packs(spec.inputs[0].dtype);
        let packs = packs_of_rows(columns.length, pack, ragged);
        let lanes = lanes_of_warp(packs);
        let one = Buckets {
            splitters: u64::from(BLOCK),
            held: 1,
            is_ranked: false,
            ragged,
            pack,
            lanes,
            chunks: packs.div_ceil(lanes).max(1),
            own: 1,
            segments: 1,
            round,
            rows,
            count,
        };
        (count < 1 << 31).then_some(one)
    }

    /// Divides the rows among this many blocks, or more if the sums of a block would need more shared memory. It also has the positions of
    /// a round, the sums over threads and the runs of as many tiles as a block has threads.
    fn owning(self, blocks: u64, spec: &Spec) -> Buckets {
        let (threads, sum) = (u64::from(BLOCK), self.pack * scatter_type(spec).size());
        let positions = 4 * self.round + (4 * self.round).max(threads * sum) + 12 * threads;
        let of_a_row = self.lanes * sum + 2 * threads / WARP;
        let most = (SHARED.saturating_sub(positions) / of_a_row).clamp(1, MAX_ROWS);
        Buckets { own: self.rows.div_ceil((blocks / self.chunks).max(1)).clamp(1, most), ..self }
    }

    fn buckets(&self) -> u64 {
        self.rows.div_ceil(self.own)
    }

    /// Number of positions of a tile.
    fn tile(&self) -> u64 {
        self.splitters * self.held
    }

    fn tiles(&self) -> u64 {
        self.count.div_ceil(self.tile())
    }

    /// Number of positions that a thread reads at once. Each takes a search for its run, also if there are fewer positions.
    fn each(&self) -> u64 {
        self.round.div_ceil(u64::from(BLOCK)).min(MAX_EACH)
    }

    /// Number of blocks per SM of the kernel that adds.
    fn resident(&self) -> u64 {
        if self.pack > 4 { RESIDENT_WIDE } else { RESIDENT }
    }

    /// Number of blocks of the kernel that adds.
    fn blocks(&self) -> u64 {
        self.buckets().saturating_mul(self.chunks * self.segments)
    }

    /// Number of words that hold the offsets of buckets in a tile, two each, and the number of the tile's positions.
    fn words(&self) -> u64 {
        self.buckets().div_ceil(2) + 1
    }

    /// Offset in bytes of the tiles' offsets in the workspace, behind the sorted positions.
    fn offsets_at(&self) -> u64 {
        4 * self.tiles() * self.tile()
    }

    /// Offset in bytes of the numbers of shared items and of their parts.
    fn heads_at(&self) -> u64 {
        self.offsets_at() + 4 * self.tiles() * self.words()
    }

    fn workspace(&self) -> u64 {
        self.heads_at() + 4 * self.heads()
    }

    /// Number of positions of a part of an item. A block reads all runs of the item to find those of its part.
    fn part(&self) -> u64 {
        self.round * self.tiles().div_ceil(self.segments).div_ceil(u64::from(BLOCK))
    }

    /// Number of positions above which blocks share an item.
    fn heavy(&self) -> u64 {
        HEAVY * self.part().max(self.count / (self.buckets() * self.segments))
    }

    /// Maximum number of shared items and of their parts; none is shared if all positions of a chunk are in one.
    fn records(&self) -> u64 {
        if self.buckets() == 1 { 0 } else { self.count * self.chunks / self.heavy() }
    }

    fn parts(&self) -> u64 {
        if self.records() == 0 { 0 } else { self.count * self.chunks / self.part() + self.records() }
    }

    /// Number of words that are set to zero first: the number of shared items and of their parts, four words for each item, and the
    /// number of parts added up.
    fn heads(&self) -> u64 {
        2 + 4 * self.records() + self.parts() + JOINED
    }

    /// Number of elements of a row, rounded up to whole chunks.
    fn width(&self) -> u64 {
        self.chunks * self.lanes * self.pack
    }

    /// Number of the segments' sums of all rows.
    fn partials(&self) -> u64 {
        if self.segments == 1 { 0 } else { self.segments * self.rows * self.width() }
    }

    /// Number of the sums of all parts.
    fn shared(&self) -> u64 {
        self.parts() * self.own * self.lanes * self.pack
    }

    /// Number of blocks of the kernel that adds the segments' sums.
    fn joining(&self) -> u64 {
        if self.segments == 1 { 0 } else { joining(self.rows * self.chunks * self.lanes, self.segments) }
    }

    pub fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        let (x, y) = (&spec.inputs[0], &spec.outputs[0]);
        let device = |bytes| Traffic { device: bytes, host: 0 };
        let (count, lanes) = (self.count as f64, (self.chunks * self.lanes) as f64);
        let (block, partials) = (u64::from(BLOCK), device(self.partials() * scatter_type(spec).size()));
        let found = device(self.workspace());
        // The run of a bucket and a row of terms begin in any sector.
        let runs = self.tiles() * self.buckets() * self.chunks;
        let of_runs = runs as f64 * (1.0 + sectors_of(4 * self.count / runs.max(1)));
        let of_terms = count * sectors_of(x.bytes() / self.count.max(1));
        // A block takes the positions of its item in rounds.
        let positions = self.count.div_ceil(self.buckets() * self.segments).max(1);
        let (rounds, groups) = (positions.div_ceil(self.round), block / self.lanes);
        let terms = positions.div_ceil(groups * AHEAD[usize::from(self.pack <= 4)]).max(rounds);
        let lookups =
            self.tiles().div_ceil(self.segments * block) + positions.div_ceil(self.each() * block).max(rounds);
        // The threads of a warp compare the rows of their positions, one of each thread at a time.
        let compared = positions.div_ceil(if self.is_ranked { groups } else { block });
        let of_rounds = rounds * if self.own > 1 { GROUPING } else { ADDING };
        let mut costs = vec![
            Cost {
                instructions: PER_SPLIT * count + PER_SPLITTER * (self.tiles() * self.splitters) as f64,
                read: Spec::bytes_of(&spec.inputs[1..2]),
                written: found,
                exchanges: (self.held + SPLITTING) as f64,
                blocks: self.tiles(),
                share: share(self.splitters),
                ..Cost::default()
            },
            Cost {
                instructions: count * (PER_PLACE * self.chunks as f64 + PER_TERM * lanes)
                    + PER_SUM * (self.segments * self.rows) as f64 * lanes
                    + PER_THREAD * (self.blocks() * block) as f64,
                read: Spec::bytes_of(&spec.inputs) + found,
                written: if self.segments > 1 { partials } else { Spec::bytes_of(&spec.outputs) },
                sectors: (y.bytes() / SECTOR) as f64 + of_runs + of_terms,
                waits: (lookups + terms) as f64,
                exchanges: (of_rounds + if self.own > 1 { compared } else { 0 }) as f64,
                blocks: self.blocks(),
                share: share_among(self.resident()),
                ..Cost::default()
            },
        ];
        if self.segments > 1 {
            costs.push(Cost {
                instructions: PER_SUM * (self.joining() * block) as f64,
                read: partials,
                written: Spec::bytes_of(&spec.outputs),
                blocks: self.joining(),
                share: share(block),
                waits: join_waits(self.segments),
                ..Cost::default()
            });
        }
        costs
    }

    pub fn launches(&self, spec: &Spec, columns: &Columns) -> Vec<Launch> {
        let sums = (self.partials() + self.shared()) * scatter_type(spec).size();
        let mut parts = Parts::of(spec, columns, self.workspace(), sums);
        parts.bind("offsets_at", self.offsets_at());
        parts.bind("heads_at", self.heads_at());
        let buckets = self.buckets();
        let before = format!(
            "typedef u32 P;\ntypedef {} Index;\n{EQUALS}{VOTES}{CONSECUTIVE}#define ROUND {}\n#define SORTS {}\n#define COPIES {}\n#define OWN_BITS {}\n\
             #define BUCKETS_BITS {}\n#define CROWD {CROWD}\n#define LANES {}\n#define CHUNKS {}\n#define OWN {}u\n#define BUCKETS {buckets}u\n#define TILE {}\n#define TILES {}u\n#define SEGMENTS {}u\n\
             #define PART {}u\n#define HEAVY {}u\n#define HEADS {}u\n#define RECORDS {}u\n#define JOINED {JOINED}u\n#define SHARED_AT {}ull\n\
             #define EACH {}\n#define AHEAD {}\n#define JOINERS {}u\n{}",
            c_type(spec.inputs[1].dtype),
            self.round,
            u32::from(self.own > 1 && !self.is_ranked),
            if self.is_ranked { u64::from(BLOCK) / WARP } else { 1 },
            self.own.ilog2() + 1,
            buckets.ilog2() + 1,
            self.lanes,
            self.chunks,
            self.own,
            self.tile(),
            self.tiles(),
            self.segments,
            self.part(),
            self.heavy(),
            self.heads(),
            self.records(),
            self.partials(),
            self.each(),
            AHEAD[usize::from(self.pack <= 4)],
            joiners(self.segments),
            columns.text_of_packs(self.pack, self.ragged),
        );
        let resident = self.resident();
        let launch = |name, body: &str, grid: u64, threads: u64| {
            let least = if threads > u64::from(BLOCK) { 2 } else { resident };
            let bounds = format!(
                "#undef BOUNDS\n#define BOUNDS __launch_bounds__({threads}, {least})\n#define THREADS {threads}u\n"
            );
            parts.launch(name, &format!("{before}{bounds}"), body, grid, threads as u32)
        };
        let add = if self.is_ranked { ADD_RANKED } else { ADD };
        let body = format!("{OWN_ROWS}{GROUP}{add}{WRITE}{JOIN_PARTS}{RUNS}");
        let mut launches = vec![
            launch("scatter_split", SPLIT, self.tiles(), self.splitters),
            launch("scatter", &body, self.blocks(), BLOCK.into()),
        ];
        if self.segments > 1 {
            launches.push(launch("scatter_join", JOIN, self.joining(), BLOCK.into()));
        }
        launches
    }
}
