//! The kernel of a `scatter` with `combine: add` of some thousand indices: blocks list the terms of their rows, and add them in shared memory.
//!
//! A block owns consecutive rows. It reads all indices and lists the positions of those that name its rows, in their
//! order. Its warps have equal numbers of these terms, whatever rows they belong to, and each adds them to sums of its own. So a row that most
//! indices name takes as long as many rows, and every run adds terms in the same order.

use super::super::layout::packs_of_rows;
use super::bucket_kernels::{ADD_RANKED, CONSECUTIVE, CROWD, OWN_ROWS, WRITE};
use super::direct::{VOTES, lanes_of_warp};
use super::search_kernels::OWN_ROW;
use super::*;
use crate::ops::kernels::occupancy::{SECTOR, UNITS, WARP, sectors_of, share_with};
use crate::ops::kernels::radix::EQUALS;
use crate::ops::movement::gather::Columns;

/// Maximum number of indices that a thread reads at once.
const EACH: u64 = 8;
/// Maximum number of indices that a block reads at once, and of terms that it lists.
const ROUND: u64 = 4096;

/// Number of terms that a thread reads at once.
const AHEAD: u64 = 4;

/// Size in bytes of the sums and listed terms of a block.
const SHARED: u64 = 46 << 10;
/// Size in bytes of a listed term: its position, and its row within the block.
const LISTED: u64 = 6;

/// Maximum size in bytes of the output: 4 KiB per SM. Sums of more rows, of which most have few terms, take longer in shared memory.
const MAX_BYTES: u64 = 512 << 10;
/// Maximum number of times that a block reads indices: each takes as long as an exchange among its threads.
const MAX_ROUNDS: u64 = 2;
/// Maximum number of times that a thread reads terms if all rows have as many, and if all indices name rows of one block. Adding to sums in
/// shared memory takes longer than adding in registers, so that other kernels are faster for more terms.
const MAX_EVEN_BATCHES: u64 = 2;
const MAX_BATCHES: u64 = 8;

/// Maximum number of threads of a block.
const MAX_THREADS: u64 = 512;
/// Number of threads of all blocks of an SM. Few blocks examine the indices less often.
const RESIDENT_THREADS: u64 = 512;
/// Maximum number of registers of a thread.
const REGISTERS: u64 = 128;

/// Instructions per index that a block examines. This and the following are estimates.
const PER_LOOK: f64 = 10.0;
/// Instructions per thread and term.
const PER_TERM: f64 = 80.0;
/// Instructions per thread that writes a pack.
const PER_SUM: f64 = 45.0;
/// Instructions per sum of a warp.
const PER_COPY: f64 = 8.0;
/// Other instructions per thread.
const PER_THREAD: f64 = 200.0;

/// The division of rows among blocks.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    /// True if rows are not aligned to a pack.
    ragged: bool,
    /// Number of elements of a pack.
    pack: u64,
    /// Number of threads that process neighbouring packs of a row.
    lanes: u64,
    /// Number of threads of a block.
    threads: u64,
    /// Number of warps that add terms, each to sums of its own.
    copies: u64,
    /// Number of rows per block.
    own: u64,
    /// Number of rows of the output.
    rows: u64,
    /// Number of indices.
    count: u64,
}

impl Sweep {
    /// Returns the division; `None` if rows are wide, or if blocks would examine too many indices or add too many terms.
    pub fn of(spec: &Spec, columns: &Columns) -> Option<Sweep> {
        Sweep::with(spec, columns).filter(|sweep| {
            spec.outputs[0].bytes() <= MAX_BYTES
                && sweep.blocks() <= UNITS * RESIDENT_THREADS / sweep.threads
                && sweep.rounds() <= MAX_ROUNDS
                && sweep.even_batches() <= MAX_EVEN_BATCHES
                && sweep.batches() <= MAX_BATCHES
        })
    }

    /// Number of times that a thread reads terms if all indices name rows of one block.
    pub fn batches(&self) -> u64 {
        self.batches_of(self.count)
    }

    /// Number of times that a thread reads terms if all rows have as many.
    fn even_batches(&self) -> u64 {
        self.batches_of((self.count * self.own).div_ceil(self.rows))
    }

    fn batches_of(&self, terms: u64) -> u64 {
        terms.div_ceil(self.copies * (WARP / self.lanes) * AHEAD)
    }

    /// Returns the division; `None` if rows are wide, or if rows or positions need more than 31 bits.
    fn with(spec: &Spec, columns: &Columns) -> Option<Sweep> {
        let (rows, count) = (spec.outputs[0].dims[0].max(1), spec.inputs[1].elements().max(1));
        let (pack, ragged) = columns.packs(spec.inputs[0].dtype);
        let packs = packs_of_rows(columns.length, pack, ragged);
        let lanes = lanes_of_warp(packs);
        // Threads for the indices, and for the terms of a row that all of them name.
        let wanted = count.div_ceil(EACH).max(count * lanes / (2 * AHEAD));
        let threads = wanted.next_power_of_two().clamp(u64::from(BLOCK), MAX_THREADS);
        let groups = UNITS * RESIDENT_THREADS / threads;
        let mut sweep = Sweep { ragged, pack, lanes, threads, copies: 1, own: rows.div_ceil(groups), rows, count };
        let room = (SHARED - LISTED * sweep.round()) / (lanes * pack * scatter_type(spec).size());
        sweep.own = sweep.own.min(room.max(1));
        sweep.copies = 1 << (room / sweep.own).clamp(1, threads / WARP).ilog2();
        (packs <= lanes && rows < 1 << 31 && count < 1 << 31).then_some(sweep)
    }

