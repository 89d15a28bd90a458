//! Convolutions and pools on shapes that nobody chose: their kernels run on the double of AMD's libraries, and have to compute
//! what the CPU does.

use aorta::base::{DType, Dims, Space};
use aorta::ops::{Attr, Launch, Spec, Tensor};

use crate::common::effort;
use crate::random_shapes::{FLOATS, File, cases};

/// The sizes along one spatial dimension: of `x`, of the kernel, of the result, stride, padding and dilation.
#[derive(Clone, Copy)]
struct Axis {
    x: u64,
    kernel: u64,
    y: u64,
    stride: u64,
    padding: u64,
    dilation: u64,
}

impl Axis {
    fn draw(file: &mut File, longest: u64) -> Axis {
        let (kernel, dilation, stride): (u64, u64, u64) =
            (file.pick(&[1, 2, 3, 3, 5]), file.pick(&[1, 1, 2]), file.pick(&[1, 1, 2, 3]));
        let span = dilation * (kernel - 1) + 1;
        let padding = file.below(span.div_ceil(2).max(1));
        let x = (span + file.below(longest)).saturating_sub(2 * padding).max(1);
        Axis { x, kernel, y: (x + 2 * padding - span) / stride + 1, stride, padding, dilation }
    }
}

fn each(axes: &[Axis], of: impl Fn(&Axis) -> u64) -> Vec<u64> {
    axes.iter().map(of).collect()
}

/// The options of a convolution, as lists.
fn options(axes: &[Axis], groups: u64) -> String {
    format!(
        ", stride: {:?}, padding: {:?}, dilation: {:?}, groups: {groups}",
        each(axes, |axis| axis.stride),
        each(axes, |axis| axis.padding),
        each(axes, |axis| axis.dilation)
    )
}

/// Adds a convolution (0), a transposed convolution (1) or a gradient of weights (2), some of them with a bias.
fn add_convolution(file: &mut File, form: u32, dtype: &str, axes: &[Axis], [groups, inputs, outputs]: [u64; 3]) {
    let samples = 1 + file.below(3);
    let x = [vec![samples, groups * inputs], each(axes, |axis| axis.x)].concat();
    let w = [vec![groups * outputs, inputs], each(axes, |axis| axis.kernel)].concat();
    let y = [vec![samples, groups * outputs], each(axes, |axis| axis.y)].concat();
    let all = options(axes, groups);
    let behind =
        |axis: &Axis| axis.x + 2 * axis.padding - (axis.y - 1) * axis.stride - axis.dilation * (axis.kernel - 1) - 1;
    let bias = |file: &mut File, channels: u64| match file.below(2) {
        0 => String::new(),
        _ => format!(", {}", file.tensor(dtype, &[channels])),
    };
    let [tx, tw, ty] = [&x, &w, &y].map(|dims| file.tensor(dtype, dims));
    match form {
        0 => {
            let bias = bias(file, y[1]);
            file.add(&format!("conv({tx}, {tw}{bias} -> {ty}{all})"));
        }
        1 => {
            let added = each(axes, behind);
            let bias = bias(file, x[1]);
            file.add(&format!("conv({ty}, {tw}{bias} -> {tx}{all}, transposed: true, output_padding: {added:?})"));
        }
        _ => {
            let size = each(axes, |axis| axis.kernel);
            file.add(&format!("conv_weights({tx}, {ty} -> {tw}, size: {size:?}{all})"));
        }
    }
}

#[test]
fn convolutions_of_any_form() {
    let mut file = File::new(31);
    for case in 0..cases(16) {
        let dtype = file.pick(&["bf16", "f16", "f32", "bf16", "f64"]);
        let spatial = 1 + file.below(3) as usize;
        let longest = [40, 9, 4][spatial - 1];
        let axes: Vec<Axis> = (0..spatial).map(|_| Axis::draw(&mut file, longest)).collect();
        // Few channels have kernels of their own, and many whole tiles.
        let sizes = [file.pick(&[1, 1, 2, 3]), file.pick(&[1, 2, 5, 16, 24]), file.pick(&[1, 3, 8, 17, 40, 72])];
        add_convolution(&mut file, case % 3, dtype, &axes, sizes);
    }
    file.check();
}

