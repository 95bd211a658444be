//! gRPC of `maverl serve environment`: `maverl.environment.v1`, health, and reflection.
//!
//! The services are routes of the server's router, so that its listener, keys and limits hold for them.

mod health;
mod many;
mod play;
mod service;
mod session;
mod sessions;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use tonic::{Code, Status};
use tonic_health::pb::health_server::HealthServer;
use tonic_reflection::server::Builder;

use self::health::Probe;
use self::service::Service;
use super::Refusal;
use super::environment::{EnvironmentServer, MOST_BYTES};
use crate::env::grpc::wire;

/// Returns the routes of the services. Fails if the system has no random numbers, for the ids of sessions.
pub(super) fn router(server: &Arc<EnvironmentServer>) -> io::Result<Router> {
    let environment = wire::EnvironmentServer::new(Service::new(Arc::clone(server))?)
        .max_decoding_message_size(MOST_BYTES);
    let health = HealthServer::new(Probe(server.health.clone()));
    let reflection = || {
        Builder::configure()
            .register_encoded_file_descriptor_set(wire::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let reflection_v1 = reflection().build_v1().map_err(io::Error::other)?;
    // The version that the package grpcio-reflection asks.
    let reflection_v1alpha = reflection().build_v1alpha().map_err(io::Error::other)?;
    let router = Router::new()
        .route_service("/maverl.environment.v1.Environment/{*method}", environment)
        .route_service("/grpc.health.v1.Health/{*method}", health)
        .route_service("/grpc.reflection.v1.ServerReflection/{*method}", reflection_v1)
        .route_service("/grpc.reflection.v1alpha.ServerReflection/{*method}", reflection_v1alpha);
    Ok(router)
}

/// Returns true if a request is one of gRPC, by its headers.
pub(super) fn is_request(headers: &HeaderMap) -> bool {
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
