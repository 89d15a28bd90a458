//! Kernels that evaluate an expression for each element: how they walk over an output and what is read beside it.
//!
//! Dimensions are ordered by the output's strides and merged where every operand allows it. The innermost is cut into
//! tiles, each of which a few neighbouring threads share. So what is expensive, to find where a tile begins in each
//! operand, is done once for about 16 bytes that a thread moves, and no pattern of broadcasts or gaps costs much more than
//! a walk without any.

use crate::base::{DType, Dims};

use super::elementwise::compute_type;
use super::kernel::{BLOCK, c_type, geometry_param, geometry_words, index_type, source};
use super::layout::collapse;
use super::*;

/// Blocks that are better than fewer with more to do each: several for every unit of a large device.
const ENOUGH_BLOCKS: u64 = 256;

/// Bytes that a thread moves of the narrowest operand, and at most of the widest.
const NARROWEST: u64 = 16;
const WIDEST: u64 = 32;

/// Bytes that threads side by side move at least as one, where rows are that long: a sector of memory.
const TOGETHER: u64 = 32;

/// Packs of a thread at most.
const PACKS: u64 = 8;

/// How an operand is read along the innermost dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// One element for all.
    Repeated,
    /// Neighbours, of which so many can be read as one.
    Neighbours(u64),
    /// Elements that lie further apart.
    Apart,
}

/// How a kernel walks over its elements.
#[derive(Debug)]
struct Walk {
    /// All dimensions but the innermost, with the strides of the output and of each input.
    outer: Geometry,
    /// Elements of the innermost dimension.
    length: u64,
    /// For the output and each input.
    steps: Vec<Step>,
    /// The same in elements.
    distances: Vec<u64>,
    /// Neighbours that a thread computes as one.
    pack: u64,
    /// Packs of a thread in a tile.
    each: u64,
    /// Threads that share a tile; a power of two.
    threads: u64,
}

impl Walk {
    /// The walk over these dimensions, with the strides of each tensor, of which the first is the output.
    fn of(dims: Dims, strides: &[Dims], tensors: &[&Tensor]) -> Walk {
        let geometry = by_output(dims, strides);
        let rank = geometry.dims.len();
        let elements: u64 = dims.iter().product();
        let length = geometry.dims.last().copied().unwrap_or(1);
        let lead = |dims: &Dims| Dims::from_slice(&dims[..rank.saturating_sub(1)]).unwrap_or_default();
        let outer = Geometry { dims: lead(&geometry.dims), strides: geometry.strides.iter().map(lead).collect() };
        let inner = |operand: usize| geometry.strides[operand].last().copied().unwrap_or(1);
        let size = |operand: &usize| tensors[*operand].dtype.size();
        let neighbours: Vec<usize> = (0..tensors.len()).filter(|&operand| inner(operand) == 1).collect();
        let narrowest = neighbours.iter().map(size).min().unwrap_or(1);
        let widest = neighbours.iter().map(size).max().unwrap_or(1);
        // What lies where pieces of this many elements begin.
        let begins = |operand: usize, pack: u64| {
            let tensor = tensors[operand];
            u64::from(tensor.align).is_multiple_of(pack * tensor.dtype.size())
                && outer.strides[operand].iter().all(|stride| stride.is_multiple_of(pack))
        };
        let enough = |pack: u64| elements >= pack * u64::from(BLOCK) * ENOUGH_BLOCKS;
        // One store, since several that interleave would write each sector of memory more than once.
        let most = (NARROWEST / narrowest).min(WIDEST / widest).min(16 / size(&0)).max(1);
        let halves = |most: u64| std::iter::successors(Some(most), |pack| (*pack > 1).then_some(pack / 2));
        // The output is written in whole packs; inputs may be read in smaller pieces.
        let fits = |pack: &u64| *pack == 1 || (inner(0) == 1 && *pack <= length && enough(*pack));
        let widths = |operand: usize, pack: u64| {
            let piece = |piece: &u64| piece * tensors[operand].dtype.size() <= 16 && begins(operand, *piece);
            halves(pack).find(piece).unwrap_or(1)
        };
        let pack = halves(most).filter(fits).find(|&pack| pack.min(16 / size(&0)) == widths(0, pack)).unwrap_or(1);
        let steps = (0..tensors.len()).map(|operand| match inner(operand) {
            _ if geometry.dims.is_empty() && operand > 0 => Step::Repeated,
            0 => Step::Repeated,
            1 => Step::Neighbours(widths(operand, pack)),
            _ => Step::Apart,
        });
        let distances = (0..tensors.len()).map(inner).collect();
        let bytes = pack * narrowest;
        let most = if bytes >= NARROWEST { 1 } else { (1..=PACKS).rev().find(|each| enough(each * pack)).unwrap_or(1) };
        let (threads, each) = tile(length.div_ceil(pack), bytes, most);
        Walk { steps: steps.collect(), distances, outer, length, pack, each, threads }
    }

