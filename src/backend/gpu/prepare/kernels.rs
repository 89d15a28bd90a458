//! Generated kernels: compiled in parallel during preparation and cached on disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::backend::gpu::api::Api;
use crate::backend::gpu::api::runtime::{Function, Module};
use crate::backend::gpu::ranks::peers;
use crate::backend::gpu::time::{gate, stamps};
use crate::base::{Nanos, SrcSpan, parallel, stage};
use crate::exec::{ExecError, Fault, Image};
use crate::ops::{KernelCode, KernelSource, Launch, user_kernel};

use super::{copy_units, disk_cache, timer};

/// The loaded functions of kernels, by the source of the kernel.
pub struct Kernels {
    modules: Vec<Module>,
    functions: FxHashMap<KernelSource, Function>,
    /// Number of kernels that were compiled in this run.
    pub compiled: usize,
    /// Number of kernels that were found in the cache.
    pub cached: usize,
    /// Wall-clock time of compiling the kernels that the cache lacked, and of storing them there; 0 if it had all.
    pub took: Nanos,
}

/// A kernel to be loaded, with the operation that needs it, for messages.
pub struct RequestedKernel {
    pub source: KernelSource,
    pub what: &'static str,
    pub span: SrcSpan,
    /// The code of a kernel that the file declares, with its launches; `None` for a generated kernel.
    pub declared: Option<Declared>,
}

impl RequestedKernel {
    /// The kernel of a gate and an empty kernel, for the measurement that `what` names.
    pub fn gate_and_null(what: &'static str) -> [RequestedKernel; 2] {
        let wanted = |source: Arc<KernelSource>| RequestedKernel {
            source: (*source).clone(),
            what,
            span: SrcSpan::default(),
            declared: None,
        };
        [gate::source(), timer::null()].map(wanted)
    }
}

/// The code of a declared kernel, with the kernel's name.
pub struct Declared {
    pub code: Arc<KernelCode>,
    pub name: Arc<str>,
}

/// Returns every distinct kernel that an image needs.
pub fn wanted<A: Api>(image: &Image) -> Vec<RequestedKernel> {
    let mut seen: FxHashSet<KernelSource> = FxHashSet::default();
    let mut wanted = Vec::new();
    let mut add = |source: &KernelSource, what: &'static str, span| {
        let is_new = seen.insert(source.clone());
        if is_new {
            wanted.push(RequestedKernel { source: source.clone(), what, span, declared: None });
        }
        is_new.then(|| wanted.len() - 1)
    };
    let mut declared = Vec::new();
    for work in &image.works {
        for launch in work.launches.iter() {
            let sent = match launch {
                Launch::Peer(peer) => peer.sends.as_ref().map(|sent| &*sent.launch),
                launch => Some(launch),
            };
            for kernel in sent.map(Launch::kernels).unwrap_or_default() {
                let index = add(&kernel.source, work.spec.operation.name(), work.span);
                declared.extend(index.zip(user_kernel(&work.spec)));
            }
        }
    }
    if image.gates > 0 {
        add(&gate::source(), "gate", SrcSpan::default());
    }
    if image.gates > 0 && copy_units::can_try(image.works.iter().flat_map(|work| work.launches.iter())) {
        add(&copy_units::source(), "copy", SrcSpan::default());
        add(&timer::null(), "copy", SrcSpan::default());
    }
    if !A::EVENTS_IN_GRAPHS {
        add(&stamps::source(), "stamp", SrcSpan::default());
    }
    if !A::STEPS_ON_STREAMS && (image.crossings > 0 || image.lanes.iter().any(|lane| lane.threads.is_some())) {
        add(&peers::source(), "meet", SrcSpan::default());
    }
    if A::STEPS_ON_STREAMS && image.crossings > 0 {
        add(&timer::null(), "marker", SrcSpan::default());
    }
    for fill in image.fills.iter().filter(|fill| fill.space.on_device()) {
        for kernel in fill.init.kernels(fill.dtype, fill.elements) {
            add(&kernel.source, "buffer", SrcSpan::default());
        }
    }
    for (index, kernel) in declared {
        wanted[index].declared = Some(Declared { code: kernel.code.clone(), name: kernel.name.clone() });
    }
    wanted
}

