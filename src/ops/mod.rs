//! The catalogue of operations: each is one entry in one place.
//!
//! An entry holds everything that is known of its operation: what it takes ([`Signature`]), which outputs follow from
//! which inputs ([`Operation::infer`]), what it costs ([`Operation::cost`]), the result that every backend is held to
//! ([`Operation::reference`]) and what to launch for it, as plain data ([`Operation::launch`]).
//! Nothing here runs anything: no device, no file system, no names of a program.

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
pub mod kernel;
mod launch;
mod layout;
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
mod user_kernel;
mod walk;
mod warpgroups;
mod windows;
pub mod witness;
mod work;

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::base::{DType, Dims, GroupId, Nanos, Space, SrcSpan};

use backward::{Backward, NoRule};

pub use attr::{Attr, Attrs, Counts, OptionSpec, OptionType, Preset};
pub use catalogue::{CATALOGUE, find};
pub use check::{
    Check, Elements, Method, Pieces, PriorOutputs, Room, Share, Tolerance, Worst, check, check_exchange, compare,
};
pub use collectives::{Batch, BusBytes, Part, bus_bytes, parts};
pub use compiled::Resources;
pub use copies::copied;
pub use error::OpError;
pub use expression::Expression;
pub use host::{host_operations, on_device};
pub use launch::*;
pub use layout::{broadcast_strides, collapse, reshaped, stretches};
pub use matrix::MISSES;
pub use peers::{Crossing, PeerCopy, crossing};
pub use read::{DataFile, FilePart, file_part};
pub use rewritten::{dims_order, exchanges_last, keeps_order};
pub use signature::{Input, Signature, usage};
pub use synthetic::held;
pub use user_kernel::{InputPart, KernelCall, KernelCode, Param, Passed, Reference, UserKernel, head, user_kernel};

/// Everything that is known of one operation.
pub trait Operation: Sync {
    fn name(&self) -> &'static str;

    /// One line for people.
    fn summary(&self) -> &'static str;

    fn category(&self) -> Category;

    fn signature(&self) -> &'static Signature;

    /// The types of the outputs, in their order, or what is wrong with the operands.
    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError>;

    /// The cost of one run, independent of the device.
    fn cost(&self, spec: &Spec) -> Cost;

    /// The result, in double precision: inputs and outputs lie without gaps, in the order of the spec.
    /// Outputs come in as they lie in memory, so that an operation may update one.
    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]);

    /// The result of a collective on every rank that takes part, in the order of the group; both sides of a transfer.
    /// Values are in double precision, as for [`Operation::reference`], which is that of a group of one.
    fn exchange(&self, members: &mut [Member]) {
        for member in members {
            let inputs: Vec<&[f64]> = member.inputs.iter().map(Vec::as_slice).collect();
            self.reference(member.spec, &inputs, member.outputs);
        }
    }

    /// Computes the reference's result, as [`Operation::reference`] does, and returns for each output how far a correct
    /// implementation may be from it. An operation that rounds before it stores says so here. By default nothing may
    /// differ: where an operation forgets this, its verification fails on the first device that rounds.
    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        self.reference(spec, inputs, outputs);
        check::exactly(outputs)
    }

    /// The same for [`Operation::exchange`]: the tolerances of each member.
    fn enclose_exchange(&self, members: &mut [Member]) -> Vec<Vec<Tolerance>> {
        self.exchange(members);
        members.iter().map(|member| check::exactly(member.outputs)).collect()
    }

    /// Compares what a device computed from these inputs with what it should have. `before` gives what the outputs held.
    fn check(&self, spec: &Spec, inputs: &[&[f64]], before: PriorOutputs, actual: &[Vec<f64>]) -> Vec<Check> {
        let mut expected = before();
        let tolerances = self.enclose(spec, inputs, &mut expected);
        check::compare_all(spec, actual, &expected, &tolerances)
    }

    /// Describes pieces that verification can compare separately; `None` if the operation has to be compared as a whole.
    fn pieces(&self, _spec: &Spec) -> Option<Pieces> {
        None
    }

    /// The launches of one run, in their order.
    fn launch(&self, spec: &Spec) -> Vec<Launch>;

    /// Writes down the operations that compute the gradients of its inputs from those of its outputs. An operation without
    /// gradients returns the reason.
    fn backward(&self, _: &mut Backward) -> Result<(), NoRule> {
        Err("nothing that it computes has a derivative")
    }

    /// How many outputs a use has, of which so many are given, and with so many inputs between its parentheses: the first of
    /// the signature's.
    fn outputs(&self, _inputs: usize, _given: usize) -> usize {
        self.signature().outputs.len()
    }

    /// The types of inputs that the text does not name: memory that each use owns. They follow the other inputs.
    fn own_inputs(&self, _attrs: &Attrs) -> Vec<(DType, Dims)> {
        Vec::new()
    }

    /// Whether an output may be the same slice as an input.
    fn in_place(&self) -> bool {
        false
    }

    /// Whether the operation reads its outputs. They are then inputs as well, behind the others.
    fn updates(&self, _attrs: &Attrs) -> bool {
        false
    }

    /// Whether a host stream can run it.
    fn runs_on_host(&self) -> bool {
        false
    }

    /// Whether a stream of the device can run it.
    fn runs_on_device(&self) -> bool {
        true
    }

    /// The expression of each element of the outputs, for operations that a host stream runs: inputs repeat where they are
    /// smaller. `None` if the operation is no such expression.
    fn elements(&self, _spec: &Spec) -> Option<Expression> {
        None
    }

    /// The type that its kernels compute in: by default that of the operand that needs the widest.
    fn compute_type(&self, spec: &Spec) -> DType {
        elementwise::compute_type(spec)
    }

    /// Whether fusion may put an expression in place of the inputs.
    fn takes_expression(&self) -> bool {
        false
    }

    /// Whether its output may lie on another rank: `y at 1`.
    fn writes_to_peers(&self) -> bool {
        false
    }

    /// Whether the smaller of input and output may be that part of the other which is this rank's own.
    fn own_part(&self) -> bool {
        false
    }
}