    /// Whether the kernel has to know how far an operand's elements lie apart.
    fn apart(&self, operand: usize) -> bool {
        match self.steps[operand] {
            Step::Neighbours(_) => false,
            Step::Repeated => operand == 0,
            Step::Apart => true,
        }
    }

    /// Elements of a tile.
    fn tile(&self) -> u64 {
        self.threads * self.each * self.pack
    }

    /// Tiles of the innermost dimension, and of all.
    fn tiles(&self) -> (u64, u64) {
        let along = self.length.div_ceil(self.tile());
        (along, along * self.outer.dims.iter().product::<u64>())
    }
}

/// The walk with as few dimensions as possible, those with the output's largest strides first: the order of elements does
/// not matter.
pub fn by_output(dims: Dims, strides: &[Dims]) -> Geometry {
    let mut axes: Vec<usize> = (0..dims.len()).collect();
    axes.sort_by_key(|&axis| std::cmp::Reverse(strides[0][axis]));
    let ordered = |dims: &Dims| {
        let sizes: Vec<u64> = axes.iter().map(|&axis| dims[axis]).collect();
        Dims::from_slice(&sizes).expect("as many as before")
    };
    collapse(ordered(&dims), &strides.iter().map(ordered).collect::<Vec<_>>())
}

/// How a row of so many packs, of so many bytes each, is divided: the threads that share a tile, and the packs of each, at
/// most so many.
fn tile(packs: u64, bytes: u64, most: u64) -> (u64, u64) {
    // A row that one thread moves as fast as several would.
    if packs <= most && packs * bytes <= 2 * NARROWEST {
        return (1, packs.max(1));
    }
    let least = (TOGETHER / bytes).clamp(1, u64::from(BLOCK)).min(packs.next_power_of_two());
    let threads = std::iter::successors(Some(u64::from(BLOCK)), |threads| Some(threads / 2));
    let threads = threads.take_while(|&threads| threads >= least);
    let all: Vec<(u64, u64)> = threads.flat_map(|threads| (1..=most).map(move |each| (threads, each))).collect();
    // Threads of a tile that have something to do, in per cent.
    let busy = |&(threads, each): &(u64, u64)| 100 * packs / (packs.div_ceil(threads * each) * threads * each);
    let best = all.iter().map(busy).max().unwrap_or(0);
    // A larger tile is found more rarely.
    let good = all.into_iter().filter(|split| busy(split) + 8 >= best);
    good.max_by_key(|(threads, each)| (threads * each, *threads)).unwrap_or((u64::from(BLOCK), 1))
}

