//! `aorta profile`: a short run under a vendor's profiler, with the names of operations in its timeline.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};

use crate::backend::ranges::{RangeLibrary, Ranges};

use crate::cli::error::InputError;
use crate::cli::inputs::load;
use crate::cli::io::output;
use crate::cli::{CliResult, environment, targets};

#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// The profiler
    #[arg(long, value_name = "TOOL")]
    with: Tool,
    /// Output file of the profiler instead of `aorta-TOOL`; the profiler adds an extension
    #[arg(long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// A workload, and options as `aorta exec` takes them
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "FILE")]
    run: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Tool {
    /// NVIDIA Nsight Systems: timeline
    Nsys,
    /// NVIDIA Nsight Compute: metrics of each kernel
    Ncu,
    /// AMD's rocprofv3: timeline
    Rocprofv3,
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Tool::Nsys => "nsys",
            Tool::Ncu => "ncu",
            Tool::Rocprofv3 => "rocprofv3",
        }
    }

    fn how_to_get(self) -> &'static str {
        match self {
            Tool::Nsys => {
                "it is part of the CUDA toolkit (package nsight-systems), or https://developer.nvidia.com/nsight-systems"
            }
            Tool::Ncu => {
                "it is part of the CUDA toolkit (package nsight-compute), or https://developer.nvidia.com/nsight-compute"
            }
            Tool::Rocprofv3 => "it is part of ROCm (package rocprofiler-sdk)",
        }
    }

    /// The tool's own arguments, before the program that it runs.
    fn arguments(self, to: &Path) -> Vec<String> {
        let to = to.display().to_string();
        let words: &[&str] = match self {
            Tool::Nsys => &["profile", "--trace=cuda,nvtx", "--force-overwrite=true", "--output"],
            Tool::Ncu => &["--nvtx", "--force-overwrite", "--export"],
            Tool::Rocprofv3 => &["--marker-trace", "--kernel-trace", "--memory-copy-trace", "-o"],
        };
        let end: &[&str] = if matches!(self, Tool::Rocprofv3) { &["--"] } else { &[] };
        let words = words.iter().map(|word| (*word).to_owned());
        words.chain([to]).chain(end.iter().map(|word| (*word).to_owned())).collect()
    }

    /// Default options of the run: few iterations suffice for a profile. Nsight Compute serializes and replays kernels,
    /// so a gate would never open.
    fn defaults(self) -> &'static [&'static str] {
        match self {
            Tool::Nsys | Tool::Rocprofv3 => &["--effort", "quick"],
            Tool::Ncu => &["--effort", "sanity", "--gate", "off"],
        }
    }

    fn ranges(self) -> &'static str {
        if matches!(self, Tool::Rocprofv3) { "roctx" } else { "nvtx" }
    }
}

/// The ranges of operations for a profiler, each named by phase, operation and location. `None` if the library is
/// missing.
pub fn ranges(kind: RangeLibrary, loaded: &load::Loaded) -> Option<Ranges> {
    let injection = environment::nvtx_injection();
    let mut ranges = Ranges::open(kind, injection.as_deref(), &environment::library_paths())?;
    let program = loaded.compiled.program();
    for op in program.steps().flat_map(|step| &step.ops) {
        let phase = program.phase_text(op.phase).map(|phase| format!("{phase}: ")).unwrap_or_default();
        let place = loaded.compiled.sources.place(op.span);
        ranges.name(op.span, &format!("{phase}{} ({}) {place}", program.op_text(op), program.op_name(op)));
    }
    Some(ranges)
}

pub fn run(args: &ProfileArgs) -> CliResult {
    let tool = args.with;
    let name = tool.name();
    let path = environment::program(name)
        .ok_or_else(|| InputError::NoProfiler { name, help: tool.how_to_get().to_owned() })?;
    let failed = |why: std::io::Error| InputError::NoRestart { why: why.to_string() };
    let aorta = std::env::current_exe().map_err(failed)?;
    let to = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("aorta-{name}")));
    let mut command = Command::new(path);
    command.args(tool.arguments(&to)).arg(aorta).args(arguments(tool, &args.run));
    output::eprint(&format!("{name} writes to {}; times under a profiler are not a measurement.\n", to.display()));
    let status = command.status().map_err(failed)?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(4))
}

/// The arguments of the profiled program.
fn arguments(tool: Tool, run: &[String]) -> Vec<String> {
    let all = ["exec", "--ranges", tool.ranges()].map(str::to_owned);
    let defaults: Vec<String> = tool.defaults().iter().map(|word| (*word).to_owned()).collect();
    [&all, &targets::without(&defaults, run)[..], run].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_is_short_by_default() {
        let words = |tool, run: &[&str]| {
            let run: Vec<String> = run.iter().map(|word| (*word).to_owned()).collect();
            arguments(tool, &run).join(" ")
        };
        assert_eq!(words(Tool::Nsys, &["moe"]), "exec --ranges nvtx --effort quick moe");
        assert_eq!(words(Tool::Nsys, &["moe", "--effort=full"]), "exec --ranges nvtx moe --effort=full");
        let set = words(Tool::Nsys, &["moe", "--config", "effort=full"]);
        assert_eq!(set, "exec --ranges nvtx moe --config effort=full");
        assert_eq!(words(Tool::Ncu, &["moe"]), "exec --ranges nvtx --effort sanity --gate off moe");
        let rocm = words(Tool::Rocprofv3, &["moe", "--gate", "off"]);
        assert_eq!(rocm, "exec --ranges roctx --effort quick moe --gate off");
    }

    #[test]
    fn tools_get_the_output_path() {
        let words = |tool: Tool| tool.arguments(Path::new("out")).join(" ");
        assert_eq!(words(Tool::Nsys), "profile --trace=cuda,nvtx --force-overwrite=true --output out");
        assert_eq!(words(Tool::Ncu), "--nvtx --force-overwrite --export out");
        assert_eq!(words(Tool::Rocprofv3), "--marker-trace --kernel-trace --memory-copy-trace -o out --");
    }
}
