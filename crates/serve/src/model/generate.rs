//! `POST /inference/v1/generate`: token ids in, token ids out, as programs that train elsewhere ask for them.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::answer::{Generation, ReplyForm, finish_reason, ids};
use super::asked::Asked;
use super::catalog::Entry;
use super::choice::{Batch, Echo, Job, News};
use super::server::ModelServer;
use crate::openai::generate::{GenerateAnswer, GenerateChoice, GenerateLogprobs};
use crate::openai::writer::WholeWriter;
use crate::openai::{
    Choices, Common, Fields, MaxTokens, Reported, Shape, Streaming, TokenForm, chat_logprobs,
    new_id,
};
use crate::refusal::Refusal;
use crate::refusal::json_response;
use crate::stream::attended;
use maverl::runtime::Sampling;

/// Longest completion of a request that does not say.
const DEFAULT_TOKENS: usize = 16;

/// Form of answers that are token ids.
struct GenerateForm;

pub(super) async fn route(State(server): State<Arc<ModelServer>>, request: Request) -> Response {
    server.answer("generate", request, |asked| answer(&server, asked)).await
}

async fn answer(server: &ModelServer, asked: Asked) -> Result<Response, Refusal> {
    let strict = server.settings.strict;
    let read = asked.read(move |entry, mut fields| {
        let id = fields.text("request_id")?.unwrap_or_else(|| new_id("generate"));
        Ok((id, read(strict, entry, &mut fields)?))
    });
    let ((request_id, generation), admitted) = read.await?;
    let mut writer = WholeWriter::default();
    attended(&server.metrics, generation.write(server, &admitted, &mut writer)).await?;
    let answer = GenerateAnswer {
        request_id,
        choices: writer.choices(),
        prompt_logprobs: (),
        kv_transfer_params: (),
        maverl: generation.batch.entry.origin(generation.choices.seed),
    };
    Ok(json_response(StatusCode::OK, &answer))
}

fn read(
    strict: bool,
    entry: Arc<Entry>,
    fields: &mut Fields,
) -> Result<Generation<GenerateForm>, Refusal> {
    let prompt: Arc<[u32]> = match fields.ids("token_ids", entry.vocabulary())? {
        Some(prompt) => prompt.into(),
        None => return Err(fields.error("token_ids", "is missing; write a list of token ids")),
    };
    if fields.flag("stream")? {
        return Err(fields.error("stream", "is true; this route answers at the end"));
    }
    let mut params = match fields.object("sampling_params")? {
        Some(params) => params,
        None => Fields::parse(b"{}")?,
    };
    let params = &mut params;
    let Common { sampling } = Common::read(params, entry.vocabulary())?;
    let limit = MaxTokens::read(params, &["max_tokens"], 1)?;
    let choices = Choices::read(params)?;
    let reported = Reported { ids: true, form: TokenForm::Id, ..Reported::of_text(params)? };
    // Forms of the answer of other servers; ids are returned in any case.
    for name in ["detokenize", "output_kind", "bad_words", "truncate_prompt_tokens"] {
        params.take(name);
    }
    params.finish(strict)?;
    fields.finish(strict)?;
    let limit = limit.or(DEFAULT_TOKENS.min(entry.context().saturating_sub(prompt.len()).max(1)));
    let max_tokens = limit.within(prompt.len(), entry.context())?;
    reported.bound((choices.n as usize).saturating_mul(max_tokens))?;
    let sampling = Arc::new(Sampling { max_tokens, ..sampling });
    let job = |i| Job {
        prompt: Arc::clone(&prompt),
        sampling: Arc::clone(&sampling),
        seed: choices.seed_of(i),
        echo: Echo::No,
        grammar: None,
    };
    let jobs = (0..choices.n).map(job).collect();
    let (shape, eager) = (Shape::default(), false);
    let batch = Batch { entry, shape, reported, jobs, eager, cached: 0.into() };
    Ok(Generation { batch, choices, streaming: Streaming::default(), form: GenerateForm })
}

impl ReplyForm for GenerateForm {
    type Part = GenerateChoice;
    type State<'b> = ();

    fn begin(&self, _: &Batch, _: usize) -> ((), Option<GenerateChoice>) {
        ((), None)
    }

    fn read(&self, batch: &Batch, index: usize, news: News, (): &mut ()) -> Vec<GenerateChoice> {
        let Batch { entry, reported, .. } = batch;
        let (steps, finish_reason) = match news {
            News::More { steps, .. } => (steps, None),
            News::End(end) => (Vec::new(), Some(finish_reason(&end))),
        };
        let logprobs = reported.logprobs.then(|| GenerateLogprobs {
            content: chat_logprobs(entry.tokenizer(), &steps, reported.form),
        });
        vec![GenerateChoice { index, logprobs, finish_reason, token_ids: ids(&steps) }]
    }
}
