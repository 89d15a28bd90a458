//! Partitions: a device of several chips that appears as several smaller devices.

use super::figure::SourcedFigure;
use super::profile::Profile;

/// Partition modes, and the number of devices that each makes of one.
const MODES: [(&str, u32); 4] = [("spx", 1), ("dpx", 2), ("qpx", 4), ("cpx", 8)];

impl Profile {
    /// The modes that a device supports.
    pub fn modes(&self) -> impl Iterator<Item = &'static str> {
        let chips = self.chips();
        MODES.iter().filter(move |(_, parts)| chips > 1 && chips.is_multiple_of(*parts)).map(|(name, _)| *name)
    }

    fn chips(&self) -> u32 {
        self.chips.value() as u32
    }

    /// Returns the profile of one partition of this device in a mode; `None` if the device does not support it.
    pub fn partition(self, mode: &str) -> Option<Profile> {
        let known = self.modes().find(|known| *known == mode)?;
        let (_, parts) = MODES.iter().find(|(name, _)| *name == known)?;
        Some(self.divided(*parts, known))
    }

    /// The partition of this device with this number of compute units, or the device itself if there is none.
    pub fn with_units(self, units: u32) -> Profile {
        let whole = self.units.value() as u32;
        let fits = |(_, parts): &&(&'static str, u32)| {
            units > 0 && units.saturating_mul(*parts) == whole && self.chips().is_multiple_of(*parts)
        };
        match MODES.iter().find(fits) {
            Some((mode, parts)) if *parts > 1 => self.divided(*parts, mode),
            _ => self,
        }
    }

    /// A partition when all partitions are busy: an equal share of everything. A partition that runs alone may have
    /// more memory bandwidth, cache and link bandwidth.
    fn divided(mut self, parts: u32, mode: &str) -> Profile {
        if parts == 1 {
            return self;
        }
        let mode = mode.to_uppercase();
        self.name = format!("{} ({mode})", self.name);
        let each = |figure: &mut SourcedFigure| {
            figure.0 /= f64::from(parts);
            figure.1 = format!("{}; a part of {parts} ({mode})", figure.1);
        };
        self.peak.values_mut().for_each(each);
        let figures = [
            &mut self.memory,
            &mut self.units,
            &mut self.chips,
            &mut self.bandwidth,
            &mut self.cache,
            &mut self.cache_bandwidth,
            &mut self.cache_reads,
            &mut self.cache_writes,
            &mut self.host_to_device.bandwidth,
            &mut self.host_to_device.link,
            &mut self.device_to_host.bandwidth,
            &mut self.device_to_host.link,
            &mut self.host_link.both,
            &mut self.host_link.kernel_reads,
            &mut self.host_link.kernel_writes,
            &mut self.pageable_bandwidth,
        ];
        let peaks = [&mut self.host_to_device.peak, &mut self.device_to_host.peak];
        figures.into_iter().chain(peaks.into_iter().flatten()).for_each(each);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_has_its_part() {
        let whole = || Profile::named("mi300x").unwrap();
        assert_eq!(whole().modes().collect::<Vec<_>>(), ["spx", "dpx", "qpx", "cpx"]);
        let part = Profile::named("mi300x-cpx").unwrap();
        assert_eq!(part.name, "AMD Instinct MI300X (CPX)");
        assert_eq!((part.units.value(), part.chips()), (38.0, 1));
        assert_eq!(part.bandwidth.value(), whole().bandwidth.value() / 8.0);
        assert!(part.bandwidth.1.ends_with("; a part of 8 (CPX)"), "{}", part.bandwidth.1);
        assert_eq!(part.kernel_floor, whole().kernel_floor, "what takes time takes as long");
        assert_eq!(Profile::named("mi300x-spx").unwrap().name, whole().name);
        for wrong in ["mi300x-tpx", "h200-cpx", "h200-spx", "mi300x-", "-cpx", "mi300x-cpx-cpx"] {
            assert!(Profile::named(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_partition_is_recognized_by_its_units() {
        let with = |units| Profile::named("mi300x").unwrap().with_units(units).units.value();
        assert_eq!((with(304), with(152), with(38)), (304.0, 152.0, 38.0));
        assert_eq!((with(0), with(100), with(19)), (304.0, 304.0, 304.0), "none of its modes");
        assert_eq!(Profile::named("h200").unwrap().with_units(66).units.value(), 132.0, "it has no modes");
    }
}