/// Results of up to four channels per group, from few and from many channels.
#[test]
fn convolutions_with_few_rows() {
    let mut file = File::new(37);
    for case in 0..cases(20) {
        let dtype = file.pick(&["bf16", "f16", "f32", "f32", "f64"]);
        let spatial = 1 + file.below(3) as usize;
        let axes: Vec<Axis> = (0..spatial).map(|_| Axis::draw(&mut file, [90, 20, 5][spatial - 1])).collect();
        let (groups, few, many) = (file.pick(&[1, 1, 2, 7]), 1 + file.below(4), file.pick(&[1, 5, 37, 130]));
        let channels = if case % 2 == 0 { [many, few] } else { [few, many] };
        add_convolution(&mut file, case % 2, dtype, &axes, [groups, channels[0], channels[1]]);
    }
    file.check();
}

/// Gradients of the weights of few gathered channels: rows of a block, positions of a copy, and blocks that share the positions.
#[test]
fn weights_of_few_channels() {
    let mut file = File::new(40);
    for _ in 0..cases(12) {
        let dtype = file.pick(&["f32", "f32", "f64"]);
        let spatial = 1 + file.below(3) as usize;
        let mut axes: Vec<Axis> = (0..spatial).map(|_| Axis::draw(&mut file, [400, 40, 9][spatial - 1])).collect();
        if let Some(last) = axes.last_mut().filter(|last| last.kernel == 1) {
            *last = Axis { x: 37, kernel: 2, y: 36, stride: 1, padding: 0, dilation: 1 };
        }
        let sizes = [file.pick(&[1, 1, 2]), file.pick(&[1, 2, 4, 7]), file.pick(&[5, 19, 46, 130])];
        add_convolution(&mut file, 2, dtype, &axes, sizes);
    }
    // Runs of whole packs of 62 positions are fewer than there would be of any size.
    let side = Axis { x: 68, kernel: 7, y: 62, stride: 1, padding: 0, dilation: 1 };
    add_convolution(&mut file, 2, "f32", &[side, side], [1, 3, 32]);
    file.check();
}

/// Transposed convolutions from so many channels to few that one kernel sums up the products of windows, and a second one adds those of
/// each result: with a stride, dilation and several samples.
#[test]
fn transposed_convolutions_of_many_channels() {
    let mut file = File::new(41);
    let cases = [
        ("f32", &[80, 80][..], [3, 2, 1, 1], [1, 1, 260]),
        ("bf16", &[40, 39], [5, 1, 2, 1], [1, 2, 260]),
        ("f64", &[40, 39], [3, 1, 2, 2], [2, 1, 260]),
        ("f32", &[13, 14, 12], [3, 1, 1, 1], [1, 1, 300]),
    ];
    for (dtype, windows, [kernel, stride, padding, dilation], [samples, rows, channels]) in cases {
        let sizes: Vec<u64> =
            windows.iter().map(|size| (size - 1) * stride + dilation * (kernel - 1) + 1 - 2 * padding).collect();
        let y = file.tensor(dtype, &[&[samples, channels], windows].concat());
        let w = file.tensor(dtype, &[vec![channels, rows], vec![kernel; windows.len()]].concat());
        let x = file.tensor(dtype, &[&[samples, rows], &sizes[..]].concat());
        file.add(&format!(
            "conv({y}, {w} -> {x}, transposed: true, stride: {stride}, padding: {padding}, dilation: {dilation})"
        ));
    }
    file.check();
}

