//! Sizes of an attention call, independent of the layout of its operands.

use std::borrow::Cow;

use super::*;

/// Axes of heads and of positions in queries, keys, values and results. The last axis has the elements of a head.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Axes {
    /// Axis of the heads; `None` if the tensor has no such axis, for one head.
    pub heads: Option<usize>,
    /// Axis of the positions.
    pub positions: usize,
}

impl Axes {
    /// Returns the axes for the option `layout` and tensors of this rank.
    pub fn of(attrs: &Attrs, rank: usize) -> Axes {
        match (rank, attrs.word("layout")) {
            (..=2, _) => Axes { heads: None, positions: 0 },
            (_, POSITIONS_FIRST) => Axes { heads: Some(rank - 2), positions: rank - 3 },
            _ => Axes::of_rows(rank),
        }
    }

    /// Returns the axes of `lse`, which has no dimension of elements. `rank` is the rank of the queries.
    pub fn of_rows(rank: usize) -> Axes {
        Axes { heads: rank.checked_sub(3), positions: rank.saturating_sub(2) }
    }

    /// Returns the number of heads in these dimensions; 1 without an axis of heads. Of strides instead of dimensions,
    /// it returns the stride of the heads.
    pub fn heads_of(&self, dims: &Dims) -> u64 {
        self.heads.map_or(1, |axis| dims[axis])
    }

    /// Returns the dimensions of the scores, `[.., heads, queries, keys]`, from those of the queries and of the keys.
    pub fn scores(&self, q: &Dims, k: &Dims) -> Dims {
        let (rank, mut scores) = (q.len(), *q);
        scores.set(rank - 1, k[self.positions]);
        scores.set(rank - 2, q[self.positions]);
        if let Some(heads) = self.heads {
            scores.set(rank - 3, q[heads]);
        }
        scores
    }
}

/// Sizes and mask of an attention call.
#[derive(Clone)]
pub struct Shape {
    pub axes: Axes,
    /// Product of the dimensions before heads and positions.
    pub batch: u64,
    /// Number of heads of queries.
    pub heads: u64,
    /// Number of heads of queries that share a head of keys.
    pub group: u64,
    /// Number of queries of a head; the sum over all sequences if they are packed.
    pub queries: u64,
    /// Number of keys of a head: with pages, the maximum of a sequence; the sum over all sequences if they are packed.
    pub keys: u64,
    /// Number of keys of a page; `None` without pages.
    pub page: Option<u64>,
    /// Number of packed sequences; `None` if they are not packed.
    pub sequences: Option<u64>,
    /// Numbers of queries and of keys of each sequence of a pool or of a packed tensor, in ascending order; `None` if they are
    /// unknown, or if all sequences are equally long.
    pub lengths: Option<Vec<[u64; 2]>>,
    /// Head dimension of queries and keys.
    pub size: u64,
    /// Head dimension of values.
    pub value_size: u64,
    /// True if a query attends only to keys up to its own position.
    pub causal: bool,
    /// Maximum number of keys that a causal query attends to; 0 for all.
    pub window: u64,
    /// Factor of the products of queries and keys.
    pub scale: f64,
    /// Bound that scores approach; 0 without.
    pub softcap: f64,
}

impl Shape {
    /// Returns the sizes of a call; without the option `scale`, the factor is `1 / sqrt(size)`.
    pub fn of(spec: &Spec) -> Shape {
        let [q, k, v] = [0, 1, 2].map(|input| &spec.inputs[input].dims);
        let rank = q.len();
        let axes = Axes::of(&spec.attrs, rank);
        let size = q[rank - 1];
        let scale = spec.attrs.number("scale");
        let pages = input(spec, PAGES);
        let page = pages.map(|_| k[axes.positions]);
        let keys = k[axes.positions] * pages.map_or(1, |pages| spec.inputs[pages].dims[1]);
        Shape {
            axes,
            batch: q[..rank.saturating_sub(3)].iter().product(),
            heads: axes.heads_of(q),
            group: (axes.heads_of(q) / axes.heads_of(k).max(1)).max(1),
            queries: q[axes.positions],
            keys,
            page,
            sequences: input(spec, ENDS).map(|ends| spec.inputs[ends].dims[0]),
            lengths: lengths(spec, [q[axes.positions], keys]),
            size,
            value_size: v[rank - 1],
            causal: spec.attrs.bool("causal"),
            window: spec.attrs.int("window") as u64,
            scale: if scale > 0.0 { scale } else { 1.0 / (size.max(1) as f64).sqrt() },
            softcap: spec.attrs.number(SOFTCAP),
        }
    }

