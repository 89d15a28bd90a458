//! Divides a strided transposed convolution into several convolutions without a stride.
//!
//! In a dimension with stride `s`, results whose positions are equal modulo `s` use the same elements of the kernel;
//! the other kernel elements fall between windows. Each such class of positions is a phase: a transposed convolution
//! without a stride and with a smaller kernel. The phases compute no products with gaps between windows.

use crate::base::divisors::gcd;

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
    pub fn divided(self) -> Vec<Phase> {
        let shape = self.shape;
        let count: u64 = shape.stride.iter().product();
        let is_divided = shape.form == Form::Transposed
            && (2..=MAX_PHASES).contains(&count)
            && shape.multiplications() >= MIN_MULTIPLICATIONS * count as f64;
        let mut phases = vec![self];
        if is_divided {
            for axis in 0..shape.stride.len() {
                phases = phases.iter().flat_map(|phase| phase.along(axis)).collect();
            }
        }
        phases
    }

    /// Returns the phase without the kernel elements at both ends of each dimension that meet only padding, if it is a convolution
    /// whose groups have one gathered channel; otherwise the same phase. PyTorch's kernels for such convolutions skip padding,
    /// so it does not count there either if a weight is infinite or NaN.
    pub fn trimmed(mut self) -> Phase {
        let shape = self.shape;
        if shape.form != Form::Forward || shape.gathered() != 1 {
            return self;
        }
        for axis in 0..shape.kernel.len() {
            let (stride, padding, dilation) = (shape.stride[axis], shape.padding[axis], shape.dilation[axis]);
            // The first window whose element does not lie before the tensor has the first element of all.
            let meets = |tap: &u64| {
                let window = padding.saturating_sub(tap * dilation).div_ceil(stride);
                window < shape.y[axis] && shape.source(axis, window, *tap).is_some()
            };
            let Some(last) = (0..shape.kernel[axis]).rfind(meets) else { continue };
            // The padding stays positive.
            let first = (0..last).find(meets).unwrap_or(last).min(padding / dilation);
            self.taps[axis].0 = first;
            self.padding[axis] -= (first * dilation) as i64;
            self.shape.padding.set(axis, padding - first * dilation);
            self.shape.kernel.set(axis, last - first + 1);
        }
        self
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
        let step = stride / gcd(stride, dilation);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::hash;

    /// A depthwise convolution without the kernel elements that meet only padding has the same products.
    #[test]
    fn trimmed_phases_have_all_products() {
        let mut trimmed = 0;
        for seed in 0..600 {
            let draw = |count: u64, limit: u64| hash(seed, count) % limit;
            let (x, kernel) = (1 + draw(5, 6), 1 + draw(0, 7));
            let steps @ [stride, padding, dilation] = [1 + draw(1, 3), draw(2, 7), 1 + draw(3, 3)];
            let Some(y) = windows_of(x, kernel, steps) else { continue };
            let sizes = [x, kernel, y, stride, padding, dilation].map(|size| Dims::from([size]));
            let shape = Shape::of_one_channel(Form::Forward, sizes);
            let phase = Phase::whole(shape).trimmed();
            let ((first, step), taps) = (phase.taps[0], phase.shape.kernel[0]);
            trimmed += u64::from(taps < kernel);
            for (window, tap) in (0..y).flat_map(|window| (0..kernel).map(move |tap| (window, tap))) {
                let source = shape.source(0, window, tap);
                let is_kept = (first..first + taps).contains(&tap);
                assert!(step == 1 && (is_kept || source.is_none()), "{shape:?}: element {tap}");
                let own = is_kept.then(|| phase.shape.source(0, window, tap - first)).flatten();
                assert!(!is_kept || own == source, "{shape:?}: element {tap}");
            }
            assert_eq!(phase.padding[0], phase.shape.padding[0] as i64);
        }
        assert!(trimmed > 50, "{trimmed} of the drawn kernels have elements that meet only padding");
    }

    /// Each position of the result belongs to exactly one phase, which uses the same kernel elements as the whole
    /// convolution.
    #[test]
    fn phases_are_the_whole() {
        for seed in 0..300 {
            let draw = |count: u64, limit: u64| hash(seed, count) % limit;
            let each = |count: u64, limit: u64, least: u64| {
                Dims::from_slice(&[0, 1].map(|axis| least + draw(count + axis, limit))).expect("two dimensions")
            };
            // The sizes of x, kernel and y, then stride, padding and dilation.
            let sizes = [each(4, 30, 1), each(0, 5, 1), each(6, 9, 1), each(2, 4, 1), each(8, 4, 0), each(10, 4, 1)];
            let shape = Shape::of_one_channel(Form::Transposed, sizes);
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
