//! `transpose`: permutes the dimensions of a tensor.

use super::box_tiles::BoxTiles;
use super::few_rows::FewRows;
use super::interleave::{Interleaved, WALKED, WALKED_TENSOR};
use super::kernel::{BLOCK, c_type, geometry_param, index_type, launch, param, u64_param};
use super::occupancy::SECTOR;
use super::ragged::RAGGED;
use super::word_tiles::WordTiles;
use super::*;

/// `transpose(x)`.
pub struct Transpose;

/// Returns, for each dimension of the output, the dimension of the input that it comes from.
pub(super) fn permutation(attrs: &Attrs, rank: usize) -> Vec<usize> {
    match attrs.axes("dims") {
        Some(axes) => axes.iter().map(|&axis| axis as usize).collect(),
        None => {
            let mut order: Vec<usize> = (0..rank).collect();
            order.swap(rank - 1, rank - 2);
            order
        }
    }
}

/// Whether an operation is a `transpose` that exchanges only the last two dimensions.
pub fn exchanges_last(spec: &Spec) -> bool {
    let rank = spec.inputs.first().map_or(0, |x| x.dims.len());
    spec.operation.name() == "transpose"
        && permutation(&spec.attrs, rank) == [(0..rank - 2).collect(), vec![rank - 1, rank - 2]].concat()
}

impl Operation for Transpose {
    signature! {
        name: "transpose",
        summary: "permutes the dimensions: swaps the last two, or takes the order in `dims`",
        category: Category::Movement,
        inputs: &[Input::Tensor("x")],
        outputs: &["y"],
        options: &[OptionSpec::absent(
            "dims",
            OptionType::Axes,
            "the order of dimensions: dimension `dims[i]` of `x` becomes dimension i of `y`",
        )],
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_device()?;
        call.needs_rank(0, 2, "to exchange")?;
        let tensor = &call.inputs[0].tensor;
        let rank = tensor.dims.len();
        if let Some(axes) = call.attrs.axes("dims") {
            let mut seen: Vec<i64> = axes.to_vec();
            seen.sort_unstable();
            if seen != (0..rank as i64).collect::<Vec<_>>() {
                return Err(call.bad_option(
                    "dims",
                    format!("{axes:?} has to name each of the dimensions 0 to {} once", rank - 1),
                    "write the dimensions in their new order: `dims: [1, 0]` exchanges the two of a matrix",
                ));
            }
        }
        let order = permutation(call.attrs, rank);
        let dims: Dims = order.iter().map(|&axis| tensor.dims[axis]).collect();
        Ok(vec![call.output(0, tensor.dtype, dims)?])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        let (dims, strides) = moved(spec);
        let all = layout::by_output(dims, &strides);
        if let Some(rows) = FewRows::of(spec, &all) {
            return rows.cost(spec);
        }
        if let Some(rows) = Interleaved::of(spec, &all) {
            return rows.cost(spec);
        }
        if let Some(tiles) = WordTiles::of(spec, &all) {
            return tiles.cost(spec);
        }
        if let Some(tiles) = BoxTiles::of(spec, &all) {
            return tiles.cost(spec);
        }
        match Tiles::of(spec) {
            Some(tiles) => {
                let instructions = tiles.instructions(&spec.outputs[0]);
                Cost { instructions, exchanges: 1.0, ..spec.streaming_cost(0.0, tiles.elements()) }
            }
            None => {
                let walk::Work { sectors, instructions, .. } = match stream::moved("transpose", spec, dims, &strides) {
                    Some(_) => walk::Work::default(),
                    None => walk::work(&[walk::task(&Expression::identity(), dims, &strides, spec)]),
                };
                Cost { sectors, instructions, ..spec.streaming_cost(0.0, 1024) }
            }
        }
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let input = &spec.inputs[0];
        let packed = input.dims.contiguous_strides();
        let strides: Dims = permutation(&spec.attrs, input.dims.len()).iter().map(|&axis| packed[axis]).collect();
        for (out, offset) in outputs[0].iter_mut().zip(layout::offsets(spec.outputs[0].dims, strides)) {
            *out = inputs[0][offset as usize];
        }
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let (dims, strides) = moved(spec);
        let all = layout::by_output(dims, &strides);
        let of_few = FewRows::of(spec, &all).map(|rows| rows.launch(spec));
        let launch = of_few
            .or_else(|| Some(Interleaved::of(spec, &all)?.launch(spec)))
            .or_else(|| Some(WordTiles::of(spec, &all)?.launch(spec)))
            .or_else(|| Some(BoxTiles::of(spec, &all)?.launch(spec)))
            .or_else(|| Some(Tiles::of(spec)?.launch(spec)))
            .or_else(|| stream::moved("transpose", spec, dims, &strides));
        vec![launch.unwrap_or_else(|| walk::launch("transpose", &Expression::identity(), dims, &strides, spec))]
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        let order = permutation(&rule.spec.attrs, rule.spec.inputs[0].dims.len());
        backward::transpose(rule, &order)
    }
}

