//! Declarations of kernels: checks the fields and the signature, and prepares the code.

use std::rc::Rc;
use std::sync::Arc;

use crate::base::{DType, SrcSpan};
use crate::ops::{self, KernelCode};
use crate::syntax::ast::*;
use crate::syntax::written;

use super::triton::{self, TritonLaunch};
use crate::model::analyzer::Analyzer;
use crate::model::error::{KernelError, ModelError};
use crate::model::values::value::Value;

/// A checked declaration of a kernel.
#[derive(Debug)]
pub(in crate::model) struct DeclaredKernel<'a> {
    pub name: Arc<str>,
    pub params: &'a Signature,
    pub inputs: Vec<KernelParam<'a>>,
    pub outputs: Vec<KernelParam<'a>>,
    pub output_names: Arc<[String]>,
    /// Sizes that the signature binds, in the order of their first appearance.
    pub sizes: Vec<Name>,
    pub fields: Fields<'a>,
    /// The call that computes the reference result; `None` for a kernel without one.
    pub reference: Option<&'a Call>,
    pub code: Arc<KernelCode>,
    /// The launch that Triton's metadata describes; `None` for any other code.
    pub triton: Option<TritonLaunch>,
}

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct KernelParam<'a> {
    pub name: Name,
    pub dtype: DType,
    /// The sizes of a tensor; `None` for a number.
    pub sizes: Option<&'a [Expr]>,
    pub span: SrcSpan,
}

impl DeclaredKernel<'_> {
    /// The index of the input that an output updates in place: the one with its name; `None` if it updates none.
    pub fn updated(&self, output: usize) -> Option<usize> {
        self.inputs.iter().position(|input| input.name.symbol == self.outputs[output].name.symbol)
    }
}

/// The parts of a declaration that determine the parameters of a kernel's entry.
struct EntryParams<'p> {
    inputs: &'p [KernelParam<'p>],
    outputs: &'p [KernelParam<'p>],
    sizes: &'p [Name],
    args: Option<&'p [Expr]>,
}

/// The fields that each call evaluates. `None` for a field that the declaration leaves out.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Fields<'a> {
    pub grid: &'a Expr,
    /// Threads of a block; `None` if the metadata of the compiled code gives them.
    pub block: Option<&'a Expr>,
    pub shared: Option<&'a Expr>,
    pub flops: Option<&'a Expr>,
    pub bytes: Option<&'a Expr>,
    pub time: Option<&'a Expr>,
    /// The entry's parameters in their order; `None` for the order of the signature.
    pub args: Option<&'a [Expr]>,
}

/// Returns the value of a field; `None` if it is not given.
type FieldLookup<'g, 'a> = &'g dyn Fn(&str) -> Option<&'a Expr>;

/// Fields of a kernel.
const FIELDS: [&str; 11] =
    ["grid", "block", "shared", "flops", "bytes", "time", "source", "file", "entry", "args", "reference"];

impl<'a> Analyzer<'a> {
    /// Checks a declaration, and keeps it for its calls. A declaration with a mistake is kept as `None`.
    pub(in crate::model) fn kernel(&mut self, decl: &'a Decl) {
        let DeclKind::Kernel { name, .. } = &decl.kind else { unreachable!("the caller has matched it") };
        let declared = self.declared_kernel(decl).map(Rc::new);
        self.kernels.entry(name.symbol).or_insert(declared);
    }

