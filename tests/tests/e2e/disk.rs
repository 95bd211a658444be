//! Disks that fill up.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use maverl_tests::lab::Ended;

use crate::lab;

const SET: [&str; 3] = ["steps=2", "checkpoint.every=1", "eval.before_and_after=false"];

#[test]
fn a_file_that_may_not_grow_is_named_and_the_run_goes_on_when_it_may() {
    let lab = lab();
    let run = lab.train("run", &SET);
    let resume = ["train", "--resume", "run", "--steps", "4"];
    let before = run.lasting();
    // No file above 32 blocks of 512 or 1024 bytes; the signal that would end the process is ignored.
    let command = lab.command(&resume);
    let limited = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 32; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(&resume)
        .current_dir(lab.path(""))
        .output();
    let ended = Ended::of(&limited.unwrap()).failed();
    ended.says(&["File too large", "run/"]);
    for (name, bytes) in before.iter().filter(|(name, _)| name.starts_with("checkpoints")) {
        assert!(run.bytes(name) == *bytes, "{name} has changed");
    }
    lab.run(&resume).succeeded();
    run.equals(&lab.train("whole", &[&SET[1..], &["steps=4"]].concat()));
    assert!(run.is_tidy());
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
    let filler = disk.join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    drop(file);
    let resume = ["train", "--resume", "disk/run", "--steps", "4"];
    lab.run(&resume).failed().says(&["No space left on device", "disk/run/"]);
    for (name, bytes) in before.iter().filter(|(name, _)| name.starts_with("checkpoints")) {
        assert!(run.bytes(name) == *bytes, "{name} has changed");
    }
    fs::remove_file(filler).unwrap();
    lab.run(&resume).succeeded();
    run.equals(&lab.train("whole", &[&SET[1..], &["steps=4"]].concat()));
    drop(mount);
}

/// A small disk in memory, until it is dropped.
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
        // Best effort: the laboratory's directory goes next.
        let _ = Command::new("umount").arg(self.0).status();
    }
}
