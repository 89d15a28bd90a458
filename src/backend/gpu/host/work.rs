//! Operations of host streams, resolved to addresses: the work of their threads.
//!
//! Each thread processes a share of an operation's elements in chunks: it copies the operands' bytes out of memory,
//! computes in `f64` like the reference, and copies the results' bytes back. Nothing is allocated.

use std::time::{Duration, Instant};

use crate::base::{DType, Dims};
use crate::exec::{Address, ExecError};
use crate::ops::{self, Expression, Hold, Spec, Tensor};

use super::file_read::{BUFFER, FileRead, OpenFiles};

/// Number of elements that a thread computes at a time, in its buffers.
const CHUNK: usize = 512;

/// Largest number of inputs of an operation.
const MAX_INPUTS: usize = 32;

/// The work of the CPU threads for one operation.
#[derive(Debug)]
pub enum HostWork {
    /// Keeps each thread busy for this time.
    Spin(Duration),
    /// Computes each element of the outputs.
    Elements(HostExpression),
    /// Reads a part of a file.
    Read(FileRead),
}

/// An elementwise expression with the operands of one operation, resolved to addresses.
#[derive(Debug)]
pub struct HostExpression {
    expression: Expression,
    inputs: Vec<ElementWalk>,
    outputs: Vec<ElementWalk>,
    count: u64,
    /// True if the expression is the identity and types are equal, so that bytes are copied.
    copies: bool,
}

/// An operand in memory, whose elements are accessed in row-major order of the outputs' shape.
#[derive(Debug)]
struct ElementWalk {
    /// Address of the first element.
    base: u64,
    dtype: DType,
    dims: Dims,
    /// Strides in elements.
    strides: Dims,
}

/// Buffers of one thread, reused by all operations.
#[derive(Debug, Default)]
pub struct ThreadBuffers {
    bytes: Vec<u8>,
    /// Values of the inputs, [`CHUNK`] for each.
    inputs: Vec<f64>,
    /// The values of the expression's nodes.
    nodes: Vec<f64>,
    /// The blocks of a direct read; empty without one.
    blocks: Vec<u8>,
}

impl HostWork {
    /// Resolves an operation. `address` converts an address of the image to one of this process; `files` caches open
    /// files.
    pub fn of(
        spec: &Spec,
        operands: &[Address],
        address: impl Fn(Address) -> u64,
        files: &mut OpenFiles,
    ) -> Result<HostWork, ExecError> {
        if let Some(Hold::Block(time)) = spec.cost().hold {
            return Ok(HostWork::Spin(time.duration()));
        }
        if let Some(part) = ops::file_part(spec) {
            return FileRead::open(part, address(operands[0]), files).map(HostWork::Read);
        }
        let expression = spec.operation.elements(spec).expect("a host stream runs operations on elements");
        let dims = spec.outputs[0].dims;
        let walk = |(tensor, place): (&Tensor, &Address)| ElementWalk::new(tensor, dims, address(*place));
        let (from, to) = operands.split_at(spec.inputs.len());
        let inputs: Vec<ElementWalk> = spec.inputs.iter().zip(from).map(walk).collect();
        let outputs: Vec<ElementWalk> = spec.outputs.iter().zip(to).map(walk).collect();
        let copies = expression.is_identity() && inputs[0].dtype == outputs[0].dtype;
        let count = spec.outputs[0].elements();
        Ok(HostWork::Elements(HostExpression { expression, inputs, outputs, count, copies }))
    }

    /// Computes share number `share` of `shares` equal shares. The error is the reason why a file could not be read.
    ///
    /// # Safety
    ///
    /// The addresses are those of memory that lives, and threads of the CPU can access it.
    pub unsafe fn run(&self, (share, shares): (u32, u32), room: &mut ThreadBuffers) -> Result<(), String> {
        match self {
            HostWork::Spin(time) => {
                let start = Instant::now();
                while start.elapsed() < *time {
                    std::hint::spin_loop();
                }
            }
            // SAFETY: the same contract.
            HostWork::Elements(elements) => unsafe { elements.run((share, shares), room) },
            // SAFETY: the same contract.
            HostWork::Read(read) => unsafe { read.run((share, shares), &mut room.blocks)? },
        }
        Ok(())
    }
}

