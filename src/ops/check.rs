//! Verification of single operations: compares a device's outputs with the reference, which is computed from the
//! device's own inputs. Errors of earlier operations therefore do not accumulate, and a rounding bound is known for
//! each element.

use crate::base::{DType, parallel};

use super::{RankMember, Spec, Tensor, contiguous_runs, joint_operation};

/// Maximum difference between a correct implementation and the reference, before both are rounded to the output's
/// type.
#[derive(Clone, Debug, PartialEq)]
pub enum Tolerance {
    /// No difference: no intermediate result is rounded.
    Exact,
    /// Absolute bound for each element. Infinite if rounding determines the value, as in a selection among nearly
    /// equal elements; such an element is not verified.
    Within(Vec<f64>),
}

/// A tensor and its bytes in memory.
#[derive(Clone, Copy, Debug)]
pub struct TensorBytes<'a> {
    pub tensor: Tensor,
    /// Bytes from the start of the first element to the end of the last.
    pub bytes: &'a [u8],
}

/// Returns the contents of the outputs before the operation ran.
pub type PriorOutputs<'a> = &'a dyn Fn() -> Vec<Vec<f64>>;

/// Method of comparison of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// Compares each element with the reference.
    Elements,
    /// Compares a matrix product with its factors by multiplying both by random vectors (Freivalds), and compares a
    /// sample of elements.
    Vectors,
}

/// Result of comparing one output.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    pub method: Method,
    pub elements: u64,
    /// Number of elements that differ from the reference but are not verified, because rounding determines their
    /// value.
    pub undecided: u64,
    pub worst: Worst,
}

/// The largest error of an output.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Worst {
    /// Error as a multiple of the tolerance. More than 1 means that the result is wrong.
    pub error: f64,
    /// Index of the element, in row-major order.
    pub index: u64,
    pub actual: f64,
    pub expected: f64,
    /// Tolerance: largest permitted difference between the actual and the expected value.
    pub allowed: f64,
}

impl Check {
    /// True if no element differs by more than its tolerance.
    pub fn held(&self) -> bool {
        self.worst.error <= 1.0
    }

    /// The result of comparing no elements.
    pub fn none() -> Check {
        Check { method: Method::Elements, elements: 0, undecided: 0, worst: Worst::default() }
    }

    /// Merges the result for a piece. `whole` maps an index in the piece to an index in the whole tensor.
    pub fn add(&mut self, part: &Check, whole: impl Fn(u64) -> u64) {
        self.method = self.method.max(part.method);
        self.elements += part.elements;
        self.undecided += part.undecided;
        self.worst = self.worst.larger(Worst { index: whole(part.worst.index), ..part.worst });
    }
}

impl Worst {
    /// Returns the larger error of the two.
    pub fn larger(self, other: Worst) -> Worst {
        if other.error > self.error { other } else { self }
    }
}

/// Elements of the largest operand in one unit of work; as `f64` values they fit a core's cache.
const PIECE: u64 = 1 << 13;

/// Division of operands into pieces that can be compared independently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pieces {
    /// Divides the first dimension. Row i of the outputs depends on row i of each input marked `true`, and on the
    /// whole of all other inputs. The operation writes every element of its outputs.
    Rows(Vec<bool>),
    /// Divides contiguous operands that are sequences of blocks with this many elements. Element i of an output block
    /// depends on element i of each input's blocks.
    Blocks(u64),
}

/// A piece of an operation's operands.
#[derive(Clone, Copy, Debug)]
enum OperandPiece {
    Whole,
    /// First row and number of rows.
    Rows(u64, u64),
    /// A range of each block: length of a block, first element, number of elements.
    Blocks(u64, u64, u64),
}

impl Pieces {
    /// Returns the pieces. `elements` is the size of the largest operand; `rows` is the first dimension of the
    /// outputs.
    fn cut(&self, elements: u64, rows: u64) -> Vec<OperandPiece> {
        let (total, least) = match *self {
            Pieces::Rows(_) => (rows, 1),
            // Shorter contiguous ranges are slow to read.
            Pieces::Blocks(length) => (length, 64),
        };
        let count = elements.div_ceil(PIECE).min(total / least);
        if count <= 1 {
            return vec![OperandPiece::Whole];
        }
        let piece = |number: u64| {
            let first = total * number / count;
            let length = total * (number + 1) / count - first;
            match *self {
                Pieces::Rows(_) => OperandPiece::Rows(first, length),
                Pieces::Blocks(block) => OperandPiece::Blocks(block, first, length),
            }
        };
        (0..count).map(piece).collect()
    }