/// Returns the sizes of the output, and the strides of the output and of the input along these dimensions.
fn moved(spec: &Spec) -> (Dims, [Dims; 2]) {
    let (x, y) = (&spec.inputs[0], &spec.outputs[0]);
    let strides = permutation(&spec.attrs, x.dims.len()).iter().map(|&axis| x.strides[axis]).collect();
    (y.dims, [y.strides, strides])
}

/// Minimum number of elements of a tile. Large tiles are read and written in longer contiguous ranges; small tiles give
/// more blocks.
const LEAST: u64 = 256;
/// Maximum size of a tile in bytes.
const MOST_BYTES: u64 = 16 << 10;

/// Maximum length of a tile's side in elements. Shared memory holds two offsets for each of them.
const MAX_SIDE: u64 = 2048;

/// Maximum size in bytes of several tiles of a block in shared memory, with the gaps between their rows.
const MAX_SHARED: u64 = 24 << 10;

/// Minimum number of blocks if tiles are larger than [`LEAST`].
const ENOUGH_BLOCKS: u64 = 1024;

/// Minimum number of contiguous elements that a tile should have in each tensor. A side with fewer gets further
/// dimensions.
const LONG: u64 = 32;

/// Conditions for packs of 16 bytes that may begin at any element: maximum size in bytes of a side's own packs, and
/// minimum size in bytes of a contiguous range that is read, and that is written. The ends of a written range take
/// several stores.
const MAX_RAGGED: u64 = 4;
const MIN_READ: u64 = 64;
const MIN_WRITTEN: u64 = 512;

/// Minimum size in bytes of a tensor that is moved in such packs: they take longer until the first element arrives.
const MIN_TENSOR: u64 = 1 << 20;

/// Length of a side up to which an elementwise kernel is faster in tensors of up to [`WALKED_TENSOR`] bytes, since a
/// tile takes longer until its first element is written.
const WALKED_SIDE: u64 = 5;
/// Size in bytes of the packs of a side that is shorter than a sector, and of a tile with both sides whole, up to which
/// an elementwise kernel is faster in tensors of up to [`WALKED_TENSOR`] bytes.
const WALKED_PACK: u64 = 4;
const WALKED_TILE: u64 = 4 << 10;

/// Maximum length of a side that counts as short, in elements.
const SHORT: u64 = 16;
/// Number of bytes that one access to all banks of shared memory transfers.
const BANKS: u64 = 128;

/// Width of a bank of shared memory in bytes.
const WORD: u64 = 4;

/// Instructions for moving a pack to or from shared memory.
const PER_PACK: f64 = 16.0;
/// Instructions for each element of a pack in shared memory, where an access counts as four.
const PER_ELEMENT: f64 = 4.0;

/// Tiles of a kernel for which contiguous elements of the input are apart in the output. The kernel reads a tile along
/// one side into shared memory, and writes it along the other side.
#[derive(Debug)]
struct Tiles {
    /// Dimensions that belong to neither side, with the strides of the output and of the input.
    others: Geometry,
    /// The side along which the input is contiguous, and the side along which the output is contiguous.
    read: Side,
    written: Side,
    /// Number of tiles that a block processes. They have different positions in the other dimensions.
    several: u64,
}