/// The kind of work of an operation, by which reports add up times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    Matrix,
    Elementwise,
    RowWise,
    Movement,
    Copy,
    Collective,
    Synthetic,
    /// A kernel that the file declares.
    Kernel,
    /// A place in a stream without work: `signal`, `wait`, `sync`.
    Marker,
}

impl Category {
    pub fn name(self) -> &'static str {
        match self {
            Category::Matrix => "matrix",
            Category::Elementwise => "elementwise",
            Category::RowWise => "row-wise",
            Category::Movement => "movement",
            Category::Copy => "copy",
            Category::Collective => "collective",
            Category::Synthetic => "synthetic",
            Category::Kernel => "kernel",
            Category::Marker => "marker",
        }
    }
}

/// A tensor as an operation sees it: a slice with its place in memory left out.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tensor {
    pub dtype: DType,
    pub dims: Dims,
    /// Distance between neighbours, in elements, for each dimension.
    pub strides: Dims,
    pub space: Space,
    /// The slice begins at a multiple of this many bytes (at most 16).
    pub align: u8,
}

impl Tensor {
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    pub fn bytes(&self) -> u64 {
        self.elements() * self.dtype.size()
    }

    /// Bytes from its first element to behind its last, with what lies between its rows.
    pub fn reach(&self) -> u64 {
        if self.elements() == 0 {
            return 0;
        }
        let last: u64 = self.dims.iter().zip(self.strides.iter()).map(|(&size, &stride)| (size - 1) * stride).sum();
        (last + 1) * self.dtype.size()
    }

    /// Whether it lies in memory without gaps.
    pub fn contiguous(&self) -> bool {
        layout::contiguous(self)
    }
}

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.dims)
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} strides {} {} align {}", self.strides, self.space.name(), self.align)
    }
}

/// A tensor at a place of the text.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    pub tensor: Tensor,
    pub span: SrcSpan,
}

/// A use of an operation, while its shapes are worked out.
#[derive(Debug)]
pub struct Call<'a> {
    pub operation: &'static dyn Operation,
    pub span: SrcSpan,
    pub inputs: &'a [Operand],
    /// As long as [`Operation::outputs`] says; nothing for one that becomes scratch.
    pub outputs: &'a [Option<Operand>],
    pub attrs: &'a Attrs,
    pub expression: Option<&'a Expression>,
    /// The group that a collective runs over.
    pub team: Team,
}

/// A group of ranks as an operation of one of them sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Team {
    pub group: GroupId,
    pub ranks: u32,
    /// The number of this rank in it.
    pub rank: u32,
}

impl Team {
    /// One rank by itself.
    pub const ALONE: Team = Team { group: GroupId(0), ranks: 1, rank: 0 };
}

/// An operation with everything that decides what runs, apart from where its operands lie.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Spec {
    pub operation: &'static dyn Operation,
    pub attrs: Attrs,
    pub expression: Option<Arc<Expression>>,
    pub inputs: Vec<Tensor>,
    pub outputs: Vec<Tensor>,
    pub team: Team,
    /// Number of threads of the CPU that run it on a host stream; `None` on the device.
    pub threads: Option<NonZeroU32>,
}

/// One rank's share in a collective, for the result of all.
#[derive(Debug)]
pub struct Member<'a> {
    pub spec: &'a Spec,
    pub inputs: &'a [Vec<f64>],
    pub outputs: &'a mut [Vec<f64>],
}