    /// Returns the score of the scaled product of a query and a key, without its bias, and the score's derivative.
    pub fn capped(&self, product: f64) -> [f64; 2] {
        if self.softcap == 0.0 {
            return [product, 1.0];
        }
        let ratio = (product / self.softcap).tanh();
        [self.softcap * ratio, 1.0 - ratio * ratio]
    }

    /// Returns the offset of a head's first element in a tensor without gaps, and the stride of its positions, in
    /// elements. The tuple has the numbers of heads, positions and elements of a head; `number` counts the heads of all
    /// batches.
    pub fn rows(&self, number: usize, (heads, positions, size): (u64, u64, u64)) -> (usize, usize) {
        let (heads, positions, size) = (heads as usize, positions as usize, size as usize);
        match self.axes.heads {
            Some(axis) if axis > self.axes.positions => {
                ((number / heads * positions * heads + number % heads) * size, heads * size)
            }
            _ => (number * positions * size, size),
        }
    }

    /// Returns the elements of head `number` of a tensor without gaps, position by position.
    pub fn head<'a>(&self, values: &'a [f64], number: usize, sizes: (u64, u64, u64)) -> Cow<'a, [f64]> {
        let ((first, step), size, positions) = (self.rows(number, sizes), sizes.2 as usize, sizes.1 as usize);
        match step == size {
            true => Cow::Borrowed(&values[first..][..positions * size]),
            false => (0..positions).flat_map(|position| &values[first + position * step..][..size]).copied().collect(),
        }
    }

    /// Writes the elements of head `number` into a tensor without gaps.
    pub fn put(&self, from: &[f64], to: &mut [f64], number: usize, sizes: (u64, u64, u64)) {
        let ((first, step), size) = (self.rows(number, sizes), sizes.2 as usize);
        for (position, row) in from.chunks(size.max(1)).enumerate() {
            to[first + position * step..][..size].copy_from_slice(row);
        }
    }

    /// Returns the numbers of heads, positions and elements of the queries.
    pub fn of_queries(&self) -> (u64, u64, u64) {
        (self.heads, self.queries, self.size)
    }

    /// Returns the numbers of heads, positions and elements of the keys.
    pub fn of_keys(&self) -> (u64, u64, u64) {
        (self.heads / self.group, self.keys, self.size)
    }

    /// Returns the numbers of heads, positions and elements of the values.
    pub fn of_values(&self) -> (u64, u64, u64) {
        (self.heads / self.group, self.keys, self.value_size)
    }

    /// Returns the numbers of heads, positions and elements of the results.
    pub fn of_results(&self) -> (u64, u64, u64) {
        (self.heads, self.queries, self.value_size)
    }

    /// Returns the range of keys that a query attends to, for sequences that are not packed. The last query attends up
    /// to the last key if the mask is causal.
    pub fn seen(&self, query: u64) -> std::ops::Range<u64> {
        if !self.causal {
            return 0..self.keys;
        }
        let end = (query + 1 + self.keys).saturating_sub(self.queries);
        let start = if self.window > 0 { end.saturating_sub(self.window) } else { 0 };
        start..end
    }

    /// Returns the range of keys that each query attends to. `ends` are the ends of the queries and of the keys of each
    /// packed sequence; `None` if sequences are not packed.
    pub fn all_seen(&self, ends: Option<[&[f64]; 2]>) -> Vec<std::ops::Range<usize>> {
        let usual = |range: std::ops::Range<u64>| range.start as usize..range.end as usize;
        let Some([ends, key_ends]) = ends else {
            return (0..self.queries).map(|query| usual(self.seen(query))).collect();
        };
        let mut all = Vec::with_capacity(self.queries as usize);
        let (mut first, mut first_key) = (0u64, 0u64);
        for (&end, &key_end) in ends.iter().zip(key_ends) {
            let end = (end.max(0.0) as u64).clamp(first, self.queries);
            let key_end = (key_end.max(0.0) as u64).clamp(first_key, self.keys);
            let own = Shape { queries: end - first, keys: key_end - first_key, ..self.clone() };
            all.extend((0..own.queries).map(|query| {
                let seen = own.seen(query);
                usual(first_key + seen.start..first_key + seen.end)
            }));
            (first, first_key) = (end, key_end);
        }
        // Positions after the last end attend to nothing.
        all.resize(self.queries as usize, 0..0);
        all
    }

    /// Returns the parts of equally long sequences, each as the shape of one sequence with the number of sequences. Packed sequences of
    /// unknown lengths count as equally long. `None` if the shape is that of each sequence.
    pub fn parts(&self) -> Option<Vec<(Shape, u64)>> {
        let part = |[queries, keys]: [u64; 2], count| {
            (Shape { batch: 1, queries, keys, sequences: None, lengths: None, ..self.clone() }, count)
        };
        match (&self.lengths, self.sequences) {
            (Some(lengths), _) => {
                let alike = lengths.chunk_by(|one, next| one == next);
                Some(alike.map(|alike| part(alike[0], alike.len() as u64)).collect())
            }
            (None, Some(sequences)) => {
                let of_each = |all: u64| all.div_ceil(sequences.max(1));
                Some(vec![part([self.queries, self.keys].map(of_each), sequences)])
            }
            (None, None) => None,
        }
    }

    /// Number of pairs of a query and a key that it attends to, in all heads of all batches. Packed sequences of unknown lengths count
    /// as equally long.
    pub fn pairs(&self) -> f64 {
        if self.lengths.is_some() {
            return self.parts().iter().flatten().map(|(part, count)| part.pairs() * *count as f64).sum();
        }
        let sequences = self.sequences.unwrap_or(1).max(1) as f64;
        let (queries, keys) = (self.queries as f64 / sequences, self.keys as f64 / sequences);
        let of_a_head = match self.causal {
            false => queries * keys,
            true => {
                // The queries attend to `first`, `first` + 1, … up to `keys` keys, but to at most `most` of them.
                let first = (keys - queries + 1.0).max(1.0);
                let most = if self.window > 0 { (self.window as f64).min(keys) } else { keys };
                let growing = if first <= most { (first + most) * (most - first + 1.0) / 2.0 } else { 0.0 };
                growing + most * (keys - most.max(first - 1.0)).max(0.0)
            }
        };
        of_a_head * sequences * self.heads as f64 * self.batch as f64
    }
}