/// A side of a tile: one or more dimensions.
#[derive(Debug)]
struct Side {
    /// The dimensions, ordered as in the memory of the tensor that is contiguous along them, with the strides of the
    /// output and of the input.
    geometry: Geometry,
    length: u64,
    /// Number of elements of a tile along this side.
    tile: u64,
    /// Number of contiguous elements that are read or written at once. All packs are aligned to their size.
    pack: u64,
    /// Division into packs of 16 bytes that may begin at any element of this side; `None` if packs of `pack`
    /// elements are moved.
    run: Option<Run>,
}

/// Layout of a tile in shared memory, in elements.
#[derive(Debug)]
struct Shared {
    /// Whether the rows in shared memory lie along the side that is written, since the other side is short: packs are
    /// then read in the form in which they are written. Otherwise, rows lie along the side that is read.
    turned: bool,
    /// Distance between rows, by which rows begin in different banks.
    row: u64,
    /// After this number of rows, the distance to the next row is larger by `gap`. Neighbouring threads then read the
    /// elements of their packs from different banks.
    of_pack: u64,
    gap: u64,
    /// Number of elements of a tile.
    tile: u64,
}

/// The range in which the elements of a tile are contiguous, in the tensor that is contiguous along a side.
#[derive(Clone, Copy, Debug)]
enum Run {
    /// A row of the tile.
    Row,
    /// The whole tile, since each row ends where the next one begins.
    Rows,
}

impl Side {
    /// Returns the side with the dimensions `axes`, along which `tensor` is contiguous; `which` is the index of the
    /// tensor's strides.
    fn of(all: &Geometry, axes: &[usize], tensor: &Tensor, which: usize) -> Side {
        let geometry = all.part(axes);
        let length: u64 = geometry.dims.iter().product();
        let inner = *axes.last().expect("a side has a dimension");
        let fits = |pack: &u64| {
            u64::from(tensor.align).is_multiple_of(pack * tensor.dtype.size())
                && all.dims[inner].is_multiple_of(*pack)
                && (0..all.dims.len()).all(|axis| axis == inner || all.strides[which][axis].is_multiple_of(*pack))
        };
        // Transposing more than eight elements takes more instructions than wider accesses save.
        let widest = (16 / tensor.dtype.size()).min(8);
        let pack = layout::halves(widest).find(fits).unwrap_or(1);
        Side { geometry, length, tile: length, pack, run: None }
    }

    /// Whether the side has one dimension, whose elements are `stride` elements apart in the tensor with index `which`.
    fn is_apart(&self, which: usize, stride: u64) -> bool {
        *self.geometry.dims == [self.length] && *self.geometry.strides[which] == [stride]
    }

    /// Returns how packs of 16 bytes are moved along this side of a tile, whose other side is `other`; `None` if the
    /// side's own packs are as good, or if contiguous ranges have less than `least` bytes.
    fn run(&self, other: &Side, which: usize, size: u64, least: u64) -> Option<Run> {
        let enough = least / size;
        if self.pack * size > MAX_RAGGED || !self.is_apart(which, 1) {
            return None;
        }
        if self.tile == self.length && other.is_apart(which, self.length) && self.tile * other.tile >= enough {
            return Some(Run::Rows);
        }
        (self.tile >= enough).then_some(Run::Row)
    }
}

/// Whether offsets of elements need more than 32 bits.
fn has_wide_offsets(spec: &Spec) -> bool {
    index_type(spec.inputs[0].reach().max(spec.outputs[0].reach())) == "u64"
}

