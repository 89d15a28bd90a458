//! Chooses the vendor's algorithm for each matrix product.
//!
//! The algorithms that the library proposes are timed on the operations' own operands, concurrently on every stream
//! that has the product: the fastest alone is not always the fastest where products overlap.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::path::Path;

use crate::backend::gpu::api::runtime::{Event, Stream};
use crate::backend::gpu::api::{Addresses, Api, Call};
use crate::backend::gpu::prepare::disk_cache;
use crate::backend::gpu::prepare::lower::{Args, Calls, Context, ImageProduct, Prepared, ProductUse, Products};
use crate::base::{Nanos, counted};
use crate::exec::{DeviceInfo, ExecError, Fault, ImageOp};
use crate::ops::{Arithmetic, Gemm, Launch, Matrix};

use super::final_choice;

/// Number of products up to which each is timed, which takes up to 0.1 s for a product of 1 ms. A workload whose sizes
/// are drawn has hundreds of products; then one of each class is timed, and the others take its algorithm.
const MAX_TIMED: usize = 64;

/// Addition to a note if a kernel computes the epilogue.
const SEPARATE_EPILOGUE: &str = ", its epilogue by a kernel";

/// An algorithm that the library proposes.
struct Candidate<A: Api> {
    algorithm: A::Product,
    /// True if a kernel computes the epilogue.
    split: bool,
}

/// The chosen algorithm of a product.
pub struct ProductChoice<A: Api> {
    pub product: A::Product,
    /// True if a kernel computes the epilogue.
    pub split: bool,
    /// Note on the choice for the record; `None` if there was nothing to choose.
    pub note: Option<String>,
}

/// The device, streams and memory with which algorithms are timed.
pub struct Chooser<'a, A: Api> {
    pub api: &'a A,
    pub streams: &'a [Stream],
    /// For each lane, address and size in bytes of the workspace of its products.
    pub workspaces: &'a [(u64, u64)],
    /// Number of algorithms that are timed for each product.
    pub candidates: u32,
    /// Folder in which choices are kept; `None` if they are not kept.
    pub kept: Option<&'a Path>,
    /// Description of device, driver and library, on which a kept choice depends besides the product. Set at the first
    /// use.
    pub machine: OnceCell<String>,
    /// Kernels and products that a library call can replace.
    pub alternatives: &'a [Prepared],
    /// Arguments of all kernels.
    pub args: &'a Args,
    /// The chosen algorithm of each product, once all are chosen; `None` if the library has none for a product that is not required.
    pub chosen: Vec<Option<ProductChoice<A>>>,
    /// Timed event before a run.
    pub from: Event,
    /// Timed event after a run.
    pub to: Event,
    /// Event without a timestamp that orders streams.
    pub order: Event,
}

/// Alignment in bytes of the library's part of a lane's workspace, which follows the operation's own data.
const ALIGN: u64 = 256;

/// Bytes at the start of a lane's workspace that an operation's kernels and products use for their own data; `None` if
/// no product has a matrix in the workspace.
pub fn reserved(launches: &[Launch]) -> Option<u64> {
    let uses = |launch: &Launch| match launch {
        Launch::Gemm(gemm, _) => gemm.uses_workspace(),
        Launch::Conv(_, _, Some(products)) => products.gemms.iter().any(Gemm::uses_workspace),
        _ => false,
    };
    let bytes = launches.iter().map(Launch::workspace).max().unwrap_or(0);
    launches.iter().any(uses).then_some(bytes.next_multiple_of(ALIGN))
}