/// Returns the numbers of queries and of keys of each sequence, in ascending order; `None` if they are unknown. `most` are the
/// numbers of all packed sequences together, or of a sequence of a pool.
fn lengths(spec: &Spec, most: [u64; 2]) -> Option<Vec<[u64; 2]>> {
    let within = |value: i64, most: u64| u64::try_from(value).unwrap_or(0).min(most);
    let mut lengths: Vec<[u64; 2]> = match &spec.sizes.as_ref()?[..] {
        [keys] => keys.iter().map(|&keys| [most[0], within(keys, most[1])]).collect(),
        [ends, key_ends] => {
            let mut first = [0; 2];
            let ends =
                ends.iter().zip(key_ends).map(|(&end, &key_end)| [within(end, most[0]), within(key_end, most[1])]);
            ends.map(|ends| {
                let last = [0, 1].map(|side| ends[side].max(first[side]));
                let length = [0, 1].map(|side| last[side] - first[side]);
                first = last;
                length
            })
            .collect()
        }
        _ => return None,
    };
    lengths.sort_unstable();
    Some(lengths)
}

/// Returns the dimensions of the scores: `[.., heads, queries, keys]`.
pub fn scores(spec: &Spec) -> Dims {
    let [q, k] = [0, 1].map(|input| &spec.inputs[input].dims);
    Axes::of(&spec.attrs, q.len()).scores(q, k)
}

