//! The catalogue of operations: one entry, in one file, for each operation.
//!
//! An entry defines everything about its operation: its name, inputs, outputs and options ([`Signature`]), the shape rule
//! ([`Operation::infer`]), the cost model ([`Operation::cost`]), the reference implementation that every backend is
//! verified against ([`Operation::reference`]), and the kernels or library calls that implement it, as plain data
//! ([`Operation::launch`]). This module executes nothing and knows neither devices, files, nor names of a program.

mod attention;
mod attr;
mod axis;
pub mod backward;
mod ball;
mod catalogue;
mod check;
mod collectives;
mod compiled;
mod concat;
mod conv;
mod copies;
mod cost;
mod counted;
mod derivative;
mod dropout;
mod elementwise;
mod embedding;
mod error;
pub mod expression;
mod formula;
pub mod fused;
mod fused_attention;
mod host;
pub mod init;
mod interleave;
pub mod kernel;
mod launch;
mod layout;
mod live_rows;
mod losses;
mod matrix;
mod mma;
mod movement;
mod norms;
mod occupancy;
mod optimizers;
mod pad;
mod pages;
mod peers;
mod permute;
mod philox;
mod pool;
mod radix;
mod ragged;
mod read;
mod reductions;
mod rewritten;
mod rope;
mod routing;
mod row_chain;
mod rows;
mod scans;
mod scatter;
mod select;
mod signature;
mod softmax;
mod sort;
mod stream;
mod synthetic;
mod top_k;
mod transpose;
mod triad;
pub mod unit_report;
mod user_kernel;
mod walk;
mod warpgroups;
mod windows;
pub mod witness;
mod work;

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::base::equal_by::equal_by;
use crate::base::{DType, Dims, Nanos, Space, SrcSpan};

use backward::{Backward, NoRule};

pub use attr::{Attr, Attrs, ElementCounts, OptionSpec, OptionType, Preset};
pub use catalogue::{CATALOGUE, find};
pub use check::{
    Check, Method, Pieces, PriorOutputs, RankOperands, TensorBytes, Tolerance, ValueBuffers, Worst, check,
    check_exchange, compare,
};
pub use collectives::{Batch, BatchMember, BusBytes, Team, bus_bytes, has_unknown_size, moves_unknown_size, parts};
pub use compiled::Resources;
pub use copies::copied;
pub use cost::{Cost, KnownCost, Tiling, Traffic};
pub use error::OpError;
pub use expression::Expression;
pub use host::{host_operations, on_device};
pub use launch::*;
pub use layout::{broadcast_strides, collapse, reshaped, stretches};
pub use live_rows::{LiveOperation, LiveRows, RowFact};
pub use matrix::{MISSES, has_library_layout};
pub use occupancy::{SECTOR, share};
pub use peers::{Crossing, PeerCopy, crossing};
pub use read::{DataFile, FilePart, file_part};
pub use rewritten::{dims_order, exchanges_last, keeps_order};
pub use signature::{Category, Input, Property, Signature, usage};
pub use synthetic::held;
pub use user_kernel::{
    EntryParam, InputPart, KernelArgument, KernelCall, KernelCode, Reference, UserKernel, head, user_kernel,
};

/// The definition of one operation.
pub trait Operation: Sync {
    fn signature(&self) -> &'static Signature;