    fn blocks(&self) -> u64 {
        self.rows.div_ceil(self.own)
    }

    /// Number of indices that a thread reads at once, and a block.
    fn each(&self) -> u64 {
        self.count.div_ceil(self.threads).min(EACH).min(ROUND / self.threads)
    }

    fn round(&self) -> u64 {
        self.threads * self.each()
    }

    fn rounds(&self) -> u64 {
        self.count.div_ceil(self.round())
    }

    pub fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        let (x, i, y) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let (lanes, blocks) = (self.lanes as f64, self.blocks());
        let (count, rows) = (self.count as f64, self.rows as f64);
        let instructions = PER_LOOK * count * blocks as f64
            + (PER_TERM * count + (PER_SUM + PER_COPY * self.copies as f64) * rows) * lanes
            + PER_THREAD * (blocks * self.threads) as f64;
        let streamed = (blocks * i.bytes() + y.bytes()) / SECTOR;
        vec![Cost {
            instructions,
            read: Spec::bytes_of(&spec.inputs),
            written: Spec::bytes_of(&spec.outputs),
            sectors: streamed as f64 + count * sectors_of(x.bytes() / self.count),
            blocks,
            share: share_with(self.threads, REGISTERS),
            waits: (self.rounds() - 1 + self.even_batches()) as f64,
            // A block lists the terms of each round, adds them, and then the sums of its warps.
            exchanges: (self.rounds() + 3) as f64,
            ..Cost::default()
        }]
    }

    pub fn launches(&self, spec: &Spec, columns: &Columns) -> Vec<Launch> {
        let parts = Parts::of(spec, columns, 0, 0);
        let threads = self.threads;
        let before = format!(
            "typedef u32 P;\ntypedef {} Index;\n{EQUALS}{VOTES}{OWN_ROW}{CONSECUTIVE}#define ROUND {}u\n#define COPIES {}\n#define OWN_BITS {}\n#define CROWD {CROWD}\n\
             #define LANES {}\n#define CHUNKS 1\n#define OWN {}u\n#define SEGMENTS 1\n#define COUNT {}u\n#define EACH {}\n#define AHEAD {AHEAD}\n{}\
             #undef BOUNDS\n#define BOUNDS __launch_bounds__({threads}, {})\n#define THREADS {threads}u\n",
            c_type(spec.inputs[1].dtype),
            self.round(),
            self.copies,
            self.own.ilog2() + 1,
            self.lanes,
            self.own,
            spec.inputs[1].elements(),
            self.each(),
            columns.text_of_packs(self.pack, self.ragged),
            RESIDENT_THREADS / threads,
        );
        let body = format!("{OWN_ROWS}{ADD_RANKED}{WRITE}{LIST}");
        vec![parts.launch("scatter", &before, &body, self.blocks(), threads as u32)]
    }
}

/// Kernel text: a block reads all indices, `ROUND` at a time, lists the terms of its rows, and adds them.
const LIST: &str = r#"  __shared__ u32 counts[2][WARPS];
  take_item(blockIdx.x);
  Index index[EACH];
  auto position_of = [&](u32 base, u32 e) { return base + warp * (32 * EACH) + e * 32 + lane32; };
  auto own_of = [&](u32 e) { return own_row(index[e], first, own_rows, OWN); };
  auto read = [&](u32 base) {
#pragma unroll
    for (u32 e = 0; e < EACH; e++) index[e] = position_of(base, e) < COUNT ? INDEX(position_of(base, e)) : (Index)-1;
  };
  read(0);
  u32 listed = 0, turn = 0;
  for (u32 base = 0; base == 0 || base < COUNT; base += ROUND, turn ^= 1) {
    u32 votes[EACH], of_warp = 0;
#pragma unroll
    for (u32 e = 0; e < EACH; e++) {
      votes[e] = votes32(own_of(e) < OWN);
      of_warp += __popc(votes[e]);
    }
    if (lane32 == 0) counts[turn][warp] = of_warp;
    __syncthreads();
    u32 before = 0, all = 0;
#pragma unroll
    for (u32 w = 0; w < WARPS; w++) {
      const u32 of_other = counts[turn][w];
      before += w < warp ? of_other : 0;
      all += of_other;
    }
    if (listed + all > ROUND) {
      add(listed);
      listed = 0;
    }
    u32 at = listed + before;
#pragma unroll
    for (u32 e = 0; e < EACH; e++) {
      const u32 own = own_of(e);
      if (own < OWN) {
        const u32 slot = at + __popc(votes[e] & ((1u << lane32) - 1));
        found.at[slot] = position_of(base, e);
        row_of[slot] = (unsigned short)own;
      }
      at += __popc(votes[e]);
    }
    listed += all;
    if (COUNT - base > ROUND) read(base + ROUND);
  }
  __syncthreads();
  if (listed > 0) add(listed);
  add_up();
  write_sums();
"#;