impl PartialEq for dyn Operation {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn Operation {}

impl std::hash::Hash for dyn Operation {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

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
    pub fn cost(&self) -> Cost {
        match self.threads {
            Some(_) => host::cost(self),
            None => self.operation.cost(self),
        }
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

    /// The names of its outputs, by which they are found behind a label.
    pub fn output_names(&self) -> Vec<&str> {
        match user_kernel(self) {
            Some(kernel) => kernel.outputs.iter().map(String::as_str).collect(),
            None => self.operation.signature().outputs.iter().copied().take(self.outputs.len()).collect(),
        }
    }

    /// The tensor at a place that counts inputs first, then outputs.
    pub fn operand(&self, index: usize) -> &Tensor {
        match index.checked_sub(self.inputs.len()) {
            None => &self.inputs[index],
            Some(output) => &self.outputs[output],
        }
    }

    fn bytes_of(tensors: &[Tensor]) -> Traffic {
        tensors.iter().map(|tensor| Traffic::of(tensor.space, tensor.bytes())).sum()
    }

    /// The cost of something that reads each input and writes each output once.
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

/// The work of one run of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Arithmetic, a fused multiply-add counted as two.
    pub flops: f64,
    /// Instructions of vector units, 0 if they are not counted. An exponential takes several.
    pub instructions: f64,
    /// The instructions among them for special-function units: exponentials to base 2, reciprocals and roots.
    pub special: f64,
    /// Bytes that have to be read and written at least. A copy between the host and the device counts its bytes once, on
    /// the host's side.
    pub read: Traffic,
    pub written: Traffic,
    /// Bytes that leave this rank for another one and that arrive from others, by sends, receives and copies between
    /// ranks. `read` and `written` do not contain them.
    pub sent: u64,
    pub received: u64,
    /// Bytes that kernels read again after they have read them before.
    pub reread: Traffic,
    /// Thread blocks; zero when no compute unit is needed.
    pub blocks: u64,
    /// The share of a compute unit that a block occupies, in 1/32.
    pub share: u32,
    /// The arithmetic of the matrix units, if they do the work.
    pub matrix: Option<Arithmetic>,
    /// How a vendor's library divides a product; the default for other work.
    pub tiling: Tiling,
    /// A fixed duration, independent of the device.
    pub hold: Option<Nanos>,
}

impl Cost {
    /// A compute unit as a whole, in the unit of `share`.
    pub const WHOLE_UNIT: u32 = 32;

    /// Bytes that have to be moved at least, whichever memory holds them. Links between ranks carry both directions at
    /// once, so of what is sent and received the larger counts.
    pub fn bytes(&self) -> u64 {
        self.read.total() + self.written.total() + self.sent.max(self.received)
    }
}

/// How a vendor's library divides a product among blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tiling {
    /// Arithmetic of whole tiles, where sizes leave some of them partly empty; 0 where that is not known.
    pub flops: f64,
    /// Blocks share the depth, and what they have is added up afterwards.
    pub shares_depth: bool,
    /// Rows of an operand begin at no multiple of 16 bytes: the libraries have slower kernels for these.
    pub unaligned: bool,
}

/// Bytes, by the memory that holds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// In the device's own memory.
    pub device: u64,
    /// In the host's memory, which a device reaches over its link.
    pub host: u64,
}

impl Traffic {
    /// No bytes.
    pub const NONE: Traffic = Traffic { device: 0, host: 0 };

    pub fn of(space: Space, bytes: u64) -> Traffic {
        match space.in_host() {
            false => Traffic { device: bytes, host: 0 },
            true => Traffic { device: 0, host: bytes },
        }
    }

    pub fn total(self) -> u64 {
        self.device + self.host
    }
}

impl std::ops::Add for Traffic {
    type Output = Traffic;

    fn add(self, other: Traffic) -> Traffic {
        Traffic { device: self.device + other.device, host: self.host + other.host }
    }
}

impl std::iter::Sum for Traffic {
    fn sum<I: Iterator<Item = Traffic>>(parts: I) -> Traffic {
        parts.fold(Traffic::NONE, std::ops::Add::add)
    }
}

impl Call<'_> {
    /// The type of output `index`: checked where one is given, as inferred where not.
    fn output(&self, index: usize, dtype: DType, dims: Dims) -> Result<(DType, Dims), OpError> {
        match &self.outputs[index] {
            Some(given) if given.tensor.dtype != dtype || given.tensor.dims != dims => Err(OpError::Output {
                op: self.operation.name(),
                expected: format!("{dtype}{dims}"),
                found: given.tensor.to_string(),
                over: None,
                at: given.span.into(),
                call: self.span.into(),
            }),
            _ => Ok((dtype, dims)),
        }
    }

    fn given_dtype(&self, index: usize) -> Option<DType> {
        self.outputs[index].map(|output| output.tensor.dtype)
    }

    /// Fails unless the input has at least that many dimensions.
    fn needs_rank(&self, index: usize, rank: usize, why: &str) -> Result<(), OpError> {
        let input = &self.inputs[index];
        if input.tensor.dims.len() >= rank {
            return Ok(());
        }
        Err(OpError::Rank {
            op: self.operation.name(),
            needs: format!("at least {rank} dimension{}, {why}", if rank == 1 { "" } else { "s" }),
            found: input.tensor.to_string(),
            at: input.span.into(),
        })
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

    /// Fails unless an operand's elements can be indices.
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

    fn bad_option(&self, name: &'static str, why: String, help: impl Into<String>) -> OpError {
        let at = self.attrs.span(name).unwrap_or(self.span);
        OpError::Option { op: self.operation.name(), option: name, why, help: help.into(), at: at.into() }
    }
}