    fn name(&self) -> &'static str {
        self.signature().name
    }

    fn category(&self) -> Category {
        self.signature().category
    }

    fn properties(&self) -> &'static [Property] {
        &[]
    }

    fn has(&self, property: Property) -> bool {
        self.properties().contains(&property)
    }

    /// Returns the element type and shape of each output, in order, or the error in the operands. The default is for
    /// operations without outputs, and for those that the program makes of operations whose shapes are known.
    fn infer(&self, _call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        Ok(Vec::new())
    }

    /// Returns the cost of one execution, independent of the device.
    fn cost(&self, spec: &Spec) -> Cost;

    /// Returns the cost of each launch, whose sum is [`Operation::cost`]; empty if only the sum is known. The simulator then
    /// divides it evenly.
    fn launch_costs(&self, _spec: &Spec) -> Vec<Cost> {
        Vec::new()
    }

    /// Computes the result in double precision. `inputs` and `outputs` are contiguous, in the order of the spec. On entry,
    /// `outputs` holds the previous contents of their memory, which an operation may update. The default is for operations
    /// without outputs.
    fn reference(&self, _spec: &Spec, _inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        assert!(outputs.is_empty(), "an operation with outputs computes them");
    }

    /// Computes the result of a collective on every rank of the group, in group order; for a transfer, on both sides.
    /// Values are in double precision, as for [`Operation::reference`], which is the case of a group of one rank.
    fn exchange(&self, members: &mut [RankMember]) {
        for member in members {
            let inputs: Vec<&[f64]> = member.inputs.iter().map(Vec::as_slice).collect();
            self.reference(member.spec, &inputs, member.outputs);
        }
    }

    /// Computes the result as [`Operation::reference`] does, and returns the tolerance of each output: the largest error of
    /// a correct implementation. An operation whose intermediate results are rounded overrides this. The default tolerance
    /// is zero, so that an operation without an override fails verification on the first device that rounds.
    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        self.reference(spec, inputs, outputs);
        check::exactly(outputs)
    }

    /// Computes the result as [`Operation::exchange`] does, and returns the tolerance of each output of each member.
    fn enclose_exchange(&self, members: &mut [RankMember]) -> Vec<Vec<Tolerance>> {
        self.exchange(members);
        members.iter().map(|member| check::exactly(member.outputs)).collect()
    }

    /// Compares a device's outputs with the reference. `before` returns the contents of the outputs before the operation.
    fn check(&self, spec: &Spec, inputs: &[&[f64]], before: PriorOutputs, actual: &[Vec<f64>]) -> Vec<Check> {
        let mut expected = before();
        let tolerances = self.enclose(spec, inputs, &mut expected);
        check::compare_all(spec, actual, &expected, &tolerances)
    }

    /// Describes pieces of the result that verification can compare separately; `None` if it must compare the whole.
    fn pieces(&self, _spec: &Spec) -> Option<Pieces> {
        None
    }

    /// Returns the launches of one execution, in order.
    fn launch(&self, spec: &Spec) -> Vec<Launch>;

    /// Appends the operations that compute the gradients of its inputs from the gradients of its outputs. Returns the
    /// reason if the operation is not differentiable.
    fn backward(&self, _: &mut Backward) -> Result<(), NoRule> {
        Err("nothing that it computes has a derivative")
    }

    /// Number of outputs of a call with these options, `inputs` inputs and `given` named outputs. These are the first outputs
    /// of the signature.
    fn outputs(&self, _attrs: &Attrs, _inputs: usize, _given: usize) -> usize {
        self.signature().outputs.len()
    }

    /// Types of hidden inputs: memory that each call owns and the text does not name. They follow the other inputs.
    fn own_inputs(&self, _attrs: &Attrs) -> Vec<(DType, Dims)> {
        Vec::new()
    }

    /// Number of the first outputs whose gradients are used.
    fn outputs_with_gradients(&self, spec: &Spec) -> usize {
        spec.outputs.len()
    }

    /// Describes the implementation; `None` if it is unknown before a run, or obvious from the operation's name.
    fn carried_out(&self, _spec: &Spec) -> Option<&'static str> {
        None
    }

    /// The sizes of a matrix product: its batch, rows, columns and depth, and its arithmetic; `None` for other operations.
    fn product(&self, _: &Spec) -> Option<([u64; 4], Arithmetic)> {
        None
    }

    /// Returns the number of rows that the operation works on and those of its outputs that hold data, where the contents of a
    /// tensor determine them. `facts` are those about its inputs, in their order.
    fn live_rows(&self, spec: &Spec, facts: &[Option<RowFact>]) -> LiveOperation {
        let inputs = match self.category() {
            Category::Elementwise | Category::RowWise | Category::Copy => spec.inputs.len(),
            _ => 0,
        };
        LiveOperation::of_rows(spec, facts, inputs)
    }

    /// Whether the operation reads its outputs. They are then inputs as well, after the others.
    fn updates(&self, _attrs: &Attrs) -> bool {
        false
    }

    /// Returns the expression that computes each output element, with smaller inputs broadcast. Host streams evaluate it.
    /// `None` if the operation is not elementwise.
    fn elements(&self, _spec: &Spec) -> Option<Expression> {
        None
    }

    /// Type in which kernels compute: by default the widest that any operand needs.
    fn compute_type(&self, spec: &Spec) -> DType {
        elementwise::compute_type(spec)
    }
}

/// A tensor as an operation sees it: type, shape and strides of a slice, without its address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tensor {
    pub dtype: DType,
    pub dims: Dims,
    /// Stride of each dimension, in elements.
    pub strides: Dims,
    pub space: Space,
    /// Alignment of the first element in bytes, at most 16.
    pub align: u8,
}

impl Tensor {
    /// A contiguous tensor in the memory of the device, aligned to 16 bytes.
    pub fn packed(dtype: DType, sizes: &[u64]) -> Tensor {
        let dims = Dims::from_slice(sizes).expect("no more dimensions than a tensor has room for");
        Tensor { dtype, dims, strides: dims.contiguous_strides(), space: Space::Device, align: 16 }
    }

    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    pub fn bytes(&self) -> u64 {
        self.elements() * self.dtype.size()
    }

