//! Routes of models as a whole: their creation, and their end.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::tinker::answers::{ApiResult, parse, promised, queued, told};
use crate::tinker::checkpoints::CheckpointAddress;
use crate::tinker::model::{AdapterShape, ClientModel, ModelJob, WAITING};
use crate::tinker::requests::{
    CreateRequest, LoadWeightsRequest, LoraRequest, ModelRequest, WeightsInfoRequest,
};
use crate::tinker::results::{FutureOutcome, Promise, RequestFailure};
use crate::tinker::sampling::failure;
use crate::tinker::server::TinkerServer;
use crate::tinker::state::{LiveModel, TrainService, drawn_number};
use crate::tinker::worker::{ModelWorker, check_optimizer, loaded};

/// Returns the shape of an adapter that a client asks for.
fn read_shape(state: &TrainService, lora: LoraRequest) -> Result<AdapterShape, RequestFailure> {
    let LoraRequest { rank, train_unembed, train_mlp, train_attn, .. } = lora;
    let most = state.settings.max_rank;
    let rank =
        usize::try_from(rank).ok().filter(|rank| (1..=most).contains(rank)).ok_or_else(|| {
            RequestFailure::user(format!("`rank` is {rank}; it may be 1 to {most} (`--max-rank`)"))
        })?;
    if !train_mlp && !train_attn {
        let what = if train_unembed { "only `train_unembed` is set" } else { "nothing is trained" };
        return Err(RequestFailure::user(format!(
            "{what}; there are no adapters on the unembedding: set `train_mlp` or `train_attn`"
        )));
    }
    Ok(AdapterShape { rank, train_attn, train_mlp })
}

pub(super) async fn create_model(
    server: &Arc<TinkerServer>,
    state: &Arc<TrainService>,
    body: &[u8],
) -> ApiResult {
    let request: CreateRequest = parse(body)?;
    let id = format!("{}:train:{}", request.session_id, request.model_seq_id);
    promised(state, &format!("{id}:create"), Map::new(), |promise| {
        let (state, server) = (Arc::clone(state), Arc::clone(server));
        server.spawn(async move { create_and_run(&state, id, request, promise).await });
    })
}

/// Creates a model, and runs its requests until it is unloaded.
async fn create_and_run(
    state: &Arc<TrainService>,
    id: String,
    request: CreateRequest,
    promise: Promise,
) {
    match created(state, &id, &request).await {
        Err(failure) => promise.settle(Err(failure)),
        Ok(new) => {
            let answer = json!({"type": "create_model", "model_id": id});
            run_model(state, new, promise, FutureOutcome::Json(answer)).await;
        }
    }
}

/// A model in its place, with the number of its steps.
struct NewModel {
    model: Arc<ClientModel>,
    steps: u64,
}

async fn created(
    state: &TrainService,
    id: &str,
    request: &CreateRequest,
) -> Result<NewModel, RequestFailure> {
    state.require_session(&request.session_id)?;
    let base = state.base(&request.base_model)?;
    let kind = request.optimizer_config.as_ref().map_or("adamw", |config| config.kind.as_str());
    if kind != "adamw" {
        return Err(RequestFailure::user(format!(
            "there is no optimizer `{kind}`; there is `adamw`"
        )));
    }
    let lora = request.lora_config.ok_or_else(|| {
        RequestFailure::user("`lora_config` is missing; models are adapters, write its `rank`")
    })?;
    let shape = read_shape(state, lora)?;
    let place = state.take_place(base, shape)?;
    let of = &state.bases[base];
    let (spec, seed) = (
        shape.lora(state.settings.lora_alpha, &of.linears),
        lora.seed.unwrap_or_else(drawn_number),
    );
    if let Err(error) = of.host.create(place, &spec, seed).await {
        state.free_place(base, place);
        return Err(failure(error));
    }
    let session = request.session_id.clone();
    let expired = AtomicBool::new(false);
    let model = ClientModel { id: id.to_owned(), session, base, place, shape, expired };
    Ok(NewModel { model: Arc::new(model), steps: 0 })
}

/// Runs the requests of a new model until it is unloaded.
async fn run_model(
    state: &Arc<TrainService>,
    new: NewModel,
    promise: Promise,
    answer: FutureOutcome,
) {
    let NewModel { model, steps } = new;
    let (inbox, requests) = mpsc::channel(WAITING);
    let live = LiveModel { model: Arc::clone(&model), inbox };
    let (base, place) = (model.base, model.place);
    if state.add_model(live) {
        promise.resolve(answer);
        let (state, unnamed) = (Arc::clone(state), Default::default());
        ModelWorker { state, model, steps, unnamed }.run(requests).await;
    } else {
        let message = format!("there is a model `{}`", model.id);
        promise.settle(Err(RequestFailure::user(message)));
    }
    // A base that is gone has no places to give back.
    let _ = state.bases[base].host.unload(place).await;
    state.free_place(base, place);
}

