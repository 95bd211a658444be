//! A small server of the Model Context Protocol on standard input and output, for tests. Without the argument `--well`
//! it prints an error and exits.

use std::future::Future;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult,
    PaginatedRequestParams, Resource, ResourceContents, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler, ServiceExt};
use serde_json::{Value, json};

struct Server;

fn tool(name: &'static str, description: &'static str, schema: Value) -> Tool {
    let Value::Object(schema) = schema else { unreachable!("schemas are objects") };
    Tool::new(name, description, Arc::new(schema))
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<ListToolsResult, ErrorData>> + Send {
        let text = json!({"type": "object", "properties": {"text": {"type": "string", "pattern": "."}}, "required": ["text"]});
        let none = json!({"type": "object", "properties": {}});
        let how = json!({"type": "object", "properties": {"how": {"type": "string"}}});
        let tools = vec![
            tool("reverse", "Turns a text around.", text),
            tool("fail", "Fails.", none.clone()),
            tool("refuse", "Refuses every call.", none.clone()),
            tool("hang", "Takes an hour.", none.clone()),
            tool("die", "Ends the server.", how),
            tool("resources", "Gives resources.", none),
        ];
        std::future::ready(Ok(ListToolsResult::with_all_items(tools)))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let text = arguments.get("text").and_then(Value::as_str).unwrap_or_default();
        let said = |text: String| vec![ContentBlock::text(text)];
        match &*request.name {
            "reverse" => Ok(CallToolResult::success(said(text.chars().rev().collect())).into()),
            "fail" => Ok(CallToolResult::error(said("it failed".to_owned())).into()),
            "hang" => {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                Err(ErrorData::internal_error("late", None))
            }
            "resources" => {
                let text = ResourceContents::text("the file", "file:///a");
                let blob = ResourceContents::blob("AAAA", "file:///b");
                let link = Resource::new("file:///c", "c");
                let content = vec![
                    ContentBlock::text("downloaded"),
                    ContentBlock::resource(text),
                    ContentBlock::resource(blob),
                    ContentBlock::resource_link(link),
                ];
                Ok(CallToolResult::success(content).into())
            }
            "die" => Ok(CallToolResult::success(said(die(arguments.get("how")))).into()),
            _ => Err(ErrorData::invalid_params("not like this", None)),
        }
    }
}

/// Ends the process, at once or soon after an answer.
fn die(how: Option<&Value>) -> String {
    let write = |text: &str| {
        let mut out = std::io::stdout();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).unwrap_or_default();
    };
    match how.and_then(Value::as_str).unwrap_or_default() {
        "code" => std::process::exit(3),
        "abort" => std::process::abort(),
        "half of a line" => write("{\"jsonrpc\": \"2.0\", \"id\": "),
        "no message" => write("Segmentation fault\n"),
        "another id" => write("{\"jsonrpc\": \"2.0\", \"id\": 999, \"result\": {}}\n"),
        "last words" => eprintln!("out of memory"),
        "soon" => {
            let soon = || {
                std::thread::sleep(Duration::from_millis(50));
                std::process::exit(0)
            };
            drop(std::thread::spawn(soon));
            return "yes".to_owned();
        }
        _ => {}
    }
    std::process::exit(0)
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    if std::env::args().all(|argument| argument != "--well") {
        eprintln!("cannot work like this");
        std::process::exit(3);
    }
    if let Ok(service) = Server.serve(rmcp::transport::stdio()).await {
        drop(service.waiting().await);
    }
}
