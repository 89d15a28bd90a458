//! Parses the options of a side of `aorta ab`, given as one text in the syntax of a shell.

use crate::base::shell;
use crate::cli::commands::exec::ExecArgs;
use crate::cli::commands::forwarded_options::exec_args;
use crate::cli::error::InputError;
use crate::cli::targets;
use crate::measure::paired::AbSide;

/// The option that turns the gate off.
const GATE_OFF: &str = "--gate=off";

/// A side: A or B, its text, and the arguments of its `aorta exec`.
#[derive(Clone, Debug)]
pub struct SideArgs {
    pub side: AbSide,
    /// The file, the options of both sides and those of this side.
    pub arguments: Vec<String>,
}

impl SideArgs {
    /// Reads a side's options. Returns the words and the parsed arguments of `aorta exec`. A first word that is not an
    /// option replaces `file`.
    ///
    /// # Errors
    ///
    /// The options are not valid for `aorta exec`, or only make sense for a single run.
    pub fn read(side: AbSide, file: &str, given: &str, both: &[String]) -> Result<(SideArgs, ExecArgs), InputError> {
        let option = format!("`--{}`", side.name());
        let mistake = |why: &str, help: &str| InputError::bad_value(&option, given, why, help);
        let quotes = || mistake("a quote is not closed", "close the quote");
        let mut given_words = shell::words(given).ok_or_else(quotes)?;
        let file = match given_words.first() {
            Some(first) if !first.starts_with('-') || first == "-" => given_words.remove(0),
            _ => file.to_owned(),
        };
        if file == "-" {
            return Err(mistake(
                "standard input can be read only once, and every run reads its file",
                "write the text to a file, and name that file",
            ));
        }
        let arguments: Vec<String> = [vec![file], targets::without(both, &given_words), given_words].concat();
        let exec = exec_args(&arguments).map_err(|mistake| mistake.of(&option, given))?;
        if let Some((option, instead)) = exec.by_itself() {
            return Err(mistake(&format!("`{option}` applies to a single run only"), instead));
        }
        Ok((SideArgs { side, arguments }, exec))
    }

    /// Returns the same side without the gate.
    pub fn ungated(mut self) -> SideArgs {
        let off = [GATE_OFF.to_owned()];
        self.arguments = [targets::without(&self.arguments, &off), off.to_vec()].concat();
        self
    }
}
