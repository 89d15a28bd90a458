//! Resources of kernels that a file declares, for the simulator: from their compiled code, or assumed.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::{Bytes, counted};
use crate::exec::Image;
use crate::ops::{Cost, KernelSource, Resources, UserKernel, user_kernel};

/// Compiles a kernel for the simulated device. The error is the reason why it cannot.
pub type Compile = Arc<dyn Fn(&KernelSource) -> Result<Vec<u8>, String> + Send + Sync>;

/// Sets the resources of declared kernels with a source text from compiled code, if there is a compiler. Returns a note
/// on each.
pub fn resources(images: &mut [Image], compile: Option<&Compile>) -> Vec<String> {
    let mut compiled: BTreeMap<(String, String), Result<Resources, String>> = BTreeMap::new();
    let mut notes = Vec::new();
    for work in images.iter_mut().flat_map(|image| &mut image.works) {
        let Some(kernel) = user_kernel(&work.spec).cloned() else { continue };
        let found = kernel.code.resources.map_or_else(
            || {
                let source = &kernel.code.source;
                let key = (source.name.clone(), source.text.clone());
                compiled.entry(key).or_insert_with(|| read(source, compile)).clone()
            },
            Ok,
        );
        if let Ok(found) = found {
            let kernel = kernel.clone().with_resources(found);
            work.spec = Arc::new(kernel.call(work.spec.inputs.clone(), work.spec.outputs.clone()));
        }
        let fit = Cost::WHOLE_UNIT / work.spec.cost().share.max(1);
        let note = note(&kernel, &found, fit);
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}

/// Returns the note on the resources from which a kernel's time follows. `fit` is the number of blocks that fit a
/// compute unit.
fn note(kernel: &UserKernel, found: &Result<Resources, String>, fit: u32) -> String {
    let fit = format!("{} of {} threads fit a compute unit", counted(fit as usize, "block"), kernel.threads());
    let resources = match found {
        Ok(Resources { registers, shared, .. }) => {
            let shared = Bytes(u64::from(*shared) + u64::from(kernel.shared));
            format!(
                "its compiled code takes {registers} registers a thread and {shared} of shared memory a block: {fit}"
            )
        }
        Err(why) => format!(
            "its registers and the shared memory that it declares itself are not known, since {why}: without them, {fit}"
        ),
    };
    let moved = match (kernel.time, kernel.bytes) {
        (None, None) => {
            "; it declares neither `bytes` nor `time`, so it counts as reading its inputs and writing its outputs once"
        }
        _ => "",
    };
    format!("kernel `{}`: {resources}{moved}", kernel.name)
}

fn read(source: &KernelSource, compile: Option<&Compile>) -> Result<Resources, String> {
    if source.code.is_some() {
        return Err("its file does not say them".to_owned());
    }
    let Some(compile) = compile else { return Err("its source is compiled with `--allow-kernels` alone".to_owned()) };
    let first = |log: String| log.lines().next().unwrap_or_default().to_owned();
    let code = compile(source).map_err(first)?;
    Resources::of(&code, &source.name).ok_or_else(|| "its compiled code does not say them".to_owned())
}
