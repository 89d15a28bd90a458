//! Graphs of cuDNN's operations, which the library compiles to one or a few kernels.
//!
//! Numbers are those of `cudnn_graph.h`.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::backend::gpu::Call;
use crate::backend::gpu::runtime::Stream;
use crate::base::DType;
use crate::exec::Fault;
use crate::ops::ConvForm;

use super::cudnn::Cudnn;
use super::cudnn_api::{Desc, element};

/// Numbers of the types of descriptors (`cudnnBackendDescriptorType_t`).
mod kind {
    pub const POINTWISE: i32 = 0;
    pub const CONVOLUTION: i32 = 1;
    pub const ENGINE: i32 = 2;
    pub const ENGINE_CONFIG: i32 = 3;
    pub const HEURISTICS: i32 = 4;
    pub const PLAN: i32 = 5;
    pub const CONVOLUTION_FORWARD: i32 = 10;
    pub const CONVOLUTION_WEIGHTS: i32 = 11;
    pub const CONVOLUTION_DATA: i32 = 12;
    pub const POINTWISE_OPERATION: i32 = 13;
    pub const GRAPH: i32 = 15;
    pub const PACK: i32 = 16;
    pub const TENSOR: i32 = 17;
    pub const MATMUL: i32 = 18;
    pub const MATMUL_OPERATION: i32 = 19;
    pub const REDUCTION: i32 = 21;
    pub const REDUCTION_OPERATION: i32 = 22;
    pub const RESHAPE_OPERATION: i32 = 31;
}

/// Type of an attribute's values (`cudnnBackendAttributeType_t`).
#[derive(Clone, Copy)]
struct AttributeType(c_int);

impl AttributeType {
    const HANDLE: AttributeType = AttributeType(0);
    const DTYPE: AttributeType = AttributeType(1);
    const BOOL: AttributeType = AttributeType(2);
    const I64: AttributeType = AttributeType(3);
    const F32: AttributeType = AttributeType(4);
    const F64: AttributeType = AttributeType(5);
    const POINTER: AttributeType = AttributeType(6);
    const CONVOLUTION: AttributeType = AttributeType(7);
    const HEURISTIC: AttributeType = AttributeType(8);
    const NOTE: AttributeType = AttributeType(11);
    const POINTWISE: AttributeType = AttributeType(14);
    const DESCRIPTOR: AttributeType = AttributeType(15);
    const REDUCTION: AttributeType = AttributeType(18);
}

/// Elementwise functions (`cudnnPointwiseMode_t`).
#[derive(Clone, Copy)]
pub enum Pointwise {
    Add = 0,
    Multiply = 1,
    Max = 3,
    Divide = 6,
    Subtract = 9,
    Exp = 13,
    Log = 15,
    Identity = 21,
    Greater = 302,
    GreaterOrEqual = 303,
    Less = 304,
    Index = 501,
    Select = 601,
}

/// Reductions along the dimensions in which the result has size 1 (`cudnnReduceTensorOp_t`).
#[derive(Clone, Copy)]
pub enum Reduction {
    Sum = 0,
    Max = 3,
}

/// Element type of a tensor, as the library's number (`cudnnDataType_t`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Element(c_int);

impl Element {
    pub const F32: Element = Element(0);
    pub const F64: Element = Element(1);
    pub const I32: Element = Element(4);
    pub const BOOL: Element = Element(11);

    pub fn of(dtype: DType) -> Element {
        Element(element(dtype))
    }
}

/// Sizes or strides of a tensor with four dimensions.
pub type Sizes = [u64; 4];

/// Strides in elements of a tensor without gaps.
pub fn contiguous(dims: Sizes) -> Sizes {
    [dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1]
}

/// A tensor of a graph.
#[derive(Clone, Copy)]
pub struct GraphTensor(Desc);

/// A property of an engine that concerns its results (`cudnnBackendNumericalNote_t`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum EngineNote {
    MatrixUnits = 0,
    DownConverts = 1,
    ReducedSums = 2,
    Fft = 3,
    Nondeterministic = 4,
    Winograd = 5,
}

