//! Programs with a directory of their own, and confined ones.

use std::process::Command;

use super::*;

/// Plays an episode of a shell program in a directory with `secret`, and files that are copied. Returns its report.
async fn played(text: &str, change: impl FnOnce(&mut ProgramOptions)) -> (Episode, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("secret"), "hidden").unwrap();
    std::fs::create_dir(dir.path().join("template")).unwrap();
    std::fs::write(dir.path().join("template/task"), "done\n").unwrap();
    let mut options = options(&["a"]);
    options.command = ["sh", "-c", text].map(str::to_owned).into();
    options.workdir = WorkDirectory::Episode;
    options.files = "template".to_owned();
    change(&mut options);
    let runner = program(options, &dir, |_| 1);
    let request = EpisodeRequest { task: task("p"), index: 0, seed: 3 };
    (runner.play(request).await, dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_with_a_directory_of_its_own_changes_nothing_beside_the_configuration() {
    let text = "echo more >> task; touch \"$HOME/.note\"; echo \"{\\\"answer\\\": \\\"$(head -n 1 task) $PWD $HOME\\\"}\"";
    let (episode, dir) = played(text, |_| ()).await;
    let answer = episode.answer.clone().unwrap();
    let parts: Vec<&str> = answer.split(' ').collect();
    let [said, work, home] = parts[..] else { panic!("{answer}") };
    assert_eq!(said, "done");
    assert!(work.contains("maverl-") && work.ends_with("/work"), "{work}");
    assert_eq!(home.strip_suffix("/home"), work.strip_suffix("/work"));
    let template = dir.path().join("template/task");
    assert_eq!(std::fs::read_to_string(template).unwrap(), "done\n");
    crate::testing::until("the removal", async || !std::path::Path::new(work).exists()).await;
    let (again, _) = played("echo \"{\\\"answer\\\": \\\"$HOME\\\"}\"", |options| {
        options.env.insert("HOME".to_owned(), "/nowhere".to_owned());
    })
    .await;
    assert_eq!(again.answer.as_deref(), Some("/nowhere"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_ended_leaves_no_directory() {
    let (episode, _) = played("pwd > \"$HOME/place\"; pwd >&2; kill -9 $$", |_| ()).await;
    let Outcome::Unscored(fault) = &episode.outcome else { panic!("the program crashes") };
    let work = fault.message.rsplit(' ').next().unwrap().to_owned();
    assert!(work.contains("maverl-"), "{work}");
    crate::testing::until("the removal", async || !std::path::Path::new(&work).exists()).await;
}

/// Returns true if bubblewrap can confine programs here.
fn confines() -> bool {
    let probe = ["--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "true"];
    let works = Command::new("bwrap").args(probe).output().is_ok_and(|it| it.status.success());
    if !works {
        println!("skipped: `bwrap` is not there, or may not make namespaces");
    }
    works
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confined_program_sees_its_own_files_alone_and_reaches_the_gateway() {
    if !confines() {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("lent"), "lent").unwrap();
    let lent = outside.path().join("lent").display().to_string();
    // Of the temporary files, and with them of the configuration of this test, it sees what was lent. Bash has sockets.
    let text = format!(
        "cat {lent}; cat \"$SECRET\" 2>&1 | grep -c hidden; touch /usr/x 2>&1 | grep -c -i read-only; ls -A /tmp | wc -l; ls /proc | grep -c '^[0-9]'; \
         exec 3<>/dev/tcp/127.0.0.1/$(echo $MAVERL_EPISODE_URL | sed 's|.*:\\([0-9]*\\)/.*|\\1|') && echo reached; \
         echo \"{{\\\"answer\\\": \\\"$PWD $HOME $(cat task)\\\"}}\"; exit 0"
    );
    let (episode, _) = played("", |options| {
        options.command = vec!["bash".to_owned(), "-c".to_owned(), text];
        options.confine = Confine::Bwrap;
        options.readable = vec![lent.clone()];
        options.env.insert("SECRET".to_owned(), "/etc/shadow".to_owned());
    })
    .await;
    println!("{}", episode.log);
    assert_eq!(episode.answer.as_deref(), Some("/work /home done"), "{:?}", episode.outcome);
    let lines: Vec<&str> = episode.log.lines().collect();
    assert_eq!(lines[0], "lent0");
    assert_eq!((lines[1], lines[2].trim(), lines[4]), ("1", "1", "reached"));
    assert!(lines[3].parse::<u32>().unwrap() < 10, "{lines:?}");
}
