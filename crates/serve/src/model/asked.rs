//! Requests to a model: admitted, read, answered and counted.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use tokio::sync::OwnedSemaphorePermit;

use super::catalog::Entry;
use super::reading::{SMALL, aside};
use super::server::ModelServer;
use crate::body::{self, Received};
use crate::guard::Client;
use crate::openai::{Fields, too_many_bytes, too_many_tokens};
use crate::queue::Admitted;
use crate::refusal::Refusal;
use crate::stream::attended;

/// An admitted request to a model of the catalog, whose fields were not read yet.
pub(super) struct Asked {
    pub(super) fields: Fields,
    pub(super) entry: Arc<Entry>,
    pub(super) admitted: Admitted,
    reading: Option<OwnedSemaphorePermit>,
    bytes: usize,
}

impl Asked {
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
    async fn received(&self, request: Request) -> Result<(Client, Received), Refusal> {
        self.catalog()?;
        let client = Client::of(&request);
        let body = body::read(request.into_body(), self.settings.max_body).await?;
        Ok((client, body))
    }

    /// Admits a request and finds its model.
    async fn asked(&self, client: Client, body: Received) -> Result<Asked, Refusal> {
        let admitted = self.queue.admit(client).await?;
        Asked::parse(self, body, admitted).await
    }

    /// Answers a request to a model with `answer`, and counts the answer, or a client that leaves before it.
    pub(super) async fn answer<F: Future<Output = Result<Response, Refusal>>>(
        &self,
        route: &'static str,
        request: Request,
        answer: impl FnOnce(Asked) -> F,
    ) -> Response {
        let outcome = match self.received(request).await {
            Ok((client, body)) => attended(&self.metrics, self.outcome(client, body, answer)).await,
            Err(refusal) => Outcome::refused(refusal),
        };
        outcome.counted(self, route)
    }

    async fn outcome<F: Future<Output = Result<Response, Refusal>>>(
        &self,
        client: Client,
        body: Received,
        answer: impl FnOnce(Asked) -> F,
    ) -> Outcome {
        match self.asked(client, body).await {
            Ok(asked) => Outcome { model: asked.entry.name.clone(), answer: answer(asked).await },
            Err(refusal) => Outcome::refused(refusal),
        }
    }
}

/// Result of a route, with the name of its model as far as it was known.
pub(super) struct Outcome {
    pub(super) model: String,
    pub(super) answer: Result<Response, Refusal>,
}

impl Outcome {
    pub(super) fn refused(refusal: Refusal) -> Self {
        Self { model: String::new(), answer: Err(refusal) }
    }

    /// Counts the answer and returns it.
    pub(super) fn counted(self, server: &ModelServer, route: &'static str) -> Response {
        let response = self.answer.unwrap_or_else(IntoResponse::into_response);
        server.count(&self.model, route, response.status());
        response
    }
}
