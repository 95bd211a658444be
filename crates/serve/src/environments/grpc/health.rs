//! The service `grpc.health.v1`: a server that loads or drains does not serve.

use std::pin::Pin;
use std::time::Duration;

use futures::Stream;
use futures::stream::unfold;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health as HealthService;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::base::{Health, Ready};
use maverl::env::grpc::wire::SERVICE;

/// Time after which a watched status is read again.
const PAUSE: Duration = Duration::from_millis(500);

/// Answers questions about the health of the server.
pub(super) struct HealthProbe(pub(super) Health);

impl HealthProbe {
    fn status(&self) -> ServingStatus {
        match self.0.get() {
            Ready::Yes => ServingStatus::Serving,
            Ready::Loading | Ready::Draining => ServingStatus::NotServing,
        }
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl HealthService for HealthProbe {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        match request.get_ref().service.as_str() {
            "" | SERVICE => Ok(Response::new(response(self.status()))),
            _ => Err(Status::not_found(format!("there is no such service; there is `{SERVICE}`"))),
        }
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        if !["", SERVICE].contains(&request.get_ref().service.as_str()) {
            let unknown = response(ServingStatus::ServiceUnknown);
            return Ok(Response::new(Box::pin(futures::stream::iter([Ok(unknown)]))));
        }
        let probe = Self(self.0.clone());
        let changes = unfold((probe, None), |(probe, told)| async move {
            while Some(probe.status()) == told {
                tokio::time::sleep(PAUSE).await;
            }
            let status = probe.status();
            Some((Ok(response(status)), (probe, Some(status))))
        });
        Ok(Response::new(Box::pin(changes)))
    }
}