    /// True if an input is divided; otherwise each piece needs the whole input.
    fn cuts(&self, input: usize) -> bool {
        match self {
            Pieces::Rows(cut) => cut[input],
            Pieces::Blocks(_) => true,
        }
    }
}

impl OperandPiece {
    /// Returns this piece of an operand.
    fn of<'a>(self, operand: &TensorBytes<'a>) -> TensorBytes<'a> {
        let TensorBytes { mut tensor, bytes } = *operand;
        let start = match self {
            OperandPiece::Whole => 0,
            OperandPiece::Rows(first, count) => {
                tensor.dims.set(0, count);
                first * tensor.strides[0]
            }
            OperandPiece::Blocks(block, first, count) => {
                let dims = [tensor.elements() / block, count];
                (tensor.dims, tensor.strides) = (dims.into(), [block, 1].into());
                first
            }
        };
        TensorBytes { tensor, bytes: &bytes[(start * tensor.dtype.size()) as usize..] }
    }

    /// Number of elements of the tensor in this piece.
    fn elements(self, tensor: &Tensor) -> u64 {
        match self {
            OperandPiece::Whole => tensor.elements(),
            OperandPiece::Rows(_, count) => tensor.elements() / tensor.dims[0].max(1) * count,
            OperandPiece::Blocks(block, _, count) => tensor.elements() / block * count,
        }
    }

    /// Maps an index in the piece to an index in the whole tensor.
    fn whole(self, tensor: &Tensor, index: u64) -> u64 {
        match self {
            OperandPiece::Whole => index,
            OperandPiece::Rows(first, _) => first * (tensor.elements() / tensor.dims[0].max(1)) + index,
            OperandPiece::Blocks(block, first, count) => index / count * block + first + index % count,
        }
    }
}

/// Buffers for values, reused between comparisons.
#[derive(Debug, Default)]
pub struct ValueBuffers(Vec<Vec<f64>>);

impl ValueBuffers {
    fn values(&mut self, operands: &[TensorBytes]) -> Vec<Vec<f64>> {
        let one = |operand: &TensorBytes| {
            let mut values = self.take(operand.tensor.elements() as usize);
            operand.load(&mut values);
            values
        };
        operands.iter().map(one).collect()
    }

    /// Returns the smallest buffer that is large enough; grows the largest if none is.
    fn take(&mut self, length: usize) -> Vec<f64> {
        let capacities = || self.0.iter().map(Vec::capacity).enumerate();
        let fits = capacities().filter(|(_, capacity)| *capacity >= length).min_by_key(|(_, capacity)| *capacity);
        let largest = capacities().max_by_key(|(_, capacity)| *capacity);
        match (fits, largest) {
            (Some((index, _)), _) => self.0.swap_remove(index),
            (None, Some((index, _))) => {
                self.0.swap_remove(index);
                vec![0.0; length]
            }
            (None, None) => vec![0.0; length],
        }
    }

    fn keep(&mut self, values: Vec<Vec<f64>>) {
        self.0.extend(values);
    }
}

impl TensorBytes<'_> {
    /// Returns the values as a contiguous array, in row-major order.
    pub fn values(&self) -> Vec<f64> {
        let mut values = Vec::new();
        self.load(&mut values);
        values
    }

    fn load(&self, values: &mut Vec<f64>) {
        values.resize(self.tensor.elements() as usize, 0.0);
        let (dtype, size) = (self.tensor.dtype, self.tensor.dtype.size() as usize);
        let (length, starts) = contiguous_runs(&self.tensor);
        let bytes = |start: u64, length: usize| &self.bytes[start as usize * size..][..length * size];
        if length > PIECE {
            for (start, run) in starts.zip(values.chunks_mut(length as usize)) {
                let pieces = (start..).step_by(PIECE as usize).zip(run.chunks_mut(PIECE as usize)).collect();
                parallel::each(pieces, |(start, piece): (u64, &mut [f64])| {
                    dtype.load_all(bytes(start, piece.len()), piece);
                });
            }
        } else {
            for (start, run) in starts.zip(values.chunks_mut(length.max(1) as usize)) {
                dtype.load_all(bytes(start, run.len()), run);
            }
        }
    }
}

