//! Statistics of a metric's samples.

/// A statistic of a metric's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Statistic {
    Mean,
    Std,
    /// Coefficient of variation: the standard deviation divided by the mean.
    Cv,
    Min,
    P5,
    P50,
    P95,
    P99,
    Max,
    /// Lower end of the 95 % interval of the median.
    Low,
    /// Upper end of the 95 % interval of the median.
    High,
}

impl Statistic {
    pub const ALL: [Statistic; 11] = [
        Statistic::Mean,
        Statistic::Std,
        Statistic::Cv,
        Statistic::Min,
        Statistic::P5,
        Statistic::P50,
        Statistic::P95,
        Statistic::P99,
        Statistic::Max,
        Statistic::Low,
        Statistic::High,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Statistic::Mean => "mean",
            Statistic::Std => "std",
            Statistic::Cv => "cv",
            Statistic::Min => "min",
            Statistic::P5 => "p5",
            Statistic::P50 => "p50",
            Statistic::P95 => "p95",
            Statistic::P99 => "p99",
            Statistic::Max => "max",
            Statistic::Low => "low",
            Statistic::High => "high",
        }
    }
}
