#![allow(clippy::unwrap_used)]

use std::ffi::{CString, c_char};
use std::path::Path;

use super::*;
use crate::testing::on_ranks;
use testing::Fake;

/// Sets what the functions of the library do.
fn set_mode(fake: &Fake, name: &str) {
    let name = CString::new(name).unwrap();
    // SAFETY: the type is that of the source.
    unsafe {
        fake.library.get::<unsafe extern "C" fn(*const c_char)>(b"fake_mode").unwrap()(
            name.as_ptr(),
        )
    };
}

/// Sends `10 sender + receiver` to each other rank, as many bytes as the sum of both ranks and one, and returns what arrived.
fn exchange(nccl: &Nccl, rank: usize, size: usize) -> Result<Vec<Vec<u8>>, RankError> {
    let count = |other: usize| if other == rank { 0 } else { rank + other + 1 };
    let sent: Vec<Vec<u8>> = (0..size).map(|to| vec![(10 * rank + to) as u8; count(to)]).collect();
    let mut received: Vec<Vec<u8>> = (0..size).map(|from| vec![0; count(from)]).collect();
    let span = |bytes: &[u8]| NcclSpan { at: bytes.as_ptr() as u64, bytes: bytes.len() };
    let sends: Vec<NcclSpan> = sent.iter().map(|bytes| span(bytes)).collect();
    let receives: Vec<NcclSpan> = received
        .iter_mut()
        .map(|bytes| NcclSpan { at: bytes.as_mut_ptr() as u64, bytes: bytes.len() })
        .collect();
    // SAFETY: the arrays live until the return, and nobody else uses them.
    unsafe { nccl.exchange(0, &sends, &receives, &mut || Ok(true)) }?;
    Ok(received)
}

#[test]
fn bytes_arrive_by_the_calls_of_nccl_in_their_order() {
    let Some(fake) = Fake::open() else { return };
    let options = fake.options(Duration::from_secs(20));
    on_ranks(3, |ranks| {
        let rank = ranks.rank();
        let nccl = Nccl::join(&ranks.channel(1), &options).unwrap();
        for _ in 0..2 {
            let received = exchange(&nccl, rank, 3).unwrap();
            for (from, bytes) in received.iter().enumerate().filter(|(from, _)| *from != rank) {
                assert_eq!(bytes, &vec![(10 * from + rank) as u8; rank + from + 1]);
            }
        }
        drop(nccl);
        ranks.channel(0).barrier().unwrap();
        ranks.leave();
    });
    let of_one = ["send 4 2", "receive 2 0", "send 2 0", "receive 4 2", "group"];
    let expected = [&["init 3"][..], &of_one, &of_one, &["finalize", "destroy"]].concat();
    assert_eq!(fake.calls(1), expected);
    assert_eq!(fake.calls(0)[..2], ["id", "init 3"]);
}

/// Connects two ranks, lets transfers hang or fail, and returns the errors of an exchange. `meanwhile` runs beside that of
/// rank 1.
fn disturbed(
    fake: &Fake,
    mode: &str,
    timeout: Duration,
    meanwhile: impl Fn(&crate::Ranks) + Sync,
) -> Vec<String> {
    let options = fake.options(timeout);
    let errors = on_ranks(2, |ranks| {
        let nccl = Nccl::join(&ranks.channel(1), &options).unwrap();
        ranks.channel(0).barrier().unwrap();
        set_mode(fake, mode);
        let error = std::thread::scope(|scope| {
            if ranks.rank() == 1 {
                scope.spawn(|| meanwhile(&ranks));
            }
            exchange(&nccl, ranks.rank(), 2).unwrap_err()
        });
        let again = exchange(&nccl, ranks.rank(), 2).unwrap_err();
        assert!(!again.to_string().is_empty());
        error.to_string()
    });
    for rank in [0, 1] {
        let calls = fake.calls(rank);
        let aborts = calls.iter().filter(|call| *call == "abort").count();
        assert_eq!((aborts, calls.last().unwrap().as_str()), (1, "abort"), "{calls:?}");
    }
    errors
}

#[test]
fn a_transfer_that_does_not_end_is_aborted_once_after_its_time() {
    let Some(fake) = Fake::open() else { return };
    for error in disturbed(&fake, "hang", Duration::from_millis(300), |_| ()) {
        assert!(error.contains("a transfer did not end within 0.3 s"), "{error}");
    }
}

#[test]
fn an_error_of_nccl_aborts_and_is_told() {
    let Some(fake) = Fake::open() else { return };
    for error in disturbed(&fake, "fail", Duration::from_secs(20), |_| ()) {
        assert!(error.contains("a transfer: remote process exited"), "{error}");
    }
}

#[test]
fn the_loss_of_a_rank_ends_a_transfer_that_hangs() {
    let Some(fake) = Fake::open() else { return };
    let errors = disturbed(&fake, "hang", Duration::from_secs(600), |ranks| {
        std::thread::sleep(Duration::from_millis(200));
        ranks.abort("the disk is full");
    });
    for error in errors {
        assert!(error.contains("rank 1") && error.contains("the disk is full"), "{error}");
    }
}

#[test]
fn a_missing_library_is_told_with_a_remedy() {
    let error = NcclTable::open(Some(Path::new("/nowhere/libnccl.so"))).unwrap_err();
    for part in ["/nowhere/libnccl.so", "pip install", "`dist.transport"] {
        assert!(error.contains(part), "{error}");
    }
}
