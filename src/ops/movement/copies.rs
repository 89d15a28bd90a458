//! `copy`, between and within memories, and `memset`.

use super::{counted, pages};
use crate::ops::kernels::occupancy::gap_bytes;
use crate::ops::kernels::stream::MovedRows;
use crate::ops::kernels::walk;
use crate::ops::layout::collapse;
use crate::ops::*;

/// `copy(src -> dst)`.
pub struct Copy;

/// The implementation of a copy within a device, or between device and host.
enum CopyMethod {
    Engine(crate::ops::launch::CopyLaunch),
    Kernel,
}

/// Returns the spec of a copy of `bytes` bytes from the space `from` to the device.
pub fn copied(bytes: u64, from: Space) -> Spec {
    let to = Tensor { align: 1, ..Tensor::packed(DType::U8, &[bytes]) };
    Spec::new(&Copy, options("auto"), vec![Tensor { space: from, ..to }], vec![to])
}

/// True if a copy is one of contiguous memory within a device.
pub fn is_whole_copy(spec: &Spec) -> bool {
    let ([source], [target]) = (&spec.inputs[..], &spec.outputs[..]) else { return false };
    let is_whole = pages::indices(&spec.attrs).is_none() && source.contiguous() && target.contiguous();
    is_whole && direction(source, target) == Some(Direction::DeviceToDevice)
}

/// Options of a copy that the program inserts, with this value of `via`.
pub(in crate::ops) fn options(via: &'static str) -> Attrs {
    Attrs::of([("via", Attr::Word(via)), ("indices", Attr::Absent), ("back", Attr::Bool(false))])
}

fn direction(source: &Tensor, target: &Tensor) -> Option<Direction> {
    match (source.space.in_host(), target.space.in_host()) {
        (false, false) => Some(Direction::DeviceToDevice),
        (true, false) => Some(Direction::HostToDevice),
        (false, true) => Some(Direction::DeviceToHost),
        (true, true) => None,
    }
}

/// Shape and strides over which a kernel copies; `None` if the shapes differ and a dimension of one tensor spans a gap
/// of the other.
fn walk(source: &Tensor, target: &Tensor) -> Option<(Dims, [Dims; 2])> {
    if source.dims == target.dims {
        return Some((target.dims, [target.strides, source.strides]));
    }
    let as_target = reshaped(source, target.dims).map(|strides| (target.dims, [target.strides, strides]));
    let as_source = || reshaped(target, source.dims).map(|strides| (source.dims, [strides, source.strides]));
    as_target.or_else(|_| as_source()).ok()
}

/// Returns the copy as rows of contiguous bytes, the form that copy engines support; `None` if more than one stride is
/// needed.
fn rows(source: &Tensor, target: &Tensor, direction: Direction) -> Option<crate::ops::launch::CopyLaunch> {
    let (dims, strides) = walk(source, target)?;
    let geometry = collapse(dims, &strides);
    let size = target.dtype.size();
    let (row, rows, pitches) = match (&*geometry.dims, &*geometry.strides[0], &*geometry.strides[1]) {
        ([], ..) => (1, 1, (1, 1)),
        (&[n], [1], [1]) => (n, 1, (n, n)),
        (&[n], &[to], &[from]) => (1, n, (to, from)),
        (&[rows, n], &[to, 1], &[from, 1]) => (n, rows, (to, from)),
        _ => return None,
    };
    Some(crate::ops::launch::CopyLaunch {
        source: 0,
        target: 1,
        source_offset: 0,
        target_offset: 0,
        direction,
        pageable: source.space == Space::Host || target.space == Space::Host,
        engine: false,
        row_bytes: row * size,
        rows,
        source_pitch: pitches.1 * size,
        target_pitch: pitches.0 * size,
    })
}