impl<A: Api> Context<'_, A> {
    /// Resolves a matrix product, and returns its index in [`Calls::products`] with its call. Products that differ only in their
    /// addresses share an algorithm.
    pub fn multiply(
        &self,
        gemm: &Gemm,
        op: &ImageOp,
        operands: &[u64],
        calls: &mut Calls<A>,
        products: &mut Products,
    ) -> (u32, Prepared) {
        let (lane, at) = (op.lane, |operand: u8| operands[usize::from(operand)]);
        let (own, bytes) = self.workspaces[lane as usize];
        let reserved = match gemm.uses_workspace() {
            true => reserved(&self.image.works[op.work as usize].launches).unwrap_or(0),
            false => 0,
        };
        let base = |operand: u8| if operand == Matrix::WORKSPACE { own } else { at(operand) };
        let address = |matrix: &Matrix| base(matrix.operand) + matrix.offset * matrix.dtype.size();
        let bias = gemm.epilogue.and_then(|epilogue| epilogue.bias);
        let operands = Addresses {
            a: address(&gemm.a),
            b: address(&gemm.b),
            c: address(&gemm.c),
            bias: bias.map_or(0, at),
            scales: gemm
                .scales
                .map_or([0; 2], |scales| [0, 1].map(|of| base(scales.operands[of]) + scales.offsets[of])),
        };
        let mut key = gemm.clone();
        for matrix in [&mut key.a, &mut key.b, &mut key.c] {
            matrix.offset = 0;
        }
        if let Some(scales) = &mut key.scales {
            scales.offsets = [0; 2];
        }
        let product = *products.entry((key.clone(), reserved)).or_insert_with(|| {
            calls.products.push(ImageProduct { gemm: key, reserved, uses: Vec::new(), is_required: false });
            calls.products.len() as u32 - 1
        });
        let uses = &mut calls.products[product as usize].uses;
        if !uses.iter().any(|known| known.lane == lane) {
            uses.push(ProductUse { operands, lane, epilogue: None });
        }
        let workspace = (own + reserved, bytes.saturating_sub(reserved));
        (product, Prepared::Multiply { product, operands, workspace, stream: self.streams[lane as usize] })
    }
}

