//! The command of an episode's program: where it runs, and what it sees.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::gateway::directory::EpisodeDirectory;
use crate::gateway::options::{BWRAP, Confine, INHERITED, ProgramOptions, find_program};

/// Directories of programs and libraries, which a confined program may read.
const SYSTEM: [&str; 5] = ["/usr", "/bin", "/sbin", "/lib", "/lib64"];
/// Files and directories of the system that programs need to find libraries, users, hosts and certificates.
const SYSTEM_FILES: [&str; 11] = [
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/group",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/pki",
    "/etc/resolv.conf",
    "/etc/ssl",
];
/// Places of the directories of a confined program. They are equal in every episode.
const WORK: &str = "/work";
const HOME: &str = "/home";

/// Returns the command of the options with its variables. It runs in the directory of the episode, or in `base` without one.
pub(super) fn program_command(
    options: &ProgramOptions,
    base: &Path,
    directory: Option<&EpisodeDirectory>,
) -> Result<Command, String> {
    let (program, arguments) = options.command.split_first().ok_or("`command` is empty")?;
    let path = find_program(program, base).ok_or_else(|| format!("there is no `{program}`"))?;
    let path = std::path::absolute(&path).map_err(|error| error.to_string())?;
    let mut home = directory.map(EpisodeDirectory::home);
    let mut command = match (options.confine, directory) {
        (Confine::Bwrap, Some(directory)) => {
            home = Some(HOME.into());
            let bwrap =
                find_program(BWRAP, base).ok_or_else(|| format!("there is no `{BWRAP}`"))?;
            confined_command([&bwrap, &path], options, base, directory)?
        }
        (_, directory) => {
            let mut command = Command::new(path);
            let below = if base.as_os_str().is_empty() { Path::new(".") } else { base };
            command.current_dir(directory.map_or_else(|| below.to_owned(), EpisodeDirectory::work));
            command
        }
    };
    command.args(arguments).env_clear().envs(&options.env);
    let passed = INHERITED.into_iter().chain(options.pass_env.iter().map(String::as_str));
    for name in passed.filter(|name| !options.env.contains_key(*name)) {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    if let Some(home) = home.filter(|_| !options.env.contains_key("HOME")) {
        command.env("HOME", home);
    }
    Ok(command)
}

/// Returns the command of bubblewrap that runs a program. It sees its directories, programs and libraries of the system,
/// and what the options name; the network stays.
fn confined_command(
    [bwrap, program]: [&Path; 2],
    options: &ProgramOptions,
    base: &Path,
    directory: &EpisodeDirectory,
) -> Result<Command, String> {
    let mut command = Command::new(bwrap);
    command.args(["--die-with-parent", "--new-session"]);
    command.args(["--unshare-pid", "--unshare-ipc", "--unshare-uts"]);
    for path in SYSTEM.into_iter().chain(SYSTEM_FILES) {
        command.args(["--ro-bind-try", path, path]);
    }
    command.args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]);
    let own = Some(program).filter(|program| !SYSTEM.iter().any(|dir| program.starts_with(dir)));
    let readable = options.readable.iter().map(|path| std::path::absolute(base.join(path)));
    let readable: Vec<PathBuf> =
        readable.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    // What is mounted later covers what is below it: a path of the user may be below these two.
    command.arg("--bind").arg(directory.work()).arg(WORK);
    command.arg("--bind").arg(directory.home()).arg(HOME);
    for path in own.into_iter().chain(readable.iter().map(PathBuf::as_path)) {
        if [WORK, HOME].iter().any(|covered| path == Path::new(covered)) {
            return Err(format!(
                "`readable` has `{}`, where the program has a directory of its own",
                path.display()
            ));
        }
        command.arg("--ro-bind").args([path, path]);
    }
    // Directories of temporary files outside are not there.
    command.args(["--setenv", "TMPDIR", "/tmp", "--chdir", WORK, "--"]).arg(program);
    Ok(command)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::gateway::tests::options;

    fn confined(readable: &str) -> Result<Vec<String>, String> {
        let mut options = options(&["a"]);
        options.readable = vec![readable.to_owned()];
        let directory = EpisodeDirectory::create(11, None).unwrap();
        let programs = ["/usr/bin/bwrap", "/home/me/agent"].map(Path::new);
        let command = confined_command(programs, &options, Path::new(""), &directory)?;
        let args = command.as_std().get_args();
        Ok(args.map(|arg| arg.to_string_lossy().into_owned()).collect())
    }

    #[test]
    fn what_a_confined_program_may_read_is_not_covered_by_its_own_directories() {
        let args = confined("/work/data").unwrap();
        let place = |path: &str| args.iter().rposition(|arg| arg == path).unwrap();
        let [own, home] = [WORK, HOME].map(|path| args.iter().position(|arg| arg == path).unwrap());
        assert!(own < place("/work/data") && home < place("/home/me/agent"), "{args:?}");
        assert!(confined(HOME).unwrap_err().contains("a directory of its own"));
    }
}