/// The kernel that evaluates an expression for each element of a shape; `strides` has the distance between neighbours for
/// the output, then for each input.
pub fn launch(name: &str, expression: &Expression, dims: Dims, strides: &[Dims], spec: &Spec) -> Launch {
    let output = &spec.outputs[0];
    let tensors: Vec<&Tensor> = std::iter::once(output).chain(&spec.inputs).collect();
    let compute = compute_type(spec);
    let walk = Walk::of(dims, strides, &tensors);
    let (along, tiles) = walk.tiles();
    let Walk { pack, each, threads, .. } = walk;

    let count = spec.inputs.len();
    let constants = expression.constants();
    let mut params = vec![format!("{}* out", c_type(output.dtype))];
    params.extend((0..count).map(|i| format!("const {}* a{i}", c_type(spec.inputs[i].dtype))));
    params.extend((0..constants.len()).map(|i| format!("C c{i}")));
    params.extend([geometry_param(&walk.outer), "u64 n".to_owned(), "u64 along".to_owned(), "u64 tiles".to_owned()]);
    let mut args: Vec<Arg> = vec![Arg::Operand(count as u8)];
    args.extend((0..count).map(|i| Arg::Operand(i as u8)));
    args.extend(constants.iter().map(|&value| match compute {
        DType::F64 => Arg::F64(value),
        _ => Arg::F32(value as f32),
    }));
    args.extend([Arg::Words(geometry_words(&walk.outer)), Arg::U64(walk.length), Arg::U64(along), Arg::U64(tiles)]);

    for (operand, distance) in walk.distances.iter().enumerate().filter(|(operand, _)| walk.apart(*operand)) {
        params.push(format!("u64 step{operand}"));
        args.push(Arg::U64(*distance));
    }

    let arguments: Vec<String> = (0..count).map(|i| format!("C x{i}")).collect();
    let constant_params: Vec<String> = (0..constants.len()).map(|i| format!("C c{i}")).collect();
    let function = format!(
        "typedef {} C;\n__device__ inline C compute({}) {{\n{}}}\n",
        c_type(compute),
        [arguments, constant_params].concat().join(", "),
        expression.c_text()
    );
    // What only moves keeps its bits.
    let moves = expression.is_identity() && spec.inputs[0].dtype == output.dtype;
    // Stores at `to` the expression at element `v` of a pack that begins at `j`; `packed` elements have been read before.
    let store = |to: &str, packed: bool| {
        let element = |i: usize| match walk.steps[i + 1] {
            Step::Repeated => format!("b{i}"),
            Step::Neighbours(width) if packed => format!("p{i}[e][v / {width}].at[v % {width}]"),
            Step::Neighbours(_) => format!("a{i}[j + v]"),
            Step::Apart => format!("a{i}[(u64)(j + v) * step{}]", i + 1),
        };
        if moves {
            return format!("{to} = {}", element(0));
        }
        let constants = (0..constants.len()).map(|i| format!("c{i}"));
        let elements = (0..count).map(|i| format!("load<C>({})", element(i)));
        format!("store<C>({to}, compute({}))", elements.chain(constants).collect::<Vec<_>>().join(", "))
    };

    let index = index_type(tiles + u64::from(BLOCK));
    // Places in a row, up to the end of its last tile.
    let place = index_type(walk.length + walk.tile());
    let mut body = format!(
        "  {index} tile = ({index})(GLOBAL_INDEX / {threads});\n  if (tile >= tiles) return;\n  \
         {place} first = threadIdx.x % {threads} * {pack};\n"
    );
    if walk.outer.dims.is_empty() {
        body += &format!("  first += ({place})tile * {};\n", walk.tile());
    } else if along > 1 {
        body += &format!(
            "  {index} row = tile / ({index})along;\n  first += ({place})(tile - row * ({index})along) * {};\n",
            walk.tile()
        );
    } else {
        body += &format!("  {index} row = tile;\n");
    }
    if !walk.outer.dims.is_empty() {
        body += &format!("  i64 at[{}];\n  g.offsets(row, at);\n  out += at[0];\n", count + 1);
        (0..count).for_each(|i| body += &format!("  a{i} += at[{}];\n", i + 1));
    }
    for i in 0..count {
        match walk.steps[i + 1] {
            Step::Repeated => body += &format!("  {} b{i} = a{i}[0];\n", c_type(spec.inputs[i].dtype)),
            Step::Neighbours(width) => {
                body += &format!("  Pack<{}, {width}> p{i}[{each}][{}];\n", c_type(spec.inputs[i].dtype), pack / width);
            }
            Step::Apart => {}
        }
    }
    // All that a thread reads is under way before any of it is used.
    let begin = format!(
        "#pragma unroll\n  for (int e = 0; e < {each}; e++) {{\n    {place} j = first + e * {};\n",
        threads * pack
    );
    let reads: String = (0..count)
        .filter_map(|i| match walk.steps[i + 1] {
            Step::Neighbours(width) => Some(format!(
                "#pragma unroll\n      for (int k = 0; k < {}; k++) p{i}[e][k] = *(const Pack<{}, {width}>*)(a{i} + j + k * {width});\n",
                pack / width,
                c_type(spec.inputs[i].dtype)
            )),
            _ => None,
        })
        .collect();
    if !reads.is_empty() {
        body += &format!("{begin}    if (j + {pack} <= n) {{\n{reads}    }}\n  }}\n");
    }
    let out = c_type(output.dtype);
    let write = match walk.steps[0] {
        Step::Neighbours(width) => format!(
            "      Pack<{out}, {width}> r[{pieces}];\n#pragma unroll\n      \
             for (int v = 0; v < {pack}; v++) {};\n#pragma unroll\n      \
             for (int k = 0; k < {pieces}; k++) *(Pack<{out}, {width}>*)(out + j + k * {width}) = r[k];\n",
            store(&format!("r[v / {width}].at[v % {width}]"), true),
            pieces = pack / width
        ),
        _ => format!("      const int v = 0;\n      {};\n", store("out[(u64)j * step0]", true)),
    };
    let rest = match pack {
        1 => String::new(),
        _ => format!(
            " else {{\n      for (int v = 0; v < {pack} && j + v < n; v++) {};\n    }}",
            store("out[j + v]", false)
        ),
    };
    body += &format!("{begin}    if (j + {pack} <= n) {{\n{write}    }}{rest}\n  }}\n");
    Launch::Kernel(Kernel {
        source: source(name, &function, &params, &body),
        grid: tiles.div_ceil(u64::from(BLOCK) / threads).max(1),
        block: BLOCK,
        shared: Shared::Bytes(0),
        args,
    })
}
