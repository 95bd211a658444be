//! Work of models: their requests in the order of their numbers, and what each does.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use prost::Message as _;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use maverl::runtime::{Batch, OptimOptions, PassResult};

use super::checkpoints::{CheckpointAddress, CheckpointKind, CheckpointRecord, remove};
use super::model::{AdapterShape, ClientModel, ModelJob, Queued};
use super::proto::{ArrayRecord, BatchedTensor, FLOAT32, PassOutput, bytes_of_f32};
use super::results::{FutureOutcome, RequestFailure};
use super::sampling::failure;
use super::state::{SamplerSource, TrainService};

/// Time for which requests wait for one with a lower number.
const GAP: Duration = Duration::from_secs(60);
/// Requests of a model that wait for one with a lower number.
const AHEAD: usize = 1024;
/// Weights without a name that are kept of a model.
const UNNAMED: usize = 8;

/// A model at work.
pub(super) struct ModelWorker {
    pub(super) state: Arc<TrainService>,
    pub(super) model: Arc<ClientModel>,
    /// Number of optimizer steps.
    pub(super) steps: u64,
    /// Weights without a name, the oldest first.
    pub(super) unnamed: VecDeque<PathBuf>,
}

impl ModelWorker {
    /// Runs the requests of the model, in the order of their numbers from 1, until no more can come.
    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<Queued>) {
        let (mut waiting, mut next) = (BTreeMap::new(), 1);
        loop {
            if let Some(Queued { seq, job, promise }) = waiting.remove(&next) {
                next += 1;
                promise.settle(self.perform(seq, job).await);
                continue;
            }
            let received = if waiting.is_empty() {
                inbox.recv().await
            } else {
                match timeout(GAP, inbox.recv()).await {
                    Ok(received) => received,
                    Err(_) => {
                        next = skip_gap(&mut waiting, next);
                        continue;
                    }
                }
            };
            match received {
                None => break,
                Some(late) if late.seq < next => {
                    let message = format!("request {} comes after request {}", late.seq, next - 1);
                    late.promise.settle(Err(RequestFailure::user(message)));
                }
                Some(ahead) if waiting.len() >= AHEAD => {
                    let message = format!("{AHEAD} requests wait for request {next}");
                    ahead.promise.settle(Err(RequestFailure::user(message)));
                }
                Some(queued) => drop(waiting.insert(queued.seq, queued)),
            }
        }
        if self.model.expired.load(Ordering::Acquire) {
            // Nobody waits for the result.
            let _ = self.save(Some("last".to_owned()), true, Map::new()).await;
        }
    }

    async fn perform(&mut self, seq: u64, job: ModelJob) -> Result<FutureOutcome, RequestFailure> {
        match job {
            ModelJob::Pass { batch, loss, forward_only } => {
                self.pass(seq, *batch, &loss, forward_only).await
            }
            ModelJob::Step(options) => self.step(seq, options).await,
            ModelJob::Save { name, overwrite, metadata } => {
                let name = name.unwrap_or_else(|| format!("{seq:06}"));
                self.save(Some(name), overwrite, metadata).await
            }
            ModelJob::SaveSampler { name, session, metadata } => {
                self.save_sampler(seq, name, session, metadata).await
            }
            ModelJob::Load { address, optimizer } => self.load(&address, optimizer).await,
            ModelJob::Refused(failure) => Err(failure),
        }
    }

    async fn pass(
        &self,
        seq: u64,
        batch: Batch,
        loss: &str,
        forward_only: bool,
    ) -> Result<FutureOutcome, RequestFailure> {
        let (host, began) = (&self.state.bases[self.model.base].host, Instant::now());
        let (rows, tokens) =
            (batch.rows.len(), batch.rows.iter().map(|row| row.completion.len()).sum::<usize>());
        let place = self.model.place;
        let pass = if forward_only {
            host.forward(place, batch).await
        } else {
            host.forward_backward(place, batch).await
        };
        let pass = pass.map_err(failure)?;
        self.state.record(&json!({
            "model": self.model.id, "seq": seq, "loss": loss, "forward_only": forward_only, "rows": rows, "tokens": tokens,
            "seconds": began.elapsed().as_secs_f64(), "loss:sum": pass.loss.loss,
        }));
        Ok(FutureOutcome::Proto(pass_output(&pass).encode_to_vec()))
    }

    async fn step(
        &mut self,
        seq: u64,
        options: OptimOptions,
    ) -> Result<FutureOutcome, RequestFailure> {
        let host = &self.state.bases[self.model.base].host;
        let norm = host.optim_step(self.model.place, options).await.map_err(failure)?;
        let norm = norm.ok_or_else(|| {
            RequestFailure::user(
                "there is no gradient: no `forward_backward` since the last `optim_step`",
            )
        })?;
        self.steps += 1;
        self.state.record(&json!({
            "model": self.model.id, "seq": seq, "step": self.steps, "lr": options.lr, "grad_norm": norm,
        }));
        Ok(FutureOutcome::Json(json!({"metrics": {"grad_norm": norm, "step": self.steps}})))
    }

    fn description(&self, user_metadata: Map<String, Value>) -> CheckpointRecord {
        let AdapterShape { rank, train_attn, train_mlp } = self.model.shape;
        CheckpointRecord {
            protocol: 1,
            base_model: self.state.bases[self.model.base].name.clone(),
            lora_rank: rank,
            train_attn,
            train_mlp,
            steps: self.steps,
            user_metadata,
        }
    }

    fn address(&self, kind: CheckpointKind, name: &str) -> CheckpointAddress {
        CheckpointAddress { model: self.model.id.clone(), kind, name: name.to_owned() }
    }

    async fn save(
        &self,
        name: Option<String>,
        overwrite: bool,
        metadata: Map<String, Value>,
    ) -> Result<FutureOutcome, RequestFailure> {
        let address = self.address(CheckpointKind::Weights, &name.unwrap_or_default());
        let draft = self.state.checkpoints.draft(&address, overwrite)?;
        let base = &self.state.bases[self.model.base];
        base.host.save(self.model.place, &draft.dir).await.map_err(failure)?;
        let dir = draft.finish(&self.description(metadata))?;
        base.samplers.forget(&dir).await;
        Ok(FutureOutcome::Json(json!({"type": "save_weights", "path": address.to_string()})))
    }

    async fn save_sampler(
        &mut self,
        seq: u64,
        name: Option<String>,
        session: Option<String>,
        metadata: Map<String, Value>,
    ) -> Result<FutureOutcome, RequestFailure> {
        let unnamed = name.is_none();
        let address = self
            .address(CheckpointKind::Sampler, &name.unwrap_or_else(|| format!("unnamed-{seq:06}")));
        let draft = self.state.checkpoints.draft(&address, unnamed)?;
        let host = &self.state.bases[self.model.base].host;
        host.publish(self.model.place, &draft.dir).await.map_err(failure)?;
        let dir = draft.finish(&self.description(metadata))?;
        if unnamed {
            self.unnamed.push_back(dir.clone());
            if self.unnamed.len() > UNNAMED
                && let Some(oldest) = self.unnamed.pop_front()
            {
                // A directory that stays costs space, and nothing else.
                let _ = remove(&oldest);
            }
        }
        let path = address.to_string();
        if let Some(id) = &session {
            let source =
                SamplerSource { base: self.model.base, dir: Some(dir), path: Some(path.clone()) };
            self.state.add_sampler(id, source);
        }
        Ok(FutureOutcome::Json(json!({
            "type": "save_weights_for_sampler", "path": path, "sampling_session_id": session,
        })))
    }

    async fn load(
        &mut self,
        address: &CheckpointAddress,
        optimizer: bool,
    ) -> Result<FutureOutcome, RequestFailure> {
        let (dir, saved) = self.state.checkpoints.find(address)?;
        let own = self.description(Map::new());
        if saved.base_model != own.base_model {
            let (theirs, ours) = (saved.base_model, own.base_model);
            return Err(RequestFailure::user(format!(
                "`{address}` is of `{theirs}`, and the model of `{ours}`"
            )));
        }
        let shape = |of: &CheckpointRecord| (of.lora_rank, of.train_attn, of.train_mlp);
        if shape(&saved) != shape(&own) {
            return Err(RequestFailure::user(format!(
                "the adapter of `{address}` has rank {} (attention: {}, MLP: {}), that of the model {} ({}, {})",
                saved.lora_rank,
                saved.train_attn,
                saved.train_mlp,
                own.lora_rank,
                own.train_attn,
                own.train_mlp
            )));
        }
        check_optimizer(address, optimizer)?;
        let host = &self.state.bases[self.model.base].host;
        host.restore(self.model.place, &dir, optimizer).await.map_err(failure)?;
        self.steps = if optimizer { saved.steps } else { 0 };
        Ok(FutureOutcome::Json(loaded(address, &self.model.id)))
    }
}