pub(super) async fn unload_model(
    _: &Arc<TinkerServer>,
    state: &Arc<TrainService>,
    body: &[u8],
) -> ApiResult {
    let ModelRequest { model_id } = parse(body)?;
    state.model(&model_id)?;
    promised(state, &format!("{model_id}:unload"), Map::new(), |promise| {
        state.remove_model(&model_id);
        promise.resolve(FutureOutcome::Json(json!({"type": "unload_model", "model_id": model_id})));
    })
}

pub(super) async fn model_info(
    _: &Arc<TinkerServer>,
    state: &Arc<TrainService>,
    body: &[u8],
) -> ApiResult {
    let ModelRequest { model_id } = parse(body)?;
    let LiveModel { model, .. } = state.model(&model_id)?;
    let base = &state.bases[model.base];
    told(&json!({
        "type": "get_info", "model_id": model_id, "is_lora": true, "lora_rank": model.shape.rank, "model_name": base.name,
        "model_data": {"arch": base.arch, "model_name": base.name, "tokenizer_id": base.tokenizer},
    }))
}

pub(super) async fn load_weights(
    server: &Arc<TinkerServer>,
    state: &Arc<TrainService>,
    body: &[u8],
) -> ApiResult {
    let request: LoadWeightsRequest = parse(body)?;
    match (&request.model_id, &request.session_id, request.model_seq_id) {
        (Some(model), None, None) => {
            let optimizer = request.optimizer;
            let job = match CheckpointAddress::read(&request.path) {
                Ok(address) => ModelJob::Load { address, optimizer },
                Err(failure) => ModelJob::Refused(failure),
            };
            queued(state, model, request.seq_id, job).await
        }
        (None, Some(session), Some(number)) => {
            let (id, session) = (format!("{session}:train:{number}"), session.clone());
            promised(state, &format!("{id}:load"), Map::new(), |promise| {
                let (state, server) = (Arc::clone(state), Arc::clone(server));
                server.spawn(async move { load_and_run(&state, (id, session), request, promise).await });
            })
        }
        _ => Err(RequestFailure::user(
            "write `model_id` with `seq_id`, to load into a model, or `session_id` with `model_seq_id`, to create one",
        )
        .into()),
    }
}

/// Creates a model from a checkpoint, and runs its requests until it is unloaded.
async fn load_and_run(
    state: &Arc<TrainService>,
    (id, session): (String, String),
    request: LoadWeightsRequest,
    promise: Promise,
) {
    match created_from(state, (&id, session), &request).await {
        Err(failure) => promise.settle(Err(failure)),
        Ok((new, answer)) => run_model(state, new, promise, FutureOutcome::Json(answer)).await,
    }
}

async fn created_from(
    state: &TrainService,
    (id, session): (&str, String),
    request: &LoadWeightsRequest,
) -> Result<(NewModel, Value), RequestFailure> {
    state.require_session(&session)?;
    let address = CheckpointAddress::read(&request.path)?;
    let (dir, saved) = state.checkpoints.find(&address)?;
    check_optimizer(&address, request.optimizer)?;
    let base = state.base(&saved.base_model)?;
    let rank = saved.lora_rank;
    let shape = AdapterShape { rank, train_attn: saved.train_attn, train_mlp: saved.train_mlp };
    let place = state.take_place(base, shape)?;
    if let Err(error) = state.bases[base].host.create_from(place, &dir, request.optimizer).await {
        state.free_place(base, place);
        return Err(failure(error));
    }
    let expired = AtomicBool::new(false);
    let model = ClientModel { id: id.to_owned(), session, base, place, shape, expired };
    let steps = if request.optimizer { saved.steps } else { 0 };
    Ok((NewModel { model: Arc::new(model), steps }, loaded(&address, id)))
}

pub(super) async fn weights_info(
    _: &Arc<TinkerServer>,
    state: &Arc<TrainService>,
    body: &[u8],
) -> ApiResult {
    let WeightsInfoRequest { tinker_path } = parse(body)?;
    let (_, saved) = state.checkpoints.find(&CheckpointAddress::read(&tinker_path)?)?;
    told(&json!({
        "base_model": saved.base_model, "is_lora": true, "lora_rank": saved.lora_rank, "train_unembed": false,
        "train_mlp": saved.train_mlp, "train_attn": saved.train_attn,
    }))
}