/// Compares a device's outputs with the reference. `before` returns the contents of the outputs before the operation,
/// of which it may leave a part unchanged.
pub fn check(
    spec: &Spec,
    inputs: &[TensorBytes],
    before: &[TensorBytes],
    actual: &[TensorBytes],
    room: &mut ValueBuffers,
) -> Vec<Check> {
    let rows = actual.first().and_then(|output| output.tensor.dims.first().copied()).unwrap_or(1);
    let elements = actual.iter().chain(inputs).map(|operand| operand.tensor.elements()).max().unwrap_or(0);
    let pieces = spec.operation.pieces(spec);
    let cut = pieces.as_ref().map_or(vec![OperandPiece::Whole], |pieces| pieces.cut(elements, rows));
    let values = |operands: &[TensorBytes]| operands.iter().map(TensorBytes::values).collect::<Vec<_>>();
    let (Some(pieces), [_, _, ..]) = (pieces, &*cut) else {
        let (own, actual) = (room.values(inputs), room.values(actual));
        let inputs: Vec<&[f64]> = own.iter().map(Vec::as_slice).collect();
        let checks = spec.operation.check(spec, &inputs, &|| values(before), &actual);
        room.keep(own);
        room.keep(actual);
        return checks;
    };
    let repeated = |(index, input): (usize, &TensorBytes)| if pieces.cuts(index) { Vec::new() } else { input.values() };
    let repeated: Vec<Vec<f64>> = inputs.iter().enumerate().map(repeated).collect();
    let found = parallel::map(cut.len(), |number| {
        let piece = cut[number];
        let part = |(index, input)| if pieces.cuts(index) { piece.of(input) } else { *input };
        let inputs: Vec<TensorBytes> = inputs.iter().enumerate().map(part).collect();
        let own: Vec<Vec<f64>> = inputs
            .iter()
            .zip(&repeated)
            .map(|(input, repeated)| match repeated.is_empty() {
                true => input.values(),
                false => Vec::new(),
            })
            .collect();
        let inputs_of =
            own.iter().zip(&repeated).map(|(own, repeated)| if repeated.is_empty() { own } else { repeated });
        let values_of: Vec<&[f64]> = inputs_of.map(Vec::as_slice).collect();
        let actual: Vec<TensorBytes> = actual.iter().map(|output| piece.of(output)).collect();
        let tensors = |operands: &[TensorBytes]| operands.iter().map(|operand| operand.tensor).collect();
        let spec = Spec { inputs: tensors(&inputs), outputs: tensors(&actual), ..spec.clone() };
        let before = || before.iter().map(|output| piece.of(output).values()).collect();
        spec.operation.check(&spec, &values_of, &before, &values(&actual))
    });
    let mut all: Vec<Check> = actual.iter().map(|_| Check::none()).collect();
    for (piece, found) in cut.iter().zip(&found) {
        for ((all, found), output) in all.iter_mut().zip(found).zip(actual) {
            all.add(found, |index| piece.whole(&output.tensor, index));
        }
    }
    all
}

/// A rank's operands in an operation of several ranks.
#[derive(Clone, Debug)]
pub struct RankOperands<'a> {
    pub spec: &'a Spec,
    pub inputs: Vec<TensorBytes<'a>>,
    /// The outputs before and after the operation; `None` for a rank that another process compares.
    pub outputs: Option<(Vec<TensorBytes<'a>>, Vec<TensorBytes<'a>>)>,
}

