//! Division of rows among groups of threads, which copy them in packs of 16 bytes at any alignment.
//!
//! A group of threads copies a row, or a chunk of a long one. So its threads find the row's address, alignment and ends once for several packs.

use super::kernel::{BLOCK, bounds, index_type};
use super::occupancy::{UNIT_THREADS, UNITS, WARP};
use super::ragged::{MAX_COLUMN, RAGGED};
use crate::ops::layout::halves;

/// Minimum number of threads of a group, which access a line of a row at once.
const MIN_THREADS: u64 = 8;
/// Maximum number of packs of a thread, whose loads are in flight at the same time.
const MAX_EACH: u64 = 2;

/// Instructions of a thread for the row and its ends: machine code for sm_90a by NVRTC 13.0.
const PER_ROW: f64 = 110.0;
/// Instructions of a thread per pack, from the same code.
const PER_PACK: f64 = 30.0;

/// Division of rows among groups of threads.
#[derive(Clone, Copy, Debug)]
pub struct RowGroups {
    rows: u64,
    /// Number of elements of a row.
    length: u64,
    /// Number of elements of a pack.
    pack: u64,
    /// Number of threads of a group.
    lanes: u64,
    /// Number of packs per thread.
    each: u64,
}

impl RowGroups {
    /// Returns the division with the most packs for each thread, then with the largest groups, that leaves few threads without a pack.
    ///
    /// A group has at least [`MIN_THREADS`] threads, or half a warp if rows have as many packs: smaller groups access more lines at once. Threads
    /// that would not fill the device have a pack each. `None` if rows are shorter than the packs of a group, or too long for positions of 32 bits.
    pub fn of(rows: u64, length: u64, pack: u64) -> Option<RowGroups> {
        if length < MIN_THREADS * pack || length >= MAX_COLUMN {
            return None;
        }
        let least = if length < WARP / 2 * pack { MIN_THREADS } else { WARP / 2 };
        let groups = |each| {
            let lanes = halves(WARP).take_while(move |lanes| *lanes >= least);
            lanes.map(move |lanes| RowGroups { rows, length, pack, lanes, each })
        };
        let fills = |groups: &RowGroups| groups.threads() >= UNITS * UNIT_THREADS || groups.each == 1;
        let all: Vec<RowGroups> = halves(MAX_EACH).flat_map(groups).filter(fills).collect();
        let places = |groups: &RowGroups| groups.threads() * groups.each;
        let fewest = all.iter().map(places).min()?;
        all.into_iter().find(|groups| 8 * places(groups) <= 9 * fewest)
    }

    /// Returns the division of other rows with the same groups; `None` if the rows are shorter than the packs of a group.
    pub fn with(&self, rows: u64, length: u64) -> Option<RowGroups> {
        (MIN_THREADS * self.pack <= length && length < MAX_COLUMN).then_some(RowGroups { rows, length, ..*self })
    }

    /// Number of elements of a row.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Number of packs of a row that can be whole.
    fn packs(&self) -> u64 {
        self.length / self.pack
    }

    /// Number of groups that share a row.
    pub fn chunks(&self) -> u64 {
        self.packs().div_ceil(self.lanes * self.each)
    }

    /// Number of groups of all rows.
    pub fn groups(&self) -> u64 {
        self.rows * self.chunks()
    }

    pub fn threads(&self) -> u64 {
        self.groups() * self.lanes
    }

    pub fn blocks(&self) -> u64 {
        self.threads().div_ceil(u64::from(BLOCK)).max(1)
    }

    /// Number of instructions of all threads.
    pub fn instructions(&self) -> f64 {
        self.threads() as f64 * (PER_ROW + PER_PACK * self.each as f64)
    }

    /// Returns kernel text that defines `V`, the type `Place` of the number of a group among those of `threads` threads, and [`COPY`].
    pub fn text(&self, threads: u64) -> String {
        format!(
            "{}typedef {} Place;\n#define V {}\n#define LANES {}\n#define EACH {}\n#define CHUNKS {}\n{RAGGED}{COPY}",
            bounds(BLOCK),
            index_type(threads + u64::from(BLOCK)),
            self.pack,
            self.lanes,
            self.each,
            self.chunks(),
        )
    }
}

/// Kernel text that defines `copy_row`: the thread `lane` of a group of `LANES` copies its part of the chunk of a row of `n` elements. The
/// target becomes zero if there is no source.
const COPY: &str = r#"
template <typename Element> __device__ inline void copy_row(Element* to, const Element* from, bool exists, u32 n, u32 chunk, u32 lane) {
  // The first group of a row also copies the elements before and behind the whole packs of the target.
  const u32 SINGLES = (2 * V - 2 + LANES - 1) / LANES;
  const u32 head = (0 - lead_of(to)) % V, whole = (n - head) / V, ends = n - whole * V, shift = (u32)((u64)(from + head) % 16);
  const Pack<u32, 4>* source = (const Pack<u32, 4>*)((const u8*)(from + head) - shift);
  const u32 first = chunk * (EACH * LANES) + lane;
  Element* own = to + head + first * V;
  auto single_at = [&](u32 s) { return s * LANES + lane < head ? s * LANES + lane : s * LANES + lane + whole * V; };
  Element singles[SINGLES];
  if (chunk == 0) {
#pragma unroll
    for (u32 s = 0; s < SINGLES; s++) {
      singles[s] = Element();
      if (exists && s * LANES + lane < ends) singles[s] = from[single_at(s)];
    }
  }
  Held<Element> held[EACH];
#pragma unroll
  for (u32 e = 0; e < EACH; e++) {
    held[e] = {};
    held[e].shift = shift;
    if (exists && first + e * LANES < whole) {
      held[e].packs[0] = source[first + e * LANES];
      if (shift > 0) held[e].packs[1] = source[first + e * LANES + 1];
    }
  }
#pragma unroll
  for (u32 e = 0; e < EACH; e++) {
    union Words { Pack<Element, V> elements; u32 w[4]; __device__ Words() {} } words;
    words.elements = held[e].elements();
    if (first + e * LANES < whole) store_words(own + e * (LANES * V), words.w);
  }
  if (chunk == 0) {
#pragma unroll
    for (u32 s = 0; s < SINGLES; s++) if (s * LANES + lane < ends) to[single_at(s)] = singles[s];
  }
}
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pack_has_a_thread_and_few_threads_have_none() {
        for pack in [2, 4, 8, 16] {
            for length in MIN_THREADS * pack..200 * pack {
                for rows in [1, 1000, 1 << 20] {
                    let groups = RowGroups::of(rows, length, pack).expect("a row has packs for a group");
                    let places = groups.chunks() * groups.lanes * groups.each;
                    let whole = groups.packs().next_multiple_of(WARP / 2);
                    assert!(groups.packs() <= places && 8 * places <= 9 * whole, "{groups:?}");
                }
            }
        }
    }
}
