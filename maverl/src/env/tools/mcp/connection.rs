//! Connection with a server: start, list of tools, last words.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::PaginatedRequestParams;
use rmcp::service::{RoleClient, RunningService};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ServiceExt, model};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, Command};
use tokio::task::JoinHandle;

use crate::client;
use crate::env::EnvError;
use crate::env::tools::McpServer;
use crate::tools::{Schema, Tool};

/// Maximum number of characters of a program's stderr that messages quote.
const ERRORS: usize = 400;
/// Time to read the stderr of a server that has ended or failed: what it has written may still be in the pipe.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Longest list of tools in pages.
const PAGES: usize = 200;

/// A client of a server.
pub(super) type McpService = RunningService<RoleClient, ()>;

/// A server, as the options name it.
#[derive(Debug, Clone)]
pub(super) struct Address {
    pub(super) name: String,
    pub(super) options: McpServer,
    /// Directory of the configuration.
    pub(super) base: PathBuf,
    pub(super) limit: Duration,
}

/// A running server.
pub(super) struct Connection {
    pub(super) service: Arc<McpService>,
    pub(super) tools: Vec<Tool>,
    errors: ServerErrors,
}

/// Standard error of a program.
#[derive(Default)]
struct ServerErrors {
    /// Its beginning.
    text: Arc<Mutex<String>>,
    /// Reads it to its end.
    reading: Option<JoinHandle<()>>,
}

impl ServerErrors {
    fn read(&mut self, stderr: ChildStderr) {
        self.reading = Some(tokio::spawn(listen(stderr, Arc::clone(&self.text))));
    }

    /// Returns what a program that has ended, or is no longer wanted, wrote, as the end of a message.
    fn wrote(&mut self) -> impl Future<Output = String> + Send + use<> {
        let (reading, text) = (self.reading.take(), Arc::clone(&self.text));
        async move {
            if let Some(reading) = reading {
                let _ = tokio::time::timeout(LAST_WORDS, reading).await;
            }
            let text = text.lock().unwrap_or_else(PoisonError::into_inner);
            let text = text.trim();
            if text.is_empty() { String::new() } else { format!("; it wrote: {text}") }
        }
    }
}

impl Connection {
    /// Starts a server, and lists its tools.
    pub(super) async fn start(address: &Address) -> Result<Self, EnvError> {
        let mut errors = ServerErrors::default();
        let start = async {
            let service = if address.options.url.is_empty() {
                by_pipe(address, &mut errors).await?
            } else {
                by_http(&address.options).await?
            };
            let tools = requested_tools(all_tools(&service).await?, &address.options.tools)?;
            Ok::<_, String>((service, tools))
        };
        let started = tokio::time::timeout(address.limit, start).await;
        let started = started.unwrap_or_else(|_| {
            Err(format!("did not answer within {} seconds", address.limit.as_secs_f64()))
        });
        match started {
            Ok((service, tools)) => Ok(Self { service: Arc::new(service), tools, errors }),
            Err(what) => {
                let wrote = errors.wrote().await;
                let name = &address.name;
                Err(EnvError(format!("the server `{name}` of `mcp` {what}{wrote}")))
            }
        }
    }

    /// Returns what a program that has ended wrote to its stderr, as the end of a message.
    pub(super) fn wrote(&mut self) -> impl Future<Output = String> + Send + use<> {
        self.errors.wrote()
    }
}

/// Starts a program in the directory of the configuration; it is killed when its last user is dropped.
async fn by_pipe(address: &Address, errors: &mut ServerErrors) -> Result<McpService, String> {
    let Address { options, base, .. } = address;
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
    if let Some(stderr) = stderr {
        errors.read(stderr);
    }
    ().serve(process).await.map_err(|error| format!("does not speak the protocol: {error}"))
}

/// Keeps the beginning of a program's stderr, and discards the rest.
async fn listen(mut stderr: ChildStderr, text: Arc<Mutex<String>>) {
    let mut buffer = [0; 1024];
    while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
        let mut kept = text.lock().unwrap_or_else(PoisonError::into_inner);
        let room = ERRORS.saturating_sub(kept.chars().count());
        kept.extend(String::from_utf8_lossy(&buffer[..n]).chars().take(room));
    }
}

async fn by_http(options: &McpServer) -> Result<McpService, String> {
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

/// Returns the tools of all pages of a list.
async fn all_tools(service: &McpService) -> Result<Vec<model::Tool>, String> {
    let (mut tools, mut cursor, mut before) = (Vec::new(), None, BTreeSet::new());
    for _ in 0..PAGES {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        let page = service.list_tools(Some(page)).await;
        let page = page.map_err(|error| format!("lists no tools: {error}"))?;
        tools.extend(page.tools);
        // Some servers write an empty one on the last page.
        let Some(next) = page.next_cursor.filter(|next| !next.is_empty()) else {
            return Ok(tools);
        };
        if !before.insert(next.clone()) {
            let next = client::start(&next);
            return Err(format!("lists its tools without an end: `nextCursor` is {next} again"));
        }
        cursor = Some(next);
    }
    Err(format!("lists its tools on more than {PAGES} pages"))
}

/// Returns the requested tools; all tools if none is named.
fn requested_tools(listed: Vec<model::Tool>, names: &[String]) -> Result<Vec<Tool>, String> {
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
