//! Tools of servers that speak the Model Context Protocol.
//!
//! Connections live on a runtime of their own, so that they outlive the calling runtime. Tools are listed once, at the
//! start.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use rmcp::model::{CallToolRequestParams, CallToolResult, ContentBlock};
use rmcp::service::{RoleClient, RunningService, ServiceError};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ServiceExt, model};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, Command};
use tokio::runtime::{Builder, Handle, Runtime};

use super::McpServer;
use super::provider::{Episode, Failure, ToolProvider, within};
use crate::env::EnvError;
use crate::tools::{Call, Schema, Tool};

/// Maximum number of characters of a program's stderr that messages quote.
const ERRORS: usize = 400;

/// Time to read the stderr of a server that has failed.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A connected server.
pub(super) struct Server {
    pub(super) name: String,
    tools: Vec<Tool>,
    service: Arc<RunningService<RoleClient, ()>>,
    limit: Duration,
    threads: Arc<Threads>,
}

/// Runtime of the connections. It ends with the last server.
struct Threads(Option<Runtime>);

impl Threads {
    fn new() -> Result<Self, EnvError> {
        let built = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime =
            built.map_err(|error| EnvError::new(format!("no thread for `mcp`: {error}")))?;
        Ok(Self(Some(runtime)))
    }

    fn handle(&self) -> &Handle {
        self.0.as_ref().expect("the runtime is there until it is dropped").handle()
    }
}

impl Drop for Threads {
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
    let threads = Arc::new(Threads::new()?);
    let connect = |(name, options): (&String, &McpServer)| {
        let (on, base) = (Arc::clone(&threads), base.to_owned());
        let (name, options) = (name.clone(), options.clone());
        // The caller may be on a runtime already, whose threads must not block.
        let waiting = std::thread::spawn(move || {
            let handle = on.handle().clone();
            handle.block_on(connected(name, &options, &base, on))
        });
        waiting.join().unwrap_or_else(|_| Err(EnvError::new("`mcp`: the client broke")))
    };
    servers.iter().map(connect).collect()
}

async fn connected(
    name: String,
    options: &McpServer,
    base: &Path,
    threads: Arc<Threads>,
) -> Result<Server, EnvError> {
    let limit = Duration::try_from_secs_f64(options.timeout_s).unwrap_or(Duration::MAX);
    let errors = Arc::new(Mutex::new(String::new()));
    let fails = |what: String| {
        let errors = errors.lock().unwrap_or_else(PoisonError::into_inner).trim().to_owned();
        let errors = if errors.is_empty() { errors } else { format!("; it wrote: {errors}") };
        EnvError::new(format!("the server `{name}` of `mcp` {what}{errors}"))
    };
    let start = async {
        let service = match options.url.is_empty() {
            true => by_pipe(options, base, &errors).await?,
            false => by_http(options).await?,
        };
        let listed =
            service.list_all_tools().await.map_err(|error| format!("lists no tools: {error}"))?;
        Ok::<_, String>((service, listed))
    };
    let started = tokio::time::timeout(limit, start).await;
    let late = |_| format!("did not answer within {} seconds", limit.as_secs_f64());
    let (service, listed) = started.map_err(late).and_then(|started| started).map_err(&fails)?;
    let tools = wanted(listed, &options.tools).map_err(&fails)?;
    Ok(Server { name, tools, service: Arc::new(service), limit, threads })
}

/// Starts a program in the directory of the configuration; it is killed when its last user is dropped.
async fn by_pipe(
    options: &McpServer,
    base: &Path,
    errors: &Arc<Mutex<String>>,
) -> Result<RunningService<RoleClient, ()>, String> {
    let [program, arguments @ ..] = options.command.as_slice() else {
        return Err("has no `command`".to_owned());
    };
    let mut command = Command::new(program);
    command.args(arguments).envs(&options.env).kill_on_drop(true);
    if !base.as_os_str().is_empty() {
        command.current_dir(base);
    }
    let process = TokioChildProcess::builder(command).stderr(Stdio::piped()).spawn();
    let (process, stderr) = process.map_err(|error| format!("cannot be started: {error}"))?;
    let listening = stderr.map(|stderr| tokio::spawn(listen(stderr, Arc::clone(errors))));
    match ().serve(process).await {
        Ok(service) => Ok(service),
        Err(error) => {
            // Output from before the program ended may still be in the pipe.
            if let Some(listening) = listening {
                let _ = tokio::time::timeout(LAST_WORDS, listening).await;
            }
            Err(format!("does not speak the protocol: {error}"))
        }
    }
}

