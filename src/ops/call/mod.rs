//! A call of an operation during shape inference, and the errors of its operands.

pub(super) mod attr;
pub(super) mod axis;
pub(super) mod error;
pub(super) mod signature;
pub(super) mod windows;

use crate::base::{DType, Dims, SrcSpan};

use super::team::Team;
use super::{Attrs, Expression, OpError, Operation, Tensor};
use error::{OTHER_DIMENSIONS, TOO_LARGE};
use signature::Input;

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
    /// The outputs, as many as [`Operation::outputs`] returns; `None` for an output that the text does not name, which
    /// becomes scratch memory.
    pub outputs: &'a [Option<Operand>],
    pub attrs: &'a Attrs,
    pub expression: Option<&'a Expression>,
    /// The group of ranks in which a collective runs, with this rank's number.
    pub team: Team,
}

impl Call<'_> {
    /// Returns the type and shape of each output, or the mistake in the call.
    pub fn infer(&self) -> Result<Vec<(DType, Dims)>, OpError> {
        if self.operation.category().needs_device() {
            self.needs_device()?;
        }
        self.operation.infer(self)
    }

    /// Returns an error if a kernel cannot access one of the operands.
    pub(super) fn needs_device(&self) -> Result<(), OpError> {
        let operands = self.inputs.iter().chain(self.outputs.iter().flatten());
        match operands.into_iter().find(|operand| !operand.tensor.space.on_device()) {
            None => Ok(()),
            Some(operand) => {
                let help = "a kernel reaches `device`, `pinned` and `managed` memory: declare it so, or `copy` it to the device first";
                Err(self.bad_space(operand, help))
            }
        }
    }

    /// Returns the type and shape of output `index`. If the text names the output, returns an error unless its declared
    /// type and shape are the same.
    pub(super) fn output(&self, index: usize, dtype: DType, dims: Dims) -> Result<(DType, Dims), OpError> {
        match &self.outputs[index] {
            Some(given) if given.tensor.dtype != dtype || given.tensor.dims != dims => {
                let call = (self.span.start as usize, self.operation.name().len()).into();
                Err(self.unlike(given, dims.of(dtype), given.tensor.to_string(), call))
            }
            _ => Ok((dtype, dims)),
        }
    }

    /// Element type of output `index` as the text declares it; `None` if the text does not name the output.
    pub(super) fn given_dtype(&self, index: usize) -> Option<DType> {
        self.outputs[index].map(|output| output.tensor.dtype)
    }

    /// Returns an error if input `index` has fewer than `rank` dimensions.
    pub(super) fn needs_rank(&self, index: usize, rank: usize, why: &str) -> Result<(), OpError> {
        let input = &self.inputs[index];
        if input.tensor.dims.len() >= rank {
            return Ok(());
        }
        let plural = if rank == 1 { "" } else { "s" };
        Err(self.bad_shape(input, format!("at least {rank} dimension{plural}, {why}")))
    }

    /// Returns an error unless kernels can access all operands and rows of the first input have fewer than 2^31
    /// elements.
    pub(super) fn needs_rows(&self) -> Result<(), OpError> {
        self.needs_rank(0, 1, "along the last of which it works")?;
        self.needs_row_length(*self.inputs[0].tensor.dims.last().expect("it has a dimension"))
    }

    /// Returns an error unless a row length of the first input is less than 2^31.
    pub(super) fn needs_row_length(&self, length: u64) -> Result<(), OpError> {
        if length <= i32::MAX as u64 {
            return Ok(());
        }
        let input = &self.inputs[0];
        Err(self.bad_shape(input, format!("rows of fewer than 2^31 elements, and not {length}")))
    }

    /// Returns an error unless `fits` is true. `needs` says in words which types the operand may have.
    pub(super) fn needs_dtype(&self, operand: &Operand, fits: bool, needs: &str) -> Result<(), OpError> {
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

    /// Returns an error unless an operand has a floating-point type. `needs` says in words which types the operand may have.
    pub(super) fn needs_float(&self, operand: &Operand, needs: &str) -> Result<(), OpError> {
        self.needs_dtype(operand, operand.tensor.dtype.is_float(), needs)
    }

    /// Returns an error unless all inputs have floating-point types.
    pub(super) fn needs_floats(&self) -> Result<(), OpError> {
        self.inputs.iter().try_for_each(|input| self.needs_float(input, "floating-point values"))
    }

    /// Returns the type and shape of output `index`: the floating-point type that the text declares, or `dtype`.
    pub(super) fn float_output(&self, index: usize, dtype: DType, dims: Dims) -> Result<(DType, Dims), OpError> {
        if let Some(output) = &self.outputs[index] {
            self.needs_float(output, "a floating-point output")?;
        }
        self.output(index, self.given_dtype(index).unwrap_or(dtype), dims)
    }

    /// Returns an error unless an operand holds indices: elements of type `i32` or `i64`.
    pub(super) fn needs_indices(&self, operand: &Operand) -> Result<(), OpError> {
        let fits = matches!(operand.tensor.dtype, DType::I32 | DType::I64);
        self.needs_dtype(operand, fits, "indices of type i32 or i64")
    }

    /// Returns the error for two inputs, by index, that do not fit each other, with a description of each.
    pub(super) fn differs(&self, left: usize, left_is: String, right: usize, right_is: String, help: &str) -> OpError {
        OpError::Differ {
            op: self.operation.name(),
            left: left_is,
            left_at: self.inputs[left].span.into(),
            right: right_is,
            right_at: self.inputs[right].span.into(),
            help: help.to_owned(),
        }
    }

    /// The end of a help that says how to convert an operand to this element type.
    pub(super) fn cast_to(&self, dtype: DType) -> String {
        format!("convert one, `c: cast(x, to: {dtype})`, and give `c` to `{}`", self.operation.name())
    }

    /// The error for an operand whose shape or size the operation does not support; `needs` describes those that it
    /// supports.
    pub(super) fn bad_shape(&self, operand: &Operand, needs: impl Into<String>) -> OpError {
        self.unfit(operand, needs.into(), OTHER_DIMENSIONS)
    }

    /// The error for an operand with too many elements; `needs` describes the limit.
    pub(super) fn too_large(&self, operand: &Operand, needs: impl Into<String>) -> OpError {
        self.unfit(operand, needs.into(), TOO_LARGE)
    }

    fn unfit(&self, operand: &Operand, needs: String, help: &'static str) -> OpError {
        let (op, found) = (self.operation.name(), operand.tensor.to_string());
        OpError::Rank { op, needs, found, help, at: operand.span.into() }
    }

    /// The error for an operand in a memory that the operation cannot access.
    pub(super) fn bad_space(&self, operand: &Operand, help: &'static str) -> OpError {
        let (op, space) = (self.operation.name(), operand.tensor.space.name());
        OpError::Space { op, space, help, at: operand.span.into() }
    }

    /// The error for an operand that has gaps where the operation needs contiguous memory.
    pub(super) fn gaps(&self, operand: &Operand, help: &'static str) -> OpError {
        OpError::Gaps { op: self.operation.name(), help, at: operand.span.into() }
    }

    /// The error for an input, by index, whose rows do not begin at multiples of `row` elements, a multiple of `pack`.
    pub(super) fn needs_padded_rows(&self, input: usize, row: u64, pack: u64) -> OpError {
        let operand = &self.inputs[input];
        let Tensor { dtype, dims, strides, .. } = operand.tensor;
        OpError::PaddedRows {
            op: self.operation.name(),
            pack,
            row,
            found: strides[0],
            help: format!(
                "declare a buffer `{dtype}[{}, {row}]`, `s` for example, and give `s[.., 0..{}]` to `{}`",
                dims[0],
                dims[1],
                self.operation.name()
            ),
            at: operand.span.into(),
        }
    }

    /// The error for a call that must name its output.
    pub(super) fn no_output(&self, help: &'static str) -> OpError {
        let some_given = self.outputs.iter().any(Option::is_some);
        OpError::OutputMissing { op: self.operation.name(), help, some_given, at: self.span.into() }
    }

    /// The error for an output that does not fit the first input.
    pub(super) fn bad_output(&self, given: &Operand, expected: String, found: String) -> OpError {
        let source = self.inputs.first().map_or(self.span, |input| input.span);
        self.unlike(given, expected, found, source.into())
    }

    /// The error for an output whose type or shape is not the expected one; `source` locates the code from which that
    /// follows.
    pub(super) fn unlike(
        &self,
        given: &Operand,
        expected: String,
        found: String,
        source: miette::SourceSpan,
    ) -> OpError {
        let op = self.operation.name();
        let alike = op == "map" && self.outputs.len() > 1;
        let signature = self.operation.signature();
        let reduces = matches!(signature.inputs, [Input::Expression, ..])
            && signature.options.iter().any(|option| option.name == "dims");
        OpError::Output { op, expected, found, over: None, alike, reduces, at: given.span.into(), call: source }
    }

    /// The error for an option whose value is not permitted: `why` states the problem, `help` what to write.
    pub(super) fn bad_option(&self, name: &'static str, why: String, help: impl Into<String>) -> OpError {
        let at = self.attrs.span(name).unwrap_or(self.span);
        OpError::Option { op: self.operation.name(), option: name, why, help: help.into(), at: at.into() }
    }
}
