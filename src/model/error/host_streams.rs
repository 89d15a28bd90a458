//! Errors in host streams.

use miette::{Diagnostic, SourceSpan};
use thiserror::Error;

/// An error in the use of a host stream.
#[derive(Clone, Debug, Error, Diagnostic)]
pub enum HostStreamError {
    #[error("{kind} has no `{name}`")]
    #[diagnostic(code(aorta::model::stream_option), help("{help}"))]
    Option {
        name: String,
        kind: &'static str,
        help: &'static str,
        #[label("not for {kind}")]
        at: SourceSpan,
    },

    #[error("the host stream `{stream}` cannot run {what}")]
    #[diagnostic(
        code(aorta::model::host_operation),
        help("a host stream runs {known}: write the rest in an `on` of a stream without `kind: host`")
    )]
    Operation {
        what: String,
        stream: String,
        known: String,
        #[label("needs the device")]
        at: SourceSpan,
    },

    #[error("a host stream cannot reach `{name}` in the device's memory")]
    #[diagnostic(
        code(aorta::model::host_operand),
        help(
            "declare it `in pinned`, `in managed` or `in host`, or `copy` between it and a buffer there on a stream of the device"
        )
    )]
    Operand {
        op: &'static str,
        name: String,
        #[label("`{op}` runs on the CPU")]
        at: SourceSpan,
    },

    #[error("`{op}` needs a host stream")]
    #[diagnostic(
        code(aorta::model::host_only),
        help("declare one, `stream loader(kind: host, threads: 4)`, and write it in `on loader {{ … }}`")
    )]
    HostOnly {
        op: &'static str,
        #[label("threads of the CPU run it, and this is a stream of the device")]
        at: SourceSpan,
    },

    #[error("the file `{path}` cannot be read: {why}")]
    #[diagnostic(
        code(aorta::model::data_file),
        help(
            "name a file that ends in `.bin`, from the folder of the workload or below it, in quotes: `\"tokens.bin\"`"
        )
    )]
    DataFile {
        path: String,
        why: String,
        #[label("named here")]
        at: SourceSpan,
    },

    #[error("`{op}` on a host stream needs a buffer behind the arrow")]
    #[diagnostic(
        code(aorta::model::host_output),
        help(
            "results without a name are in device memory: declare a buffer `in pinned` or `in host`, and write `-> x`"
        )
    )]
    Output {
        op: &'static str,
        #[label("its result has no name, or is that of a `def`")]
        at: SourceSpan,
    },
}
