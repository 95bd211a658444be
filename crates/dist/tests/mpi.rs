//! Ranks over MPI. The tests start this program with `mpirun`, of which each process is a rank in the test `rank`.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use maverl_dist::{DistOptions, Launch, RankError, Ranks, Transport, end_failed_job, leave_job};

/// Variable with the part that a rank plays, and with the directory that it writes to.
const PART: &str = "MAVERL_TEST_PART";
const OUT: &str = "MAVERL_TEST_OUT";
const TIMEOUT: Duration = Duration::from_secs(4);

/// Plays a part on ranks, and returns the result of `mpirun` with the texts that the ranks have written.
fn play(part: &str, ranks: usize) -> (Output, Vec<String>) {
    let out = tempfile::tempdir().unwrap();
    let mut command = Command::new("mpirun");
    command.arg("-n").arg(ranks.to_string()).arg(std::env::current_exe().unwrap());
    let done = of_rank(&mut command, part, out.path()).output().unwrap();
    let text = |rank: usize| {
        std::fs::read_to_string(out.path().join(rank.to_string())).unwrap_or_default()
    };
    (done, (0..ranks).map(text).collect())
}

/// Plays a part on ranks, which succeed.
fn played(part: &str, ranks: usize) {
    let (done, texts) = play(part, ranks);
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{part} on {ranks} ranks: {texts:?}\n{error}");
    assert_eq!(texts, vec!["done"; ranks], "{error}");
}

/// Completes the command of a rank: its arguments, and variables with which Open MPI starts more ranks than there are cores,
/// also for root.
fn of_rank<'c>(command: &'c mut Command, part: &str, out: &Path) -> &'c mut Command {
    command.args(["rank", "--exact", "--ignored", "--nocapture"]).env(PART, part).env(OUT, out);
    for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
        command.env(name, "1");
    }
    command.env("OMPI_MCA_rmaps_base_oversubscribe", "1")
}

fn launch() -> Launch {
    Launch::detect(|name| std::env::var(name).ok()).unwrap().unwrap()
}

fn options() -> DistOptions {
    let mut options = DistOptions::default();
    options.transport = Transport::Mpi;
    options.timeout = TIMEOUT;
    options
}

fn join() -> Result<Ranks, RankError> {
    Ranks::join(&launch(), &options())
}

/// Joins the others for a run that is followed by another one.
fn join_for_now() -> Result<Ranks, RankError> {
    let mut options = options();
    options.again = true;
    Ranks::join(&launch(), &options)
}

/// Uses one connection for three runs, and takes leave of the last.
fn runs() -> String {
    for run in 0..3_u8 {
        let ranks = if run < 2 { join_for_now() } else { join() }.unwrap();
        let (channel, own) = (ranks.channel(1), [run, ranks.rank() as u8]);
        let all = channel.all_gather(&own).unwrap();
        assert!(all.iter().enumerate().all(|(rank, found)| found[..] == [run, rank as u8]));
        ranks.leave();
    }
    let error = join().unwrap_err().to_string();
    assert!(error.contains("initialized in this process before"), "{error}");
    "done".to_owned()
}

/// Takes leave of a run that was to be followed by another one, and ends.
fn early_end() -> String {
    join_for_now().unwrap().leave();
    leave_job();
    "done".to_owned()
}

/// Ends a run by a failure of rank 1, after which no other run begins.
fn failed_run() -> String {
    let ranks = join_for_now().unwrap();
    ended(&ranks);
    join_for_now().unwrap_err().to_string()
}

/// Returns numbers of a rank whose sum depends on the order of addition.
fn numbers(rank: usize, count: usize) -> Vec<f32> {
    let number = |i: usize| (((i * 7919 + rank * 104_729) % 1009) as f32 - 504.0) * 1.1e-3;
    (0..count).map(|i| number(i) * 10_f32.powi((rank as i32 * 3 + i as i32) % 7)).collect()
}

fn sums(ranks: &Ranks) {
    let channel = ranks.channel(1);
    for count in [1, 2, 1000, 4097, (5 << 20) + 3] {
        let mut expected = numbers(0, count);
        for rank in 1..ranks.size() {
            expected.iter_mut().zip(numbers(rank, count)).for_each(|(sum, value)| *sum += value);
        }
        let mut whole = numbers(ranks.rank(), count);
        channel.all_reduce(&mut whole).unwrap();
        assert!(whole == expected, "{count}");
        let at = |rank: usize| count * rank / ranks.size();
        let ranges: Vec<_> = (0..ranks.size()).map(|rank| at(rank)..at(rank + 1)).collect();
        let mut parts = numbers(ranks.rank(), count);
        channel.reduce_scatter(&mut parts, &ranges).unwrap();
        channel.all_gather_ranges(&mut parts, &ranges).unwrap();
        assert!(parts == expected, "{count}");
    }
}

fn messages(ranks: &Ranks) {
    let (one, two) = (ranks.channel(1), ranks.channel(2));
    for length in [0, 1, 9, (1 << 22) - 1, 1 << 22, (9 << 20) + 5, 80 << 20] {
        let message = |rank: usize| -> Vec<u8> {
            (0..length).map(|i| (i * 31 + rank * 7 + length) as u8).collect()
        };
        let all: Vec<Vec<u8>> = (0..ranks.size()).map(message).collect();
        let own = message(ranks.rank());
        // The channels are used at the same time, in different orders.
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(two.all_gather(&own).unwrap() == all, "{length}"));
            assert!(one.all_gather(&own).unwrap() == all, "{length}");
        });
        assert!(one.broadcast(&own).unwrap() == all[0]);
    }
    let numbers: Vec<[f64; 1]> = (0..ranks.size()).map(|rank| [rank as f64]).collect();
    assert_eq!(one.all_gather_f64(&[ranks.rank() as f64]).unwrap(), numbers);
}