/// One gathered channel per group along one dimension without a stride, with rows shorter and longer than what a thread computes.
#[test]
fn depthwise_convolutions_along_one_dimension() {
    let mut file = File::new(38);
    for case in 0..cases(16) {
        let dtype = file.pick(&["bf16", "f16", "f32"]);
        let (kernel, dilation) = (file.pick(&[1, 3, 4, 9]), file.pick(&[1, 1, 2]));
        let span = dilation * (kernel - 1) + 1;
        let padding = file.pick(&[0, span / 2, span - 1]);
        let x = file.pick(&[3, 8, 61, 300]).max(span);
        let axis = Axis { x, kernel, y: x + 2 * padding - span + 1, stride: 1, padding, dilation };
        let (groups, several) = (file.pick(&[1, 5, 48]), file.pick(&[1, 1, 3]));
        let channels = if case % 2 == 0 { [1, several] } else { [several, 1] };
        add_convolution(&mut file, case % 2, dtype, &[axis], [groups, channels[0], channels[1]]);
    }
    file.check();
}

/// Depthwise convolutions of tensors smaller than the kernel, whose first or last elements meet only padding, agree with the CPU: in kernels
/// for few rows, and with more rows in kernels without tiles and with tiles.
#[test]
fn depthwise_convolutions_of_small_tensors() {
    let mut file = File::new(39);
    for case in 0..cases(12) {
        let dtype = file.pick(&["bf16", "f16", "f32"]);
        let spatial = 1 + file.below(3) as usize;
        let axes: Vec<Axis> = (0..spatial)
            .map(|_| {
                let (kernel, dilation, stride): (u64, u64, u64) =
                    (file.pick(&[2, 3, 5]), file.pick(&[1, 1, 2]), file.pick(&[1, 2, 3]));
                let (padding, span): (u64, u64) = (1 + file.below(3), dilation * (kernel - 1) + 1);
                let x = (1 + file.below(3)).max(span.saturating_sub(2 * padding));
                Axis { x, kernel, y: (x + 2 * padding - span) / stride + 1, stride, padding, dilation }
            })
            .collect();
        let rows = [1, 6, 40][case as usize % 3];
        let groups = 1 + file.below(5);
        add_convolution(&mut file, 0, dtype, &axes, [groups, 1, rows]);
    }
    file.check();
}

/// Products that are deep enough for blocks to share the depth, in each form and with whole packs.
#[test]
fn convolutions_of_shared_depth() {
    let mut file = File::new(32);
    for dtype in ["bf16", "f32"] {
        let x = file.tensor(dtype, &[1, 60, 4, 3]);
        let w = file.tensor(dtype, &[34, 60, 3, 3]);
        let [bias, narrow] = [34, 60].map(|channels| file.tensor(dtype, &[channels]));
        let y = file.tensor(dtype, &[1, 34, 4, 3]);
        file.add(&format!("conv({x}, {w}, {bias} -> {y}, padding: 1)"));
        file.add(&format!("conv({y}, {w}, {narrow} -> {x}, padding: 1, transposed: true)"));
        let [long, result] = [12, 34].map(|channels| file.tensor(dtype, &[3, channels, 181]));
        let weights = file.tensor(dtype, &[34, 12, 1]);
        file.add(&format!("conv_weights({long}, {result} -> {weights}, size: 1)"));
    }
    file.check();
}

/// Large transposed convolutions with strides, whose phases are kernels of their own: with dilation and groups, and with places
/// that no window covers.
#[test]
fn transposed_convolutions_in_phases() {
    let mut file = File::new(35);
    let [y, w, x] = [&[1, 24, 44, 41][..], &[24, 8, 4, 3], &[1, 16, 88, 122]].map(|dims| file.tensor("f32", dims));
    file.add(&format!(
        "conv({y}, {w} -> {x}, transposed: true, groups: 2, stride: [2, 3], padding: [1, 2], dilation: [1, 2], output_padding: [0, 1])"
    ));
    let [y, w, x] = [&[1, 36, 24, 59][..], &[36, 40, 1, 2], &[1, 40, 72, 60]].map(|dims| file.tensor("bf16", dims));
    let bias = file.tensor("bf16", &[40]);
    file.add(&format!("conv({y}, {w}, {bias} -> {x}, transposed: true, stride: [3, 1], output_padding: [2, 0])"));
    file.check();
}

