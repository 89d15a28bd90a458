//! `aorta devices`.

use crate::config::Profile;

use super::{CliResult, DONE, output};

pub fn run() -> CliResult {
    let mut text = String::from("Simulated devices (--backend sim --config profile=NAME)\n");
    for name in Profile::names() {
        let profile = Profile::named(name)?;
        text += &format!("  {name:8}  {}\n", profile.name);
    }
    output::print(&text);
    Ok(DONE)
}
