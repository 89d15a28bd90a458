//! Products by way of copies of the matrices, in the form for which libraries have fast kernels.
//!
//! Rows are whole packs of 16 bytes. A library computes other 16-bit products by kernels that load one to four elements at once, at a
//! fraction of the rate of matrix units. Copying the matrices takes less time if each of their elements is multiplied often enough. Of 8-bit
//! matrices, libraries multiply only those with such rows along the depth, so that others are always copied.

use super::super::launch;
use super::align::{MAX_COPY, Source, copy_time, pack};
use super::epilogue::Finish;
use super::tiling::{ALIGNMENT, has_aligned_rows, pack_of, product_cost, product_time};
use super::{batches, rows_columns, sizes};
use crate::base::{DType, Dims};
use crate::ops::kernels::walk::Operand as Walked;
use crate::ops::{Arithmetic, Cost, Launch, Matrix, ScaleForm, Scales, Space, Spec, Tensor, Traffic};

/// Maximum number of rows and columns of a matrix, which kernels index with 32 bits.
pub const MAX_SIDE: u64 = 1 << 31;

/// Alignment in bytes of a matrix in the workspace.
const ALIGN: u64 = 512;

/// Number of which the columns of the first product are a multiple, if that product reads the second factor in place
/// and another product computes the last columns: the columns of the largest tile, and of the blocks that share a
/// scaling factor.
const SPLIT: u64 = 128;

/// Numbers of products among which the depth may be divided: one kernel adds up their sums.
const PARTS: [u64; 4] = [2, 4, 8, 16];
/// Minimum number of terms of each of these products: a tile of 128 × 128 takes about as long as launching the kernel that adds up.
const MIN_TERMS: u64 = 1024;

/// A product of aligned copies, or of parts of the depth.
pub struct Aligned {
    /// The factors as the product reads them.
    factors: [Source; 2],
    /// Offset in bytes in the workspace of the matrices to which the product is written, and these matrices with the leading
    /// dimensions of the output, or the number of parts; `None` if the product is written to the output.
    result: Option<(u64, Tensor)>,
    /// Copy of the scaling factors of the columns, one for each column of the product; `None` if the given ones are
    /// that many.
    scales: Option<Source>,
    /// The product of the copies, without an epilogue if its result is in the workspace.
    product: launch::Gemm,
    /// The product of the last columns, of which alone the second factor is a copy; `None` if one product computes all columns.
    last: Option<launch::Gemm>,
    /// Number of parts of the depth, each of which is a product of a batch; 1 if the depth is whole.
    parts: u64,
    /// True if the library has no algorithm for the given matrices.
    pub is_needed: bool,
}

impl Aligned {
    /// Returns the product of copies that computes the library's product of a call; `None` if the library computes the given one in less
    /// time, or if there are several products.
    pub fn of(spec: &Spec, products: &[launch::Gemm]) -> Option<Aligned> {
        let [given] = products else { return None };
        let has_kernel = Finish::of(spec).has_epilogue() && given.epilogue.is_none();
        let timed = |aligned: Aligned| (aligned.time(has_kernel), aligned);
        let copies = [false, true].into_iter().filter_map(|splits| Aligned::with_copies(spec, given, splits, 1));
        // With factors of rows and columns, the library gives each tile to one block.
        let divides = given.scales.is_some_and(|scales| scales.form == ScaleForm::RowsAndColumns);
        let parts = PARTS.into_iter().filter(|parts| divides && given.k >= parts * MIN_TERMS);
        let parts = parts.filter_map(|parts| Aligned::with_copies(spec, given, false, parts));
        let (time, aligned) = copies.chain(parts).map(timed).min_by(|a, b| a.0.total_cmp(&b.0))?;
        (aligned.is_needed || time < product_time(given)).then_some(aligned)
    }

