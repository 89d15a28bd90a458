//! Kernel of a scan of many short lines along the last dimension that are not whole packs. A block copies contiguous lines to
//! shared memory in packs, each of its threads scans a line there, and the block writes the results in packs.

use super::super::layout::halves;
use super::kernel::{EACH, Lines, MAX_PACK, PER_PACK, definitions};
use super::*;
use crate::ops::kernels::kernel::{BLOCK, index_type, launch, param, replaced, u64_param};
use crate::ops::kernels::occupancy::{LINE, UNITS, share};

/// Division of short lines among blocks of [`BLOCK`] lines.
pub struct ShortLines {
    /// Number of lines.
    count: u64,
    /// Number of elements of a line.
    length: u64,
    /// Number of elements of a pack.
    pack: u64,
}

impl ShortLines {
    /// Returns the division; `None` if lines are long, few, apart, or whole packs.
    pub fn of(spec: &Spec) -> Option<ShortLines> {
        let Lines { count, length, along, .. } = Lines::of(spec);
        let (x, y) = (&spec.inputs[0], &spec.outputs[0]);
        let size = x.dtype.size();
        let is_flat = along && x.dtype == y.dtype && x.contiguous() && y.contiguous();
        // A line of a cache line's length has few partial packs.
        let is_short = length > 1 && length * size < LINE && count >= UNITS * u64::from(BLOCK);
        let is_aligned = |pack: &u64| [x, y].iter().all(|tensor| u64::from(tensor.align).is_multiple_of(pack * size));
        let pack = halves((16 / size).min(MAX_PACK)).find(is_aligned)?;
        // A line that is a pack, or several, needs no exchange.
        let is_whole = length.is_multiple_of(pack) || pack.is_multiple_of(length);
        (is_flat && is_short && !is_whole).then_some(ShortLines { count, length, pack })
    }

    fn blocks(&self) -> u64 {
        self.count.div_ceil(u64::from(BLOCK))
    }

    pub fn cost(&self, spec: &Spec) -> Cost {
        let elements = spec.inputs[0].elements() as f64;
        Cost {
            instructions: 2.0 * EACH * elements + PER_PACK * self.count as f64,
            blocks: self.blocks(),
            share: share(u64::from(BLOCK)),
            // The lines arrive in shared memory before threads scan them, and the results before packs are written.
            exchanges: 2.0,
            ..spec.streaming_cost(elements, 1)
        }
    }

    pub fn launch(&self, scan: &Scan, spec: &Spec) -> Launch {
        let total = self.count * self.length;
        let params = [param("Y* y", Arg::Operand(1)), param("const X* x", Arg::Operand(0)), u64_param("total", total)];
        let before = format!(
            "{}typedef {} Index;\n#define T {BLOCK}\n#define N {}\n#define V {}\n",
            definitions(scan, spec),
            index_type(total + u64::from(BLOCK) * self.length),
            self.length,
            self.pack,
        );
        let body = if reverse(spec) { replaced(SHORT_LINES, &REVERSED) } else { SHORT_LINES.to_owned() };
        launch(scan.name(), &before, &params, &body, self.blocks(), BLOCK)
    }
}

/// Kernel text: a thread scans a line of `N` elements.
const SHORT_LINES: &str = r#"  const u32 PACKS = T * N / V, EACH_THREAD = (PACKS + T - 1) / T;
  __shared__ Pack<X, V> held[PACKS];
  const Index begin = (Index)blockIdx.x * (T * N);
  const u32 here = (Index)total - begin < T * N ? (u32)((Index)total - begin) : T * N;
  Pack<X, V> packs[EACH_THREAD];
#pragma unroll
  for (u32 k = 0; k < EACH_THREAD; k++) {
    const u32 pack = k * T + threadIdx.x;
    // A partial pack is loaded whole: allocated memory never begins or ends within 16 bytes.
    if (pack * V < here) packs[k] = *(const Pack<X, V>*)(x + begin + pack * V);
  }
#pragma unroll
  for (u32 k = 0; k < EACH_THREAD; k++) {
    const u32 pack = k * T + threadIdx.x;
    if (pack * V < here) held[pack] = packs[k];
  }
  __syncthreads();
  X* line = (X*)held + threadIdx.x * N;
  if (threadIdx.x * N < here) {
    X own[N];
#pragma unroll
    for (u32 i = 0; i < N; i++) own[i] = line[i];
    C sum = NONE;
#pragma unroll
    for (u32 i = 0; i < N; i++) {
      sum = JOIN(sum, load<C>(own[i]));
      store<C>(line[i], sum);
    }
  }
  __syncthreads();
#pragma unroll
  for (u32 k = 0; k < EACH_THREAD; k++) {
    const u32 pack = k * T + threadIdx.x;
    if (pack * V + V <= here) {
      *(Pack<Y, V>*)(y + begin + pack * V) = held[pack];
    } else {
#pragma unroll
      for (u32 v = 0; v < V; v++) if (pack * V + v < here) y[begin + pack * V + v] = held[pack].at[v];
    }
  }
"#;

/// Substitutions that reverse the direction of the scan.
const REVERSED: [(&str, &str); 2] =
    [("load<C>(own[i])", "load<C>(own[N - 1 - i])"), ("store<C>(line[i], sum)", "store<C>(line[N - 1 - i], sum)")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reverse_scans_change_parts_that_exist() {
        for (plain, _) in REVERSED {
            assert_eq!(SHORT_LINES.matches(plain).count(), 1, "{plain}");
        }
    }

    #[test]
    fn short_lines_have_a_thread_each_unless_they_are_whole_packs() {
        let packs = |dtype, dims: &[u64]| {
            let x = Tensor::packed(dtype, dims);
            let attrs = Attrs::of([("dim", Attr::Int(-1)), ("reverse", Attr::Bool(false))]);
            ShortLines::of(&Spec::new(&Scan { multiplies: false }, attrs, vec![x], vec![x])).map(|lines| lines.pack)
        };
        assert_eq!(packs(DType::BF16, &[65536, 56, 9]), Some(8));
        assert_eq!(packs(DType::F32, &[65536, 56, 31]), Some(4));
        assert_eq!(packs(DType::F64, &[65536, 3]), Some(2));
        assert_eq!(packs(DType::BF16, &[65536, 56, 16]), None);
        assert_eq!(packs(DType::F32, &[65536, 33]), None);
        assert_eq!(packs(DType::F32, &[1000, 9]), None);
        assert_eq!(packs(DType::F32, &[65536, 1]), None);
        assert_eq!(packs(DType::BF16, &[65536, 4]), None);
    }
}
