//! Mapping of streams to hardware queues: predicted by the vendor's rule, and measured on a device.

/// Streams by queue: for each queue the numbers of its streams, from 0.
type Groups = Vec<Vec<u32>>;

/// Mapping of streams created one after the other on an otherwise idle device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueMapping {
    pub predicted: Groups,
    pub probed: Groups,
    /// Number of streams that can block at the same time before the next one is queued behind a blocked stream.
    pub at_once: u32,
}

impl QueueMapping {
    /// Predicts the mapping of a device that assigns streams to queues round-robin. Nothing is measured yet.
    pub fn round_robin(streams: u32, queues: u32) -> QueueMapping {
        let queues = queues.clamp(1, streams.max(1));
        let streams_of = |queue: u32| (queue..streams).step_by(queues as usize).collect();
        QueueMapping { predicted: (0..queues).map(streams_of).collect(), probed: Groups::new(), at_once: 0 }
    }

    /// Adds the measured mapping.
    pub fn found(self, probed: Groups, at_once: u32) -> QueueMapping {
        QueueMapping { probed, at_once, ..self }
    }

    /// Describes how many streams run concurrently: `4 streams, as predicted`.
    pub fn at_once(&self) -> String {
        let streams: usize = self.predicted.iter().map(Vec::len).sum();
        let (found, predicted) = (self.at_once as usize, self.predicted.len());
        let more = if found == streams { " at least" } else { "" };
        let predicted = if found == predicted { "as predicted".to_owned() } else { format!("{predicted} predicted") };
        format!("{}{more}, {predicted}", crate::base::counted(found, "stream"))
    }

    /// Describes how well the prediction matches the measurement.
    pub fn verdict(&self) -> &'static str {
        let crowds = |groups: &Groups| {
            let mut sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
            sizes.sort_unstable();
            sizes
        };
        if self.probed == self.predicted {
            "as predicted"
        } else if crowds(&self.probed) == crowds(&self.predicted) {
            "as many on each queue as predicted, but others"
        } else {
            "not as predicted"
        }
    }

    /// Describes the number of queues and which streams share one: `4 queues; 0 with 4, 1 with 5`.
    pub fn text(groups: &[Vec<u32>]) -> String {
        let shared = groups.iter().filter(|group| group.len() > 1).map(|group| {
            let numbers: Vec<String> = group.iter().map(u32::to_string).collect();
            numbers.join(" with ")
        });
        let shared: Vec<String> = shared.collect();
        let shared = if shared.is_empty() { "none share one".to_owned() } else { shared.join(", ") };
        format!("{}; {shared}", crate::base::counted(groups.len(), "queue"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_is_compared_with_what_was_found() {
        let predicted = || QueueMapping::round_robin(6, 4);
        assert_eq!(predicted().predicted, [vec![0, 4], vec![1, 5], vec![2], vec![3]]);
        let verdict =
            |probed: &[&[u32]]| predicted().found(probed.iter().map(|group| group.to_vec()).collect(), 4).verdict();
        assert_eq!(verdict(&[&[0, 4], &[1, 5], &[2], &[3]]), "as predicted");
        assert_eq!(verdict(&[&[0], &[1, 5], &[2, 4], &[3]]), "as many on each queue as predicted, but others");
        assert_eq!(verdict(&[&[0], &[1], &[2], &[3], &[4], &[5]]), "not as predicted");
        assert_eq!(QueueMapping::text(&predicted().predicted), "4 queues; 0 with 4, 1 with 5");
        let at_once = |found| predicted().found(Vec::new(), found).at_once();
        assert_eq!(at_once(4), "4 streams, as predicted");
        assert_eq!(at_once(1), "1 stream, 4 predicted");
        assert_eq!(at_once(6), "6 streams at least, 4 predicted");
        assert_eq!(QueueMapping::round_robin(2, 8).found(Vec::new(), 2).at_once(), "2 streams at least, as predicted");
        assert_eq!(QueueMapping::text(&QueueMapping::round_robin(2, 8).predicted), "2 queues; none share one");
    }
}