    /// Returns the product of copies; `None` if there is nothing to copy, or the kernels do not support the type or shape. With `splits`, the
    /// second factor is read as it lies apart from its last columns; `None` if it has another form than the library needs. `parts` is the
    /// number of products among which the depth is divided, without `splits`.
    fn with_copies(spec: &Spec, given: &launch::Gemm, splits: bool, parts: u64) -> Option<Aligned> {
        let (m, n, k, batch) = sizes(spec);
        let (dtype, output) = (spec.inputs[0].dtype, &spec.outputs[0]);
        let is_narrow = is_narrow(given);
        let spaces = spec.inputs[..2].iter().chain([output]).all(|tensor| tensor.space == Space::Device);
        let walk = batches(spec);
        // Copies never pay for a product of vectors, but the library may need them.
        let may_pay = is_matrix_units(given.arithmetic) && spaces && m.min(n).min(k) >= 2;
        if !(is_narrow || may_pay) || m.min(n).min(k).min(batch) == 0 || m.max(n).max(k) >= MAX_SIDE {
            return None;
        }
        let turned = ["transpose_a", "transpose_b"].map(|name| spec.attrs.bool(name));
        let [turned_a, turned_b] = if is_narrow { [false, true] } else { turned };
        let pack = pack(dtype);
        let parts_pack = if parts > 1 { pack * parts } else { 1 };
        let round = |size: u64, along: bool| if along { size.next_multiple_of(pack) } else { size };
        // The fast kernels load and store whole packs along rows, so both the distance and the length of rows must be
        // multiples of a pack.
        let (rows, terms) = (round(m, turned_a), round(k, !turned_a || turned_b).next_multiple_of(parts_pack));
        let columns = round(n, !turned_b || !(n * output.dtype.size()).is_multiple_of(ALIGNMENT));
        let dims = |sizes: &[u64]| Dims::from_slice(sizes).unwrap_or_default();
        let view = |operand: usize| {
            let tensor = &spec.inputs[operand];
            let (last, size) = (tensor.dims.len() - 1, tensor.dims);
            let row = if size[last - 1] == 1 { size[last] } else { tensor.strides[last - 1] };
            let stride = walk.strides[operand].last().copied().unwrap_or(0);
            let (sizes, strides): (&[u64], &[u64]) = match stride {
                0 => (&[size[last - 1], size[last]], &[row, 1]),
                _ => (&[batch, size[last - 1], size[last]], &[stride, row, 1]),
            };
            Tensor { dims: dims(sizes), strides: dims(strides), ..*tensor }
        };
        // `turned` is the form of the operand in memory, `is_turned` that of the matrix which the product reads.
        let source = |operand: usize, [turned, is_turned]: [bool; 2], sides: [u64; 2], offset: u64| {
            let (given, [rows, columns]) = (view(operand), sides);
            let sides = if is_turned { [columns, rows] } else { [rows, columns] };
            let as_given = Source::given(operand as u8, &given);
            let is_whole = rows_columns(&given, turned) == (rows, columns);
            match turned == is_turned {
                true if is_whole && as_given.is_aligned() => as_given,
                true => Source::padded(operand as u8, &given, sides, offset),
                false => Source::turned(operand as u8, &given, sides, offset),
            }
        };
        let a = source(0, [turned[0], turned_a], [rows, terms], 0);
        // Number of columns before the last ones.
        let start = if splits { n / SPLIT * SPLIT } else { 0 };
        let b_at = a.end().next_multiple_of(ALIGN);
        let b = if splits {
            let given = view(1);
            let has_form = turned[1] && turned_b && terms == k && Source::given(1, &given).is_aligned();
            if !has_form || batch > 1 || columns == n || start == 0 {
                return None;
            }
            let last = Tensor { dims: dims(&[n - start, k]), ..given };
            Source::padded(1, &last, [columns - start, k], b_at).starting_at(start * given.strides[0])
        } else {
            source(1, [turned[1], turned_b], [terms, columns], b_at)
        };
        let end = a.end().max(b.end()).next_multiple_of(ALIGN);
        let is_each = |scales: &Scales| scales.form == ScaleForm::RowsAndColumns && columns != n && parts == 1;
        let scales = given.scales.filter(is_each).map(|scales| {
            let given = &spec.inputs[usize::from(scales.operands[1])];
            let copied = Tensor { dims: dims(&[1, n - start]), strides: dims(&[n, 1]), ..*given };
            Source::padded(scales.operands[1], &copied, [1, columns - start], end).starting_at(start)
        });
        let end = scales.as_ref().map_or(end, Source::end);
        let factors = [a, b];
        let result = parts > 1 || (rows, columns) != (m, n) || !has_aligned_rows(output);
        let result = result.then(|| {
            let row = columns.next_multiple_of(pack);
            let mut dims = output.dims;
            dims.set(dims.len() - 2, rows);
            dims.set(dims.len() - 1, row);
            let tensor = if parts > 1 {
                Tensor::packed(DType::F32, &[parts, rows, row])
            } else {
                Tensor::packed(output.dtype, &dims)
            };
            (end.next_multiple_of(ALIGN), tensor)
        });
        let copied = factors.iter().any(|factor| factor.offset.is_some()) || result.is_some();
        let room = result.map_or(end, |(offset, tensor)| offset + tensor.bytes());
        if !copied || room > MAX_COPY {
            return None;
        }
        let matrix = |given: &Matrix, source: &Source, transposed: bool| match source.offset {
            Some(offset) => Matrix { transposed, ..in_workspace(given, offset, &source.tensor) },
            None => given.clone(),
        };
        let of_columns = |given: Scales| match &scales {
            Some(copy) => Scales {
                operands: [given.operands[0], Matrix::WORKSPACE],
                offsets: [0, copy.offset.unwrap_or(0)],
                ..given
            },
            None if given.form == ScaleForm::Blocks && start > 0 => {
                let scales = &spec.inputs[usize::from(given.operands[1])];
                Scales { offsets: [0, start / SPLIT * scales.strides[0] * scales.dtype.size()], ..given }
            }
            None => given,
        };
        let product = launch::Gemm {
            m: rows,
            n: columns - start,
            k: terms,
            a: matrix(&given.a, &factors[0], turned_a),
            b: matrix(&given.b, &factors[1], turned_b),
            c: result.map_or_else(|| given.c.clone(), |(offset, tensor)| in_workspace(&given.c, offset, &tensor)),
            accumulate: given.accumulate && result.is_none(),
            epilogue: given.epilogue.filter(|_| result.is_none()),
            scales: given.scales.map(of_columns),
            ..given.clone()
        };
        let is_needed = is_narrow && !has_narrow_form(given);
        if parts > 1 {
            let part = |matrix: &Matrix, step: u64| Matrix { batch: step, ..matrix.clone() };
            let [a, b] = [&product.a, &product.b].map(|matrix| part(matrix, terms / parts));
            let c = part(&product.c, rows * product.c.row);
            let product = launch::Gemm { k: terms / parts, batch: parts, a, b, c, scales: None, ..product };
            return Some(Aligned { factors, result, scales, product, last: None, parts, is_needed });
        }
        if start == 0 {
            return Some(Aligned { factors, result, scales, product, last: None, parts, is_needed });
        }
        let c = Matrix { offset: product.c.offset + start, ..product.c.clone() };
        let before = launch::Gemm { n: start, b: given.b.clone(), scales: given.scales, ..product.clone() };
        let last = Some(launch::Gemm { c, ..product });
        Some(Aligned { factors, result, scales, product: before, last, parts, is_needed })
    }