impl Tiles {
    /// Returns the tiles. `None` if contiguous elements stay contiguous or a tensor has no contiguous elements, where
    /// an elementwise kernel is as fast, and for small tensors, where it is faster.
    fn of(spec: &Spec) -> Option<Tiles> {
        let (dims, strides) = moved(spec);
        let all = layout::by_output(dims, &strides);
        let rank = all.dims.len();
        let [to, from] = [0, 1].map(|tensor| &all.strides[tensor]);
        let along = from.iter().position(|&stride| stride == 1)?;
        if to.last() != Some(&1) || along + 1 == rank {
            return None;
        }
        // The sides take the next dimension in memory order in turn, until a tile has long contiguous ranges in both
        // tensors.
        let mut by_input: Vec<usize> = (0..rank).collect();
        by_input.sort_by_key(|&axis| std::cmp::Reverse(from[axis]));
        let mut sides = [vec![along], vec![rank - 1]];
        // Number of contiguous elements of a tile, over dimensions of both sides.
        let range = |order: &[usize], strides: &Dims, sides: &[Vec<usize>; 2]| {
            let mut length = 1;
            for &axis in order.iter().rev() {
                if strides[axis] != length || !sides.iter().any(|side| side.contains(&axis)) {
                    break;
                }
                length *= all.dims[axis];
            }
            length
        };
        // Returns the next dimension in memory order that belongs to no side yet.
        let next = |order: &[usize], sides: &[Vec<usize>; 2], own: usize| {
            let first = order.iter().position(|axis| *axis == sides[own][0])?;
            order[..first].iter().rev().copied().find(|axis| !sides.iter().any(|side| side.contains(axis)))
        };
        let by_output: Vec<usize> = (0..rank).collect();
        for _ in 0..rank {
            for (own, order, strides) in [(1, &by_output, to), (0, &by_input, from)] {
                if range(order, strides, &sides) < LONG
                    && let Some(axis) = next(order, &sides, own)
                {
                    sides[own].insert(0, axis);
                }
            }
        }
        let others: Vec<usize> = (0..rank).filter(|axis| !sides.iter().any(|side| side.contains(axis))).collect();
        let others = all.part(&others);
        let mut read = Side::of(&all, &sides[0], &spec.inputs[0], 1);
        let mut written = Side::of(&all, &sides[1], &spec.outputs[0], 0);
        let elements = spec.outputs[0].elements();
        let size = spec.inputs[0].dtype.size();
        let short = if read.length < written.length { &read } else { &written };
        let is_apart = short.length * size < SECTOR && short.pack * size <= WALKED_PACK;
        let is_apart = is_apart && size > 1 && elements * size < MIN_TENSOR;
        // Elementwise copies of single elements of 16 bits take longer.
        let is_narrow = size * short.pack <= 2 && size > 1 && elements * size >= 2 * MIN_TENSOR;
        let is_short = (short.length <= WALKED_SIDE && !is_narrow)
            || is_apart
            || read.length * written.length * size <= WALKED_TILE;
        if elements <= WALKED || (is_short && elements * size <= WALKED_TENSOR) {
            return None;
        }
        // Shared memory holds a tile and its offsets: two for each element of a side.
        let most = MOST_BYTES / size / if has_wide_offsets(spec) { 2 } else { 1 };
        let area = (elements / ENOUGH_BLOCKS).next_power_of_two().clamp(LEAST, most);
        let square = 1 << (area.ilog2() / 2);
        // A side that fits stays whole, and the other side can be longer if one is short. Cuts are at multiples of a
        // pack. A side that would be cut in two stays whole if there is room, since its second tile could be small.
        let fitted = |length: u64, room: u64| match length <= room || room < 16 {
            true => length.min(room),
            false if length < 2 * room && length <= MAX_SIDE && 2 * area <= most => length,
            false => room / 16 * 16,
        };
        read.tile = fitted(read.length, (area / written.length.min(square)).min(MAX_SIDE));
        // Ranges that are written in unaligned packs are longer, if those that are read stay long enough.
        let wide = MIN_WRITTEN / size;
        if written.pack * size <= MAX_RAGGED && written.length >= wide && area / wide * size >= MIN_READ {
            read.tile = read.tile.min(area / wide);
        }
        written.tile = fitted(written.length, (area / read.tile).min(MAX_SIDE));
        let count: u64 = others.dims.iter().product();
        let several = (area / (read.tile * written.tile)).min(MAX_SHARED / ((read.tile * size + WORD) * written.tile));
        let several = several.clamp(1, count.max(1));
        if elements * size >= MIN_TENSOR {
            read.run = read.run(&written, 1, size, MIN_READ);
            written.run = written.run(&read, 0, size, MIN_WRITTEN);
        }
        Some(Tiles { others, read, written, several })
    }

