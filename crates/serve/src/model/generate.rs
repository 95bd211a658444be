//! `POST /inference/v1/generate`: token ids in, token ids out, as programs that train elsewhere ask for them.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::answer::{Generation, ReplyForm, finish_reason, ids};
use super::asked::AdmittedRequest;
use super::catalog::Entry;
use super::choice::{ChoiceEvent, ChoiceJob, ReplyBatch};
use super::server::ModelServer;
use crate::openai::generate::{GenerateAnswer, GenerateChoice, GenerateLogprobs};
use crate::openai::requests::{GenerateFields, GenerateRequest};
use crate::openai::writer::WholeWriter;
use crate::openai::{
    Fields, MaxTokens, Nested, ReplyTextShape, ReportedTokens, Streaming, TokenForm, chat_logprobs,
    new_id,
};
use crate::refusal::Refusal;
use crate::refusal::json_response;
use maverl::runtime::Sampling;

/// Longest completion of a request that does not say.
const DEFAULT_TOKENS: usize = 16;

/// Form of answers that are token ids.
struct GenerateForm;

pub(super) async fn route(State(server): State<Arc<ModelServer>>, request: Request) -> Response {
    server.answer("generate", request, |asked| answer(&server, asked)).await
}

async fn answer(server: &ModelServer, asked: AdmittedRequest) -> Result<Response, Refusal> {
    let strict = server.settings.strict;
    let read = asked.read(move |entry, fields| read(strict, entry, fields));
    let ((request_id, generation), admitted) = read.await?;
    let mut writer = WholeWriter::default();
    generation.write(server, &admitted, &mut writer).await?;
    let answer = GenerateAnswer {
        request_id,
        choices: writer.choices(),
        prompt_logprobs: (),
        kv_transfer_params: (),
        maverl: generation.batch.entry.origin(generation.choices.seed),
    };
    Ok(json_response(StatusCode::OK, &answer))
}

/// Reads a request. Returns its id too.
fn read(
    strict: bool,
    entry: Arc<Entry>,
    mut fields: Fields,
) -> Result<(String, Generation<GenerateForm>), Refusal> {
    let GenerateRequest { request_id, token_ids, stream, sampling_params } = fields.read()?;
    let prompt: Arc<[u32]> = token_ids.required_ids(entry.vocabulary())?.into();
    if stream {
        return Err(fields.error("stream", "is true; this route answers at the end"));
    }
    let params = sampling_params.map_or_else(|| Nested::read(Fields::default()), Ok)?;
    params.rest.finish(strict)?;
    fields.finish(strict)?;
    let GenerateFields { sampled, max_tokens, choices, logprobs, tokens, .. } = params.value;
    let sampling = sampled.sampling(entry.vocabulary())?;
    let reported = ReportedTokens::of_text(&logprobs, &tokens);
    let reported = ReportedTokens { ids: true, form: TokenForm::Id, ..reported };
    let limit = MaxTokens::from(max_tokens);
    let limit = limit.or(DEFAULT_TOKENS.min(entry.context().saturating_sub(prompt.len()).max(1)));
    let max_tokens = limit.length_within(prompt.len(), entry.context())?;
    reported.check_listed((choices.n as usize).saturating_mul(max_tokens))?;
    let sampling = Arc::new(Sampling { max_tokens, ..sampling });
    let jobs = ChoiceJob::each(choices, &prompt, &sampling, None);
    let (shape, eager) = (ReplyTextShape::default(), false);
    let batch =
        ReplyBatch { entry, shape, reported, jobs, eager, cached: 0.into(), fills_context: false };
    let request_id = request_id.unwrap_or_else(|| new_id("generate"));
    let streaming = Streaming::default();
    Ok((request_id, Generation { batch, choices, streaming, form: GenerateForm }))
}

impl ReplyForm for GenerateForm {
    type Part = GenerateChoice;
    type State<'b> = ();

    fn begin(&self, _: &ReplyBatch, _: usize) -> ((), Option<GenerateChoice>) {
        ((), None)
    }

    fn read(
        &self,
        batch: &ReplyBatch,
        index: usize,
        news: ChoiceEvent,
        (): &mut (),
    ) -> Vec<GenerateChoice> {
        let ReplyBatch { entry, reported, .. } = batch;
        let (steps, finish_reason) = match news {
            ChoiceEvent::More { steps, .. } => (steps, None),
            ChoiceEvent::End(end) => (Vec::new(), Some(finish_reason(&end))),
        };
        let logprobs = reported.logprobs.then(|| GenerateLogprobs {
            content: chat_logprobs(entry.tokenizer(), &steps, reported.form),
        });
        vec![GenerateChoice { index, logprobs, finish_reason, token_ids: ids(&steps) }]
    }
}