/// The engines of the library to compile for a graph.
pub struct EngineSearch<'a> {
    /// Maximum size of an engine's workspace in bytes.
    pub workspace: u64,
    /// Maximum number of configurations to compile.
    pub wanted: usize,
    /// Properties of engines that are skipped.
    pub excluded: &'a [EngineNote],
    /// Number of the only engine to compile; `None` for any engine.
    pub engine: Option<u32>,
    /// True to compile several configurations of one engine, and also those of the fallback list after the others.
    /// If false, only the first configuration of each engine is compiled, and the fallback list only if nothing else
    /// compiles.
    pub exhaustive: bool,
}

/// Stride, padding and dilation of a convolution along each spatial dimension, and the type of its sums.
pub struct ConvolutionSteps {
    pub stride: Vec<i64>,
    pub padding: Vec<i64>,
    pub dilation: Vec<i64>,
    pub sum: Element,
}

/// A graph under construction, to which operations are added one by one.
pub struct Graph {
    library: Arc<Cudnn>,
    /// Descriptors in the order of their creation.
    descriptors: Vec<Desc>,
    operations: Vec<Desc>,
    /// Identifiers of the operands, in the order in which they were added and in which a call passes their addresses.
    places: Vec<i64>,
    /// Identifiers of the scalars, and the bits of their values.
    scalars: Vec<(i64, u32)>,
    next: i64,
}

// SAFETY: descriptors may be used from any thread, one at a time, as the library's handle.
unsafe impl Send for Graph {}
// SAFETY: a finished graph is only read.
unsafe impl Sync for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        for &descriptor in self.descriptors.iter().rev() {
            // SAFETY: the library made it, and nothing that uses it is left.
            unsafe { (self.library.graphs.functions.destroy)(descriptor) };
        }
    }
}

impl Graph {
    pub fn new(library: &Arc<Cudnn>) -> Graph {
        Graph {
            library: library.clone(),
            descriptors: Vec::new(),
            operations: Vec::new(),
            places: Vec::new(),
            scalars: Vec::new(),
            next: 1,
        }
    }

    /// Adds an operand. Calls pass the addresses of operands in the order in which they were added.
    pub fn operand(&mut self, dims: Sizes, strides: Sizes, element: Element) -> Call<GraphTensor> {
        self.aligned_operand((&dims, &strides), element, 16)
    }

    /// Adds an operand of any number of dimensions, whose addresses are multiples of `align` bytes.
    pub fn aligned_operand(&mut self, shape: (&[u64], &[u64]), element: Element, align: u8) -> Call<GraphTensor> {
        self.places.push(self.next);
        self.tensor(shape, (element, align), false, false)
    }

    /// Adds a virtual tensor without gaps: an intermediate result, which has no memory of its own.
    pub fn virtual_tensor(&mut self, dims: Sizes, element: Element) -> Call<GraphTensor> {
        self.virtual_with(dims, contiguous(dims), element)
    }

    /// Adds a virtual tensor with these strides.
    pub fn virtual_with(&mut self, dims: Sizes, strides: Sizes, element: Element) -> Call<GraphTensor> {
        self.tensor((&dims, &strides), (element, 16), true, false)
    }

    /// Adds a scalar of type `f32`.
    pub fn number(&mut self, value: f32) -> Call<GraphTensor> {
        self.scalars.push((self.next, value.to_bits()));
        self.tensor((&[1; 4], &[1; 4]), (Element::F32, 16), false, true)
    }

    /// Adds a scalar of type `i32`.
    pub fn integer(&mut self, value: i32) -> Call<GraphTensor> {
        self.scalars.push((self.next, value as u32));
        self.tensor((&[1; 4], &[1; 4]), (Element::I32, 16), false, true)
    }

