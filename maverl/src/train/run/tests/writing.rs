//! Checkpoints that are written beside the run.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use super::*;
use crate::config::SavedMoments;

#[test]
fn a_checkpoint_is_written_while_the_run_goes_on_and_the_next_one_waits_for_it() {
    let (release, released) = channel::<()>();
    let order = Arc::new(Mutex::new(Vec::new()));
    let said = || Arc::clone(&order);
    let (first, second) = (said(), said());
    let mut pending = PendingCheckpoint::default();
    let path = Path::new("checkpoints/step-000001");
    let begun = pending.start(path, move || {
        released.recv().unwrap();
        first.lock().unwrap().push("first");
        Ok(())
    });
    begun.unwrap();
    pending.error_so_far().unwrap();
    assert!(order.lock().unwrap().is_empty(), "nobody has waited for it");
    release.send(()).unwrap();
    let begun = pending.start(path, move || {
        second.lock().unwrap().push("second");
        Ok(())
    });
    begun.unwrap();
    pending.wait().unwrap();
    assert_eq!(*order.lock().unwrap(), ["first", "second"]);
}

#[tokio::test]
async fn a_run_that_is_killed_while_a_checkpoint_is_written_resumes_from_the_one_before() {
    let home = home();
    let whole = home.path().join("whole");
    train(RunLocation::New(whole.clone()), 7, Stirring::new(u32::MAX)).await.unwrap();
    for file in ["trainer.json", "manifest.json", "policies/small/model"] {
        let dir = home.path().join(format!("without-{}", file.replace('/', "-")));
        let mut work = Stirring::new(u32::MAX);
        let fuse = Rc::clone(&work.fuse);
        // The process ends in step 5, and its newest checkpoint has no name yet.
        work.meddling = Some((4, Box::new(move || fuse.set(4))));
        train(RunLocation::New(dir.clone()), 7, work).await.unwrap_err();
        let newest = Checkpoints::of(&dir).steps().unwrap().pop().unwrap();
        let unnamed = dir.join(format!("checkpoints/.tmp-step-{newest:06}"));
        fs::rename(dir.join(format!("checkpoints/step-{newest:06}")), &unnamed).unwrap();
        fs::remove_file(unnamed.join(file)).unwrap();
        let before = Checkpoints::of(&dir).open(Which::Last).unwrap().state.step;
        assert!(before < newest, "{before} {newest}");
        train(RunLocation::Resume(dir.clone()), 7, Stirring::new(u32::MAX)).await.unwrap();
        assert_eq!(outcome(&dir), outcome(&whole), "{file}");
    }
}

#[tokio::test]
async fn a_checkpoint_that_cannot_be_written_beside_the_run_ends_it() {
    let home = home();
    let dir = home.path().join("a");
    let mut work = Stirring::new(u32::MAX);
    // The name of the checkpoint after step 3 is taken.
    let taken = dir.join("checkpoints/step-000003");
    let make = taken.clone();
    work.meddling = Some((3, Box::new(move || fs::create_dir_all(make.join("file")).unwrap())));
    let error = train(RunLocation::New(dir.clone()), 7, work).await.unwrap_err().to_string();
    assert!(error.contains(&format!("cannot write `{}`", taken.display())), "{error}");
    fs::remove_dir_all(&taken).unwrap();
    assert_eq!(Checkpoints::of(&dir).steps().unwrap().last(), Some(&2), "the one before is kept");
    // What the failed one left does not hinder a resume.
    train(RunLocation::Resume(dir.clone()), 7, Stirring::new(u32::MAX)).await.unwrap();
    let whole = home.path().join("whole");
    train(RunLocation::New(whole.clone()), 7, Stirring::new(u32::MAX)).await.unwrap();
    assert_eq!(outcome(&dir), outcome(&whole));
}

#[tokio::test]
async fn weights_that_cannot_be_written_from_their_copy_end_the_run_and_leave_the_checkpoint_before()
 {
    for staleness in [0, 2] {
        let home = home();
        let dir = home.path().join("a");
        let stale = |staleness| Stirring { staleness, ..Stirring::new(u32::MAX) };
        let mut work = stale(staleness);
        let unwritable = Rc::clone(&work.unwritable);
        work.meddling = Some((3, Box::new(move || unwritable.set(true))));
        let error = train(RunLocation::New(dir.clone()), 7, work).await.unwrap_err().to_string();
        let parts = ["cannot write `", "policies/small/model`"];
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        let left = entries(&dir.join("checkpoints")).unwrap();
        let unfinished = left.iter().find(|path| name(path).starts_with(".tmp-"));
        assert_eq!(unfinished, None, "staleness {staleness}");
        // With episodes in flight, that of step 2 may not be complete yet.
        let last = Checkpoints::of(&dir).steps().unwrap().pop();
        assert!(last == Some(2) || (staleness > 0 && last == Some(0)), "{staleness}: {last:?}");
        train(RunLocation::Resume(dir.clone()), 7, stale(staleness)).await.unwrap();
        let whole = home.path().join("whole");
        train(RunLocation::New(whole.clone()), 7, stale(staleness)).await.unwrap();
        assert_eq!(outcome(&dir), outcome(&whole), "staleness {staleness}");
    }
}