/// Compares the outputs of an operation of several ranks, as [`check()`] does, in group order. Returns the results of
/// the ranks that this process compares.
pub fn check_exchange(shares: &[RankOperands]) -> Vec<Vec<Check>> {
    let Some(first) = shares.first() else { return Vec::new() };
    let pieces = first.spec.operation.pieces(first.spec);
    let alike = |share: &RankOperands| share.spec.operation.pieces(share.spec) == pieces;
    let blocks = pieces.as_ref().filter(|pieces| matches!(pieces, Pieces::Blocks(_)) && shares.iter().all(alike));
    let elements = first.spec.inputs.iter().chain(&first.spec.outputs).map(Tensor::elements).max().unwrap_or(0);
    let cut = blocks.map_or(vec![OperandPiece::Whole], |blocks| blocks.cut(elements, 1));
    let pieces = parallel::map(cut.len(), |number| {
        let piece = cut[number];
        let all = |operands: &[TensorBytes]| operands.iter().map(|one| piece.of(one).values()).collect::<Vec<_>>();
        let inputs: Vec<Vec<Vec<f64>>> = shares.iter().map(|share| all(&share.inputs)).collect();
        let unknown = |output: &Tensor| vec![0.0; piece.elements(output) as usize];
        let held = |share: &RankOperands| match &share.outputs {
            Some((before, _)) => all(before),
            None => share.spec.outputs.iter().map(unknown).collect(),
        };
        let mut outputs: Vec<Vec<Vec<f64>>> = shares.iter().map(held).collect();
        let members = shares.iter().zip(&inputs).zip(&mut outputs);
        let mut members: Vec<RankMember> =
            members.map(|((share, inputs), outputs)| RankMember { spec: share.spec, inputs, outputs }).collect();
        let tolerances = joint_operation(&members).enclose_exchange(&mut members);
        let results = shares.iter().zip(&outputs).zip(&tolerances);
        let found = results.filter_map(|((share, expected), tolerances)| {
            let (_, actual) = share.outputs.as_ref()?;
            Some(compare_all(share.spec, &all(actual), expected, tolerances))
        });
        found.collect::<Vec<_>>()
    });
    let compared: Vec<&RankOperands> = shares.iter().filter(|share| share.outputs.is_some()).collect();
    let none = |share: &&RankOperands| share.spec.outputs.iter().map(|_| Check::none()).collect();
    let mut whole: Vec<Vec<Check>> = compared.iter().map(none).collect();
    for (piece, found) in cut.iter().zip(pieces) {
        for ((all, found), share) in whole.iter_mut().zip(&found).zip(&compared) {
            for ((all, found), output) in all.iter_mut().zip(found).zip(&share.spec.outputs) {
                all.add(found, |index| piece.whole(output, index));
            }
        }
    }
    whole
}

/// Returns pieces for an elementwise operation whose operands all have the same shape, otherwise `None`.
pub fn same_elements(spec: &Spec) -> Option<Pieces> {
    let dims = spec.outputs.first()?.dims;
    let operands = || spec.inputs.iter().chain(&spec.outputs);
    if !operands().all(|tensor| tensor.dims == dims) {
        return None;
    }
    match operands().all(Tensor::contiguous) {
        true => Some(Pieces::Blocks(spec.outputs[0].elements())),
        false => same_rows(spec),
    }
}

/// Returns pieces for a row-wise operation whose operands all have the same shape, otherwise `None`.
pub fn same_rows(spec: &Spec) -> Option<Pieces> {
    let dims = spec.outputs.first()?.dims;
    let same = !dims.is_empty() && spec.inputs.iter().chain(&spec.outputs).all(|tensor| tensor.dims == dims);
    same.then(|| Pieces::Rows(vec![true; spec.inputs.len()]))
}

/// Returns pieces for an operation on the elements of the output: inputs with the output's rows are divided, broadcast
/// inputs are not. `None` if the output has no dimensions or a single row.
pub fn broadcast_rows(spec: &Spec) -> Option<Pieces> {
    let dims = spec.outputs.first()?.dims;
    let &rows = dims.first()?;
    let along = |input: &Tensor| input.dims.len() == dims.len() && input.dims[0] == rows;
    // A single row, which is broadcast, cannot be distinguished from a divided one.
    (rows > 1).then(|| Pieces::Rows(spec.inputs.iter().map(along).collect()))
}