    /// Number of elements that a block moves.
    fn elements(&self) -> u64 {
        self.several * self.read.tile * self.written.tile
    }

    /// Returns the layout in shared memory of a tile of elements with `size` bytes.
    fn shared(&self, size: u64) -> Shared {
        let (tr, tw, gap) = (self.read.tile, self.written.tile, WORD.div_ceil(size));
        let of_pack = if self.written.run.is_some() { 16 / size } else { self.written.pack };
        let turned = tr <= SHORT && tw * size >= BANKS;
        match turned {
            true => {
                let row = ((tw * size).next_multiple_of(BANKS) + 16) / size;
                Shared { turned, row, of_pack, gap, tile: tr * row }
            }
            false => {
                let row = tr + gap;
                // Single elements of neighbouring rows are in different banks already.
                let gap = if of_pack > 1 { gap } else { 0 };
                Shared { turned, row, of_pack, gap, tile: tw * row + tw.div_ceil(of_pack) * gap }
            }
        }
    }

    /// Number of instructions that move the tensor.
    fn instructions(&self, tensor: &Tensor) -> f64 {
        let side = |side: &Side| {
            let pack = if side.run.is_some() { 16 / tensor.dtype.size() } else { side.pack };
            PER_PACK / pack as f64 + PER_ELEMENT
        };
        (side(&self.read) + side(&self.written)) * tensor.elements() as f64
    }

