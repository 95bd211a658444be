//! The estimator and the surrogate of `docs/src/estimator.md`, in a crate outside of maverl.

use maverl::credit::{Advantage, Clipped, PolicyToken, Rewarded, Surrogate};

/// The margin of a row over the best other seat of its task.
#[maverl::advantage(name = "duo/margin", cuda = "margin.cu")]
#[derive(maverl::Settings)]
pub struct Margin {
    /// Factor of the margin.
    #[setting(default = 1.0, range = above(0.0)..)]
    pub scale: f64,
}

impl Advantage for Margin {
    fn estimate(&self, step: &Rewarded<'_>, out: &mut [f64]) {
        let mean = |task: usize, seat: usize| {
            let rows = (0..step.len())
                .filter(|&row| step.tasks[row] == task && step.seats[row] == seat)
                .map(|row| step.rewards[row]);
            let (n, sum) = rows.fold((0.0, 0.0), |(n, sum), reward| (n + 1.0, sum + reward));
            (n > 0.0).then(|| sum / n)
        };
        let seats = step.seats.iter().max().map_or(0, |seat| seat + 1);
        for (row, out) in out.iter_mut().enumerate() {
            let others = (0..seats).filter(|&seat| seat != step.seats[row]);
            let best = others.filter_map(|seat| mean(step.tasks[row], seat)).reduce(f64::max);
            *out = best.map_or(0.0, |best| self.scale * (step.rewards[row] - best));
        }
    }
}

/// The log-ratio, bounded softly: `L = −A · w · tanh(log ρ / w)`.
#[maverl::surrogate(name = "duo/soft")]
#[derive(maverl::Settings)]
pub struct Soft {
    /// Log-ratio around which the gradient fades.
    #[setting(default = 0.2, range = above(0.0)..)]
    pub width: f64,
}

impl Surrogate for Soft {
    fn loss(&self, token: &PolicyToken) -> Clipped {
        let tanh = (token.log_ratio / self.width).tanh();
        let value = -token.advantage * self.width * tanh;
        Clipped::free(value, -token.advantage * (1.0 - tanh * tanh))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_and_its_kernel_agree() {
        maverl::testing::same_advantages(&Margin { scale: 2.5 });
    }

    #[test]
    fn the_derivative_of_the_soft_bound_is_that_of_its_loss() {
        maverl::testing::right_derivative(&Soft { width: 0.3 });
    }

    #[test]
    fn the_page_shows_this_code() {
        let page = include_str!("../../docs/src/estimator.md");
        let code = include_str!("estimator.rs");
        let part = |from: &str, to: &str| {
            let start = code.find(from).unwrap_or_else(|| panic!("no {from:?}"));
            let end = code[start..].find(to).unwrap_or_else(|| panic!("no {to:?}"));
            code[start..start + end].trim_end()
        };
        let estimator = part("/// The margin of", "/// The log-ratio");
        let surrogate = part("/// The log-ratio", "#[cfg(test)]");
        for shown in [estimator, surrogate, include_str!("margin.cu").trim_end()] {
            assert!(page.contains(shown), "the page does not show\n{shown}");
        }
        let lines = estimator.lines().count();
        assert!(lines <= 40, "the estimator of the page has {lines} lines");
    }
}
