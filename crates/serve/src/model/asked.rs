//! Requests to a model: admitted, read, answered and counted.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use tokio::sync::OwnedSemaphorePermit;

use super::catalog::Entry;
use super::reading::{SMALL, aside};
use super::server::ModelServer;
use crate::body::{self, Received};
use crate::guard::ClientNumber;
use crate::openai::{Fields, too_many_bytes, too_many_tokens};
use crate::queue::Admitted;
use crate::refusal::Refusal;
use crate::stream::count_leaving;

/// An admitted request to a model of the catalog, whose fields were not read yet.
pub(super) struct AdmittedRequest {
    pub(super) fields: Fields,
    pub(super) entry: Arc<Entry>,
    pub(super) admitted: Admitted,
    reading: Option<OwnedSemaphorePermit>,
    bytes: usize,
}

impl AdmittedRequest {
    /// Parses a request that was admitted, and finds its model.
    pub(super) async fn parse(
        server: &ModelServer,
        body: Received,
        admitted: Admitted,
    ) -> Result<Self, Refusal> {
        let bytes = body.len();
        let reading = server.reading.begin(bytes).await;
        let mut fields = if bytes > SMALL {
            aside(bytes, move || Fields::parse(&body)).await?
        } else {
            Fields::parse(&body)?
        };
        let name = fields.model()?;
        let entry = server.catalog()?.find(name.as_deref())?;
        Ok(Self { fields, entry, admitted, reading, bytes })
    }

    /// Reads the fields on a thread for it: templates and tokenizers compute, and other requests go on in the meantime.
    pub(super) async fn read<T: Send + 'static>(
        self,
        read: impl FnOnce(Arc<Entry>, Fields) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<(T, Admitted), Refusal> {
        let Self { fields, entry, admitted, reading, bytes } = self;
        let read = aside(bytes, move || {
            // Also held if the client leaves: the thread goes on.
            let _reading = reading;
            read(entry, fields)
        });
        Ok((read.await?, admitted))
    }
}

impl Entry {
    /// Fails for a text with more bytes than any that fits the context.
    pub(super) fn bound_text(&self, text: &str) -> Result<(), Refusal> {
        let (context, bytes) = (self.context(), text.len());
        let most = self.tokenizer().most_bytes(context);
        if bytes > most { Err(too_many_bytes(bytes, most, context)) } else { Ok(()) }
    }

    /// Fails for more ids than the context has.
    pub(super) fn bound_ids(&self, ids: &[u32]) -> Result<(), Refusal> {
        let (context, tokens) = (self.context(), ids.len());
        if tokens > context { Err(too_many_tokens(tokens, 0, context)) } else { Ok(()) }
    }
}

impl ModelServer {
    /// Reads the body of a request.
    async fn receive_body(&self, request: Request) -> Result<(ClientNumber, Received), Refusal> {
        self.catalog()?;
        let client = ClientNumber::of(&request);
        let body = body::read(request.into_body(), self.settings.max_body).await?;
        Ok((client, body))
    }

    /// Admits a request and finds its model.
    async fn admit_request(
        &self,
        client: ClientNumber,
        body: Received,
    ) -> Result<AdmittedRequest, Refusal> {
        let admitted = self.queue.admit(client).await?;
        AdmittedRequest::parse(self, body, admitted).await
    }

    /// Answers a request to a model with `answer`, and counts the answer, or a client that leaves before it.
    pub(super) async fn answer<F: Future<Output = Result<Response, Refusal>>>(
        &self,
        route: &'static str,
        request: Request,
        answer: impl FnOnce(AdmittedRequest) -> F,
    ) -> Response {
        let outcome = match self.receive_body(request).await {
            Ok((client, body)) => {
                count_leaving(&self.metrics, self.outcome(client, body, answer)).await
            }
            Err(refusal) => RouteOutcome::refusal_outcome(refusal),
        };
        outcome.count_answer(self, route)
    }

    async fn outcome<F: Future<Output = Result<Response, Refusal>>>(
        &self,
        client: ClientNumber,
        body: Received,
        answer: impl FnOnce(AdmittedRequest) -> F,
    ) -> RouteOutcome {
        match self.admit_request(client, body).await {
            Ok(asked) => {
                RouteOutcome { model: asked.entry.name.clone(), answer: answer(asked).await }
            }
            Err(refusal) => RouteOutcome::refusal_outcome(refusal),
        }
    }
}

/// Result of a route, with the name of its model as far as it was known.
pub(super) struct RouteOutcome {
    pub(super) model: String,
    pub(super) answer: Result<Response, Refusal>,
}

impl RouteOutcome {
    pub(super) fn refusal_outcome(refusal: Refusal) -> Self {
        Self { model: String::new(), answer: Err(refusal) }
    }

    /// Counts the answer and returns it.
    pub(super) fn count_answer(self, server: &ModelServer, route: &'static str) -> Response {
        let response = self.answer.unwrap_or_else(IntoResponse::into_response);
        server.count(&self.model, route, response.status());
        response
    }
}
