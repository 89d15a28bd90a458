//! Products of attention, and the factors and results that they read and write.

use std::ops::Range;

use super::*;

/// Rows and keys of the scores that a product computes or reads. Products skip scores that the mask excludes.
pub(super) struct Extent {
    /// Rows of a matrix of scores.
    pub rows: Range<u64>,
    /// Columns of a matrix of scores.
    pub keys: Range<u64>,
}

impl Composed<'_> {
    /// Returns the rows and keys of the products whose rows are those of scores, or keys if `by_keys`. The products compute all results
    /// together. An extent has at least one row and one key: products of masked scores set results to zero.
    pub(super) fn extents(&self, by_keys: bool) -> Vec<Extent> {
        if self.divisions == 1 {
            return vec![Extent { rows: 0..self.rows(), keys: 0..self.keys() }];
        }
        let counts @ (queries, keys) = (self.shape.queries, self.keys());
        let count = if by_keys { keys } else { queries };
        let own = count.div_ceil(self.divisions).next_multiple_of(TILE);
        let extent = |first: u64| {
            let range = first..(first + own).min(count);
            let (queries, keys) = match by_keys {
                true => (packed(cost::seeing(&self.shape, first, range.end - 1), counts.0), range),
                false => (range.clone(), packed(cost::seen(&self.shape, first, range.end - 1), counts.1)),
            };
            Extent { rows: queries.start * self.together..queries.end * self.together, keys }
        };
        (0..count).step_by(own as usize).map(extent).collect()
    }

    /// Returns the products of a chunk and the kernels between them.
    pub(super) fn chunk(&self, chunk: &Chunk) -> Vec<Launch> {
        let Shape { size, value_size, .. } = self.shape;
        let (by_rows, by_keys) = (self.extents(false), self.extents(true));
        let scores = |width: u64, a: Factor, b: Factor, c: Factor| {
            let depth = if self.gathered == Gathered::Parts { parts::OF_A_ROW * padded(width) } else { width };
            let sizes = move |one: &Extent| (length(&one.rows), length(&one.keys), depth);
            self.products(chunk, &by_rows, sizes, [(a, false), (b, true)], c)
        };
        let in_parts = self.gathered == Gathered::Parts;
        let of_rows = |width: u64, a: Factor, b: Factor, c: Factor| {
            if in_parts {
                let sizes = |one: &Extent| (length(&one.rows), length(&one.keys));
                return self.products_of_parts(chunk, &by_rows, sizes, [(a, false), (b, false)], c);
            }
            let sizes = move |one: &Extent| (length(&one.rows), width, length(&one.keys));
            self.products(chunk, &by_rows, sizes, [(a, false), (b, false)], c)
        };
        let of_keys = |width: u64, a: Factor, b: Factor, c: Factor| {
            if in_parts {
                let sizes = |one: &Extent| (length(&one.keys), length(&one.rows));
                return self.products_of_parts(chunk, &by_keys, sizes, [(a, true), (b, false)], c);
            }
            let sizes = move |one: &Extent| (length(&one.keys), width, length(&one.rows));
            self.products(chunk, &by_keys, sizes, [(a, true), (b, false)], c)
        };
        let kernel = |name, body| vec![Launch::Kernel(self.kernel(chunk, name, body))];
        let first = scores(size, Q, K, Factor::Scores);
        match self.is_backward() {
            false => {
                let weights = kernel("attention_weights", text::WEIGHTS);
                [first, weights, of_rows(value_size, Factor::Weights, V, O)].concat()
            }
            true => [
                first,
                scores(value_size, DY, V, Factor::WeightGradients),
                kernel("attention_slopes", text::SLOPES),
                of_keys(value_size, Factor::Weights, DY, DV),
                of_rows(size, Factor::ScoreGradients, K, DQ),
                of_keys(size, Factor::ScoreGradients, Q, DK),
            ]
            .concat(),
        }
    }

    /// Returns the products of weights, or of gradients of scores, with an operand for these extents; `sizes` returns
    /// the rows and the depth of each. A product multiplies one part of the weights with the parts of the operand that
    /// it is multiplied with, which are adjacent columns. So the results of different parts are in different columns,
    /// which the kernel after the products adds.
    fn products_of_parts(
        &self,
        chunk: &Chunk,
        extents: &[Extent],
        sizes: impl Fn(&Extent) -> (u64, u64),
        [a, b]: [(Factor, bool); 2],
        c: Factor,
    ) -> Vec<Launch> {
        let (mut all, columns) = (Vec::new(), self.columns());
        let Factor::Operand(place) = b.0 else { unreachable!("the second factor is an operand") };
        let (own, first) =
            (&self.matrices[place], if self.matrices[place].shared { parts::IN_KEY } else { parts::IN_QUERY });
        let width = self.copy_of(own).1 / parts::OF_A_ROW;
        for index in 0..PARTS {
            let with_width = |extent: &Extent| {
                let (rows, depth) = sizes(extent);
                (rows, (PARTS - index) * width, depth)
            };
            let mut products = self.gemms(chunk, extents, with_width, [a, b], c);
            for product in &mut products {
                product.a.offset += index * columns;
                product.b.offset += first * width;
                product.accumulate |= index > 0;
            }
            all.extend(products.into_iter().map(|product| Launch::Gemm(product, None)));
        }
        all
    }

    /// Returns the launches of the products of `a` and `b` for these extents.
    fn products(
        &self,
        chunk: &Chunk,
        extents: &[Extent],
        sizes: impl Fn(&Extent) -> (u64, u64, u64),
        factors: [(Factor, bool); 2],
        c: Factor,
    ) -> Vec<Launch> {
        let products = self.gemms(chunk, extents, sizes, factors, c);
        products.into_iter().map(|product| Launch::Gemm(product, None)).collect()
    }

    /// Returns the products of `a` and `b` for these extents. The `bool` of a factor says whether memory holds its transpose.
    fn gemms(
        &self,
        chunk: &Chunk,
        extents: &[Extent],
        sizes: impl Fn(&Extent) -> (u64, u64, u64),
        [a, b]: [(Factor, bool); 2],
        c: Factor,
    ) -> Vec<Gemm> {
        let product = |extent: &Extent| {
            let (m, n, k) = sizes(extent);
            Gemm {
                m,
                n,
                k,
                batch: chunk.units,
                a: self.matrix(chunk, extent, a),
                b: self.matrix(chunk, extent, b),
                c: self.matrix(chunk, extent, (c, false)),
                arithmetic: self.arithmetic(),
                accumulate: chunk.member > 0 && matches!(c, Factor::Operand(place) if self.matrices[place].shared),
                epilogue: None,
                scales: None,
            }
        };
        extents.iter().map(product).collect()
    }

    /// Returns the rows and columns of a factor or of a result that belong to an extent.
    fn matrix(&self, chunk: &Chunk, extent: &Extent, of: (Factor, bool)) -> Matrix {
        let whole = self.whole_matrix(chunk, of);
        let skipped = match of.0 {
            Factor::Operand(place) if self.matrices[place].shared => extent.keys.start * whole.row,
            Factor::Operand(_) => extent.rows.start * whole.row,
            Factor::Scores | Factor::WeightGradients | Factor::Weights | Factor::ScoreGradients => {
                extent.rows.start * whole.row + extent.keys.start
            }
        };
        // The first rows and keys of extents are multiples of a pack, which keeps the alignment.
        Matrix { offset: whole.offset + skipped, ..whole }
    }

    /// Returns a factor or a result as a matrix in an operand or in the workspace.
    fn whole_matrix(&self, chunk: &Chunk, (factor, transposed): (Factor, bool)) -> Matrix {
        let regions = self.regions(self.at_once);
        let in_workspace = |dtype: DType, region: u64, row: u64, rows: u64| Matrix {
            operand: Matrix::WORKSPACE,
            offset: region / dtype.size(),
            dtype,
            row,
            transposed,
            batch: rows * row,
            align: 16,
        };
        let (dtype, region) = match factor {
            Factor::Operand(place) if self.adds_up && [DK, DV].iter().any(|one| one.is_operand(place)) => {
                let Shape { size, value_size, .. } = self.shape;
                let is_key = DK.is_operand(place);
                let (region, width) = if is_key { (regions.key_sums, size) } else { (regions.value_sums, value_size) };
                return in_workspace(self.sums(), region, width, self.keys());
            }
            Factor::Operand(place) if self.pads && [K, V].iter().any(|one| one.is_operand(place)) => {
                let tensor = self.spec.operand(self.matrices[place].index);
                let region = if K.is_operand(place) { regions.keys } else { regions.values };
                return in_workspace(tensor.dtype, region, tensor.dims[tensor.dims.len() - 1], self.keys());
            }
            Factor::Operand(place) if self.is_gathered(place) => {
                let (dtype, width, rows) = self.copy_of(&self.matrices[place]);
                return in_workspace(dtype, regions.gathered[place], width, rows);
            }
            Factor::Operand(place) => {
                let tensor = self.spec.operand(self.matrices[place].index);
                let offset = chunk.starts[place];
                let aligned = (offset * tensor.dtype.size()).is_multiple_of(16);
                let width = tensor.dims[tensor.dims.len() - 1];
                let rows = self.rows_of(&self.matrices[place]);
                let is_alternating = self.by_query && !self.matrices[place].shared;
                let step =
                    if is_alternating { self.shape.axes.heads } else { None }.unwrap_or(self.shape.axes.positions);
                return Matrix {
                    operand: self.matrices[place].index as u8,
                    offset,
                    dtype: tensor.dtype,
                    // A single row can have any stride; libraries require at least its length.
                    row: if rows == 1 { width } else { tensor.strides[step] },
                    transposed,
                    batch: self.units.strides[place].last().copied().unwrap_or(0),
                    align: if aligned { tensor.align } else { tensor.dtype.size() as u8 },
                };
            }
            Factor::Scores => (self.sums(), 0),
            Factor::WeightGradients => (self.sums(), regions.weight_gradients),
            Factor::Weights => (self.factors(), regions.weights),
            Factor::ScoreGradients => (self.factors(), regions.score_gradients),
        };
        let parts =
            if matches!(factor, Factor::Weights | Factor::ScoreGradients) { self.parts_of_a_weight() } else { 1 };
        in_workspace(dtype, region, self.columns() * parts, self.rows())
    }
}

