//! `permute` and `unpermute`: sort rows by the expert that they chose, without a capacity, and restore their order.

use super::gather::{Columns, PACKS_OF_A_THREAD, RowPacks, head_geometry};
use crate::ops::expression::ball::Precision;
use crate::ops::kernels::kernel::{BLOCK, c_type, geometry_param, index_type, launch, param, u32_param, u64_param};
use crate::ops::kernels::occupancy::{RESIDENT_BLOCKS, UNIT_THREADS, UNITS, share};
use crate::ops::kernels::radix::RowSort;
use crate::ops::live_rows::{held, holding};
use crate::ops::*;

/// `permute(x, choices, experts: n)`.
pub struct Permute;

/// `unpermute(y, places, weights)`.
pub struct Unpermute;

/// Instructions per thread for finding the rows of its packs: executed instructions on an H100, from hardware counters.
const PER_THREAD: f64 = 60.0;
/// Instructions of `unpermute` per choice of a row.
const PER_CHOICE: f64 = 30.0;
/// Instructions per pack that is moved.
const PER_PACK: f64 = 12.0;

/// Instructions of `unpermute` per pack that is multiplied by a weight and added, besides those of moving it.
const PER_TERM: f64 = 18.0;

/// Further instructions per pack of rows that may begin inside a pack: two aligned packs are loaded, shifted and
/// joined. Executed instructions on an H100, from hardware counters.
const PER_RAGGED: f64 = 90.0;

/// Number of choices per row: one, or the size of the second dimension.
fn per_row(choices: &Tensor) -> u64 {
    choices.dims.get(1).copied().unwrap_or(1)
}

/// Number of choices or places that are valid: all, unless data determines them.
fn live_rows(spec: &Spec, choices: &Tensor) -> u64 {
    spec.live.map_or(choices.elements(), |live| live.rows)
}

/// Elements per row: the product of all dimensions but the first.
fn row_length(tensor: &Tensor) -> usize {
    tensor.dims[1..].iter().product::<u64>() as usize
}

/// Returns the tensor's shape with `rows` as the size of the first dimension.
fn with_rows(tensor: &Tensor, rows: u64) -> Dims {
    let mut dims = tensor.dims;
    dims.set(0, rows);
    dims
}

impl Call<'_> {
    /// Returns an error unless the second input has one index or a list of indices for each row, fewer than 2^31 in all.
    /// `rows` is the required number of rows; `None` if any number is permitted.
    fn needs_choices(&self, rows: Option<u64>) -> Result<(), OpError> {
        let choices = &self.inputs[1];
        self.needs_indices(choices)?;
        let dims = &choices.tensor.dims;
        if !(1..=2).contains(&dims.len()) || choices.tensor.elements() > i32::MAX as u64 {
            return Err(self.bad_shape(choices, "rows, or rows and the choices of each, at most 2^31 in all"));
        }
        match rows {
            Some(rows) if dims[0] != rows => {
                let (has, found) = (format!("this has {rows} rows"), format!("this is for {} rows", dims[0]));
                Err(self.differs(0, has, 1, found, "each row has its choices: both have the same first dimension"))
            }
            _ => Ok(()),
        }
    }
}

impl Operation for Permute {
    signature! {
        name: "permute",
        summary: "sorts rows by the expert they chose; also returns the new position of each choice and the number of rows per expert",
        category: Category::Movement,
        inputs: &[Input::Tensor("x"), Input::Tensor("choices")],
        outputs: &["y", "places", "counts"],
        options: &[OptionSpec::required(
            "experts",
            OptionType::Int(1, 1 << 20),
            "the number of experts; a choice out of range, such as -1, is ignored",
        )],
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_rank(0, 1, "whose first are the rows")?;
        let (x, choices) = (&call.inputs[0].tensor, &call.inputs[1].tensor);
        call.needs_choices(Some(x.dims[0]))?;
        let counts = Dims::from([call.attrs.int("experts") as u64]);
        Ok(vec![
            call.output(0, x.dtype, with_rows(x, choices.elements()))?,
            call.output(1, DType::I32, choices.dims)?,
            call.output(2, DType::I32, counts)?,
        ])
    }

    fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        let (x, choices, y) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let sort = *RowSort::of(choices.elements(), spec.attrs.int("experts") as u64).radix();
        let columns = Columns::of(y, 1, x, 1);
        let packs = row_packs(choices.elements(), &columns, x.dtype, PACKS_OF_A_THREAD);
        let found = Traffic::of(Space::Device, choices.elements() * 4) + Spec::bytes_of(&[*choices]);
        let moves = Cost {
            instructions: of_threads(&packs) + per_pack(&packs) * packs.count as f64,
            // Rows of `y` without a choice become zeros.
            read: Traffic::of(x.space, live_rows(spec, choices) * columns.length * x.dtype.size()) + found,
            written: Spec::bytes_of(&spec.outputs),
            blocks: packs.blocks(),
            share: share(u64::from(BLOCK)),
            // A thread reads a position, then the row. If not all blocks run at the same time, counting the rows of
            // each expert by a binary search overlaps with moving rows.
            waits: match packs.blocks() <= RESIDENT_BLOCKS {
                true => f64::from((choices.elements().max(2) - 1).ilog2() + 1),
                false => 1.0,
            },
            ..Cost::default()
        };
        sort.launch_costs(choices.dtype.size(), sort.entry()).into_iter().chain([moves]).collect()
    }

    fn live_rows(&self, spec: &Spec, facts: &[Option<RowFact>]) -> LiveOperation {
        let choices = &spec.inputs[1];
        let [y, places, _] = &*spec.outputs else { unreachable!("the signature has three outputs") };
        let chosen = held(facts, 1).map(|live| LiveRows { rows: live.rows * per_row(choices), ..live });
        let counted = chosen.unwrap_or(LiveRows { rows: choices.elements(), exact: true });
        let of_places = held(facts, 1).and_then(|live| holding(places, live));
        LiveOperation {
            works_on: chosen,
            outputs: vec![holding(y, counted), of_places, Some(RowFact::Counts(counted))],
        }
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let (length, each) = (row_length(&spec.inputs[0]), per_row(&spec.inputs[1]) as usize);
        let [y, places, counts] = outputs else { unreachable!("the signature has three outputs") };
        let experts = counts.len();
        let mut order: Vec<usize> = (0..inputs[1].len()).collect();
        order.retain(|&choice| (0.0..experts as f64).contains(&inputs[1][choice]));
        order.sort_by(|&a, &b| inputs[1][a].total_cmp(&inputs[1][b]));
        y.fill(0.0);
        places.fill(-1.0);
        counts.fill(0.0);
        for (place, choice) in order.into_iter().enumerate() {
            y[place * length..][..length].copy_from_slice(&inputs[0][choice / each * length..][..length]);
            places[choice] = place as f64;
            counts[inputs[1][choice] as usize] += 1.0;
        }
    }

    /// Returns kernels that sort the choices by expert, and one whose threads move the row of each sorted choice.
    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let (x, choices) = (&spec.inputs[0], &spec.inputs[1]);
        let [y, places, counts] = &*spec.outputs else { unreachable!("the signature has three outputs") };
        let (count, experts) = (choices.elements(), counts.dims[0]);
        let sort = RowSort::of(count, experts);
        let outer = head_geometry(places, choices, choices.dims.len());
        let columns = Columns::of(y, 1, x, 1);
        let packs = row_packs(count, &columns, x.dtype, PACKS_OF_A_THREAD);
        let dtype = c_type(x.dtype);
        let params = [
            param("u8* workspace", Arg::Workspace(sort.radix().workspace())),
            param(format!("{dtype}* __restrict__ y"), Arg::Operand(2)),
            param("i32* __restrict__ places", Arg::Operand(3)),
            param("i32* counts", Arg::Operand(4)),
            param(format!("const {dtype}* __restrict__ x"), Arg::Operand(0)),
            param(format!("const {}* __restrict__ choices", c_type(choices.dtype)), Arg::Operand(1)),
            geometry_param("outer", &outer),
            geometry_param("inner", &columns.geometry),
            u64_param("count", count),
            u64_param("experts", experts),
            u64_param("each", per_row(choices)),
            u64_param("sy", y.strides[0]),
            u64_param("sx", x.strides[0]),
            u64_param("sc", counts.strides[0]),
            u64_param("n", columns.length),
        ];
        let before = format!(
            "{}{}#define SIDE {}\ntypedef {dtype} E;\n",
            sort.radix().text(),
            packs.text(&columns),
            sort.radix().side()
        );
        let mut launches = sort.launches(choices, 1, &outer, 1);
        launches.push(launch("permute", &before, &params, PERMUTE, packs.blocks(), BLOCK));
        launches
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::permute(rule)
    }
}

/// Maximum number of rows that a thread of `unpermute` reads before it adds them.
const AHEAD: u64 = 4;

