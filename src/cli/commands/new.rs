//! `aorta new`: creates a workload file.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::base::shell;
use crate::config::Settings;

use crate::cli::error::InputError;
use crate::cli::inputs::{container, library, load, project};
use crate::cli::io::output;
use crate::cli::{CliResult, DONE};

/// The starter file: two streams, a dependency between them, a parameter and a metric.
const STARTER: &str = include_str!("../../../assets/starter.aorta");

#[derive(Debug, Args)]
pub struct NewArgs {
    /// The file to write; `.aorta` is added if missing
    path: PathBuf,
    /// Start with a copy of a workload of the project, or of a shipped one
    #[arg(long, value_name = "NAME")]
    from: Option<String>,
}

pub fn run(args: NewArgs) -> CliResult {
    let text = match &args.from {
        None => STARTER,
        Some(name) => {
            match project::find(name, Path::new("."))?.filter(|file| file.extension() == Some("aorta".as_ref())) {
                Some(file) => &load::read(&file, load::FileKind::Workload(Settings::default().max_file_bytes))?,
                None if container::is_container(Path::new(name)) => {
                    let help = format!("`aorta unbundle {name}` makes a folder of its files");
                    let why = "a bundle or a record has several files";
                    return Err(InputError::bad_value("`--from`", name, why, &help).into());
                }
                None => library::find(name).ok_or_else(|| library::unknown(name))?.text,
            }
        }
    };
    let path = match args.path.extension() {
        Some(extension) if extension == "aorta" => args.path.clone(),
        _ => PathBuf::from(format!("{}.aorta", args.path.display())),
    };
    // A dangling link counts as existing and is not written through.
    if path.symlink_metadata().is_ok() {
        let help = "choose another name, or remove it first";
        return Err(InputError::unwritable(path, "the file already exists", Some(help)).into());
    }
    output::write_text(&path, text)?;
    output::print(&next_steps(&path));
    Ok(DONE)
}

fn next_steps(path: &Path) -> String {
    let (path, typed) = (path.display(), path.display().to_string());
    let [show, exec] = ["show", "exec"].map(|command| shell::command(["aorta", command, &typed]));
    format!("Wrote {path}. `{show}` describes it, `{exec}` runs it.\n")
}
