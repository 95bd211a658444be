//! Full disks.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use maverl_tests::lab::{Ended, Run};

use crate::lab;

const SET: [&str; 4] =
    ["steps=2", "checkpoint.every=1", "checkpoint.keep=9", "eval.before_and_after=false"];

/// Panics unless every earlier checkpoint file is unchanged.
fn kept(run: &Run, before: &[(String, Vec<u8>)]) {
    for (name, bytes) in before.iter().filter(|(name, _)| name.starts_with("checkpoints")) {
        assert!(run.bytes(name) == *bytes, "{name} has changed");
    }
}

/// Returns the error, which names a file, in one line.
fn blamed(ended: &Ended) -> String {
    let at = ended.stderr.find("error: ").unwrap();
    let error = ended.stderr[at..].split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(error.contains("run/"), "{ended}");
    error
}

#[test]
fn a_file_that_may_not_grow_is_named_and_the_run_goes_on_when_it_may() {
    let lab = lab();
    let run = lab.train("run", &SET);
    let before = run.lasting();
    let resume = ["train", "--resume", "run", "--steps", "4"];
    // Limits in blocks of 512 or 1024 bytes, at which metrics, events and weights fail one after the other. The signal
    // that would
    // end the process is ignored.
    for blocks in ["0", "6", "12", "24", "48", "96"] {
        let command = lab.command(&resume);
        let limited = Command::new("sh")
            .args(["-c", &format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"")])
            .arg(command.get_program())
            .args(resume)
            .current_dir(lab.path(""))
            .output();
        let ended = Ended::of(&limited.unwrap()).failed().says(&["File too large"]);
        println!("{blocks} blocks: {}", blamed(&ended));
        kept(&run, &before);
    }
    lab.run(&resume).succeeded();
    run.equals(&lab.train("whole", &[&SET[1..], &["steps=4"]].concat()));
    assert!(run.is_tidy());
}

#[test]
fn a_checkpoint_that_fails_beside_the_run_ends_it_with_its_name_and_loses_no_older_one() {
    let lab = lab();
    let run = lab.train("run", &SET);
    let before = run.lasting();
    let resume = ["train", "--resume", "run", "--steps", "4"];
    // A file has the name of the next checkpoint: its own files are written, and cannot become visible.
    fs::write(run.0.join("checkpoints/step-000003"), "taken").unwrap();
    let ended = lab.run(&resume).failed().says(&["Not a directory"]);
    let error = blamed(&ended);
    assert!(error.contains("cannot write `run/checkpoints/step-000003`"), "{error}");
    kept(&run, &before);
    assert!(run.is_tidy() && !run.0.join("checkpoints/step-000004").exists());
    fs::remove_file(run.0.join("checkpoints/step-000003")).unwrap();
    lab.run(&resume).succeeded();
    run.equals(&lab.train("whole", &[&SET[1..], &["steps=4"]].concat()));
}

#[test]
fn on_a_full_disk_a_run_stops_with_the_files_name_and_goes_on_when_there_is_space() {
    let lab = lab();
    let disk = lab.path("disk");
    fs::create_dir(&disk).unwrap();
    let Some(mount) = Mount::small(&disk) else {
        println!("skipped: mounting a tmpfs needs root and the right to mount");
        return;
    };
    let run = lab.train("disk/run", &SET);
    let before = run.lasting();
    let resume = ["train", "--resume", "disk/run", "--steps", "4"];
    for free in [0, 16 << 10, 48 << 10, 160 << 10] {
        let path = disk.join("filler");
        let mut filler = fs::File::create(&path).unwrap();
        while filler.write_all(&[0; 4096]).is_ok() {}
        filler.set_len(filler.metadata().unwrap().len() - free).unwrap();
        let ended = lab.run(&resume).failed().says(&["No space left on device"]);
        println!("{free} bytes free: {}", blamed(&ended));
        kept(&run, &before);
        // Removal alone frees nothing while a process of another test holds the file open.
        filler.set_len(0).unwrap();
        fs::remove_file(path).unwrap();
    }
    lab.run(&resume).succeeded();
    run.equals(&lab.train("whole", &[&SET[1..], &["steps=4"]].concat()));
    drop(mount);
}

/// A small disk in memory, unmounted when dropped.
struct Mount<'p>(&'p Path);

impl<'p> Mount<'p> {
    fn small(at: &'p Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(at).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(at))
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        // Best effort: the test's directory is removed next.
        let _ = Command::new("umount").arg(self.0).status();
    }
}