    /// Returns the products.
    fn products(&self) -> impl Iterator<Item = &launch::Gemm> {
        std::iter::once(&self.product).chain(&self.last)
    }

    /// Returns the factors and the scaling factors, copied or not.
    fn sources(&self) -> impl Iterator<Item = &Source> {
        self.factors.iter().chain(&self.scales)
    }

    /// Returns the estimated time in ns of the copies and the product, without a kernel for the epilogue that the given product needs, too.
    fn time(&self, has_kernel: bool) -> f64 {
        let of_factor = |source: &Source| source.copy_cost().map(|cost| (cost.read + cost.written).total());
        let of_result = self.result.filter(|_| !has_kernel).map(|(_, tensor)| 2 * tensor.bytes());
        let copies = self.sources().filter_map(of_factor).chain(of_result);
        self.products().map(product_time).sum::<f64>() + copies.map(|bytes| 1e9 * copy_time(bytes)).sum::<f64>()
    }

    /// Returns the cost of all launches. `flops` is the number of operations of the product without padding.
    pub fn cost(&self, spec: &Spec, flops: f64) -> Cost {
        let all: Cost = self.costs(spec).into_iter().sum();
        let (read, written) = (Spec::bytes_of(&spec.inputs), Spec::bytes_of(&spec.outputs));
        let scratch = (all.read + all.written).total().saturating_sub((read + written).total());
        let padding = self.products().map(|product| product_cost(product).flops).sum::<f64>() - flops;
        Cost { flops: all.flops - padding, read, written, scratch: Traffic::of(Space::Device, scratch), ..all }
    }

