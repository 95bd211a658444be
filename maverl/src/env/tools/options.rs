//! Options of the tools.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Options of the tool `python`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PythonOptions {
    /// The interpreter: a command or a path.
    pub command: String,
    /// Refuses to run on a machine that lacks a layer of the sandbox.
    pub strict: bool,
    /// Time limit of a program in seconds: wall-clock time and CPU time.
    pub seconds: f64,
    /// Address space limit of a program in MiB.
    pub memory_mib: u64,
    /// Number of programs that run concurrently; 0 for one per core.
    pub parallel: usize,
}

impl Default for PythonOptions {
    fn default() -> Self {
        let command = "python3".to_owned();
        Self { command, strict: false, seconds: 3.0, memory_mib: 512, parallel: 0 }
    }
}

/// Initial files of an episode, and limits on writing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FilesOptions {
    /// A directory whose files every episode begins with; empty for none. It is never written to.
    pub directory: String,
    /// Maximum total size in bytes of the files that an episode writes.
    pub max_bytes: usize,
    /// Maximum number of files that an episode writes.
    pub max_files: usize,
}

impl Default for FilesOptions {
    fn default() -> Self {
        Self { directory: String::new(), max_bytes: 64 << 10, max_files: 32 }
    }
}

/// Initial database of an episode, and limits of a statement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SqliteOptions {
    /// A database file that every episode begins with; empty for none. A `database` of the task takes precedence.
    pub database: String,
    /// Allows statements to change the database: each episode has its own copy.
    pub writable: bool,
    /// Maximum number of rows that a statement shows.
    pub max_rows: usize,
    /// Time limit of a statement in seconds.
    pub seconds: f64,
    /// Maximum size of an episode's database in KiB.
    pub max_kib: usize,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        let database = String::new();
        Self { database, writable: true, max_rows: 20, seconds: 1.0, max_kib: 1024 }
    }
}

/// A server of the Model Context Protocol: a program, or an address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct McpServer {
    /// A program and its arguments; its standard input and output carry the protocol.
    pub command: Vec<String>,
    /// Environment variables of the program, in addition to those of this process.
    pub env: BTreeMap<String, String>,
    /// Address of a server with streamable HTTP, instead of a program.
    pub url: String,
    /// Environment variable that holds a token for that address; empty for none.
    pub key_env: String,
    /// Tools of the server that may be called; empty for all.
    pub tools: Vec<String>,
    /// Timeout in seconds of its start and of each call.
    pub timeout_s: f64,
}

impl Default for McpServer {
    fn default() -> Self {
        let (command, env, tools) = Default::default();
        Self { command, env, url: String::new(), key_env: String::new(), tools, timeout_s: 30.0 }
    }
}
