//! Workers that the run starts, and starts again when they end or hang.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::{Workers, digest};
use crate::gateway::options::ProgramOptions;
use crate::gateway::process::Process;
use crate::key::new_key;

/// Number of times in a row that a worker may end at once before the run gives up on it.
const TRIES: u32 = 3;
/// Time after which the end of a worker is not one at once.
const SOON: Duration = Duration::from_secs(10);
/// Pause before a worker is started again.
const PAUSE: Duration = Duration::from_millis(200);

/// Time that the lease of an episode has to notice that its worker waits for an answer.
const SLACK: Duration = Duration::from_secs(2);

/// End of a worker's process.
struct WorkerEnd {
    message: String,
    /// True if it had claimed an episode.
    claimed: bool,
}

impl Workers {
    /// Runs a worker, and starts it again whenever it ends. Returns when it ends repeatedly before it claims an episode.
    pub(in crate::gateway) async fn run(&self, options: &ProgramOptions, base: &Path, url: &str) {
        let mut tries = 0;
        loop {
            let begin = Instant::now();
            let end = match self.run_once(options, base, url).await {
                Ok(end) => end,
                Err(message) => WorkerEnd { message, claimed: false },
            };
            let soon = begin.elapsed() < SOON && !end.claimed;
            tries = if soon { tries + 1 } else { 0 };
            if tries >= TRIES {
                let message = format!("workers end before they claim an episode: {}", end.message);
                self.broken.send_replace(Some(message));
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Runs a worker until it ends, or until it has made no request for the time of a lease.
    async fn run_once(
        &self,
        options: &ProgramOptions,
        base: &Path,
        url: &str,
    ) -> Result<WorkerEnd, String> {
        let key = new_key().map_err(|error| error.to_string())?;
        let worker = self.admit(&key);
        let variables =
            vec![("MAVERL_GATEWAY_URL", url.to_owned()), ("MAVERL_GATEWAY_KEY", key.clone())];
        let log = worker.log.clone();
        let started = Process::start(options, base, None, variables, String::new(), log);
        let ended = match started {
            Ok(mut process) => {
                let status = tokio::select! {
                    status = process.wait_for_exit() => Some(status.map_err(|error| error.to_string())),
                    () = worker.silent(options.lease().saturating_add(SLACK)) => None,
                };
                match status {
                    Some(Ok(status)) => Ok(process.end_group(status, &key).await.message()),
                    Some(Err(message)) => Err(message),
                    None => Ok("it made no request".to_owned()),
                }
            }
            Err(message) => Err(message),
        };
        worker.end();
        self.table().workers.remove(&digest(&[key.as_bytes()]));
        let claimed = worker.claimed.load(Ordering::Relaxed);
        ended.map(|message| WorkerEnd { message, claimed })
    }
}
