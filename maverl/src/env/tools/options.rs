//! What the tools are set to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How programs of the tool `python` are run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PythonOptions {
    /// The interpreter: a command or a path.
    pub command: String,
    /// Refuse to run on a machine that lacks a layer of the sandbox.
    pub strict: bool,
    /// Seconds that a program may take, by the clock and of the processor.
    pub seconds: f64,
    /// Address space of a program in MiB.
    pub memory_mib: u64,
    /// Programs that run at once; 0 for one on each core.
    pub parallel: usize,
}

impl Default for PythonOptions {
    fn default() -> Self {
        let command = "python3".to_owned();
        Self { command, strict: false, seconds: 3.0, memory_mib: 512, parallel: 0 }
    }
}

/// What files an episode begins with, and what it may write.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FilesOptions {
    /// A directory whose files every episode begins with; empty for none. It is only ever read.
    pub directory: String,
    /// Bytes of all files that an episode may write.
    pub max_bytes: usize,
    /// Files that an episode may write.
    pub max_files: usize,
}

impl Default for FilesOptions {
    fn default() -> Self {
        Self { directory: String::new(), max_bytes: 64 << 10, max_files: 32 }
    }
}

/// Which database an episode begins with, and what a statement may take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SqliteOptions {
    /// A database file that every episode begins with; empty for none. A task with a `database` of its own has that.
    pub database: String,
    /// Statements may change the database: each episode a copy of its own.
    pub writable: bool,
    /// Rows that a statement shows.
    pub max_rows: usize,
    /// Seconds that a statement may take.
    pub seconds: f64,
    /// KiB that the database of an episode may have.
    pub max_kib: usize,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        let database = String::new();
        Self { database, writable: true, max_rows: 20, seconds: 1.0, max_kib: 1024 }
    }
}

/// A server that speaks the Model Context Protocol: a program, or an address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct McpServer {
    /// A program and its arguments, spoken to through its standard input and output.
    pub command: Vec<String>,
    /// Environment variables of the program, beside those of this process.
    pub env: BTreeMap<String, String>,
    /// Address of a server that speaks streamable HTTP, in the place of a program.
    pub url: String,
    /// The environment variable that holds a token for that address; empty for none.
    pub key_env: String,
    /// Which of its tools may be called; empty for all.
    pub tools: Vec<String>,
    /// Seconds that its start, and each call, may take.
    pub timeout_s: f64,
}

impl Default for McpServer {
    fn default() -> Self {
        let (command, env, tools) = Default::default();
        Self { command, env, url: String::new(), key_env: String::new(), tools, timeout_s: 30.0 }
    }
}
