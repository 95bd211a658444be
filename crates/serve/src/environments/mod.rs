//! `maverl serve environment`: an environment with its tasks, for clients of OpenEnv and of gRPC.
//!
//! Both protocols share the environment, its tasks, the limit of sessions and the metrics. References of tasks stay in the
//! server.

mod episode;
#[cfg(feature = "grpc")]
mod grpc;
#[cfg(feature = "openenv")]
mod openenv;
mod server;
mod tasks;

pub use server::{EnvironmentServer, EnvironmentSettings, ServedEnvironment};
pub use tasks::TaskSet;

use std::io;
use std::sync::Arc;

use axum::Router;

use crate::base::base_as;

impl EnvironmentServer {
    /// Returns the routes of every protocol of this program, and those that every server has.
    ///
    /// # Errors
    ///
    /// If the system has no random numbers.
    pub fn router(self: &Arc<Self>) -> io::Result<Router> {
        let router = Router::new();
        #[cfg(feature = "openenv")]
        let router = router.merge(openenv::router(Arc::clone(self)));
        #[cfg(feature = "grpc")]
        let router = router.merge(grpc::router(self)?);
        let (health, metrics) = (self.health(), self.metrics.clone());
        Ok(base_as("healthy", router, "environment", health, metrics))
    }
}
