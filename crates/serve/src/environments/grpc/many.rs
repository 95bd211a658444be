//! Steps of several sessions in one request.

use std::collections::BTreeMap;

use tokio::sync::mpsc;
use tonic::Status;

use super::service::Service;
use maverl::env::grpc::wire::act_many_response::Result as Outcome;
use maverl::env::grpc::wire::{ActManyResponse, ActRequest};

/// Maximum number of steps of a request.
const MOST: usize = 1024;

/// Begins to execute steps: those of one session in their order, those of several at once. Returns the channel of the answers.
pub(super) fn begin(
    service: &Service,
    acts: Vec<ActRequest>,
) -> Result<mpsc::Receiver<Result<ActManyResponse, Status>>, Status> {
    if acts.len() > MOST {
        let n = acts.len();
        return Err(Status::invalid_argument(format!(
            "there are {n} steps; write at most {MOST} in a request"
        )));
    }
    // Room for all of them, so that no step waits for the client.
    let (sender, receiver) = mpsc::channel(acts.len().max(1));
    let mut sessions: BTreeMap<String, Vec<(u32, ActRequest)>> = BTreeMap::new();
    for (index, act) in (0..).zip(acts) {
        sessions.entry(act.session.clone()).or_default().push((index, act));
    }
    for acts in sessions.into_values() {
        let (service, sender) = (service.clone(), sender.clone());
        tokio::spawn(async move {
            for (index, act) in acts {
                let answer = service.act_in_session(act).await;
                service.count(&answer);
                let result = match answer {
                    Ok(seen) => Outcome::Done(seen),
                    Err(status) => Outcome::Failure(status.into()),
                };
                // A client that is gone finds the observation when it sends the step again.
                let _ = sender.send(Ok(ActManyResponse { index, result: Some(result) })).await;
            }
        });
    }
    Ok(receiver)
}
