//! Python programs that a sandboxed process begins with.

/// Definitions of every launcher.
const COMMON: &str = include_str!("../launch/common.py");
/// Definitions by which an interpreter waits to be forked.
const FORK: &str = include_str!("../launch/fork.py");

/// Program that a sandboxed process begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Launcher {
    /// Runs one program.
    Program,
    /// Defines a candidate and answers calls.
    Candidate,
    /// Runs tests.
    Tests,
}

impl Launcher {
    /// Every launcher, in the order of its index.
    pub(super) const ALL: [Self; 3] = [Self::Program, Self::Candidate, Self::Tests];

    /// Returns its definitions and its last statement, which runs it.
    fn parts(self) -> (&'static str, &'static str) {
        match self {
            Self::Program => (include_str!("../launch/program.py"), "run(read_all(3))"),
            Self::Candidate => (include_str!("../launch/candidate.py"), "serve()"),
            Self::Tests => (include_str!("../launch/tests.py"), "main()"),
        }
    }

    /// Returns the text for an interpreter that runs it once.
    pub(super) fn text(self) -> String {
        let (definitions, run) = self.parts();
        [COMMON, definitions, run].join("\n")
    }

    /// Returns the text for an interpreter that is forked for each run. Its last statement is reached in forked processes
    /// only, and from the same depth of calls as in [`Launcher::text`].
    pub(super) fn forking_text(self) -> String {
        let (definitions, run) = self.parts();
        [COMMON, definitions, FORK, "hidden = await_fork()", run].join("\n")
    }
}
