//! Kernels of a scan of few and long lines along the last dimension. A block scans a tile of a line, publishes its
//! total, waits for the totals of earlier tiles, and writes its results, so that memory is read once. Totals are
//! combined in a fixed order, so that results are reproducible.
//!
//! If a cluster has enough blocks for the tiles of a line, they exchange their totals at a barrier. Otherwise,
//! blocks start in the order of their numbers, and a block waits only for blocks with lower numbers, so that no block
//! waits for one that cannot start.

use super::super::layout::halves;
use super::kernel::{EACH, Lines, MAX_PACK, PER_PACK, definitions};
use super::look_back::Totals;
use super::*;
use crate::ops::kernels::cluster::CLUSTER;
use crate::ops::kernels::kernel::{
    BLOCK, Parameter, bounds, geometry_param, index_type, kernel, launch, param, replaced, u32_param, u64_param,
};
use crate::ops::kernels::occupancy::{BUSY_BLOCKS, LARGEST_BLOCK, LARGEST_CLUSTER, UNITS, share_with};

/// Maximum number of packs that a thread holds in registers.
const PACKS: u64 = 16;
/// Maximum number of bytes of a line that a thread holds in registers, for numbers of up to four bytes; twice as many for those of eight.
const BYTES: u64 = 64;

/// Registers of a thread besides those for its elements: with 32 of them it has 64 in code for sm_90a by NVRTC 13.0.
const REGISTERS: u64 = 32;

/// Maximum number of packs per thread of a line that one block scans; longer lines are divided into tiles.
const LONG: u64 = 8;

/// Number of tiles whose totals are combined to the total of a group, which later tiles read.
const GROUP: u64 = 64;
/// Minimum distance of a tile to the groups whose totals it reads, in tiles. Tiles at this distance have usually ended,
/// so that no block waits for a group's total.
const FAR: u64 = 960;

/// Maximum length of a line that a cluster scans. More SMs read longer lines faster than those of a cluster.
const CLUSTER_LENGTH: u64 = LARGEST_CLUSTER * LARGEST_BLOCK * MAX_PACK;

/// Maximum number of bytes of a line that a thread of a cluster holds in registers, of which the largest blocks have 64 per thread.
const CLUSTER_BYTES: u64 = 48;

/// Number of totals that a thread loads before it uses them.
const AHEAD: u64 = 4;

/// Division of lines into tiles.
pub struct Tiles {
    lines: Lines,
    /// Number of elements per pack.
    pack: u64,
    /// True if lines may begin inside a pack.
    leads: bool,
    /// Number of packs per thread.
    packs: u64,
    /// Number of tiles of a line.
    count: u64,
    /// Number of threads of a block.
    threads: u64,
    /// True if the blocks of a line are a cluster.
    clusters: bool,
}

impl Tiles {
    /// Returns the division; `None` if lines are short, not along the last dimension, or enough to occupy all SMs
    /// without division.
    pub fn of(spec: &Spec) -> Option<Tiles> {
        let lines = Lines::of(spec);
        let tensors = [&spec.outputs[0], &spec.inputs[0]];
        let block = u64::from(BLOCK);
        let strides = || lines.geometry.strides[0].iter().zip(&*lines.geometry.strides[1]);
        let fits = |pack: &u64| {
            let is_aligned = |tensor: &&Tensor| u64::from(tensor.align).is_multiple_of(pack * tensor.dtype.size());
            let is_alike = strides().all(|(to, from)| to % pack == from % pack);
            // In reverse, packs are aligned only if they divide a line.
            let is_whole = lines.length.is_multiple_of(*pack) && strides().all(|(_, from)| from.is_multiple_of(*pack));
            lines.steps == [1, 1] && tensors.iter().all(is_aligned) && is_alike && (is_whole || !reverse(spec))
        };
        let size = tensors.iter().map(|tensor| tensor.dtype.size()).max().unwrap_or(1);
        let widest = (16 / size).min(MAX_PACK);
        let pack = halves(widest).find(fits).unwrap_or(1);
        let leads = pack > 1 && strides().any(|(_, from)| !from.is_multiple_of(pack));
        if !lines.along || lines.count >= BUSY_BLOCKS || lines.length <= block * pack * LONG {
            return None;
        }
        // Threads hold as many numbers of eight bytes as of four: a total of eight bytes is two published words, so larger tiles save reads
        // of totals.
        let most = (BYTES * size.div_ceil(4) / (pack * size)).min(PACKS);
        let reach = lines.length + if leads { pack - 1 } else { 0 };
        // The fewest threads for which each block of a cluster has a tile.
        let held = most.min(CLUSTER_BYTES / (pack * size));
        let of_cluster = |threads: &u64| reach <= LARGEST_CLUSTER * threads * pack * held;
        let has_room = LARGEST_CLUSTER * lines.count <= UNITS && lines.length <= CLUSTER_LENGTH;
        if let Some(threads) = [block, 2 * block, LARGEST_BLOCK].into_iter().find(of_cluster).filter(|_| has_room) {
            let packs = reach.div_ceil(LARGEST_CLUSTER * threads * pack);
            return Some(Tiles { lines, pack, leads, packs, count: LARGEST_CLUSTER, threads, clusters: true });
        }
        // Smaller tiles if there are few.
        let packs = (lines.count * lines.length / (BUSY_BLOCKS * block * pack)).clamp(1, most);
        let count = reach.div_ceil(block * pack * packs);
        Some(Tiles { lines, pack, leads, packs, count, threads: block, clusters: false })
    }

