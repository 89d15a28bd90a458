//! The fields of declared kernels, as each call evaluates them, and the arguments of the entry.

use crate::base::units::Dimension;
use crate::base::{DType, SrcSpan, Symbol};
use crate::ops::KernelArgument;
use crate::syntax::ast::*;

use super::call_kernel::Operands;
use super::kernel::DeclaredKernel;
use crate::model::analyzer::Analyzer;
use crate::model::error::KernelError;
use crate::model::limits::{BLOCK_THREADS, MAX_SHARED_MEMORY};
use crate::model::values::value::{Number, Value};

/// Maximum number of threads of a block in z.
const BLOCK_Z: i64 = 64;

/// Maximum number of blocks of a grid in x.
const GRID_X: i64 = i32::MAX as i64;
/// Maximum number of blocks of a grid in y, and in z.
const GRID_YZ: i64 = 65_535;

/// The addresses of Triton's global and profile scratch memory, which its kernels take after their own parameters. A
/// driver reads only as many arguments as a kernel has, so kernels of versions without these parameters are not
/// affected.
const TRITON_SCRATCH: [KernelArgument; 2] = [KernelArgument::Value(0), KernelArgument::Value(0)];

impl Analyzer<'_> {
    /// Reports a value of a kernel's field that no launch can have. Always `None`.
    fn kernel_launch<T>(
        &mut self,
        kernel: &DeclaredKernel,
        field: &'static str,
        value: String,
        (why, help): (String, &'static str),
        at: SrcSpan,
    ) -> Option<T> {
        let name = kernel.name.to_string();
        self.fail(KernelError::Launch { name, field, value, help, at: at.into(), why })
    }

    /// Returns the sizes of the grid or of a block: one to three numbers. `None` after an error, which has been reported.
    pub(super) fn kernel_extent(
        &mut self,
        kernel: &DeclaredKernel,
        field: &'static str,
        expr: &Expr,
    ) -> Option<[u32; 3]> {
        let help = match field {
            "grid" => "write one to three numbers of blocks: `grid: ceil_div(n, 256)`, `grid: [n, m]`",
            _ => "write one to three numbers of threads, whose product is at most 1024: `block: 256`, `block: [32, 8]`",
        };
        let value = self.eval(expr);
        let items = match &value {
            Value::Unknown => return None,
            Value::List(items) if (1..=3).contains(&items.len()) => items.as_ref().clone(),
            Value::Number(_) => vec![value.clone()],
            other => {
                let value = other.describe(&self.names);
                return self.kernel_launch(kernel, field, value, ("one to three numbers".to_owned(), help), expr.span);
            }
        };
        let mut extent = [1i64; 3];
        for (axis, item) in items.iter().enumerate() {
            extent[axis] = match item {
                Value::Number(number) if number.dimension == Dimension::NONE => self.whole(*number, expr.span)?,
                other => return self.wrong_type("a whole number", other, expr.span),
            };
        }
        let limits = match field {
            "grid" => [GRID_X, GRID_YZ, GRID_YZ],
            _ => [i64::from(BLOCK_THREADS), i64::from(BLOCK_THREADS), BLOCK_Z],
        };
        let written = match items.len() {
            1 => extent[0].to_string(),
            count => format!("{:?}", &extent[..count]),
        };
        if let Some(axis) = (0..3).find(|&axis| !(1..=limits[axis]).contains(&extent[axis])) {
            let why = format!("{} goes from 1 to {}", ["x", "y", "z"][axis], limits[axis]);
            return self.kernel_launch(kernel, field, written, (why, help), expr.span);
        }
        let threads: i64 = extent.iter().product();
        if field == "block" && threads > i64::from(BLOCK_THREADS) {
            let why = format!("{threads} threads, and a block has at most {BLOCK_THREADS}");
            return self.kernel_launch(kernel, field, written, (why, help), expr.span);
        }
        Some(extent.map(|size| size as u32))
    }

    /// Evaluates the dynamic shared memory of a block, in bytes. `None` after an error, which has been reported.
    pub(super) fn kernel_shared(&mut self, kernel: &DeclaredKernel) -> Option<u32> {
        let Some(expr) = kernel.fields.shared else { return Some(0) };
        let bytes = self.kernel_count(kernel, "shared", Some(expr), Dimension::BYTES)??;
        if bytes > u64::from(MAX_SHARED_MEMORY) {
            let why = "no device has more than 1 MiB for a block".to_owned();
            let help = "write the dynamic shared memory of a block in bytes: `shared: 4 * 256`";
            return self.kernel_launch(kernel, "shared", bytes.to_string(), (why, help), expr.span);
        }
        Some(bytes as u32)
    }

    /// A number of operations, bytes or nanoseconds from 0, rounded; `Some(None)` if the field is absent.
    pub(super) fn kernel_count(
        &mut self,
        kernel: &DeclaredKernel,
        field: &'static str,
        expr: Option<&Expr>,
        dimension: Dimension,
    ) -> Option<Option<u64>> {
        const MAX: f64 = 1e18;
        let Some(expr) = expr else { return Some(None) };
        let needs_unit = dimension == Dimension::TIME;
        let number = match self.eval(expr) {
            Value::Number(number) if number.dimension == dimension => number,
            Value::Number(number) if number.dimension == Dimension::NONE && !needs_unit => number,
            other => return self.wrong_type(&format!("{} for `{field}`", dimension.describe()), &other, expr.span),
        };
        let Number { value, .. } = number;
        if !(0.0..=MAX).contains(&value.float()) {
            let help = "write a number from 0 to 1e18";
            return self.kernel_launch(kernel, field, number.text(), ("out of range".to_owned(), help), expr.span);
        }
        Some(Some(value.float().round() as u64))
    }

    /// Returns the arguments in the order of the entry's parameters. `None` after an error, which has been reported.
    pub(super) fn kernel_args(&mut self, kernel: &DeclaredKernel, operands: &Operands) -> Option<Vec<KernelArgument>> {
        let mut operand = 0;
        let mut next = || {
            operand += 1;
            KernelArgument::Operand(operand - 1)
        };
        let mut of_signature: Vec<(Symbol, KernelArgument)> = Vec::new();
        for (param, value) in kernel.inputs.iter().zip(&operands.values) {
            let passed = match value {
                Value::Number(number) => KernelArgument::Value(bits(param.dtype, *number)),
                _ => next(),
            };
            of_signature.push((param.name.symbol, passed));
        }
        for (index, param) in kernel.outputs.iter().enumerate() {
            let passed = next();
            // An output that updates an input is already passed as that input.
            if kernel.updated(index).is_none() {
                of_signature.push((param.name.symbol, passed));
            }
        }
        let size = |number: Number| KernelArgument::Value(bits(DType::I64, number));
        let mut args: Vec<KernelArgument> = Vec::new();
        match kernel.fields.args {
            None => {
                args.extend(of_signature.iter().map(|(_, passed)| *passed));
                args.extend(kernel.sizes.iter().map(|name| match self.scopes.get(name.symbol) {
                    Some(Value::Number(number)) => size(*number),
                    _ => unreachable!("every size is bound"),
                }));
            }
            Some(items) => {
                for item in items {
                    let known = of_signature.iter().find(|(symbol, _)| item.as_name() == Some(*symbol));
                    args.push(match known {
                        Some((_, passed)) => *passed,
                        None => size(Number::int(self.eval_whole(item)?)),
                    });
                }
            }
        }
        if kernel.triton.is_some() {
            args.extend(TRITON_SCRATCH);
        }
        Some(args)
    }
}

/// The bits of a number of a type.
fn bits(dtype: DType, number: Number) -> u64 {
    let mut bytes = [0; 8];
    match (dtype, number.whole()) {
        (DType::I64, Some(whole)) => bytes = whole.to_le_bytes(),
        _ => dtype.store(number.value.float(), &mut bytes),
    }
    u64::from_le_bytes(bytes)
}