impl HostExpression {
    /// # Safety
    ///
    /// As for [`HostWork::run`].
    unsafe fn run(&self, (share, shares): (u32, u32), room: &mut ThreadBuffers) {
        let chunks = u128::from(self.count.div_ceil(CHUNK as u64));
        let chunk = |share: u32| (chunks * u128::from(share) / u128::from(shares)) as u64 * CHUNK as u64;
        let (mut start, end) = (chunk(share), chunk(share + 1).min(self.count));
        let ThreadBuffers { bytes, inputs, nodes, .. } = room;
        while start < end {
            let count = (end - start).min(CHUNK as u64) as usize;
            // SAFETY: the caller vouches for the addresses, and the elements lie within the tensors. The schedule orders
            // conflicting accesses; where a file permits a race, bytes are copied one way or the other.
            unsafe {
                if self.copies {
                    self.inputs[0].gather(start, count, bytes);
                    self.outputs[0].scatter(start, count, bytes);
                } else {
                    for (walk, values) in self.inputs.iter().zip(inputs.chunks_exact_mut(CHUNK)) {
                        walk.gather(start, count, bytes);
                        walk.dtype.load_all(bytes, &mut values[..count]);
                    }
                    let mut views: [&[f64]; MAX_INPUTS] = [&[]; MAX_INPUTS];
                    for (view, values) in views.iter_mut().zip(inputs.chunks_exact(CHUNK)) {
                        *view = &values[..count];
                    }
                    self.expression.evaluate(count, &views[..self.inputs.len()], nodes);
                    for (number, walk) in self.outputs.iter().enumerate() {
                        walk.dtype.store_all(self.expression.values(number, count, nodes), bytes);
                        walk.scatter(start, count, bytes);
                    }
                }
            }
            start += count as u64;
        }
    }
}

impl ElementWalk {
    fn new(tensor: &Tensor, dims: Dims, base: u64) -> ElementWalk {
        // Equal numbers of elements mean equal elements, whatever the shapes; fewer elements are broadcast.
        let same = Some(tensor.elements()) == dims.elements();
        let (dims, strides) = match same {
            true => (tensor.dims, tensor.strides),
            false => (dims, ops::broadcast_strides(tensor, dims)),
        };
        let geometry = ops::collapse(dims, &[strides]);
        ElementWalk { base, dtype: tensor.dtype, dims: geometry.dims, strides: geometry.strides[0] }
    }

    /// Divides `count` elements from index `start` on into runs of equally spaced elements, and calls `run` for each:
    /// with the address of its first element, the distance between elements in bytes, and the number of elements.
    fn equally_spaced_runs(&self, start: u64, count: usize, mut run: impl FnMut(u64, u64, usize)) {
        let size = self.dtype.size();
        let (mut at, mut left) = (start, count as u64);
        let (length, step) = match (self.dims.last(), self.strides.last()) {
            (Some(&length), Some(&step)) => (length, step),
            _ => (1, 1),
        };
        while left > 0 {
            let inner = at % length;
            let (mut outer, mut offset) = (at / length, inner * step);
            for axis in (0..self.dims.len().saturating_sub(1)).rev() {
                offset += outer % self.dims[axis] * self.strides[axis];
                outer /= self.dims[axis];
            }
            let stretch = left.min(length - inner);
            run(self.base + offset * size, step * size, stretch as usize);
            at += stretch;
            left -= stretch;
        }
    }

    /// Copies `count` elements from index `start` on from memory to `bytes`, without gaps.
    ///
    /// # Safety
    ///
    /// The elements lie in memory that lives.
    unsafe fn gather(&self, start: u64, count: usize, bytes: &mut [u8]) {
        let size = self.dtype.size() as usize;
        let mut to = bytes[..count * size].as_mut_ptr();
        self.equally_spaced_runs(start, count, |from, step, count| {
            // SAFETY: the runs together have as many elements as the slice has room for.
            unsafe {
                if step == size as u64 {
                    std::ptr::copy_nonoverlapping(from as *const u8, to, count * size);
                } else {
                    for index in 0..count {
                        let from = from + index as u64 * step;
                        std::ptr::copy_nonoverlapping(from as *const u8, to.add(index * size), size);
                    }
                }
                to = to.add(count * size);
            }
        });
    }

    /// Copies `count` elements from `bytes` to memory, from index `start` on.
    ///
    /// # Safety
    ///
    /// As for [`ElementWalk::gather`].
    unsafe fn scatter(&self, start: u64, count: usize, bytes: &[u8]) {
        let size = self.dtype.size() as usize;
        let mut from = bytes[..count * size].as_ptr();
        self.equally_spaced_runs(start, count, |to, step, count| {
            // SAFETY: as in `gather`.
            unsafe {
                if step == size as u64 {
                    std::ptr::copy_nonoverlapping(from, to as *mut u8, count * size);
                } else {
                    for index in 0..count {
                        let to = to + index as u64 * step;
                        std::ptr::copy_nonoverlapping(from.add(index * size), to as *mut u8, size);
                    }
                }
                from = from.add(count * size);
            }
        });
    }
}

impl ThreadBuffers {
    /// Allocates memory that suffices for each of these operations.
    pub fn for_all(works: &[HostWork]) -> ThreadBuffers {
        let elements = works.iter().filter_map(|work| match work {
            HostWork::Elements(elements) => Some(elements),
            _ => None,
        });
        let (mut inputs, mut nodes) = (0, 1);
        for one in elements {
            inputs = inputs.max(one.inputs.len());
            nodes = nodes.max(one.expression.nodes().len());
        }
        let is_direct = works.iter().any(|work| matches!(work, HostWork::Read(read) if read.is_direct()));
        ThreadBuffers {
            bytes: vec![0; CHUNK * 8],
            inputs: vec![0.0; inputs * CHUNK],
            nodes: Vec::with_capacity(nodes * CHUNK),
            blocks: vec![0; if is_direct { BUFFER } else { 0 }],
        }
    }
}