impl<A: Api> Chooser<'_, A> {
    /// Chooses an algorithm for each product; `None` for one that is not required and that the library does not compute.
    /// Calls `done` after each choice.
    pub fn choose_products(
        &self,
        all: &[ImageProduct],
        done: &dyn Fn(),
    ) -> Result<Vec<Option<ProductChoice<A>>>, ExecError> {
        let mut chosen: Vec<Option<ProductChoice<A>>> = Vec::with_capacity(all.len());
        // For each class, the index of its timed product, and the number of others that take over its algorithm.
        let mut classes: HashMap<(Gemm, u64, Vec<u32>), (usize, usize)> = HashMap::new();
        let required = all.iter().filter(|product| product.is_required).count();
        for (index, product) in all.iter().enumerate() {
            let count = if product.is_required { required } else { all.len() };
            let lanes = product.uses.iter().map(|one| one.lane).collect();
            let class = classes.entry((class(&product.gemm), product.reserved, lanes)).or_insert((index, 0));
            // The entry of a timed product is its own, and it is not in the list yet.
            let timed = chosen.get(class.0).filter(|_| count > MAX_TIMED);
            let taken = timed.and_then(Option::as_ref).and_then(|timed| self.take_over(product, timed));
            class.1 += usize::from(taken.is_some());
            chosen.push(match taken {
                Some(taken) => Some(taken),
                None => match self.choose(product) {
                    Err(_) if !product.is_required => None,
                    chosen => Some(chosen?),
                },
            });
            done();
        }
        for (timed, others) in classes.into_values().filter(|(_, others)| *others > 0) {
            if let Some(note) = chosen[timed].as_mut().and_then(|chosen| chosen.note.as_mut()) {
                *note += &format!("; likewise {} of similar sizes", counted(others, "other product"));
            }
        }
        Ok(chosen)
    }

    /// Returns the algorithm that was chosen for another product of the same class; `None` if the library does not propose
    /// it for this one.
    fn take_over(&self, product: &ImageProduct, other: &ProductChoice<A>) -> Option<ProductChoice<A>> {
        let same = |one: &Candidate<A>| one.split == other.split && A::same_algorithm(&one.algorithm, &other.product);
        let Candidate { algorithm, split } = self.candidates(product).ok()?.into_iter().find(same)?;
        Some(ProductChoice { product: algorithm, split, note: None })
    }

    /// Chooses the algorithm of a product.
    fn choose(&self, product: &ImageProduct) -> Result<ProductChoice<A>, ExecError> {
        let gemm = &product.gemm;
        let mut candidates = self.candidates(product)?;
        let count = candidates.len();
        let kept = self.kept.filter(|_| count > 1).map(|folder| {
            let splits: String = candidates.iter().map(|candidate| if candidate.split { 's' } else { 'w' }).collect();
            let lanes: Vec<u64> = product.uses.iter().map(|one| self.workspaces[one.lane as usize].1).collect();
            let what = format!("{gemm:?} {} {lanes:?} {splits}", product.reserved);
            disk_cache::path(folder, &[self.machine(), &what], "choice")
        });
        if let Some(choice) = kept.as_deref().and_then(StoredChoice::read).filter(|choice| choice.place < count) {
            let Candidate { algorithm, split } = candidates.swap_remove(choice.place);
            let note = self.note(product, split, (choice.place, count), &format!("{} when it was chosen", choice.time));
            return Ok(ProductChoice { product: algorithm, split, note: Some(note) });
        }
        if count == 1 {
            let Candidate { algorithm, split } = candidates.swap_remove(0);
            let note = split.then(|| format!("product {}{SEPARATE_EPILOGUE}", describe(gemm)));
            return Ok(ProductChoice { product: algorithm, split, note });
        }
        let mut failed = None;
        let mut times = Vec::new();
        for (place, candidate) in candidates.iter().enumerate() {
            match self.time(candidate, product) {
                Ok(time) => times.push((place, time)),
                // An algorithm that fails is skipped; it is an error only if all fail.
                Err(fault) => failed = failed.or(Some(fault)),
            }
        }
        let lanes: Vec<u32> = product.uses.iter().map(|one| one.lane).collect();
        let finals = self.time_again(&lanes, times, &|place, number, stream| {
            self.issue_product(&candidates[place], &product.uses[number], product.reserved, stream)
        });
        let what = describe(gemm);
        match (final_choice::best(&finals), failed) {
            (Some((place, time)), _) => {
                disk_cache::store(kept.as_deref(), &StoredChoice { place, time }.packed());
                let Candidate { algorithm, split } = candidates.swap_remove(place);
                let note = self.note(product, split, (place, count), &time.to_string());
                Ok(ProductChoice { product: algorithm, split, note: Some(note) })
            }
            (None, Some(fault)) if count > 0 => {
                let Candidate { algorithm, split } = candidates.swap_remove(0);
                let epilogue = epilogue(gemm, split);
                let note =
                    format!("product {what}{epilogue}: algorithm 1 of {count}, since none could be timed: {fault}");
                Ok(ProductChoice { product: algorithm, split, note: Some(note) })
            }
            _ => Err(ExecError::Device {
                fault: format!("the library has no algorithm for a product of {what}"),
                help: Some(match gemm.arithmetic {
                    Arithmetic::F8 | Arithmetic::I8 => {
                        "libraries multiply 8-bit matrices of which not both are `e5m2`, by factors of blocks only for a multiple of \
                         4 rows; if batches have gaps between them, with `transpose_b: true` without `transpose_a` and rows of \
                         multiples of 16 bytes; MI300X multiplies only AMD's `fnuz` formats; f16 holds all of their values"
                            .to_owned()
                    }
                    _ => "try another element type, or sizes that are multiples of 8".to_owned(),
                }),
            }),
        }
    }

    /// Formats the note on a choice: algorithm number `place` of `count`.
    fn note(&self, product: &ImageProduct, split: bool, (place, count): (usize, usize), time: &str) -> String {
        let streams = match product.uses.len() {
            1 => "alone".to_owned(),
            streams => format!("on {streams} streams at once"),
        };
        let (what, epilogue) = (describe(&product.gemm), epilogue(&product.gemm, split));
        format!("product {what}{epilogue}: algorithm {} of {count}, {time} {streams}", place + 1)
    }

    /// Description of device, driver and libraries.
    pub fn machine(&self) -> &str {
        self.machine.get_or_init(|| machine(&self.api.device()))
    }

    /// The algorithms that are timed: those that compute the epilogue too, then those that leave it to a kernel.
    fn candidates(&self, product: &ImageProduct) -> Result<Vec<Candidate<A>>, ExecError> {
        let gemm = &product.gemm;
        let workspace = self.workspaces[product.uses[0].lane as usize].1.saturating_sub(product.reserved);
        let made = |split: bool| move |algorithm| Candidate { algorithm, split };
        if gemm.epilogue.is_none() {
            let found = self.api.products(gemm, workspace, self.candidates)?;
            return Ok(found.into_iter().map(made(false)).collect());
        }
        // A library without an algorithm for the epilogue may return an error.
        let whole = self.api.products(gemm, workspace, self.candidates).unwrap_or_default();
        let mut all: Vec<Candidate<A>> = whole.into_iter().map(made(false)).collect();
        if self.candidates > 1 || all.is_empty() {
            let plain = Gemm { epilogue: None, ..gemm.clone() };
            match self.api.products(&plain, workspace, self.candidates) {
                Ok(found) => all.extend(found.into_iter().map(made(true))),
                Err(error) if all.is_empty() => return Err(error),
                Err(_) => {}
            }
        }
        Ok(all)
    }

    /// Median time of one execution of a product when it runs on all of its lanes concurrently.
    fn time(&self, candidate: &Candidate<A>, product: &ImageProduct) -> Call<Nanos> {
        let Gemm { m, n, k, batch, .. } = product.gemm;
        let lanes: Vec<u32> = product.uses.iter().map(|one| one.lane).collect();
        self.time_lanes(&lanes, 2.0 * m as f64 * n as f64 * k as f64 * batch as f64, &|number, stream| {
            self.issue_product(candidate, &product.uses[number], product.reserved, stream)
        })
    }

    /// Issues a use of a product, whose operation has this many bytes at the start of the workspace.
    fn issue_product(&self, candidate: &Candidate<A>, product: &ProductUse, reserved: u64, stream: Stream) -> Call {
        let ProductUse { operands, lane, epilogue } = *product;
        // SAFETY: the operands are the operations' own, in memory that nothing else uses now.
        unsafe {
            let (workspace, bytes) = self.workspaces[lane as usize];
            let own = (workspace + reserved, bytes.saturating_sub(reserved));
            self.api.multiply(&candidate.algorithm, operands, own, stream)?;
        }
        match epilogue.filter(|_| candidate.split) {
            Some(kernel) => self.alternative(&self.alternatives[kernel as usize], stream),
            None => Ok(()),
        }
    }

    /// Issues a kernel, or a product whose algorithm is chosen, on a stream.
    pub fn alternative(&self, call: &Prepared, stream: Stream) -> Call {
        match *call {
            Prepared::Kernel { function, grid, block, shared, args, .. } => {
                // SAFETY: the function is loaded, and the arguments are those of an operation of the image.
                unsafe { self.api.launch(function, grid, block, shared, stream, self.args.pointers(args)) }
            }
            Prepared::Multiply { product, operands, workspace, .. } => {
                let Some(ProductChoice { product, .. }) = &self.chosen[product as usize] else {
                    return Err(Fault::new("multiply", "the library has no algorithm for a product"));
                };
                // SAFETY: the operands are those of an operation of the image, in memory that nothing else uses now.
                unsafe { self.api.multiply(product, operands, workspace, stream) }
            }
            _ => Ok(()),
        }
    }
}