    /// Returns the number of published totals: of the tiles of all lines, and of groups of tiles.
    fn totals(&self) -> [u64; 2] {
        [self.count, self.count.div_ceil(GROUP)].map(|each| self.lines.count * each)
    }

    fn published(&self, spec: &Spec) -> Totals {
        Totals::of(self.totals().iter().sum(), compute_type(spec))
    }

    /// Returns the cost of the scan, and before it that of the launch that clears the totals if blocks wait for one another.
    pub fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        let elements = spec.inputs[0].elements() as f64;
        let scan = Cost {
            instructions: EACH * elements + PER_PACK * elements / self.pack as f64,
            blocks: self.lines.count * self.count,
            share: share_with(self.threads, REGISTERS + self.packs * self.pack * compute_type(spec).size() / 4),
            // A block scans its rows, and the totals of its warps. It publishes its own total, and receives those of the tiles before it.
            exchanges: self.packs as f64 + 2.0,
            handoffs: if self.clusters { 0.0 } else { 1.0 },
            cluster_handoffs: if self.clusters { 1.0 } else { 0.0 },
            ..spec.streaming_cost(elements, 1)
        };
        if self.clusters { vec![scan] } else { vec![self.published(spec).clear_cost(), scan] }
    }

    pub fn launches(&self, scan: &Scan, spec: &Spec) -> Vec<Launch> {
        let Lines { geometry, length, steps, .. } = &self.lines;
        let ([tiles, _], totals) = (self.totals(), self.published(spec));
        let params = [
            param("Y* y", Arg::Operand(1)),
            param("const X* x", Arg::Operand(0)),
            match self.clusters {
                true => param("C* totals", Arg::Workspace(tiles * compute_type(spec).size())),
                false => totals.parameter(),
            },
            geometry_param("g", geometry),
            u64_param("all", tiles),
            u32_param("tiles", self.count),
            u64_param("n", *length),
            u64_param("sy", steps[0]),
            u64_param("sx", steps[1]),
        ];
        let before = format!(
            "{}typedef {} Index;\n#define T {}\n#define V {}\n#define U {}\n#define LEADS {}\n",
            definitions(scan, spec),
            index_type(length + 2 * LARGEST_CLUSTER * self.threads * self.pack * self.packs),
            self.threads,
            self.pack,
            self.packs,
            self.leads,
        );
        let text = |parts: &[&str]| {
            let body = parts.concat();
            if reverse(spec) { replaced(&body, &REVERSED) } else { body }
        };
        if self.clusters {
            return self.cluster_launches(scan, &before, &params, &text);
        }
        let before = format!(
            "{before}#define GROUP {GROUP}\n#define FAR {FAR}\n#define AHEAD {AHEAD}\n{}{AWAITED}",
            totals.text()
        );
        let body = text(&[TILE, OF_GROUPS, LOOK_BACK, RESULTS, LAST_OF_GROUP]);
        vec![totals.clear(scan), launch(scan.name(), &before, &params, &body, tiles, BLOCK)]
    }

    /// Returns the kernel whose blocks are clusters. On devices without them, it writes the totals of tiles alone, and a second kernel
    /// the results.
    fn cluster_launches(
        &self,
        scan: &Scan,
        before: &str,
        params: &[Parameter],
        text: &dyn Fn(&[&str]) -> String,
    ) -> Vec<Launch> {
        let before = format!("{before}#define TILES {LARGEST_CLUSTER}\n");
        let cluster = format!("#define CLUSTER_BLOCKS {LARGEST_CLUSTER}\n#define THREADS {}\n{CLUSTER}", self.threads);
        let blocks = self.lines.count * self.count;
        let first = text(&[TILE, BARRIER, EARLIER, RESULTS, "#endif\n"]);
        let first = launch(scan.name(), &format!("{before}{cluster}"), params, &first, blocks, self.threads as u32);
        let (name, bounds) = (format!("{}_results", scan.name()), bounds(self.threads as u32));
        let body = text(&[TILE, EARLIER, RESULTS]);
        let second = kernel(&name, &format!("{before}{bounds}"), params, &body, blocks, self.threads as u32);
        vec![first, Launch::Kernel(Kernel { without_clusters: true, ..second })]
    }
}

