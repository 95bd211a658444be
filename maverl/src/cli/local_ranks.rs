//! The ranks of this machine as processes that `maverl train --ranks-per-node` starts.
//!
//! Each has the arguments of this process. A signal to this process goes to all of them. After the first that fails, the others
//! end by themselves, with its name; those that do not are ended. Ranks stop in order if this process is killed.

use std::ffi::OsString;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{ChildStdin, Command};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::cli::failure::Failure;
use crate::cli::process::{self, STARTER, block_on};
use crate::cli::terminal::tell;
use crate::train::{Launch, Machine, Signals};

/// The option that starts them. They do not get it.
const OPTION: &str = "--ranks-per-node";
/// Time that ranks have to end by themselves after the first that failed, and again after they were asked to.
const GRACE: Duration = Duration::from_secs(10);
/// Exit code of a rank that was asked to stop, and has stopped.
const STOPPED: i32 = process::STOPPED as i32;

/// Trains with so many ranks on this machine.
pub(super) fn train(count: usize, launch: Option<&Launch>) -> Result<ExitCode, Failure> {
    let machine = Machine::of_process(launch)?;
    block_on(async {
        // Handlers come first: a signal between the starts of two ranks must end both.
        let mut signals = Signals::listen()?;
        let mut ranks = LocalRanks::start(&machine, count)?;
        Ok(ExitCode::from(ranks.wait(&mut signals).await))
    })
}

/// Returns the arguments of this process without the option.
fn rank_arguments(own: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments = Vec::new();
    let mut own = own.skip(1);
    while let Some(argument) = own.next() {
        let text = argument.to_string_lossy();
        if text == OPTION {
            own.next();
        } else if text.strip_prefix(OPTION).is_none_or(|value| !value.starts_with('=')) {
            arguments.push(argument);
        }
    }
    arguments
}

/// Ranks of this machine that have not ended.
struct LocalRanks {
    waiting: JoinSet<(usize, std::io::Result<ExitStatus>)>,
    /// Rank and process.
    processes: Vec<(usize, u32)>,
    /// Standard inputs, which end with this process.
    inputs: Vec<ChildStdin>,
    /// True once they were asked to stop.
    asked: bool,
}

impl LocalRanks {
    fn start(machine: &Machine, count: usize) -> Result<Self, Failure> {
        let (program, arguments) = (std::env::current_exe()?, rank_arguments(std::env::args_os()));
        let mut ranks = Self {
            waiting: JoinSet::new(),
            processes: Vec::new(),
            inputs: Vec::new(),
            asked: false,
        };
        for local in 0..count {
            let mut command = Command::new(&program);
            command.args(&arguments).envs(machine.variables(local, count));
            command.env(STARTER, "1");
            command.stdin(Stdio::piped()).kill_on_drop(true);
            // A terminal's signals reach this process alone, which passes each on once.
            #[cfg(unix)]
            command.process_group(0);
            let mut child = command.spawn()?;
            let rank = machine.first_rank(count) + local;
            ranks.processes.extend(child.id().map(|id| (rank, id)));
            ranks.inputs.extend(child.stdin.take());
            ranks.waiting.spawn(async move { (rank, child.wait().await) });
        }
        Ok(ranks)
    }

    /// Waits for all, and returns the exit code: that of the first that failed, else 130 if one was asked to stop.
    async fn wait(&mut self, signals: &mut Signals) -> u8 {
        let (mut failed, mut stopped) = (None, false);
        let (mut deadline, mut asked) = (None, false);
        loop {
            let late = deadline.unwrap_or_else(|| Instant::now() + GRACE);
            tokio::select! {
                ended = self.waiting.join_next() => match ended {
                    None => break,
                    Some(ended) => {
                        let code = ended.map_or(1, |(rank, status)| self.exit_code(rank, status));
                        stopped |= code == STOPPED;
                        if failed.is_none() && ![0, STOPPED].contains(&code) {
                            (failed, deadline) = (Some(code), Some(Instant::now() + GRACE));
                        }
                    }
                },
                () = signals.next() => self.send(false),
                () = sleep_until(late), if deadline.is_some() => {
                    self.send(asked);
                    (deadline, asked) = (Some(Instant::now() + GRACE), true);
                }
            }
        }
        let code = failed.unwrap_or(if stopped { STOPPED } else { 0 });
        u8::try_from(code).unwrap_or(1)
    }

    /// Returns the exit code of a rank that has ended. The end by a signal is printed: the rank could not.
    fn exit_code(&mut self, rank: usize, status: std::io::Result<ExitStatus>) -> i32 {
        self.processes.retain(|(other, _)| *other != rank);
        match status {
            // A rank that has just started does not handle signals yet.
            Ok(status) if self.asked && was_terminated(status) => STOPPED,
            Ok(status) => status.code().unwrap_or_else(|| {
                tell(format_args!("error: rank {rank} was ended by a signal ({status})"));
                1
            }),
            Err(error) => {
                tell(format_args!("error: rank {rank} cannot be waited for: {error}"));
                1
            }
        }
    }

    /// Asks all ranks to stop; with `force`, ends them.
    fn send(&mut self, force: bool) {
        self.asked = true;
        #[cfg(unix)]
        for (_, id) in &self.processes {
            use rustix::process::{Pid, Signal, kill_process};
            let signal = if force { Signal::KILL } else { Signal::TERM };
            if let Some(id) = i32::try_from(*id).ok().and_then(Pid::from_raw) {
                // It fails where the process has ended meanwhile.
                let _ = kill_process(id, signal);
            }
        }
        // Without signals, a process can only be ended.
        #[cfg(not(unix))]
        if force {
            self.waiting.abort_all();
        }
    }
}

/// Returns true if a process was ended by SIGTERM.
#[cfg(unix)]
fn was_terminated(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal() == Some(rustix::process::Signal::TERM.as_raw())
}

/// Returns true if a process was ended by SIGTERM.
#[cfg(not(unix))]
fn was_terminated(_: ExitStatus) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_have_the_arguments_of_the_command_without_the_number_of_ranks() {
        let own = "maverl train run.toml --ranks-per-node 4 --set a=1 --ranks-per-node=2 --quick";
        let arguments = rank_arguments(own.split(' ').map(OsString::from));
        assert_eq!(arguments, ["train", "run.toml", "--set", "a=1", "--quick"]);
    }
}
