//! A server of the protocol whose answers are none.

use futures::stream::{Empty, empty};
use tonic::{Response, Streaming};

use super::*;
use maverl::env::grpc::wire::{
    ActManyRequest, ActManyResponse, CloseResponse, DescribeResponse, ForkRequest, JudgeResponse,
    OpenResponse, PlayRequest, PlayResponse, RenewResponse, Tool,
};

/// Judges an answer by the reward and the metrics in it, `0.5 {}`.
struct Hostile;

type Nothing<T> = Empty<Result<T, Status>>;

#[tonic::async_trait]
impl wire::Environment for Hostile {
    type TasksStream = Nothing<wire::Task>;
    type ActManyStream = Nothing<ActManyResponse>;
    type PlayStream = Nothing<PlayResponse>;

    async fn describe(
        &self,
        _: Request<DescribeRequest>,
    ) -> Result<Response<DescribeResponse>, Status> {
        Ok(Response::new(DescribeResponse { acts: true, ..DescribeResponse::default() }))
    }

    async fn tasks(&self, _: Request<TasksRequest>) -> Result<Response<Self::TasksStream>, Status> {
        Ok(Response::new(empty()))
    }

    async fn open(&self, request: Request<OpenRequest>) -> Result<Response<OpenResponse>, Status> {
        let OpenRequest { task_id, request_id, .. } = request.into_inner();
        let question = if task_id == "other question" { "\u{1b}[2J?" } else { "?" }.to_owned();
        let parameters = if task_id == "other tools" { "{" } else { "{}" }.to_owned();
        let tool = Tool { name: "\u{1b}[2J".to_owned(), description: String::new(), parameters };
        let source = String::new();
        let task = (task_id != "no task").then_some(wire::Task { id: task_id, source, question });
        let (session, lease_s) = (request_id, u32::MAX);
        let question = "?".to_owned();
        Ok(Response::new(OpenResponse { session, task, question, tools: vec![tool], lease_s }))
    }

    async fn fork(&self, _: Request<ForkRequest>) -> Result<Response<OpenResponse>, Status> {
        Err(Status::unimplemented("no"))
    }

    async fn renew(&self, _: Request<RenewRequest>) -> Result<Response<RenewResponse>, Status> {
        Ok(Response::new(RenewResponse {}))
    }

    async fn act(&self, _: Request<ActRequest>) -> Result<Response<ActResponse>, Status> {
        Err(Status::internal("\u{1b}[2J"))
    }

    async fn act_many(
        &self,
        _: Request<ActManyRequest>,
    ) -> Result<Response<Self::ActManyStream>, Status> {
        Ok(Response::new(empty()))
    }

    async fn judge(
        &self,
        request: Request<JudgeRequest>,
    ) -> Result<Response<JudgeResponse>, Status> {
        let answer = request.into_inner().answer.unwrap_or_default();
        let (reward, metrics) = answer.split_once(' ').unwrap();
        let (reward, metrics) = (reward.parse().unwrap(), metrics.to_owned());
        Ok(Response::new(JudgeResponse { reward, solved: true, metrics }))
    }

    async fn close(&self, _: Request<CloseRequest>) -> Result<Response<CloseResponse>, Status> {
        Ok(Response::new(CloseResponse { closed: false }))
    }

    async fn play(
        &self,
        _: Request<Streaming<PlayRequest>>,
    ) -> Result<Response<Self::PlayStream>, Status> {
        Ok(Response::new(empty()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_none_fails_its_episode_alone_and_names_the_server() {
    let service = wire::EnvironmentServer::new(Hostile);
    let path = "/maverl.environment.v1.Environment/{*method}";
    let router = axum::Router::new().route_service(path, service);
    let running = start(router, Limits::default()).await;
    let remote: &dyn DynEnvironment = &remote(format!("http://{}", running.address)).await;
    let task = |id: &str| Task {
        id: id.to_owned(),
        source: "test".to_owned(),
        question: "?".to_owned(),
        data: Map::new(),
    };
    for (id, wanted) in [
        ("other question", "has another question than that of the run"),
        ("no task", "has another question than that of the run"),
        ("other tools", "are no JSON"),
    ] {
        let EnvError(failed) = remote.open(&task(id), 1).await.unwrap_err();
        let named = failed.contains("the gRPC server at http://127.0.0.1");
        assert!(named && failed.contains(wanted), "{id}: {failed}");
    }
    let mut session = remote.open(&task("a"), 1).await.unwrap();
    let beyond = "a reward is a number from -1e9 to 1e9";
    for (answer, wanted) in [
        ("1e200 {}", beyond),
        ("-1e200 {}", beyond),
        ("1000000001 {}", beyond),
        ("inf {}", beyond),
        ("-inf {}", beyond),
        ("NaN {}", beyond),
        ("0.5 ", "are no object"),
        ("0.5 [1]", "are no object"),
        ("0.5 {\"a\": NaN}", "are no object"),
        ("0.5 {\"a\": 1} x", "are no object"),
    ] {
        let EnvError(failed) = remote.score(&session, Some(answer)).await.unwrap_err();
        let named = failed.starts_with("the gRPC server at http://127.0.0.1")
            || failed.contains("of the gRPC server at http://127.0.0.1");
        assert!(named && failed.contains(wanted), "{answer}: {failed}");
    }
    let EnvError(failed) =
        remote.act(&mut session, Action::Text("a".to_owned())).await.unwrap_err();
    assert!(failed.contains("INTERNAL"), "{failed}");
    let score = remote.score(&session, Some("1e9 {\"a\": 1}")).await.unwrap();
    assert_eq!((score.reward, score.metrics["a"].as_u64()), (1e9, Some(1)));
    remote.close(session).await.unwrap();
}
