//! Files that an episode can reach, and those that it cannot.

use super::*;

/// Creates a directory for the overlay, next to a secret that must stay unreachable.
fn below() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let shown = dir.path().join("shown");
    fs::create_dir_all(shown.join("deep")).unwrap();
    fs::write(dir.path().join("secret.txt"), "secret").unwrap();
    fs::write(shown.join("a.txt"), "first").unwrap();
    fs::write(shown.join("deep/b.txt"), "second").unwrap();
    fs::write(shown.join("binary"), [0xff, 0xfe]).unwrap();
    fs::write(shown.join("huge"), vec![b'x'; 2 << 20]).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        symlink("../secret.txt", shown.join("out")).unwrap();
        symlink(dir.path().join("secret.txt"), shown.join("absolute")).unwrap();
        symlink("..", shown.join("up")).unwrap();
        symlink("/", shown.join("root")).unwrap();
        symlink("/dev/zero", shown.join("endless")).unwrap();
        symlink("loop", shown.join("loop")).unwrap();
        symlink("a.txt", shown.join("inside")).unwrap();
    }
    dir
}

#[tokio::test]
async fn what_is_written_lies_over_what_was_there_and_never_on_the_disk() {
    let dir = below();
    let shown = dir.path().join("shown");
    let tools = environment(json!({"tools": ["files"], "files": {"directory": shown}}));
    let task = task(json!({"answers": ["42"]}));
    let mut one = session(&tools, &task);
    let read = async |episode: &mut Session, path: &str| {
        call(&tools, episode, "read_file", json!({"path": path})).await
    };
    let write = |path: &str, text: &str| json!({"path": path, "text": text});
    assert_eq!(read(&mut one, "a.txt").await, "first");
    assert_eq!(read(&mut one, "./deep/b.txt").await, "second");
    call(&tools, &mut one, "write_file", write("a.txt", "changed")).await;
    call(&tools, &mut one, "write_file", write("new/c.txt", "third")).await;
    call(&tools, &mut one, "delete_file", json!({"path": "deep/b.txt"})).await;
    assert_eq!(read(&mut one, "a.txt").await, "changed");
    assert_eq!(read(&mut one, "deep/b.txt").await, "error: there is no file `deep/b.txt`");
    assert_eq!(
        call(&tools, &mut one, "list_files", json!({})).await,
        "a.txt\nbinary\nhuge\nnew/c.txt"
    );

    let mut other = session(&tools, &task);
    assert_eq!(read(&mut other, "a.txt").await, "first");
    assert_eq!(read(&mut other, "deep/b.txt").await, "second");
    assert_eq!(fs::read_to_string(shown.join("a.txt")).unwrap(), "first");
    assert!(shown.join("deep/b.txt").exists() && !shown.join("new").exists());
}

#[tokio::test]
async fn no_path_leads_out() {
    let dir = below();
    let secret = dir.path().join("secret.txt");
    let tools = environment(json!({
        "tools": ["files"], "max_calls": 100, "files": {"directory": dir.path().join("shown")},
    }));
    let mut episode = session(&tools, &task(json!({"answers": ["42"]})));
    for path in [
        "../secret.txt",
        "deep/../../secret.txt",
        "out",
        "absolute",
        "up/secret.txt",
        "root/etc/passwd",
        "/etc/passwd",
        "//etc/passwd",
        "./../secret.txt",
        "deep/../a.txt",
        "endless",
        "loop",
        "loop/x",
        "",
        ".",
        "..",
        "/",
        "a.txt/",
        "a.txt/b",
        "..\\secret.txt",
        "C:\\secret.txt",
        "a\0b",
        "~/secret.txt",
        "%2e%2e/secret.txt",
        "/proc/self/environ",
        secret.to_str().unwrap(),
        &"x".repeat(5000),
        &"../".repeat(60),
    ] {
        for (name, arguments) in
            [("read_file", json!({"path": path})), ("delete_file", json!({"path": path}))]
        {
            let text = call(&tools, &mut episode, name, arguments).await;
            assert!(
                text.starts_with("error: ") && !text.contains("root:"),
                "{name} {path}: {text}"
            );
        }
    }
    // A link that stays inside may be read.
    #[cfg(unix)]
    assert_eq!(call(&tools, &mut episode, "read_file", json!({"path": "inside"})).await, "first");
    for path in ["../new.txt", "/tmp/new.txt", "up/../../new.txt", "deep", "deep/../x"] {
        let text =
            call(&tools, &mut episode, "write_file", json!({"path": path, "text": "x"})).await;
        assert!(text.starts_with("error: "), "{path}: {text}");
    }
    // Writing through a link only changes the overlay in memory.
    call(&tools, &mut episode, "write_file", json!({"path": "out", "text": "x"})).await;
    assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing new beside them");
}

#[tokio::test]
async fn sizes_are_bounded() {
    let dir = below();
    let tools = environment(json!({
        "tools": ["files"], "max_calls": 100,
        "files": {"directory": dir.path().join("shown"), "max_bytes": 100, "max_files": 3},
    }));
    let mut episode = session(&tools, &task(json!({"answers": ["42"]})));
    let mut write = async |path: &str, size: usize| {
        let arguments = json!({"path": path, "text": "x".repeat(size)});
        call(&tools, &mut episode, "write_file", arguments).await
    };
    assert_eq!(write("a", 1000).await, "error: files may have 100 bytes in all");
    assert_eq!(write("a", 80).await, "wrote 80 characters to `a`");
    assert_eq!(write("b", 80).await, "error: files may have 100 bytes in all");
    assert_eq!(write("a", 10).await, "wrote 10 characters to `a`");
    assert_eq!(write("b", 1).await, "wrote 1 characters to `b`");
    assert_eq!(write("b/c", 1).await, "error: `b` is a file, not a directory");
    assert_eq!(write("c", 1).await, "wrote 1 characters to `c`");
    assert_eq!(write("d", 1).await, "error: no more than 3 files may be changed");
    let read = |path: &str| json!({"path": path});
    let text = call(&tools, &mut episode, "read_file", read("huge")).await;
    assert_eq!(text, "error: `huge` is larger than 1048576 bytes");
    assert_eq!(
        call(&tools, &mut episode, "read_file", read("binary")).await,
        "error: `binary` is no text"
    );
}
