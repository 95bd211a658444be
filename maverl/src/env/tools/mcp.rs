//! Tools of servers that speak the Model Context Protocol.
//!
//! Connections live on a runtime of their own, so that they outlive the calling runtime. Tools are listed at the start. A
//! server that ends is started again; the calls that it did not answer fail.

mod connection;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use rmcp::model::{CallToolRequestParams, CallToolResult, ContentBlock, ResourceContents};
use rmcp::service::ServiceError;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Mutex;

use super::McpServer;
use super::provider::{CallContext, CallFailure, ToolProvider, within_limit};
use crate::env::EnvError;
use crate::tools::{Call, Tool};
use connection::{Address, Connection, McpService};

/// Number of times in a row that a server is started again without an answer in between.
const TRIES: u32 = 3;

/// A connected server.
pub(super) struct Server {
    pub(super) name: String,
    tools: Vec<Tool>,
    address: Address,
    running: Mutex<RunningServer>,
    threads: Arc<ServerThreads>,
}

/// The current process of a server.
struct RunningServer {
    connection: Connection,
    /// Number of times that it was started again since its last answer.
    tries: u32,
}

/// Runtime of the connections. It ends with the last server.
struct ServerThreads(Option<Runtime>);

impl ServerThreads {
    fn new() -> Result<Self, EnvError> {
        let built = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = built.map_err(|error| EnvError(format!("no thread for `mcp`: {error}")))?;
        Ok(Self(Some(runtime)))
    }

    fn handle(&self) -> &Handle {
        self.0.as_ref().expect("the runtime is there until it is dropped").handle()
    }
}

impl Drop for ServerThreads {
    fn drop(&mut self) {
        // A runtime must not be dropped with waiting inside a task of another runtime.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Starts every server and lists its tools.
///
/// # Errors
///
/// The first server that cannot be started, does not answer in time, or lacks a requested tool.
pub(super) fn start(
    servers: &BTreeMap<String, McpServer>,
    base: &Path,
) -> Result<Vec<Server>, EnvError> {
    if servers.is_empty() {
        return Ok(Vec::new());
    }
    // One TLS provider for the process; an already installed one stays.
    drop(rustls::crypto::ring::default_provider().install_default());
    let threads = Arc::new(ServerThreads::new()?);
    let servers = servers.iter().map(|(name, options)| {
        let limit = Duration::try_from_secs_f64(options.timeout_s).unwrap_or(Duration::MAX);
        let (name, options, base) = (name.clone(), options.clone(), base.to_owned());
        let (address, threads) = (Address { name, options, base, limit }, Arc::clone(&threads));
        // The caller may be on a runtime already, whose threads must not block.
        let waiting = std::thread::spawn(move || Server::connect(address, threads));
        waiting.join().unwrap_or_else(|_| Err(EnvError::new("`mcp`: the client broke")))
    });
    servers.collect()
}

impl ToolProvider for Server {
    fn tools(&self) -> Vec<Tool> {
        self.tools.clone()
    }

    fn call<'a>(
        &'a self,
        _: CallContext<'a>,
        call: Call,
    ) -> BoxFuture<'a, Result<String, CallFailure>> {
        Box::pin(async move {
            let service = Arc::clone(&self.running.lock().await.connection.service);
            let params = CallToolRequestParams::new(call.name).with_arguments(call.arguments);
            let (limit, asked) = (self.address.limit, Arc::clone(&service));
            let asked = async move { within_limit(limit, asked.call_tool(params)).await };
            let asked = self.threads.handle().spawn(asked).await;
            let answer = asked.map_err(|error| self.server_gone(&error.to_string()))??;
            if let Err(error @ (ServiceError::TransportClosed | ServiceError::TransportSend(_))) =
                &answer
            {
                return Err(self.renew(&service, &error.to_string()).await);
            }
            self.running.lock().await.tries = 0;
            match answer {
                Ok(result) if result.is_error == Some(true) => {
                    Err(CallFailure::Call(show_result(&result)))
                }
                Ok(result) => Ok(show_result(&result)),
                // The server rejects this call; it is available for others.
                Err(ServiceError::McpError(error)) => {
                    Err(CallFailure::Call(error.message.into_owned()))
                }
                Err(ServiceError::Timeout { .. }) => {
                    Err(CallFailure::Call("the server took too long".to_owned()))
                }
                Err(error) => Err(self.server_gone(&error.to_string())),
            }
        })
    }
}

impl Server {
    fn connect(address: Address, threads: Arc<ServerThreads>) -> Result<Self, EnvError> {
        let connection = threads.handle().block_on(Connection::start(&address))?;
        let (name, tools) = (address.name.clone(), connection.tools.clone());
        let running = Mutex::new(RunningServer { connection, tries: 0 });
        Ok(Self { name, tools, address, running, threads })
    }

    fn server_gone(&self, what: &str) -> CallFailure {
        CallFailure::World(EnvError(format!("the server `{}` of `mcp`: {what}", self.name)))
    }

    /// Starts the server again after a call that has found it ended, unless another call did. Returns the failure of this
    /// call, which may have had an effect.
    async fn renew(&self, ended: &Arc<McpService>, why: &str) -> CallFailure {
        let mut running = self.running.lock().await;
        if !Arc::ptr_eq(&running.connection.service, ended) {
            return self.server_gone(&format!("{why}; it was started again"));
        }
        let wrote = self.threads.handle().spawn(running.connection.wrote()).await;
        let why = why.to_owned() + &wrote.unwrap_or_default();
        if running.tries == TRIES {
            let what = format!("was started again {TRIES} times without an answer in between");
            return self.server_gone(&format!("{why}; it {what}, and is not once more"));
        }
        running.tries += 1;
        let address = self.address.clone();
        let started = self.threads.handle().spawn(async move { Connection::start(&address).await });
        let started = started.await.unwrap_or_else(|error| Err(EnvError::new(error.to_string())));
        match started {
            Ok(connection) if connection.tools == self.tools => {
                running.connection = connection;
                let (tries, most) = (running.tries, TRIES);
                self.server_gone(&format!("{why}; it was started again ({tries} of {most} times)"))
            }
            Ok(_) => {
                self.server_gone(&format!("{why}; started again, it has other tools than before"))
            }
            Err(error) => self.server_gone(&format!("{why}; started again, {error}")),
        }
    }
}

/// Returns the text of a result, and of the resources in it; other content is only mentioned.
fn show_result(result: &CallToolResult) -> String {
    let texts: Vec<String> = result.content.iter().map(show_block).collect();
    match (&result.structured_content, texts.is_empty()) {
        (Some(value), true) => value.to_string(),
        (None, true) => "(nothing)".to_owned(),
        _ => texts.join("\n"),
    }
}

fn show_block(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(_) => "(an image)".to_owned(),
        ContentBlock::Audio(_) => "(a sound)".to_owned(),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => text.clone(),
            ResourceContents::BlobResourceContents { uri, .. } => format!("(a resource: {uri})"),
            _ => "(a resource)".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("(a resource: {})", link.uri),
        _ => "(a resource)".to_owned(),
    }
}
