//! An A/B comparison: the blocks of both sides in the order of time, and the effect with its interval.

use crate::measure::ab::{self, AbRecord};
use crate::measure::paired::AbSide;

use crate::report::quantity::change;

use super::chart::{AREA, Area, Chart, time};
use super::plot::{Axis, LineStyle, Plot, PlotSeries};
use super::scale::{Scale, Spread};
use super::{Gallery, Picture, SvgElement};

/// The pictures of a comparison; `None` without a complete block.
pub fn blocks(record: &AbRecord) -> Option<Gallery> {
    let pictures = [("blocks".to_owned(), levels(record)), ("effect".to_owned(), effect(record))];
    let pictures = pictures.into_iter().filter_map(|(name, picture)| Some((name, picture?)));
    let notes = [
        "A point is a block of iterations, with its median; a line goes from the 5th to the 95th percentile of the \
         iterations. The effect is the time of b over that of a with its 95 % interval; within the grey band no difference \
         matters.",
    ];
    Gallery::of("blocks", "Blocks and effect", &notes, "Picture", pictures.collect())
}

/// `, simulated` if a side is.
fn mark(record: &AbRecord) -> &'static str {
    if record.a.run.simulated || record.b.run.simulated { ", simulated" } else { "" }
}

/// The blocks of both sides in the order of time; `None` without times.
fn levels(record: &AbRecord) -> Option<Picture> {
    let level = |block: &ab::AbBlockRecord| ab::level(&block.block.time_ns, record.side(block.side).period);
    let known = record.blocks.iter().filter_map(|block| {
        let mut times = block.block.time_ns.clone();
        times.sort_unstable();
        let at = |share: f64| {
            let index = (times.len().saturating_sub(1) as f64 * share) as usize;
            times.get(index).map(|time| time.seconds())
        };
        Some((block, level(block)? / 1e9, at(0.05)?, at(0.95)?))
    });
    let known: Vec<_> = known.collect();
    let most = known.iter().map(|(.., high)| *high).reduce(f64::max)?;
    let least = known.iter().map(|(_, _, low, _)| *low).reduce(f64::min)?;
    let room = ((most - least) * 0.1).max(most * 0.005);
    let turns = record.result.as_ref().map(|result| &result.turns);
    let mut sides = [AbSide::A, AbSide::B].map(|side| {
        let mean = turns.map(|turns| if side == AbSide::A { turns.a } else { turns.b });
        let mean = mean.map(|mean| format!(" ({} interleaved)", time(mean))).unwrap_or_default();
        PlotSeries::new(&format!("{}{mean}", side.name()), usize::from(side == AbSide::B), LineStyle::Points, [])
    });
    for (number, (block, level, low, high)) in (1..).zip(&known) {
        let series = &mut sides[usize::from(block.side == AbSide::B)];
        series.x.push(f64::from(number));
        series.y.push(*level);
        series.low.push(*low);
        series.high.push(*high);
    }
    let apart = known.iter().position(|(block, ..)| block.round.is_none()).filter(|first| *first > 0);
    let plot = Plot {
        x: Axis::linear("blocks in the order of time", "", (1.0, known.len() as f64)),
        y: Axis::linear(&format!("time of an iteration{}", mark(record)), "s", ((least - room).max(0.0), most + room)),
        series: sides.into_iter().filter(|side| !side.x.is_empty()).collect(),
        marks: apart.map(|first| (first as f64 + 0.5, "each side separately".to_owned())).into_iter().collect(),
    };
    let description = format!("The blocks of a and b in the order of time{}", mark(record));
    Some(Picture { plots: vec![plot.clone()], ..plot.chart(AREA).picture(description) })
}

fn effect(record: &AbRecord) -> Option<Picture> {
    let judged = record.result.as_ref()?;
    let mut all = vec![("interleaved", judged.turns.ratio, judged.turns.interval)];
    all.extend(judged.apart.as_ref().map(|apart| ("separate", apart.ratio, apart.interval)));
    let threshold = judged.turns.threshold;
    let matters = (1.0 / (1.0 + threshold), 1.0 + threshold);
    let ends = all.iter().flat_map(|(_, ratio, interval)| {
        let (low, high) = interval.unwrap_or((*ratio, *ratio));
        [low, high, *ratio]
    });
    let (least, most) = ends.fold((matters.0, matters.1), |(least, most), end| (least.min(end), most.max(end)));
    let Area { left, right, top, bottom } = AREA;
    let x = Scale::new(Spread::Linear, (least - (most - least) * 0.1, most + (most - least) * 0.1), (left, right));
    let mut chart = Chart::new(&format!("time of b over time of a{}", mark(record)), "");
    let band = (x.at(matters.0), x.at(matters.1));
    chart.shapes.push(
        SvgElement::rect("fill-panel", band.0, top, band.1 - band.0, bottom - top).titled("no difference matters"),
    );
    chart.shapes.push(SvgElement::line("dashed", (x.at(1.0), top), (x.at(1.0), bottom)));
    for tick in x.ticks(7) {
        chart.tick_x(x.at(tick), change(tick));
    }
    for (index, (name, ratio, interval)) in all.iter().enumerate() {
        let y = top + (bottom - top) * (index as f64 + 1.0) / (all.len() as f64 + 1.0);
        chart.shapes.push(SvgElement::text("ink", (0.0, y + 4.0), *name));
        if let Some((low, high)) = interval {
            chart.shapes.push(SvgElement::line("whisker", (x.at(*low), y), (x.at(*high), y)));
        }
        let title = format!("{name}: {}", change(*ratio));
        chart.shapes.push(SvgElement::circle("fill-part-2", (x.at(*ratio), y), 6.0).titled(title));
    }
    Some(chart.picture(format!("The effect of b against a with its 95 % interval{}", mark(record))))
}
