//! `maverl completions`: scripts that complete the command line in shells.

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use super::usage::name_program;
use super::{Cli, Failure, print};

/// Writes the script for a shell, under the binary's name.
pub(super) fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let program = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&program).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    print(&script(shell, if name.is_empty() { "maverl" } else { &name }))
}

fn script(shell: Shell, name: &str) -> String {
    let mut text = Vec::new();
    generate(shell, &mut name_program(Cli::command(), name), name, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_gets_a_script_with_every_command_under_the_name_of_the_binary() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell, "my_team");
            for part in ["my_team", "completions", "explain", "resume"] {
                assert!(script.contains(part), "{part} is missing for {shell}");
            }
            assert!(!script.contains("maverl-") && !script.contains("`maverl "), "{shell}");
        }
    }
}
