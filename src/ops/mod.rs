//! The catalogue of operations: one entry, in one file, for each operation.
//!
//! An entry defines everything about its operation: its name, inputs, outputs and options ([`Signature`]), the shape rule
//! ([`Operation::infer`]), the cost model ([`Operation::cost`]), the reference implementation that every backend is
//! verified against ([`Operation::reference`]), and the kernels or library calls that implement it, as plain data
//! ([`Operation::launch`]). This module executes nothing and knows neither devices, files, nor names of a program.

mod attention;
pub mod backward;
mod call;
mod catalogue;
mod check;
mod collectives;
mod conv;
mod cost;
mod elementwise;
pub mod expression;
pub mod fused;
mod host;
pub mod init;
mod kernel_call;
mod kernels;
mod launch;
mod layout;
mod live_rows;
mod losses;
mod matrix;
mod movement;
mod norms;
mod pool;
mod reductions;
mod rewritten;
mod routing;
mod row_chain;
mod scans;
mod scatter;
mod sorting;
mod synthetic;
mod team;
mod user_kernel;
pub mod witness;

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::base::equal_by::equal_by;
use crate::base::{DType, Dims, Nanos, Space, SrcSpan};

use backward::{Backward, NoRule};

pub use call::attr::{Attr, Attrs, Crossing, DataFile, ElementCounts, OptionSpec, OptionType, Preset};
pub use call::error::OpError;
use call::signature::signature;
pub use call::signature::{Category, Input, Property, Signature, usage};
pub use call::{Call, Operand};
pub use catalogue::{CATALOGUE, find};
pub use check::{
    Check, Method, Pieces, PriorOutputs, RankOperands, TensorBytes, Tolerance, ValueBuffers, Worst, check,
    check_exchange, compare,
};
pub use collectives::{
    Batch, BatchMember, BusBytes, assumes_size, bus_bytes, has_unknown_size, more_ranks, moves_between_ranks,
    moves_unknown_size, parts,
};
pub use cost::{Cost, Hold, KnownCost, Tiling, Traffic};
pub use expression::Expression;
pub use host::{host_operations, on_device};
pub use kernel_call::KernelCall;
pub use kernels::compiled::{NotCompiled, Resources};
pub use kernels::occupancy::{DEFAULT_SHARED, SECTOR, UNIT_REGISTERS, WARP, share};
pub use kernels::{kernel, unit_report};
pub use launch::*;
pub use layout::{broadcast_strides, collapse, contiguous_runs, offsets, reshaped};
pub use live_rows::{LiveOperation, LiveRows, RowFact};
pub use matrix::{MISSES, has_library_layout, loses_terms};
pub use movement::copies::{copied, is_whole_copy};
pub use movement::peers::{PeerCopy, crossing};
pub use movement::read::{FilePart, file_part};
pub use movement::transpose::exchanges_last;
pub use rewritten::{dims_order, keeps_order};
pub use synthetic::stand_in;
pub use team::Team;
pub use user_kernel::{EntryParam, InputPart, KernelArgument, KernelCode, Reference, UserKernel, head, user_kernel};

/// The definition of one operation: an entry of the catalogue, or an internal operation that only the program makes.
pub trait Operation: Sync {
    /// Returns the name, inputs, outputs and options.
    fn signature(&self) -> &'static Signature;