/// Transposed convolutions of single elements with a stride, which can be products that a kernel writes with zeros between: rows of whole
/// packs and of others, and places that no window covers.
#[test]
fn transposed_convolutions_of_single_elements() {
    let mut file = File::new(42);
    for (dtype, windows, stride, added) in [
        ("bf16", &[13, 20][..], [2, 2, 1], [1, 0, 0]),
        ("f32", &[5, 3], [3, 4, 1], [2, 3, 0]),
        ("f16", &[67], [2, 1, 1], [1, 0, 0]),
        ("f64", &[3, 4, 5], [1, 2, 3], [0, 1, 1]),
    ] {
        let (stride, added) = (&stride[..windows.len()], &added[..windows.len()]);
        let sizes: Vec<u64> =
            windows.iter().zip(stride).zip(added).map(|((size, step), added)| (size - 1) * step + 1 + added).collect();
        let y = file.tensor(dtype, &[&[3, 24], windows].concat());
        let w = file.tensor(dtype, &[vec![24, 17], vec![1; windows.len()]].concat());
        let x = file.tensor(dtype, &[vec![3, 17], sizes].concat());
        file.add(&format!("conv({y}, {w} -> {x}, transposed: true, stride: {stride:?}, output_padding: {added:?})"));
    }
    file.check();
}

/// Adds a pool and its gradients. With `mode: max`, also adds gradients from random indices, then from those that the pool stores.
/// `lead` is samples and channels, `sizes` and `windows` the spatial dimensions of `x` and `y`.
fn pool_both_ways(file: &mut File, dtype: &str, lead: &[u64], sizes: &[u64], windows: &[u64], options: &str) {
    let [x, dx] = [(); 2].map(|()| file.tensor(dtype, &[lead, sizes].concat()));
    let [y, dy] = [(); 2].map(|()| file.tensor(dtype, &[lead, windows].concat()));
    file.add(&format!("pool({x} -> {y}, {options})"));
    file.add(&format!("pool_backward({x}, {dy} -> {dx}, {options})"));
    if options.contains("mode: max") {
        let indices = file.indices("i32", &[lead, windows].concat());
        let [other, again] = [windows, sizes].map(|sizes| file.tensor(dtype, &[lead, sizes].concat()));
        file.add(&format!("pool_backward({x}, {dy}, {indices} -> {again}, {options})"));
        file.add(&format!("pool({x} -> {other}, {indices}, {options})"));
        file.add(&format!("pool_backward({x}, {dy}, {indices} -> {dx}, {options})"));
    }
}

#[test]
fn pools_of_any_form() {
    let mut file = File::new(33);
    for case in 0..cases(16) {
        let dtype = file.pick(&FLOATS);
        let spatial = 1 + file.below(3) as usize;
        let lead = vec![1 + file.below(3), 1 + file.below(5)];
        let mode = file.pick(&["max", "mean"]);
        let sizes: Vec<u64> = (0..spatial).map(|_| file.pick(&[1, 5, 9, 17])).collect();
        // One window of all elements is shared by a warp.
        let (windows, options) = if case % 3 == 0 {
            let windows: Vec<u64> = sizes.iter().map(|&size| file.pick(&[1, 2, 3, size, size + 2])).collect();
            (windows, "adaptive: true".to_owned())
        } else {
            let size: Vec<u64> = sizes.iter().map(|&size| size.min(file.pick(&[1, 2, 3, 9]))).collect();
            let (stride, padding): (Vec<u64>, Vec<u64>) =
                size.iter().map(|&size| (1 + file.below(4), file.below(size / 2 + 1))).unzip();
            let dilation: Vec<u64> = (0..spatial)
                .map(|axis| match (mode, size[axis]) {
                    ("mean", _) => 1,
                    (_, 1) => (1 + file.below(3)).min(sizes[axis]),
                    (_, size) => {
                        (1 + file.below(3)).min((sizes[axis] + 2 * padding[axis] - 1) / (size - 1)).min(sizes[axis])
                    }
                })
                .collect();
            let span = |axis: usize| dilation[axis] * (size[axis] - 1) + 1;
            let windows =
                (0..spatial).map(|axis| (sizes[axis] + 2 * padding[axis] - span(axis)) / stride[axis] + 1).collect();
            let counts = file.below(2) == 0;
            let options = format!(
                "size: {size:?}, stride: {stride:?}, padding: {padding:?}, dilation: {dilation:?}, count_padding: {counts}"
            );
            (windows, options)
        };
        pool_both_ways(&mut file, dtype, &lead, &sizes, &windows, &format!("mode: {mode}, {options}"));
    }
    // The dilation of a window of one element has no effect, also where dimensions are joined.
    pool_both_ways(&mut file, "f32", &[1, 1], &[5, 1], &[1, 1], "mode: max, size: [5, 1], stride: 1, dilation: [1, 3]");
    file.check();
}

