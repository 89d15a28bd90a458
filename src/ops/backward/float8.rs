//! Products of 8-bit floats in a backward pass: their scales, and gradients rounded to 8 bits.

use super::super::ScaleForm;
use super::super::matrix::{SCALE_BLOCK, scales};
use super::*;

/// Reason why a product with several scales for a matrix has no products with quantized gradients.
const SEVERAL_SCALES: NoRule = "`quantize` is for products with one scale for each matrix, as the products with the gradient sum \
                                over the rows and blocks that share its scales: leave out `quantize`";

/// Reason why a product with scales of blocks has no gradients.
const PARTIAL_BLOCKS: NoRule =
    "its last blocks are not whole: the sizes that its scales divide into blocks must be multiples of 128";

/// The scales of one factor of a product, as a view that is broadcast to a view of the factor.
#[derive(Clone, Copy)]
struct FactorScale {
    /// Dimensions of the view of the factor.
    whole: Dims,
    /// The scales, of size 1 along the dimensions of `whole` whose elements share a scale.
    view: TensorId,
    /// Dimensions of the transposed scales; `None` if the view has the order of the scales.
    turned: Option<Dims>,
}

impl FactorScale {
    /// Returns the scales of both factors; `None` for a product without scales.
    fn of(rule: &mut Backward, turned: [bool; 2]) -> Result<Option<[FactorScale; 2]>, NoRule> {
        let Some(scales) = scales(rule.spec) else { return Ok(None) };
        let one = |rule: &mut Backward, factor: usize| -> Result<FactorScale, NoRule> {
            let own = rule.spec.inputs[factor].dims;
            let (scale, scale_dims) = (rule.input(2 + factor), rule.spec.inputs[2 + factor].dims);
            let last = own.len() - 1;
            let is_turned = turned[factor];
            let (sizes, kept): (Vec<u64>, Vec<usize>) = match scales.form {
                ScaleForm::Tensor => (own.to_vec(), Vec::new()),
                // The dimension of the result: rows of `a`, columns of `b`.
                ScaleForm::RowsAndColumns => (own.to_vec(), vec![if (factor == 1) != is_turned { last } else { 0 }]),
                ScaleForm::Blocks => {
                    let is_blocked = |axis: usize| factor == 1 || (axis == 1) != is_turned;
                    let (mut sizes, mut kept) = (Vec::new(), Vec::new());
                    for (axis, &size) in own.iter().enumerate() {
                        kept.push(sizes.len());
                        match is_blocked(axis) {
                            true if size % SCALE_BLOCK != 0 => return Err(PARTIAL_BLOCKS),
                            true => sizes.extend([size / SCALE_BLOCK, SCALE_BLOCK]),
                            false => sizes.push(size),
                        }
                    }
                    (sizes, kept)
                }
            };
            // Scales of blocks are stored along k and then m for `a`, along n and then k for `b`.
            let turns = scales.form == ScaleForm::Blocks && !is_turned;
            let turned = turns.then(|| Dims::from([scale_dims[1], scale_dims[0]]));
            let scale = match turned {
                Some(turned) => rule.tape.operation("transpose", &[], &[scale], (DType::F32, turned)),
                None => scale,
            };
            let mut of_view = vec![1; sizes.len()];
            kept.iter().for_each(|&axis| of_view[axis] = sizes[axis]);
            let view = rule.tape.reshape(scale, of_view.into_iter().collect());
            Ok(FactorScale { whole: sizes.into_iter().collect(), view, turned })
        };
        Ok(Some([one(rule, 0)?, one(rule, 1)?]))
    }

    /// True if the factor has one scale.
    fn is_single(&self, tape: &Tape) -> bool {
        tape.dims(self.view).iter().all(|&size| size == 1)
    }

    /// Multiplies a factor by its scales, and returns it in another type.
    fn apply(&self, rule: &mut Backward, factor: TensorId, dtype: DType) -> TensorId {
        let own = rule.tape.dims(factor);
        let factor = rule.tape.reshape(factor, self.whole);
        let scaled = rule.map([factor, self.view], dtype, |[x, scale]| x * scale);
        rule.tape.reshape(scaled, own)
    }

    /// Sets the gradient of the scales from that of the dequantized factor, or from that of the factor as it is stored, which
    /// includes the scale (`is_scaled`): each scale receives the sum over its elements.
    fn set(&self, rule: &mut Backward, factor: usize, gradient: TensorId, is_scaled: bool) {
        let [gradient, value] = [gradient, rule.stored(factor)].map(|value| rule.tape.reshape(value, self.whole));
        let of_view = rule.tape.dims(self.view);
        let axes: Vec<usize> = (0..of_view.len()).filter(|&axis| of_view[axis] == 1).collect();
        let sum = rule.reduce("sum", ([gradient, value], &axes), DType::F32, |[g, x]| g * x);
        let mut found = match is_scaled {
            true => rule.map([sum, self.view], DType::F32, |[sum, scale]| sum / scale),
            false => sum,
        };
        if let Some(turned) = self.turned {
            let scale_dims = rule.spec.inputs[2 + factor].dims;
            found = rule.tape.reshape(found, turned);
            found = rule.tape.operation("transpose", &[], &[found], (DType::F32, scale_dims));
        }
        rule.set(2 + factor, found);
    }
}

