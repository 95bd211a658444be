//! Output of a program, of bounded size.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::key::{KEY_DIGITS, KEY_PREFIX};

/// Number of bytes that are kept of the beginning, and of the end.
const KEPT: usize = 32 << 10;

/// Standard output and error of a program: their beginning and their end.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<LogText>>);

#[derive(Default)]
struct LogText {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// Number of bytes that were left out between both.
    omitted: usize,
}

impl Log {
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

    /// Takes the output so far. Keys of episodes and of workers are blotted out.
    pub(super) fn take(&self) -> String {
        let LogText { mut head, tail, omitted } = std::mem::take(&mut *self.lock());
        let mut tail = Vec::from(tail);
        if omitted == 0 {
            head.append(&mut tail);
            return hide_keys(&head);
        }
        // A part of a key may stand on both sides of the gap.
        let cut = KEY_PREFIX.len() + KEY_DIGITS;
        head.truncate(head.len() - cut.min(head.len()));
        tail.drain(..cut.min(tail.len()));
        let omitted = omitted + 2 * cut;
        format!("{}\n[{omitted} bytes omitted]\n{}", hide_keys(&head), hide_keys(&tail))
    }

    fn lock(&self) -> MutexGuard<'_, LogText> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a text with stars in place of everything that has the form of a key.
fn hide_keys(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.split(KEY_PREFIX);
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits >= KEY_DIGITS {
            kept.push_str("***");
            kept.push_str(&part[KEY_DIGITS..]);
        } else {
            kept.push_str(KEY_PREFIX);
            kept.push_str(part);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::key::new_key;

    #[test]
    fn a_log_has_its_beginning_and_its_end_and_no_key() {
        let log = Log::default();
        let (one, other) = (new_key().unwrap(), new_key().unwrap());
        log.push(format!("begin {one} and {other}, mv-12").as_bytes());
        assert_eq!(log.take(), "begin *** and ***, mv-12");
        assert_eq!(log.take(), "");
        log.push(b"begin ");
        for _ in 0..100 {
            log.push(&[b'x'; 1000]);
        }
        log.push(b" end");
        let text = log.take();
        assert!(text.starts_with("begin xx") && text.ends_with("xx end"), "{}", text.len());
        assert!(text.contains("bytes omitted") && text.len() <= 2 * KEPT + 64);
    }
}
