//! Processor time of runs that trackers follow, and of what follows them.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use maverl_tests::lab::{Lab, train_args};
use maverl_tests::trackers::{Manner, TrackerServer};

use crate::lab;
use crate::tracking::{both, command, followers};

/// A run of 50 steps, long enough for a clock of 100 ticks a second.
const FIFTY: [&str; 4] =
    ["eval.before_and_after=false", "steps=50", "task.group_size=16", "track.wait_s=5.0"];
/// Least and largest number of times that each manner is measured. The least cost of a few runs varies by several percent.
const ROUNDS: [usize; 2] = [5, 25];
/// Ticks of a second in `/proc`.
const TICKS: f64 = 100.0;

/// Costs of a run and of its followers.
#[derive(Debug, Default, Clone, Copy)]
struct Cost {
    /// Processor time of the trainer alone, in seconds.
    trainer: f64,
    /// Processor time of its followers together, in seconds.
    followers: f64,
    /// Memory of the largest follower, in MiB.
    memory: f64,
    /// Seconds from start to end.
    wall: f64,
}

/// Returns the state of a process, and the processor time of its threads in seconds.
fn processor_time(id: &str) -> Option<(String, f64)> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields[11].parse::<f64>().ok()? + fields[12].parse::<f64>().ok()?;
    Some((fields[0].to_owned(), ticks / TICKS))
}

/// Returns the most memory that a process has had, without pages of files, in MiB.
fn own_memory(id: &str) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.split_whitespace().next()?.parse::<f64>().ok()? / 1024.0)
}

/// Trains, and measures until the process has ended.
fn measure(lab: &Lab, mut train: Command, out: &str) -> Cost {
    let (mut cost, begun) = (Cost::default(), Instant::now());
    let mut child = train.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let id = child.id().to_string();
    // A process that has ended keeps its times until it is waited for.
    loop {
        let (state, seconds) = processor_time(&id).unwrap();
        cost.trainer = seconds;
        let found = followers(lab, out);
        let times = found.iter().filter_map(|id| processor_time(id)).map(|(_, seconds)| seconds);
        cost.followers = cost.followers.max(times.sum());
        cost.memory = found.iter().filter_map(|id| own_memory(id)).fold(cost.memory, f64::max);
        if state == "Z" {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    cost.wall = begun.elapsed().as_secs_f64();
    assert!(child.wait().unwrap().success());
    cost
}

fn least(costs: &[Cost], what: fn(&Cost) -> f64) -> f64 {
    costs.iter().map(what).fold(f64::INFINITY, f64::min)
}

/// Returns the least processor time of the trainer without a tracker, with two, and with two that hang.
fn least_times(costs: &[Vec<Cost>; 3]) -> [f64; 3] {
    costs.each_ref().map(|costs| least(costs, |cost| cost.trainer))
}

/// Says if trackers cost the trainer less than a hundredth of its processor time.
fn is_cheap([plain, tracked, hanging]: [f64; 3]) -> bool {
    tracked < 1.01 * plain && hanging < 1.01 * plain
}

#[test]
#[ignore = "a measurement"]
fn a_tracker_costs_the_trainer_at_most_a_hundredth_of_its_processor_time() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let lab = lab();
    let servers = [Manner::Fine, Manner::Hangs].map(TrackerServer::start);
    // Without a tracker, with two, with two that hang.
    let mut costs = [const { Vec::new() }; 3];
    for round in 0..ROUNDS[1] {
        // In turn: a run after a pause takes several percent longer than one after another run.
        for n in [0, 1, 2].map(|n| (n + round) % 3) {
            let out = format!("run-{n}-{round}");
            let to = n.checked_sub(1).map(|n| both(&servers[n]));
            let mut args = train_args(&out, &FIFTY);
            for to in to.iter().flatten() {
                args.extend(["--track", to]);
            }
            costs[n].push(measure(&lab, command(&lab, &args), &out));
            followers(&lab, &out).iter().for_each(|id| drop(Command::new("kill").arg(id).status()));
        }
        if round + 1 >= ROUNDS[0] && is_cheap(least_times(&costs)) {
            break;
        }
    }
    let times = least_times(&costs);
    let [plain, tracked, hanging] = times;
    println!(
        "trainer, least of {} runs: {plain:.2} s, with trackers {tracked:.2} s, with trackers that hang {hanging:.2} s",
        costs[0].len()
    );
    let share = 100.0 * (tracked / plain - 1.0);
    let tracked = |what| least(&costs[1], what);
    let (followers, wall) = (tracked(|cost| cost.followers), tracked(|cost| cost.wall));
    let memory = tracked(|cost| cost.memory);
    println!(
        "trackers: {share:+.1} % of the trainer's time; two followers {followers:.2} s of {wall:.1} s, {memory:.1} MiB"
    );
    assert!(is_cheap(times), "{costs:?}");
    assert!(memory < 20.0, "{costs:?}");
}