/// Addition to a note that says how the epilogue is computed; empty without an epilogue.
fn epilogue(gemm: &Gemm, split: bool) -> &'static str {
    match (split, gemm.epilogue) {
        (true, _) => SEPARATE_EPILOGUE,
        (false, Some(_)) => ", with its epilogue",
        (false, None) => "",
    }
}

/// The device and the versions of the driver and of libraries.
fn machine(device: &DeviceInfo) -> String {
    let decides = ["architecture", "cuda", "hip", "driver", "cublaslt", "hipblaslt", "rocblas"];
    let facts = device.facts.iter().filter(|(name, _)| decides.contains(&name.as_str()));
    let facts: Vec<String> = facts.map(|(name, value)| format!("{name} {value}")).collect();
    format!("{} {:?} {}", device.name, device.units, facts.join(", "))
}

/// A choice among the proposals of a library, as it is kept on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredChoice {
    /// Index among the library's proposals; for attention, the number of an engine.
    pub place: usize,
    /// Measured time of the chosen algorithm.
    pub time: Nanos,
}

impl StoredChoice {
    /// Returns the bytes that the cache on disk stores.
    pub fn packed(self) -> Vec<u8> {
        [(self.place as u64).to_le_bytes(), self.time.0.to_le_bytes()].concat()
    }

