//! Checkpoints that are written beside the run.

use super::*;
use crate::config::SavedMoments;

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
    assert_eq!(Checkpoints::of(&dir).steps().unwrap(), [0]);
    // What the failed one left does not hinder a resume.
    train(RunLocation::Resume(dir.clone()), 7, Stirring::new(u32::MAX)).await.unwrap();
    let whole = home.path().join("whole");
    train(RunLocation::New(whole.clone()), 7, Stirring::new(u32::MAX)).await.unwrap();
    assert_eq!(outcome(&dir), outcome(&whole));
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
        let first = RunLocation::New(dir.clone());
        let silent: Arc<dyn Progress> = Arc::new(Silent);
        train_as(first, &origin, settings, Stirring::new(u32::MAX), silent).await.unwrap();
        let said = Arc::new(Messages::default());
        let (origin, settings) = super::settings(5);
        let progress: Arc<dyn Progress> = Arc::clone(&said) as _;
        let work = Stirring::new(u32::MAX);
        train_as(RunLocation::Resume(dir), &origin, settings, work, progress).await.unwrap();
        let warned = said.all().into_iter().find(|text| text.contains("checkpoint.moments"));
        match found {
            None => assert_eq!(warned, None),
            Some(found) => assert!(warned.unwrap().contains(found)),
        }
    }
}
