//! Clock, power and temperature of the devices over the measured iterations.

use crate::exec::Sensors;
use crate::measure::record::{BlockRecord, RunRecord, Variant};
use crate::report::variant::named;

use super::scale::{Scale, Spread};
use super::{Gallery, Picture, SvgElement, WIDTH};

/// Maximum number of devices with a picture.
const DEVICES: usize = 16;

/// Height of a track, in pixels.
const TRACK: f64 = 48.0;
/// Height of the text above a track, in pixels.
const SPACE: f64 = 26.0;

/// A figure that a device reports: its name, its unit, and how to read its value and its limit.
struct HealthFigure {
    name: &'static str,
    unit: &'static str,
    value: fn(&Sensors) -> Option<u32>,
    limit: fn(&Sensors) -> Option<u32>,
}

const FIGURES: [HealthFigure; 3] = [
    HealthFigure { name: "clock", unit: "MHz", value: |one| one.clock_mhz, limit: |one| one.max_clock_mhz },
    HealthFigure { name: "power", unit: "W", value: |one| one.power_watts, limit: |one| one.power_limit_watts },
    HealthFigure { name: "temperature", unit: "°C", value: |one| one.celsius, limit: |_| None },
];

/// The readings of each device; `None` if no device was read between blocks.
pub fn health(records: &[RunRecord]) -> Option<Gallery> {
    let pictures = named(records).flat_map(|(name, variant)| {
        let devices = variant.blocks.iter().map(|block| block.health.len()).max().unwrap_or(0);
        let label = |device: usize| if devices > 1 { format!("{name}, device {device}") } else { name.clone() };
        let all = (0..devices.min(DEVICES)).map(|device| (label(device), draw(&label(device), variant, device)));
        all.filter_map(|(label, picture)| Some((label, picture?))).collect::<Vec<_>>()
    });
    let notes = [
        "The device is read between blocks of measured iterations, when it has just become idle. Nothing is read while \
         iterations run, since that would disturb them. A grey block was throttled.",
    ];
    Gallery::of("health", "Clock, power and temperature", &notes, "Run", pictures.collect())
}

/// Readings of one value, each with the number of iterations before it.
fn readings(variant: &Variant, device: usize, figure: &HealthFigure) -> Vec<(usize, u32)> {
    let after =
        |block: &BlockRecord| Some((block.first + block.iterations, (figure.value)(block.health.get(device)?)?));
    let before = variant.health.get(device).and_then(figure.value).map(|value| (0, value));
    before.into_iter().chain(variant.blocks.iter().filter_map(after)).collect()
}

fn draw(name: &str, variant: &Variant, device: usize) -> Option<Picture> {
    let iterations = variant.blocks.iter().map(|block| block.first + block.iterations).max()?;
    let x = Scale::new(Spread::Linear, (0.0, iterations as f64), (6.0, WIDTH - 30.0));
    let mut shapes = Vec::new();
    let mut top = 0.0;
    for figure in FIGURES {
        let values = readings(variant, device, &figure);
        let (Some(least), Some(most)) = (values.iter().map(|one| one.1).min(), values.iter().map(|one| one.1).max())
        else {
            continue;
        };
        let limit = variant.blocks.iter().filter_map(|block| (figure.limit)(block.health.get(device)?)).max();
        let range = if least == most { most.to_string() } else { format!("{least} to {most}") };
        let of = limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
        shapes.push(SvgElement::text(
            "ink",
            (0.0, top + 14.0),
            format!("{}: {range}{of} {}", figure.name, figure.unit),
        ));
        let highest = f64::from(limit.unwrap_or(most).max(most));
        let y = Scale::new(Spread::Linear, (0.0, highest), (top + SPACE + TRACK, top + SPACE));
        for block in variant.blocks.iter().filter(|block| block.throttled.is_some()) {
            let (from, to) = (x.at(block.first as f64), x.at((block.first + block.iterations) as f64));
            let shade = SvgElement::rect("fill-panel", from, top + SPACE, to - from, TRACK);
            shapes.push(shade.titled(block.throttled.clone().unwrap_or_default()));
        }
        if limit.is_some() {
            shapes.push(SvgElement::line(
                "dashed",
                (x.at(0.0), y.at(highest)),
                (x.at(iterations as f64), y.at(highest)),
            ));
        }
        shapes.push(SvgElement::line("axis", (x.at(0.0), y.at(0.0)), (x.at(iterations as f64), y.at(0.0))));
        let points: Vec<(f64, f64)> =
            values.iter().map(|(at, value)| (x.at(*at as f64), y.at(f64::from(*value)))).collect();
        shapes.push(SvgElement::through("stroke-part-1", &points));
        for ((at, value), point) in values.iter().zip(points) {
            let title = format!("{value} {} after {at} iterations", figure.unit);
            shapes.push(SvgElement::circle("fill-part-1", point, 3.5).titled(title));
        }
        top += SPACE + TRACK;
    }
    if top == 0.0 {
        return None;
    }
    for tick in x.ticks(8) {
        shapes.push(SvgElement::text("faint", (x.at(tick), top + 16.0), format!("{tick}")).anchored("middle"));
    }
    shapes.push(SvgElement::text("faint", (WIDTH / 2.0, top + 32.0), "measured iterations").anchored("middle"));
    Some(Picture {
        width: WIDTH,
        height: top + 38.0,
        description: format!("Readings of the device, {name}"),
        shapes,
        plots: Vec::new(),
    })
}
