//! Positions of windows and elements in a plane, in three dimensions, as kernels see them.

use super::*;
use crate::ops::call::windows;

/// Numbers for each of the three dimensions, such as sizes or strides. Unused dimensions come first.
pub type PerAxis = [u64; 3];

/// The windows of a pool along three dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    pub x: PerAxis,
    pub y: PerAxis,
    /// Size, stride, padding and dilation of windows; `None` if they are adaptive.
    pub steps: Option<[PerAxis; 4]>,
    /// Spatial strides in elements of each operand: `x`, `y` and, for gradients, that of `x`.
    pub strides: [PerAxis; 3],
}

/// Returns the definition of a macro with a value for each dimension.
pub fn each(name: &str, [a, b, c]: PerAxis, suffix: &str) -> String {
    format!("#define {name}(j) (j == 0 ? {a}{suffix} : j == 1 ? {b}{suffix} : {c}{suffix})\n")
}

/// Extends sizes to three dimensions, with `absent` for the missing first ones.
fn per_axis(sizes: &[u64], absent: u64) -> PerAxis {
    let mut all = [absent; 3];
    all[3 - sizes.len()..].copy_from_slice(sizes);
    all
}

impl Grid {
    /// Returns the windows of a pool or of its gradient. Adjacent dimensions in which a single window covers all elements are
    /// joined to one, if memory allows it.
    pub fn of(spec: &Spec, shape: &Shape) -> Grid {
        let operands = spec.inputs.len() + spec.outputs.len();
        let stride = |operand: usize| match operand < operands {
            true => per_axis(&spec.operand(operand).strides[2..], 0),
            false => [0; 3],
        };
        let mut grid = Grid {
            x: per_axis(&shape.x, 1),
            y: per_axis(&shape.y, 1),
            steps: shape.steps.map(|[size, stride, padding, dilation]| {
                [per_axis(&size, 1), per_axis(&stride, 1), per_axis(&padding, 0), per_axis(&dilation, 1)]
            }),
            strides: [0, 1, 2].map(stride),
        };
        for axis in 0..2 {
            grid.join(axis);
        }
        grid
    }

    /// Joins a dimension to the next one.
    fn join(&mut self, axis: usize) {
        let next = axis + 1;
        let follows = |strides: &PerAxis| self.x[axis] == 1 || strides[axis] == strides[next] * self.x[next];
        if !(self.covers(axis) && self.covers(next) && follows(&self.strides[0]) && follows(&self.strides[2])) {
            return;
        }
        self.x[next] *= self.x[axis];
        self.x[axis] = 1;
        for strides in &mut self.strides {
            strides[axis] = 0;
        }
        if let Some([size, stride, _, dilation]) = &mut self.steps {
            (size[next], size[axis]) = (self.x[next], 1);
            (stride[next], stride[axis]) = (self.x[next], 1);
            // A window of one element may have had any dilation.
            (dilation[next], dilation[axis]) = (1, 1);
        }
    }

    /// True if a single window contains all elements along a dimension, and nothing else.
    pub fn covers(&self, axis: usize) -> bool {
        self.y[axis] == 1
            && self.steps.is_none_or(|[size, _, padding, dilation]| {
                size[axis] == self.x[axis] && padding[axis] == 0 && (dilation[axis] == 1 || size[axis] == 1)
            })
    }

    /// Maximum number of elements of a window along a dimension.
    fn size(&self, axis: usize) -> u64 {
        match self.steps {
            Some([size, ..]) => size[axis],
            None if self.x[axis].is_multiple_of(self.y[axis]) => self.x[axis] / self.y[axis],
            None => self.x[axis].div_ceil(self.y[axis]) + 1,
        }
    }

    /// Maximum number of elements of a window.
    pub fn window(&self) -> u64 {
        (0..3).map(|axis| self.size(axis)).product()
    }

    /// Maximum number of elements of a window along each dimension.
    pub fn window_rows(&self) -> PerAxis {
        [0, 1, 2].map(|axis| self.size(axis))
    }

    /// Maximum number of elements of a window along the last dimension.
    pub fn window_row(&self) -> u64 {
        self.size(2)
    }

    /// Number of windows of a plane, and number of its elements.
    pub fn windows(&self) -> u64 {
        self.y.iter().product()
    }

    /// Number of elements of a plane.
    pub fn elements(&self) -> u64 {
        self.x.iter().product()
    }

    /// Maximum number of windows along each dimension that contain an element.
    pub fn most(&self) -> PerAxis {
        [0, 1, 2].map(|axis| match self.steps {
            _ if self.covers(axis) => 1,
            Some([size, stride, _, dilation]) => {
                windows::span(size[axis], dilation[axis]).div_ceil(stride[axis]).min(self.y[axis])
            }
            None => (self.y[axis].div_ceil(self.x[axis]) + 1).min(self.y[axis]),
        })
    }

    /// True if windows neither skip nor share elements.
    pub fn is_disjoint(&self) -> bool {
        self.steps.is_some_and(|[size, stride, _, dilation]| {
            (0..3).all(|axis| dilation[axis] == 1 && size[axis] <= stride[axis])
        })
    }

    /// True if windows of equal sizes divide all elements along a dimension.
    pub fn divides(&self, axis: usize) -> bool {
        let is_divided = |[size, stride, padding, dilation]: [PerAxis; 4]| {
            (size[axis], padding[axis], dilation[axis]) == (stride[axis], 0, 1)
                && size[axis] * self.y[axis] == self.x[axis]
        };
        self.covers(axis) || self.steps.map_or(self.x[axis].is_multiple_of(self.y[axis]), is_divided)
    }

    /// True if each element belongs to exactly one window.
    pub fn is_partition(&self) -> bool {
        self.steps.is_some() && (0..3).all(|axis| self.divides(axis))
    }

    /// Number of cells along each dimension: of each window with the elements up to the next one, and of the elements after the
    /// last window's cell.
    pub fn cells(&self) -> PerAxis {
        let Some([_, stride, padding, _]) = self.steps else { return self.y };
        [0, 1, 2].map(|axis| (self.x[axis] + padding[axis]).div_ceil(stride[axis]).max(self.y[axis]))
    }

    /// Divides each dimension into cells of `stride` elements from the first on; along the second dimension, `tall` of
    /// these are one cell. Returns for each dimension the number of cells; the number of windows that contain an
    /// element of a cell; and the distance from the first window that begins with the cell to the last of these
    /// windows.
    pub fn gathered(&self, tall: u64) -> [PerAxis; 3] {
        let Some([size, stride, padding, _]) = self.steps else { return [self.y; 3] };
        let cell = [stride[0], stride[1] * tall, stride[2]];
        let next = [0, 1, 2].map(|axis| (cell[axis] - 1 + padding[axis]) / stride[axis]);
        let most = [0, 1, 2].map(|axis| next[axis] + (size[axis] - 1 - padding[axis]) / stride[axis] + 1);
        [[0, 1, 2].map(|axis| self.x[axis].div_ceil(cell[axis])), most, next]
    }
}
