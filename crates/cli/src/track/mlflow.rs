//! A server of MLflow, by its REST protocol.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maverl::config::TrackTarget;
use serde_json::{Value, json};

use super::cursor::Cursor;
use super::server::{SendFailure, SendResult, Server, encoded};
use super::spool::{RunState, SpoolRow};
use super::{TrackedRun, TrackerClient, variable};

/// Most metrics, and most parameters, of a request.
const METRICS: usize = 1000;
const PARAMS: usize = 100;
/// Longest name of a metric, and longest value of a parameter.
const NAME: usize = 250;
const VALUE: usize = 6000;
/// Tag with the key of a run.
const TAG: &str = "maverl.run";
const API: &str = "/api/2.0/mlflow";

/// A run at a server of MLflow.
pub(super) struct Mlflow {
    server: Server,
    run_id: String,
    /// Path of the run's artifacts at the server; `None` if it does not keep them itself.
    artifacts: Option<String>,
}

impl Mlflow {
    /// Creates the run at the server, or finds it again.
    pub(super) fn open(run: &TrackedRun, cursor: &mut Cursor) -> SendResult<Self> {
        let server = Server::new(&address(run)?, authorization());
        if cursor.run_id.is_empty() {
            cursor.run_id = match run.joins.clone().or_else(|| variable("MLFLOW_RUN_ID")) {
                Some(id) => id,
                None => found_or_made(&server, run, cursor)?,
            };
            cursor.write().map_err(|error| SendFailure::Refused(error.to_string()))?;
        }
        let path = format!("{API}/runs/get?run_id={}", cursor.run_id);
        let found = server.json(&path, &server.ask(&path)?)?;
        let experiment = found["run"]["info"]["experiment_id"].as_str();
        cursor.sent.url = experiment.map(|experiment| {
            format!("{}/#/experiments/{experiment}/runs/{}", server.address(), cursor.run_id)
        });
        let uri = found["run"]["info"]["artifact_uri"].as_str().unwrap_or_default();
        let artifacts = uri.strip_prefix("mlflow-artifacts:").map(|path| {
            let path = path.trim_start_matches('/');
            format!("/api/2.0/mlflow-artifacts/artifacts/{path}")
        });
        if artifacts.is_none() && run.episodes > 0 {
            run.warn(&format!("texts of episodes are not sent: the artifacts of the run are at {uri:?}, not at the server"));
        }
        let mut mlflow = Self { server, run_id: cursor.run_id.clone(), artifacts };
        mlflow.update(RunState::Running, None)?;
        if !cursor.described {
            mlflow.describe(run)?;
            cursor.described = true;
            cursor.write().map_err(|error| SendFailure::Refused(error.to_string()))?;
        }
        Ok(mlflow)
    }

    fn log(&self, metrics: &[Value], params: &[Value]) -> SendResult {
        let body = json!({ "run_id": self.run_id, "metrics": metrics, "params": params });
        self.server.post(&format!("{API}/runs/log-batch"), &body).map(drop)
    }

    /// Sends the configuration.
    fn describe(&mut self, run: &TrackedRun) -> SendResult {
        let params = run.settings.iter().map(|(key, value)| {
            let value: String = value.chars().take(VALUE).collect();
            json!({ "key": plain_name(key), "value": value })
        });
        let params: Vec<Value> = params.collect();
        params.chunks(PARAMS).try_for_each(|params| self.log(&[], params))
    }

    fn update(&mut self, state: RunState, end_ms: Option<u64>) -> SendResult {
        let status = match state {
            RunState::Running => "RUNNING",
            RunState::Complete => "FINISHED",
            RunState::Stopped => "KILLED",
            RunState::Failed => "FAILED",
        };
        let body = json!({ "run_id": self.run_id, "status": status, "end_time": end_ms });
        self.server.post(&format!("{API}/runs/update"), &body).map(drop)
    }
}