    /// Name of the operation in the language.
    fn name(&self) -> &'static str {
        self.signature().name
    }

    /// Kind of work, by which reports sum times.
    fn category(&self) -> Category {
        self.signature().category
    }

    /// Properties that the operation has. The default is none.
    fn properties(&self) -> &'static [Property] {
        &[]
    }

    /// True if the operation has a property.
    fn has(&self, property: Property) -> bool {
        self.properties().contains(&property)
    }

    /// Returns the element type and shape of each output, in order, or an error about the operands or options. The
    /// default returns no outputs: it serves operations without outputs, and internal operations whose shapes are
    /// already known.
    fn infer(&self, _call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        Ok(Vec::new())
    }

    /// Returns the cost of one execution, independent of the device. The default is that of [`Operation::elements`], otherwise the
    /// sum of [`Operation::launch_costs`].
    fn cost(&self, spec: &Spec) -> Cost {
        if let Some(expression) = self.elements(spec) {
            return elementwise::cost(&expression, spec);
        }
        let costs = self.launch_costs(spec);
        debug_assert!(!costs.is_empty(), "an operation defines the costs of its launches, or their sum");
        costs.into_iter().sum()
    }

    /// Returns the cost of each launch, in order. The costs add up to [`Operation::cost`]. Empty if only their sum is
    /// known; the simulator then gives each launch an equal share.
    fn launch_costs(&self, _spec: &Spec) -> Vec<Cost> {
        Vec::new()
    }

    /// Computes the outputs in double precision. `inputs` and `outputs` are contiguous, in row-major order and in the
    /// order of the spec. On entry, `outputs` holds the previous contents of their memory, which an operation may
    /// update. The default evaluates [`Operation::elements`], or else calls [`Operation::enclose`], of which an operation with outputs
    /// then has its own.
    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        match self.elements(spec) {
            Some(expression) => elementwise::evaluate(&expression, spec, inputs, outputs),
            None if outputs.is_empty() => {}
            None => drop(self.enclose(spec, inputs, outputs)),
        }
    }

    /// Computes the outputs of a collective or a transfer for every rank of the group. `members` are in group order.
    /// The default serves operations of a single rank: it computes [`Operation::reference`] for each member.
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

    /// Compares a device's outputs `actual` with the reference, and returns one result for each output. `before`
    /// returns the contents of the outputs before the operation.
    fn check(&self, spec: &Spec, inputs: &[&[f64]], before: PriorOutputs, actual: &[Vec<f64>]) -> Vec<Check> {
        if let Some(expression) = self.elements(spec) {
            return elementwise::compare(&expression, spec, inputs, actual);
        }
        let mut expected = before();
        let tolerances = self.enclose(spec, inputs, &mut expected);
        check::compare_all(spec, actual, &expected, &tolerances)
    }

    /// Describes how the operands divide into pieces that verification can compare separately; `None` if each output
    /// must be compared as a whole.
    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        self.elements(spec).and_then(|_| check::same_elements(spec))
    }

    /// Returns the launches of one execution, in order. The default is the kernel of [`Operation::elements`].
    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let expression = self.elements(spec).expect("an operation on elements, or one that defines its launches");
        vec![elementwise::launch(self.name(), &expression, spec)]
    }

    /// Returns launches that need less workspace than those of [`Operation::launch`] and may take longer, for a device without room for
    /// it; `None` if there are none.
    fn sparing_launch(&self, _spec: &Spec) -> Option<Vec<Launch>> {
        None
    }

    /// Returns launches like those of [`Operation::launch`] that hold up to `most` ways to compute the operation, for a device that can
    /// time them; `None` if there is a single way.
    fn launch_in_ways(&self, _spec: &Spec, _most: usize) -> Option<Vec<Launch>> {
        None
    }

    /// Appends to the tape the operations that compute the gradients of this operation's inputs from the gradients of
    /// its outputs. The error is the reason why the operation is not differentiable.
    fn backward(&self, _: &mut Backward) -> Result<(), NoRule> {
        Err("nothing that it computes has a derivative")
    }

    /// Number of outputs of a call with these options and `inputs` inputs, of which the text names `given` outputs. A
    /// call has the first outputs of the signature.
    fn outputs(&self, _attrs: &Attrs, _inputs: usize, _given: usize) -> usize {
        self.signature().outputs.len()
    }

    /// Types and shapes of hidden inputs: memory that each call owns and that the text does not name. Hidden inputs
    /// follow the inputs of the text.
    fn own_inputs(&self, _attrs: &Attrs) -> Vec<(DType, Dims)> {
        Vec::new()
    }

    /// Number of leading outputs through which gradients flow. `grad` does not use the gradients of the remaining
    /// outputs.
    fn outputs_with_gradients(&self, spec: &Spec) -> usize {
        spec.outputs.len()
    }

    /// Describes the implementation in a few words for tables; `None` if it is unknown before a run, or obvious from
    /// the operation's name.
    fn implementation(&self, _spec: &Spec) -> Option<&'static str> {
        None
    }

    /// Returns the sizes `[batch, rows, columns, depth]` and the arithmetic of a matrix product; `None` for other
    /// operations.
    fn product(&self, _: &Spec) -> Option<([u64; 4], Arithmetic)> {
        None
    }

    /// Returns the number of rows that the operation works on, and the rows of its outputs that hold data, where the contents of
    /// a tensor determine them. `facts` has the known facts about the inputs, in order.
    fn live_rows(&self, spec: &Spec, facts: &[Option<RowFact>]) -> LiveOperation {
        let inputs = match self.category() {
            Category::Elementwise | Category::RowWise | Category::Copy => spec.inputs.len(),
            _ => 0,
        };
        LiveOperation::of_rows(spec, facts, inputs)
    }

    /// Returns the indices of the inputs whose contents determine how much work the operation has, such as the ends of packed
    /// sequences; none if shapes determine it.
    fn sizing(&self, _: &Spec) -> Vec<usize> {
        Vec::new()
    }

    /// True if the operation reads its outputs. They are then inputs as well, after the others.
    fn updates(&self, _attrs: &Attrs) -> bool {
        false
    }

    /// Returns the expression that computes each output element from the input elements, with smaller inputs broadcast;
    /// `None` if the operation is not elementwise. Host streams evaluate this expression; costs, references, checks and launches
    /// follow from it.
    fn elements(&self, _spec: &Spec) -> Option<Expression> {
        None
    }

    /// Type in which kernels compute: by default the widest that any operand needs.
    fn compute_type(&self, spec: &Spec) -> DType {
        kernel::compute_type(spec)
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

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Bytes of the elements, without gaps.
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

    /// True if the tensor is contiguous: no gaps, and the last dimension varies fastest.
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

/// An operation with its options and operands: everything that determines its launches, except the operands' addresses.
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
    /// Contents of the inputs that [`Operation::sizing`] lists, in its order, if the text determines them; otherwise `None`. Costs use
    /// them. Launches may depend on them only if they are certain, as those of a `grouped_gemm` of one group do.
    pub sizes: Option<Arc<Vec<Vec<i64>>>>,
    /// True if every device computes exactly the contents of `sizes`: no rounding determines them. False without `sizes`.
    pub has_certain_sizes: bool,
    /// Number of threads of the CPU that run the operation on a host stream; `None` on the device.
    pub threads: Option<NonZeroU32>,
    /// The cost of the operation; empty until `cost` is called for the first time.
    pub known_cost: KnownCost,
}

