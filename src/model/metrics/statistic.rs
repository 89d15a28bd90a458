//! Statistics of a metric's samples.

use crate::base::named::named;

named! {
    /// A statistic of a metric's samples.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Statistic {
        Mean = "mean",
        Std = "std",
        /// Coefficient of variation: the standard deviation divided by the mean.
        Cv = "cv",
        Min = "min",
        P5 = "p5",
        P50 = "p50",
        P95 = "p95",
        P99 = "p99",
        Max = "max",
        /// Lower end of the 95 % interval of the median.
        Low = "low",
        /// Upper end of the 95 % interval of the median.
        High = "high",
    }
}
