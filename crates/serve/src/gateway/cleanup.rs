//! A shell that kills the groups of programs when this process has ended without doing so, such as by SIGKILL.
//!
//! The death signal of Linux would follow the thread that started a program, and threads of a runtime come and go. The end of
//! a pipe is that of the process.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Reads `+ GROUP` and `- GROUP` until the pipe ends, then kills the groups that are left.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
groups=
while read -r sign group; do
    rest=
    for one in $groups; do [ "$one" = "$group" ] || rest="$rest $one"; done
    case $sign in
        +) groups="$rest $group" ;;
        -) groups=$rest ;;
    esac
done
for group in $groups; do kill -KILL "-$group"; done
"#;

/// Input of the shell; `None` if there is no shell.
static SHELL: OnceLock<Option<Mutex<ChildStdin>>> = OnceLock::new();

/// Adds a group.
pub(super) fn watch(group: u32) {
    tell('+', group);
}

/// Removes a group that has ended.
pub(super) fn forget(group: u32) {
    tell('-', group);
}

fn tell(sign: char, group: u32) {
    let Some(shell) = SHELL.get_or_init(start) else { return };
    let mut shell = shell.lock().unwrap_or_else(PoisonError::into_inner);
    // Without the shell, groups are ended where they are dropped.
    let _ = shell.write_all(format!("{sign} {group}\n").as_bytes());
}

fn start() -> Option<Mutex<ChildStdin>> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SCRIPT]).env_clear().process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let shell = command.spawn().ok()?;
    shell.stdin.map(Mutex::new)
}