    /// Describes the launches.
    pub fn implementation(&self) -> &'static str {
        match (self.result.is_some(), self.factors.iter().any(|factor| factor.offset.is_some())) {
            (_, true) if self.parts > 1 => {
                "kernels first copy factors to the form in which libraries multiply 8-bit matrices; the library multiplies parts of the \
                 depth as a batch, and a last kernel adds up their sums and scales them"
            }
            (_, false) if self.parts > 1 => {
                "the library multiplies parts of the depth as a batch, and a last kernel adds up their sums and scales them"
            }
            (true, true) if is_narrow(&self.product) => {
                "kernels first copy factors to the form in which libraries multiply 8-bit matrices, and a last kernel writes the result"
            }
            (false, _) if is_narrow(&self.product) => {
                "kernels first copy factors to the form in which libraries multiply 8-bit matrices"
            }
            (true, true) => {
                "kernels first copy factors to aligned rows, and a last kernel writes the result of their product to its unaligned rows"
            }
            (true, false) => "a generated kernel writes the result of the library's product to its unaligned rows",
            (false, _) => "kernels first copy factors whose rows are not aligned to 16 bytes",
        }
    }

    /// Returns the cost of each launch.
    pub fn costs(&self, spec: &Spec) -> Vec<Cost> {
        let output = &spec.outputs[0];
        let finish = Finish::of(spec);
        let expression = finish.expression();
        let last = (self.result.is_some() || self.product.epilogue.is_none() && finish.has_epilogue()).then(|| {
            let sums = self.result.map_or(output.bytes(), |(_, tensor)| tensor.bytes());
            // Rows that are no whole packs take instructions for each element.
            let work = self.result.filter(|_| self.parts == 1).map(|(offset, tensor)| {
                let sums = Tensor { dims: output.dims, ..tensor };
                finish.work_of_workspace(spec, Walked::in_workspace(offset, &sums, sums.strides))
            });
            let work = work.unwrap_or_default();
            Cost {
                instructions: f64::from(expression.instructions()) * output.elements() as f64 + work.instructions,
                sectors: work.sectors,
                special: f64::from(expression.special()) * output.elements() as f64,
                flops: f64::from(expression.flops()) * output.elements() as f64,
                read: Traffic::of(Space::Device, sums) + Spec::bytes_of(&spec.inputs[2..]),
                written: Spec::bytes_of(&spec.outputs),
                ..spec.streaming_cost(0.0, 1024)
            }
        });
        self.sources().filter_map(Source::copy_cost).chain(self.products().map(product_cost)).chain(last).collect()
    }

    /// Returns the launches: copies, the product, and the kernel that writes the output or computes the epilogue.
    pub fn launches(&self, spec: &Spec) -> Vec<Launch> {
        let (finish, output) = (Finish::of(spec), &spec.outputs[0]);
        let mut launches: Vec<Launch> = self.sources().filter_map(Source::copy).collect();
        let kernel = match self.result {
            Some((offset, tensor)) if self.parts > 1 => {
                let strides = tensor.strides.part(1..);
                let sums = Tensor { dims: output.dims, strides, ..tensor };
                let step = tensor.strides[0] * tensor.dtype.size();
                let parts = (0..self.parts).map(|part| Walked::in_workspace(offset + part * step, &sums, strides));
                finish.kernel_of_parts(spec, parts.collect())
            }
            Some((offset, tensor)) => {
                let sums = Tensor { dims: output.dims, ..tensor };
                finish.kernel_of_workspace(spec, Walked::in_workspace(offset, &sums, sums.strides))
            }
            None => finish.kernel(spec),
        };
        let (beside, after) = if self.product.epilogue.is_some() { (kernel, None) } else { (None, kernel) };
        launches.push(Launch::Gemm(self.product.clone(), beside));
        launches.extend(self.last.iter().map(|last| Launch::Gemm(last.clone(), None)));
        launches.extend(after.map(Launch::Kernel));
        launches
    }
}