/// Few windows that are so large that several blocks read each, and a second kernel joins their parts; and some that are
/// slightly too small for that.
#[test]
fn pools_of_few_large_windows() {
    let mut file = File::new(36);
    for case in 0..cases(12) {
        let dtype = file.pick(&FLOATS);
        let mode = ["max", "mean"][case as usize % 2];
        let lead = [1 + file.below(2), 1 + file.below(2)];
        let sizes = [60 + file.below(90), 61 + file.below(90)];
        let (windows, options) = match file.below(3) {
            0 => ([1, 1], "adaptive: true".to_owned()),
            1 => ([1 + file.below(3), 1 + file.below(3)], "adaptive: true".to_owned()),
            _ => {
                let dilation = if mode == "max" { 1 + file.below(2) } else { 1 };
                let size = sizes.map(|size| (size - 1) / dilation);
                let windows = [0, 1].map(|axis| (sizes[axis] + 2 - dilation * (size[axis] - 1) - 1) / 2 + 1);
                (windows, format!("size: {size:?}, stride: 2, padding: 1, dilation: {dilation}"))
            }
        };
        pool_both_ways(&mut file, dtype, &lead, &sizes, &windows, &format!("mode: {mode}, {options}"));
    }
    file.check();
}

/// So many planes that a thread computes the same position of several: windows with and without overlap, in several layouts.
#[test]
fn pools_of_many_planes() {
    let mut file = File::new(37);
    for (mode, size, stride) in effort::chosen([("max", 2, 2), ("max", 3, 2), ("mean", 2, 3)]) {
        let dtype = file.pick(&["f32", "f16"]);
        let lead = [61 + file.below(9), 71 + file.below(9)];
        let sizes = [8 + file.below(3), 8];
        let windows = sizes.map(|length| (length - size) / stride + 1);
        let options = format!("mode: {mode}, size: {size}, stride: {stride}");
        pool_both_ways(&mut file, dtype, &lead, &sizes, &windows, &options);
    }
    file.check();
}

/// So many overlapping windows that a thread computes neighbours along the second dimension, which share elements; and the gradients
/// of several rows of elements. The rows are no multiple of those of a thread.
#[test]
fn pools_of_overlapping_rows() {
    let mut file = File::new(43);
    for (mode, lead, lengths, size, stride, padding) in effort::chosen([
        ("max", [3, 7], &[117, 119][..], 3, 1, 1),
        ("mean", [3, 7], &[121, 117], 3, 1, 0),
        ("max", [5, 31], &[85, 93], 3, 2, 1),
        ("mean", [2, 5], &[9, 59, 61], 2, 1, 1),
    ]) {
        let dtype = file.pick(&["f32", "bf16"]);
        let sizes: Vec<u64> = lengths.iter().map(|length| length - file.below(3)).collect();
        let windows: Vec<u64> = sizes.iter().map(|length| (length + 2 * padding - size) / stride + 1).collect();
        let options = format!("mode: {mode}, size: {size}, stride: {stride}, padding: {padding}");
        pool_both_ways(&mut file, dtype, &lead, &sizes, &windows, &options);
    }
    file.check();
}

