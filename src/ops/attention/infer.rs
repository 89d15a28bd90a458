//! Shape rules of attention, its variants and their gradients.

use super::*;

/// Maximum number of positions in all heads of queries that share a head of keys: kernels index them with 32 bits.
pub(super) const MAX_POSITIONS: u64 = 1 << 30;

/// Maximum number of elements of a head: 32 threads hold them in registers.
const LARGEST_HEAD: u64 = 1024;

/// Maximum number of packed sequences: each thread block searches for its sequence linearly.
const MAX_SEQUENCES: u64 = 4096;

/// Returns the dimensions of the results `o` and `lse`.
fn results(call: &Call, q: &Tensor, v: &Tensor) -> (Dims, Dims) {
    let (axes, last) = (Axes::of(call.attrs, q.dims.len()), q.dims.len() - 1);
    let (mut dims, mut rows) =
        (q.dims, Dims::from_slice(&q.dims[..last]).expect("fewer dimensions than the queries have"));
    dims.set(last, v.dims[last]);
    if let Some(heads) = axes.heads {
        rows.set(last - 2, q.dims[heads]);
        rows.set(last - 1, q.dims[axes.positions]);
    }
    (dims, rows)
}

impl Call<'_> {
    /// Returns the types and dimensions of the outputs of a forward operation.
    pub(super) fn infer_results(&self) -> Result<Vec<(DType, Dims)>, OpError> {
        let [q, v] = [0, 2].map(|input| self.inputs[input].tensor);
        let (dims, rows) = results(self, &q, &v);
        let o = self.float_output(0, q.dtype, dims)?;
        Ok(vec![o, self.output(1, q.dtype.compute(), rows)?])
    }

    /// Returns the types and dimensions of the gradients.
    pub(super) fn infer_gradients(&self) -> Result<Vec<(DType, Dims)>, OpError> {
        let [q, k, v] = [0, 1, 2].map(|input| self.inputs[input].tensor);
        let (o, rows) = results(self, &q, &v);
        let (of_o, of_lse) = ((q.dtype, o), (q.dtype.compute(), rows));
        let dlse = self.place(DLSE).map(|place| (place, of_lse));
        for (index, (dtype, dims)) in [(3, of_o), (4, of_lse), (5, of_o)].into_iter().chain(dlse) {
            let found = &self.inputs[index].tensor;
            if (found.dtype, found.dims) != (dtype, dims) {
                let help = format!("for these queries and values it has to be {dtype}{dims}");
                return Err(self.differs(0, format!("the queries are {q}"), index, format!("this is {found}"), &help));
            }
        }
        let scores = Tensor { dtype: q.dtype.compute(), dims: self.scores(), ..q };
        let types = [q, k, v, scores].into_iter().take(self.outputs.len()).enumerate();
        types.map(|(index, tensor)| self.float_output(index, tensor.dtype, tensor.dims)).collect()
    }

    /// Fails unless the shapes of queries, keys and values are compatible and the options are valid.
    pub(super) fn needs_attention(&self) -> Result<(), OpError> {
        let q = &self.inputs[0].tensor;
        let rank = q.dims.len();
        for (index, name) in [(1, "keys"), (2, "values")] {
            let other = &self.inputs[index].tensor;
            if other.dims.len() != rank || other.dims[..rank.saturating_sub(3)] != q.dims[..rank.saturating_sub(3)] {
                let help = "all have the same dimensions before those of heads, positions and elements: \
                            q[.., heads, queries, d], k[.., kv_heads, keys, d], or positions first by `layout`";
                let found = format!("these {name} are {other}");
                return Err(self.differs(0, format!("this is {q}"), index, found, help));
            }
        }
        self.needs_heads()
    }

    /// Returns the place of the input with this name; `None` if the call does not have it.
    fn place(&self, name: &str) -> Option<usize> {
        place(self.operation, self.inputs.len(), name)
    }

    /// Returns the dimensions of the scores: `[.., heads, queries, keys]`.
    fn scores(&self) -> Dims {
        let [q, k] = [0, 1].map(|input| &self.inputs[input].tensor.dims);
        Axes::of(self.attrs, q.len()).scores(q, k)
    }

    /// Fails unless the bias, if there is one, can be broadcast to the scores.
    pub(super) fn needs_bias(&self) -> Result<(), OpError> {
        let Some(place) = self.place(BIAS) else { return Ok(()) };
        let (q, bias) = (&self.inputs[0].tensor, &self.inputs[place].tensor);
        let (own, wide) = (q.dtype, q.dtype.compute());
        let needs =
            if own == wide { format!("a bias of type {own}") } else { format!("a bias of type {own} or {wide}") };
        self.needs_dtype(&self.inputs[place], [own, wide].contains(&bias.dtype), &needs)?;
        let scores = self.scores();
        if layout::broadcast(bias.dims, scores) != Some(scores) {
            let help = "a bias is broadcast to the scores, `[.., heads, queries, keys]`: each of its dimensions, from the last on, has \
                        their size or 1";
            return Err(self.differs(
                0,
                format!("the scores are {scores}"),
                place,
                format!("this bias is {bias}"),
                help,
            ));
        }
        Ok(())
    }

    /// Fails unless an input has this number of dimensions.
    fn needs_dims(&self, index: usize, rank: usize, needs: &str) -> Result<(), OpError> {
        let input = &self.inputs[index];
        if input.tensor.dims.len() == rank {
            return Ok(());
        }
        Err(self.bad_shape(input, needs))
    }

    /// Fails unless queries, the pool of keys and values, and the pages of each sequence have compatible shapes.
    pub(super) fn needs_pages(&self) -> Result<(), OpError> {
        let of_pool = "four dimensions: blocks of the pool, heads, keys of a block and elements";
        self.needs_dims(0, 4, "four dimensions: sequences, heads, queries and elements")?;
        self.needs_dims(1, 4, of_pool)?;
        self.needs_dims(2, 4, of_pool)?;
        self.needs_dims(3, 2, "two dimensions: sequences and the blocks of each")?;
        self.needs_dims(4, 1, "one dimension: the number of keys of each sequence")?;
        self.needs_indices(&self.inputs[3])?;
        self.needs_indices(&self.inputs[4])?;
        self.needs_heads()?;
        let [q, k, pages] = [0, 1, 3].map(|input| &self.inputs[input].tensor);
        for (index, name) in [(3, PAGES), (4, LENGTHS)] {
            let found = self.inputs[index].tensor.dims[0];
            if found != q.dims[0] {
                let help = "each sequence has its queries, a row of pages and a number of keys";
                let (left, right) = (format!("{} sequences", q.dims[0]), format!("{name} of {found} sequences"));
                return Err(self.differs(0, left, index, right, help));
            }
        }
        let axes = Axes::of(self.attrs, 4);
        let keys = k.dims[axes.positions].saturating_mul(pages.dims[1]);
        let group = axes.heads_of(&q.dims) / axes.heads_of(&k.dims).max(1);
        if keys.saturating_mul(group) > MAX_POSITIONS || k.dims[0] > MAX_POSITIONS {
            return Err(
                self.bad_shape(&self.inputs[3], format!("at most {MAX_POSITIONS} keys in the blocks of a sequence"))
            );
        }
        Ok(())
    }

    /// Fails unless queries, keys and values of packed sequences, and the ends of these sequences, have compatible
    /// shapes.
    pub(super) fn needs_sequences(&self) -> Result<(), OpError> {
        for index in 0..3 {
            self.needs_dims(index, 3, "three dimensions: heads, the positions of all sequences and elements")?;
        }
        self.needs_attention()?;
        let places = [ENDS, KEY_ENDS].map(|name| self.place(name).expect("both are required inputs"));
        for place in places {
            self.needs_indices(&self.inputs[place])?;
            self.needs_dims(place, 1, "one dimension: the end of each sequence")?;
        }
        let [ends, key_ends] = places.map(|place| self.inputs[place].tensor.dims[0]);
        if ends != key_ends {
            let help = "each sequence has queries and keys: pass `ends` twice where both end at the same places";
            let (left, right) = (format!("{ends} sequences"), format!("{key_ends} sequences"));
            return Err(self.differs(places[0], left, places[1], right, help));
        }
        if ends > MAX_SEQUENCES {
            return Err(self.bad_shape(&self.inputs[places[0]], format!("at most {MAX_SEQUENCES} sequences")));
        }
        Ok(())
    }

    /// Fails unless heads of queries, keys and values have compatible shapes and the options are valid.
    fn needs_heads(&self) -> Result<(), OpError> {
        for index in 0..3 {
            self.needs_dtype(
                &self.inputs[index],
                self.inputs[index].tensor.dtype.is_float(),
                "floating-point queries, keys and values",
            )?;
            self.needs_rank(index, 2, "positions and the elements of a head")?;
        }
        let q = &self.inputs[0].tensor;
        let rank = q.dims.len();
        for (index, name) in [(1, "keys"), (2, "values")] {
            let other = &self.inputs[index].tensor;
            let found = |text: String| format!("these {name} {text}");
            if other.dtype != q.dtype {
                let help = format!("queries, keys and values need the same element type: {}", self.cast_to(q.dtype));
                return Err(self.differs(
                    0,
                    format!("this is {}", q.dtype),
                    index,
                    found(format!("are {}", other.dtype)),
                    &help,
                ));
            }
        }
        let [k, v] = [1, 2].map(|index| &self.inputs[index].tensor);
        if k.dims[rank - 1] != q.dims[rank - 1] {
            let help = "a query and a key have as many elements, since their product is a sum over them";
            let (left, right) = (q.dims[rank - 1], k.dims[rank - 1]);
            let found = format!("these keys have {right} elements");
            return Err(self.differs(0, format!("these queries have {left} elements"), 1, found, help));
        }
        if k.dims[..rank - 1] != v.dims[..rank - 1] {
            let help = "there is a value for each key, so all their dimensions but the last are alike";
            return Err(self.differs(1, format!("the keys are {k}"), 2, format!("the values are {v}"), help));
        }
        let axes = Axes::of(self.attrs, rank);
        let [heads, shared] = [q, k].map(|tensor| axes.heads_of(&tensor.dims));
        if !heads.is_multiple_of(shared.max(1)) {
            let help = "the number of heads of queries is a multiple of that of keys; if positions precede heads in the \
                        dimensions, write `layout: positions_first`";
            return Err(self.differs(
                0,
                format!("{heads} heads of queries"),
                1,
                format!("{shared} heads of keys"),
                help,
            ));
        }
        let group = heads / shared.max(1);
        for input in &self.inputs[..3] {
            let (positions, size) = (input.tensor.dims[axes.positions], input.tensor.dims[rank - 1]);
            let needs = if size > LARGEST_HEAD {
                format!("heads of at most {LARGEST_HEAD} elements")
            } else if positions.saturating_mul(group) > MAX_POSITIONS {
                format!("at most {MAX_POSITIONS} positions in all {group} heads of queries that share a head of keys")
            } else {
                continue;
            };
            return Err(self.too_large(input, needs));
        }
        let scale = self.attrs.number("scale");
        if !(0.0..=1e30).contains(&scale) {
            let why = format!("{scale} is not a factor between 0 and 1e30");
            return Err(self.bad_option("scale", why, "write a positive number, or remove it for `1 / sqrt(d)`"));
        }
        let softcap = self.attrs.number(SOFTCAP);
        if softcap != 0.0 && !(1e-3..=1e6).contains(&softcap) {
            let why = format!("{softcap} is not a bound from 0.001 to 1000000");
            return Err(self.bad_option(
                SOFTCAP,
                why,
                "write the model's bound of scores: `softcap: 50`; or remove it",
            ));
        }
        if self.attrs.int("window") > 0 && !self.attrs.bool("causal") {
            let why = "only causal queries have a window".to_owned();
            return Err(self.bad_option("window", why, "add `causal: true`, or remove `window`"));
        }
        Ok(())
    }
}
