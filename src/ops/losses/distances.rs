//! Losses of rows that compare two or three tensors: `cosine_similarity` and `triplet`.

use crate::base::{DType, Dims};
use crate::ops::call::axis;

use super::super::reductions::{Extent, Sums};
use super::super::*;
use crate::ops::expression::formula::{Formula, Term, formula};

/// A comparison of the rows of several tensors, whose shapes broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// `cosine_similarity(a, b)`, as `torch.nn.functional.cosine_similarity`.
    Cosine,
    /// `triplet(anchor, positive, negative)`, as `torch.nn.functional.triplet_margin_loss` without a reduction.
    Triplet,
}

const COSINE: Signature = Signature {
    name: "cosine_similarity",
    summary: "cosine similarity of two tensors along a dimension",
    category: Category::RowWise,
    inputs: &[Input::Tensor("a"), Input::Tensor("b")],
    outputs: &["y"],
    options: &[
        axis::option(-1, "dimension along which similarity is computed; negative ones count from the end"),
        OptionSpec::number("eps", 1e-8, "lower bound of each norm, to avoid division by zero"),
    ],
};

const TRIPLET: Signature = Signature {
    name: "triplet",
    summary: "triplet margin loss: max(d(anchor, positive) - d(anchor, negative) + margin, 0) for each row",
    category: Category::RowWise,
    inputs: &[Input::Tensor("anchor"), Input::Tensor("positive"), Input::Tensor("negative")],
    outputs: &["loss"],
    options: &[
        OptionSpec::number("margin", 1.0, "margin between the two distances"),
        OptionSpec::int("p", 1, 2, 2, "norm of the distance: 1 or 2 (Euclidean)"),
        OptionSpec::number("eps", 1e-6, "term added to each difference"),
        OptionSpec::bool(
            "swap",
            false,
            "distance swap: use the distance of positive and negative if it is the shorter one",
        ),
    ],
};

impl Distance {
    /// The dimension of the vectors.
    fn axis(self, attrs: &Attrs, rank: usize) -> usize {
        match self {
            Distance::Cosine => axis::of(attrs, rank),
            Distance::Triplet => rank - 1,
        }
    }

    fn extent(self, spec: &Spec) -> Extent {
        let dims = Extent::shape(spec);
        Extent::along(dims, self.axis(&spec.attrs, dims.len()))
    }

    fn sums(self, attrs: &Attrs) -> Sums {
        match self {
            Distance::Cosine => cosine(attrs.number("eps")),
            Distance::Triplet => triplet(attrs),
        }
    }
}

/// Dot product of two vectors, divided by the product of their norms.
fn cosine(eps: f64) -> Sums {
    let result = Formula::default();
    let eps = result.constant(eps);
    let [product, a, b] = result.inputs();
    let [a, b] = [a, b].map(|squares| squares.sqrt().max(eps));
    let terms = formula(|[a, b]| [a * b, a.square(), b.square()]);
    Sums { terms, result: result.with_outputs([product / (a * b)]) }
}

/// Distance to the positive minus distance to the negative, plus a margin; at least 0.
fn triplet(attrs: &Attrs) -> Sums {
    let is_euclidean = attrs.int("p") == 2;
    let terms = Formula::default();
    let [anchor, positive, negative] = terms.inputs();
    let eps = terms.constant(attrs.number("eps"));
    let pairs = [(anchor, positive), (anchor, negative), (positive, negative)];
    let pairs = if attrs.bool("swap") { &pairs[..] } else { &pairs[..2] };
    let differences = pairs.iter().map(|&(a, b)| a - b + eps);
    let sizes = differences.map(|apart| if is_euclidean { apart.square() } else { apart.abs() });
    let terms = terms.with_outputs(sizes);
    let result = Formula::default();
    let sums = (0..pairs.len() as u8).map(|sum| result.input(sum));
    let distances: Vec<Term> = sums.map(|sum| if is_euclidean { sum.sqrt() } else { sum }).collect();
    let negative = distances[2..].iter().fold(distances[1], |negative, &swapped| negative.min(swapped));
    let margin = result.constant(attrs.number("margin"));
    let loss = (distances[0] - negative + margin).relu();
    Sums { terms, result: result.with_outputs([loss]) }
}