impl TrackerClient for Mlflow {
    fn send(&mut self, rows: &[SpoolRow]) -> SendResult {
        let metrics = rows.iter().flat_map(|row| {
            row.metrics.iter().map(move |(name, value)| {
                json!({ "key": plain_name(name), "value": value, "timestamp": row.time_ms, "step": row.step })
            })
        });
        let metrics: Vec<Value> = metrics.collect();
        for metrics in metrics.chunks(METRICS) {
            self.log(metrics, &[])?;
        }
        let Some(artifacts) = &self.artifacts else { return Ok(()) };
        for row in rows.iter().filter(|row| !row.episodes.is_empty()) {
            let path = format!("{artifacts}/episodes/step-{:06}.md", row.step);
            self.server.put(&path, row.episodes.join("\n---\n\n").as_bytes())?;
        }
        Ok(())
    }

    fn finish(&mut self, state: RunState, end_ms: u64) -> SendResult {
        self.update(state, Some(end_ms))
    }
}

/// Returns the address of the server.
fn address(run: &TrackedRun) -> SendResult<String> {
    let target = TrackTarget { tracker: run.tracker, server: run.server.clone() };
    target.mlflow_server(variable("MLFLOW_TRACKING_URI")).map_err(SendFailure::Refused)
}

/// Returns the header of the token, or of user and password, in the environment.
fn authorization() -> Option<(&'static str, String)> {
    let name = "Authorization";
    if let Some(token) = variable("MLFLOW_TRACKING_TOKEN") {
        return Some((name, format!("Bearer {token}")));
    }
    let user = variable("MLFLOW_TRACKING_USERNAME")?;
    let password = variable("MLFLOW_TRACKING_PASSWORD").unwrap_or_default();
    Some((name, format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))))
}

/// Finds the run that an earlier process made and did not note, or makes it.
fn found_or_made(server: &Server, run: &TrackedRun, cursor: &Cursor) -> SendResult<String> {
    let experiment = experiment(server, &run.project)?;
    let filter = format!("tags.`{TAG}` = '{}'", cursor.key);
    let body = json!({ "experiment_ids": [experiment], "filter": filter, "max_results": 1 });
    let found = server.post(&format!("{API}/runs/search"), &body)?;
    if let Some(id) = found["runs"][0]["info"]["run_id"].as_str() {
        return Ok(id.to_owned());
    }
    let mut tags = vec![json!({ "key": TAG, "value": cursor.key })];
    if !run.group.is_empty() {
        tags.push(json!({ "key": "maverl.group", "value": run.group }));
    }
    let body = json!({
        "experiment_id": experiment, "run_name": run.name, "start_time": run.start_ms, "tags": tags,
    });
    let made = server.post(&format!("{API}/runs/create"), &body)?;
    let id = made["run"]["info"]["run_id"].as_str();
    id.map(str::to_owned).ok_or_else(|| {
        SendFailure::Refused(format!("{} makes a run without an id", server.address()))
    })
}

/// Returns the id of an experiment, which is made if there is none.
fn experiment(server: &Server, name: &str) -> SendResult<String> {
    let path = format!("{API}/experiments/get-by-name?experiment_name={}", encoded(name));
    let answer = server.ask(&path)?;
    let found = if answer.status == 404 {
        server.post(&format!("{API}/experiments/create"), &json!({ "name": name }))?["experiment_id"].clone()
    } else {
        server.json(&path, &answer)?["experiment"]["experiment_id"].clone()
    };
    found.as_str().map(str::to_owned).ok_or_else(|| {
        SendFailure::Refused(format!("{} has an experiment without an id", server.address()))
    })
}

/// Returns a name with the characters that MLflow allows; others become dots.
fn plain_name(name: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-.:/ ".contains(c);
    name.chars().take(NAME).map(|c| if allowed(c) { c } else { '.' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_characters_that_mlflow_allows() {
        assert_eq!(plain_name("rollout/debate/debater#2/turns"), "rollout/debate/debater.2/turns");
        assert_eq!(plain_name("eval/test/pass@4"), "eval/test/pass.4");
        assert_eq!(plain_name(&"a".repeat(300)).len(), NAME);
    }
}
