//! Permitted and forbidden SQL.

use super::*;

const TABLE: &str = "CREATE TABLE stock (item TEXT, number INTEGER); INSERT INTO stock VALUES ('lamp', 3), ('cup', 7);";

#[expect(clippy::needless_pass_by_value, reason = "what `json!` makes at the call")]
fn of(options: Value) -> ToolsEnvironment {
    environment(json!({"tools": ["sqlite"], "max_calls": 1000, "sqlite": options}))
}

async fn sql(tools: &ToolsEnvironment, episode: &mut Session, statement: &str) -> String {
    call(tools, episode, "sqlite", json!({"sql": statement})).await
}

#[tokio::test]
async fn every_episode_has_a_database_of_its_own() {
    let tools = of(json!({}));
    let task = task(json!({"database": TABLE, "answers": ["3"]}));
    let (mut one, mut other) = (session(&tools, &task), session(&tools, &task));
    assert_eq!(
        sql(&tools, &mut one, "SELECT * FROM stock ORDER BY item").await,
        "item | number\ncup | 7\nlamp | 3"
    );
    assert_eq!(
        sql(&tools, &mut one, "UPDATE stock SET number = 9 WHERE item = 'cup'").await,
        "done; 1 rows changed"
    );
    assert_eq!(
        sql(&tools, &mut one, "INSERT INTO stock VALUES ('pen', NULL), ('fan', 1.5)").await,
        "done; 2 rows changed"
    );
    assert_eq!(sql(&tools, &mut one, "SELECT SUM(number) AS n FROM stock").await, "n\n13.5");
    assert_eq!(
        sql(&tools, &mut one, "SELECT number FROM stock WHERE item = 'pen'").await,
        "number\nNULL"
    );
    assert_eq!(sql(&tools, &mut one, "SELECT 1 WHERE 0").await, "1\n(no rows)");
    assert_eq!(sql(&tools, &mut other, "SELECT SUM(number) AS n FROM stock").await, "n\n10");
    for statement in [
        "CREATE TABLE t (x)",
        "CREATE INDEX i ON t (x)",
        "ALTER TABLE t ADD COLUMN y",
        "ALTER TABLE t RENAME COLUMN y TO z",
        "ALTER TABLE t RENAME TO renamed",
        "ALTER TABLE renamed RENAME TO t",
        "INSERT INTO t SELECT number, item FROM stock",
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 5) INSERT INTO t SELECT n, n FROM c",
        "DELETE FROM t WHERE x = 1",
        "DROP TABLE t",
        "PRAGMA table_info(stock)",
    ] {
        let text = sql(&tools, &mut one, statement).await;
        assert!(!text.starts_with("error: "), "{statement}: {text}");
    }
}

#[tokio::test]
async fn nothing_beside_the_database_can_be_reached() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.db").display().to_string();
    let tools = of(json!({}));
    let mut episode = session(&tools, &task(json!({"database": TABLE, "answers": ["3"]})));
    for statement in [
        &format!("ATTACH '{file}' AS x"),
        &format!("VACUUM INTO '{file}'"),
        "ATTACH ':memory:' AS x",
        "DETACH main",
        "SELECT load_extension('x')",
        "PRAGMA writable_schema = ON",
        "PRAGMA journal_mode = WAL",
        "PRAGMA max_page_count = 1000000",
        "PRAGMA hard_heap_limit = 0",
        "PRAGMA temp_store_directory = '/tmp'",
        "PRAGMA database_list",
        "CREATE TEMP TABLE t (x)",
        "CREATE TRIGGER t AFTER INSERT ON stock BEGIN DELETE FROM stock; END",
        "CREATE VIRTUAL TABLE t USING fts5(x)",
        "CREATE VIRTUAL TABLE t USING dbstat",
        "BEGIN",
        "SAVEPOINT a",
        "UPDATE sqlite_schema SET sql = ''",
        "UPDATE sqlite_temp_schema SET sql = ''",
        "UPDATE sqlite_temp_master SET sql = ''",
        "SELECT 1; SELECT 2",
        "SELECT readfile('/etc/passwd')",
        "SELECT writefile('/tmp/x', 'x')",
        "SELECT fts3_tokenizer('simple')",
        ".shell ls",
        "",
        ";",
    ] {
        let text = sql(&tools, &mut episode, statement).await;
        assert!(text.starts_with("error: "), "{statement}: {text}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "a file was made");
    assert_eq!(sql(&tools, &mut episode, "SELECT COUNT(*) AS n FROM stock").await, "n\n2");
}

#[tokio::test]
async fn statements_are_bounded_in_time_rows_memory_and_size() {
    let tools = of(json!({"seconds": 0.2, "max_rows": 2, "max_kib": 64}));
    let mut episode = session(&tools, &task(json!({"database": TABLE, "answers": ["3"]})));
    let endless = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c)";
    for statement in [
        format!("{endless} SELECT COUNT(*) FROM c"),
        format!("{endless} SELECT n FROM c ORDER BY hex(randomblob(1000))"),
        format!("{endless} INSERT INTO stock SELECT 'x', n FROM c"),
        format!("{endless} SELECT group_concat(n) FROM c"),
        "SELECT hex(zeroblob(1000000000))".to_owned(),
        "SELECT replace(hex(zeroblob(40000)), '0', hex(zeroblob(40000)))".to_owned(),
        format!("SELECT 1{}", " + 1".repeat(2000)),
    ] {
        let text = sql(&tools, &mut episode, &statement).await;
        assert!(text.starts_with("error: "), "{statement}: {text}");
    }
    assert_eq!(
        sql(&tools, &mut episode, "SELECT COUNT(*) AS n FROM stock").await,
        "n\n2",
        "all or nothing"
    );
    let rows = sql(&tools, &mut episode, &format!("{endless} SELECT n FROM c")).await;
    assert_eq!(rows, "n\n1\n2\n(more rows)");
    assert!(session_bytes(&episode) < 200 << 10, "{}", session_bytes(&episode));
}

fn session_bytes(session: &Session) -> usize {
    session.state.to_string().len()
}

#[tokio::test]
async fn a_file_is_read_only_or_copied() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch(TABLE).unwrap();
    let before = fs::read(&path).unwrap();
    let task = task(json!({"answers": ["3"]}));
    for writable in [false, true] {
        let tools = of(json!({"database": path, "writable": writable}));
        let mut episode = session(&tools, &task);
        let text = sql(&tools, &mut episode, "DELETE FROM stock WHERE item = 'cup'").await;
        assert_eq!(text.starts_with("error: "), !writable, "{text}");
        let left = if writable { "n\n1" } else { "n\n2" };
        assert_eq!(sql(&tools, &mut episode, "SELECT COUNT(*) AS n FROM stock").await, left);
    }
    assert_eq!(fs::read(&path).unwrap(), before);
    let bad = dir.path().join("no.db");
    fs::write(&bad, "this is no database, however long it may be".repeat(100)).unwrap();
    for (database, wanted) in [(bad, "is no database"), (dir.path().join("none"), "cannot be read")]
    {
        let tools: ToolsEnvironment =
            serde_json::from_value(json!({"tools": ["sqlite"], "sqlite": {"database": database}}))
                .unwrap();
        let error = tools.validate(Path::new(""), &TaskList::default()).unwrap_err().to_string();
        assert!(error.starts_with("`sqlite.database`: ") && error.contains(wanted), "{error}");
    }
}
