#![allow(clippy::unwrap_used)]

use futures::FutureExt as _;

use super::*;
use crate::model::FAMILIES;

fn queue(running: usize, waiting: usize) -> Queue {
    let limits = QueueLimits {
        running: running.try_into().unwrap(),
        waiting,
        wait: Duration::from_secs(600),
        per_key: 0,
    };
    Queue::new(limits, ServerMetrics::new(&FAMILIES))
}

/// Returns the numbers of running choices and of waiting requests.
fn counts(queue: &Queue) -> [usize; 2] {
    queue.shared.counts(queue.limits)
}

#[tokio::test]
async fn a_request_with_many_choices_gives_every_second_permit_to_another() {
    let queue = queue(2, 8);
    let many = queue.admit(ClientNumber(0)).await.unwrap();
    let (first, second) = (many.permit().await.unwrap(), many.permit().await.unwrap());
    let mut rest: Vec<_> = (0..5).map(|_| Box::pin(many.permit())).collect();
    rest.iter_mut().for_each(|choice| assert!(choice.as_mut().now_or_never().is_none()));
    let mut other = Box::pin(queue.admit(ClientNumber(0)));
    assert!(other.as_mut().now_or_never().is_none());
    assert_eq!(counts(&queue), [2, 1]);
    // The line of the first request came first, then it is the turn of the other one.
    drop(first);
    let third = rest[0].as_mut().now_or_never().unwrap().unwrap();
    assert!(other.as_mut().now_or_never().is_none());
    drop(second);
    let admitted = other.as_mut().now_or_never().unwrap().unwrap();
    assert_eq!(counts(&queue), [2, 0]);
    drop(admitted);
    assert!(rest[1].as_mut().now_or_never().unwrap().is_ok());
    drop((rest, third));
    assert_eq!(counts(&queue), [0, 0]);
}

#[tokio::test]
async fn a_request_that_leaves_frees_its_permits_for_those_that_wait() {
    let queue = queue(2, 8);
    let many = queue.admit(ClientNumber(0)).await.unwrap();
    let held = (many.permit().await.unwrap(), many.permit().await.unwrap());
    let mut waits: Vec<_> = (0..10_000).map(|_| Box::pin(many.permit())).collect();
    waits.iter_mut().for_each(|choice| assert!(choice.as_mut().now_or_never().is_none()));
    let mut others: Vec<_> = (0..3).map(|_| Box::pin(queue.admit(ClientNumber(1)))).collect();
    others.iter_mut().for_each(|other| assert!(other.as_mut().now_or_never().is_none()));
    // Its choices are gone, and the request itself is not yet.
    drop(waits);
    drop(held);
    let admitted = others.remove(0).now_or_never().unwrap().unwrap();
    drop(many);
    assert!(others.remove(0).now_or_never().unwrap().is_ok());
    drop(admitted);
    drop(others);
    assert_eq!(counts(&queue), [0, 0]);
}

#[tokio::test]
async fn only_so_many_requests_wait_and_their_choices_do_not_count() {
    let queue = queue(1, 1);
    let running = queue.admit(ClientNumber(0)).await.unwrap();
    let permit = running.permit().await.unwrap();
    let mut more = Box::pin(running.permit());
    assert!(more.as_mut().now_or_never().is_none());
    let mut waits = Box::pin(queue.admit(ClientNumber(1)));
    assert!(waits.as_mut().now_or_never().is_none());
    let refused = queue.admit(ClientNumber(2)).await.err().unwrap();
    assert_eq!((refused.status.as_u16(), refused.code), (429, "rate_limit_exceeded"));
    drop(waits);
    let mut waits = Box::pin(queue.admit(ClientNumber(2)));
    assert!(waits.as_mut().now_or_never().is_none());
    drop((more, permit));
    assert!(waits.as_mut().now_or_never().unwrap().is_ok());
}
