//! `read`: reads elements of a file, on host streams.

use std::sync::Arc;

use crate::base::units::Dimension;

use crate::ops::*;

/// Maximum offset in a file. Options are `f64`, which represents all integers up to this one.
const LARGEST: f64 = (1u64 << 53) as f64;

/// The part of a file that a call of `read` reads.
#[derive(Clone, Debug)]
pub struct FilePart {
    pub file: Arc<DataFile>,
    /// Offset in bytes.
    pub offset: u64,
    pub bytes: u64,
    /// True to bypass the system's page cache.
    pub direct: bool,
}

/// `read(file -> x)`.
pub struct Read;

/// Part of a file that a spec reads; `None` for any other operation.
pub fn file_part(spec: &Spec) -> Option<FilePart> {
    if spec.operation.name() != Read.name() {
        return None;
    }
    let file = spec.attrs.file("file")?.clone();
    let (offset, direct) = (spec.attrs.number("offset") as u64, spec.attrs.bool("direct"));
    Some(FilePart { file, offset, bytes: spec.outputs[0].bytes(), direct })
}

impl Operation for Read {
    signature! {
        name: "read",
        summary: "reads elements from a binary file in little-endian order; runs on host streams only",
        category: Category::Copy,
        inputs: &[Input::Scalar(OptionSpec::required(
            "file",
            OptionType::File,
            "the path of a file that ends in `.bin`, from the folder of the workload or below it, in quotes",
        ))],
        outputs: &["x"],
        options: &[
            OptionSpec::quantity("offset", Dimension::BYTES, 0.0, "offset of the first element in the file"),
            OptionSpec::bool("direct", false, "bypass the page cache (`O_DIRECT`)"),
        ],
    }

    fn properties(&self) -> &'static [Property] {
        &[Property::OnHost, Property::HostOnly]
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        let Some(output) = call.outputs[0] else {
            let help = "write `read(\"tokens.bin\" -> x)`";
            return Err(call.no_output(help));
        };
        if !output.tensor.contiguous() {
            let help = "read into a slice without gaps, and `copy` from there";
            return Err(call.gaps(&output, help));
        }
        let offset = call.attrs.number("offset");
        if !(0.0..=LARGEST).contains(&offset) || offset.fract() != 0.0 {
            let why = format!("{offset} bytes are no place in a file");
            return Err(call.bad_option("offset", why, "write a whole number of bytes from 0: `offset: 4KiB`"));
        }
        let (begin, bytes) = (offset as u64, output.tensor.bytes());
        let size = call.attrs.file("file").map_or(0, |file| file.bytes);
        if begin.saturating_add(bytes) > size {
            let why = format!("{bytes} bytes from byte {begin} on are read, and the file has {size}");
            return Err(call.bad_option(
                "file",
                why,
                "read fewer elements or from an earlier `offset`, or write a longer file",
            ));
        }
        Ok(vec![(output.tensor.dtype, output.tensor.dims)])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        Cost { written: Traffic::of(Space::Host, spec.outputs[0].bytes()), ..Cost::default() }
    }

    fn reference(&self, spec: &Spec, _: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let Some(part) = file_part(spec) else { return };
        let dtype = spec.outputs[0].dtype;
        let mut bytes = vec![0; part.bytes as usize];
        // The size was checked before. If the file has changed since then, there is no correct result.
        match (part.file.read)(&part.file.path, part.offset, &mut bytes) {
            Ok(()) => dtype.load_all(&bytes, &mut outputs[0]),
            Err(_) => outputs[0].fill(f64::NAN),
        }
    }

    fn launch(&self, _: &Spec) -> Vec<Launch> {
        // No launch: the operation runs on host streams only.
        Vec::new()
    }
}