/// Gradients of maxima of windows that contain each element once: few windows of few elements, windows for each of which a part of a
/// block is enough, windows that the blocks of a cluster share, and windows side by side, in some cases with common columns, whose rows
/// a block reads.
#[test]
fn gradients_of_partitions() {
    let mut file = File::new(44);
    for (lead, lengths, windows) in effort::chosen([
        ([25, 8], &[232][..], &[4][..]),
        ([2, 9], &[35, 63], &[7, 1]),
        ([7, 120], &[60, 45], &[4, 1]),
        ([1, 3], &[136, 212], &[1, 4]),
        ([5, 4], &[48, 92], &[2, 5]),
        ([3, 5], &[40, 60], &[1, 4]),
        ([2, 3], &[4, 10, 36], &[2, 1, 7]),
    ]) {
        let dtype = file.pick(&FLOATS);
        let options = "mode: max, adaptive: true";
        pool_both_ways(&mut file, dtype, &lead, lengths, windows, options);
    }
    file.check();
}

/// So many planes with one or two windows that a few threads read each.
#[test]
fn pools_of_many_small_planes() {
    let mut file = File::new(40);
    for (mode, windows) in effort::chosen([("max", [1, 2]), ("mean", [1, 2]), ("max", [1, 1]), ("mean", [1, 1])]) {
        let dtype = file.pick(&["f32", "f16"]);
        let lead = [37 + file.below(9), 61 + file.below(9)];
        let sizes = [10 + file.below(3), 9];
        let [x, dx] = [(); 2].map(|()| file.tensor(dtype, &[lead, sizes].concat()));
        let [y, dy] = [(); 2].map(|()| file.tensor(dtype, &[lead, windows].concat()));
        file.add(&format!("pool({x} -> {y}, mode: {mode}, adaptive: true)"));
        file.add(&format!("pool_backward({x}, {dy} -> {dx}, mode: {mode}, adaptive: true)"));
    }
    file.check();
}

/// Windows with many short rows, of which a block joins the columns first.
#[test]
fn pools_of_columns() {
    let mut file = File::new(38);
    for (mode, rank) in effort::chosen([("max", 2), ("mean", 2), ("mean", 3)]) {
        let dtype = file.pick(&FLOATS);
        // Enough rows of windows for a block each to occupy a device.
        let (lead, lengths, size, stride, padding) =
            if rank == 2 { ([5, 6], &[22, 133][..], 9, 2, 3) } else { ([3, 3], &[7, 8, 50][..], 5, 1, 2) };
        let sizes: Vec<u64> = lengths.iter().map(|length| length - file.below(3)).collect();
        let windows: Vec<u64> = sizes.iter().map(|length| (length + 2 * padding - size) / stride + 1).collect();
        let x = file.tensor(dtype, &[&lead[..], &sizes].concat());
        let y = file.tensor(dtype, &[&lead[..], &windows].concat());
        file.add(&format!("pool({x} -> {y}, mode: {mode}, size: {size}, stride: {stride}, padding: {padding})"));
        if mode == "max" {
            let [dy, dx] = [&windows, &sizes].map(|sizes| file.tensor(dtype, &[&lead[..], sizes].concat()));
            let options = format!("mode: max, size: {size}, stride: {stride}, padding: {padding}");
            file.add(&format!("pool_backward({x}, {dy} -> {dx}, {options})"));
        }
    }
    file.check();
}

/// So many small windows in whole packs that a block joins packs of columns: with padding, and with more rows than whole tiles have.
#[test]
fn pools_of_packs_of_columns() {
    let mut file = File::new(42);
    for (dtype, mode, size, stride, padding) in
        effort::chosen([("f16", "max", 5, 2, 2), ("bf16", "mean", 5, 2, 2), ("f16", "mean", 6, 2, 1)])
    {
        let lead = [6, 68 + file.below(3)];
        let x = loop {
            let x = file.tensor(dtype, &[lead, [200, 16]].concat());
            if !x.contains('[') {
                break x;
            }
        };
        let windows = [200, 16].map(|length| (length + 2 * padding - size) / stride + 1);
        let y = file.tensor(dtype, &[lead, windows].concat());
        file.add(&format!("pool({x} -> {y}, mode: {mode}, size: {size}, stride: {stride}, padding: {padding})"));
    }
    file.check();
}

