//! Options of the tools.

use std::collections::BTreeMap;

use maverl_macros::Settings;
use serde::{Deserialize, Serialize};

/// Options of the tool `python`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Settings)]
#[serde(default, deny_unknown_fields)]
pub struct PythonOptions {
    /// The interpreter: a command or a path.
    #[setting(default = "python3")]
    pub command: String,
    /// Refuses to run on a machine that lacks a layer of the sandbox.
    pub strict: bool,
    /// Time limit of a program in seconds: wall-clock time and CPU time.
    #[setting(default = 3.0)]
    pub seconds: f64,
    /// Address space limit of a program in MiB.
    #[setting(default = 512)]
    pub memory_mib: u64,
    /// Number of programs that run concurrently; 0 for one per core.
    pub parallel: usize,
}

/// Initial files of an episode, and limits on writing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Settings)]
#[serde(default, deny_unknown_fields)]
pub struct FilesOptions {
    /// A directory whose files every episode begins with; empty for none. It is never written to.
    pub directory: String,
    /// Maximum total size in bytes of the files that an episode writes.
    #[setting(default = 64 << 10)]
    pub max_bytes: usize,
    /// Maximum number of files that an episode writes.
    #[setting(default = 32)]
    pub max_files: usize,
}

/// Initial database of an episode, and limits of a statement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Settings)]
#[serde(default, deny_unknown_fields)]
pub struct SqliteOptions {
    /// A database file that every episode begins with; empty for none. A `database` of the task takes precedence.
    pub database: String,
    /// Allows statements to change the database: each episode has its own copy.
    #[setting(default = true)]
    pub writable: bool,
    /// Maximum number of rows that a statement shows.
    #[setting(default = 20)]
    pub max_rows: usize,
    /// Time limit of a statement in seconds.
    #[setting(default = 1.0)]
    pub seconds: f64,
    /// Maximum size of an episode's database in KiB.
    #[setting(default = 1024)]
    pub max_kib: usize,
}

/// A server of the Model Context Protocol: a program, or an address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Settings)]
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
    #[setting(default = 30.0)]
    pub timeout_s: f64,
}
