//! What a use of attention computes, apart from where its operands lie.

use super::*;

/// The sizes of a use, and what its queries see.
pub struct Shape {
    /// Products of the dimensions before heads.
    pub batch: u64,
    /// Heads of queries, and those that share a head of keys.
    pub heads: u64,
    pub group: u64,
    pub queries: u64,
    pub keys: u64,
    /// Elements of a query or a key, and of a value.
    pub size: u64,
    pub value_size: u64,
    pub causal: bool,
    /// The most keys that a query sees; 0 for all.
    pub window: u64,
    pub scale: f64,
}

impl Shape {
    pub fn of(spec: &Spec) -> Shape {
        let [q, k, v] = [0, 1, 2].map(|input| &spec.inputs[input].dims);
        let rank = q.len();
        let heads = |dims: &Dims| if rank > 2 { dims[rank - 3] } else { 1 };
        let size = q[rank - 1];
        let scale = spec.attrs.number("scale");
        Shape {
            batch: q[..rank.saturating_sub(3)].iter().product(),
            heads: heads(q),
            group: (heads(q) / heads(k).max(1)).max(1),
            queries: q[rank - 2],
            keys: k[rank - 2],
            size,
            value_size: v[rank - 1],
            causal: spec.attrs.bool("causal"),
            window: spec.attrs.int("window") as u64,
            scale: if scale > 0.0 { scale } else { 1.0 / (size.max(1) as f64).sqrt() },
        }
    }

    /// The keys that a query sees.
    pub fn seen(&self, query: u64) -> std::ops::Range<u64> {
        if !self.causal {
            return 0..self.keys;
        }
        let end = (query + 1 + self.keys).saturating_sub(self.queries);
        let start = if self.window > 0 { end.saturating_sub(self.window) } else { 0 };
        start..end
    }

    /// Pairs of a query and a key that it sees, in all heads.
    pub fn pairs(&self) -> f64 {
        let (queries, keys) = (self.queries as f64, self.keys as f64);
        let of_a_head = match self.causal {
            false => queries * keys,
            true => {
                // Queries see from `first` to `keys` keys, one more each, but no more than `most`.
                let first = (keys - queries + 1.0).max(1.0);
                let most = if self.window > 0 { (self.window as f64).min(keys) } else { keys };
                let growing = if first <= most { (first + most) * (most - first + 1.0) / 2.0 } else { 0.0 };
                growing + most * (keys - most.max(first - 1.0)).max(0.0)
            }
        };
        of_a_head * self.heads as f64 * self.batch as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_those_that_queries_see() {
        for (queries, keys, window) in [(5, 5, 0), (3, 9, 0), (9, 3, 0), (7, 7, 3), (2, 9, 4), (9, 4, 2), (1, 1, 1), (4, 9, 20)] {
            let shape = Shape {
                batch: 2,
                heads: 6,
                group: 3,
                queries,
                keys,
                size: 8,
                value_size: 8,
                causal: true,
                window,
                scale: 1.0,
            };
            let seen: u64 = (0..queries).map(|query| shape.seen(query)).map(|range| range.end - range.start).sum();
            assert_eq!(shape.pairs(), (12 * seen) as f64, "{queries} queries, {keys} keys, window {window}");
        }
    }
}
