//! A server of trackio.

use serde_json::{Value, json};

use super::cursor::Cursor;
use super::server::{SendFailure, SendResult, Server, encoded};
use super::spool::{RunState, SpoolRow};
use super::{TrackedRun, TrackerClient, variable};

/// Version of the protocol.
const PROTOCOL: u64 = 1;

/// A run at a server of trackio.
pub(super) struct Trackio {
    server: Server,
    project: String,
    name: String,
    run_id: String,
    /// The configuration.
    settings: Value,
}

/// Returns the address of the server, if one is known, and the token that may write.
pub(super) fn trackio_server(run: &TrackedRun) -> Option<(String, Option<String>)> {
    let url = run.server.clone().or_else(|| variable("TRACKIO_SERVER_URL"))?;
    let (address, query) = url.split_once('?').unwrap_or((&url, ""));
    let token = query.split('&').find_map(|pair| pair.strip_prefix("write_token="));
    let token = token.map(str::to_owned).or_else(|| variable("TRACKIO_WRITE_TOKEN"));
    Some((address.to_owned(), token))
}

impl Trackio {
    pub(super) fn open(
        run: &TrackedRun,
        (address, token): (String, Option<String>),
        cursor: &mut Cursor,
    ) -> SendResult<Self> {
        let server = Server::new(&address, token.map(|token| ("x-trackio-write-token", token)));
        let version = server.json("/version", &server.ask("/version")?)?;
        if version["api_version"] != PROTOCOL {
            return Err(SendFailure::Refused(format!(
                "{address} speaks version {} of trackio's protocol; {PROTOCOL} is known",
                version["api_version"]
            )));
        }
        if cursor.run_id.is_empty() {
            cursor.run_id = run.joins.clone().unwrap_or_else(|| cursor.key.clone());
            cursor.write().map_err(|error| SendFailure::Refused(error.to_string()))?;
        }
        cursor.sent.url = Some(format!("{}/?project={}", server.address(), encoded(&run.project)));
        let settings = json!(run.settings);
        let (project, name) = (run.project.clone(), run.name.clone());
        Ok(Self { server, project, name, run_id: cursor.run_id.clone(), settings })
    }
}

impl TrackerClient for Trackio {
    fn send(&mut self, rows: &[SpoolRow]) -> SendResult {
        let logs = rows.iter().enumerate().map(|(i, row)| {
            let mut metrics = json!(row.metrics);
            if !row.episodes.is_empty() {
                metrics["episodes"] = row.episodes.join("\n---\n\n").into();
            }
            let mut log = json!({
                "project": self.project,
                "run": self.name,
                "run_id": self.run_id,
                "metrics": metrics,
                "step": row.step,
                "log_id": format!("{}:{}", self.run_id, row.name()),
            });
            if i == 0 {
                log["config"] = self.settings.clone();
            }
            log
        });
        let logs: Vec<Value> = logs.collect();
        self.server.post("/api/bulk_log", &json!({ "logs": logs, "hf_token": null })).map(drop)
    }

    fn finish(&mut self, _: RunState, _: u64) -> SendResult {
        Ok(())
    }
}
