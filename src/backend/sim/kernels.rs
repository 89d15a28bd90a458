//! Resources of kernels that a file declares, for the simulator: from their compiled code, or assumed.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::{Bytes, SrcSpan, counted};
use crate::config::Profile;
use crate::exec::{ExecError, Image};
use crate::ops::{Cost, KernelSource, NotCompiled, Resources, UNIT_REGISTERS, UserKernel, WARP, user_kernel};

/// Compiles a kernel for the simulated device.
pub type Compile = Arc<dyn Fn(&KernelSource) -> Result<Vec<u8>, NotCompiled> + Send + Sync>;

/// Sets the resources of declared kernels with a source text from compiled code, if there is a compiler. Returns a note
/// on each.
///
/// # Errors
///
/// The compiler refuses a kernel, or a block of it needs more than the device has.
pub fn resources(images: &mut [Image], compile: Option<&Compile>, profile: &Profile) -> Result<Vec<String>, ExecError> {
    let mut compiled: BTreeMap<(String, String), Result<Resources, NotCompiled>> = BTreeMap::new();
    let mut notes = Vec::new();
    for work in images.iter_mut().flat_map(|image| &mut image.works) {
        let Some(kernel) = user_kernel(&work.spec).cloned() else { continue };
        let found = match kernel.code.resources {
            Some(resources) => Ok(resources),
            None => {
                let source = &kernel.code.source;
                let key = (source.name.clone(), source.text.clone());
                match compiled.entry(key).or_insert_with(|| read(source, compile)) {
                    Ok(resources) => Ok(*resources),
                    Err(NotCompiled::NoCompiler(why)) => Err(why.clone()),
                    Err(NotCompiled::Refused(log)) => {
                        return Err(ExecError::user_kernel(&kernel.name, &kernel.code, log));
                    }
                }
            }
        };
        check_limits(&kernel, found.as_ref().ok(), profile)?;
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
    Ok(notes)
}

/// Fails if a block of a kernel needs more registers or shared memory than the device gives one.
fn check_limits(kernel: &UserKernel, found: Option<&Resources>, profile: &Profile) -> Result<(), ExecError> {
    let failed = |why: String, help: String, shared: Option<SrcSpan>| {
        let at = shared.unwrap_or(kernel.code.at).into();
        Err(ExecError::KernelLimit { name: kernel.name.to_string(), why, help, is_shared: shared.is_some(), at })
    };
    let shared = u64::from(kernel.shared) + found.map_or(0, |found| u64::from(found.shared));
    if let Some(limit) = profile.block_shared().filter(|limit| shared > *limit) {
        let why = format!("a block needs {shared} bytes of shared memory, and has {limit} on {}", profile.name);
        let is_declared = u64::from(kernel.shared) > limit;
        let help = if is_declared { "lower `shared`" } else { "lower `shared`, or the arrays that the code declares" };
        return failed(why, help.to_owned(), kernel.code.shared_at.filter(|_| is_declared));
    }
    let threads = kernel.threads();
    let registers = found.map_or(0, |found| u64::from(found.registers) * threads.next_multiple_of(WARP));
    if profile.architecture.starts_with("sm_") && registers > UNIT_REGISTERS {
        let why = format!(
            "a block of {threads} threads needs {registers} registers, and an SM of {} has {UNIT_REGISTERS}",
            profile.name
        );
        let help = format!("lower `block`, or write `__launch_bounds__({threads})` before the name of the function");
        return failed(why, help, None);
    }
    Ok(())
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

fn read(source: &KernelSource, compile: Option<&Compile>) -> Result<Resources, NotCompiled> {
    let unknown = |why: &str| NotCompiled::NoCompiler(why.to_owned());
    if source.code.is_some() {
        return Err(unknown("its file does not say them"));
    }
    let Some(compile) = compile else {
        return Err(unknown("its source is compiled with `--allow-kernels` alone"));
    };
    let code = compile(source)?;
    Resources::of(&code, &source.name).ok_or_else(|| unknown("its compiled code does not say them"))
}