/// Returns the bias as a tensor with the dimensions of the scores and stride 0 along broadcast dimensions; `None`
/// without a bias.
pub fn bias(spec: &Spec) -> Option<Tensor> {
    let (bias, dims) = (spec.inputs[input(spec, BIAS)?], scores(spec));
    Some(Tensor { dims, strides: layout::broadcast_strides(&bias, dims), ..bias })
}

/// Returns the number of bytes of a bias that a thread can copy at once; 0 for other biases, and without a bias.
pub fn bias_pack(spec: &Spec) -> u64 {
    let Some(bias) = bias(spec) else { return 0 };
    let size = bias.dtype.size();
    let copies = |bytes: u64| bytes == size || (bytes > size && layout::in_packs(&bias, bytes / size));
    [16, 8, 4].into_iter().find(|&bytes| copies(bytes)).unwrap_or(0)
}

/// Returns the bytes of the bias of a score if warps can copy them to shared memory, otherwise 0.
pub fn copied_bias(spec: &Spec) -> u64 {
    bias(spec).filter(|_| bias_pack(spec) > 0).map_or(0, |bias| bias.dtype.size())
}

/// Bias of the scores in the reference on the CPU.
pub struct Bias<'a> {
    values: &'a [f64],
    /// Offset of the first element of each head, in elements.
    heads: Vec<usize>,
    /// Stride between queries, in elements.
    query: usize,
    /// Stride between keys, in elements.
    key: usize,
}

impl<'a> Bias<'a> {
    /// Returns the bias from the values of all inputs, without gaps; `None` without a bias.
    pub fn of(spec: &Spec, inputs: &[&'a [f64]]) -> Option<Bias<'a>> {
        let place = input(spec, BIAS)?;
        let mut packed = spec.clone();
        packed.inputs[place].strides = packed.inputs[place].dims.contiguous_strides();
        let Tensor { dims, strides, .. } = bias(&packed)?;
        let lead = dims.len() - 2;
        let [of_heads, steps] = [&dims, &strides].map(|all| Dims::from_slice(&all[..lead]).expect("fewer dimensions"));
        let heads = layout::offsets(of_heads, steps).map(|offset| offset as usize).collect();
        Some(Bias { values: inputs[place], heads, query: strides[lead] as usize, key: strides[lead + 1] as usize })
    }

    /// Returns the bias of one score. `head` counts the heads of all batches.
    pub fn of_score(&self, head: usize, query: usize, key: usize) -> f64 {
        self.values[self.heads[head] + query * self.query + key * self.key]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_those_that_queries_see() {
        for (queries, keys, window) in
            [(5, 5, 0), (3, 9, 0), (9, 3, 0), (7, 7, 3), (2, 9, 4), (9, 4, 2), (1, 1, 1), (4, 9, 20)]
        {
            let shape = Shape {
                axes: Axes::of_rows(4),
                batch: 2,
                heads: 6,
                group: 3,
                queries,
                keys,
                page: None,
                sequences: None,
                lengths: None,
                size: 8,
                value_size: 8,
                causal: true,
                window,
                scale: 1.0,
                softcap: 0.0,
            };
            let seen: u64 = (0..queries).map(|query| shape.seen(query)).map(|range| range.end - range.start).sum();
            assert_eq!(shape.pairs(), (12 * seen) as f64, "{queries} queries, {keys} keys, window {window}");
        }
    }
}