/// True if matrix units multiply factors of 16 bits or more, so that their rows decide how fast a library is.
fn is_matrix_units(arithmetic: Arithmetic) -> bool {
    matches!(arithmetic, Arithmetic::F16 | Arithmetic::BF16 | Arithmetic::Tf32)
}

/// True if the factors have 8 bits.
fn is_narrow(gemm: &launch::Gemm) -> bool {
    gemm.a.dtype.size() == 1
}

/// True if 8-bit factors have the form that libraries multiply: whole packs along the depth, and results in whole packs.
fn has_narrow_form(gemm: &launch::Gemm) -> bool {
    !gemm.a.transposed && gemm.b.transposed && pack_of(gemm).is_none()
}

/// Returns the product that computes a result of one contiguous column as a row, since libraries access rows in packs; `None` for
/// another product, or if this would not save time. The bias of a column is not one of a row, and needs a kernel.
pub fn as_row(given: &launch::Gemm) -> Option<launch::Gemm> {
    if given.n != 1 || given.m == 1 || given.c.row != 1 || given.scales.is_some() {
        return None;
    }
    let turned = |matrix: &Matrix| Matrix { transposed: !matrix.transposed, ..matrix.clone() };
    let row = launch::Gemm {
        m: 1,
        n: given.m,
        a: turned(&given.b),
        b: turned(&given.a),
        c: Matrix { row: given.m, ..given.c.clone() },
        epilogue: given.epilogue.filter(|epilogue| epilogue.bias.is_none()),
        ..given.clone()
    };
    if is_narrow(given) && !has_narrow_form(&row) {
        return None;
    }
    let kernel = if row.epilogue == given.epilogue { 0.0 } else { 1e9 * copy_time(0) };
    (product_time(&row) + kernel <= product_time(given)).then_some(row)
}

