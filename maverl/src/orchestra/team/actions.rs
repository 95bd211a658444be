//! Actions: in the episode's own environment, and in further ones.

use std::future::Future;

use crate::orchestra::AskError;
use crate::orchestra::branch::Flight;
use crate::orchestra::episode::named_error;
use crate::orchestra::session::EnvSession;
use crate::orchestra::team::Team;
use crate::task::{Action, Observation};
use crate::tools::Tool;
use crate::trajectory::{Fault, FaultKind};

impl<O: ?Sized> Team<O> {
    /// Acts in the environment. Actions of one episode are executed one after another, in the order in which they
    /// arrive. The record of the episode has the action at the place in its branch at which `act` was *called*.
    ///
    /// # Errors
    ///
    /// [`AskError::Fault`] of kind `environment` if the environment fails; the episode then ends unscored.
    pub fn act(
        &self,
        action: Action,
    ) -> impl Future<Output = Result<Observation, AskError>> + Send {
        self.act_next(None, action)
    }

    /// Returns the tools that agents may call in this episode.
    pub fn tools(&self) -> Vec<Tool> {
        self.table.own.environment.tools(self.table.task())
    }

    /// Acts in a further environment, by its name in `[environments]`. An orchestra declares the environments it acts
    /// in with [`Orchestra::environments`](crate::orchestra::Orchestra::environments).
    ///
    /// # Errors
    ///
    /// Same as [`Team::act`]; also if there is no environment of this name.
    pub fn act_in(
        &self,
        name: &str,
        action: Action,
    ) -> impl Future<Output = Result<Observation, AskError>> + Send {
        self.act_next(Some(name), action)
    }

    /// Acts in the environment, or in the further one of a name. The place of the action is that at which this is called.
    fn act_next(
        &self,
        name: Option<&str>,
        action: Action,
    ) -> impl Future<Output = Result<Observation, AskError>> + Send {
        let place = self.branch.next_act();
        async move {
            let _flight = Flight::start(&self.branch);
            let done = self.session(name)?.act(action.clone()).await.map_err(|error| {
                let message = name.map(|name| named_error(name, &error).to_string());
                let message = message.unwrap_or_else(|| error.to_string());
                self.table.fail(Fault::new(FaultKind::Environment, message))
            })?;
            if let Some(prefix) = &self.table.prefix {
                let checked = prefix.check_act(&place, (&action, &done));
                checked.map_err(|fault| self.table.fail(fault))?;
            }
            self.table.record_act(place, name.map(str::to_owned), action, &done);
            Ok(done)
        }
    }

    /// Returns the session in the environment, or in the further one of a name.
    fn session(&self, name: Option<&str>) -> Result<&EnvSession, AskError> {
        let Some(name) = name else { return Ok(&self.table.own) };
        self.table.others.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.table.others.keys().map(String::as_str).collect();
            let message = format!("no environment is called `{name}`; there are {names:?}");
            self.table.fail(Fault::new(FaultKind::Orchestra, message))
        })
    }
}