/// Kernel text that waits for totals.
const AWAITED: &str = r#"
// Returns whether a total is published, and reads it.
__device__ inline bool published(const volatile u64* from, C& total) {
  Total other;
  bool all = true;
#pragma unroll
  for (int w = 0; w < WORDS; w++) {
    const u64 word = from[w];
    other.bits[w] = (u32)word;
    all = all && word >> 32 != 0;
  }
  total = other.total;
  return all;
}
__device__ inline C awaited(const volatile u64* from) {
  C total;
  while (!published(from, total)) {}
  return total;
}
// Combines the values of the threads of a warp.
__device__ inline C across(C value) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value = JOIN(value, SHUFFLE_XOR(value, mask));
  return value;
}
"#;

/// Kernel text: a block finds the total of a tile. A warp has `U` rows of 32 packs, one after the other.
const TILE: &str = r#"  __shared__ C warps[T / 32], carries[T / 32];
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, line = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  const X* from = x + g.offset(line, 1);
  Y* to = y + g.offset(line, 0);
  // Positions count from the first pack, which may begin before the line.
  const Index lead = LEADS ? (Index)((u64)from / sizeof(X) % V) : 0, end = (Index)n + lead;
  from -= lead;
  to -= lead;
  const Index begin = (Index)tile * (T * V * U), first = begin + (warp * U * 32 + lane) * V;
  const bool whole = begin >= lead && begin + T * V * U <= end;
  Pack<X, V> packs[U];
#pragma unroll
  for (int u = 0; u < U; u++) {
    const Index j = first + u * 32 * V;
    // A partial pack is loaded whole: allocated memory never begins or ends inside of 16 bytes.
    if (whole || j < end) packs[u] = *(const Pack<X, V>*)(from + (u64)j * sx);
  }
  if (!whole) {
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
      for (int v = 0; v < V; v++) {
        const Index i = first + u * 32 * V + v;
        if (i < lead || i >= end) store<C>(packs[u].at[v], NONE);
      }
  }
  // Totals of the packs before a pack: in its row, then in its warp, then in the tile.
  C before[U], sum = NONE;
#pragma unroll
  for (int u = 0; u < U; u++) {
    C own = NONE, row;
#pragma unroll
    for (int v = 0; v < V; v++) own = JOIN(own, load<C>(packs[u].at[v]));
    before[u] = NONE;
    row = own;
#pragma unroll
    for (int mask = 1; mask < 32; mask *= 2) {
      C other = SHUFFLE_XOR(row, mask);
      if (lane & mask) before[u] = JOIN(other, before[u]);
      row = lane & mask ? JOIN(other, row) : JOIN(row, other);
    }
    before[u] = JOIN(sum, before[u]);
    sum = JOIN(sum, row);
  }
  if (lane == 0) warps[warp] = sum;
  __syncthreads();
  C total = NONE, lower = NONE;
#pragma unroll
  for (u32 w = 0; w < T / 32; w++) {
    if (w == warp) lower = total;
    total = JOIN(total, warps[w]);
  }
"#;

/// Kernel text: the totals of the tiles of a line, and those of groups of tiles.
const OF_GROUPS: &str = r#"  volatile u64* of_tiles = totals + (u64)line * tiles * WORDS;
  volatile u64* of_groups = totals + (all + (u64)line * ((tiles + GROUP - 1) / GROUP)) * WORDS;
"#;

