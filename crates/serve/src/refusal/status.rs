//! Refusals of requests over gRPC.

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use tonic::{Code, Status};

use super::Refusal;

/// Returns true if a request is one of gRPC, by its headers.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(|kind| kind.as_bytes());
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal.status {
            StatusCode::BAD_REQUEST => Code::InvalidArgument,
            StatusCode::UNAUTHORIZED => Code::Unauthenticated,
            StatusCode::FORBIDDEN => Code::PermissionDenied,
            StatusCode::NOT_FOUND => Code::NotFound,
            StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
            _ => Code::Internal,
        };
        Self::new(code, refusal.message)
    }
}