/// Returns the implementation that the option `via` permits for these tensors; `None` if there is none.
fn way(via: &str, source: &Tensor, target: &Tensor) -> Option<CopyMethod> {
    let rows = rows(source, target, direction(source, target)?);
    let reachable = source.space.on_device() && target.space.on_device() && walk(source, target).is_some();
    match (via, rows) {
        ("kernel", _) => reachable.then_some(CopyMethod::Kernel),
        (_, Some(copy)) => Some(CopyMethod::Engine(crate::ops::launch::CopyLaunch { engine: via == "dma", ..copy })),
        ("auto", None) => reachable.then_some(CopyMethod::Kernel),
        _ => None,
    }
}

impl Operation for Copy {
    fn elements(&self, spec: &Spec) -> Option<Expression> {
        RowCounts::of(spec).is_none().then(Expression::identity)
    }

    signature! {
        name: "copy",
        summary: "copies a tensor within or between device and host memory; the buffers determine the direction",
        category: Category::Copy,
        inputs: &[Input::Tensor("src"), Input::Optional("counts")],
        outputs: &["dst"],
        options: &[
            OptionSpec::word(
                "via",
                &["auto", "dma", "kernel"],
                "a copy engine, a kernel, or the faster of both: a kernel within a device and where the runtime cannot make the copy, else the runtime's copy",
            ),
            pages::INDICES,
            counted::BACK,
        ],
    }

