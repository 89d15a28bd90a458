//! Clock and throttling state of a device.

use serde::{Deserialize, Serialize};

use crate::base::Nanos;

/// Share of the highest clock below which a device counts as slowed down.
const SLOW_CLOCK: f64 = 0.75;

/// Share of a window during which throttling is tolerated without a note.
const TOLERATED_THROTTLING: f64 = 0.01;

/// Values of a device's sensors at one moment. A field is `None` if the device does not report it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sensors {
    /// SM clock in MHz: current and highest; `None` if unknown.
    pub clock_mhz: Option<u32>,
    pub max_clock_mhz: Option<u32>,
    /// Current and maximum power draw, in W; `None` if unknown.
    pub power_watts: Option<u32>,
    pub power_limit_watts: Option<u32>,
    /// Temperature in °C; `None` if unknown.
    pub celsius: Option<u32>,
    /// Current reasons for a reduced clock, except idleness and clocks set by a user.
    pub reasons: Vec<String>,
}

/// State of a device at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    pub sensors: Sensors,
    /// Total time for which the power cap has reduced the clock, from an arbitrary origin; `None` if unknown.
    pub by_power: Option<Nanos>,
    /// Total time for which the temperature has reduced the clock, from an arbitrary origin; `None` if unknown.
    pub by_temperature: Option<Nanos>,
}

impl Health {
    /// Describes the reasons that throttled the device since `before`, over the time `window`; `None` if there were
    /// none. A reason that is active while the clock is at its maximum does not count.
    pub fn throttled(&self, before: &Health, window: Nanos) -> Option<String> {
        let mut reasons: Vec<String> = Vec::new();
        let mut add = |reason: String| {
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        };
        let policies = [
            ("power cap", before.by_power, self.by_power),
            ("temperature", before.by_temperature, self.by_temperature),
        ];
        for (name, before, after) in policies {
            let share = match (before, after) {
                (Some(before), Some(after)) if window.0 > 0 => (after - before).0 as f64 / window.0 as f64,
                _ => 0.0,
            };
            if share > TOLERATED_THROTTLING {
                add(format!("{name} for {:.0} % of the time", 100.0 * share.min(1.0)));
            }
        }
        let lowered = |sensors: &&Sensors| sensors.clock_mhz < sensors.max_clock_mhz;
        for reason in [&before.sensors, &self.sensors].into_iter().filter(lowered).flat_map(|sensors| &sensors.reasons)
        {
            let is_known = reasons.iter().any(|known| known.starts_with(reason));
            if !is_known {
                reasons.push(reason.clone());
            }
        }
        // A device may be in a low-power state before the first iteration, but not after the last one.
        let (clock, most) = (self.sensors.clock_mhz?, self.sensors.max_clock_mhz?);
        let slow = f64::from(clock) < SLOW_CLOCK * f64::from(most);
        if reasons.is_empty() && !slow {
            return None;
        }
        let why =
            if reasons.is_empty() { "for no reason that the driver gives".to_owned() } else { reasons.join(", ") };
        Some(match clock < most {
            true => format!("{why}, clock {clock} of {most} MHz"),
            false => format!("{why}; when the clock was read, it was at its maximum again, {most} MHz"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(clock: u32, reasons: &[&str], by_power: i64) -> Health {
        let reasons = reasons.iter().map(ToString::to_string).collect();
        let sensors = Sensors { clock_mhz: Some(clock), max_clock_mhz: Some(1980), reasons, ..Sensors::default() };
        Health { sensors, by_power: Some(Nanos(by_power)), by_temperature: None }
    }

    #[test]
    fn reasons_of_throttling_are_described() {
        let window = Nanos(1_000_000);
        let idle = at(345, &[], 0);
        let throttled = |after: &Health| after.throttled(&idle, window);
        assert_eq!(throttled(&at(1980, &[], 0)), None, "a low clock before the run is no fault");
        assert_eq!(throttled(&at(1980, &[], 9_000)), None, "under 1 %");
        assert_eq!(throttled(&at(1410, &["power cap"], 0)).unwrap(), "power cap, clock 1410 of 1980 MHz");
        let counted = throttled(&at(1905, &["power cap"], 500_000)).unwrap();
        assert_eq!(counted, "power cap for 50 % of the time, clock 1905 of 1980 MHz");
        assert_eq!(throttled(&at(1980, &["power cap"], 0)), None, "a reason that lowers no clock");
        assert_eq!(
            throttled(&at(1980, &["power cap"], 500_000)).unwrap(),
            "power cap for 50 % of the time; when the clock was read, it was at its maximum again, 1980 MHz"
        );
        assert_eq!(
            throttled(&at(1400, &[], 0)).unwrap(),
            "for no reason that the driver gives, clock 1400 of 1980 MHz"
        );
        assert_eq!(throttled(&Health::default()), None, "a device without figures is not reported");
    }
}