/// Returns the division of `rows` rows among threads with at most `most` packs.
fn row_packs(rows: u64, columns: &Columns, dtype: DType, most: u64) -> RowPacks {
    // The address of an unaligned pack takes more instructions, which only pays off if there are many packs.
    let is_large = rows * columns.length >= UNITS * UNIT_THREADS * (16 / dtype.size());
    let (pack, ragged) = if is_large { columns.packs(dtype) } else { (columns.pack, false) };
    RowPacks::of(rows, columns.length, pack, ragged, most)
}

/// Instructions of all threads for finding the rows of their packs.
fn of_threads(packs: &RowPacks) -> f64 {
    PER_THREAD * (packs.blocks() * u64::from(BLOCK)) as f64
}

/// Number of instructions per pack.
fn per_pack(packs: &RowPacks) -> f64 {
    PER_PACK + if packs.ragged { PER_RAGGED } else { 0.0 }
}

/// Moves rows in the order of the sorted choices. Invalid choices have no position; rows without a choice become
/// zeros.
const PERMUTE: &str = r#"  P all = live(workspace);
  const Key* sorted = keys_of(workspace, SIDE);
  // Returns the first sorted choice with at least this expert.
  auto first = [&](u64 expert) {
    P from = 0, to = all;
    while (from < to) {
      P middle = from + (to - from) / 2;
      if (sorted[middle] < expert) from = middle + 1; else to = middle;
    }
    return from;
  };
  for (u64 e = GLOBAL_INDEX; e < experts; e += (u64)gridDim.x * blockDim.x) counts[e * sc] = (i32)(first(e + 1) - first(e));
  const Place begin = (Place)blockIdx.x * (256 * U) + threadIdx.x;
  Place rows[U];
  i64 columns[U];
  bool taken[U];
  P choices_of[U];
#pragma unroll
  for (u32 u = 0; u < U; u++) {
    const Place own = begin + u * 256;
    rows[u] = own / PACKS, columns[u] = (i64)(own - rows[u] * PACKS) * V;
    taken[u] = rows[u] < all && rows[u] < (Place)count;
    choices_of[u] = taken[u] ? places_of(workspace, SIDE)[rows[u]] : 0;
  }
  Raw held[U];
#pragma unroll
  for (u32 u = 0; u < U; u++) {
    held[u] = Raw();
    columns[u] -= LEAD(y + (i64)rows[u] * (i64)sy);
    if (taken[u]) held[u] = READ_ROW(x + (i64)(choices_of[u] / each) * (i64)sx, columns[u]);
  }
#pragma unroll
  for (u32 u = 0; u < U; u++) {
    if (rows[u] >= (Place)count) return;
    if (columns[u] <= 0) {
      const P r = (P)rows[u];
      i64 own = (i64)choices[outer.offset(r, 1)];
      if (own < 0 || (u64)own >= experts) places[outer.offset(r, 0)] = -1;
      if (taken[u]) places[outer.offset(choices_of[u], 0)] = (i32)r;
    }
    PUT(y + (i64)rows[u] * (i64)sy, columns[u], ELEMENTS(held[u]));
  }
"#;

impl Operation for Unpermute {
    signature! {
        name: "unpermute",
        summary: "the inverse of `permute`: for each row, the (weighted) sum of the rows of `y` at its positions",
        category: Category::Movement,
        inputs: &[Input::Tensor("y"), Input::Tensor("places"), Input::Optional("weights")],
        outputs: &["x"],
        options: &[],
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_rank(0, 1, "whose first are the rows")?;
        let y = &call.inputs[0];
        call.needs_float(y, "floating-point values")?;
        call.needs_choices(None)?;
        let places = &call.inputs[1].tensor;
        if let Some(weights) = call.inputs.get(2) {
            call.needs_float(weights, "floating-point weights")?;
            if weights.tensor.dims != places.dims {
                let (has, found) = (format!("this is {}", places.dims), format!("this is {}", weights.tensor.dims));
                return Err(call.differs(1, has, 2, found, "there is a weight for each place"));
            }
        }
        Ok(vec![call.output(0, y.tensor.dtype, with_rows(&y.tensor, places.dims[0]))?])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        let (y, places, x) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let columns = Columns::of(x, 1, y, 1);
        let terms = live_rows(spec, places) * columns.length;
        let packs = row_packs(x.dims[0], &columns, x.dtype, sums_of_a_thread(places));
        let flops = if spec.inputs.len() > 2 { 2 } else { 1 };
        Cost {
            flops: (flops * terms) as f64,
            instructions: of_threads(&packs)
                + PER_CHOICE * places.elements() as f64
                + (PER_TERM + per_pack(&packs)) * (per_row(places) * packs.count) as f64
                + 2.0 * terms as f64,
            read: Spec::bytes_of(&spec.inputs[1..]) + Traffic::of(y.space, terms * y.dtype.size()),
            written: Spec::bytes_of(&spec.outputs),
            blocks: packs.blocks(),
            share: share(u64::from(BLOCK)),
            // Places, then rows: four at once.
            waits: per_row(places).div_ceil(AHEAD) as f64 * 2.0 - 1.0,
            ..Cost::default()
        }
    }