/// Compares each element with the reference.
pub fn compare(dtype: DType, actual: &[f64], expected: &[f64], tolerance: &Tolerance) -> Check {
    let mut check = Check { elements: actual.len() as u64, ..Check::none() };
    for (index, (&actual, &expected)) in actual.iter().zip(expected).enumerate() {
        let allowed = || match tolerance {
            Tolerance::Exact => 0.0,
            Tolerance::Within(radii) => radii[index],
        };
        check.compare(dtype, index as u64, actual, expected, allowed);
    }
    check
}

impl Check {
    /// Compares one element with the reference. `allowed` is evaluated only if the two differ.
    #[inline]
    pub fn compare(&mut self, dtype: DType, index: u64, actual: f64, expected: f64, allowed: impl FnOnce() -> f64) {
        let rounded = dtype.round(expected);
        if actual == rounded || (actual.is_nan() && rounded.is_nan()) {
            return;
        }
        let allowed = allowed();
        if allowed.is_infinite() {
            self.undecided += 1;
            return;
        }
        // Rounding is monotonic, so that the device's value must lie between the rounded bounds.
        let held = dtype.round(expected - allowed) <= actual && actual <= dtype.round(expected + allowed);
        // Error due to rounding the stored value.
        let size = actual.abs().max(expected.abs()).max(dtype.smallest());
        let stored = if dtype.is_float() { dtype.epsilon() * size } else { 1.0 };
        let share = ((actual - expected).abs() - stored).max(0.0) / allowed;
        let error = match held {
            true => share.min(1.0),
            // A number instead of NaN, or any difference where none is permitted, exceeds every bound.
            false if share.is_nan() || allowed == 0.0 => f64::INFINITY,
            false => share.max(1.0 + f64::EPSILON),
        };
        self.worst = self.worst.larger(Worst { error, index, actual, expected: rounded, allowed: allowed + stored });
    }
}

/// Compares all outputs with the reference.
pub fn compare_all(spec: &Spec, actual: &[Vec<f64>], expected: &[Vec<f64>], tolerances: &[Tolerance]) -> Vec<Check> {
    let pairs = spec.outputs.iter().zip(actual).zip(expected).zip(tolerances);
    pairs.map(|(((tensor, actual), expected), tolerance)| compare(tensor.dtype, actual, expected, tolerance)).collect()
}

/// Returns the absolute error bound of a sum of positive terms in this type, for any order of summation. Rounding
/// errors behave like steps of a random walk. However, if terms are nearly equal, the errors of a sequential sum can
/// all have the same sign; and errors are larger if the largest terms come first.
pub fn sum_error(dtype: DType, terms: &[f64]) -> f64 {
    // Compensated sum, with twice the precision.
    let (mut sum, mut lost) = (0.0f64, 0.0f64);
    for &term in terms {
        let next = sum + term;
        let kept = next - sum;
        lost += (sum - (next - kept)) + (term - kept);
        sum = next;
    }
    let add = |sum: f64, term: &f64| dtype.round(sum + dtype.round(*term));
    let plain = [terms.iter().fold(0.0, add), terms.iter().rev().fold(0.0, add)];
    let off = plain.map(|plain| (plain - sum - lost).abs());
    let count = terms.len() as f64;
    let steps = (4.0 * count.sqrt() + 8.0).min(count);
    2.0 * off[0].max(off[1]) + steps * dtype.epsilon() * sum
}

