//! The usual share of products in the computation of a model at inference, so that an unusual one is pointed out.
//!
//! The bound is of R. Karami and others, "Understanding the Performance Horizon of the Latest ML Workloads with NonGEMM
//! Workloads" (arXiv:2404.11788v4): over the platforms and 16 models of that study, all operations but products take 11.3 %
//! to 73.6 % of the latency on average.

use crate::base::Nanos;
use crate::model::Program;
use crate::ops::Category;

use super::record::CategoryRecord;

/// Mean duration of an operation below which shares say more about launches than about the model.
const SHORT: Nanos = Nanos(5_000);

/// Share of products in the computation, in percent, below which it is unusual.
const LEAST: f64 = 26.4;

/// True if a program computes a model at inference: with products and row-wise operations, but neither an optimizer nor the
/// gradient of an operation.
pub fn infers(program: &Program) -> bool {
    let has = |category| program.specs.iter().any(|spec| spec.operation.category() == category);
    let trains = |name: &str| matches!(name, "adamw" | "sgd") || name.ends_with("_backward");
    has(Category::Matrix) && has(Category::RowWise) && !program.specs.iter().any(|spec| trains(spec.operation.name()))
}

/// A sentence about a share of products that is unusual at inference, with what to look at; `None` if it is as usual.
pub fn unusual(categories: &[CategoryRecord]) -> Option<String> {
    let computes = |category: &&CategoryRecord| !matches!(category.category.as_str(), "copy" | "collective");
    let busy = |category: &CategoryRecord| category.busy_ns.0 as f64;
    let all: f64 = categories.iter().filter(computes).map(busy).sum();
    let operations: usize = categories.iter().filter(computes).map(|category| category.operations).sum();
    if all < SHORT.0 as f64 * operations.max(1) as f64 {
        return None;
    }
    let products = categories.iter().find(|category| category.category == "matrix").map_or(0.0, busy);
    let share = 100.0 * products / all;
    (share < LEAST).then(|| {
        format!(
            "unusual: matrix multiplication is {share:.0} % of the computation, 26 % or more in 16 models at inference; \
             look at what runs between the products: `aorta plan` lists what other forms of the text would save"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_share_below_the_bound_is_told() {
        let said = |shares: [(&str, i64); 3]| {
            let category = |(name, busy): (&str, i64)| CategoryRecord {
                category: name.to_owned(),
                operations: 2,
                busy_ns: Nanos(1000 * busy),
                ..CategoryRecord::default()
            };
            unusual(&shares.map(category))
        };
        assert_eq!(said([("matrix", 27), ("row-wise", 60), ("elementwise", 13)]), None);
        let low = said([("matrix", 20), ("row-wise", 60), ("elementwise", 20)]);
        assert!(low.is_some_and(|text| text.starts_with("unusual: matrix multiplication is 20 %")));
        // Copies are no computation, and short operations say nothing about the model.
        assert_eq!(said([("matrix", 60), ("row-wise", 30), ("copy", 900)]), None);
        assert_eq!(said([("matrix", 1), ("row-wise", 8), ("elementwise", 1)]), None);
    }
}