    fn unpacked(bytes: &[u8]) -> Option<StoredChoice> {
        let (place, time) = bytes.split_first_chunk::<8>()?;
        let time = Nanos(i64::from_le_bytes(time.try_into().ok()?));
        Some(StoredChoice { place: usize::try_from(u64::from_le_bytes(*place)).ok()?, time })
    }

    /// The choice in a file of the cache; `None` if it is missing, damaged, or of another product.
    pub fn read(path: &Path) -> Option<StoredChoice> {
        StoredChoice::unpacked(&disk_cache::read(path)?)
    }
}

/// Returns a product with each size rounded up by at most an eighth, and with an alignment instead of each stride.
/// Products with equal classes differ little in how fast each algorithm computes them.
fn class(gemm: &Gemm) -> Gemm {
    // Limits the alignment to 16 elements, which have at least 16 bytes: the longest load.
    let alignment = |stride: u64| if stride == 0 { 0 } else { 1 << stride.trailing_zeros().min(4) };
    let size = |size: u64| size.next_multiple_of((size.next_power_of_two() / 16).max(1));
    let mut class = gemm.clone();
    for size_of in [&mut class.m, &mut class.n, &mut class.k, &mut class.batch] {
        *size_of = size(*size_of);
    }
    for matrix in [&mut class.a, &mut class.b, &mut class.c] {
        (matrix.row, matrix.batch) = (alignment(matrix.row), alignment(matrix.batch));
    }
    class
}

fn describe(gemm: &Gemm) -> String {
    let batch = if gemm.batch > 1 { format!("{} × ", gemm.batch) } else { String::new() };
    format!("{batch}[{}, {}] × [{}, {}] {}", gemm.m, gemm.k, gemm.k, gemm.n, gemm.arithmetic.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::DType;

    #[test]
    fn a_choice_of_another_form_is_ignored() {
        let choice = StoredChoice { place: 3, time: Nanos(12_345) };
        let bytes = choice.packed();
        assert_eq!(StoredChoice::unpacked(&bytes), Some(choice));
        for length in 0..bytes.len() {
            assert_eq!(StoredChoice::unpacked(&bytes[..length]), None, "cut to {length}");
        }
        assert_eq!(StoredChoice::unpacked(&[&bytes[..], &[0]].concat()), None);
    }

    #[test]
    fn sizes_of_a_class_differ_by_at_most_an_eighth() {
        let matrix =
            |row| Matrix { operand: 0, offset: 0, dtype: DType::F32, row, transposed: false, batch: 0, align: 16 };
        let gemm = |m: u64, row: u64| Gemm {
            m,
            n: 24,
            k: 8,
            batch: 1,
            a: matrix(row),
            b: matrix(24),
            c: matrix(24),
            arithmetic: Arithmetic::F32,
            accumulate: false,
            epilogue: None,
            scales: None,
        };
        for m in 1..5000 {
            let rounded = class(&gemm(m, 8)).m;
            assert!(m <= rounded && 8 * rounded <= 9 * m, "{m}: {rounded}");
        }
        assert_eq!(class(&gemm(65, 48)), class(&gemm(70, 16)));
        // Rows that are not aligned alike are loaded in another way.
        assert_ne!(class(&gemm(65, 48)), class(&gemm(70, 9)));
    }
}