    fn properties(&self) -> &'static [Property] {
        &[Property::OnHost, Property::WritesToPeers]
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        let source = &call.inputs[0];
        let list = pages::indices(call.attrs);
        if counted::has_counts(call)? {
            if list.is_some() || call.attrs.word("via") == "dma" {
                let (option, why) = if list.is_some() {
                    ("indices", "counts say which rows go")
                } else {
                    ("via", "an engine reads no counts")
                };
                return Err(call.bad_option(option, why.to_owned(), format!("remove `{option}`")));
            }
            return counted::infer(call);
        }
        let copied = match list {
            Some(list) => pages::infer(call, list)?,
            None => source.tensor.dims,
        };
        let Some(target) = call.outputs[0] else {
            return Ok(vec![(source.tensor.dtype, copied)]);
        };
        let (from, to) = (&source.tensor, &target.tensor);
        if list.is_some() {
            call.output(0, from.dtype, copied)?;
        } else if from.dtype != to.dtype || from.elements() != to.elements() {
            let expected = format!("{} of {}", crate::base::counted(from.elements() as usize, "element"), from.dtype);
            return Err(call.bad_output(&target, expected, collectives::in_elements(to)));
        }
        if direction(from, to).is_none() {
            return Err(OpError::Differ {
                op: "copy",
                left: format!("is in `{}`", from.space.name()),
                left_at: source.span.into(),
                right: format!("is in `{}`", to.space.name()),
                right_at: target.span.into(),
                help: "both are in host memory: declare one of them `in device`".to_owned(),
            });
        }
        let via = call.attrs.word("via");
        let possible = match list {
            Some(list) => pages::runs(list, from, to).iter().all(|part| way(via, &part.source, &part.target).is_some()),
            None => way(via, from, to).is_some(),
        };
        if !possible {
            if via == "kernel" && [from, to].iter().any(|tensor| !tensor.space.on_device()) {
                let host = if from.space == Space::Host { source } else { &target };
                return Err(call.bad_space(host, "a kernel reaches `pinned` memory: declare the buffer `in pinned`"));
            }
            let help = match walk(from, to) {
                Some(_) => {
                    "a copy engine moves rows at equal distances: take a slice with fewer gaps, \
                     or `via: kernel` where neither side is in `host`"
                }
                None => {
                    "the shapes differ, and one side has gaps within a dimension of the other: copy slices of one shape"
                }
            };
            return Err(call.gaps(if from.contiguous() { &target } else { source }, help));
        }
        Ok(vec![(to.dtype, to.dims)])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        let (source, target) = (&spec.inputs[0], &spec.outputs[0]);
        if let Some(counted) = RowCounts::of(spec) {
            let rows = Traffic::of(Space::Device, counted.usual_bytes(source.dtype));
            let read = rows + Traffic::of(Space::Device, spec.inputs[1].bytes());
            return Cost {
                read,
                written: rows,
                blocks: rows.device.div_ceil(1 << 14).max(1),
                share: 4,
                ..Cost::default()
            };
        }
        let bytes = target.bytes();
        let blocks = match by_kernel(spec) {
            true => target.elements().div_ceil(1024).max(1),
            false => 0,
        };
        let counts_on = |tensor: &Tensor, other: &Tensor| match (tensor.space.in_host(), other.space.in_host()) {
            (false, true) => Traffic::NONE,
            _ => Traffic::of(tensor.space, bytes),
        };
        let (read, written) = (counts_on(source, target), counts_on(target, source));
        let walk::Work { sectors, instructions, .. } = work(spec);
        let gaps = gap_bytes(source, false) + gap_bytes(target, true);
        Cost { read, written, moved: gaps, blocks, sectors, instructions, share: 4, ..Cost::default() }
    }

    fn live_rows(&self, spec: &Spec, facts: &[Option<RowFact>]) -> LiveOperation {
        match RowCounts::of(spec) {
            Some(counted) => LiveOperation::exchanged(&spec.inputs[0], facts, &spec.outputs, counted.ranks),
            None => LiveOperation::of_rows(spec, facts, 1),
        }
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let rank = spec.team.rank;
        match pages::indices(&spec.attrs) {
            _ if inputs.len() > 1 => {
                let counted = RowCounts::of(spec).expect("an input counts the rows");
                counted.copy(inputs[1], (rank, inputs[0]), (rank, &mut outputs[0]));
            }
            Some(list) => pages::copy(list, inputs[0], &mut outputs[0]),
            None => outputs[0].copy_from_slice(inputs[0]),
        }
    }

    fn check(&self, spec: &Spec, inputs: &[&[f64]], before: PriorOutputs, actual: &[Vec<f64>]) -> Vec<Check> {
        let mut expected = before();
        self.reference(spec, inputs, &mut expected);
        check::compare_all(spec, actual, &expected, &check::exactly(&expected))
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        if pages::indices(&spec.attrs).is_some() || RowCounts::of(spec).is_some() {
            return None;
        }
        check::same_elements(spec)
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let (source, target) = (&spec.inputs[0], &spec.outputs[0]);
        if let Some(counted) = RowCounts::of(spec) {
            return vec![counted::kernel(spec, &counted, (spec.team.rank, spec.team.rank))];
        }
        match pages::indices(&spec.attrs) {
            Some(list) if by_kernel(spec) => pages::kernels(list, source, target),
            Some(list) => pages::runs(list, source, target).into_iter().map(|part| engine(spec, &part)).collect(),
            None => vec![launch(spec, within(spec, source, target))],
        }
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        if pages::indices(&rule.spec.attrs).is_some() {
            return Err("a copy of pages has no gradient yet: `gather` has one");
        }
        if RowCounts::of(rule.spec).is_some() {
            return backward::counted(rule, "copy");
        }
        backward::same_elements(rule)
    }
}

/// True if kernels make a copy that is not to another rank. All pages of a copy are made in the same way.
fn by_kernel(spec: &Spec) -> bool {
    let (source, target) = (&spec.inputs[0], &spec.outputs[0]);
    match pages::indices(&spec.attrs) {
        Some(list) => {
            let is_kernel =
                |part: &pages::PageRun| matches!(within(spec, &part.source, &part.target), CopyMethod::Kernel);
            pages::runs(list, source, target).iter().any(is_kernel)
        }
        None => matches!(within(spec, source, target), CopyMethod::Kernel),
    }
}

