//! Scales of axes: from values to pixels, with round numbers between.

use serde::Serialize;

/// Spacing of values along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Spread {
    Linear,
    /// Equal factors have equal distances; values are positive.
    Log,
}

/// An axis from the least to the greatest value, and from pixel to pixel.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    pub least: f64,
    pub most: f64,
    /// Pixel of `least`.
    from: f64,
    /// Pixel of `most`.
    to: f64,
    spread: Spread,
}

impl Scale {
    /// An axis for these values. A single value gets room on both sides.
    pub fn new(spread: Spread, (least, most): (f64, f64), (from, to): (f64, f64)) -> Scale {
        let (least, most) = match spread {
            _ if most > least => (least, most),
            Spread::Linear => (least - 0.5, least + 0.5),
            Spread::Log => (least / 2.0, least * 2.0),
        };
        Scale { least, most, from, to, spread }
    }

    /// The pixel of a value.
    pub fn at(&self, value: f64) -> f64 {
        let share = match self.spread {
            Spread::Linear => (value - self.least) / (self.most - self.least),
            Spread::Log => (value / self.least).ln() / (self.most / self.least).ln(),
        };
        self.from + share.clamp(-0.05, 1.05) * (self.to - self.from)
    }

    /// Round values on the axis, at most about this many.
    pub fn ticks(&self, about: usize) -> Vec<f64> {
        match self.spread {
            Spread::Linear => {
                let step = round_step((self.most - self.least) / about as f64);
                let first = (self.least / step).ceil();
                let all = (0..64).map(|count| (first + f64::from(count)) * step);
                all.take_while(|tick| *tick <= self.most * (1.0 + 1e-9)).collect()
            }
            Spread::Log => {
                let (first, last) = (self.least.log10().floor() as i32, self.most.log10().ceil() as i32);
                let decades = usize::try_from(last - first).unwrap_or(1).max(1);
                let within: &[f64] = match decades {
                    1 => &[1.0, 2.0, 3.0, 5.0],
                    2..=3 => &[1.0, 3.0],
                    _ => &[1.0],
                };
                let every = (decades / about.max(1)).max(1);
                let powers = (first..=last).step_by(every);
                let all = powers.flat_map(|power| within.iter().map(move |digit| digit * 10f64.powi(power)));
                all.filter(|tick| (self.least * 0.999..=self.most * 1.001).contains(tick)).collect()
            }
        }
    }
}

/// Rounds a positive number up to the next of …, 0.5, 1, 2, 5, 10, 20, …
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(f64::MIN_POSITIVE).log10().floor());
    [1.0, 2.0, 5.0].map(|times| times * power).into_iter().find(|step| *step >= least).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        let linear = Scale::new(Spread::Linear, (0.0, 7.3), (0.0, 100.0));
        assert_eq!(linear.ticks(4), [0.0, 2.0, 4.0, 6.0]);
        let log = Scale::new(Spread::Log, (0.5, 2000.0), (0.0, 100.0));
        assert_eq!(log.ticks(8), [1.0, 10.0, 100.0, 1000.0]);
        assert!((log.at(0.5), log.at(2000.0)) == (0.0, 100.0));
        // A single value lies in the middle.
        assert!((Scale::new(Spread::Log, (3.0, 3.0), (0.0, 100.0)).at(3.0) - 50.0).abs() < 1e-9);
    }
}
