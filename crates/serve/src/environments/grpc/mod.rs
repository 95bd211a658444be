//! gRPC of `maverl serve environment`: `maverl.environment.v1`, health, and reflection.
//!
//! The services are routes of the server's router, so that its listener, keys and limits hold for them.

mod health;
mod many;
mod play;
mod rpc;
mod service;
mod session;
mod sessions;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use axum::Router;
use tonic_health::pb::health_server::HealthServer;
use tonic_reflection::server::Builder;

use self::health::HealthProbe;
use self::service::Service;
use crate::environments::server::{EnvironmentServer, MOST_BYTES};
use maverl::env::grpc::wire;

/// Returns the routes of the services. Fails if the system has no random numbers, for the ids of sessions.
pub(super) fn router(server: &Arc<EnvironmentServer>) -> io::Result<Router> {
    let environment = wire::EnvironmentServer::new(Service::new(Arc::clone(server))?)
        .max_decoding_message_size(MOST_BYTES);
    let health = HealthServer::new(HealthProbe(server.health()));
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

/// Returns the builder of a service that describes the protocols.
fn reflection() -> Builder<'static> {
    Builder::configure()
        .register_encoded_file_descriptor_set(wire::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}
