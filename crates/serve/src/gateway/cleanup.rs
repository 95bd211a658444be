//! A shell that ends what this process leaves when it ends without doing so, such as by SIGKILL or by a second Ctrl-C: it kills
//! the groups of programs, and removes the directories of their episodes.
//!
//! The death signal of Linux would follow the thread that started a program, and threads of a runtime come and go. The end of
//! a pipe is that of the process.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Reads `+ NAME` and `- NAME` until the pipe ends, then ends what is left: directories have names that begin with `maverl-`, and
/// other names are numbers of groups. `$1` is the directory of temporary files.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
left=
while read -r sign name; do
    rest=
    for one in $left; do [ "$one" = "$name" ] || rest="$rest $one"; done
    case $sign in
        +) left="$rest $name" ;;
        -) left=$rest ;;
    esac
done
for one in $left; do
    case $one in maverl-*) ;; *) kill -KILL "-$one" ;; esac
done
for one in $left; do
    case $one in maverl-*) rm -rf "$1/$one" || { sleep 1; rm -rf "$1/$one"; } ;; esac
done
"#;

/// The shell; `None` if there is none.
static SHELL: OnceLock<Option<Mutex<Child>>> = OnceLock::new();

/// Adds a group, or a directory of temporary files.
pub(super) fn watch(name: &str) {
    tell('+', name);
}

/// Removes a group that has ended, or a directory that is removed.
pub(super) fn forget(name: &str) {
    tell('-', name);
}

fn tell(sign: char, name: &str) {
    let start = || start_shell(&std::env::temp_dir()).map(Mutex::new);
    let Some(shell) = SHELL.get_or_init(start) else { return };
    let mut shell = shell.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(input) = &mut shell.stdin {
        // Without the shell, groups and directories are ended where they are dropped.
        let _ = input.write_all(format!("{sign} {name}\n").as_bytes());
    }
}

fn start_shell(directory: &Path) -> Option<Child> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SCRIPT, "sh"]).arg(directory).process_group(0);
    command.env_clear().env("PATH", "/usr/bin:/bin");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use super::*;

    #[test]
    fn the_end_of_the_process_ends_its_groups_and_removes_its_directories_alone() {
        let above = tempfile::tempdir().unwrap();
        let above = above.path().join("temporary files");
        fs::create_dir(&above).unwrap();
        for name in ["maverl-1", "maverl-2", "maverl-3", "other"] {
            fs::create_dir(above.join(name)).unwrap();
            fs::write(above.join(name).join("file"), "x").unwrap();
        }
        let mut program = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let mut shell = start_shell(&above).unwrap();
        let lines = format!("+ maverl-1\n+ maverl-2\n+ {}\n- maverl-2\n+ maverl-3\n", program.id());
        shell.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success());
        assert!(!program.wait().unwrap().success());
        let mut left: Vec<_> =
            fs::read_dir(&above).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["maverl-2", "other"]);
    }
}