    fn launch(&self, spec: &Spec) -> Launch {
        let Tiles { others, read, written, several } = self;
        let dtype = spec.inputs[0].dtype;
        let (element, size) = (c_type(dtype), dtype.size());
        let count: u64 = others.dims.iter().product();
        let tiles = [read, written].map(|side| side.length.div_ceil(side.tile));
        let blocks = count.div_ceil(*several) * tiles[0] * tiles[1];
        let index = index_type(blocks * several);
        // Tiles that share sectors are processed at about the same time.
        let is_whole = |stride: &u64| (stride * size).is_multiple_of(SECTOR);
        let is_aligned = read.geometry.strides[0].iter().chain(others.strides[0].iter()).all(is_whole);
        let is_down = tiles[1] < tiles[0] && !is_aligned;
        let (tile_read, tile_written) = if is_down { ("far", "near") } else { ("near", "far") };
        let params = [
            param(format!("{element}* y"), Arg::Operand(1)),
            param(format!("const {element}* x"), Arg::Operand(0)),
            geometry_param("others", others),
            geometry_param("read", &read.geometry),
            geometry_param("written", &written.geometry),
            u64_param("count", count),
            u64_param("length_read", read.length),
            u64_param("length_written", written.length),
            u64_param("near_tiles", if is_down { tiles[1] } else { tiles[0] }),
            u64_param("far_tiles", if is_down { tiles[0] } else { tiles[1] }),
        ];
        let (pr, pw, tr, tw) = (read.pack, written.pack, read.tile, written.tile);
        let Shared { turned, row, of_pack, gap, tile } = self.shared(size);
        let place = |v_read: &str, v_written: &str| match turned {
            true => format!("(s * {tr} + r{v_read}) * {row} + w{v_written}"),
            false => format!("s * {tile} + (w{v_written}) * {row} + w / {of_pack} * {gap} + r{v_read}"),
        };
        let take = match turned {
            true => format!("p = *(const Pack<{element}, {pw}>*)(tiles + {});\n", place("", "")),
            false => {
                let of_one = format!("p.at[v] = tiles[{}];\n", place("", " + v"));
                format!("\n#pragma unroll\n    for (int v = 0; v < {pw}; v++) {of_one}")
            }
        };
        let (side_read, side_written) = (index_type(read.length + tr), index_type(written.length + tw));
        // Offsets of the tile's first element in both tensors.
        let offset = if has_wide_offsets(spec) { "u64" } else { "u32" };
        let steps = |items: u64| items.div_ceil(u64::from(BLOCK));
        let whole = 16 / size;
        // Number of packs that hold this many elements, wherever the first one is.
        let packs = |elements: u64| (elements + whole - 1).div_ceil(whole);
        // Positions in the tile of element `e` of a run, of length `n`, that begins at `from` or `to` in memory.
        let reading = match read.run {
            None => format!(
                r#"  for (int step = 0; step < {steps}; step++) {{
    u32 i = step * {BLOCK} + threadIdx.x;
    u32 r = i % {packs} * {pr}, w = i / {packs} % {tw}, s = i / {of_read};
    if (s >= live_s || r >= live_r || w >= live_w) continue;
    Pack<{element}, {pr}> p = *(const Pack<{element}, {pr}>*)(x + xs[s] + xw[w] + xr[r]);
#pragma unroll
    for (int v = 0; v < {pr}; v++) tiles[{put}] = p.at[v];
  }}
"#,
                steps = steps(self.elements() / pr),
                packs = tr / pr,
                of_read = tr / pr * tw,
                put = place(" + v", ""),
            ),
            Some(run) => {
                let (each, length, from, position) = match run {
                    Run::Row => (packs(tr), "live_r", "i / PACKS % TW", "const u32 r = e, w = row;"),
                    Run::Rows => (packs(tr * tw), "live_w * TR", "0", "const u32 r = e % TR, w = e / TR;"),
                };
                let rows = if let Run::Row = run { tw } else { 1 };
                format!(
                    r#"  for (int step = 0; step < {steps}; step++) {{
    const u32 i = step * {BLOCK} + threadIdx.x, PACKS = {each}, TR = {tr}, TW = {tw};
    const u32 row = {from}, s = i / {of_tile};
    if (s >= live_s || row >= live_w) continue;
    const {element}* from = x + xs[s] + xw[row] + xr[0];
    const int n = {length}, first = (int)(i % PACKS * V) - (int)lead_of(from);
    if (first >= n) continue;
    const Pack<{element}, V> p = fetch_row(from, (i64)first, (i64)n);
#pragma unroll
    for (int v = 0; v < V; v++) {{
      const u32 e = (u32)(first + v);
      {position}
      if (e < (u32)n) tiles[{put}] = p.at[v];
    }}
  }}
"#,
                    steps = steps(several * rows * each),
                    of_tile = rows * each,
                    put = place("", ""),
                )
            }
        };
        let writing = match written.run {
            None => format!(
                r#"  for (int step = 0; step < {steps}; step++) {{
    u32 i = step * {BLOCK} + threadIdx.x;
    u32 w = i % {packs} * {pw}, r = i / {packs} % {tr}, s = i / {of_written};
    if (s >= live_s || r >= live_r || w >= live_w) continue;
    Pack<{element}, {pw}> p;
    {take}    *(Pack<{element}, {pw}>*)(y + ys[s] + yr[r] + yw[w]) = p;
  }}
"#,
                steps = steps(self.elements() / pw),
                packs = tw / pw,
                of_written = tw / pw * tr,
            ),
            Some(run) => {
                let (each, length, to, position) = match run {
                    Run::Row => (packs(tw), "live_w", "i / PACKS % TR", "const u32 w = e, r = row;"),
                    Run::Rows => (packs(tr * tw), "live_r * TW", "0", "const u32 w = e % TW, r = e / TW;"),
                };
                let rows = if let Run::Row = run { tr } else { 1 };
                format!(
                    r#"  for (int step = 0; step < {steps}; step++) {{
    const u32 i = step * {BLOCK} + threadIdx.x, PACKS = {each}, TR = {tr}, TW = {tw};
    const u32 row = {to}, s = i / {of_tile};
    if (s >= live_s || row >= live_r) continue;
    {element}* to = y + ys[s] + yr[row] + yw[0];
    const int n = {length}, first = (int)(i % PACKS * V) - (int)lead_of(to);
    if (first >= n) continue;
    Pack<{element}, V> p;
#pragma unroll
    for (int v = 0; v < V; v++) {{
      const u32 e = (u32)(first + v) < (u32)n ? (u32)(first + v) : 0;
      {position}
      p.at[v] = tiles[{put}];
    }}
    put_row(to, (i64)first, (i64)n, p);
  }}