#[tokio::test]
async fn the_error_of_a_checkpoint_is_told_even_if_the_run_ends_with_another() {
    let home = home();
    let dir = home.path().join("a");
    let (mut work, said) = (Stirring::new(u32::MAX), Arc::new(Messages::default()));
    let taken = dir.join("checkpoints/step-000003");
    let (make, fuse) = (taken.clone(), Rc::clone(&work.fuse));
    // The next step fails, too.
    let meddling = move || {
        fs::create_dir_all(make.join("file")).unwrap();
        fuse.set(2);
    };
    work.meddling = Some((3, Box::new(meddling)));
    let (origin, settings) = settings(7);
    let progress: Arc<dyn Progress> = Arc::clone(&said) as _;
    let place = RunLocation::New(dir.clone());
    let error = train_as(place, &origin, settings, work, progress).await.unwrap_err().to_string();
    let lost = format!("cannot write `{}`", taken.display());
    let warned = said.all().iter().any(|text| text.contains(&lost) && text.contains("warning"));
    // The thread may have ended before the step began.
    assert!(error.contains(&lost) || warned, "{error} {:?}", said.all());
}

#[tokio::test]
async fn a_run_of_one_step_writes_one_checkpoint_and_begins_again_if_it_is_killed_before() {
    let home = home();
    let whole = home.path().join("whole");
    train(RunLocation::New(whole.clone()), 1, Stirring::new(u32::MAX)).await.unwrap();
    assert_eq!(Checkpoints::of(&whole).steps().unwrap(), [1]);
    for fuse in 0.. {
        let dir = home.path().join(format!("killed-{fuse}"));
        if train(RunLocation::New(dir.clone()), 1, Stirring::new(fuse)).await.is_ok() {
            assert!(fuse > 5, "the run has {fuse} moments");
            break;
        }
        train(RunLocation::Resume(dir.clone()), 1, Stirring::new(u32::MAX)).await.unwrap();
        assert_eq!(outcome(&dir), outcome(&whole), "killed at moment {fuse}");
    }
}

#[tokio::test]
async fn a_run_of_one_step_that_was_killed_goes_on_with_more_steps_wherever_the_resume_is_killed() {
    let home = home();
    let whole = home.path().join("whole");
    train(RunLocation::New(whole.clone()), 3, Stirring::new(u32::MAX)).await.unwrap();
    for (fuse, resumed) in [(3, None), (4, Some(0)), (4, Some(1)), (4, Some(4)), (1, Some(0))] {
        let dir = home.path().join(format!("killed-{fuse}-{resumed:?}"));
        train(RunLocation::New(dir.clone()), 1, Stirring::new(fuse)).await.unwrap_err();
        match resumed {
            // Killed when the directory has returned to the start, and the growing files have not.
            None => RunDir::open(&dir).unwrap().return_to(0, true).unwrap(),
            Some(fuse) => {
                let place = RunLocation::Resume(dir.clone());
                train(place, 3, Stirring::new(fuse)).await.unwrap_err();
            }
        }
        train(RunLocation::Resume(dir.clone()), 3, Stirring::new(u32::MAX)).await.unwrap();
        assert_eq!(outcome(&dir), outcome(&whole), "{fuse} {resumed:?}");
    }
}

#[tokio::test]
async fn a_run_of_one_step_that_has_lost_its_checkpoint_is_not_started_over() {
    let home = home();
    let dir = home.path().join("a");
    train(RunLocation::New(dir.clone()), 1, Stirring::new(u32::MAX)).await.unwrap();
    fs::remove_dir_all(dir.join("checkpoints/step-000001")).unwrap();
    let again = train(RunLocation::Resume(dir), 3, Stirring::new(u32::MAX)).await;
    let error = again.unwrap_err().to_string();
    assert!(error.contains("has no checkpoint"), "{error}");
}

#[tokio::test]
async fn a_resume_without_the_moments_of_the_optimizers_is_a_warning() {
    let home = home();
    for (moments, found) in [
        (SavedMoments::F32, None),
        (SavedMoments::Bf16, Some("are rounded to bf16 in the checkpoint of step 3")),
        (SavedMoments::None, Some("there are none in the checkpoint of step 3")),
    ] {
        let dir = home.path().join(format!("{moments:?}"));
        let (origin, mut settings) = settings(3);
        settings.checkpoint.moments = moments;
        settings.checkpoint.keep = std::num::NonZeroUsize::MAX;
        let first = RunLocation::New(dir.clone());
        let silent: Arc<dyn Progress> = Arc::new(Silent);
        train_as(first, &origin, settings, Stirring::new(u32::MAX), silent).await.unwrap();
        for (step, exact) in [(0, true), (3, moments == SavedMoments::F32)] {
            let file = dir.join(format!("checkpoints/step-{step:06}/trainer.json"));
            let state: serde_json::Value = read_json(&file).unwrap();
            assert_eq!(state.get("moments").is_none(), exact, "{moments:?}, step {step}");
        }
        let said = Arc::new(Messages::default());
        let (origin, settings) = super::settings(5);
        let progress: Arc<dyn Progress> = Arc::clone(&said) as _;
        let work = Stirring::new(u32::MAX);
        let again = RunLocation::Resume(dir.clone());
        train_as(again, &origin, settings, work, progress).await.unwrap();
        // Every later checkpoint knows it, whatever the key is then.
        let last = Checkpoints::of(&dir).open(Which::Last).unwrap().state;
        assert_eq!((last.step, last.moments_lost), (5, found.is_some()), "{moments:?}");
        let warned = said.all().into_iter().find(|text| text.contains("checkpoint.moments"));
        match found {
            None => assert_eq!(warned, None),
            Some(found) => assert!(warned.unwrap().contains(found)),
        }
    }
}
