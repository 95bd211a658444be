//! Orchestras: the control flow of a team, as straight-line async Rust for *one* episode.

mod backend;
mod blocking;
mod branch;
mod conversation;
mod episode;
mod gate;
mod player;
mod prefix;
mod requests;
mod reward_parts;
mod session;
mod team;
mod times;

pub use backend::{Ask, AskLimits, ChatBackend, Response};
pub use conversation::Conversation;
#[doc(hidden)]
pub use episode::{EpisodeState, Member};
#[doc(hidden)]
pub use gate::TurnGate;
#[doc(hidden)]
pub use player::EpisodePlayer;
#[doc(hidden)]
pub use prefix::Prefix;
pub(crate) use prefix::other_prompt;
#[doc(hidden)]
pub use requests::{ReplyListener, RequestOptions};
#[doc(hidden)]
pub use reward_parts::Recipient;
#[doc(hidden)]
pub use team::DynOrchestra;
pub use team::{Chat, SeatOf, Team};
pub(crate) use times::request_begin;
#[doc(hidden)]
pub use times::{RequestTime, RequestTimes};

use std::future::Future;
use std::num::NonZero;
use std::path::Path;

use crate::agent::{AgentName, AskError};
use crate::task::{Task, TaskError};
use crate::trajectory::{Fault, FaultKind};

/// The control flow of a team for one episode. Its fields are its configuration.
///
/// The runtime does the batching: thousands of episodes run concurrently, and agents that share a model share its
/// batches.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no orchestra",
    label = "does not implement `Orchestra`",
    note = "write `impl Orchestra for {Self}` with `run`"
)]
pub trait Orchestra: Send + Sync + 'static {
    /// Plays one episode and returns the team's answer, or `None` if it gives none.
    ///
    /// # Errors
    ///
    /// Errors of `ask` and `act`, propagated by `?`: a malformed reply ends the episode *scored*, a fault *unscored*.
    fn run(
        &self,
        task: &Task,
        team: &Team<Self>,
    ) -> impl Future<Output = Result<Option<String>, AskError>> + Send;

    /// Returns the names of the environments, of `[environments]`, in which it acts in addition to its own
    /// ([`Team::act_in`]).
    fn environments(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns true if it acts with these options although it declares no actions (`needs`), such as a program that decides itself.
    /// `check` warns of settings of observations where nothing acts.
    fn acts(&self) -> bool {
        false
    }

    /// Returns the messages of a task, `system` or `history`, that it passes on to agents without an input field of that name.
    /// `check` warns of messages that no agent reads.
    fn passes_on(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Validates the options before the run starts, and returns warnings. `maverl check` prints the result. Must be cheap.
    /// Relative paths in options are relative to `base`.
    ///
    /// # Errors
    ///
    /// Every problem. One that begins with an option's name in backticks is shown with its place.
    fn validate(&self, base: &Path) -> Result<Vec<String>, Vec<String>> {
        let _ = base;
        Ok(Vec::new())
    }

    /// Creates what the options describe, such as a server, once, before the first episode. Relative paths in options are
    /// relative to `base`.
    ///
    /// # Errors
    ///
    /// Description of the problem; the run does not start.
    fn start(&mut self, base: &Path) -> Result<(), String> {
        let _ = base;
        Ok(())
    }

    /// Waits until an episode can be played, such as for a free worker. The time limit of the episode begins afterwards.
    fn ready(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Returns files beside the configuration that episodes depend on. Their hashes are part of a run's provenance, so a
    /// run is not resumed with others.
    fn sources(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Registered name and members of an orchestra; implemented by `#[orchestra]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no orchestra name",
    label = "not declared with `#[orchestra]`",
    note = "add `#[orchestra(agents(..))]` above the definition of `{Self}`"
)]
pub trait OrchestraName: Orchestra {
    /// `team/flow`, in snake_case.
    const NAME: &'static str;
    /// First line of the type's documentation.
    const SUMMARY: &'static str;
    /// Names of the actions it sends (`needs("search")`); the environment must offer each.
    const NEEDS: &'static [&'static str];

    /// True if it declares a type of tasks. [`OrchestraName::read_task`] is called only then.
    const READS_TASKS: bool = false;

    /// Returns the seats of the orchestra with these options.
    fn members(&self) -> Vec<crate::trajectory::Seat>;

    /// Reads a task as the type that it declares (`task = Row`); the default declares none.
    ///
    /// # Errors
    ///
    /// See [`Task::parse`].
    fn read_task(task: &Task) -> Result<(), TaskError> {
        let _ = task;
        Ok(())
    }
}

/// A fault of the orchestra: the policy did not cause it.
impl From<TaskError> for AskError {
    fn from(error: TaskError) -> Self {
        Fault::new(FaultKind::Orchestra, error.to_string()).into()
    }
}

/// Implemented for each member of an orchestra, so that `team.ask::<A>` compiles.
#[diagnostic::on_unimplemented(
    message = "`{Self}` may not ask `{A}`",
    label = "`{A}` is not a member of this orchestra",
    note = "declare it: `#[orchestra(.., agents({A}))]`"
)]
pub trait Includes<A: AgentName> {}

/// Maximum number of seats of one agent in an orchestra.
#[doc(hidden)]
pub const MOST_SEATS: u32 = 1024;

/// Number of seats of a role: type of the field that `agents(Voter[field])` names.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a number of seats",
    note = "use `u8`, `u16`, `u32`, `usize`, or a `NonZero` of those"
)]
pub trait SeatCount {
    /// Returns the number of seats.
    fn seats(&self) -> u32;
}

macro_rules! seat_count {
    ($($number:ty),*) => {$(
        impl SeatCount for $number {
            fn seats(&self) -> u32 {
                u32::try_from(*self).unwrap_or(u32::MAX)
            }
        }

        impl SeatCount for NonZero<$number> {
            fn seats(&self) -> u32 {
                self.get().seats()
            }
        }
    )*};
}
seat_count!(u8, u16, u32, u64, usize);