/// Returns the matrix of a product that lies at this offset in bytes in the workspace, instead of the given one.
fn in_workspace(given: &Matrix, offset: u64, tensor: &Tensor) -> Matrix {
    let last = tensor.dims.len() - 1;
    Matrix {
        operand: Matrix::WORKSPACE,
        offset: offset / tensor.dtype.size(),
        dtype: tensor.dtype,
        row: tensor.strides[last - 1],
        batch: if given.batch == 0 { 0 } else { tensor.dims[last - 1] * tensor.strides[last - 1] },
        align: 16,
        ..given.clone()
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::tiling::pack_of;
    use super::super::{Gemm, products};
    use super::*;
    use crate::base::random;
    use crate::ops::{Arg, Attr, Operation};

    /// Returns the call of `gemm` with contiguous operands of a type.
    pub fn product_of(
        dtype: DType,
        lead: &[u64],
        [m, n, k]: [u64; 3],
        [turned_a, turned_b]: [bool; 2],
        accumulate: bool,
    ) -> Spec {
        let tensor = |[rows, columns]: [u64; 2], turned: bool| {
            let sides = if turned { [columns, rows] } else { [rows, columns] };
            Tensor::packed(dtype, &[lead, &sides].concat())
        };
        let options = [("transpose_a", turned_a), ("transpose_b", turned_b), ("accumulate", accumulate)];
        let attrs = Gemm::Plain.signature().attrs(&options.map(|(name, value)| (name, Attr::Bool(value))));
        let c = tensor([m, n], false);
        let mut inputs = vec![tensor([m, k], turned_a), tensor([k, n], turned_b)];
        inputs.extend(accumulate.then_some(c));
        Spec::new(&Gemm::Plain, attrs, inputs, vec![c])
    }

    fn call(lead: &[u64], sizes: [u64; 3], turned: [bool; 2], accumulate: bool) -> Spec {
        product_of(DType::BF16, lead, sizes, turned, accumulate)
    }

    fn aligned(spec: &Spec) -> Option<Aligned> {
        Aligned::of(spec, &products(spec))
    }

    #[test]
    fn large_products_multiply_copies() {
        let copied = |spec: &Spec| {
            let found = aligned(spec).expect("copies save time");
            (found.factors.each_ref().map(|source| source.offset.is_some()), found.result.is_some())
        };
        assert_eq!(copied(&call(&[], [2048, 1083, 15044], [false, true], false)), ([true, true], true));
        assert_eq!(copied(&call(&[], [9229, 183, 16384], [false, false], false)), ([false, true], true));
        assert_eq!(copied(&call(&[], [2048, 1024, 4097], [false, false], false)), ([true, true], false));
        assert_eq!(copied(&call(&[4], [2049, 1024, 4096], [true, false], true)), ([true, false], true));
        for small in [[64, 65, 64], [16, 4001, 4001], [4001, 1, 4001], [2048, 2048, 2048]] {
            assert!(aligned(&call(&[], small, [false, false], false)).is_none(), "{small:?}");
        }
    }

    /// Every product of 8-bit matrices without gaps between batches has the form that libraries multiply, by copies where it is needed.
    #[test]
    fn narrow_matrices_are_multiplied_in_the_form_of_the_library() {
        for case in 0..500 {
            let draw = |place: u64, limit: u64| random::hash(case, place) % limit;
            let (narrow, output) = [(DType::E4M3, DType::BF16), (DType::I8, DType::I32)][draw(0, 2) as usize];
            let sizes =
                [1, 2, 3].map(|place| (1 + draw(place, 300)).next_multiple_of([1, 1, 16][draw(place + 3, 3) as usize]));
            let given = call(&[2][..draw(7, 2) as usize], sizes, [8, 9].map(|place| draw(place, 2) == 1), false);
            let of = |tensor: &Tensor, dtype: DType| Tensor { dtype, ..*tensor };
            let inputs = given.inputs.iter().map(|tensor| of(tensor, narrow)).collect();
            let spec = Spec::new(&Gemm::Plain, given.attrs.clone(), inputs, vec![of(&given.outputs[0], output)]);
            let given = products(&spec);
            let copied = aligned(&spec);
            assert!(copied.is_some() || has_narrow_form(&given[0]), "{spec:?}");
            assert!(copied.is_none_or(|aligned| aligned.products().all(has_narrow_form)), "{spec:?}");
        }
    }

    /// Returns the call of `scaled_gemm` with `count` scaling factors of each matrix.
    fn scaled_call(sizes: [u64; 3], turned: [bool; 2], counts: [u64; 2]) -> Spec {
        let given = call(&[], sizes, turned, false);
        let narrow = given.inputs.iter().map(|tensor| Tensor { dtype: DType::E4M3, ..*tensor });
        let scales = counts.map(|count| Tensor::packed(DType::F32, &[count]));
        Spec::new(&Gemm::Scaled, given.attrs.clone(), narrow.chain(scales).collect(), given.outputs.clone())
    }

    /// The depth of a product of few tiles is divided if the library would give each tile to one block.
    #[test]
    fn deep_products_with_factors_of_rows_are_divided() {
        for (sizes, turned) in
            [([8, 493, 16384], [true, true]), ([64, 512, 16384], [false, true]), ([100, 1000, 9001], [true, false])]
        {
            let [m, n, k] = sizes;
            let spec = scaled_call(sizes, turned, [m, n]);
            let found = aligned(&spec).expect("parts save time");
            let product = &found.product;
            assert!(found.parts > 1 && product.scales.is_none() && has_narrow_form(product), "{product:?}");
            assert_eq!((product.batch, product.a.batch, product.b.batch), (found.parts, product.k, product.k));
            assert!((k..k + 16 * found.parts).contains(&(product.batch * product.k)), "{product:?}");
            let (offset, sums) = found.result.expect("sums lie in the workspace");
            assert_eq!((sums.dtype, product.c.dtype, product.c.batch), (DType::F32, DType::F32, sums.strides[0]));
            assert!(found.factors.iter().all(|factor| factor.end() <= offset));
            let launches = found.launches(&spec);
            assert_eq!(launches.len(), found.costs(&spec).len());
            let [kernel] = launches[launches.len() - 1].kernels() else { panic!("a kernel adds up the sums") };
            assert!([2, 3, 4].into_iter().all(|operand| kernel.args.contains(&Arg::Operand(operand))));
        }
        for (sizes, counts) in
            [([64, 512, 16384], [1, 1]), ([64, 512, 1024], [64, 512]), ([8192, 8192, 4096], [8192, 8192])]
        {
            assert!(aligned(&scaled_call(sizes, [false, true], counts)).is_none(), "{sizes:?}");
        }
    }

    #[test]
    fn a_column_is_computed_as_a_row() {
        let product = |sizes: [u64; 3], turned: [bool; 2]| products(&call(&[], sizes, turned, false)).remove(0);
        let of = |gemm: &launch::Gemm| (gemm.m, gemm.n, gemm.a.operand, gemm.b.operand, pack_of(gemm));
        for turned_b in [false, true] {
            assert_eq!(of(&product([992, 1, 8632], [true, turned_b])), (1, 992, 1, 0, None), "turned: {turned_b}");
        }
        assert_eq!(of(&product([992, 2, 8632], [true, true])), (992, 2, 0, 1, Some(2)));
        assert_eq!(of(&product([1, 992, 8632], [true, false])), (1, 992, 0, 1, None));
    }

    /// The product of copies has aligned rows of whole packs, and its matrices follow each other in the workspace.
    #[test]
    fn copies_are_aligned_and_disjoint() {
        for case in 0..1000 {
            let (case, splits) = (case / 2, case % 2 == 1);
            let draw = |place: u64, limit: u64| random::hash(case, place) % limit;
            let sizes = [0, 1, 2].map(|place| 2 + draw(place, 3000));
            let lead = &[2, 3][..draw(3, 3) as usize];
            let (turned, accumulate) = ([4, 5].map(|place| draw(place, 2) == 1), draw(6, 2) == 1);
            let spec = call(lead, sizes, turned, accumulate);
            let Some(found) = Aligned::with_copies(&spec, &products(&spec)[0], splits, 1) else {
                assert!(splits || pack_of(&products(&spec)[0]).is_none(), "{spec:?}");
                continue;
            };
            assert!(found.products().all(|product| pack_of(product).is_none()), "{spec:?}");
            let given = [found.product.m, found.products().map(|product| product.n).sum(), found.product.k];
            let pack = pack(DType::BF16);
            assert!(given.iter().zip(sizes).all(|(&padded, size)| (size..size + pack).contains(&padded)), "{spec:?}");
            let ends = found.factors.iter().filter_map(|source| Some((source.offset?, source.end())));
            let result = found.result.map(|(offset, tensor)| (offset, offset + tensor.bytes()));
            let regions: Vec<(u64, u64)> = ends.chain(result).collect();
            assert!(regions.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{regions:?} of {spec:?}");
            let launches = found.launches(&spec);
            assert_eq!(launches.len(), found.costs(&spec).len(), "{spec:?}");
            // The last kernel reads the previous contents of the output as its own operand, and no library adds them.
            let reads = |launch: &Launch, operand: u8| {
                launch.kernels().iter().any(|kernel| kernel.args.contains(&Arg::Operand(operand)))
            };
            assert_eq!(reads(&launches[launches.len() - 1], 2), found.result.is_some(), "{spec:?}");
            assert_eq!(found.product.accumulate, accumulate && found.result.is_none(), "{spec:?}");
        }
    }
}
