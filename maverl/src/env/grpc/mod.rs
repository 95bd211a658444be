//! Environments of servers that speak `maverl.environment.v1`, over gRPC.

#[cfg(feature = "grpc")]
mod environment;
#[cfg(feature = "grpc")]
mod server;
#[cfg(feature = "grpc")]
#[doc(hidden)]
pub mod wire;

#[cfg(feature = "grpc")]
pub use environment::GrpcEnvironment;

crate::behind_feature!("grpc", "grpc");