/// The operands of one rank in a collective or a transfer, for [`Operation::exchange`].
#[derive(Debug)]
pub struct RankMember<'a> {
    pub spec: &'a Spec,
    pub inputs: &'a [Vec<f64>],
    pub outputs: &'a mut [Vec<f64>],
}

/// Returns the operation that computes the exchange of these ranks, at least one: that of a `group` if any of them has one. A group of
/// a single call is that call, so that the operations of ranks may differ.
pub fn joint_operation(members: &[RankMember]) -> &'static dyn Operation {
    let group = members.iter().find(|member| member.spec.operation.name() == Batch.name());
    group.unwrap_or(&members[0]).spec.operation
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
            sizes: None,
            has_certain_sizes: false,
            threads: None,
            known_cost: KnownCost::default(),
        }
    }

    /// Returns the cost of one execution, computed at the first call.
    pub fn cost(&self) -> Cost {
        self.known_cost.get_or_compute(|| match self.threads {
            Some(_) => host::cost(self),
            None => self.operation.cost(self),
        })
    }

    /// Returns for each element of each output whether every device computes exactly the value of the reference. `outputs` holds the
    /// previous contents of the outputs.
    pub fn certain_elements(&self, inputs: &[&[f64]], mut outputs: Vec<Vec<f64>>) -> Vec<Vec<bool>> {
        if let Some(expression) = self.operation.elements(self) {
            return elementwise::certain(&expression, self, inputs);
        }
        let tolerances = self.operation.enclose(self, inputs, &mut outputs);
        let certain = |(tolerance, values): (Tolerance, &Vec<f64>)| match tolerance {
            Tolerance::Exact => vec![true; values.len()],
            Tolerance::Within(radii) => radii.iter().map(|radius| *radius == 0.0).collect(),
        };
        tolerances.into_iter().zip(&outputs).map(certain).collect()
    }

    /// Returns the costs of the launches, of which there are `launches`; `None` if only the sum of their costs is
    /// known.
    pub fn launch_costs(&self, launches: usize) -> Option<Vec<Cost>> {
        if launches == 1 {
            return Some(vec![self.cost()]);
        }
        Some(self.operation.launch_costs(self)).filter(|costs| costs.len() == launches)
    }

    /// Returns the launches of one execution, in order. An operation of a host stream has a single launch.
    pub fn launch(&self) -> Vec<Launch> {
        match self.threads {
            Some(threads) => vec![Launch::Host { threads }],
            None => self.operation.launch(self),
        }
    }

    /// Number of values that the threads of a host stream convert to `f64` or back; 0 if they copy bytes.
    pub fn host_values(&self) -> u64 {
        let Some(expression) = self.operation.elements(self).filter(|_| file_part(self).is_none()) else { return 0 };
        if expression.is_identity() && self.inputs[0].dtype == self.outputs[0].dtype {
            return 0;
        }
        (self.inputs.len() + self.outputs.len()) as u64 * self.outputs[0].elements()
    }

    /// Returns launches that need less workspace, as [`Operation::sparing_launch`] does.
    pub fn sparing_launch(&self) -> Option<Vec<Launch>> {
        if self.threads.is_some() { None } else { self.operation.sparing_launch(self) }
    }

    /// Returns launches that hold several ways to compute the operation, as [`Operation::launch_in_ways`] does.
    pub fn launch_in_ways(&self, most: usize) -> Option<Vec<Launch>> {
        if self.threads.is_some() { None } else { self.operation.launch_in_ways(self, most) }
    }

    /// The name of the operation, or of the declared kernel.
    pub fn name(&self) -> &str {
        user_kernel(self).map_or(self.operation.name(), |kernel| &kernel.name)
    }

    /// Names of the outputs, by which the text refers to them after a label: `label.name`.
    pub fn output_names(&self) -> Vec<&str> {
        match user_kernel(self) {
            Some(kernel) => kernel.outputs.iter().map(String::as_str).collect(),
            None => self.operation.signature().outputs.iter().copied().take(self.outputs.len()).collect(),
        }
    }

    /// Returns the operand with this number: inputs are counted first, then outputs.
    pub fn operand(&self, index: usize) -> &Tensor {
        match index.checked_sub(self.inputs.len()) {
            None => &self.inputs[index],
            Some(output) => &self.outputs[output],
        }
    }

    /// Bytes of the elements of these tensors, by the memory that holds them.
    fn bytes_of(tensors: &[Tensor]) -> Traffic {
        tensors.iter().map(|tensor| Traffic::of(tensor.space, tensor.bytes())).sum()
    }

    /// Cost of a kernel that reads each input and writes each output once, with one block for every `elements_a_block`
    /// elements of the largest operand.
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