    fn tensor(
        &mut self,
        (dims, strides): (&[u64], &[u64]),
        (element, align): (Element, u8),
        is_virtual: bool,
        value: bool,
    ) -> Call<GraphTensor> {
        let made = self.descriptor(kind::TENSOR)?;
        let numbers = |sizes: &[u64]| -> Vec<i64> { sizes.iter().map(|&size| size as i64).collect() };
        self.set(made, 906, AttributeType::I64, &[self.next])?;
        self.set(made, 901, AttributeType::DTYPE, &[element.0])?;
        self.set(made, 902, AttributeType::I64, &numbers(dims))?;
        self.set(made, 903, AttributeType::I64, &numbers(strides))?;
        // Alignment of the tensor's address in bytes.
        self.set(made, 900, AttributeType::I64, &[i64::from(align)])?;
        self.set(made, 907, AttributeType::BOOL, &[is_virtual])?;
        self.set(made, 908, AttributeType::BOOL, &[value])?;
        self.next += 1;
        self.finalize(made)?;
        Ok(GraphTensor(made))
    }

    /// Adds `y = function(x, b)`, computed in `compute`.
    pub fn pointwise(
        &mut self,
        function: Pointwise,
        x: GraphTensor,
        b: Option<GraphTensor>,
        y: GraphTensor,
        compute: Element,
    ) -> Call<GraphTensor> {
        self.map((function, compute, None), x, [b, None], y)
    }

    /// Adds `y`, each element of which is its own index along an axis.
    pub fn index(&mut self, x: GraphTensor, axis: i64, y: GraphTensor) -> Call<GraphTensor> {
        self.map((Pointwise::Index, Element::F32, Some(axis)), x, [None, None], y)
    }

    /// Adds `y`, whose elements are those of `x` where the condition is true, and those of `b` elsewhere.
    pub fn select(
        &mut self,
        condition: GraphTensor,
        x: GraphTensor,
        b: GraphTensor,
        y: GraphTensor,
    ) -> Call<GraphTensor> {
        self.map((Pointwise::Select, Element::F32, None), x, [Some(b), Some(condition)], y)
    }

    fn map(
        &mut self,
        (function, compute, axis): (Pointwise, Element, Option<i64>),
        x: GraphTensor,
        others: [Option<GraphTensor>; 2],
        y: GraphTensor,
    ) -> Call<GraphTensor> {
        let how = self.descriptor(kind::POINTWISE)?;
        self.set(how, 0, AttributeType::POINTWISE, &[function as c_int])?;
        self.set(how, 1, AttributeType::DTYPE, &[compute.0])?;
        if let Some(axis) = axis {
            self.set(how, 9, AttributeType::I64, &[axis])?;
        }
        self.finalize(how)?;
        let [b, condition] = others;
        let all = [(750, Some(GraphTensor(how))), (751, Some(x)), (752, b), (753, Some(y)), (758, condition)];
        self.operation(kind::POINTWISE_OPERATION, &all)?;
        Ok(y)
    }

    /// Adds the matrix product `c = a * b`, summed in `f32`.
    pub fn multiply(&mut self, a: GraphTensor, b: GraphTensor, c: GraphTensor) -> Call<GraphTensor> {
        let how = self.descriptor(kind::MATMUL)?;
        self.set(how, 1500, AttributeType::DTYPE, &[Element::F32.0])?;
        self.finalize(how)?;
        let all = [(1520, Some(a)), (1521, Some(b)), (1522, Some(c)), (1523, Some(GraphTensor(how)))];
        self.operation(kind::MATMUL_OPERATION, &all)?;
        Ok(c)
    }

    /// Adds `y`, the reduction of `x` along the dimensions in which `y` has size 1.
    pub fn reduce(&mut self, reduction: Reduction, x: GraphTensor, y: GraphTensor) -> Call<GraphTensor> {
        let how = self.descriptor(kind::REDUCTION)?;
        self.set(how, 1600, AttributeType::REDUCTION, &[reduction as c_int])?;
        self.set(how, 1601, AttributeType::DTYPE, &[Element::F32.0])?;
        self.finalize(how)?;
        self.operation(kind::REDUCTION_OPERATION, &[(1610, Some(x)), (1611, Some(y)), (1612, Some(GraphTensor(how)))])?;
        Ok(y)
    }