impl Kernels {
    /// Compiles the kernels that are not cached, and loads all of them. `cache` is the folder of the cache; `None`
    /// disables it.
    pub fn load<A: Api>(api: &A, wanted: &[RequestedKernel], cache: Option<&Path>) -> Result<Self, ExecError> {
        let mut kernels =
            Kernels { modules: Vec::new(), functions: FxHashMap::default(), compiled: 0, cached: 0, took: Nanos(0) };
        if wanted.is_empty() {
            return Ok(kernels);
        }
        let compiler = api.compiler()?;
        let paths: Vec<Option<PathBuf>> = wanted
            .iter()
            .map(|wanted| {
                cache.map(|folder| {
                    disk_cache::path(folder, &[&compiler, &wanted.source.name, &wanted.source.text], "bin")
                })
            })
            .collect();
        let known = |(wanted, path): (&RequestedKernel, &Option<PathBuf>)| match &wanted.source.code {
            Some(code) => Some(code.to_vec()),
            None => disk_cache::read(path.as_deref()?),
        };
        let codes: Vec<Option<Vec<u8>>> = wanted.iter().zip(&paths).map(known).collect();
        let missing: Vec<usize> = (0..wanted.len()).filter(|&index| codes[index].is_none()).collect();
        let begin = Instant::now();
        let fresh = compile(api, wanted, &missing, &paths)?;
        kernels.took = if missing.is_empty() { Nanos(0) } else { Nanos(begin.elapsed().as_nanos() as i64) };
        kernels.compiled = missing.len();
        kernels.cached = wanted.len() - missing.len();
        for (index, wanted) in wanted.iter().enumerate() {
            let code = codes[index].as_ref().unwrap_or_else(|| &fresh[&index]);
            if let Err(fault) = kernels.add(api, &wanted.source, code) {
                kernels.unload(api);
                return Err(match &wanted.declared {
                    Some(declared) => not_loaded(declared, &fault),
                    None => ExecError::device(fault),
                });
            }
        }
        Ok(kernels)
    }

    fn add<A: Api>(&mut self, api: &A, source: &KernelSource, code: &[u8]) -> Result<(), Box<Fault>> {
        // SAFETY: the code was made by this compiler for this device and is complete, or the user vouches for the file
        // that it is from; the module lives as long as the table.
        let module = unsafe { api.load(code)? };
        self.modules.push(module);
        // SAFETY: the module was loaded just now.
        let function = unsafe { api.function(module, &source.name)? };
        self.functions.insert(source.clone(), function);
        Ok(())
    }

    /// True if the kernel is loaded.
    pub fn has(&self, source: &KernelSource) -> bool {
        self.functions.contains_key(source)
    }

    /// The function of a loaded kernel. Panics if the kernel is not loaded.
    pub fn get(&self, source: &KernelSource) -> Function {
        *self.functions.get(source).expect("every kernel of the image was loaded")
    }

    /// Unloads all kernels. None of them may be running.
    pub fn unload<A: Api>(&mut self, api: &A) {
        for module in self.modules.drain(..) {
            // SAFETY: no function of the module runs any more: the driver synchronizes before.
            unsafe { api.unload(module) };
        }
    }
}

/// Compiles the kernels with these indices on all cores, and stores each in the cache at its path as soon as it is
/// compiled: the next run has less to compile if this one is interrupted or a kernel fails.
fn compile<A: Api>(
    api: &A,
    wanted: &[RequestedKernel],
    indices: &[usize],
    paths: &[Option<PathBuf>],
) -> Result<FxHashMap<usize, Vec<u8>>, ExecError> {
    if indices.is_empty() {
        return Ok(FxHashMap::default());
    }
    let stage = stage::enter_counted("compiling", "kernel", indices.len());
    let compiled = parallel::map(indices.len(), |number| -> Result<Vec<u8>, String> {
        let index = indices[number];
        let code = api.compile(&wanted[index].source)?;
        disk_cache::store(paths[index].as_deref(), &code);
        stage.step();
        Ok(code)
    });
    let codes = indices.iter().zip(compiled).map(|(&index, code)| match code {
        Ok(code) => Ok((index, code)),
        Err(log) => {
            let RequestedKernel { what, span, declared, .. } = &wanted[index];
            Err(match declared {
                Some(Declared { code, name }) => ExecError::user_kernel(name, code, &log),
                None => ExecError::Kernel { what: (*what).to_owned(), log, at: (*span).into() },
            })
        }
    });
    codes.collect()
}

/// The error for the code of a declared kernel that the driver rejects.
fn not_loaded(Declared { code, name }: &Declared, fault: &Fault) -> ExecError {
    ExecError::KernelLimit {
        name: name.to_string(),
        why: fault.to_string(),
        help: match &code.target {
            Some(target) => format!("Triton has compiled it for `{target}`: compile it on a device like this one"),
            None => format!("the code must be compiled for this device and contain a function `{}`", code.source.name),
        },
        is_shared: false,
        at: code.at.into(),
    }
}
