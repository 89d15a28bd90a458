//! Overhead of timing on a device.

use crate::base::Nanos;

/// A time should be this many times the clock's resolution.
const MIN_RESOLUTIONS: i64 = 10;

/// Overhead of timing, measured on the device before a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer {
    /// Resolution of the device's clock.
    pub resolution: Nanos,
    /// Time between two consecutive stamps.
    pub empty: Nanos,
    /// Time between two stamps around an empty kernel of one thread.
    pub null_kernel: Nanos,
    /// Host time of recording a stamp.
    pub stamp_call: Nanos,
    /// Host time of launching a kernel.
    pub launch_call: Nanos,
}

impl Timer {
    /// The values by name, in nanoseconds.
    pub fn facts(&self) -> [(String, String); 5] {
        [
            ("timer_resolution_ns", self.resolution),
            ("timer_empty_ns", self.empty),
            ("timer_null_kernel_ns", self.null_kernel),
            ("timer_stamp_call_ns", self.stamp_call),
            ("timer_launch_call_ns", self.launch_call),
        ]
        .map(|(name, time)| (name.to_owned(), time.0.to_string()))
    }

    /// Returns a warning for a time that is too short for the device's clock; `None` if it is long enough.
    pub fn too_short(&self, time: Nanos) -> Option<String> {
        (time.0 < MIN_RESOLUTIONS * self.resolution.0).then(|| {
            format!(
                "{time} is less than {MIN_RESOLUTIONS} times the resolution of the device's clock, {}: let an iteration do more",
                self.resolution
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_steps_of_the_clock_are_enough() {
        let timer = Timer {
            resolution: Nanos(500),
            empty: Nanos(1_500),
            null_kernel: Nanos(3_000),
            stamp_call: Nanos(900),
            launch_call: Nanos(2_000),
        };
        assert_eq!(timer.too_short(Nanos(5_000)), None);
        let told = timer.too_short(Nanos(4_999)).unwrap();
        assert!(told.starts_with("4.999 µs is less than 10 times the resolution"), "{told}");
        assert_eq!(timer.facts()[0], ("timer_resolution_ns".to_owned(), "500".to_owned()));
    }
}
