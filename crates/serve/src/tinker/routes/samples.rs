//! Routes of samples.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::tinker::answers::{ApiResult, parse, promised, told};
use crate::tinker::checkpoints::CheckpointAddress;
use crate::tinker::requests::{SampleRequest, SamplerRequest};
use crate::tinker::results::RequestFailure;
use crate::tinker::sampling::SampleJob;
use crate::tinker::server::TinkerServer;
use crate::tinker::state::{SamplerSource, TrainService, drawn_number};

/// Returns the source of samples of an address or a base.
fn sampler_source(
    state: &TrainService,
    path: Option<&str>,
    base: Option<&str>,
) -> Result<SamplerSource, RequestFailure> {
    match (path, base) {
        (Some(path), _) => {
            let (dir, saved) = state.checkpoints.find(&CheckpointAddress::read(path)?)?;
            let base = state.base(&saved.base_model)?;
            Ok(SamplerSource { base, dir: Some(dir), path: Some(path.to_owned()) })
        }
        (None, Some(base)) => Ok(SamplerSource { base: state.base(base)?, dir: None, path: None }),
        (None, None) => {
            Err(RequestFailure::user("write `base_model`, or the `model_path` of a checkpoint"))
        }
    }
}

pub(super) async fn create_sampler(
    _: &Arc<TinkerServer>,
    state: &Arc<TrainService>,
    body: &[u8],
) -> ApiResult {
    let request: SamplerRequest = parse(body)?;
    state.require_session(&request.session_id)?;
    let (path, base) = (request.model_path.as_deref(), request.base_model.as_deref());
    let source = sampler_source(state, path, base)?;
    let id = format!("{}:sample:{}", request.session_id, request.sampling_session_seq_id);
    state.add_sampler(&id, source);
    told(&json!({"type": "create_sampling_session", "sampling_session_id": id}))
}

pub(super) async fn sample(
    server: &Arc<TinkerServer>,
    state: &Arc<TrainService>,
    body: &[u8],
) -> ApiResult {
    let request: SampleRequest = parse(body)?;
    let source = match &request.sampling_session_id {
        Some(id) => state.sampler(id)?,
        None => {
            sampler_source(state, request.model_path.as_deref(), request.base_model.as_deref())?
        }
    };
    let id = match (&request.sampling_session_id, request.seq_id) {
        (Some(session), Some(seq)) => format!("{session}:{seq}"),
        _ => format!("sample:{}", state.next_number()),
    };
    let samples = SampleJob::read(&request, state.bases[source.base].limits, drawn_number());
    let names = (0..request.num_samples.min(1024)).map(|index| json!(format!("{id}:{index}")));
    let names = Value::Array(names.collect());
    let more = Map::from_iter([("sample_sequence_ids".to_owned(), names)]);
    promised(state, &id, more, |promise| {
        let state = Arc::clone(state);
        server.spawn(async move {
            let samples = match samples {
                Ok(samples) => {
                    let places = &state.bases[source.base].samplers;
                    samples.sample(places, source.dir.as_deref()).await
                }
                Err(what) => Err(RequestFailure::user(what)),
            };
            promise.settle(samples);
        });
    })
}
