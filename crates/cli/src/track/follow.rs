//! Sending a run to one tracker, from its files, as they grow.
//!
//! ```text
//! metrics.jsonl, timing.jsonl, rollouts/ ─► rows that the cursor lacks ─► tracker ─► cursor
//! ```
//!
//! A row is sent again if this process ends between the two last steps; trackers know a row by its time or its name, and keep
//! one.

use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use maverl::run_dir::RunDir;

use super::cursor::{Cursor, Pending};
use super::server::{SendFailure, SendResult};
use super::spool::{RunState, Spool};
use super::{TrackedRun, TrackerClient, connect};

/// Pause between two looks at the files.
const LOOK: Duration = Duration::from_millis(500);
/// First and longest pause after a failure.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// Process that trains the run, if there is one.
#[derive(Debug, Clone, Copy)]
pub(super) enum TrainerProcess {
    /// None is followed: what the files have is sent, and no more.
    Nobody,
    /// A process with this id.
    #[cfg(unix)]
    Process(i32),
    /// The process with this id, which has started this one.
    #[cfg(unix)]
    Parent(i32),
}

#[cfg(unix)]
impl TrainerProcess {
    /// Returns the process with this id.
    pub(super) fn process(id: i32) -> Self {
        if parent() == id { Self::Parent(id) } else { Self::Process(id) }
    }

    /// Returns true while the process is there. A parent is another one as soon as the first has ended.
    fn is_alive(self) -> bool {
        use rustix::process::{Pid, test_kill_process};
        match self {
            Self::Nobody => false,
            Self::Parent(id) => parent() == id,
            Self::Process(id) => Pid::from_raw(id).is_some_and(|id| test_kill_process(id).is_ok()),
        }
    }
}

#[cfg(unix)]
fn parent() -> i32 {
    rustix::process::getppid().map_or(0, |id| id.as_raw_nonzero().get())
}

#[cfg(not(unix))]
impl TrainerProcess {
    /// Processes are not looked for on this system: what the files have is sent.
    pub(super) fn process(_id: i32) -> Self {
        Self::Nobody
    }

    fn is_alive(self) -> bool {
        match self {
            Self::Nobody => false,
        }
    }
}

/// Sends rows until the run has ended and all are sent.
pub(super) fn follow(run: &TrackedRun, dir: &Path, trainer: TrainerProcess) -> Result<(), String> {
    let spool = Spool::new(dir, run.episodes);
    let failed = |error: io::Error| format!("{}: {error}", dir.display());
    let mut cursor = Cursor::open(dir, run.tracker.name()).map_err(failed)?;
    let mut follower = RunFollower {
        run,
        spool,
        goes_on: false,
        client: None,
        pause: PAUSES[0],
        since: None,
        compared: false,
    };
    loop {
        // The state comes first: rows that are written before the end are seen after it.
        follower.goes_on = matches!(trainer, TrainerProcess::Nobody)
            && RunDir::open(dir).is_ok_and(|run| run.is_running());
        let state = follower.spool.state(trainer.is_alive() || follower.goes_on);
        match follower.advance(&mut cursor, state) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(SendFailure::Refused(message)) => return Err(message),
            Err(SendFailure::Later(message, least)) => follower.wait(message, least, state)?,
        }
    }
}

/// Returns the next rows to send: those that an earlier process was sending, or those of the files, which are noted first. True
/// stands for the last rows of the files.
fn next_rows(
    spool: &mut Spool,
    cursor: &Cursor,
    most: usize,
) -> io::Result<Option<(Pending, bool)>> {
    if let Some(pending) = Pending::open(cursor) {
        return Ok(Some((pending, false)));
    }
    let (rows, digests): (Vec<_>, Vec<_>) = spool
        .rows_where(|step, is_step| !cursor.sent.has_row(step, is_step), most)?
        .into_iter()
        .unzip();
    let Some(digest) = digests.into_iter().next_back() else { return Ok(None) };
    let are_last = rows.len() < most;
    let pending = Pending { rows, digest };
    pending.write(cursor)?;
    Ok(Some((pending, are_last)))
}

struct RunFollower<'r> {
    run: &'r TrackedRun,
    spool: Spool,
    /// A process that is not followed writes the run.
    goes_on: bool,
    client: Option<Box<dyn TrackerClient>>,
    /// Pause after the next failure.
    pause: Duration,
    /// When failures began.
    since: Option<Instant>,
    /// True if the rows that were sent are those of the files.
    compared: bool,
}

impl RunFollower<'_> {
    /// Sends some rows. Returns true if the run has ended and everything is sent.
    fn advance(&mut self, cursor: &mut Cursor, state: RunState) -> SendResult<bool> {
        let refused = |error: io::Error| SendFailure::Refused(error.to_string());
        if self.client.is_none() {
            self.client = Some(connect(self.run, cursor)?);
        }
        let Some(client) = &mut self.client else { return Ok(false) };
        if !self.compared
            && let Some(digest) = self.spool.digest_up_to(cursor.sent.last_step).map_err(refused)?
        {
            self.compared = true;
            if !cursor.digest.is_empty() && digest != cursor.digest {
                self.run.warn("the rows of the first steps differ from those that were sent, as with another number of ranks; those that were sent stay");
            }
        }
        let batch = client.batch();
        let next = next_rows(&mut self.spool, cursor, batch).map_err(refused)?;
        let Some((pending, are_last)) = next else {
            if self.goes_on {
                return Ok(self.leave_run());
            }
            if state == RunState::Running {
                self.recovered();
                sleep(LOOK);
                return Ok(false);
            }
            let end_ms = self.spool.last_ms().map_err(refused)?;
            self.client.as_mut().map_or(Ok(()), |client| client.finish(state, end_ms))?;
            return Ok(true);
        };
        client.send(&pending.rows)?;
        cursor.add_rows(pending);
        cursor.write().map_err(refused)?;
        self.recovered();
        Ok(are_last && self.goes_on && self.leave_run())
    }

    /// Says that a run goes on that is not followed. Returns true.
    fn leave_run(&self) -> bool {
        self.run.warn("the run goes on; what it has written is sent, and `--follow PID` sends what it will write");
        true
    }

    fn recovered(&mut self) {
        (self.pause, self.since) = (PAUSES[0], None);
    }

    /// Waits after a failure. An error if the run has ended, and the time to wait at its end is over.
    fn wait(&mut self, message: String, least: Duration, state: RunState) -> Result<(), String> {
        self.client = None;
        let since = *self.since.get_or_insert_with(|| {
            self.run.warn(&message);
            Instant::now()
        });
        if state != RunState::Running && since.elapsed() >= self.run.wait {
            return Err(message);
        }
        sleep(self.pause.max(least).min(PAUSES[1]));
        self.pause = (2 * self.pause).min(PAUSES[1]);
        Ok(())
    }
}