/// Returns the error of an operation that waits for a rank that is lost. The rank itself does not return.
fn loss(ranks: &Ranks, how: &str) -> String {
    ranks.channel(0).barrier().unwrap();
    if ranks.rank() == 1 {
        // What this rank has sent is on its way.
        std::thread::sleep(Duration::from_millis(200));
        Command::new("kill").args([how, &std::process::id().to_string()]).status().unwrap();
        std::thread::sleep(Duration::from_secs(600));
    }
    let error = ranks.channel(0).barrier().unwrap_err();
    assert_eq!(ranks.failure().as_ref(), Some(&error));
    error.to_string()
}

fn ended(ranks: &Ranks) -> String {
    ranks.channel(0).barrier().unwrap();
    if ranks.rank() == 1 {
        ranks.abort("the disk is full");
    }
    ranks.channel(0).barrier().unwrap_err().to_string()
}

/// Plays a part that is one run.
fn one_run(part: &str) -> String {
    let ranks = match (part, join()) {
        (_, Err(error)) => return error.to_string(),
        ("lost", Ok(ranks)) => return loss(&ranks, "-STOP"),
        ("killed", Ok(ranks)) => return loss(&ranks, "-KILL"),
        ("ended", Ok(ranks)) => return ended(&ranks),
        (_, Ok(ranks)) => ranks,
    };
    match part {
        "sums" => sums(&ranks),
        "messages" => messages(&ranks),
        "again" => {
            let error = join().unwrap_err().to_string();
            assert!(error.contains("initialized in this process before"), "{error}");
        }
        // Ranks take leave at different times.
        _ => std::thread::sleep(Duration::from_millis(300 * ranks.rank() as u64)),
    }
    ranks.leave();
    assert_eq!(ranks.failure(), None);
    "done".to_owned()
}

#[test]
#[ignore = "a rank of the other tests"]
fn rank() {
    let Ok(part) = std::env::var(PART) else { return };
    let rank = launch().rank;
    let text = match part.as_str() {
        "runs" => runs(),
        "failed run" => failed_run(),
        "early end" => early_end(),
        part => one_run(part),
    };
    std::fs::write(Path::new(&std::env::var(OUT).unwrap()).join(rank.to_string()), text).unwrap();
    end_failed_job();
}

#[test]
fn sums_and_ranges_over_mpi_have_the_bits_of_sums_in_the_order_of_ranks() {
    [2, 3, 4].into_iter().for_each(|ranks| played("sums", ranks));
}

#[test]
fn messages_of_every_length_arrive_over_mpi_on_their_channels() {
    [2, 3].into_iter().for_each(|ranks| played("messages", ranks));
}

#[test]
fn ranks_that_take_leave_end_mpi_together_and_once() {
    played("leave", 3);
    played("again", 2);
}

#[test]
fn runs_that_follow_each_other_use_one_connection_over_mpi() {
    [2, 3].into_iter().for_each(|ranks| played("runs", ranks));
    played("early end", 2);
}

#[test]
fn a_failed_run_over_mpi_is_followed_by_no_other() {
    let (done, texts) = play("failed run", 2);
    assert!(!done.status.success());
    let refused = |text: &String| {
        text.contains("could not join") && text.contains("a run before this one has failed")
    };
    assert!(texts.iter().any(refused), "{texts:?}");
    assert!(texts.iter().all(|text| text.is_empty() || refused(text)), "{texts:?}");
}

#[test]
fn a_stopped_rank_is_lost_and_mpi_ends_it() {
    let (done, texts) = play("lost", 3);
    assert!(!done.status.success());
    let named = |text: &String| text.starts_with("rank 1 (") && text.contains("no sign of life");
    assert!(texts.iter().any(named), "{texts:?}");
    assert!(texts.iter().all(|text| text.is_empty() || named(text)), "{texts:?}");
}

#[test]
fn a_killed_rank_ends_the_job_with_its_name() {
    let (done, texts) = play("killed", 3);
    assert!(!done.status.success());
    // `mpirun` may end the others before they notice.
    let told = String::from_utf8_lossy(&done.stderr).into_owned() + &texts.concat();
    assert!(told.contains("rank 1 "), "{told}");
}

#[test]
fn the_error_of_a_rank_ends_all_others_with_its_reason_over_mpi() {
    let (done, texts) = play("ended", 3);
    assert!(!done.status.success());
    let named = |text: &String| {
        text.starts_with("rank 1 (") && text.ends_with("ended the run: the disk is full")
    };
    assert!(texts.iter().any(named), "{texts:?}");
    assert!(texts.iter().all(|text| text.is_empty() || named(text)), "{texts:?}");
}

#[test]
fn ranks_that_mpi_has_not_started_are_refused_with_a_remedy() {
    let out = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let by_hand = [("MAVERL_RANK", "1"), ("MAVERL_RANKS", "2")];
    assert!(of_rank(&mut command, "sums", out.path()).envs(by_hand).status().unwrap().success());
    let text = std::fs::read_to_string(out.path().join("1")).unwrap();
    for part in ["rank 1 of 2 could not join", "is 0 of 1 for", "`mpirun`", "`dist.transport"] {
        assert!(text.contains(part), "{text}");
    }
}
