//! Validation of the options about a program's own directory and its confinement.

use std::path::Path;

use crate::gateway::directory::{copies_itself, irregular_files, is_below};

use super::{BWRAP, Confine, Mode, ProgramOptions, WorkDirectory, find_program};

impl ProgramOptions {
    /// Returns every problem of `workdir`, `files`, `confine` and `readable`.
    pub(super) fn problems_of_directory(&self, base: &Path) -> Vec<String> {
        let mut problems = Vec::new();
        let own = self.workdir == WorkDirectory::Episode;
        if own && self.mode == Mode::Worker {
            let what = "`workdir` is \"episode\", and a worker plays several; set `mode = \"episode\"`, or remove it";
            problems.push(what.to_owned());
        }
        let set = [("files", !self.files.is_empty()), ("confine", self.confine == Confine::Bwrap)];
        for (name, _) in set.iter().filter(|(_, set)| *set && !own) {
            problems.push(format!(
                "`{name}` is for a program with a directory of its own; set `workdir = \"episode\"`, or remove it"
            ));
        }
        let files = base.join(&self.files);
        if !self.files.is_empty() && !files.is_dir() {
            let (name, files) = (&self.files, files.display());
            problems.push(format!("`files` is {name:?}; there is no directory {files}"));
        }
        if !self.files.is_empty() {
            let temporary = std::env::temp_dir();
            if is_below(&temporary, &files) {
                problems.push(format!("`files`: {}", copies_itself(&files, &temporary)));
            } else {
                // A directory that cannot be read fails where it is copied.
                let irregular = irregular_files(&files).unwrap_or_default();
                problems.extend(irregular.iter().map(|what| format!("`files`: {what}")));
            }
        }
        problems.extend(self.problems_of_confinement(base));
        problems
    }

    fn problems_of_confinement(&self, base: &Path) -> Vec<String> {
        if self.confine == Confine::None {
            let what =
                "`readable` is for a confined program; set `confine = \"bwrap\"`, or remove it";
            return self.readable.first().map(|_| what.to_owned()).into_iter().collect();
        }
        let mut problems = Vec::new();
        if find_program(BWRAP, base).is_none() {
            problems.push(format!(
                "`confine` is \"bwrap\", and `{BWRAP}` is in no directory of `PATH`; install bubblewrap"
            ));
        }
        for name in self.readable.iter().filter(|name| !base.join(name).exists()) {
            let at = base.join(name);
            problems
                .push(format!("`readable` names `{name}`; there is nothing at {}", at.display()));
        }
        problems
    }
}
