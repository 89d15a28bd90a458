//! Generates metrics and expectations.

use super::Generator;

/// Metrics grouped by dimension: names without a set, and names that take one.
const FIGURES: &[(&[&str], &[&str])] = &[
    (&["time", "busy", "exposed", "gap", "delay", "critical_path", "serial_time"], &["\"us\"", "\"ns\"", "\"ms\"", ""]),
    (&["speedup", "stretch", "utilization", "time / serial_time", "overlap(a, s)"], &["\"%\"", "\"times\"", ""]),
    (&["bytes", "memory.peak", "device.memory"], &["\"MiB\"", ""]),
    (&["bandwidth", "bytes / time", "device.bandwidth"], &["\"GB/s\"", ""]),
    (&["flops"], &["\"GFLOP\"", ""]),
    (&["flops / time", "device.flops"], &["\"TFLOP/s\"", ""]),
    (&["device.units"], &["\"units\"", ""]),
];

/// Metrics that take a set of operations.
const OF_SETS: [&str; 12] = [
    "time",
    "busy",
    "exposed",
    "gap",
    "delay",
    "stretch",
    "flops",
    "bytes",
    "bandwidth",
    "slack",
    "utilization",
    "bus_bandwidth",
];

const STATISTICS: [&str; 9] = ["mean", "std", "cv", "min", "p5", "p50", "p95", "p99", "max"];

impl Generator<'_> {
    pub fn metrics(&mut self) {
        let mut earlier: Vec<String> = Vec::new();
        while !self.choices.0.is_empty() && !self.choices.once_in(8) && self.text.len() < 2 * super::MAX_TEXT {
            if self.choices.once_in(4) {
                self.expectation(&earlier);
                continue;
            }
            let name = self.fresh("m");
            let (figures, units) = self.choices.pick(FIGURES);
            let figure = self.choices.pick(figures);
            let unit = self.choices.pick(units);
            let set = self.set();
            let text = match self.choices.below(10) {
                0 | 1 => format!("metric {name} = {figure} {unit}"),
                2 | 3 => format!("metric {name} = {}({set})", self.choices.pick(&OF_SETS)),
                4 => format!("metric {name} = time.{}", self.choices.pick(&STATISTICS)),
                5 => format!("metric {name} = busy({set}).{}", self.choices.pick(&STATISTICS)),
                6 => format!("metric {name}[v in 1..=3] = v * time({set})"),
                7 => match earlier.last() {
                    Some(earlier) => format!("metric {name} = max({earlier}, {earlier}) + {earlier}"),
                    None => format!("metric {name} = 3 * {figure}"),
                },
                8 => format!("metric {name} = time.slot[0].{}", self.choices.pick(&STATISTICS)),
                _ => format!("metric {name} = overlap(s, a) * if {} {{ 1 }} else {{ 2 }}", self.condition()),
            };
            if !text.contains(['[', '"']) {
                earlier.push(name);
            }
            self.add(&text);
        }
    }

    fn expectation(&mut self, earlier: &[String]) {
        let when = if self.choices.once_in(3) { format!(" when {}", self.condition()) } else { String::new() };
        let condition = match self.choices.below(5) {
            1 => "speedup >= 0.1 and time < 1s".to_owned(),
            2 => "not (bytes == 1B) or time.p50 <= 3s".to_owned(),
            3 => match earlier.last() {
                Some(earlier) => format!("{earlier} == {earlier}"),
                None => "utilization != 2".to_owned(),
            },
            _ => "time > 0s".to_owned(),
        };
        self.add(&format!("expect {condition}{when}"));
    }

    /// Generates a set of operations: labels and streams.
    fn set(&mut self) -> String {
        let label = self.choices.below(self.always.len().max(1));
        let label = self.always.get(label).cloned().unwrap_or_else(|| "a".to_owned());
        match self.choices.below(4) {
            1 => "s".to_owned(),
            2 => format!("{label}, s[0]"),
            3 => "a".to_owned(),
            _ => label,
        }
    }
}