/// Returns a range within `0..count` that contains at least one number of `range`, from a multiple of a pack to another or to the end.
fn packed(range: Range<u64>, count: u64) -> Range<u64> {
    let first = range.start.min(count - 1);
    let end = range.end.max(first + 1).next_multiple_of(PACK).min(count);
    first / PACK * PACK..end
}

/// Returns the number of rows or keys of a range.
pub(super) fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_score_that_a_query_sees_belongs_to_one_extent() {
        for (queries, keys, window, group) in [
            (512, 512, 0, 1),
            (512, 512, 100, 1),
            (333, 777, 0, 1),
            (333, 777, 70, 2),
            (700, 300, 0, 2),
            (700, 300, 64, 1),
        ] {
            let of = |heads: u64, positions: u64| Tensor::packed(DType::F32, &[positions, heads, 64]);
            let (q, k) = (of(group, queries), of(1, keys));
            let layout = ("layout", Attr::Word(POSITIONS_FIRST));
            let options = [layout, ("causal", Attr::Bool(true)), ("window", Attr::Int(window))];
            let spec = Spec::of_use("attention", &options, vec![q, k, k], &[None; 2]).expect("a use");
            let whole = Composed::with(&spec, Gathered::Nothing).expect("products");
            let divided = whole.with_divisions();
            assert_eq!(divided.iter().map(|one| one.divisions).collect::<Vec<u64>>()[..3], [1, 2, 4]);
            for (one, by_keys) in divided[1..].iter().flat_map(|one| [(one, false), (one, true)]) {
                let extents = one.extents(by_keys);
                assert!(
                    extents.len() > 1
                        && extents.iter().all(|extent| !extent.rows.is_empty() && !extent.keys.is_empty())
                );
                assert!(extents.iter().all(|extent| extent.rows.end <= queries * group && extent.keys.end <= keys));
                let computed: u64 = extents.iter().map(|extent| length(&extent.rows) * length(&extent.keys)).sum();
                // A block of keys may be seen by queries of every tile.
                assert!(computed < queries * group * keys || by_keys);
                for row in 0..queries * group {
                    for key in one.shape.seen(row / group) {
                        let has = |extent: &&Extent| extent.rows.contains(&row) && extent.keys.contains(&key);
                        assert_eq!(extents.iter().filter(has).count(), 1, "row {row}, key {key}");
                    }
                }
            }
        }
    }
}
