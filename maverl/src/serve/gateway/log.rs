//! Output of a program, of bounded size.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of bytes that are kept of the beginning, and of the end.
const KEPT: usize = 32 << 10;

/// Standard output and error of a program: their beginning and their end, without the key of its worker.
#[derive(Clone, Default)]
pub(super) struct Log {
    text: Arc<Mutex<Text>>,
    key: Arc<str>,
}

#[derive(Default)]
struct Text {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// Number of bytes that were left out between both.
    omitted: usize,
}

impl Log {
    /// Creates the log of a program that has a key.
    pub(super) fn of_key(key: &str) -> Self {
        Self { text: Arc::default(), key: key.into() }
    }

    /// Appends output.
    pub(super) fn push(&self, bytes: &[u8]) {
        let mut text = self.lock();
        let (head, rest) = bytes.split_at(bytes.len().min(KEPT - text.head.len()));
        text.head.extend_from_slice(head);
        text.tail.extend(rest);
        let over = text.tail.len().saturating_sub(KEPT);
        text.tail.drain(..over);
        text.omitted += over;
    }

    /// Takes the output so far. Keys are blotted out: that of the program, and that of its episode.
    pub(super) fn take(&self, key: &str) -> String {
        let keys = [&*self.key, key];
        let Text { mut head, tail, omitted } = std::mem::take(&mut *self.lock());
        let mut tail = Vec::from(tail);
        if omitted == 0 {
            head.append(&mut tail);
            return blotted(&head, keys);
        }
        // A part of a key may stand on both sides of the gap.
        let cut = keys.iter().map(|key| key.len()).max().unwrap_or(0);
        head.truncate(head.len() - cut.min(head.len()));
        tail.drain(..cut.min(tail.len()));
        let omitted = omitted + 2 * cut;
        format!("{}\n[{omitted} bytes omitted]\n{}", blotted(&head, keys), blotted(&tail, keys))
    }

    fn lock(&self) -> MutexGuard<'_, Text> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn blotted(bytes: &[u8], keys: [&str; 2]) -> String {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let keys = keys.into_iter().filter(|key| !key.is_empty());
    keys.fold(text, |text, key| text.replace(key, "***"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_has_its_beginning_and_its_end_and_no_key() {
        let log = Log::of_key("mv-99");
        log.push(b"begin mv-1234 mv-99 ");
        assert_eq!(log.take("mv-1234"), "begin *** *** ");
        assert_eq!(log.take(""), "");
        log.push(b"begin ");
        for _ in 0..100 {
            log.push(&[b'x'; 1000]);
        }
        log.push(b" end");
        let text = log.take("mv-1234");
        assert!(text.starts_with("begin xx") && text.ends_with("xx end"), "{}", text.len());
        assert!(text.contains("bytes omitted") && text.len() <= 2 * KEPT + 64);
    }
}