    /// Adds a convolution. The form determines which of `x`, `w` and `y` it computes from the other two.
    pub fn convolve(&mut self, form: ConvForm, [x, w, y]: [GraphTensor; 3], steps: &ConvolutionSteps) -> Call {
        /// CUDNN_CROSS_CORRELATION: kernels are not reversed.
        const CROSS_CORRELATION: c_int = 1;
        let how = self.descriptor(kind::CONVOLUTION)?;
        self.set(how, 100, AttributeType::DTYPE, &[steps.sum.0])?;
        self.set(how, 101, AttributeType::CONVOLUTION, &[CROSS_CORRELATION])?;
        self.set(how, 102, AttributeType::I64, &steps.dilation)?;
        self.set(how, 103, AttributeType::I64, &steps.stride)?;
        // Padding after the last element and before the first.
        self.set(how, 104, AttributeType::I64, &steps.padding)?;
        self.set(how, 105, AttributeType::I64, &steps.padding)?;
        self.set(how, 106, AttributeType::I64, &[steps.stride.len() as i64])?;
        self.finalize(how)?;
        // The first attribute of each form: the factor of the convolution, followed by the factor of the earlier result, the
        // description, and the three tensors.
        let (kind, first, tensors) = match form {
            ConvForm::Forward => (kind::CONVOLUTION_FORWARD, 700, [w, x, y]),
            ConvForm::Transposed => (kind::CONVOLUTION_DATA, 706, [w, x, y]),
            ConvForm::Weights => (kind::CONVOLUTION_WEIGHTS, 712, [w, x, y]),
        };
        let made = self.descriptor(kind)?;
        for (attribute, factor) in [(first, 1.0f64), (first + 1, 0.0)] {
            match steps.sum {
                Element::F64 => self.set(made, attribute, AttributeType::F64, &[factor])?,
                _ => self.set(made, attribute, AttributeType::F32, &[factor as f32])?,
            }
        }
        self.set(made, first + 2, AttributeType::DESCRIPTOR, &[how])?;
        for (attribute, GraphTensor(tensor)) in (first + 3..).zip(tensors) {
            self.set(made, attribute, AttributeType::DESCRIPTOR, &[tensor])?;
        }
        self.finalize(made)?;
        self.operations.push(made);
        Ok(())
    }

    /// Adds `y`, which has the elements of `x` in the same order with other dimensions.
    pub fn reshape(&mut self, x: GraphTensor, y: GraphTensor) -> Call<GraphTensor> {
        self.operation(kind::RESHAPE_OPERATION, &[(2200, Some(x)), (2201, Some(y))])?;
        Ok(y)
    }

    fn operation(&mut self, kind: c_int, attributes: &[(c_int, Option<GraphTensor>)]) -> Call {
        let made = self.descriptor(kind)?;
        for &(attribute, node) in attributes {
            if let Some(GraphTensor(node)) = node {
                self.set(made, attribute, AttributeType::DESCRIPTOR, &[node])?;
            }
        }
        self.finalize(made)?;
        self.operations.push(made);
        Ok(())
    }

    fn descriptor(&mut self, kind: c_int) -> Call<Desc> {
        let mut made: Desc = std::ptr::null_mut();
        let api = &self.library.graphs;
        // SAFETY: the output pointer is valid for the call.
        api.check("cudnnBackendCreateDescriptor", unsafe { (api.functions.create)(kind, &mut made) })?;
        self.descriptors.push(made);
        Ok(made)
    }

    fn set<T>(&self, descriptor: Desc, attribute: c_int, kind: AttributeType, values: &[T]) -> Call {
        let (api, count) = (&self.library.graphs, values.len() as i64);
        // SAFETY: the descriptor is alive, and the values are of the stated number; their type is that of the attribute.
        let code = unsafe { (api.functions.set)(descriptor, attribute, kind.0, count, values.as_ptr().cast()) };
        api.check("cudnnBackendSetAttribute", code)
    }

