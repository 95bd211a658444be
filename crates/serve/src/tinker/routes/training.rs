//! Routes of the requests to a model, which run in the order of their numbers. One that is refused has a number too, so that later
//! ones do not wait for it.

use std::sync::Arc;

use prost::Message as _;

use maverl::runtime::OptimOptions;

use crate::refusal::Refusal;
use crate::tinker::answers::{ApiResult, parse, queued};
use crate::tinker::checkpoints::check_name;
use crate::tinker::datum::read_batch;
use crate::tinker::model::ModelJob;
use crate::tinker::proto::PassRequest;
use crate::tinker::requests::{AdamRequest, SaveRequest, SaveSamplerRequest, StepRequest};
use crate::tinker::results::RequestFailure;
use crate::tinker::server::TinkerServer;
use crate::tinker::state::{LiveModel, TrainService};

pub(super) async fn pass(
    _: &Arc<TinkerServer>,
    state: &Arc<TrainService>,
    body: &[u8],
) -> ApiResult {
    let request = PassRequest::decode(body);
    let request = request.map_err(|error| {
        Refusal::malformed(format!("the body is no message of the Tinker API: {error}"))
    })?;
    let LiveModel { model, .. } = state.model(&request.model_id)?;
    let (id, seq) = (model.id.clone(), u64::try_from(request.seq_id).ok());
    let (forward_only, loss) = (request.forward_only, request.loss_fn.clone());
    match read_batch(request, state.bases[model.base].limits) {
        Ok(batch) => {
            queued(state, &id, seq, ModelJob::Pass { batch: Box::new(batch), loss, forward_only })
                .await
        }
        Err(what) => queued(state, &id, seq, ModelJob::Refused(RequestFailure::user(what))).await,
    }
}

pub(super) async fn optim_step(
    _: &Arc<TinkerServer>,
    state: &Arc<TrainService>,
    body: &[u8],
) -> ApiResult {
    let request: StepRequest = parse(body)?;
    let job = match read_step(&request) {
        Ok(options) => ModelJob::Step(options),
        Err(what) => ModelJob::Refused(RequestFailure::user(what)),
    };
    queued(state, &request.model_id, request.seq_id, job).await
}

fn read_step(request: &StepRequest) -> Result<OptimOptions, String> {
    if request.optimizer_params.is_some() {
        return Err("there is no optimizer but AdamW; write `adam_params`".to_owned());
    }
    let asked = request.adam_params.ok_or("`adam_params` is missing")?;
    let AdamRequest { learning_rate, beta1, beta2, eps, weight_decay, grad_clip_norm } = asked;
    let from_0 = |value: f64| value.is_finite() && value >= 0.0;
    for (name, value, right, wanted) in [
        ("learning_rate", learning_rate, from_0(learning_rate), "a finite number from 0"),
        ("beta1", beta1, (0.0..1.0).contains(&beta1), "0 to below 1"),
        ("beta2", beta2, (0.0..1.0).contains(&beta2), "0 to below 1"),
        ("eps", eps, from_0(eps) && eps > 0.0, "a finite number above 0"),
        ("weight_decay", weight_decay, from_0(weight_decay), "a finite number from 0"),
        (
            "grad_clip_norm",
            grad_clip_norm,
            from_0(grad_clip_norm),
            "a finite number from 0; 0 is no limit",
        ),
    ] {
        if !right {
            return Err(format!("`{name}` is {value}; it is {wanted}"));
        }
    }
    let grad_clip = if grad_clip_norm == 0.0 { f64::INFINITY } else { grad_clip_norm };
    let betas = (beta1, beta2);
    Ok(OptimOptions {
        lr: learning_rate,
        betas,
        eps,
        weight_decay,
        grad_clip,
        ..OptimOptions::default()
    })
}

pub(super) async fn save_weights(
    _: &Arc<TinkerServer>,
    state: &Arc<TrainService>,
    body: &[u8],
) -> ApiResult {
    let request: SaveRequest = parse(body)?;
    let (name, overwrite) = (request.path, request.overwrite);
    let job = match name.as_deref().map_or(Ok(()), check_name) {
        Ok(()) => {
            ModelJob::Save { name, overwrite, metadata: request.user_metadata.unwrap_or_default() }
        }
        Err(failure) => ModelJob::Refused(failure),
    };
    queued(state, &request.model_id, request.seq_id, job).await
}

pub(super) async fn save_for_sampler(
    _: &Arc<TinkerServer>,
    state: &Arc<TrainService>,
    body: &[u8],
) -> ApiResult {
    let request: SaveSamplerRequest = parse(body)?;
    let LiveModel { model, .. } = state.model(&request.model_id)?;
    let session = request.sampling_session_seq_id.filter(|_| request.path.is_none());
    let session = session.map(|number| format!("{}:sample:{number}", model.session));
    let name = request.path;
    let job = match name.as_deref().map_or(Ok(()), check_name) {
        Ok(()) => ModelJob::SaveSampler {
            name,
            session,
            metadata: request.user_metadata.unwrap_or_default(),
        },
        Err(failure) => ModelJob::Refused(failure),
    };
    queued(state, &request.model_id, request.seq_id, job).await
}
