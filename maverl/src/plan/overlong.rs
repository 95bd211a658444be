//! Replies that are close to too long.

use super::{Plan, SeatPlan};

/// Soft overlong penalty of a seat's replies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overlong {
    /// Longest reply in tokens.
    pub longest: usize,
    /// Share of it, at the end, in which a reply loses reward.
    pub buffer: f64,
    /// Penalty of the longest reply.
    pub penalty: f64,
}

impl Overlong {
    /// Reward of a reply of `length` tokens for its length: 0 or less.
    ///
    /// ```text
    /// b = buffer · longest
    /// r = −penalty · clip((length − (longest − b)) / b, 0, 1)
    /// ```
    ///
    /// Soft overlong punishment of DAPO, [2503.14476](https://arxiv.org/abs/2503.14476) eq. 13.
    pub fn reward(&self, length: usize) -> f64 {
        let longest = self.longest as f64;
        let buffer = self.buffer * longest;
        -self.penalty * ((length as f64 - (longest - buffer)) / buffer).clamp(0.0, 1.0)
    }
}

impl SeatPlan {
    /// Overlong penalty of its replies; `None` without one.
    pub fn overlong(&self) -> Option<Overlong> {
        let (buffer, penalty) = (self.loss.overlong_buffer, self.loss.overlong_penalty);
        let longest = self.sampling.max_tokens;
        (buffer > 0.0 && penalty > 0.0).then_some(Overlong { longest, buffer, penalty })
    }
}

impl Plan {
    /// The longest reply, in tokens, that a trained seat of the policy may give; 0 without one.
    pub fn longest_reply(&self, policy: usize) -> usize {
        let seats = self.seats.iter().filter(|seat| seat.policy == policy && seat.trained);
        seats.map(|seat| seat.sampling.max_tokens).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_loses_reward_only_in_the_buffer_at_the_end() {
        let overlong = Overlong { longest: 100, buffer: 0.25, penalty: 2.0 };
        let lost = [0, 75, 80, 100].map(|length| overlong.reward(length));
        let want = [0.0, 0.0, -0.4, -2.0];
        assert!(lost.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-12), "{lost:?}");
    }
}