/// Fails if the moments of a checkpoint without any are asked for.
pub(super) fn check_optimizer(
    address: &CheckpointAddress,
    optimizer: bool,
) -> Result<(), RequestFailure> {
    if optimizer && address.kind == CheckpointKind::Sampler {
        return Err(RequestFailure::user(format!(
            "`{address}` has no state of an optimizer; load it without one, or save with `save_state`"
        )));
    }
    Ok(())
}

/// Returns the answer to a load.
pub(super) fn loaded(address: &CheckpointAddress, model: &str) -> Value {
    json!({"type": "load_weights", "path": address.to_string(), "model_id": model})
}

/// Fails the first request behind a gap. Returns the number after it.
fn skip_gap(waiting: &mut BTreeMap<u64, Queued>, next: u64) -> u64 {
    let Some((seq, first)) = waiting.pop_first() else { return next };
    let seconds = GAP.as_secs();
    let message =
        format!("request {seq} waits for request {next}, which did not come within {seconds} s");
    first.promise.settle(Err(RequestFailure::user(message)));
    seq + 1
}

/// Returns the message of a pass: the log-probs of the targets of each datum.
fn pass_output(pass: &PassResult) -> PassOutput {
    let offsets = pass.logprobs.iter().scan(0_i64, |end, row| {
        *end += 4 * row.len() as i64;
        Some(*end)
    });
    let offsets = std::iter::once(0).chain(offsets).flat_map(i64::to_le_bytes).collect();
    let data = bytes_of_f32(&pass.logprobs.concat());
    let tensor = BatchedTensor { data, offsets, dtype: FLOAT32, trailing_shape: Vec::new() };
    let record = ArrayRecord {
        type_tag: "ArrayRecord".to_owned(),
        fields: [("logprobs".to_owned(), tensor)].into(),
        num_datums: pass.logprobs.len() as i64,
    };
    PassOutput {
        loss_fn_output_type: "ArrayRecord".to_owned(),
        loss_fn_outputs: vec![record],
        metrics: [("loss:sum".to_owned(), pass.loss.loss)].into(),
    }
}
