//! Passes that are launched before the tokens of the last one are read, on the CPU, which has sampled them by then.

use super::*;

/// Returns one of many requests, which many ids end, and of every fourth a text.
pub(super) fn ending(i: u64) -> Request {
    let request = some(i);
    let stop_ids = (3..280_u32).filter(|id| (u64::from(*id) * 7 + i).is_multiple_of(13)).collect();
    let stop = if i.is_multiple_of(4) { vec!["th".to_owned(), "e ".to_owned()] } else { vec![] };
    let sampling = Sampling { stop_ids, stop, ..(*request.sampling).clone() };
    Request { sampling: Arc::new(sampling), ..request }
}

/// Returns the number of completions that ended before they had as many tokens as they may.
pub(super) fn ended_early(done: &[Completion], of: impl Fn(u64) -> Request) -> u64 {
    let early = |(done, i): &(&Completion, u64)| done.ids.len() < of(*i).sampling.max_tokens;
    done.iter().zip(0..).filter(early).count() as u64
}

#[test]
fn each_completion_that_ends_early_costs_one_discarded_token_and_all_are_the_same() {
    let fixture = Fixture::new();
    let model = &fixture.versions[0];
    let run = |ahead: bool| {
        let mut engine = Engine { ahead, ..fixture.engine(1000, false, 4096) };
        let answers = (0..24).map(|i| send(&mut engine, model, ending(i))).collect();
        let mut steps = 0;
        while !engine.is_idle() {
            step(&mut engine, model);
            steps += 1;
        }
        assert!(engine.unread.iter().all(Option::is_none));
        let done = finish(&mut engine, model, answers);
        (done, work(&engine), steps)
    };
    let (expected, at_once, steps) = run(false);
    let early = ended_early(&expected, ending);
    assert!(early > 8 && early < 20, "{early} of 24");
    let (done, ahead, later) = run(true);
    assert_eq!((done, later), (expected, steps + 1));
    assert_eq!((at_once.discarded, ahead.discarded), (0, early));
    println!("24 completions, {early} ended early: {at_once:?}, {ahead:?}");
    assert_eq!(EngineStats { discarded: 0, passes: at_once.passes, ..ahead }, at_once);
    assert!(ahead.passes <= at_once.passes + 1);
}

#[test]
fn requests_that_are_preempted_with_a_token_unread_lose_nothing() {
    let fixture = Fixture::new();
    let model = &fixture.versions[0];
    let growing = |i| request(vec![5 + i as u32; 10], 60, i);
    let expected = fixture.alone(0, (0..8).map(growing));
    for share in [true, false] {
        let mut engine = Engine { ahead: true, ..fixture.engine(8, share, 4096) };
        let answers = (0..8).map(|i| send(&mut engine, model, growing(i))).collect();
        assert_eq!(finish(&mut engine, model, answers), expected);
        assert!(work(&engine).preempted > 2, "{:?}", work(&engine));
    }
}

#[test]
fn no_pass_is_ahead_of_a_request_whose_tokens_the_host_samples() {
    let fixture = Fixture::new();
    let model = &fixture.versions[0];
    let filtered = |i| {
        let request = ending(i);
        let sampling = Sampling { top_k: 20, ..(*request.sampling).clone() };
        Request { sampling: Arc::new(sampling), ..request }
    };
    let expected = fixture.alone(0, (0..6).map(ending).chain((6..9).map(filtered)));
    let mut engine = Engine { ahead: true, ..fixture.engine(1000, true, 4096) };
    let mut answers: Vec<Answer> = (0..6).map(|i| send(&mut engine, model, ending(i))).collect();
    step(&mut engine, model);
    step(&mut engine, model);
    assert!(engine.unread[0].is_some());
    let before = work(&engine).discarded;
    answers.extend((6..9).map(|i| send(&mut engine, model, filtered(i))));
    while engine.slots.iter().any(|slot| slot.sampling.top_k > 0) {
        step(&mut engine, model);
        assert!(
            engine.unread[0].is_none() && engine.slots.iter().all(|slot| slot.unread.is_none())
        );
        assert_eq!(work(&engine).discarded, before);
    }
    assert_eq!(finish(&mut engine, model, answers), expected);
}

#[test]
fn what_is_cancelled_or_fails_with_a_token_unread_leaves_nothing_behind() {
    let fixture = Fixture::new();
    let model = &fixture.versions[0];
    let mut engine = Engine { ahead: true, ..fixture.engine(1000, true, 4096) };
    let answers: Vec<Answer> = (0..3).map(|i| send(&mut engine, model, some(i))).collect();
    step(&mut engine, model);
    assert!(engine.unread[0].is_some());
    drop(answers);
    step(&mut engine, model);
    assert!(engine.is_idle() && engine.unread[0].is_none());
    engine.forget(0);
    assert_eq!(engine.cache.blocks(), 0);
    // A model that has blown up: the error shows when the token is read.
    let dir = tempfile::tempdir().unwrap();
    fixture.versions[1].save(dir.path()).unwrap();
    let broken =
        Model::load(&ModelFiles::new(&ModelSource::Directory(dir.path().to_owned()))).unwrap();
    broken.weights.params().update(|values| values.fill(f32::NAN));
    let mut answer = send(&mut engine, &broken, some(1));
    step(&mut engine, &broken);
    assert!(answer.try_recv().is_err());
    step(&mut engine, &broken);
    let error = answer.try_recv().unwrap().unwrap_err();
    assert!(error.to_string().contains("the weights have blown up"), "{error}");
    assert!(engine.is_idle() && engine.unread[0].is_none());
}
