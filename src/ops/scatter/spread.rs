//! The kernel of a `scatter` with `combine: add` of up to some ten thousand indices, whose blocks own rows spread over the output.
//!
//! A block reads all indices and lists the positions of those that name its rows. It groups them by row and divides all of them evenly
//! among its threads, whatever rows they belong to. Frequent indices are often neighbours, such as those of a vocabulary sorted by
//! frequency, so that neighbouring rows belong to different blocks. Every run lists and adds terms in the same order, which depends on the
//! indices alone.

use super::super::layout::packs_of_rows;
use super::bucket_kernels::{ADD, GROUP, OWN_ROWS, WRITE};
use super::direct::{VOTES, lanes_of_warp};
use super::*;
use crate::ops::kernels::occupancy::{LARGEST_BLOCK, SECTOR, UNITS, WARP, sectors_of};
use crate::ops::kernels::radix::EQUALS;
use crate::ops::movement::gather::Columns;

/// Number of blocks: a power of two, so that few instructions find the block of an index, of at most the number of SMs.
const BLOCKS: u64 = 1 << UNITS.ilog2();
/// Number of threads of a block, as many as possible, which add the terms of a row that most indices name.
const THREADS: u64 = LARGEST_BLOCK;

/// Maximum number of indices that a thread reads, all at once: one for each bit of a word. A second round of reads takes about 4 µs on an
/// H200, more than other ways take for even indices.
const MAX_EACH: u64 = 32;
/// Maximum number of bytes of all terms: if half of the indices name one row, a single SM reads half of these bytes in at most 1.6 times the
/// time that [`super::lists`] take (docs/measurements/2026-11-28-popular-rows.md).
const MAX_BYTES: u64 = 2 << 20;

/// Number of terms that a thread reads at once.
const AHEAD: u64 = 4;

/// Minimum and maximum number of positions that a block groups by row at once.
const ROUND: [u64; 2] = [1024, 4096];
/// Size in bytes of the entry of such a position: its position, its row and its place.
const OF_A_POSITION: u64 = 8;
/// Size in bytes of the shared memory of a block.
const SHARED: u64 = 46 << 10;

/// Instructions per index that a block examines. This and the following are estimates.
const PER_LOOK: f64 = 7.0;
/// Instructions per position that a block groups by row.
const PER_PLACE: f64 = 142.0;
/// Instructions per thread and term.
const PER_TERM: f64 = 48.0;
/// Instructions per thread that writes a pack.
const PER_SUM: f64 = 45.0;
/// Other instructions per thread.
const PER_THREAD: f64 = 500.0;

/// Exchanges among the threads of a block while it lists positions.
const LISTING: u64 = 2;
/// Exchanges among the threads of a block while it groups and adds the positions of a round.
const ADDING: u64 = 8;

/// The division of rows among blocks.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// True if rows are not aligned to a pack.
    ragged: bool,
    /// Number of elements of a pack.
    pack: u64,
    /// Number of threads that process neighbouring packs of a row.
    lanes: u64,
    /// Number of rows per block.
    own: u64,
    /// Number of positions that a block groups by row at once.
    round: u64,
    /// Number of rows of the output.
    rows: u64,
    /// Number of indices.
    count: u64,
}

impl Spread {
    /// Returns the division; `None` if a thread would read too many indices, if rows are wider than a warp, if a popular row could take long,
    /// or if the sums of a block do not fit shared memory.
    pub fn of(spec: &Spec, columns: &Columns) -> Option<Spread> {
        let (rows, count) = (spec.outputs[0].dims[0].max(1), spec.inputs[1].elements().max(1));
        let (pack, ragged) = columns.packs(spec.inputs[0].dtype);
        let packs = packs_of_rows(columns.length, pack, ragged);
        let (lanes, own) = (lanes_of_warp(packs), rows.div_ceil(BLOCKS));
        let (warps, row) = (THREADS / WARP, lanes * pack * scatter_type(spec).size());
        // A warp counts the positions of two rows in a word.
        let sums = own.saturating_mul(row).saturating_add(4 * warps * own.div_ceil(2));
        let left = SHARED.checked_sub(sums)?;
        let [least, most] = ROUND;
        let round = (left / OF_A_POSITION / THREADS * THREADS).min(most);
        // The sums of warps take the place of the positions.
        let fits = round >= least && warps * row + (OF_A_POSITION - 4) * round <= left;
        let is_fast = packs <= lanes && count <= MAX_EACH * THREADS && spec.inputs[0].bytes() <= MAX_BYTES;
        (fits && is_fast).then_some(Spread { ragged, pack, lanes, own, round, rows, count })
    }