    /// Bytes from the start of the first element to the end of the last one, including gaps between rows.
    pub fn reach(&self) -> u64 {
        if self.elements() == 0 {
            return 0;
        }
        let last: u64 = self.dims.iter().zip(self.strides.iter()).map(|(&size, &stride)| (size - 1) * stride).sum();
        (last + 1) * self.dtype.size()
    }

    /// Whether the tensor is contiguous: no gaps, and the last dimension varies fastest.
    pub fn contiguous(&self) -> bool {
        layout::contiguous(self)
    }
}

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.dims.of(self.dtype))
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} strides {} {} align {}", self.strides, self.space.name(), self.align)
    }
}

/// A tensor with its source location.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    pub tensor: Tensor,
    pub span: SrcSpan,
}

/// A call of an operation during shape inference.
#[derive(Debug)]
pub struct Call<'a> {
    pub operation: &'static dyn Operation,
    pub span: SrcSpan,
    pub inputs: &'a [Operand],
    /// Entries of the outputs, [`Operation::outputs`] in all; `None` for an output without a name, which becomes scratch
    /// memory.
    pub outputs: &'a [Option<Operand>],
    pub attrs: &'a Attrs,
    pub expression: Option<&'a Expression>,
    /// The group that a collective runs over.
    pub team: Team,
}

/// An operation with all properties that determine its launches, except the addresses of its operands.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Spec {
    pub operation: &'static dyn Operation,
    pub attrs: Attrs,
    pub expression: Option<Arc<Expression>>,
    pub inputs: Vec<Tensor>,
    pub outputs: Vec<Tensor>,
    pub team: Team,
    /// Number of rows that the operation works on, if data determines it: choices of `permute`, rows or terms of the groups of
    /// `grouped_gemm`. `None` if the shapes determine it. Costs use it; kernels do not.
    pub live: Option<LiveRows>,
    /// Number of threads of the CPU that run the operation on a host stream; `None` on the device.
    pub threads: Option<NonZeroU32>,
    /// The cost of the operation; empty until `cost` is called for the first time.
    pub known_cost: KnownCost,
}

/// The operands of one rank in a collective, for [`Operation::exchange`].
#[derive(Debug)]
pub struct RankMember<'a> {
    pub spec: &'a Spec,
    pub inputs: &'a [Vec<f64>],
    pub outputs: &'a mut [Vec<f64>],
}

equal_by!(dyn Operation, |operation| operation.name());

impl fmt::Debug for dyn Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?} {:?} -> {:?}", self.operation.name(), self.attrs, self.inputs, self.outputs)
    }
}

impl Spec {
    /// An operation on the device, without an expression, outside of a group of ranks.
    pub fn new(operation: &'static dyn Operation, attrs: Attrs, inputs: Vec<Tensor>, outputs: Vec<Tensor>) -> Spec {
        Spec {
            operation,
            attrs,
            expression: None,
            inputs,
            outputs,
            team: Team::ALONE,
            live: None,
            threads: None,
            known_cost: KnownCost::default(),
        }
    }

    pub fn cost(&self) -> Cost {
        self.known_cost.get_or_compute(|| match self.threads {
            Some(_) => host::cost(self),
            None => self.operation.cost(self),
        })
    }

    /// Returns the cost of each of this many launches; `None` if only that of all launches together is known.
    pub fn launch_costs(&self, launches: usize) -> Option<Vec<Cost>> {
        if launches == 1 {
            return Some(vec![self.cost()]);
        }
        Some(self.operation.launch_costs(self)).filter(|costs| costs.len() == launches)
    }

    pub fn launch(&self) -> Vec<Launch> {
        match self.threads {
            Some(threads) => vec![Launch::Host { threads }],
            None => self.operation.launch(self),
        }
    }

    /// The name of the operation, or of the declared kernel.
    pub fn name(&self) -> &str {
        user_kernel(self).map_or(self.operation.name(), |kernel| &kernel.name)
    }

    /// Names of the outputs, as used after a label: `label.name`.
    pub fn output_names(&self) -> Vec<&str> {
        match user_kernel(self) {
            Some(kernel) => kernel.outputs.iter().map(String::as_str).collect(),
            None => self.operation.signature().outputs.iter().copied().take(self.outputs.len()).collect(),
        }
    }

    /// Returns operand `index`, where inputs are counted first, then outputs.
    pub fn operand(&self, index: usize) -> &Tensor {
        match index.checked_sub(self.inputs.len()) {
            None => &self.inputs[index],
            Some(output) => &self.outputs[output],
        }
    }