/// Keeps the beginning of a program's stderr, and discards the rest.
async fn listen(mut stderr: ChildStderr, errors: Arc<Mutex<String>>) {
    let mut buffer = [0; 1024];
    while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
        let mut kept = errors.lock().unwrap_or_else(PoisonError::into_inner);
        let room = ERRORS.saturating_sub(kept.chars().count());
        kept.extend(String::from_utf8_lossy(&buffer[..n]).chars().take(room));
    }
}

async fn by_http(options: &McpServer) -> Result<RunningService<RoleClient, ()>, String> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(options.url.as_str());
    if !options.key_env.is_empty() {
        let key = std::env::var(&options.key_env);
        let key = key.map_err(|_| {
            format!("wants the environment variable `{}`, which is not set", options.key_env)
        })?;
        config = config.auth_header(key);
    }
    let transport = StreamableHttpClientTransport::from_config(config);
    ().serve(transport)
        .await
        .map_err(|error| format!("at {} does not answer: {error}", options.url))
}

/// Returns the requested tools; all tools if none is named.
fn wanted(listed: Vec<model::Tool>, names: &[String]) -> Result<Vec<Tool>, String> {
    if let Some(name) =
        names.iter().find(|name| listed.iter().all(|tool| tool.name != name.as_str()))
    {
        let known: Vec<&str> = listed.iter().map(|tool| &*tool.name).collect();
        return Err(format!("has no tool `{name}`; it has {}", known.join(", ")));
    }
    let chosen = listed
        .into_iter()
        .filter(|tool| names.is_empty() || names.iter().any(|name| tool.name == name.as_str()));
    let tools = chosen.map(|tool| Tool {
        name: tool.name.into_owned(),
        description: tool.description.unwrap_or_default().into_owned(),
        parameters: Schema::of_server(Value::Object((*tool.input_schema).clone())),
    });
    Ok(tools.collect())
}

impl ToolProvider for Server {
    fn tools(&self) -> Vec<Tool> {
        self.tools.clone()
    }

    fn call<'a>(&'a self, _: Episode<'a>, call: Call) -> BoxFuture<'a, Result<String, Failure>> {
        Box::pin(async move {
            let service = Arc::clone(&self.service);
            let params = CallToolRequestParams::new(call.name).with_arguments(call.arguments);
            let limit = self.limit;
            let asked = async move { within(limit, service.call_tool(params)).await };
            let asked = self.threads.handle().spawn(asked).await;
            match asked.map_err(|error| self.gone(&error.to_string()))?? {
                Ok(result) if result.is_error == Some(true) => Err(Failure::Call(told(&result))),
                Ok(result) => Ok(told(&result)),
                // The server rejects this call; it is available for others.
                Err(ServiceError::McpError(error)) => {
                    Err(Failure::Call(error.message.into_owned()))
                }
                Err(ServiceError::Timeout { .. }) => {
                    Err(Failure::Call("the server took too long".to_owned()))
                }
                Err(error) => Err(self.gone(&error.to_string())),
            }
        })
    }
}

impl Server {
    fn gone(&self, what: &str) -> Failure {
        Failure::World(EnvError::new(format!("the server `{}` of `mcp`: {what}", self.name)))
    }
}

/// Returns the text of a result; content other than text is only mentioned.
fn told(result: &CallToolResult) -> String {
    let text = |block: &ContentBlock| match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(_) => "(an image)".to_owned(),
        ContentBlock::Audio(_) => "(a sound)".to_owned(),
        _ => "(a resource)".to_owned(),
    };
    let texts: Vec<String> = result.content.iter().map(text).collect();
    match (&result.structured_content, texts.is_empty()) {
        (Some(value), true) => value.to_string(),
        (None, true) => "(nothing)".to_owned(),
        _ => texts.join("\n"),
    }
}