/// Gradients of maxima of fewer windows than elements, which windows share or no window contains: zeros, and then the gradients of
/// the maxima. A place is that in the window or that in the plane.
#[test]
fn gradients_of_few_maxima() {
    let mut file = File::new(39);
    for (lengths, size, stride, padding) in effort::chosen([
        (&[301][..], 64, 2, 1),
        (&[13, 12, 17], 3, 5, 1),
        (&[40, 33], 9, 4, 2),
        (&[11, 14, 13], 5, 2, 0),
        (&[31, 45], 0, 0, 0),
    ]) {
        let dtype = file.pick(&FLOATS);
        let lead = [1 + file.below(3), 1 + file.below(4)];
        let sizes: Vec<u64> = lengths.iter().map(|length| length + file.below(3)).collect();
        let (windows, options): (Vec<u64>, _) = match size {
            0 => (vec![1 + file.below(2), 7], "adaptive: true".to_owned()),
            _ => {
                let windows = sizes.iter().map(|length| (length + 2 * padding - size) / stride + 1).collect();
                (windows, format!("size: {size}, stride: {stride}, padding: {padding}"))
            }
        };
        pool_both_ways(&mut file, dtype, &lead, &sizes, &windows, &format!("mode: max, {options}"));
    }
    // Threads read packs of columns of wide rows. Some rows are no multiple of a pack, and some windows begin within one.
    for mode in effort::chosen(["max", "mean"]) {
        let dtype = file.pick(&FLOATS);
        let (rows, columns, across) = (9 + file.below(10), 8 + file.below(4), 1 + file.below(12));
        let padding = [file.below(4), file.below(4)];
        let x = [1, 1072 + rows, file.pick(&[520, 1032, 1030, 1029])];
        let y = [1, x[1] + 2 * padding[0] - rows + 1, (x[2] + 2 * padding[1] - columns) / across + 1];
        let (x, y) = (file.tensor(dtype, &[&[1], &x[..]].concat()), file.tensor(dtype, &[&[1], &y[..]].concat()));
        let options = format!("size: [{rows}, {columns}], stride: [1, {across}], padding: {padding:?}");
        file.add(&format!("pool({x} -> {y}, mode: {mode}, {options})"));
    }
    file.check();
}

/// The calls of a library cover all samples with few computed twice, and of the options only the order that is allowed differs.
#[test]
fn calls_of_a_library_share_the_samples() {
    let tensor = |sizes: &[u64]| {
        let dims = Dims::from_slice(sizes).expect("few dimensions");
        Tensor { dtype: DType::F32, dims, strides: dims.contiguous_strides(), space: Space::Device, align: 16 }
    };
    let offered = |samples: u64, options: &[(&'static str, Attr)]| {
        let inputs = vec![tensor(&[samples, 3, 512, 512]), tensor(&[29, 3, 1, 1])];
        let launches = Spec::of_use("conv", options, inputs, &[None]).expect("a convolution").launch();
        match &launches[..] {
            [Launch::Conv(conv, ..)] => conv.as_ref().clone(),
            other => panic!("{other:?}"),
        }
    };
    let bytes = 32 * 512 * 512 * 4;
    for samples in 1..300 {
        let (piece, starts) = offered(samples, &[]).pieces();
        let (size, needed) = (piece.tensors[0].dims[0], samples.div_ceil((1 << 30) / bytes));
        let ends: Vec<u64> = starts.iter().map(|start| start + size).collect();
        assert!(starts[0] == 0 && ends.last() == Some(&samples), "{samples}: {starts:?} of {size}");
        assert!(starts.iter().skip(1).zip(&ends).all(|(start, end)| start <= end), "{samples}: no gap");
        assert!(size * bytes <= 1 << 30 && (needed..=2 * needed).contains(&(starts.len() as u64)), "{samples}");
        let twice = starts.len() as u64 * size - samples;
        let fewest = (needed..=2 * needed).map(|calls| calls * samples.div_ceil(calls) - samples).min();
        assert_eq!(Some(twice), fewest, "{samples}: {starts:?} of {size}");
    }
    let unordered = [("deterministic", Attr::Bool(false))];
    assert_eq!((offered(1, &[]).deterministic, offered(1, &unordered).deterministic), (true, false));
}
