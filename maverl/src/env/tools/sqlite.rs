//! SQL on an episode's own database.
//!
//! A database is opened for one statement and then closed. Changes of an episode are kept in its state as the bytes of
//! the file. An authorizer decides what a statement may do while SQLite compiles it. Time, memory, size and rows are
//! bounded.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::future::BoxFuture;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, OpenFlags};
use serde_json::{Value, json};

use super::SqliteOptions;
use super::provider::{
    CallContext, CallFailure, QueriedRows, ToolProvider, blocking, text, tool_of_text,
};
use super::state::State;
use crate::env::EnvError;
use crate::task::Task;
use crate::tools::{Call, Tool};

/// Maximum size of a value or a statement in bytes.
const LONGEST: i32 = 100_000;
/// Maximum memory in bytes of all statements of the process together.
const MEMORY: u64 = 256 << 20;
/// Size of a database page in bytes.
const PAGE: usize = 4096;
/// SQLite instructions between two checks of the clock.
const STEPS: i32 = 1000;
/// Functions that load code.
const LOADING: [&str; 2] = ["load_extension", "fts3_tokenizer"];
/// Pragmas that only read.
const TELLING: [&str; 6] =
    ["table_info", "table_xinfo", "table_list", "index_list", "index_info", "foreign_key_list"];

/// The tool `sqlite`.
pub(super) struct Sqlite {
    file: Option<PathBuf>,
    writable: bool,
    max_rows: usize,
    time: Duration,
    max_bytes: usize,
}

/// Database of a statement.
enum DatabaseSource {
    /// The file of a database that the episode has changed.
    Bytes(Vec<u8>),
    /// The SQL that creates the database of a task.
    Script(String),
    /// A database file, opened read-only.
    File(PathBuf),
    /// An empty database.
    Empty,
}

/// Result of a statement, and the database if it was changed.
struct QueryDone {
    columns: Vec<String>,
    rows: Vec<Vec<Value>>,
    more: bool,
    changed: Option<(u64, Vec<u8>)>,
}

impl Sqlite {
    pub(super) fn new(options: &SqliteOptions, base: &Path) -> Result<Self, EnvError> {
        let SqliteOptions { database, writable, max_rows, seconds, max_kib } = options;
        if *max_kib < 16 || *max_kib > 1 << 20 {
            return Err(EnvError(format!("`sqlite.max_kib` is {max_kib}; write 16 to 1048576")));
        }
        let time = Duration::try_from_secs_f64(*seconds).unwrap_or(Duration::MAX);
        let (writable, max_rows, max_bytes) = (*writable, *max_rows, max_kib << 10);
        let mut sqlite = Self { file: None, writable, max_rows, time, max_bytes };
        if !database.is_empty() {
            let path = base.join(database);
            sqlite.check_file(&path).map_err(|why| {
                EnvError(format!("`sqlite.database`: `{}` {why}", path.display()))
            })?;
            sqlite.file = Some(path);
        }
        Ok(sqlite)
    }

    /// Checks that a file is a database that an episode can have.
    fn check_file(&self, path: &Path) -> Result<(), String> {
        let file = std::fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?;
        let size = file.len();
        if self.writable && size > self.max_bytes as u64 {
            return Err(format!(
                "has {size} bytes, more than `sqlite.max_kib` lets an episode have; raise that, or write `writable = false`"
            ));
        }
        let tables = "SELECT name FROM sqlite_schema";
        let read = self.run(&DatabaseSource::File(path.to_owned()), tables);
        read.map(drop).map_err(|what| format!("is no database: {what}"))
    }

    /// Returns the database for the next statement of an episode.
    fn source(&self, task: &Task, state: &State) -> Result<DatabaseSource, EnvError> {
        if let Some(bytes) = &state.database {
            return BASE64.decode(bytes).map(DatabaseSource::Bytes).map_err(damaged_database);
        }
        match (task.data.get("database"), &self.file) {
            (Some(Value::String(script)), _) => Ok(DatabaseSource::Script(script.clone())),
            (Some(other), _) => {
                let what = format!("`database` of the task `{}` is {other}; write SQL", task.id);
                Err(damaged_database(what))
            }
            (None, Some(path)) if self.writable => {
                std::fs::read(path).map(DatabaseSource::Bytes).map_err(damaged_database)
            }
            (None, Some(path)) => Ok(DatabaseSource::File(path.clone())),
            (None, None) => Ok(DatabaseSource::Empty),
        }
    }

