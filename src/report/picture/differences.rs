//! Two sides aligned by operation: the time of the operations of each name on both sides.

use crate::base::Nanos;
use crate::measure::compare::{CaseComparison, Comparison, OperationRow};
use crate::report::compare::figures;

use super::chart::{ROW, Rows, time};
use super::{Gallery, Picture, Shape};

/// Maximum number of operations, those that differ most.
const ROWS: usize = 24;

/// A picture for each pair of cases; `None` if no operation was timed on both sides.
pub fn differences(comparison: &Comparison) -> Option<Gallery> {
    let several = comparison.others.len() > 1;
    let pairs = comparison.others.iter().flat_map(|against| {
        let side = if several { format!("{}, ", against.side.name) } else { String::new() };
        against.pairs.iter().filter_map(move |pair| Some((format!("{side}{}", pair.case), draw(pair)?)))
    });
    let notes = [
        "Operations of one name, with the time of all of them in an iteration on each side, without waiting for other \
         ranks. Those that differ most come first.",
    ];
    Gallery::of("difference", "Operations of both sides", &notes, "Case", pairs.collect())
}

fn draw(pair: &CaseComparison) -> Option<Picture> {
    let mut known: Vec<(&OperationRow, f64, f64)> =
        pair.operations.iter().filter_map(|row| Some((row, row.base? * 1e9, row.other? * 1e9))).collect();
    known.sort_by(|(_, a, b), (_, c, d)| (d - c).abs().total_cmp(&(b - a).abs()));
    let hidden = known.len().saturating_sub(ROWS);
    known.truncate(ROWS);
    let most = known.iter().map(|(_, base, other)| base.max(*other)).reduce(f64::max)?;
    let names = known.iter().map(|(operation, ..)| format!("{} × {}", operation.count, operation.name));
    let mut rows = Rows::new(&names.collect::<Vec<_>>(), most);
    for (row, (_, base, other)) in known.iter().enumerate() {
        let y = row as f64 * ROW + 2.0;
        for (side, class, value, y) in
            [("base", "fill-part-7", *base, y), ("other", "fill-part-1", *other, y + (ROW - 6.0) / 2.0)]
        {
            let (from, to) = (rows.x(0.0), rows.x(value));
            let bar = Shape::rect(class, from, y, to - from, (ROW - 6.0) / 2.0);
            rows.shapes.push(bar.titled(format!("{side}: {}", time(value))));
        }
        let difference = Nanos((other - base).round() as i64);
        let sign = if difference.0 > 0 { "+" } else { "" };
        rows.value(row, base.max(*other), format!("{sign}{difference}"));
    }
    let more = if hidden > 0 { format!("; {hidden} that differ less are left out") } else { String::new() };
    let mark = figures(pair).map(|figures| format!(", {figures}")).unwrap_or_default();
    let mut picture = rows.picture(format!("{}: operations of both sides{mark}{more}", pair.case));
    let sides = [("fill-part-7", "base", &pair.base_figures), ("fill-part-1", "other", &pair.other_figures)];
    for (index, (class, side, figures)) in sides.into_iter().enumerate() {
        let at = (200.0 + index as f64 * 180.0, picture.height + 4.0);
        picture.shapes.push(Shape::rect(class, at.0, at.1, 12.0, 12.0));
        picture.shapes.push(Shape::text("ink", (at.0 + 17.0, at.1 + 10.0), format!("{side}, {figures}")));
    }
    picture.height += ROW;
    Some(picture)
}