/// Work of the kernel that makes the copy; none if a kernel copies pages or the runtime makes it.
fn work(spec: &Spec) -> walk::Work {
    let (source, target) = (&spec.inputs[0], &spec.outputs[0]);
    if pages::indices(&spec.attrs).is_some() || !by_kernel(spec) {
        return walk::Work::default();
    }
    let (dims, strides) = walk(source, target).expect("a way was found along it");
    match MovedRows::of(spec, dims, &strides) {
        Some(rows) => rows.work(spec),
        None => walk::work(&[walk::task(&Expression::identity(), dims, &strides, spec)]),
    }
}

/// Returns the runtime's copy of a run of pages.
fn engine(spec: &Spec, part: &pages::PageRun) -> Launch {
    match within(spec, &part.source, &part.target) {
        CopyMethod::Engine(copy) => {
            let (source_offset, target_offset) = (part.source_offset, part.target_offset);
            Launch::Copy(crate::ops::launch::CopyLaunch { source_offset, target_offset, ..copy })
        }
        CopyMethod::Kernel => unreachable!("kernels copy all pages if one of them needs a kernel"),
    }
}

/// Returns the implementation of a copy that is not to another rank. With `via: auto`, kernels copy within a device. The runtime's own
/// copy kernels reach half of the bandwidth for several rows, and 0.8 of it for 1 GiB (docs/measurements/2026-11-27-late-seeds.md).
fn within(spec: &Spec, source: &Tensor, target: &Tensor) -> CopyMethod {
    let via = spec.attrs.word("via");
    match way(via, source, target).expect("`infer` refuses what no way can do") {
        CopyMethod::Engine(copy) if via == "auto" && copy.direction == Direction::DeviceToDevice => CopyMethod::Kernel,
        way => way,
    }
}

fn launch(spec: &Spec, way: CopyMethod) -> Launch {
    let (source, target) = (&spec.inputs[0], &spec.outputs[0]);
    match way {
        CopyMethod::Engine(copy) => Launch::Copy(copy),
        CopyMethod::Kernel => {
            let (dims, strides) = walk(source, target).expect("a way was found along it");
            MovedRows::of(spec, dims, &strides)
                .map(|rows| rows.launch("copy", spec))
                .unwrap_or_else(|| walk::launch("copy", &Expression::identity(), dims, &strides, spec))
        }
    }
}

/// Returns the launch of a copy to another rank. A kernel needs direct access to the other device, so `via: auto`
/// selects it only if the runtime cannot make the copy.
pub fn launch_to_peer(spec: &Spec) -> Launch {
    let way = way(spec.attrs.word("via"), &spec.inputs[0], &spec.outputs[0]);
    launch(spec, way.expect("`infer` refuses what no way can do"))
}

/// `memset(value -> x)`.
pub struct Memset;

impl Operation for Memset {
    signature! {
        name: "memset",
        summary: "sets every byte to one value by the runtime's memset",
        category: Category::Copy,
        inputs: &[Input::Scalar(OptionSpec::required("value", OptionType::Int(0, 255), "the byte"))],
        outputs: &["x"],
        options: &[],
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_device()?;
        let Some(output) = call.outputs[0] else {
            return Err(call.no_output("write `memset(0 -> x)`"));
        };
        if !output.tensor.contiguous() {
            return Err(call.gaps(&output, "`fill(0 -> x)` writes slices with gaps"));
        }
        Ok(vec![(output.tensor.dtype, output.tensor.dims)])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        spec.streaming_cost(0.0, 4096)
    }

    fn reference(&self, spec: &Spec, _: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let value = spec.attrs.int("value") as u8;
        outputs[0].fill(spec.outputs[0].dtype.load(&[value; 8]));
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        vec![Launch::Memset { operand: 0, value: spec.attrs.int("value") as u8, bytes: spec.outputs[0].bytes() }]
    }

    fn backward(&self, _: &mut Backward) -> Result<(), NoRule> {
        Ok(())
    }
}
