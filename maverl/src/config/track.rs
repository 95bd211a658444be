//! Trackers that a run is reported to while it runs.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::settings::Settings;

/// `[track]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "run")]
pub struct TrackConfig {
    /// Trackers: `mlflow`, `trackio`, `wandb` or `swanlab`; `mlflow=URL` and `trackio=URL` name a server.
    pub to: Vec<TrackTarget>,
    /// Project, an experiment in MLflow; empty: `MLFLOW_EXPERIMENT_NAME` or `WANDB_PROJECT`, or else `maverl`.
    pub project: String,
    /// Name of the run; empty: that of the run directory.
    pub name: String,
    /// Group of the run, such as the name of a set of seeds.
    pub group: String,
    /// Episodes of each step that are sent as texts; 0 sends none.
    #[setting(default = 4)]
    pub episodes: usize,
    /// Name of the Python that has the packages `wandb`, `swanlab` and, without a server, `trackio`.
    #[setting(default = "python3")]
    pub python: String,
    /// Seconds that `maverl train` waits at its end for rows that are not sent yet.
    #[setting(default = 30.0, range = 0.0.., idle_when = "to = []")]
    pub wait_s: f64,
}

impl TrackConfig {
    /// Returns true if the run is reported to nobody, and no setting differs from its default.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A kind of tracker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tracker {
    /// A server of MLflow.
    Mlflow,
    /// trackio: a server, or files of this machine.
    Trackio,
    /// Weights & Biases, by its package for Python.
    Wandb,
    /// SwanLab, by its package for Python.
    Swanlab,
}

impl Tracker {
    /// Every tracker.
    pub const ALL: [Self; 4] = [Self::Mlflow, Self::Trackio, Self::Wandb, Self::Swanlab];

    /// Returns the name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mlflow => "mlflow",
            Self::Trackio => "trackio",
            Self::Wandb => "wandb",
            Self::Swanlab => "swanlab",
        }
    }
}

/// A tracker, and the address of its server if one is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackTarget {
    /// The tracker.
    pub tracker: Tracker,
    /// Address of its server.
    pub server: Option<String>,
}

impl TrackTarget {
    /// Returns the address of the server of MLflow: its own, or the value of `MLFLOW_TRACKING_URI`, if there is one.
    ///
    /// # Errors
    ///
    /// If there is none, or it is not that of a server.
    pub fn mlflow_server(&self, variable: Option<String>) -> Result<String, String> {
        let wanted = "write `mlflow=http://127.0.0.1:5000`, or set MLFLOW_TRACKING_URI";
        match self.server.clone().or(variable.filter(|uri| !uri.is_empty())) {
            Some(url) if url.starts_with("http://") || url.starts_with("https://") => Ok(url),
            Some(other) => {
                Err(format!("MLFLOW_TRACKING_URI is {other:?}, which is no server: {wanted}"))
            }
            None => Err(format!("no server of MLflow is known: {wanted}")),
        }
    }
}

impl FromStr for TrackTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, server) = match text.split_once('=') {
            Some((name, server)) => (name, Some(server.trim_end_matches('/').to_owned())),
            None => (text, None),
        };
        let Some(tracker) = Tracker::ALL.into_iter().find(|tracker| tracker.name() == name) else {
            let near = Tracker::ALL.iter().map(|tracker| tracker.name());
            let near = near.max_by(|a, b| strsim::jaro(a, name).total_cmp(&strsim::jaro(b, name)));
            let near = near.filter(|near| strsim::jaro(near, name) > 0.7);
            let meant = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            return Err(format!(
                "no tracker is called {name:?}: write `mlflow`, `trackio`, `wandb` or `swanlab`{meant}"
            ));
        };
        let has_server = matches!(tracker, Tracker::Mlflow | Tracker::Trackio);
        match &server {
            Some(_) if !has_server => Err(format!(
                "`{name}` takes no address here: its package reads it from the environment, as `WANDB_BASE_URL`"
            )),
            Some(url) if !url.starts_with("http://") && !url.starts_with("https://") => Err(
                format!("{url:?} is no address of a server: write `{name}=http://127.0.0.1:5000`"),
            ),
            _ => Ok(Self { tracker, server }),
        }
    }
}

/// Writes the target in the form that users write.
impl fmt::Display for TrackTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.tracker.name())?;
        match &self.server {
            Some(server) => write!(f, "={server}"),
            None => Ok(()),
        }
    }
}

impl Serialize for TrackTarget {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TrackTarget {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for TrackTarget {
    fn schema_name() -> Cow<'static, str> {
        "TrackTarget".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^(mlflow|trackio|wandb|swanlab)(=https?://.+)?$",
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn targets_are_names_with_addresses_of_servers() {
        for text in ["mlflow", "mlflow=http://10.0.0.5:5000", "trackio=https://x.hf.space", "wandb"]
        {
            assert_eq!(text.parse::<TrackTarget>().unwrap().to_string(), text);
        }
        let told = |text: &str| text.parse::<TrackTarget>().unwrap_err();
        assert!(told("mlfow").ends_with("did you mean `mlflow`?"), "{}", told("mlfow"));
        assert!(told("foo").contains("write `mlflow`, `trackio`, `wandb` or `swanlab`"));
        assert!(told("wandb=http://x").contains("WANDB_BASE_URL"));
        assert!(told("mlflow=sqlite:///x").contains("no address of a server"));
    }
}
