//! Assigns ranges of compute units (SMs) to the streams that request a part of the device. Ranges are disjoint as long
//! as there are enough units.

use crate::model::Units;

/// A range of consecutive compute units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitRange {
    pub first: u32,
    pub count: u32,
}

/// Assigns the device's `all` units to streams, in order; `None` for a stream that requests no part. Each of `chips` chips
/// contributes equally many units to a range. A range that does not fit after the previous one starts at unit 0, and
/// overlaps others.
pub fn assign(wanted: impl IntoIterator<Item = Option<Units>>, all: u32, chips: u32) -> Vec<Option<UnitRange>> {
    let most = Units::Count(u32::MAX).of(all, chips);
    let mut next = 0;
    let mut part = |units: Units| {
        let count = units.of(all, chips);
        let first = if next + count > most { 0 } else { next };
        next = first + count;
        UnitRange { first, count }
    };
    wanted.into_iter().map(|units| units.map(&mut part)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_have_units_of_their_own_while_there_are_some() {
        let quarter = Some(Units::Share(250_000));
        let part = |first, count| Some(UnitRange { first, count });
        assert_eq!(
            assign([quarter, None, quarter], 304, 8),
            [part(0, 80), None, part(80, 80)],
            "10 of each of 8 chips"
        );
        let large = Some(Units::Count(200));
        assert_eq!(assign([large, large], 304, 8), [part(0, 200), part(0, 200)], "the second lies over the first");
        assert_eq!(assign([large], 0, 8), [part(0, 1)], "a device that says nothing");
    }
}