/// Kernel text: a block publishes the total of its tile, and waits for those of earlier ones.
const LOOK_BACK: &str = r#"  if (threadIdx.x == 0) publish(of_tiles + tile * WORDS, total);
  // Totals of groups that have ended, and of the other tiles before this one. All loads of a thread are issued before the first is
  // awaited.
  const u32 groups = tile > FAR ? (tile - FAR) / GROUP : 0, others = groups + tile - groups * GROUP;
  C carry = NONE;
  for (u32 base = threadIdx.x; base < others; base += AHEAD * T) {
    C some[AHEAD];
    bool has[AHEAD], done;
#pragma unroll
    for (int e = 0; e < AHEAD; e++) {
      some[e] = NONE;
      has[e] = base + e * T >= others;
    }
    do {
      done = true;
#pragma unroll
      for (int e = 0; e < AHEAD; e++) {
        const u32 other = base + e * T;
        const volatile u64* from = other < groups ? of_groups + other * WORDS : of_tiles + (other - groups + groups * GROUP) * WORDS;
        if (!has[e]) has[e] = published(from, some[e]);
      }
#pragma unroll
      for (int e = 0; e < AHEAD; e++) done = done && has[e];
    } while (!done);
#pragma unroll
    for (int e = 0; e < AHEAD; e++) carry = JOIN(carry, some[e]);
  }
  carry = across(carry);
  if (lane == 0) carries[warp] = carry;
  __syncthreads();
  carry = carries[0];
#pragma unroll
  for (u32 w = 1; w < T / 32; w++) carry = JOIN(carry, carries[w]);
"#;

/// Kernel text: the blocks of a cluster exchange the totals of their tiles.
const BARRIER: &str = r#"  if (threadIdx.x == 0) totals[blockIdx.x] = total;
#if CLUSTER > 1
  cluster_barrier();
"#;

/// Kernel text: joins the totals of the tiles before this one.
const EARLIER: &str = r#"  C carry = NONE;
#pragma unroll
  for (u32 other = 0; other < TILES - 1; other++) if (other < tile) carry = JOIN(carry, totals[line * TILES + other]);
"#;

/// Kernel text: a block writes the results of its tile.
const RESULTS: &str = r#"  carry = JOIN(carry, lower);
#pragma unroll
  for (int u = 0; u < U; u++) {
    const Index j = first + u * 32 * V;
    C sum = JOIN(carry, before[u]);
    Pack<Y, V> r;
#pragma unroll
    for (int v = 0; v < V; v++) {
      sum = JOIN(sum, load<C>(packs[u].at[v]));
      store<C>(r.at[v], sum);
    }
    if (whole || (j >= lead && j + V <= end)) {
      store_whole((Pack<Y, V>*)(to + (u64)j * sy), r);
    } else {
#pragma unroll
      for (int v = 0; v < V; v++) if (j + v >= lead && j + v < end) to[(u64)(j + v) * sy] = r.at[v];
    }
  }
"#;

/// Kernel text: the last tile of a group publishes the total of the group.
const LAST_OF_GROUP: &str = r#"  if (warp == 0 && tile % GROUP == GROUP - 1) {
    C sum = NONE;
#pragma unroll
    for (u32 other = 0; other < GROUP; other += 32) {
      const u32 which = tile + 1 - GROUP + other + lane;
      sum = JOIN(sum, which == tile ? total : awaited(of_tiles + which * WORDS));
    }
    sum = across(sum);
    if (lane == 0) publish(of_groups + tile / GROUP * WORDS, sum);
  }
"#;

/// Substitutions that reverse the direction of the scan. Elements inside a pack keep their order.
const REVERSED: [(&str, &str); 5] = [
    ("(from + (u64)j * sx)", "(from + (u64)((Index)n - V - j) * sx)"),
    ("(to + (u64)j * sy)", "(to + (u64)((Index)n - V - j) * sy)"),
    ("own = JOIN(own, load<C>(packs[u].at[v]))", "own = JOIN(own, load<C>(packs[u].at[V - 1 - v]))"),
    ("sum = JOIN(sum, load<C>(packs[u].at[v]))", "sum = JOIN(sum, load<C>(packs[u].at[V - 1 - v]))"),
    ("store<C>(r.at[v], sum)", "store<C>(r.at[V - 1 - v], sum)"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reverse_scans_change_parts_that_exist() {
        for (plain, _) in REVERSED {
            assert_eq!([TILE, RESULTS].concat().matches(plain).count(), 1, "{plain}");
        }
    }
}