impl Operation for Distance {
    fn signature(&self) -> &'static Signature {
        match self {
            Distance::Cosine => &COSINE,
            Distance::Triplet => &TRIPLET,
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_floats()?;
        call.needs_rank(0, 1, "along one of which the vectors lie")?;
        let (dtype, dims) = call.broadcast()?;
        let axis = match self {
            Distance::Cosine => call.axis(dims)?,
            Distance::Triplet => dims.len() - 1,
        };
        let rows = Extent::along(dims, axis).result(false);
        Ok(vec![call.float_output(0, dtype, rows)?])
    }

    fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        self.sums(&spec.attrs).launch_costs(spec, &self.extent(spec))
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        self.sums(&spec.attrs).reference(spec, &self.extent(spec), inputs, &mut outputs[0]);
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        vec![self.sums(&spec.attrs).enclose(spec, &self.extent(spec), inputs, &mut outputs[0])]
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        self.extent(spec).pieces(spec)
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        self.sums(&spec.attrs).launches(self.name(), spec, &self.extent(spec))
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::of_sums(rule, &self.sums(&rule.spec.attrs), &self.extent(rule.spec))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes an operation on `f64` rows with the given options, and defaults for the others.
    fn results(operation: Distance, rows: &[&[f64]], options: &[(&'static str, Attr)]) -> f64 {
        let attrs = operation.signature().attrs(options);
        let row = Tensor::packed(DType::F64, &[rows[0].len() as u64]);
        let of_catalogue = find(operation.name()).expect("the catalogue has it");
        let spec = Spec::new(of_catalogue, attrs, vec![row; rows.len()], vec![Tensor::packed(DType::F64, &[])]);
        let mut outputs = vec![vec![0.0]];
        operation.reference(&spec, rows, &mut outputs);
        outputs[0][0]
    }

    /// The formulas of `torch.nn.functional.cosine_similarity`, and of `triplet_margin_loss` with `pairwise_distance`.
    #[test]
    fn rows_are_compared_as_in_torch() {
        let [a, b, c] = [[0.3, -1.2, 2.0], [1.1, 0.4, -0.5], [-0.7, -1.0, 1.5]];
        let dot = |x: &[f64; 3], y: &[f64; 3]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
        let cosine = dot(&a, &b) / (dot(&a, &a).sqrt() * dot(&b, &b).sqrt());
        assert!((results(Distance::Cosine, &[&a, &b], &[]) - cosine).abs() < 1e-15);
        // A vector shorter than `eps` is treated as if its norm were `eps`.
        let eps = [("eps", Attr::number(100.0))];
        assert!((results(Distance::Cosine, &[&a, &b], &eps) - dot(&a, &b) / 1e4).abs() < 1e-15);

        let norm = |x: &[f64; 3], y: &[f64; 3], p: i32, eps: f64| {
            let sum: f64 = x.iter().zip(y).map(|(x, y)| (x - y + eps).abs().powi(p)).sum();
            sum.powf(1.0 / f64::from(p))
        };
        for (p, swap, margin, eps) in
            [(2, false, 1.0, 1e-6), (1, false, 0.5, 0.1), (2, true, 3.0, 0.0), (1, true, 0.0, 0.0)]
        {
            let options = [
                ("p", Attr::Int(p)),
                ("swap", Attr::Bool(swap)),
                ("margin", Attr::number(margin)),
                ("eps", Attr::number(eps)),
            ];
            let p = p as i32;
            let far = if swap { norm(&a, &c, p, eps).min(norm(&b, &c, p, eps)) } else { norm(&a, &c, p, eps) };
            let expected = (norm(&a, &b, p, eps) - far + margin).max(0.0);
            assert!(
                (results(Distance::Triplet, &[&a, &b, &c], &options) - expected).abs() < 1e-14,
                "p {p}, swap {swap}"
            );
        }
    }
}
