#![allow(clippy::unwrap_used)]

use futures::FutureExt as _;

use super::*;
use crate::algo::testing::plan;

fn version(schedule: TurnSchedule, path: &[u32]) -> u64 {
    schedule.version(&TurnPath(path.to_vec()))
}

#[test]
fn the_version_of_a_turn_follows_from_the_calls_before_it() {
    let every = TurnSchedule { first: 4, last: 7, turns: 1 };
    let paths: [&[u32]; 6] = [&[0], &[1], &[2, 0], &[2, 1], &[3], &[40]];
    assert_eq!(paths.map(|path| version(every, path)), [4, 5, 6, 7, 7, 7]);
    let third = TurnSchedule { turns: 3, ..every };
    assert_eq!(paths.map(|path| version(third, path)), [4, 4, 4, 5, 5, 7]);
    let one = TurnSchedule { turns: 0, ..every };
    assert_eq!(paths.map(|path| version(one, path)), [4; 6]);
}

#[tokio::test]
async fn turns_of_policies_that_are_updated_wait_for_their_version_and_others_never_do() {
    let (sender, existing) = watch::channel(PolicyVersions::from([(0, Vec::new())]));
    let plan = plan(&[("t/a", true), ("t/frozen", false)]);
    let schedule = TurnSchedule { first: 0, last: 2, turns: 2 };
    let versions = TurnVersions::new(&plan, schedule, existing, Arc::new(|| Duration::ZERO));
    let seats = ["t/a", "t/frozen"].map(Seat::only);
    let awaited =
        |seat: &Seat| [0, 1, 2, 3, 4, 9].map(|turn| versions.awaited(seat, &TurnPath(vec![turn])));
    assert_eq!(awaited(&seats[0]), [None, None, Some(1), Some(1), Some(2), Some(2)]);
    assert_eq!(awaited(&seats[1]), [None; 6]);
    let mut waiting = Box::pin(versions.wait_for(1));
    assert!((&mut waiting).now_or_never().is_none());
    sender.send_modify(|versions| _ = versions.insert(1, Vec::new()));
    waiting.await.unwrap();
    assert_eq!(awaited(&seats[0]), [None, None, None, None, Some(2), Some(2)]);
    drop(sender);
    let fault = versions.wait_for(2).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Worker);
    assert!(fault.message.contains("the weights after 2 steps"), "{fault}");
}
