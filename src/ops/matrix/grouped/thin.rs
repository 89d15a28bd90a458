//! Grouped products whose groups have few columns, or few rows if groups are parts of the depth: the generated kernels of thin products.

use super::super::thin::{Groups, Thin};
use super::lengths::{live_lengths, read};
use super::*;

/// Description of the kernels.
pub const IMPLEMENTATION: &str = "a generated kernel computes the thin products of all groups";

/// True if generated kernels for thin products compute all groups.
pub fn applies(spec: &Spec) -> bool {
    division(spec).is_some()
}

/// Returns these kernels; `None` if others compute the groups.
pub fn launches(spec: &Spec) -> Option<Vec<Launch>> {
    division(spec).map(|thin| thin.launches(spec))
}

/// Returns the costs of these kernels; `None` if others compute the groups.
pub fn costs(spec: &Spec) -> Option<Vec<Cost>> {
    let thin = division(spec)?;
    let (live, lengths) = live_lengths(spec, Shape::of(spec));
    Some(thin.of_live([live.rows, live.columns, live.depth]).costs(spec, read(spec, &live, &lengths)))
}

/// Returns the division of the product; `None` if other kernels compute the groups.
fn division(spec: &Spec) -> Option<Thin> {
    let Shape { in_depth, groups, rows, columns, depth } = Shape::of(spec);
    let groups = if in_depth { Groups::Depth(groups) } else { Groups::Rows(groups) };
    Thin::of_groups(spec, finish(spec), groups, [rows, columns, depth])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups of few columns take one kernel, and those of the depth two. Tiles compute small products of the depth, and others.
    #[test]
    fn kernels_of_thin_products_compute_few_columns() {
        for (a, b, in_depth, kernels) in [
            ([9000, 512], &[4, 512, 2][..], false, Some(1)),
            ([9000, 512], &[4, 512, 5][..], false, None),
            ([1 << 16, 512], &[1 << 16, 2][..], true, Some(2)),
            ([1 << 16, 3], &[1 << 16, 512][..], true, Some(2)),
            ([1 << 10, 512], &[1 << 10, 2][..], true, None),
        ] {
            let spec = product_of(in_depth, [&a, b], 4);
            assert_eq!(launches(&spec).map(|launches| launches.len()), kernels, "{a:?} {b:?}");
            assert_eq!(costs(&spec).map(|costs| costs.len()), kernels, "{a:?} {b:?}");
        }
    }
}
