//! Runs whose episodes are played with earlier weights.

use super::*;

fn stale(fuse: u32, staleness: u64) -> Stirring {
    Stirring { staleness, ..Stirring::new(fuse) }
}

/// Returns the rollouts of a run.
fn rollouts(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let files = outcome(dir).1.into_iter();
    files.filter(|(file, _)| file.starts_with("step-") && file.ends_with(".zst")).collect()
}

#[tokio::test]
async fn a_run_with_episodes_in_flight_that_is_killed_at_any_moment_ends_as_if_it_had_not_been() {
    let home = home();
    let mut played = Vec::new();
    for staleness in [1, 3] {
        let whole = home.path().join(format!("whole-{staleness}"));
        train(RunLocation::New(whole.clone()), 7, stale(u32::MAX, staleness)).await.unwrap();
        let expected = outcome(&whole);
        for fuse in 0.. {
            let dir = home.path().join(format!("killed-{staleness}-{fuse}"));
            let first = train(RunLocation::New(dir.clone()), 7, stale(fuse, staleness)).await;
            if first.is_ok() {
                assert!(fuse > 20, "the run has {fuse} moments");
                break;
            }
            let again = stale(fuse / 2 + 2, staleness);
            let second = train(RunLocation::Resume(dir.clone()), 7, again).await;
            if second.is_err() {
                let last = stale(u32::MAX, staleness);
                train(RunLocation::Resume(dir.clone()), 7, last).await.unwrap();
            }
            assert_eq!(outcome(&dir), expected, "killed at moment {fuse}");
        }
        played.push(rollouts(&whole));
    }
    assert_ne!(played[0], played[1], "other weights play");
}

#[tokio::test]
async fn a_checkpoint_is_visible_when_the_episodes_that_were_in_flight_are_in_it() {
    let home = home();
    for (staleness, visible) in [(0, true), (1, true), (2, false), (3, false)] {
        let dir = home.path().join(format!("{staleness}"));
        let mut work = stale(u32::MAX, staleness);
        let fuse = Rc::clone(&work.fuse);
        // The process ends in step 5, before its update.
        work.meddling = Some((4, Box::new(move || fuse.set(3))));
        let (origin, mut settings) = settings(9);
        settings.eval.every = 0;
        let silent: Arc<dyn Progress> = Arc::new(Silent);
        let place = RunLocation::New(dir.clone());
        train_as(place, &origin, settings, work, silent).await.unwrap_err();
        let steps = Checkpoints::of(&dir).steps().unwrap();
        assert_eq!(steps.contains(&3), visible, "staleness {staleness}: {steps:?}");
    }
}

#[tokio::test]
async fn an_interrupted_run_waits_for_the_episodes_in_flight_and_can_go_on() {
    let home = home();
    let whole = home.path().join("whole");
    train(RunLocation::New(whole.clone()), 7, stale(u32::MAX, 2)).await.unwrap();
    let dir = home.path().join("a");
    let mut work = stale(u32::MAX, 2);
    work.interrupt.0 = 5;
    train(RunLocation::New(dir.clone()), 7, work).await.unwrap();
    let checkpoint = Checkpoints::of(&dir).open(Which::Last).unwrap();
    assert_eq!(checkpoint.state.step, 5);
    let pending: BTreeMap<u64, u64> = checkpoint.read("pending.json").unwrap().unwrap();
    assert_eq!(pending.into_keys().collect::<Vec<_>>(), [6, 7]);
    train(RunLocation::Resume(dir.clone()), 7, stale(u32::MAX, 2)).await.unwrap();
    assert_eq!(outcome(&dir), outcome(&whole));
}

/// Returns a run of nine steps whose episodes in flight wait for the weights of the two steps after.
fn awaiting(interrupted: u64) -> Stirring {
    let mut work = Stirring { awaited: 2, ..stale(u32::MAX, 3) };
    work.interrupt.0 = interrupted;
    work
}

#[tokio::test]
async fn an_interrupted_run_does_the_steps_that_its_episodes_in_flight_wait_for_and_repeats_them() {
    let home = home();
    let whole = home.path().join("whole");
    train(RunLocation::New(whole.clone()), 9, awaiting(u64::MAX)).await.unwrap();
    // The steps, and the step of the newest checkpoint. The last steps of a run have nothing in flight behind them.
    for (interrupted, steps, newest) in [(3, 5, 3), (5, 7, 5), (7, 9, 9), (8, 9, 9), (9, 9, 9)] {
        let dir = home.path().join(format!("{interrupted}"));
        let work = awaiting(interrupted);
        let report = train(RunLocation::New(dir.clone()), 9, work).await.unwrap();
        assert_eq!((report.interrupted, report.summary.steps), (true, steps), "{interrupted}");
        let checkpoint = Checkpoints::of(&dir).open(Which::Last).unwrap();
        assert_eq!(checkpoint.state.step, newest, "{interrupted}");
        train(RunLocation::Resume(dir.clone()), 9, awaiting(u64::MAX)).await.unwrap();
        assert_eq!(outcome(&dir), outcome(&whole), "interrupted in step {interrupted}");
    }
}

#[tokio::test]
async fn a_run_that_is_flat_does_the_steps_that_its_episodes_in_flight_wait_for() {
    let home = home();
    let dir = home.path().join("a");
    let work = Stirring { flat_from: 2, ..awaiting(u64::MAX) };
    let error = train(RunLocation::New(dir.clone()), 9, work).await.unwrap_err();
    assert!(matches!(error, TrainError::Flat { steps: 3, .. }), "{error}");
    let checkpoint = Checkpoints::of(&dir).open(Which::Last).unwrap();
    assert_eq!(checkpoint.state.step, 5);
}

#[tokio::test]
async fn checkpoints_at_other_steps_change_nothing_of_a_run_with_episodes_in_flight() {
    let home = home();
    let mut outcomes = Vec::new();
    for every in [1, 2, 5] {
        let (origin, mut settings) = settings(7);
        settings.checkpoint.every = every;
        let dir = home.path().join(format!("{every}"));
        let silent: Arc<dyn Progress> = Arc::new(Silent);
        let work = stale(u32::MAX, 2);
        train_as(RunLocation::New(dir.clone()), &origin, settings, work, silent).await.unwrap();
        outcomes.push(outcome(&dir));
    }
    assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]));
}