    /// Number of indices of a thread.
    fn each(&self) -> u64 {
        self.count.div_ceil(THREADS)
    }

    pub fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        let (x, i, y) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let (lanes, count, rows) = (self.lanes as f64, self.count as f64, self.rows as f64);
        let instructions = PER_LOOK * count * BLOCKS as f64
            + (PER_PLACE + PER_TERM * lanes) * count
            + PER_SUM * rows * lanes
            + PER_THREAD * (BLOCKS * THREADS) as f64;
        let streamed = (BLOCKS * i.bytes() + y.bytes()) / SECTOR;
        let terms = self.count.div_ceil(BLOCKS);
        vec![Cost {
            instructions,
            read: Spec::bytes_of(&spec.inputs),
            written: Spec::bytes_of(&spec.outputs),
            sectors: streamed as f64 + count * sectors_of(x.bytes() / self.count),
            blocks: BLOCKS,
            share: Cost::WHOLE_UNIT,
            waits: (terms * self.lanes).div_ceil(THREADS * AHEAD) as f64,
            exchanges: (LISTING + ADDING * terms.div_ceil(self.round)) as f64,
            ..Cost::default()
        }]
    }

    pub fn launches(&self, spec: &Spec, columns: &Columns) -> Vec<Launch> {
        let parts = Parts::of(spec, columns, 0, 0);
        let before = format!(
            "typedef u32 P;\ntypedef {} Index;\n{EQUALS}{VOTES}#define ROUND {}u\n#define SORTS {}\n#define COPIES 1\n#define BUCKETS {BLOCKS}u\n\
             #define LANES {}\n#define CHUNKS 1\n#define OWN {}u\n#define SEGMENTS 1\n#define COUNT {}u\n#define EACH {}\n#define AHEAD {AHEAD}\n\
             #define ROW_AT(own) ((u64)(own) * BUCKETS + ((own) ^ bucket) % BUCKETS)\n{}\
             #undef BOUNDS\n#define BOUNDS __launch_bounds__({THREADS}, 1)\n#define THREADS {THREADS}u\n",
            c_type(spec.inputs[1].dtype),
            self.round,
            u32::from(self.own > 1),
            self.lanes,
            self.own,
            self.count,
            self.each(),
            columns.text_of_packs(self.pack, self.ragged),
        );
        let body = format!("{OWN_ROWS}{GROUP}{ADD}{WRITE}{LIST}");
        vec![parts.launch("scatter", &before, &body, BLOCKS, THREADS as u32)]
    }
}

/// Kernel text: a block reads all indices, lists the positions of those that name its rows, and adds their terms, `ROUND` at a time. The
/// order of a list is that of the threads that have read the indices.
const LIST: &str = r#"  take_item(blockIdx.x);
  own_rows = ROW_AT(OWN - 1) < rows ? OWN : OWN - 1;
  auto position_of = [&](u32 e) { return e * THREADS + t; };
  Index index[EACH];
#pragma unroll
  for (u32 e = 0; e < EACH; e++) index[e] = position_of(e) < COUNT ? INDEX(position_of(e)) : (Index)-1;
  u32 mine = 0, all = 0;
#pragma unroll
  for (u32 e = 0; e < EACH; e++) {
    const u32 low = (u32)index[e];
    const bool is_own = (low ^ low / BUCKETS ^ bucket) % BUCKETS == 0 && (u64)(i64)index[e] < rows;
    mine |= (u32)is_own << e;
  }
  // The number of the thread's next position.
  u32 next = block.before((u32)__popc(mine), all);
  for (u32 first_listed = 0; first_listed < all; first_listed += ROUND) {
    const u32 listed = all - first_listed < ROUND ? all - first_listed : ROUND;
    for (; mine != 0 && next < first_listed + listed; mine &= mine - 1, next++) {
      found.at[next - first_listed] = position_of(__popc((mine & (~mine + 1)) - 1));
    }
    __syncthreads();
    for (u32 k = t; k < listed; k += THREADS) row_of[k] = (unsigned short)((u64)INDEX(found.at[k]) / BUCKETS);
    __syncthreads();
    arrange(listed);
    add(listed);
  }
  __syncthreads();
  write_sums();
"#;
