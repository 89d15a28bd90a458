//! `transpose`: permutes the dimensions of a tensor.

mod box_tiles;
mod few_rows;
mod word_tiles;

use crate::ops::kernels::stream::MovedRows;
use crate::ops::kernels::walk;
use crate::ops::*;
use box_tiles::BoxTiles;
use few_rows::FewRows;
use word_tiles::WordTiles;

/// `transpose(x)`.
pub struct Transpose;

/// Returns, for each dimension of the output, the dimension of the input that it comes from.
pub(in crate::ops) fn permutation(attrs: &Attrs, rank: usize) -> Vec<usize> {
    match attrs.axes("dims") {
        Some(axes) => axes.iter().map(|&axis| axis as usize).collect(),
        None => {
            let mut order: Vec<usize> = (0..rank).collect();
            order.swap(rank - 1, rank - 2);
            order
        }
    }
}

/// True if an operation is a `transpose` that exchanges only the last two dimensions.
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
        let (spec, dims, strides) = &moved(spec);
        let dims = *dims;
        let all = layout::by_output(dims, strides);
        if let Some(rows) = FewRows::of(spec, &all) {
            return rows.cost(spec);
        }
        if let Some(tiles) = WordTiles::of(spec, &all) {
            return tiles.cost(spec);
        }
        if let Some(tiles) = BoxTiles::of(spec, &all) {
            return tiles.cost(spec);
        }
        let walk::Work { sectors, instructions, .. } = match MovedRows::of(spec, dims, strides) {
            Some(rows) => rows.work(spec),
            None => walk::work(&[walk::task(&Expression::identity(), dims, strides, spec)]),
        };
        Cost { sectors, instructions, ..spec.streaming_cost(0.0, 1024) }
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
        let (spec, dims, strides) = &moved(spec);
        let dims = *dims;
        let all = layout::by_output(dims, strides);
        let of_few = FewRows::of(spec, &all).map(|rows| rows.launch(spec));
        let launch = of_few
            .or_else(|| Some(WordTiles::of(spec, &all)?.launch(spec)))
            .or_else(|| Some(BoxTiles::of(spec, &all)?.launch(spec)))
            .or_else(|| Some(MovedRows::of(spec, dims, strides)?.launch("transpose", spec)));
        vec![launch.unwrap_or_else(|| walk::launch("transpose", &Expression::identity(), dims, strides, spec))]
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        let order = permutation(&rule.spec.attrs, rule.spec.inputs[0].dims.len());
        backward::transpose(rule, &order)
    }
}

/// Returns the operation with the largest elements that divide its contiguous runs, the sizes of its output, and the strides of the output and
/// of the input along these dimensions.
fn moved(spec: &Spec) -> (Spec, Dims, [Dims; 2]) {
    let (x, y) = (&spec.inputs[0], &spec.outputs[0]);
    let strides = permutation(&spec.attrs, x.dims.len()).iter().map(|&axis| x.strides[axis]).collect();
    let unchanged = (spec.clone(), y.dims, [y.strides, strides]);
    let Geometry { mut dims, mut strides } = layout::by_output(y.dims, &unchanged.2);
    let last = dims.len().saturating_sub(1);
    if dims.is_empty() || strides.iter().any(|strides| strides[last] != 1) {
        return unchanged;
    }
    let size = y.dtype.size();
    let distances = strides.iter().flat_map(|strides| strides[..last].to_vec());
    let bytes = distances.chain([dims[last]]).map(|elements| elements * size);
    let wider = layout::moved_type(bytes.chain([x.align, y.align].map(u64::from))).filter(|dtype| dtype.size() > size);
    let Some(dtype) = wider else { return unchanged };
    let each = dtype.size() / size;
    dims.set(last, dims[last] / each);
    for strides in &mut strides {
        (0..last).for_each(|axis| strides.set(axis, strides[axis] / each));
    }
    let mut wide = spec.clone();
    wide.outputs[0] = Tensor { dtype, dims, strides: strides[0], ..*y };
    wide.inputs[0] = Tensor { dtype, dims, strides: strides[1], ..*x };
    (wide, dims, [strides[0], strides[1]])
}
