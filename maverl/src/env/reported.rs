//! The environment of programs that know their own reward.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{EnvError, Environment, REPORT, Session};
use crate::task::{Action, Observation, Score, Task, TaskList};
use maverl_macros::{Settings, environment};

/// Scores an episode by the reward that its program reports.
#[environment(name = "reported")]
#[derive(Settings)]
pub struct Reported {
    /// Lowest and highest reward that is accepted.
    #[setting(default = [0.0, 1.0])]
    pub range: [f64; 2],
    /// Reward from which an episode counts as solved, unless the program reports that.
    #[setting(default = 1.0)]
    pub solved: f64,
}

impl Reported {
    /// Reads a report.
    fn read(&self, arguments: &Value) -> Result<Value, EnvError> {
        let [low, high] = self.range;
        let reward = &arguments["reward"];
        let within = reward.as_f64().filter(|reward| (low..=high).contains(reward));
        let Some(value) = within else {
            return Err(EnvError(format!(
                "`reward` is {reward}; write a number from {low} to {high} (`environment.range`)"
            )));
        };
        let solved = arguments["solved"].as_bool().unwrap_or(value >= self.solved);
        Ok(json!({"reward": value, "solved": solved}))
    }
}

impl Environment for Reported {
    fn validate(&self, _: &Path, _: &TaskList) -> Result<Vec<String>, EnvError> {
        let [low, high] = self.range;
        if !self.range.iter().all(|reward| reward.abs() <= Score::LIMIT) {
            let message = format!("`range` is [{low:?}, {high:?}]; rewards are from -1e9 to 1e9");
            return Err(EnvError(message));
        }
        if low < high {
            return Ok(Vec::new());
        }
        Err(EnvError(format!("`range` is [{low}, {high}]; write the lower reward first")))
    }

    fn takes_rewards(&self, _: &Task) -> bool {
        true
    }

    async fn act(&self, session: &mut Session, action: Action) -> Result<Observation, EnvError> {
        match action {
            Action::Tool { name, arguments } if name == REPORT => {
                session.state = self.read(&arguments)?;
                Ok(Observation::new(""))
            }
            _ => Err(EnvError::new("the environment `reported` answers no actions")),
        }
    }

    async fn score(&self, session: &Session, _: Option<&str>) -> Result<Score, EnvError> {
        let (reward, solved) = (&session.state["reward"], &session.state["solved"]);
        match (reward.as_f64(), solved.as_bool()) {
            (Some(reward), Some(solved)) => Ok(Score { reward, solved, metrics: Map::new() }),
            _ => Err(EnvError::new("no reward was reported")),
        }
    }

    async fn fork(&self, session: &Session) -> Result<Option<Value>, EnvError> {
        Ok(Some(session.state.clone()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_reward_is_a_number_within_the_range() {
        let reported = Reported { range: [-1.0, 2.0], solved: 1.0 };
        let read = |report: Value| reported.read(&report).map_err(|error| error.0);
        assert_eq!(read(json!({"reward": 1})), Ok(json!({"reward": 1.0, "solved": true})));
        assert_eq!(read(json!({"reward": -0.5})), Ok(json!({"reward": -0.5, "solved": false})));
        let said = json!({"reward": -0.5, "solved": true});
        assert_eq!(read(said.clone()), Ok(said));
        for reward in [json!(2.5), json!("1"), json!(null)] {
            let error = read(json!({"reward": reward})).unwrap_err();
            assert!(error.contains("from -1 to 2"), "{error}");
        }
    }

    #[test]
    fn a_range_that_holds_no_reward_is_refused() {
        let reported = |range| Reported { range, solved: 1.0 };
        let valid = |range| reported(range).validate(Path::new(""), &TaskList::default()).is_ok();
        assert!(valid([-1.0, 1.0]) && !valid([1.0, 0.0]) && !valid([0.0, f64::NAN]));
    }
}