"#,
                    steps = steps(several * rows * each),
                    of_tile = rows * each,
                    put = place("", ""),
                )
            }
        };
        let body = format!(
            r#"  __shared__ Pack<u32, 4> packs[{shared}];
  {element}* tiles = ({element}*)packs;
  __shared__ {offset} xs[{several}], ys[{several}], xr[{tr}], yr[{tr}], xw[{tw}], yw[{tw}];
  {index} block = ({index})blockIdx.x;
  {index} strip = block / ({index})near_tiles, first = strip / ({index})far_tiles;
  const {index} near = block - strip * ({index})near_tiles, far = strip - first * ({index})far_tiles;
  {side_read} r0 = ({side_read}){tile_read} * {tr};
  {side_written} w0 = ({side_written}){tile_written} * {tw};
  first *= {several};
  // Divides once for each row and column of the tile.
  for (u32 i = threadIdx.x; i < {several}; i += {BLOCK}) {{
    xs[i] = ({offset})others.offset(first + i, 1);
    ys[i] = ({offset})others.offset(first + i, 0);
  }}
  for (u32 i = threadIdx.x; i < {tr}; i += {BLOCK}) {{
    xr[i] = ({offset})read.offset(r0 + i, 1);
    yr[i] = ({offset})read.offset(r0 + i, 0);
  }}
  for (u32 i = threadIdx.x; i < {tw}; i += {BLOCK}) {{
    xw[i] = ({offset})written.offset(w0 + i, 1);
    yw[i] = ({offset})written.offset(w0 + i, 0);
  }}
  u32 live_s = (u32)(count - first < {several} ? count - first : {several});
  u32 live_r = (u32)(length_read - r0 < {tr} ? length_read - r0 : {tr});
  u32 live_w = (u32)(length_written - w0 < {tw} ? length_written - w0 : {tw});
  __syncthreads();
#pragma unroll
{reading}  __syncthreads();
#pragma unroll
{writing}"#,
            shared = (several * tile * size).div_ceil(16),
        );
        let before = match (read.run, written.run) {
            (None, None) => String::new(),
            _ => format!("#define V {whole}\n{RAGGED}"),
        };
        launch("transpose_tiled", &before, &params, &body, blocks, BLOCK)
    }
}

#[cfg(test)]
mod tests {
    use super::super::word_tiles::tests::rotations;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Each element of a block's tiles has a place of its own in shared memory, of which a block has 48 KiB.
        #[test]
        fn tiles_fit_shared_memory((spec, _) in rotations(&[DType::U8, DType::BF16, DType::F32, DType::F64])) {
            let Some(tiles) = Tiles::of(&spec) else { return Ok(()) };
            let (size, offset) = (spec.inputs[0].dtype.size(), if has_wide_offsets(&spec) { 8 } else { 4 });
            let (tr, tw, several) = (tiles.read.tile, tiles.written.tile, tiles.several);
            let Shared { turned, row, of_pack, gap, tile } = tiles.shared(size);
            prop_assert!(several * tile * size + 2 * offset * (several + tr + tw) <= 48 << 10);
            let place = |r: u64, w: u64| if turned { r * row + w } else { w * row + w / of_pack * gap + r };
            let places: std::collections::BTreeSet<u64> = (0..tr).flat_map(|r| (0..tw).map(move |w| place(r, w))).collect();
            prop_assert_eq!(places.len() as u64, tr * tw);
            prop_assert!(places.last() < Some(&tile));
        }
    }
}