    fn declared_kernel(&mut self, decl: &'a Decl) -> Option<DeclaredKernel<'a>> {
        let DeclKind::Kernel { name, signature, fields, references, file } = &decl.kind else { return None };
        let text: Arc<str> = self.names.name(name.symbol).into();
        let has_known_fields = self.options_are_known(&text, fields, &FIELDS);
        let mut good = has_known_fields;
        if let Some(setting) = fields.iter().find(|setting| self.names.name(setting.key.symbol) == "reference") {
            self.error(KernelError::Reference {
                name: text.to_string(),
                why: "is not an operation".to_owned(),
                help: "write an operation on the inputs of the kernel: `reference: map(2 * x)`".to_owned(),
                at: setting.value.span.into(),
            });
            good = false;
        }
        let given: Vec<(&'static str, &'a Setting)> = fields
            .iter()
            .filter_map(|setting| Some((FIELDS.iter().find(|f| **f == self.names.name(setting.key.symbol))?, setting)))
            .map(|(field, setting)| (*field, setting))
            .collect();
        if let [first, second, ..] = references.as_slice() {
            let (at, first) = (second.span.into(), first.span.into());
            self.error(ModelError::GivenTwice { name: "reference".to_owned(), at, first });
            good = false;
        }
        let field = |wanted: &str| given.iter().find(|(field, _)| *field == wanted).map(|(_, setting)| &setting.value);
        let required = |this: &mut Self, wanted: &'static str, help: &'static str| {
            let found = field(wanted);
            // A field that is not known may be this one with a typing mistake.
            if found.is_none() && has_known_fields {
                let why = format!("lacks the field `{wanted}`");
                this.error(KernelError::Field { name: text.to_string(), why, help, at: name.span.into() });
            }
            found
        };
        let grid = required(self, "grid", "how many blocks it has: `grid: ceil_div(n, 256)`");
        let triton = match file.as_ref().filter(|file| file.code.is_some() && !file.text.is_empty()) {
            Some(file) => Some(self.triton((name, &text), file, &field)?),
            None => None,
        };
        // The linker has reported a file that could not be read; it may contain the missing value.
        let is_unread = file.is_none() && field("file").is_some_and(|path| matches!(path.kind, ExprKind::Text(_)));
        let block = match triton {
            Some(_) => None,
            None if is_unread => None,
            None => Some(required(self, "block", "how many threads a block has: `block: 256`")?),
        };
        if let (Some(time), Some(other)) = (field("time"), field("flops").or(field("bytes"))) {
            self.error(KernelError::Field {
                name: text.to_string(),
                why: "gives both its duration and its work".to_owned(),
                help: "one of them: `time: 50us`, or `flops: 2 * n, bytes: 8 * n`",
                at: time.span.max(other.span).into(),
            });
            good = false;
        }
        let params = self.kernel_params((name, &text), signature);
        let sizes = signature.sizes();
        let (inputs, outputs) = params?;
        let args = self.kernel_order(&text, field("args"), &outputs)?;
        let entry = EntryParams { inputs: &inputs, outputs: &outputs, sizes: &sizes, args };
        if !has_known_fields && field("source").is_none() && field("file").is_none() {
            return None;
        }
        let mut code = self.kernel_code((name, &text), (&field, file.as_ref(), triton.as_ref()), &entry)?;
        code.shared_at = field("shared").map(|shared| shared.span);
        let fields = Fields {
            grid: grid?,
            block,
            shared: field("shared"),
            flops: field("flops"),
            bytes: field("bytes"),
            time: field("time"),
            args,
        };
        let output_names = outputs.iter().map(|param| self.names.name(param.name.symbol).to_owned()).collect();
        good.then(|| DeclaredKernel {
            params: signature,
            inputs,
            outputs,
            output_names,
            sizes,
            fields,
            reference: references.first(),
            code: Arc::new(code),
            triton,
            name: text,
        })
    }

    /// The inputs and outputs of a signature.
    fn kernel_params(
        &mut self,
        (declared, kernel): (&Name, &str),
        signature: &'a Signature,
    ) -> Option<(Vec<KernelParam<'a>>, Vec<KernelParam<'a>>)> {
        let mut lists = (Vec::new(), Vec::new());
        let mut good = true;
        for (params, is_output) in [(&signature.inputs, false), (&signature.outputs, true)] {
            for param in params {
                match self.kernel_param(kernel, param, is_output) {
                    Some(param) if is_output => lists.1.push(param),
                    Some(param) => lists.0.push(param),
                    None => good = false,
                }
            }
        }
        if signature.outputs.is_empty() {
            self.error(KernelError::Signature {
                name: kernel.to_owned(),
                param: "the signature".to_owned(),
                why: "has no output",
                help: "write the outputs of the kernel after an arrow: `kernel k(x: f32[n] -> y: f32[n])`",
                at: declared.span.into(),
            });
            good = false;
        }
        for output in &lists.1 {
            let input = lists.0.iter().find(|input| input.name.symbol == output.name.symbol);
            if input.is_some_and(|input| self.type_text(input) != self.type_text(output)) {
                self.error(KernelError::Signature {
                    name: kernel.to_owned(),
                    param: format!("`{}`", self.names.name(output.name.symbol)),
                    why: "has another type as an output than as an input",
                    help: "give an output that the kernel updates in place the type of its input, or another name",
                    at: output.span.into(),
                });
                good = false;
            }
        }
        good.then_some(lists)
    }

    /// The type of a parameter as it is written.
    fn type_text(&self, param: &KernelParam) -> (DType, Option<Vec<String>>) {
        let sizes = param.sizes.map(|sizes| sizes.iter().map(|size| written(size, &self.names)).collect());
        (param.dtype, sizes)
    }

    fn kernel_param(&mut self, kernel: &str, param: &'a Param, is_output: bool) -> Option<KernelParam<'a>> {
        let wrong = |this: &mut Self, why: &'static str, help: &'static str, at: SrcSpan| {
            let (name, param) = (kernel.to_owned(), format!("`{}`", this.names.name(param.name.symbol)));
            this.fail(KernelError::Signature { name, param, why, help, at: at.into() })
        };
        const HELP: &str =
            "write the element type and the sizes of a tensor, `x: f32[n, m]`, or the type of a number, `a: f32`";
        let Some(ty) = &param.ty else { return wrong(self, "has no type", HELP, param.name.span) };
        let (base, sizes) = match &ty.kind {
            ExprKind::Index { base, items } => (&**base, Some(items.as_slice())),
            _ => (ty, None),
        };
        let dtype = match self.eval(base) {
            Value::DType(dtype) => dtype,
            Value::Unknown => return None,
            _ => return wrong(self, "has no type that a kernel takes", HELP, ty.span),
        };
        if sizes.is_some_and(|sizes| sizes.len() > crate::base::Dims::MAX) {
            return wrong(self, "has more than 8 dimensions", "join some of them: `view(x, [n * m])`", ty.span);
        }
        if let Some(range) = sizes
            .and_then(|sizes| sizes.iter().find(|size| matches!(size.kind, ExprKind::Whole | ExprKind::Range { .. })))
        {
            return wrong(self, "has a size that is a range", "write a name or a number: `x: f32[n, 128]`", range.span);
        }
        let sizes = if is_output && sizes.is_none() { Some(&[][..]) } else { sizes };
        if sizes.is_none() && dtype.is_float() && dtype.size() < 4 {
            return wrong(
                self,
                "is a number of fewer than 32 bits",
                "write `f32`: the kernel rounds it if necessary",
                ty.span,
            );
        }
        Some(KernelParam { name: param.name, dtype, sizes, span: ty.span })
    }

    /// Returns the launch that Triton's metadata in a file describes. The metadata replaces some of the fields.
    fn triton(
        &mut self,
        (name, kernel): (&Name, &str),
        file: &KernelFile,
        field: FieldLookup<'_, 'a>,
    ) -> Option<TritonLaunch> {
        let launch = match triton::launch(&file.text) {
            Ok(launch) => launch,
            Err((why, help)) => {
                let at = field("file").map_or(name.span, |path| path.span).into();
                let (name, help, place) = (kernel.to_owned(), help.to_owned(), "this file");
                return self.fail(KernelError::Source { name, why, help, place, at });
            }
        };
        let said = [
            ("block", format!("the metadata says {} threads", launch.threads)),
            ("shared", format!("the metadata says {} bytes", launch.shared)),
            ("entry", format!("the metadata says `{}`", launch.entry)),
        ];
        for (field, why, given) in said.into_iter().filter_map(|(name, why)| Some((name, why, field(name)?))) {
            let (name, value) = (kernel.to_owned(), format!("`{}`", written(given, &self.names)));
            let help = "remove the field: Triton's metadata has it";
            self.error(KernelError::Launch { name, field, value, help, at: given.span.into(), why });
        }
        Some(launch)
    }

    /// The items of `args`; `Some(None)` without the field; `None` after an error. Every output must be among them.
    fn kernel_order(
        &mut self,
        kernel: &str,
        args: Option<&'a Expr>,
        outputs: &[KernelParam],
    ) -> Option<Option<&'a [Expr]>> {
        let Some(args) = args else { return Some(None) };
        let ExprKind::List(items) = &args.kind else {
            let value = self.eval(args);
            return self.wrong_type("a list of names and whole numbers: `args: [y, x, n]`", &value, args.span);
        };
        let named = |param: &KernelParam| items.iter().any(|item| item.as_name() == Some(param.name.symbol));
        if let Some(missing) = outputs.iter().find(|param| !named(param)) {
            return self.fail(KernelError::Signature {
                name: kernel.to_owned(),
                param: format!("`{}`", self.names.name(missing.name.symbol)),
                why: "is not in `args`",
                help: "name every output in `args`, so that the kernel gets its address",
                at: args.span.into(),
            });
        }
        Some(Some(items))
    }

    /// The code of a kernel, from its text or its file.
    fn kernel_code(
        &mut self,
        (name, kernel): (&Name, &str),
        (field, file, triton): (FieldLookup<'_, 'a>, Option<&'a KernelFile>, Option<&TritonLaunch>),
        &EntryParams { inputs, outputs, sizes, args }: &EntryParams,
    ) -> Option<KernelCode> {
        let wrong = |this: &mut Self, why: String, help: String, place: &'static str, at: SrcSpan| {
            this.fail(KernelError::Source { name: kernel.to_owned(), why, help, place, at: at.into() })
        };
        let entry = match field("entry") {
            None => match triton {
                Some(launch) => launch.entry.clone(),
                None => kernel.rsplit('.').next().unwrap_or_default().to_owned(),
            },
            Some(entry) => match &entry.kind {
                ExprKind::Text(entry) => entry.clone(),
                ExprKind::Name(symbol) if self.scopes.get(*symbol).is_none() => {
                    let function = self.names.name(*symbol);
                    let (why, help) = ("has an `entry` without quotes", format!("write `entry: \"{function}\"`"));
                    return wrong(self, why.to_owned(), help, "a text is needed", entry.span);
                }
                _ => {
                    let value = self.eval(entry);
                    return self.wrong_type("the name of a function, as a text", &value, entry.span);
                }
            },
        };
        let (text, at, file) = match (field("source"), field("file")) {
            (Some(source), None) => match &source.kind {
                ExprKind::Text(text) => (text.as_str(), source.span, None),
                _ => {
                    let value = self.eval(source);
                    return self.wrong_type("a text: `source: \"\"\"…\"\"\"`", &value, source.span);
                }
            },
            (None, Some(path)) => match (&path.kind, file) {
                (ExprKind::Text(_), Some(file)) => (file.text.as_str(), path.span, Some(file)),
                // The linker has reported why the file could not be read.
                (ExprKind::Text(_), None) => return None,
                _ => {
                    let value = self.eval(path);
                    return self.wrong_type("the path of a file, as a text", &value, path.span);
                }
            },
            (Some(_), Some(file)) => {
                let why = "has its code twice: `source` and `file`".to_owned();
                return wrong(self, why, "remove one of them".to_owned(), "second", file.span);
            }
            (None, None) => {
                let help = "write it as `source: \"\"\"…\"\"\"`, or name a file beside this one: `file: \"k.cu\"`";
                return wrong(self, "has no code".to_owned(), help.to_owned(), "declared here", name.span);
            }
        };
        let number = |param: &KernelParam| (param.dtype, self.names.name(param.name.symbol));
        let is_updated = |param: &KernelParam| outputs.iter().any(|output| output.name.symbol == param.name.symbol);
        let input = |param: &KernelParam| match (param.sizes, number(param)) {
            (Some(_), (dtype, name)) if is_updated(param) => ops::EntryParam::Output(dtype, name),
            (Some(_), (dtype, name)) => ops::EntryParam::Input(dtype, name),
            (None, (dtype, name)) => ops::EntryParam::Number(dtype, name),
        };
        let output = |param: &KernelParam| {
            let (dtype, name) = number(param);
            ops::EntryParam::Output(dtype, name)
        };
        let params: Vec<ops::EntryParam> = match args {
            None => {
                let sizes = sizes.iter().map(|size| ops::EntryParam::Size(short(self.names.name(size.symbol))));
                let is_new = |param: &&KernelParam| inputs.iter().all(|input| input.name.symbol != param.name.symbol);
                let outputs = outputs.iter().filter(is_new).map(output);
                inputs.iter().map(input).chain(outputs).chain(sizes).collect()
            }
            Some(args) => {
                let is = |param: &&KernelParam, arg: &Expr| arg.as_name() == Some(param.name.symbol);
                let param = |arg: &Expr| {
                    let found = inputs.iter().find(|param| is(param, arg)).map(input);
                    found.or_else(|| outputs.iter().find(|param| is(param, arg)).map(output)).unwrap_or_else(|| {
                        ops::EntryParam::Size(arg.as_name().map_or("", |symbol| short(self.names.name(symbol))))
                    })
                };
                args.iter().map(param).collect()
            }
        };
        let head = ops::head(&entry, &params);
        if let Some(KernelFile { name, code: Some(code), .. }) = file {
            let target = triton.map(|launch| launch.target.clone());
            return Some(KernelCode::compiled(&entry, head, (name, code), target, at));
        }
        let is_path = file.is_none() && !text.contains(['(', '\n']);
        if is_path || !has_word(text, &entry) {
            let why = format!("has no function `{entry}` in its code");
            let help = match is_path {
                true => format!("`source` is the code itself; name a file with `file: {text:?}`"),
                false => format!("the code defines `{head}`"),
            };
            return wrong(self, why, help, "this code", at);
        }
        Some(match file {
            Some(file) => {
                // The folder affects neither the code nor the hash of the plan.
                let label = file.name.rsplit('/').next().unwrap_or_default();
                KernelCode::new(&entry, head, (label, text), at, Vec::new())
            }
            None => KernelCode::new(&entry, head, (&format!("{entry}.cu"), text), at, line_starts(text, at)),
        })
    }
}

/// The name without the module that declares it.
fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|found| found == word)
}

/// The offset of each line of a literal in the source map. A literal with escapes has none.
fn line_starts(text: &str, literal: SrcSpan) -> Vec<u32> {
    const QUOTES: u32 = 3;
    if text.len() as u32 + 2 * QUOTES != literal.len {
        return Vec::new();
    }
    let first = literal.start + QUOTES;
    std::iter::once(first).chain(text.match_indices('\n').map(|(at, _)| first + at as u32 + 1)).collect()
}
