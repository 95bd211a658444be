//! Resources that hostile programs must not reach: a file, a directory and a process outside, and an honest program
//! beside them.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{FlockOperation, OFlags};

use super::*;

/// A file that programs may read like the interpreter's files, its directory, and a process of the same user.
pub(super) struct Outside {
    pub(super) directory: PathBuf,
    file: PathBuf,
    victim: Child,
}

/// State of all outside resources as text.
#[derive(PartialEq, Eq, Debug)]
struct State(Vec<String>);

impl Outside {
    pub(super) fn new() -> Self {
        let mut hash = std::hash::DefaultHasher::new();
        std::hash::Hash::hash(&std::thread::current().id(), &mut hash);
        let unique = std::hash::Hasher::finish(&hash) as u16;
        let name = format!("maverl-outside-{}-{unique}", std::process::id());
        let directory = Path::new("/var/tmp").join(name);
        fs::create_dir(&directory).unwrap();
        let file = directory.join("file");
        fs::write(&file, "x".repeat(8192)).unwrap();
        let victim = Command::new("sleep")
            .arg("1000")
            .process_group(0)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self { directory, file, victim }
    }

    /// Inserts the outside resources into a program.
    pub(super) fn told(&self, source: &str) -> String {
        let (victim, file, directory) = (self.victim.id(), &self.file, &self.directory);
        format!("VICTIM, OUTSIDE, OUTSIDE_DIR = {victim}, {file:?}, {directory:?}\n{source}")
    }

    fn state(&mut self) -> State {
        let meta = |path: &Path| match fs::metadata(path) {
            Ok(meta) => format!(
                "{}: {:o} {} {} {} links {} times {} {}.{}",
                path.display(),
                meta.mode(),
                meta.uid(),
                meta.gid(),
                meta.len(),
                meta.nlink(),
                meta.mtime_nsec(),
                meta.ctime(),
                meta.ctime_nsec()
            ),
            Err(error) => format!("{}: {error}", path.display()),
        };
        let listed = fs::read_dir(&self.directory).unwrap();
        let mut listed: Vec<String> =
            listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        listed.sort();
        let process = format!("/proc/{}", self.victim.id());
        let of = |name: &str| fs::read_to_string(format!("{process}/{name}")).unwrap_or_default();
        let stat = of("stat");
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        // Priority and nice value.
        let priority = after.split_whitespace().skip(15).take(2).collect::<Vec<_>>().join(" ");
        let allowed = of("status");
        // `SigQ` counts the signals of every process of the user, those that have nothing to do with this one too.
        let allowed = allowed.lines().filter(|line| {
            line.contains("allowed") || line.contains("Sig") && !line.starts_with("SigQ")
        });
        State(vec![
            meta(&self.file),
            meta(&self.directory),
            listed.join(" "),
            (fs::read(&self.file).unwrap() == vec![b'x'; 8192]).to_string(),
            format!("{:?}", self.victim.try_wait().unwrap()),
            priority,
            of("limits"),
            allowed.collect::<Vec<_>>().join("\n"),
        ])
    }

    /// Runs an action while an honest program runs repeatedly, the file is opened and locked, and threads of programs
    /// are counted. Returns the violations.
    pub(super) fn beside(
        &mut self,
        sandbox: &Sandbox,
        work: impl FnOnce() -> Vec<String>,
    ) -> Vec<String> {
        let before = self.state();
        let over = AtomicBool::new(false);
        let threads = AtomicU64::new(0);
        let mut problems = std::thread::scope(|scope| {
            let opened = scope.spawn(|| self.open_again_and_again(&over));
            let neighbor = scope.spawn(|| neighbor(sandbox, &over));
            let counted = scope.spawn(|| count_threads(&over, &threads));
            let mut problems = work();
            over.store(true, Ordering::Relaxed);
            problems.extend(opened.join().unwrap());
            problems.extend(neighbor.join().unwrap());
            counted.join().unwrap();
            problems
        });
        let most = threads.into_inner();
        if most > LIMITS.threads {
            problems.push(format!("a program had {most} threads of {}", LIMITS.threads));
        }
        let after = self.state();
        for (before, after) in
            before.0.iter().zip(&after.0).filter(|(before, after)| before != after)
        {
            problems.push(format!("outside, {before:?} became {after:?}"));
        }
        problems
    }

    fn open_again_and_again(&self, over: &AtomicBool) -> Vec<String> {
        let mut problems = Vec::new();
        let (mut leased, mut locked_out) = (0, 0);
        while !over.load(Ordering::Relaxed) {
            // A lease of another process delays an opening, but ends one that does not wait.
            let no_wait = OFlags::NONBLOCK.bits() as i32;
            let reading = OpenOptions::new().read(true).custom_flags(no_wait).open(&self.file);
            let writing = OpenOptions::new().write(true).custom_flags(no_wait).open(&self.file);
            leased += u32::from(reading.is_err() || writing.is_err());
            locked_out += u32::from(writing.is_ok_and(|file| !lock(&file)));
            std::thread::sleep(Duration::from_millis(3));
        }
        if leased > 0 {
            problems.push(format!("a file outside could not be opened at once {leased} times"));
        }
        if locked_out > 0 {
            problems.push(format!("a file outside could not be locked {locked_out} times"));
        }
        problems
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Takes a write lock on a whole file, if it is free.
fn lock(file: &File) -> bool {
    rustix::fs::fcntl_lock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Judges a correct program repeatedly. It must pass each time.
fn neighbor(sandbox: &Sandbox, over: &AtomicBool) -> Vec<String> {
    let source =
        "import this, colorsys\ndef solve(x):\n    return x * x + x - 1 if x != 100 else 10099\n";
    let source =
        source.replace("x * x + x - 1", "dict([(2, 5), (3, 11), (5, 29), (8, 71), (12, 155)])[x]");
    let tests = [ExamTest::Check { check: TEST.to_owned() }];
    let exam =
        Exam { source: &source, entry: "solve", setup: "", tests: &tests, ..Exam::default() };
    let (mut slowest, mut runs) = (Duration::ZERO, 0);
    while !over.load(Ordering::Relaxed) {
        let begin = Instant::now();
        match sandbox.examine(&exam, &ProgramLimits::default()) {
            Ok(report) if report.passed() => {}
            other => return vec![format!("an honest program was judged {other:?}")],
        }
        slowest = slowest.max(begin.elapsed());
        runs += 1;
        std::thread::sleep(Duration::from_millis(40));
    }
    println!("an honest program passed {runs} times beside them, in {slowest:.0?} at most");
    Vec::new()
}

/// Records the maximum number of threads of a child of this process.
fn count_threads(over: &AtomicBool, most: &AtomicU64) {
    let me = std::process::id().to_string();
    while !over.load(Ordering::Relaxed) {
        for stat in children_stats(&me) {
            let fields = stat.rsplit_once(')').map_or("", |(_, after)| after);
            let threads = fields.split_whitespace().nth(17).and_then(|field| field.parse().ok());
            most.fetch_max(threads.unwrap_or(0), Ordering::Relaxed);
        }
        std::thread::sleep(Duration::from_millis(4));
    }
}
