//! What a trial of calls gives: a rate, and how long calls took.

/// What came out: a rate, and times in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    /// Operations a second, all callers together.
    pub(crate) rate: f64,
    /// Half of the calls took no longer.
    pub(crate) p50: f64,
    /// 99 of 100 calls took no longer.
    pub(crate) p99: f64,
    /// 999 of 1,000 calls took no longer.
    pub(crate) p999: f64,
}

impl Measured {
    /// The columns of a row.
    pub(crate) fn columns(self) -> Vec<(String, Option<f64>)> {
        let columns = [
            ("ops/s", self.rate),
            ("p50 us", self.p50),
            ("p99 us", self.p99),
            ("p99.9 us", self.p999),
        ];
        columns.map(|(name, value)| (name.to_owned(), Some(value))).to_vec()
    }

    /// The columns of a row that was not measured.
    pub(crate) fn missing() -> Vec<(String, Option<f64>)> {
        ["ops/s", "p50 us", "p99 us", "p99.9 us"].map(|name| (name.to_owned(), None)).to_vec()
    }

    /// The median of rounds, each number on its own.
    pub(crate) fn median(rounds: &[Self]) -> Option<Self> {
        let median = |number: fn(&Self) -> f64| {
            let mut numbers: Vec<f64> = rounds.iter().map(number).collect();
            numbers.sort_by(f64::total_cmp);
            numbers.get(numbers.len() / 2).copied()
        };
        Some(Self {
            rate: median(|round| round.rate)?,
            p50: median(|round| round.p50)?,
            p99: median(|round| round.p99)?,
            p999: median(|round| round.p999)?,
        })
    }
}