    /// Reads at most `values.len()` values of an attribute and returns the number of values that it has.
    fn get<T>(&self, descriptor: Desc, attribute: c_int, kind: AttributeType, values: &mut [T]) -> Call<usize> {
        let (api, count, mut found) = (&self.library.graphs, values.len() as i64, 0i64);
        let to = if values.is_empty() { std::ptr::null_mut() } else { values.as_mut_ptr().cast() };
        // SAFETY: the descriptor is alive, and there is room for the stated number of values of the attribute's type.
        let code = unsafe { (api.functions.get)(descriptor, attribute, kind.0, count, &mut found, to) };
        api.check("cudnnBackendGetAttribute", code)?;
        Ok(found.max(0) as usize)
    }

    fn finalize(&self, descriptor: Desc) -> Call {
        let api = &self.library.graphs;
        // SAFETY: the descriptor is alive.
        api.check("cudnnBackendFinalize", unsafe { (api.functions.finalize)(descriptor) })
    }

    /// Finishes the graph, and compiles it with the engines that `search` permits, the most promising first. Fails if
    /// no engine compiles, with the reason of the last one that failed.
    pub fn plans(mut self, search: &EngineSearch) -> Call<Vec<EnginePlan>> {
        /// CUDNN_HEUR_MODE_A and CUDNN_HEUR_MODE_FALLBACK.
        const MODES: [c_int; 2] = [3, 2];
        let library = self.library.clone();
        let graph = self.descriptor(kind::GRAPH)?;
        self.set(graph, 800, AttributeType::HANDLE, &[library.handle])?;
        self.set(graph, 801, AttributeType::DESCRIPTOR, &self.operations)?;
        self.finalize(graph)?;
        let (mut found, mut seen, mut failed) = (Vec::new(), Vec::new(), None);
        for mode in MODES {
            match self.configurations(graph, mode) {
                Err(fault) => failed = Some(fault),
                Ok(configurations) => {
                    for configuration in configurations {
                        if found.len() >= search.wanted {
                            break;
                        }
                        let (engine, is_excluded) = self.engine(configuration, search.excluded)?;
                        let is_other = search.engine.is_some_and(|only| engine != only);
                        if is_excluded || is_other || (!search.exhaustive && seen.contains(&engine)) {
                            continue;
                        }
                        match self.compile(configuration) {
                            Ok((plan, bytes)) if bytes <= search.workspace => {
                                seen.push(engine);
                                found.push((plan, bytes, engine));
                            }
                            Ok((_, bytes)) => {
                                let there = search.workspace;
                                let why = format!("it needs a workspace of {bytes} bytes, and {there} are there");
                                failed = Some(Fault::new("cudnnBackendFinalize", why));
                            }
                            Err(fault) => failed = Some(fault),
                        }
                    }
                }
            }
            if !found.is_empty() && !search.exhaustive {
                break;
            }
        }
        match (found.is_empty(), failed) {
            (true, Some(fault)) => return Err(fault),
            (true, None) => return Err(Fault::new("cudnnBackendFinalize", "the library offers no engine")),
            (false, _) => {}
        }
        let graph = Arc::new(self);
        let made = |(plan, workspace, engine)| EnginePlan { graph: graph.clone(), plan, workspace, engine };
        Ok(found.into_iter().map(made).collect())
    }

    /// Returns the configurations of engines that the library's heuristic `mode` proposes, the most promising first.
    fn configurations(&mut self, graph: Desc, mode: c_int) -> Call<Vec<Desc>> {
        let heuristics = self.descriptor(kind::HEURISTICS)?;
        self.set(heuristics, 201, AttributeType::DESCRIPTOR, &[graph])?;
        self.set(heuristics, 200, AttributeType::HEURISTIC, &[mode])?;
        self.finalize(heuristics)?;
        let count = self.get::<Desc>(heuristics, 202, AttributeType::DESCRIPTOR, &mut [])?;
        let mut all = (0..count).map(|_| self.descriptor(kind::ENGINE_CONFIG)).collect::<Call<Vec<Desc>>>()?;
        let count = self.get(heuristics, 202, AttributeType::DESCRIPTOR, &mut all)?;
        all.truncate(count);
        Ok(all)
    }

