//! Boxes in the dimensions of a memory.

use super::views::Extent;

/// A box: a range in each dimension.
pub(in crate::model) type Region = Vec<Extent>;

/// The intersection of two boxes; `None` if they do not overlap.
pub(in crate::model) fn common(a: &[Extent], b: &[Extent]) -> Option<Region> {
    let shared = |(a, b): (&Extent, &Extent)| {
        let (start, end) = (a.start.max(b.start), a.end().min(b.end()));
        (start < end).then(|| Extent { start, len: end - start })
    };
    a.iter().zip(b).map(shared).collect()
}

/// The parts of a box that remain when another is cut out.
pub(in crate::model) fn without(region: Region, taken: &[Extent]) -> Vec<Region> {
    if !region.iter().zip(taken).all(|(a, b)| a.overlaps(*b)) {
        return vec![region];
    }
    let mut left = Vec::new();
    let mut rest = region;
    for (axis, cut) in taken.iter().enumerate() {
        let (start, end) = (rest[axis].start, rest[axis].end());
        for (from, to) in [(start, cut.start), (cut.end(), end)] {
            if from < to {
                let mut piece = rest.clone();
                piece[axis] = Extent { start: from, len: to - from };
                left.push(piece);
            }
        }
        let (from, to) = (start.max(cut.start), end.min(cut.end()));
        rest[axis] = Extent { start: from, len: to - from };
    }
    left
}
