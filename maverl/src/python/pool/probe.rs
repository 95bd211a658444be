//! Scoring the first items again, to see that their values depend on nothing else.

use serde_json::Value;

use super::{ItemResult, PoolSeat};

impl PoolSeat<'_> {
    /// Scores the first items again, each alone and in reverse, and compares their values.
    pub(super) fn probe(&mut self, items: &[Value], results: &[ItemResult]) {
        if self.pool.state().probed >= self.pool.limits.probed || self.pool.broken().is_some() {
            return;
        }
        self.pool.state().probed += items.len();
        for (item, first) in items.iter().zip(results).rev() {
            let Ok(first) = first else { continue };
            let Ok(again) = self.attempt(std::slice::from_ref(item)) else { return };
            let again = again.into_iter().next().and_then(Result::ok).unwrap_or(Value::Null);
            if !self.compare(first, &again, "alone") {
                return;
            }
            self.pool.state().first_items.push((item.clone(), first.clone()));
        }
        if self.pool.state().probed >= self.pool.limits.probed {
            self.probe_together();
        }
    }

    /// Scores the first items again, together, and compares their values: they may have come one by one.
    fn probe_together(&mut self) {
        let mut first = std::mem::take(&mut self.pool.state().first_items);
        first.truncate(self.pool.limits.batch);
        let (items, first): (Vec<Value>, Vec<Value>) = first.into_iter().unzip();
        if items.len() < 2 {
            return;
        }
        let Ok(again) = self.attempt(&items) else { return };
        for (first, again) in first.iter().zip(again) {
            if !self.compare(first, &again.unwrap_or(Value::Null), "with other replies") {
                return;
            }
        }
    }

    /// Compares an answer with that of another attempt. If its value differs, the file is no longer used.
    fn compare(&self, first: &Value, again: &Value, how: &str) -> bool {
        let equal = again["reward"] == first["reward"];
        if !equal {
            let message = format!(
                "gave the same reply {}, and {} when it was scored again {how}; the value of a reply depends on the reply only: use no \
                 clock, no state, none of the other replies and no random numbers but those of `random`, which is seeded",
                first["reward"], again["reward"]
            );
            self.pool.give_up(self.pool.file.located(&message));
        }
        equal
    }
}
