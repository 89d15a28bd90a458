//! Kernels that a file declares, with the values of a call.

use std::sync::Arc;

use crate::base::{DType, Nanos, SrcSpan};

use super::kernels::compiled::Resources;
use super::kernels::kernel::TYPES;
use super::launch::KernelSource;
use super::{Spec, Tensor};

/// A declared kernel with the values of one call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UserKernel {
    /// The name of the declaration.
    pub name: Arc<str>,
    pub code: Arc<KernelCode>,
    /// Size of the grid in blocks: x, y, z.
    pub grid: [u32; 3],
    /// Size of a block in threads: x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared: u32,
    /// Arguments in the order of the entry's parameters.
    pub args: Vec<KernelArgument>,
    /// Names of the outputs.
    pub outputs: Arc<[String]>,
    /// Arithmetic operations of one execution.
    pub flops: u64,
    /// Bytes moved by one execution; `None` if it reads each input and writes each output once.
    pub bytes: Option<u64>,
    /// Duration on a whole device, for the simulator; `None` if it follows from `flops` and `bytes`.
    pub time: Option<Nanos>,
    pub reference: Option<Box<Reference>>,
}

/// The code of a declared kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelCode {
    /// The complete text for the compiler.
    pub source: Arc<KernelSource>,
    /// Required declaration of the entry, for messages.
    pub head: String,
    /// Location of the source literal, or of the file's path.
    pub at: SrcSpan,
    /// Location of the size of the dynamic shared memory; `None` if the declaration has none.
    pub shared_at: Option<SrcSpan>,
    /// File name in the compiler's messages.
    pub label: String,
    /// Target device of compiled code, according to its metadata; `None` if unknown.
    pub target: Option<String>,
    /// Registers and shared memory of the compiled code; `None` for source text, and for code that does not state
    /// them.
    pub resources: Option<Resources>,
    /// Byte offset of each line of the text in the file; empty if the text is in another file.
    pub lines: Vec<u32>,
}

/// An argument of a declared kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KernelArgument {
    /// Address of an operand: inputs first, then outputs.
    Operand(u8),
    /// Bits of a number, in little-endian order.
    Value(u64),
}

/// The operation that computes a kernel's reference result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// The operation. Its first outputs are those of the kernel.
    pub spec: Spec,
    /// For each input of the operation, the part of a kernel input that it reads.
    pub inputs: Vec<InputPart>,
}

/// A part of a kernel's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InputPart {
    /// The input, counted from 0.
    pub input: usize,
    /// Index of the part's first element in the contiguous input.
    pub offset: u64,
    /// Type, shape and strides of the part within the input.
    pub tensor: Tensor,
}

/// Name of the internal option that holds the kernel.
pub const KERNEL: &str = "kernel";

/// The kernel of a call; `None` for any other operation.
pub fn user_kernel(spec: &Spec) -> Option<&UserKernel> {
    spec.attrs.user_kernel(KERNEL)
}

impl UserKernel {
    /// Returns the kernel with the resources of its compiled code.
    pub fn with_resources(self, resources: Resources) -> UserKernel {
        let code = KernelCode { resources: Some(resources), ..(*self.code).clone() };
        UserKernel { code: Arc::new(code), ..self }
    }

    /// Threads of a block.
    pub fn threads(&self) -> u64 {
        self.block.iter().copied().map(u64::from).product()
    }

    /// Blocks of the grid.
    pub fn blocks(&self) -> u64 {
        self.grid.iter().copied().map(u64::from).product()
    }
}

impl KernelCode {
    /// Returns the code of a source text. `head` is the entry's C++ declaration; `at` and `lines` locate the text in
    /// the file.
    pub fn new(entry: &str, head: String, (label, text): (&str, &str), at: SrcSpan, lines: Vec<u32>) -> KernelCode {
        // The label must not end the string literal of the `#line` directive.
        let label = label.replace(['"', '\\', '\n', '\r'], "_");
        // The declaration makes the compiler compare the parameters of the definition with those of the kernel.
        let text = format!("{TYPES}\n{head};\n#line 1 \"{label}\"\n{text}\n");
        KernelCode {
            source: Arc::new(KernelSource { name: entry.to_owned(), text, code: None }),
            head,
            at,
            shared_at: None,
            label,
            target: None,
            resources: None,
            lines,
        }
    }

    /// Returns compiled code from the file whose path is at `at`.
    pub fn compiled(
        entry: &str,
        head: String,
        (label, code): (&str, &[u8]),
        target: Option<String>,
        at: SrcSpan,
    ) -> KernelCode {
        let resources = Resources::of(code, entry);
        // A driver reads assembler text up to a NUL byte.
        let code = Some(code.iter().copied().chain([0]).collect());
        let source = Arc::new(KernelSource { name: entry.to_owned(), text: String::new(), code });
        let (shared_at, label) = (None, label.to_owned());
        KernelCode { source, head, at, shared_at, label, target, resources, lines: Vec::new() }
    }

    /// Returns the location of the first source line that a compiler's log mentions.
    pub fn located(&self, log: &str) -> SrcSpan {
        let line = log.match_indices(&self.label).find_map(|(at, label)| {
            let behind = log[at + label.len()..].strip_prefix(['(', ':'])?;
            let digits = behind.split(|c: char| !c.is_ascii_digit()).next()?;
            digits.parse::<usize>().ok()?.checked_sub(1)
        });
        let start = line.and_then(|line| self.lines.get(line));
        start.map_or(self.at, |&start| SrcSpan { start, len: 0 })
    }
}

/// C++ type of an element or a number in the declaration of a kernel.
fn c_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "double",
        DType::F32 => "float",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::E4M3 => "e4m3",
        DType::E5M2 => "e5m2",
        DType::I64 => "long long",
        DType::I32 => "int",
        DType::I8 => "signed char",
        DType::U8 => "unsigned char",
    }
}

/// A parameter of a kernel's entry.
#[derive(Clone, Copy, Debug)]
pub enum EntryParam<'a> {
    Input(DType, &'a str),
    Output(DType, &'a str),
    Number(DType, &'a str),
    Size(&'a str),
}

/// Returns the C++ declaration of a kernel.
pub fn head(entry: &str, params: &[EntryParam]) -> String {
    let param = |param: &EntryParam| match *param {
        EntryParam::Input(dtype, name) => format!("const {}* {name}", c_name(dtype)),
        EntryParam::Output(dtype, name) => format!("{}* {name}", c_name(dtype)),
        EntryParam::Number(dtype, name) => format!("{} {name}", c_name(dtype)),
        EntryParam::Size("") => "long long".to_owned(),
        EntryParam::Size(name) => format!("long long {name}"),
    };
    let params: Vec<String> = params.iter().map(param).collect();
    format!("extern \"C\" __global__ void {entry}({})", params.join(", "))
}