    fn live_rows(&self, spec: &Spec, facts: &[Option<RowFact>]) -> LiveOperation {
        let works_on = held(facts, 1).map(|live| LiveRows { rows: live.rows * per_row(&spec.inputs[1]), ..live });
        let of_x = held(facts, 1).and_then(|live| holding(&spec.outputs[0], live));
        LiveOperation { works_on, outputs: vec![of_x] }
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        joined(spec, inputs, &mut outputs[0], |term| term);
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        self.reference(spec, inputs, outputs);
        let mut sizes = vec![0.0; outputs[0].len()];
        joined(spec, inputs, &mut sizes, f64::abs);
        // Each term is rounded after its multiplication by a weight, and the sum after each addition.
        let weighed = u64::from(spec.inputs.len() > 2);
        let roundings = (per_row(&spec.inputs[1]) - 1 + weighed) as f64;
        let unit = Precision::of(compute(spec)).unit();
        vec![Tolerance::Within(sizes.iter().map(|size| roundings * unit * size).collect())]
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let (y, places, x) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
        let weights = spec.inputs.get(2);
        let outer = head_geometry(places, weights.unwrap_or(places), places.dims.len());
        let columns = Columns::of(x, 1, y, 1);
        let packs = row_packs(x.dims[0], &columns, x.dtype, sums_of_a_thread(places));
        let dtype = c_type(y.dtype);
        let mut params = vec![
            param(format!("{dtype}* __restrict__ x"), Arg::Operand(spec.inputs.len() as u8)),
            param(format!("const {dtype}* __restrict__ y"), Arg::Operand(0)),
            param(format!("const {}* __restrict__ places", c_type(places.dtype)), Arg::Operand(1)),
            geometry_param("outer", &outer),
            geometry_param("inner", &columns.geometry),
            u64_param("count", x.dims[0]),
            u64_param("rows", y.dims[0]),
            u32_param("each", per_row(places)),
            u64_param("sx", x.strides[0]),
            u64_param("sy", y.strides[0]),
            u64_param("n", columns.length),
        ];
        let mut weight = "C(1)";
        if let Some(weights) = weights {
            params.push(param(format!("const {}* __restrict__ weights", c_type(weights.dtype)), Arg::Operand(2)));
            weight = "load<C>(weights[outer.offset(p, 1)])";
        }
        let before = format!(
            "typedef {} C;\ntypedef {} Index;\n#define AHEAD {}\n{}typedef {dtype} E;\n#define WEIGHT(p) {weight}\n",
            c_type(compute(spec)),
            index_type(places.elements()),
            per_row(places).clamp(1, AHEAD),
            packs.text(&columns),
        );
        vec![launch("unpermute", &before, &params, UNPERMUTE, packs.blocks(), BLOCK)]
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::unpermute(rule)
    }
}

/// Type in which sums are computed, independent of the indices' type.
fn compute(spec: &Spec) -> DType {
    spec.inputs
        .iter()
        .filter(|input| input.dtype.is_float())
        .map(|input| input.dtype.compute())
        .fold(DType::F32, DType::promote)
}

/// Maximum number of packs of the result per thread, whose terms must fit its registers.
fn sums_of_a_thread(places: &Tensor) -> u64 {
    (AHEAD / per_row(places).clamp(1, AHEAD)).min(PACKS_OF_A_THREAD)
}

/// Writes the sum of each row's terms, in the order of its indices. `term` is applied to each weighted term.
fn joined(spec: &Spec, inputs: &[&[f64]], x: &mut [f64], term: impl Fn(f64) -> f64) {
    let (length, each) = (row_length(&spec.inputs[0]), per_row(&spec.inputs[1]) as usize);
    let rows = spec.inputs[0].dims[0] as f64;
    for (row, x) in x.chunks_mut(length).enumerate() {
        x.fill(0.0);
        for choice in row * each..(row + 1) * each {
            let place = inputs[1][choice];
            if !(0.0..rows).contains(&place) {
                continue;
            }
            let weight = inputs.get(2).map_or(1.0, |weights| weights[choice]);
            let y = &inputs[0][place as usize * length..][..length];
            x.iter_mut().zip(y).for_each(|(x, y)| *x += term(y * weight));
        }
    }
}

