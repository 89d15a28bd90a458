//! Divides a strided transposed convolution into several convolutions without a stride.
//!
//! In a dimension with stride `s`, results whose positions are equal modulo `s` use the same elements of the kernel;
//! the other kernel elements fall between windows. Each such class of positions is a phase: a transposed convolution
//! without a stride and with a smaller kernel. The phases compute no products with gaps between windows.

use super::shape::Shape;
use super::*;

/// Maximum number of phases of a convolution. Each phase takes a launch.
const MAX_PHASES: u64 = 32;

/// Minimum number of multiplications per phase for which phases save more time than their launches take: a launch takes
/// about 2 µs, in which an H100 computes the positions of 4 · 10^6 products.
const MIN_MULTIPLICATIONS: f64 = 4e6;

/// Padding of a phase without kernel elements: so large that its window contains no element of the tensor.
const NOWHERE: i64 = -(1 << 30);

/// A whole convolution or one phase of it.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// Sizes of the phase.
    pub shape: Shape,
    /// Padding of each dimension as the kernel applies it; can be negative.
    pub padding: [i64; 3],
    /// For each dimension, the first element of the kernel that the phase uses and the stride to the next one.
    pub taps: [(u64, u64); 3],
    /// For each dimension, the first position of the phase in the result and the stride to the next one.
    pub places: [(u64, u64); 3],
}

impl Phase {
    /// Returns the phases of a convolution: the whole convolution, or several phases for a large transposed convolution
    /// with a stride.
    pub fn all(shape: Shape) -> Vec<Phase> {
        let whole = Phase::whole(shape);
        let count: u64 = shape.stride.iter().product();
        let is_divided = shape.form == Form::Transposed
            && (2..=MAX_PHASES).contains(&count)
            && shape.multiplications() >= MIN_MULTIPLICATIONS * count as f64;
        let mut phases = vec![whole];
        if is_divided {
            for axis in 0..shape.stride.len() {
                phases = phases.iter().flat_map(|phase| phase.along(axis)).collect();
            }
        }
        phases
    }

    /// Returns a convolution as a single phase.
    pub fn whole(shape: Shape) -> Phase {
        let mut padding = [0; 3];
        for (own, &size) in padding.iter_mut().zip(shape.padding.iter()) {
            *own = size as i64;
        }
        Phase { shape, padding, taps: [(0, 1); 3], places: [(0, 1); 3] }
    }

    /// Returns the nonempty phases along a dimension.
    fn along(&self, axis: usize) -> impl Iterator<Item = Phase> + '_ {
        let stride = self.shape.stride[axis];
        (0..stride.min(self.shape.x[axis])).map(move |first| self.phase(axis, first))
    }

    /// Returns the phase of the positions `first`, `first + stride`, …
    fn phase(&self, axis: usize, first: u64) -> Phase {
        let Shape { stride, dilation, kernel, padding, .. } = self.shape;
        let (stride, dilation, size) = (stride[axis], dilation[axis], kernel[axis]);
        let start = first + padding[axis];
        let meets = |tap: &u64| (start + tap * (stride - dilation % stride) % stride).is_multiple_of(stride);
        let step = stride / common_divisor(stride, dilation);
        let tap = (0..size.min(step)).find(meets);
        let mut phase = *self;
        let shape = &mut phase.shape;
        shape.stride.set(axis, 1);
        shape.x.set(axis, (self.shape.x[axis] - first).div_ceil(stride));
        shape.kernel.set(axis, tap.map_or(1, |tap| (size - tap).div_ceil(step)));
        shape.dilation.set(axis, dilation * step / stride);
        phase.taps[axis] = (tap.unwrap_or(0), step);
        phase.places[axis] = (first, stride);
        phase.padding[axis] = tap.map_or(NOWHERE, |tap| (start as i64 - (tap * dilation) as i64) / stride as i64);
        phase
    }
}

/// Returns the greatest common divisor.
fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::hash;

    /// Each position of the result belongs to exactly one phase, which uses the same kernel elements as the whole
    /// convolution.
    #[test]
    fn phases_are_the_whole() {
        for seed in 0..300 {
            let draw = |count: u64, limit: u64| hash(seed, count) % limit;
            let each = |count: u64, limit: u64, least: u64| {
                Dims::from_slice(&[0, 1].map(|axis| least + draw(count + axis, limit))).expect("two dimensions")
            };
            let (kernel, stride) = (each(0, 5, 1), each(2, 4, 1));
            let shape = Shape {
                form: Form::Transposed,
                samples: 1,
                groups: 1,
                inputs: 1,
                outputs: 1,
                x: each(4, 30, 1),
                kernel,
                y: each(6, 9, 1),
                stride,
                padding: each(8, 4, 0),
                dilation: each(10, 4, 1),
            };
            for axis in 0..2 {
                let mut met = std::collections::BTreeSet::new();
                let mut places = std::collections::BTreeSet::new();
                for phase in Phase::whole(shape).along(axis) {
                    let ((first_tap, tap_step), (first, step)) = (phase.taps[axis], phase.places[axis]);
                    for q in 0..phase.shape.x[axis] {
                        let place = first + q * step;
                        assert!(places.insert(place), "{shape:?}: place {place} twice");
                        for t in 0..phase.shape.kernel[axis] {
                            let tap = first_tap + t * tap_step;
                            let source = q as i64 + phase.padding[axis] - (t * phase.shape.dilation[axis]) as i64;
                            if (0..shape.y[axis] as i64).contains(&source) {
                                assert_eq!(shape.source(axis, place, tap), Some(source as u64), "{shape:?}");
                                met.insert((place, tap));
                            }
                        }
                    }
                }
                let all = |place: u64| (0..shape.kernel[axis]).map(move |tap| (place, tap));
                let pairs = (0..shape.x[axis]).flat_map(all);
                let expected = pairs.filter(|&(place, tap)| shape.source(axis, place, tap).is_some());
                assert!(expected.eq(met), "{shape:?}");
                assert_eq!(places.len() as u64, shape.x[axis]);
            }
        }
    }
}
