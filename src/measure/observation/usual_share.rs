//! The usual share of matrix products in the computation of a model. Reports mention a lower share.
//!
//! For inference, the bound is taken from R. Karami and others, "Understanding the Performance Horizon of the Latest ML
//! Workloads with NonGEMM Workloads" (arXiv:2404.11788v4): over the platforms and 16 models of that study, all
//! operations but products take 11.3 % to 73.6 % of the latency on average. For training, it is a figure of A. Ivanov
//! and others, "Data Movement Is All You Need" (arXiv:2007.00072, table 1): in an encoder layer of BERT, run by PyTorch
//! on a V100 without merged operations, products take 61.0 % of the time, statistical normalization 25.5 % and
//! elementwise operations 13.5 %.

use crate::base::Nanos;
use crate::model::Program;
use crate::ops::Category;

use crate::measure::record::CategoryRecord;

/// Mean duration of operations below which their shares depend on launches more than on the model.
const SHORT: Nanos = Nanos(5_000);

/// Share of products in the computation of an inference, in percent, below which the report mentions it.
const INFERENCE: f64 = 26.4;
/// Share of products in the computation of a training, in percent, below which the report mentions it.
const TRAINING: f64 = 61.0;

/// Purpose of a program: training a model, or only inference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Inference,
    /// The program has an optimizer, or the gradient of an operation.
    Training,
}

/// Returns the purpose of a program; `None` if it has no matrix products or no row-wise operations,
/// or trains without attention.
pub fn pass(program: &Program) -> Option<Purpose> {
    let has = |category| program.specs.iter().any(|spec| spec.operation.category() == category);
    let trains = |name: &str| matches!(name, "adamw" | "sgd") || name.ends_with("_backward");
    let is_training = program.specs.iter().any(|spec| trains(spec.operation.name()));
    let is_model = has(Category::Matrix) && has(Category::RowWise);
    // The published share of training is that of a layer with attention.
    let attends = |name: &str| name.contains("attention") || name == "softmax";
    let is_known = !is_training || program.specs.iter().any(|spec| attends(spec.operation.name()));
    (is_model && is_known).then_some(if is_training { Purpose::Training } else { Purpose::Inference })
}

/// A sentence about a share of products below the usual one, with a place to look; `None` if it is as usual.
pub fn unusual(categories: &[CategoryRecord], pass: Purpose) -> Option<String> {
    let computes = |category: &&CategoryRecord| !matches!(category.category.as_str(), "copy" | "collective");
    let busy = |category: &CategoryRecord| category.busy_ns.0 as f64;
    let all: f64 = categories.iter().filter(computes).map(busy).sum();
    let operations: usize = categories.iter().filter(computes).map(|category| category.operations).sum();
    if all < SHORT.0 as f64 * operations.max(1) as f64 {
        return None;
    }
    let products = categories.iter().find(|category| category.category == "matrix").map_or(0.0, busy);
    let share = 100.0 * products / all;
    let (least, usual) = match pass {
        Purpose::Inference => (INFERENCE, "26 % or more in 16 published models at inference"),
        Purpose::Training => (TRAINING, "61 % in PyTorch's training of a BERT layer on a V100"),
    };
    (share < least).then(|| {
        format!(
            "low share of products: {share:.0} % of the time of computation is matrix multiplication, usual is {usual}; the rest runs \
             between the products: `--fuse` merges elementwise and row-wise operations, and `aorta plan` lists what else saves time"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_share_below_the_bound_is_reported() {
        let said_of = |pass: Purpose, shares: [(&str, i64); 3]| {
            let category = |(name, busy): (&str, i64)| CategoryRecord {
                category: name.to_owned(),
                operations: 2,
                busy_ns: Nanos(1000 * busy),
                ..CategoryRecord::default()
            };
            unusual(&shares.map(category), pass)
        };
        let said = |shares| said_of(Purpose::Inference, shares);
        assert_eq!(said([("matrix", 27), ("row-wise", 60), ("elementwise", 13)]), None);
        let low = said([("matrix", 20), ("row-wise", 60), ("elementwise", 20)]);
        assert!(low.is_some_and(|text| text.starts_with("low share of products: 20 % of the time of computation")));
        // The usual share of matrix products is larger in training.
        let trained = said_of(Purpose::Training, [("matrix", 55), ("row-wise", 30), ("elementwise", 15)]);
        assert!(
            trained
                .is_some_and(|text| text.contains("55 % of the time of computation") && text.contains("usual is 61 %"))
        );
        assert_eq!(said_of(Purpose::Training, [("matrix", 65), ("row-wise", 25), ("elementwise", 10)]), None);
        // Copies do not count as computation, and short operations are ignored.
        assert_eq!(said([("matrix", 60), ("row-wise", 30), ("copy", 900)]), None);
        assert_eq!(said([("matrix", 1), ("row-wise", 8), ("elementwise", 1)]), None);
    }
}
