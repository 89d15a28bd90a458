//! `aorta compare --fast-p`: the scores of results against a baseline of KernelBench.

use std::path::Path;

use crate::measure::kernelbench::{BaselineResults, Scores};
use crate::report::fast_p::FastP;
use crate::report::{PageContent, fast_p as report};

use crate::cli::error::{CliError, InputError};
use crate::cli::inputs::load;
use crate::cli::io::outputs::PageArgs;
use crate::cli::{CliResult, DONE};

/// Compares each of `others` with `base`. `level` is that of files that do not name one.
pub fn run(base: &str, others: &[String], level: Option<u32>, page: &PageArgs) -> CliResult {
    page.check()?;
    let baseline = read(base, level)?;
    let mut pages = Vec::new();
    for other in others {
        let results = read(other, level)?;
        let scores = Scores::of(&baseline, &results);
        if scores.is_empty() {
            let listed = |results: &BaselineResults| {
                results.levels.keys().map(|level| format!("level{level}")).collect::<Vec<_>>().join(", ")
            };
            let why = format!("it has {}, and {base} has {}", listed(&results), listed(&baseline));
            let help = "compare files of the same levels; `--level N` says of which an evaluation is";
            return Err(InputError::bad_value("`--fast-p`", other, &why, help).into());
        }
        let of = FastP { base: (base, &baseline), other: (other, &results), scores: &scores };
        let own = report::page(&of);
        page.show(std::slice::from_ref(&own), || report::json(&of))?;
        pages.push(own);
    }
    page.write_html(|| PageContent::reports(pages))?;
    Ok(DONE)
}

fn read(name: &str, level: Option<u32>) -> Result<BaselineResults, CliError> {
    let text = load::read(Path::new(name), load::FileKind::Runs)?;
    BaselineResults::read(text.as_bytes(), level).map_err(|why| {
        let help = "`aorta baseline` writes such files, and KernelBench has them in `results/timing`";
        InputError::bad_value("`--fast-p`", name, &why, help).into()
    })
}
