//! Programs whose iterations differ: samples by slot and by round.
//!
//! A program repeats after a cycle of iterations. Each member of the cycle is a *slot*, and one pass through all slots
//! is a *round*. Iterations of one slot do the same work, and so do rounds: only these are comparable.

/// Mean of each complete round, in order; the samples themselves if there is one slot. Less than a round, as of an
/// interrupted run, counts as one.
pub fn rounds(samples: &[f64], slots: usize) -> Vec<f64> {
    let slots = slots.clamp(1, samples.len().max(1));
    samples.chunks_exact(slots).map(|round| round.iter().sum::<f64>() / slots as f64).collect()
}

/// Samples of each slot, limited to complete rounds; with less than a round, one sample of some slots. `first` is the
/// iteration number of the first sample.
pub fn by_slot(samples: &[f64], slots: usize, first: u64) -> Vec<Vec<f64>> {
    let slots = slots.max(1);
    let whole = if samples.len() < slots { samples } else { &samples[..samples.len() / slots * slots] };
    let phase = (first % slots as u64) as usize;
    let samples_of = |slot: usize| whole.iter().skip((slot + slots - phase) % slots).step_by(slots).copied().collect();
    (0..slots).map(samples_of).collect()
}

/// Variation of samples around the mean of their own slot, as a share of it, which excludes differences between slots.
/// `None` if no slot has two samples.
pub fn variation(samples: &[f64], slots: usize) -> Option<f64> {
    let slots = slots.clamp(1, samples.len().max(1));
    let freedom = samples.len().saturating_sub(slots);
    let mean = |slot: usize| {
        let own = || samples.iter().skip(slot).step_by(slots);
        own().sum::<f64>() / own().count() as f64
    };
    let means: Vec<f64> = (0..slots).map(mean).collect();
    let squares = samples.iter().enumerate().map(|(index, sample)| match means[index % slots] {
        0.0 => 0.0,
        mean => (sample / mean - 1.0).powi(2),
    });
    (freedom > 0).then(|| (squares.sum::<f64>() / freedom as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn samples_belong_to_their_slot() {
        let samples = [10.0, 20.0, 30.0, 11.0, 21.0, 31.0, 12.0];
        assert_eq!(rounds(&samples, 3), [20.0, 21.0]);
        // The first sample is of slot 2.
        assert_eq!(by_slot(&samples, 3, 5), [[20.0, 21.0], [30.0, 31.0], [10.0, 11.0]]);
        assert_eq!((rounds(&samples[..2], 3), rounds(&[], 3)), (vec![15.0], vec![]));
        assert_eq!(by_slot(&samples[..2], 3, 5), [vec![20.0], vec![], vec![10.0]]);
        assert_eq!(rounds(&samples, 1), samples);
    }

    #[test]
    fn differences_between_slots_are_not_variation() {
        let exact: Vec<f64> = (0..30).map(|index| [100.0, 400.0, 2000.0][index % 3]).collect();
        assert_eq!(variation(&exact, 3), Some(0.0));
        assert!(variation(&exact, 1).unwrap() > 0.9);
        assert_eq!((variation(&exact[..3], 3), variation(&[], 3)), (None, None));
        // With a single slot, it is the sample standard deviation over the mean.
        let cv = (((1.0f64 - 2.0).powi(2) + 0.0 + 1.0) / 2.0).sqrt() / 2.0;
        assert!((variation(&[1.0, 2.0, 3.0], 1).unwrap() - cv).abs() < 1e-12);
    }

    proptest! {
        /// A different order of slots gives the same rounds, and each slot the same samples.
        #[test]
        fn the_order_of_slots_changes_nothing(
            lengths in prop::collection::vec(1u32..1000, 1..8),
            rounds_run in 1usize..5,
            first in 0u64..20,
            turn in 0usize..8,
        ) {
            let slots = lengths.len();
            let turned: Vec<u32> = (0..slots).map(|slot| lengths[(slot + turn) % slots]).collect();
            let run = |lengths: &[u32]| -> Vec<f64> {
                let from = first as usize;
                (from..from + rounds_run * slots).map(|index| f64::from(lengths[index % slots])).collect()
            };
            let (here, there) = (run(&lengths), run(&turned));
            let mean = lengths.iter().map(|length| f64::from(*length)).sum::<f64>() / slots as f64;
            for samples in [&here, &there] {
                prop_assert!(rounds(samples, slots).iter().all(|round| (round / mean - 1.0).abs() < 1e-9));
                prop_assert!(variation(samples, slots).is_none_or(|variation| variation < 1e-9));
            }
            for (slot, length) in lengths.iter().enumerate() {
                prop_assert_eq!(&by_slot(&here, slots, first)[slot], &vec![f64::from(*length); rounds_run]);
            }
        }
    }
}