    fn bytes_of(tensors: &[Tensor]) -> Traffic {
        tensors.iter().map(|tensor| Traffic::of(tensor.space, tensor.bytes())).sum()
    }

    /// The cost of a kernel that reads each input and writes each output once.
    fn streaming_cost(&self, flops: f64, elements_a_block: u64) -> Cost {
        let elements = self.outputs.iter().chain(&self.inputs).map(Tensor::elements).max().unwrap_or(0);
        Cost {
            flops,
            read: Self::bytes_of(&self.inputs),
            written: Self::bytes_of(&self.outputs),
            blocks: elements.div_ceil(elements_a_block).max(1),
            share: 4,
            ..Cost::default()
        }
    }
}

impl Call<'_> {
    /// Returns the type of output `index`, after comparing it with the declared type if the output has a name.
    fn output(&self, index: usize, dtype: DType, dims: Dims) -> Result<(DType, Dims), OpError> {
        match &self.outputs[index] {
            Some(given) if given.tensor.dtype != dtype || given.tensor.dims != dims => {
                let call = (self.span.start as usize, self.operation.name().len()).into();
                Err(self.unlike(given, dims.of(dtype), given.tensor.to_string(), call))
            }
            _ => Ok((dtype, dims)),
        }
    }

    fn given_dtype(&self, index: usize) -> Option<DType> {
        self.outputs[index].map(|output| output.tensor.dtype)
    }

    /// Returns an error if input `index` has fewer than `rank` dimensions.
    fn needs_rank(&self, index: usize, rank: usize, why: &str) -> Result<(), OpError> {
        let input = &self.inputs[index];
        if input.tensor.dims.len() >= rank {
            return Ok(());
        }
        let plural = if rank == 1 { "" } else { "s" };
        Err(self.bad_shape(input, format!("at least {rank} dimension{plural}, {why}")))
    }

    fn needs_dtype(&self, operand: &Operand, fits: bool, needs: &str) -> Result<(), OpError> {
        if fits {
            return Ok(());
        }
        Err(OpError::Dtype {
            op: self.operation.name(),
            needs: needs.to_owned(),
            found: operand.tensor.to_string(),
            at: operand.span.into(),
        })
    }

    /// Returns an error if an operand's element type is not one of indices.
    fn needs_indices(&self, operand: &Operand) -> Result<(), OpError> {
        let fits = matches!(operand.tensor.dtype, DType::I32 | DType::I64);
        self.needs_dtype(operand, fits, "indices of type i32 or i64")
    }

    fn differs(&self, left: usize, left_is: String, right: usize, right_is: String, help: &str) -> OpError {
        OpError::Differ {
            op: self.operation.name(),
            left: left_is,
            left_at: self.inputs[left].span.into(),
            right: right_is,
            right_at: self.inputs[right].span.into(),
            help: help.to_owned(),
        }
    }

    /// The error for an operand whose shape or size the operation does not support.
    fn bad_shape(&self, operand: &Operand, needs: impl Into<String>) -> OpError {
        let (op, found) = (self.operation.name(), operand.tensor.to_string());
        OpError::Rank { op, needs: needs.into(), found, at: operand.span.into() }
    }

    /// The error for an operand in memory that the operation cannot use.
    fn bad_space(&self, operand: &Operand, help: &'static str) -> OpError {
        let (op, space) = (self.operation.name(), operand.tensor.space.name());
        OpError::Space { op, space, help, at: operand.span.into() }
    }

    /// The error for an operand that has gaps where the operation needs contiguous memory.
    fn gaps(&self, operand: &Operand, help: &'static str) -> OpError {
        OpError::Gaps { op: self.operation.name(), help, at: operand.span.into() }
    }

    /// The error for a call that has to name its output.
    fn no_output(&self, help: &'static str) -> OpError {
        OpError::OutputMissing { op: self.operation.name(), help, at: self.span.into() }
    }

    /// The error for an output that does not fit the first input.
    fn bad_output(&self, given: &Operand, expected: String, found: String) -> OpError {
        let source = self.inputs.first().map_or(self.span, |input| input.span);
        self.unlike(given, expected, found, source.into())
    }

    /// The error for an output that is not as expected from the code at `source`.
    fn unlike(&self, given: &Operand, expected: String, found: String, source: miette::SourceSpan) -> OpError {
        OpError::Output { op: self.operation.name(), expected, found, over: None, at: given.span.into(), call: source }
    }

    fn bad_option(&self, name: &'static str, why: String, help: impl Into<String>) -> OpError {
        let at = self.attrs.span(name).unwrap_or(self.span);
        OpError::Option { op: self.operation.name(), option: name, why, help: help.into(), at: at.into() }
    }
}