/// Returns exact tolerances, for operations without rounding.
pub fn exactly(outputs: &[Vec<f64>]) -> Vec<Tolerance> {
    outputs.iter().map(|_| Tolerance::Exact).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Attrs, expression::Expression, find};
    use super::*;

    fn tensor(dtype: DType, dims: &[u64]) -> Tensor {
        Tensor::packed(dtype, dims)
    }

    fn bytes(dtype: DType, values: impl IntoIterator<Item = f64>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for value in values {
            let mut element = [0; 8];
            dtype.store(value, &mut element);
            bytes.extend(&element[..dtype.size() as usize]);
        }
        bytes
    }

    #[test]
    fn exact_results_must_be_equal() {
        let check = |actual: f64| compare(DType::F16, &[actual], &[0.1], &Tolerance::Exact);
        let stored = DType::F16.round(0.1);
        assert!(check(stored).held());
        assert_eq!(check(stored + 2f64.powi(-14)).worst.error, f64::INFINITY);
        assert!(compare(DType::F32, &[f64::NAN], &[f64::NAN], &Tolerance::Exact).held());
        assert!(!compare(DType::F32, &[f64::NAN], &[1.0], &Tolerance::Exact).held());
        assert!(compare(DType::U8, &[255.0], &[300.0], &Tolerance::Exact).held(), "integers saturate");
    }

    #[test]
    fn a_tolerance_is_that_of_the_value_before_it_is_stored() {
        let check =
            |dtype, actual: f64, within: f64| compare(dtype, &[actual], &[1.0], &Tolerance::Within(vec![within]));
        // The next number of the type is farther away than a rounding error of twice the unit roundoff.
        let next = 1.0 + 2.0 * DType::BF16.epsilon();
        assert!(!check(DType::BF16, next, 1e-6).held());
        assert!(check(DType::BF16, next, 0.01).held());
        assert!(check(DType::I32, 0.0, 1e-9).held(), "the fraction is cut off");
        assert!(!check(DType::I32, 2.0, 1e-9).held());
        let unknown = check(DType::F32, f64::NAN, f64::INFINITY);
        assert_eq!((unknown.held(), unknown.undecided), (true, 1));
        // The error is reported as a fraction of the tolerance.
        let error = check(DType::F64, 1.5, 1.0).worst.error;
        assert!((error - 0.5).abs() < 1e-9, "{error}");
    }

    /// Comparing in pieces and comparing as a whole report a difference at the same index.
    #[test]
    fn pieces_are_joined() {
        let (rows, columns) = (3 * PIECE / 1000, 1000);
        let dims = [rows, columns];
        let whole = || vec![tensor(DType::F32, &dims)];
        let spec = Spec {
            expression: Some(Expression::identity().into()),
            ..Spec::new(find("map").unwrap(), Attrs::default(), whole(), whole())
        };
        let value = |index: u64| index as f64;
        let input = bytes(DType::F32, (0..rows * columns).map(value));
        let wrong = rows * columns - 7;
        let output =
            bytes(DType::F32, (0..rows * columns).map(|index| if index == wrong { -1.0 } else { value(index) }));
        let elements = |bytes| [TensorBytes { tensor: tensor(DType::F32, &dims), bytes }];
        let found =
            check(&spec, &elements(&input), &elements(&input), &elements(&output), &mut ValueBuffers::default());
        let Worst { index, actual, expected, .. } = found[0].worst;
        assert_eq!((found[0].elements, index), (rows * columns, wrong));
        assert_eq!((actual, expected), (-1.0, wrong as f64));
        let right = check(&spec, &elements(&input), &elements(&input), &elements(&input), &mut ValueBuffers::default());
        assert!(right[0].held());
    }

    #[test]
    fn gaps_are_left_out() {
        let mut tensor = tensor(DType::I32, &[2, 2]);
        tensor.strides = [3, 1].into();
        let bytes = bytes(DType::I32, [1.0, 2.0, -9.0, 3.0, 4.0]);
        let elements = TensorBytes { tensor, bytes: &bytes };
        assert_eq!(elements.values(), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(OperandPiece::Rows(1, 1).of(&elements).values(), [3.0, 4.0]);
    }

    #[test]
    fn tolerance_of_a_sum_follows_from_its_terms() {
        let sum_of = |term: fn(usize) -> f64| {
            let terms: Vec<f64> = (0..10_000).map(term).collect();
            let exact: f64 = terms.iter().sum();
            sum_error(DType::F32, &terms) / exact / DType::F32.epsilon()
        };
        let (mixed, alike) = (sum_of(|index| ((index * 7919) % 1000) as f64), sum_of(|_| 0.1));
        assert!(mixed < 2000.0, "{mixed}");
        // Adding the same number repeatedly rounds in the same direction.
        assert!(alike > 1000.0, "{alike}");
        // A sum with large leading terms has larger rounding errors, in any order of summation.
        let mut terms: Vec<f64> = (0..10_000).map(|index| if index == 9_999 { 1e6 } else { 0.1 }).collect();
        let last = sum_error(DType::F32, &terms);
        terms.reverse();
        assert!((sum_error(DType::F32, &terms) / last - 1.0).abs() < 1e-9);
    }
}
