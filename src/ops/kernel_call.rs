//! Calls of kernels that a file declares. A device launches them as declared; the CPU computes their `reference`.

use std::borrow::Cow;
use std::sync::Arc;

use super::kernels::compiled::shared_part;
use super::kernels::occupancy::share;
use super::user_kernel::KERNEL;
use super::*;

/// The call of a declared kernel. The catalogue does not list it, since each declaration has its own name.
pub struct KernelCall;

impl UserKernel {
    /// Returns the call of the kernel with these operands.
    pub fn call(self, inputs: Vec<Tensor>, outputs: Vec<Tensor>) -> Spec {
        Spec::new(&KernelCall, Attrs::of([(KERNEL, Attr::UserKernel(Arc::new(self)))]), inputs, outputs)
    }
}

impl Reference {
    /// Selects the inputs of the operation from those of the kernel.
    fn inputs<'a>(&self, inputs: &[&'a [f64]]) -> Vec<Cow<'a, [f64]>> {
        let part = |part: &InputPart| {
            let all = inputs[part.input];
            if part.offset == 0 && part.tensor.contiguous() && part.tensor.elements() == all.len() as u64 {
                return Cow::Borrowed(all);
            }
            let (length, starts) = contiguous_runs(&part.tensor);
            let run = |start: u64| &all[(part.offset + start) as usize..][..length as usize];
            Cow::Owned(starts.flat_map(run).copied().collect())
        };
        self.inputs.iter().map(part).collect()
    }

    /// Calls `compute` with the inputs of the operation and space for its outputs.
    fn with<R>(
        &self,
        inputs: &[&[f64]],
        outputs: &mut [Vec<f64>],
        compute: impl FnOnce(&Spec, &[&[f64]], &mut [Vec<f64>]) -> R,
    ) -> R {
        let parts = self.inputs(inputs);
        let parts: Vec<&[f64]> = parts.iter().map(|part| &**part).collect();
        let mut all: Vec<Vec<f64>> = outputs.iter_mut().map(std::mem::take).collect();
        let further = &self.spec.outputs[all.len()..];
        all.extend(further.iter().map(|tensor| vec![0.0; tensor.elements() as usize]));
        let result = compute(&self.spec, &parts, &mut all);
        outputs.iter_mut().zip(all).for_each(|(output, computed)| *output = computed);
        result
    }
}

/// The declaration's signature is the shape rule.
impl Operation for KernelCall {
    signature! {
        name: "kernel",
        summary: "a kernel that the file declares",
        category: Category::Kernel,
        ..Signature::NOTHING
    }

    fn cost(&self, spec: &Spec) -> Cost {
        let Some(kernel) = user_kernel(spec) else { return Cost::default() };
        let (threads, dynamic) = (kernel.threads(), u64::from(kernel.shared));
        let share = match kernel.code.resources {
            Some(resources) => resources.share(threads, dynamic),
            None => share(threads).max(shared_part(dynamic)),
        };
        let cost = Cost { blocks: kernel.blocks(), share, ..spec.streaming_cost(kernel.flops as f64, 1) };
        match (kernel.time, kernel.bytes) {
            (Some(time), _) => {
                Cost { flops: 0.0, read: Traffic::NONE, written: Traffic::NONE, hold: Some(Hold::Kernel(time)), ..cost }
            }
            (None, Some(bytes)) => {
                let written = cost.written.total().min(bytes);
                let device = |bytes| Traffic::of(Space::Device, bytes);
                Cost { read: device(bytes - written), written: device(written), ..cost }
            }
            (None, None) => cost,
        }
    }

    /// Leaves the outputs unchanged if the kernel has no reference.
    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        if let Some(reference) = user_kernel(spec).and_then(|kernel| kernel.reference.as_ref()) {
            reference.with(inputs, outputs, |spec, inputs, outputs| spec.operation.reference(spec, inputs, outputs));
        }
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        match user_kernel(spec).and_then(|kernel| kernel.reference.as_ref()) {
            Some(reference) => {
                let count = outputs.len();
                let mut tolerances = reference
                    .with(inputs, outputs, |spec, inputs, outputs| spec.operation.enclose(spec, inputs, outputs));
                tolerances.truncate(count);
                tolerances
            }
            None => check::exactly(outputs),
        }
    }

    /// Compares with the reference. Outputs of a kernel without a reference are not compared.
    fn check(&self, spec: &Spec, inputs: &[&[f64]], before: PriorOutputs, actual: &[Vec<f64>]) -> Vec<Check> {
        match user_kernel(spec).and_then(|kernel| kernel.reference.as_ref()) {
            Some(reference) if reference.spec.outputs.len() == actual.len() => {
                let parts = reference.inputs(inputs);
                let parts: Vec<&[f64]> = parts.iter().map(|part| &**part).collect();
                reference.spec.operation.check(&reference.spec, &parts, before, actual)
            }
            Some(_) => {
                let mut expected = before();
                let tolerances = self.enclose(spec, inputs, &mut expected);
                check::compare_all(spec, actual, &expected, &tolerances)
            }
            None => actual.iter().map(|_| Check::none()).collect(),
        }
    }

    fn backward(&self, _: &mut Backward) -> Result<(), NoRule> {
        Err("its code alone says what it computes")
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let Some(kernel) = user_kernel(spec) else { return Vec::new() };
        let arg = |passed: &KernelArgument| match *passed {
            KernelArgument::Operand(operand) => Arg::Operand(operand),
            // A device reads the low bytes of a narrower number.
            KernelArgument::Value(bits) => Arg::U64(bits),
        };
        vec![Launch::Kernel(Kernel {
            source: kernel.code.source.clone(),
            grid: kernel.grid.map(u64::from),
            block: kernel.block,
            shared: Shared::Bytes(kernel.shared),
            args: kernel.args.iter().map(arg).collect(),
            without_clusters: false,
        })]
    }
}