/// Kernel text: a thread computes packs of the result. It reads several rows before it adds them.
const UNPERMUTE: &str = r#"  const Place begin = (Place)blockIdx.x * (256 * U) + threadIdx.x;
  Place own[U];
  i64 columns[U];
  C sum[U][V];
#pragma unroll
  for (u32 u = 0; u < U; u++) {
    own[u] = (begin + u * 256) / PACKS;
    columns[u] = (i64)(begin + u * 256 - own[u] * PACKS) * V - LEAD(x + (i64)own[u] * (i64)sx);
#pragma unroll
    for (int c = 0; c < V; c++) sum[u][c] = 0;
  }
  for (u32 base = 0; base < each; base += AHEAD) {
    // Loads without branches are under way at the same time.
    i64 from[U][AHEAD];
    C weight[U][AHEAD];
    Raw held[U][AHEAD];
#pragma unroll
    for (u32 u = 0; u < U; u++)
#pragma unroll
      for (u32 a = 0; a < AHEAD; a++) {
        const Index p = (Index)own[u] * each + base + a;
        const bool exists = own[u] < (Place)count && base + a < each;
        from[u][a] = exists ? (i64)places[outer.offset(p, 0)] : -1;
        weight[u][a] = exists ? WEIGHT(p) : C(0);
      }
#pragma unroll
    for (u32 u = 0; u < U; u++)
#pragma unroll
      for (u32 a = 0; a < AHEAD; a++) {
        held[u][a] = Raw();
        if ((u64)from[u][a] < rows) held[u][a] = READ_ROW(y + from[u][a] * (i64)sy, columns[u]);
      }
#pragma unroll
    for (u32 u = 0; u < U; u++)
#pragma unroll
      for (u32 a = 0; a < AHEAD; a++) {
        if ((u64)from[u][a] >= rows) continue;
        const Pack<E, V> v = ELEMENTS(held[u][a]);
#pragma unroll
        for (int c = 0; c < V; c++) sum[u][c] += load<C>(v.at[c]) * weight[u][a];
      }
  }
#pragma unroll
  for (u32 u = 0; u < U; u++) {
    if (own[u] >= (Place)count) return;
    Pack<E, V> result;
#pragma unroll
    for (int c = 0; c < V; c++) store<C>(result.at[c], sum[u][c]);
    PUT(x + (i64)own[u] * (i64)sx, columns[u], result);
  }
"#;

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row appears once per choice, and the rows of an expert are consecutive and in order.
    #[test]
    fn rows_go_to_their_experts_and_back() {
        let tensor = Tensor::packed;
        let (x, y) = (tensor(DType::F64, &[3, 2]), tensor(DType::F64, &[6, 2]));
        let (choices, counts) = (tensor(DType::I32, &[3, 2]), tensor(DType::I32, &[3]));
        let spec = |operation: &'static dyn Operation, inputs: &[Tensor], outputs: &[Tensor]| {
            Spec::new(operation, Attrs::of([("experts", Attr::Int(3))]), inputs.to_vec(), outputs.to_vec())
        };
        let rows = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let chosen = [2.0, 0.0, 0.0, -1.0, 2.0, 3.0];
        let mut outputs = vec![vec![9.0; 12], vec![9.0; 6], vec![9.0; 3]];
        Permute.reference(&spec(&Permute, &[x, choices], &[y, choices, counts]), &[&rows, &chosen], &mut outputs);
        assert_eq!(outputs[0], [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 5.0, 6.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(outputs[1], [2.0, 0.0, 1.0, -1.0, 3.0, -1.0]);
        assert_eq!(outputs[2], [2.0, 0.0, 2.0]);
        let mut back = vec![vec![9.0; 6]];
        Unpermute.reference(&spec(&Unpermute, &[y, choices], &[x]), &[&outputs[0], &outputs[1]], &mut back);
        assert_eq!(back[0], [2.0, 4.0, 3.0, 4.0, 5.0, 6.0]);
        let weights = [0.5, 2.0, 3.0, 7.0, -1.0, 7.0];
        let weighted = spec(&Unpermute, &[y, choices, tensor(DType::F64, &[3, 2])], &[x]);
        Unpermute.reference(&weighted, &[&outputs[0], &outputs[1], &weights], &mut back);
        assert_eq!(back[0], [2.5, 5.0, 9.0, 12.0, -5.0, -6.0]);
    }
}