    /// Returns the number of a configuration's engine, and whether it has one of the excluded properties.
    fn engine(&mut self, configuration: Desc, excluded: &[EngineNote]) -> Call<(u32, bool)> {
        let engine = self.descriptor(kind::ENGINE)?;
        self.get(configuration, 300, AttributeType::DESCRIPTOR, &mut [engine])?;
        let (mut number, mut notes) = ([0i64], [-1; 16]);
        self.get(engine, 1301, AttributeType::I64, &mut number)?;
        self.get(engine, 1303, AttributeType::NOTE, &mut notes)?;
        Ok((number[0] as u32, excluded.iter().any(|&note| notes.contains(&(note as c_int)))))
    }

    /// Compiles a configuration. Returns its execution plan, and the size of its workspace in bytes.
    fn compile(&mut self, configuration: Desc) -> Call<(Desc, u64)> {
        let plan = self.descriptor(kind::PLAN)?;
        self.set(plan, 400, AttributeType::HANDLE, &[self.library.handle])?;
        self.set(plan, 401, AttributeType::DESCRIPTOR, &[configuration])?;
        self.finalize(plan)?;
        let mut bytes = [0i64];
        self.get(plan, 402, AttributeType::I64, &mut bytes)?;
        Ok((plan, bytes[0].max(0) as u64))
    }
}

/// A graph that was compiled with one configuration of an engine.
pub struct EnginePlan {
    graph: Arc<Graph>,
    plan: Desc,
    /// Size in bytes of the workspace that a call needs.
    pub workspace: u64,
    /// The library's number of the engine.
    pub engine: u32,
}

// SAFETY: as for the graph.
unsafe impl Send for EnginePlan {}
// SAFETY: as for the graph.
unsafe impl Sync for EnginePlan {}

/// Maximum number of operands and scalars that a call passes.
const MAX_ADDRESSES: usize = 32;

impl EnginePlan {
    /// Launches the kernels of the graph. `addresses` are those of its operands, in the order in which the operands
    /// were added.
    ///
    /// # Safety
    ///
    /// The addresses are device memory that holds the operands, the workspace has the bytes that the plan needs, and the
    /// stream is alive.
    pub unsafe fn execute(&self, addresses: &[u64], workspace: u64, stream: Stream) -> Call {
        let Graph { library, places, scalars, .. } = self.graph.as_ref();
        let (mut uids, mut pointers) = ([0i64; MAX_ADDRESSES], [std::ptr::null_mut::<c_void>(); MAX_ADDRESSES]);
        let of_operands = places.iter().zip(addresses).map(|(&uid, &address)| (uid, address as *mut c_void));
        let of_scalars = scalars.iter().map(|(uid, value)| (*uid, std::ptr::from_ref(value).cast_mut().cast()));
        let mut count = 0;
        for (uid, pointer) in of_operands.chain(of_scalars) {
            (uids[count], pointers[count]) = (uid, pointer);
            count += 1;
        }
        let api = &library.graphs;
        let mut pack: Desc = std::ptr::null_mut();
        // SAFETY: every pointer is valid for its call, and the caller vouches for addresses and stream.
        unsafe {
            library.use_stream(stream)?;
            api.check("cudnnBackendCreateDescriptor", (api.functions.create)(kind::PACK, &mut pack))?;
            let graph = self.graph.as_ref();
            let done = graph
                .set(pack, 1000, AttributeType::I64, &uids[..count])
                .and_then(|()| graph.set(pack, 1001, AttributeType::POINTER, &pointers[..count]))
                .and_then(|()| graph.set(pack, 1003, AttributeType::POINTER, &[workspace as *mut c_void]))
                .and_then(|()| graph.finalize(pack))
                .and_then(|()| {
                    let code = (api.functions.execute)(library.handle, self.plan, pack);
                    api.check("cudnnBackendExecute", code)
                });
            (api.functions.destroy)(pack);
            done
        }
    }
}
