//! The tilings of a grouped product that a device times, since estimates of their times differ from measured ones.

use std::sync::Arc;

use super::kernel::Tiling;
use super::lengths::random_lengths;
use super::*;

/// A tiling is timed if its estimated time is below this multiple of the least. Within the tilings of a product, the logarithms of
/// estimated and measured times differ with a standard deviation of 0.053 (docs/measurements/2026-11-28-blocks-that-exchange-sums.md), so
/// that twice the deviation of a difference of two is 15 %.
const NEAR: f64 = 1.15;

/// Returns the launch with the kernels of up to `most` tilings, the fastest by estimate first; `None` if a single one is near.
pub fn launch(spec: &Spec, most: usize) -> Option<Launch> {
    let ends = &spec.inputs[ENDS];
    if ends.strides[0] != 1 || ends.space != Space::Device {
        return None;
    }
    let tilings = Tiling::nearest(spec, NEAR, most);
    if tilings.len() < 2 {
        return None;
    }
    let (mut ways, mut kernels) = (Vec::new(), Vec::new());
    for tiling in &tilings {
        let before = kernels.len();
        kernels.extend(tiling.launches(spec).into_iter().filter_map(|launch| match launch {
            Launch::Kernel(kernel) => Some(kernel),
            _ => None,
        }));
        ways.push(KernelWay { name: tiling.describe(), kernels: kernels.len() - before });
    }
    let shape = Shape::of(spec);
    let Shape { in_depth, groups, rows, columns, depth } = shape;
    let along = if in_depth { "depth" } else { "rows" };
    let dtype = spec.inputs[0].dtype;
    let what = format!("grouped product [{rows}, {depth}] × [{depth}, {columns}] {dtype}, {groups} groups of {along}");
    let flops = 2.0 * rows as f64 * columns as f64 * depth as f64;
    let contents = (ENDS as u8, contents(spec, &shape));
    Some(Launch::Ways(Arc::new(KernelWays { what, flops, ways, contents }), kernels))
}

/// Returns the bytes of the ends of groups for a trial: those that the text determines, otherwise those of a random division.
fn contents(spec: &Spec, shape: &Shape) -> Arc<[u8]> {
    let ends: Vec<i64> = match spec.sizes.as_deref().map(|sizes| &sizes[..]) {
        Some([ends]) => ends.clone(),
        _ => {
            let lengths = random_lengths(shape);
            let all = lengths.iter().flat_map(|&(length, count)| (0..count).map(move |_| length as i64));
            all.scan(0, |end, length| {
                *end += length;
                Some(*end)
            })
            .collect()
        }
    };
    match spec.inputs[ENDS].dtype {
        DType::I32 => ends.iter().flat_map(|&end| (end as i32).to_le_bytes()).collect(),
        _ => ends.iter().flat_map(|end| end.to_le_bytes()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(groups: u64, rows: u64, depth: u64, columns: u64) -> Spec {
        product_of(false, [&[rows, depth], &[groups, depth, columns]], groups)
    }

    /// The first way has the kernels of the launches without a trial, and no two ways have the same kernels.
    #[test]
    fn the_first_way_is_the_fastest_by_estimate() {
        let spec = product(8, 4096, 1024, 1536);
        let [Launch::Ways(ways, kernels)] = &launch(&spec, 4).into_iter().collect::<Vec<_>>()[..] else {
            panic!("several tilings are near")
        };
        assert!((2..=4).contains(&ways.ways.len()));
        assert_eq!(ways.ways.iter().map(|way| way.kernels).sum::<usize>(), kernels.len());
        let alone: Vec<Launch> = kernels[..ways.ways[0].kernels].iter().cloned().map(Launch::Kernel).collect();
        assert_eq!(alone, spec.launch());
        let mut rest = &kernels[..];
        let mut seen: Vec<&[Kernel]> = Vec::new();
        for way in &ways.ways {
            let (own, others) = rest.split_at(way.kernels);
            assert!(!seen.contains(&own), "{}", way.name);
            seen.push(own);
            rest = others;
        }
        assert!(launch(&spec, 1).is_none());
    }

    /// Groups of 509 and 216 rows have five tiles of 192 rows, which take two rounds of blocks. Equal and random groups have four.
    #[test]
    fn tilings_are_near_for_the_groups_that_the_text_determines() {
        let mut spec = product(2, 725, 1912, 5952);
        let names = |spec: &Spec| match &launch(spec, 6) {
            Some(Launch::Ways(ways, _)) => ways.ways.iter().map(|way| way.name.clone()).collect::<Vec<_>>(),
            _ => panic!("several tilings are near"),
        };
        let is_high = |name: &String| name.starts_with("tiles of 192 × 192");
        assert!(names(&spec).iter().any(is_high), "{:?}", names(&spec));
        spec.sizes = Some(Arc::new(vec![vec![509, 725]]));
        assert!(!names(&spec).iter().any(is_high), "{:?}", names(&spec));
    }

    /// A trial has the ends that the text determines. Without them, its groups are uneven, and end with the last row.
    #[test]
    fn a_trial_has_all_groups() {
        let mut spec = product(3, 100, 64, 64);
        let numbers = |spec: &Spec| -> Vec<i32> {
            let bytes = contents(spec, &Shape::of(spec));
            bytes.chunks(4).map(|end| i32::from_le_bytes(end.try_into().expect("four bytes"))).collect()
        };
        assert_eq!(numbers(&spec), [61, 89, 100]);
        spec.sizes = Some(Arc::new(vec![vec![5, 5, 90]]));
        assert_eq!(numbers(&spec), [5, 5, 90]);
    }
}