    /// Runs one statement.
    fn run(&self, source: &DatabaseSource, sql: &str) -> Result<QueryDone, String> {
        let read_only = matches!(source, DatabaseSource::File(_)) || !self.writable;
        let mut connection = self.open(source)?;
        let (read, limit) = (read_only, self.time);
        connection
            .authorizer(Some(move |context: AuthContext<'_>| authorize(context, read)))
            .map_err(describe_error)?;
        let end = Instant::now().checked_add(limit);
        connection
            .progress_handler(STEPS, Some(move || end.is_some_and(|end| Instant::now() >= end)))
            .map_err(describe_error)?;
        let before = connection.total_changes();
        let (columns, rows, more, changes) = {
            let mut statement = connection.prepare(sql).map_err(describe_error)?;
            let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
            let changes = !statement.readonly();
            let (rows, more) =
                self.rows_of(&mut statement, columns.len()).map_err(describe_error)?;
            (columns, rows, more, changes)
        };
        let changed = if changes {
            let count = connection.total_changes() - before;
            // SQLite asks for the number of pages by a pragma.
            let free = None::<fn(AuthContext<'_>) -> Authorization>;
            connection.authorizer(free).map_err(describe_error)?;
            Some((count, connection.serialize("main").map_err(describe_error)?.to_vec()))
        } else {
            None
        };
        Ok(QueryDone { columns, rows, more, changed })
    }

    /// Returns the first rows, and whether there are more. A statement that changes data runs to its end.
    fn rows_of(
        &self,
        statement: &mut rusqlite::Statement<'_>,
        columns: usize,
    ) -> Result<(Vec<Vec<Value>>, bool), Error> {
        let (mut kept, mut more) = (Vec::new(), false);
        let whole = !statement.readonly();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if kept.len() < self.max_rows {
                let values = (0..columns).map(|i| row.get_ref(i).map(value));
                kept.push(values.collect::<Result<_, _>>()?);
            } else {
                more = true;
                if !whole {
                    break;
                }
            }
        }
        Ok((kept, more))
    }

    /// Opens a database with its limits, before any SQL of the model runs on it.
    fn open(&self, source: &DatabaseSource) -> Result<Connection, String> {
        let mut connection = match source {
            DatabaseSource::File(path) => {
                let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
                Connection::open_with_flags(path, flags)
            }
            _ => Connection::open_in_memory(),
        }
        .map_err(describe_error)?;
        if let DatabaseSource::Bytes(bytes) = source {
            connection
                .deserialize_read_exact("main", bytes.as_slice(), bytes.len(), false)
                .map_err(describe_error)?;
        }
        let pages = self.max_bytes / PAGE;
        let bounds = format!(
            "PRAGMA max_page_count = {pages}; PRAGMA hard_heap_limit = {MEMORY}; PRAGMA temp_store = MEMORY; \
             PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"
        );
        connection.execute_batch(&bounds).map_err(describe_error)?;
        if let DatabaseSource::Script(script) = source {
            connection
                .execute_batch(script)
                .map_err(|error| format!("the task's `database`: {error}"))?;
        }
        // A user's database may have longer texts than a model may write.
        let longest =
            if matches!(source, DatabaseSource::File(_)) { 10 * LONGEST } else { LONGEST };
        for (limit, value) in [
            (Limit::SQLITE_LIMIT_LENGTH, longest),
            (Limit::SQLITE_LIMIT_SQL_LENGTH, LONGEST),
            (Limit::SQLITE_LIMIT_EXPR_DEPTH, 100),
            (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 100),
            (Limit::SQLITE_LIMIT_COLUMN, 200),
            (Limit::SQLITE_LIMIT_ATTACHED, 0),
            (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100),
            (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 10),
            (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
        ] {
            connection.set_limit(limit, value).map_err(describe_error)?;
        }
        Ok(connection)
    }
}

/// Decides what a statement may do: read, and, on the episode's own database, change tables and their rows.
fn authorize(context: AuthContext<'_>, read_only: bool) -> Authorization {
    use AuthAction as A;
    let allow = match context.action {
        A::Select | A::Read { .. } | A::Recursive => true,
        A::Function { function_name } => {
            !LOADING.iter().any(|name| function_name.eq_ignore_ascii_case(name))
        }
        A::Pragma { pragma_name, .. } => {
            TELLING.iter().any(|name| pragma_name.eq_ignore_ascii_case(name))
        }
        // Renaming a table looks up its triggers there; a statement itself may not change it.
        A::Update { table_name: "sqlite_temp_master" | "sqlite_temp_schema", .. } => !read_only,
        A::Insert { .. }
        | A::Update { .. }
        | A::Delete { .. }
        | A::CreateTable { .. }
        | A::CreateIndex { .. }
        | A::CreateView { .. }
        | A::DropTable { .. }
        | A::DropIndex { .. }
        | A::DropView { .. }
        | A::AlterTable { .. }
        | A::Reindex { .. } => !read_only && context.database_name != Some("temp"),
        _ => false,
    };
    if allow { Authorization::Allow } else { Authorization::Deny }
}

fn damaged_database(error: impl Display) -> EnvError {
    EnvError(format!("the episode's database: {error}"))
}

fn show_cell(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Describes an error in words for the model.
#[expect(clippy::needless_pass_by_value, reason = "an argument of `map_err`")]
fn describe_error(error: Error) -> String {
    use rusqlite::ErrorCode as Code;
    match (&error, error.sqlite_error_code()) {
        (_, Some(Code::OperationInterrupted)) => "the statement took too long".to_owned(),
        (_, Some(Code::AuthorizationForStatementDenied)) => {
            "that is not allowed here; statements may read and change tables, one at a time"
                .to_owned()
        }
        (_, Some(Code::OutOfMemory)) => "the statement takes too much memory".to_owned(),
        (_, Some(Code::DiskFull)) => "the database is full".to_owned(),
        (Error::MultipleStatement, _) => "write one statement at a time".to_owned(),
        _ => error.to_string(),
    }
}

fn value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => json!(number),
        ValueRef::Real(number) => json!(number),
        ValueRef::Text(text) => json!(String::from_utf8_lossy(text)),
        ValueRef::Blob(bytes) => json!(format!("({} bytes)", bytes.len())),
    }
}

impl QueryDone {
    /// Formats the result: one line per row, the column names first.
    fn show_rows(&self) -> String {
        if let (Some((count, _)), true) = (&self.changed, self.columns.is_empty()) {
            return format!("done; {count} rows changed");
        }
        let mut lines = vec![self.columns.join(" | ")];
        for row in &self.rows {
            lines.push(row.iter().map(show_cell).collect::<Vec<_>>().join(" | "));
        }
        match (self.rows.is_empty(), self.more) {
            (true, _) => lines.push("(no rows)".to_owned()),
            (_, true) => lines.push("(more rows)".to_owned()),
            _ => {}
        }
        lines.join("\n")
    }
}

impl ToolProvider for Sqlite {
    fn tools(&self) -> Vec<Tool> {
        vec![tool_of_text("sqlite", "Runs one SQL statement.", "sql")]
    }

    fn call<'a>(
        &'a self,
        episode: CallContext<'a>,
        call: Call,
    ) -> BoxFuture<'a, Result<String, CallFailure>> {
        Box::pin(async move {
            let source = self.source(episode.task, episode.state)?;
            let (sqlite, sql) = (self.copy(), text(&call, "sql").to_owned());
            let done = blocking(move || sqlite.run(&source, &sql)).await??;
            if let Some((_, bytes)) = &done.changed {
                episode.state.database = Some(BASE64.encode(bytes));
            }
            Ok(done.show_rows())
        })
    }

    fn rows(&self, task: &Task, state: &State, query: &str) -> Option<QueriedRows> {
        let whole = Self { max_rows: usize::MAX, ..self.copy() };
        let asked = self.source(task, state).and_then(|source| match whole.run(&source, query) {
            Ok(done) => Ok(Some(done.rows.into_iter().map(Value::from).collect())),
            // An episode may drop the queried table.
            Err(_) if state.database.is_some() => Ok(None),
            Err(what) => Err(EnvError(format!("`goal.query` of the task `{}`: {what}", task.id))),
        });
        Some(asked)
    }
}

impl Sqlite {
    fn copy(&self) -> Self {
        Self { file: self.file.clone(), ..*self }
    }
}