/// A factor of a product with a gradient; with the scale that `scaled_gemm` takes, if it has 8 bits.
pub type ScaledFactor = (TensorId, Option<TensorId>);

/// The factors of the products that compute the gradients of 8-bit factors.
pub struct NarrowFactors {
    /// Scales of the factors as they are stored.
    scales: Option<[FactorScale; 2]>,
    /// The gradient of the product.
    pub gradient: ScaledFactor,
    /// Product of the scales of both factors, for a quantized gradient; otherwise `None`.
    both: Option<TensorId>,
}

impl NarrowFactors {
    /// Prepares the products with this gradient of the product.
    pub fn of(rule: &mut Backward, gradient: TensorId, turned: [bool; 2]) -> Result<NarrowFactors, NoRule> {
        let scales = FactorScale::of(rule, turned)?;
        let Some(to) = rule.quantize else {
            return Ok(NarrowFactors { scales, gradient: (gradient, None), both: None });
        };
        if scales.is_some_and(|scales| scales.iter().any(|scale| !scale.is_single(rule.tape))) {
            return Err(SEVERAL_SCALES);
        }
        let axes: Vec<usize> = (0..rule.tape.dims(gradient).len()).collect();
        let amax = rule.reduce("max", ([gradient], &axes), DType::F32, |[x]| x.abs());
        // A gradient of zeros has the smallest normal scale, so that nothing is divided by zero.
        let (largest, smallest) = (to.largest(), DType::F32.smallest());
        let scale = rule.map([amax], DType::F32, |[amax]| (amax / amax.constant(largest)).max(smallest));
        let quantized = rule.map([gradient, scale], to, |[x, scale]| x / scale);
        let scale = rule.tape.reshape(scale, Dims::from([1]));
        let both = match scales {
            Some(scales) => {
                let [a, b] = scales.map(|scale| rule.tape.reshape(scale.view, Dims::from([1])));
                rule.map([a, b], DType::F32, |[a, b]| a * b)
            }
            None => rule.tape.operation("fill", &[("value", Attr::number(1.0))], &[], (DType::F32, Dims::from([1]))),
        };
        Ok(NarrowFactors { scales, gradient: (quantized, Some(scale)), both: Some(both) })
    }

    /// A factor as an operand of the product with the gradient. It has 8 bits for a quantized gradient, otherwise the type of the
    /// gradient, multiplied by its scales if there are several.
    pub fn factor(&self, rule: &mut Backward, factor: usize) -> ScaledFactor {
        let value = rule.stored(factor);
        if self.both.is_some() {
            return (value, self.both);
        }
        let dtype = rule.tape.dtype(self.gradient.0);
        match self.scales {
            Some(scales) if !scales[factor].is_single(rule.tape) => (scales[factor].apply(rule, value, dtype), None),
            _ => (rule.convert(value, dtype), None),
        }
    }

    /// True if a factor or its scales need a gradient.
    pub fn wants(&self, rule: &Backward, factor: usize) -> bool {
        rule.wants(factor) || self.scales.is_some() && rule.wants(2 + factor)
    }

    /// Sets the gradients of a factor and of its scales from the product of the gradient and the other factor.
    pub fn set(&self, rule: &mut Backward, factor: usize, found: TensorId) {
        let Some(scales) = self.scales else { return rule.set(factor, found) };
        let (own, other) = (scales[factor], scales[1 - factor]);
        if self.both.is_some() {
            // `scaled_gemm` has applied the scales.
            rule.set(factor, found);
            if rule.wants(2 + factor) {
                own.set(rule, factor, found, true);
            }
            return;
        }
        let mut found = rule.tape.reshape(found, own.whole);
        let single = other.is_single(rule.tape).then(|| rule.tape.reshape(other.view, Dims::new()));
        if rule.wants(2 + factor) {
            // The gradient of the dequantized factor, without a division by its scale, which may be zero.
            if let Some(other) = single {
                found = rule.map([found, other], DType::F32, |[x, other]| x * other);
            }
            own.set(rule, factor, found, false);
            found = rule.map([found, own.view], DType::F32, |[x, own]| x * own);
        } else if let Some(other) = single {
            found = rule.map([found, own.view, other], DType::F32, |[x, own, other]| x * own * other);
        } else {
            found = rule.map([found, own.view], DType::F32, |[x, own]| x * own);
        }
        rule.set(factor, found);
    }
}
