//! Generates calls of convolutions and pools.

use super::Generator;
use super::operations::{FLOATS, Use, tensor_type};

impl Generator<'_> {
    /// A convolution of any form, or a pool or its gradient.
    pub fn windows(&mut self) -> Use {
        if self.choices.once_in(2) {
            return self.pool();
        }
        let dtype = self.choices.pick(&FLOATS);
        let spatial = self.choices.pick(&[1, 2, 3]) as usize;
        let (groups, stride, padding, kernel) = (
            self.choices.pick(&[1, 2]),
            self.choices.pick(&[1, 2]),
            self.choices.pick(&[0, 1]),
            self.choices.pick(&[1, 3]),
        );
        let size = self.choices.pick(&[5, 3, 8]);
        let windows = (size + 2 * padding - kernel) / stride + 1;
        let shape = |first: u64, second: u64, size: u64| [vec![first, second], vec![size; spatial]].concat();
        let (x, w, y) = (shape(2, 2 * groups, size), shape(3 * groups, 2, kernel), shape(2, 3 * groups, windows));
        let [all_x, all_w, all_y] = [&x, &w, &y].map(|dims| tensor_type(dtype, dims));
        let list = vec![stride; spatial];
        let options = match self.choices.once_in(2) {
            true => format!("stride: {list:?}, padding: {padding}, dilation: 1, groups: {groups}"),
            false => format!("groups: {groups}, stride: {stride}, padding: {padding}"),
        };
        let options = options + self.choices.pick(&["", ", deterministic: false"]);
        let (call, dims) = match self.choices.pick(&[0, 1, 2]) {
            0 => (format!("conv({all_x}, {all_w}, {options})"), y),
            1 => {
                let added = size + 2 * padding - (windows - 1) * stride - kernel;
                (format!("conv({all_y}, {all_w}, {options}, transposed: true, output_padding: {added})"), x)
            }
            _ => (format!("conv_weights({all_x}, {all_y}, size: {kernel}, {options})"), w),
        };
        Use { text: call, scratch: vec![("", dtype, dims)] }
    }

    fn pool(&mut self) -> Use {
        let dtype = self.choices.pick(&FLOATS);
        let spatial = self.choices.pick(&[2, 1, 3]) as usize;
        let shape = |size: u64| [vec![2, 3], vec![size; spatial]].concat();
        let mode = self.choices.pick(&["max", "mean"]);
        let padding = self.choices.pick(&[0, 1]);
        let options = match self.choices.once_in(2) {
            true => format!("mode: {mode}, size: 3, padding: {padding}, stride: 2, count_padding: false"),
            false => format!("size: {:?}, mode: {mode}, stride: 2, padding: {padding}", vec![3; spatial]),
        };
        let windows = (7 + 2 * padding - 3) / 2 + 1;
        let (x, y) = (tensor_type(dtype, &shape(7)), tensor_type(dtype, &shape(windows)));
        let indices = tensor_type("i32", &shape(windows));
        match self.choices.pick(&[0, 1, 2, 3]) {
            0 => Use { text: format!("pool({x}, {options})"), scratch: vec![("", dtype, shape(windows))] },
            1 => Use { text: format!("pool_backward({x}, {y}, {options})"), scratch: vec![("", dtype, shape(7))] },
            2 => Use {
                text: format!("pool_backward({x}, {y}, {indices}, adaptive: true)"),
                scratch: vec![("", dtype, shape(7))],
            },
            _ => {
                let text = format!("pool_backward({x}, {y}, adaptive: true)");
                Use { text, scratch: vec![("", dtype, shape(7))] }
            }
        }
    }
}
