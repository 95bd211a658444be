//! Teams that grow a tree of solutions and select the best.

use std::num::NonZeroU32;

use agents::math::Submission;
use agents::search::Inquiry;
use agents::tree::{Evaluator, Proposer};
use agents::{Rating, Solution};
use maverl::prelude::*;

/// Tree search: each solution starts afresh or improves another, whichever is more promising; the best rated wins.
///
/// The node to expand is selected from the root: a node with fewer children than the square root of its visits gets one
/// more (progressive widening); otherwise the child with the highest upper confidence bound is selected (UCB1).
#[orchestra(name = "tree/search", agents(Proposer, Evaluator))]
#[derive(Settings)]
pub struct Search {
    /// Number of solutions of an episode.
    #[setting(default = 4)]
    pub budget: NonZeroU32,
    /// Exploration constant of UCB1.
    #[setting(default = 1.0)]
    pub exploration: f64,
    /// Reward of the proposer for each correct solution.
    pub own_reward: f64,
    /// Penalty of the evaluator for its ratings: this weight times the squared error of the share.
    pub rating_penalty: f64,
}

/// A solution with its statistics.
struct Node {
    solution: Solution,
    rating: Rating,
    /// `None` for children of the root, which is the question itself.
    parent: Option<usize>,
    /// Number of solutions in its subtree, itself included.
    visits: u32,
    /// Sum of their ratings.
    total: f64,
}

impl Orchestra for Search {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let mut tree: Vec<Node> = Vec::new();
        for _ in 0..self.budget.get() {
            let parent = self.grows(&tree);
            let question = task.question.clone();
            let information = parent.map(|node| tree[node].solution.text.clone());
            let inquiry = Inquiry { question, information: information.into_iter().collect() };
            // A malformed reply creates no node, and uses its share of the budget.
            let Some(solution) = AskError::or_none(team.ask::<Proposer>(&inquiry).await)? else {
                continue;
            };
            let (question, text) = (task.question.clone(), solution.text.clone());
            let rating = team.ask::<Evaluator>(&Submission { question, solution: text }).await?;
            self.reward(team, &solution, rating).await?;
            tree.push(Node { solution, rating, parent, visits: 0, total: 0.0 });
            let mut at = Some(tree.len() - 1);
            while let Some(node) = at.and_then(|at| tree.get_mut(at)) {
                node.visits += 1;
                node.total += rating.share();
                at = node.parent;
            }
        }
        // The first of the best rated.
        let best = tree.into_iter().reduce(|a, b| if b.rating > a.rating { b } else { a });
        Ok(best.map(|node| node.solution.answer))
    }
}

impl Node {
    /// Returns the upper confidence bound (UCB1), where the parent has `visits`.
    fn upper_bound(&self, visits: usize, exploration: f64) -> f64 {
        let n = f64::from(self.visits);
        self.total / n + exploration * (libm::log(visits as f64) / n).sqrt()
    }
}

impl Search {
    /// Returns the node to expand; `None` is the root.
    fn grows(&self, tree: &[Node]) -> Option<usize> {
        let mut at = None;
        loop {
            let children: Vec<usize> = (0..tree.len()).filter(|&i| tree[i].parent == at).collect();
            let visits = at.map_or(tree.len(), |at: usize| tree[at].visits as usize);
            let bounds =
                children.iter().map(|&i| (i, tree[i].upper_bound(visits, self.exploration)));
            match bounds.reduce(|a, b| if b.1 > a.1 { b } else { a }) {
                Some((best, _)) if children.len().pow(2) >= visits => at = Some(best),
                _ => return at,
            }
        }
    }

    async fn reward(
        &self,
        team: &Team<Self>,
        solution: &Solution,
        rating: Rating,
    ) -> Result<(), AskError> {
        if self.own_reward == 0.0 && self.rating_penalty == 0.0 {
            return Ok(());
        }
        let right = f64::from(team.judge(&solution.answer).await?.solved);
        team.only::<Proposer>().add_reward("own", self.own_reward * right);
        let error = (rating.share() - right).powi(2);
        team.only::<Evaluator>().add_reward("rating", -self.rating_penalty * error);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::{answer, paid, play};

    /// Counts up from 39 when it is shown a solution; 42 is rated best.
    fn climb(seat: &str, shown: &str) -> String {
        let number = |n: u32| shown.contains(&answer(&n.to_string()));
        let shown = (39..43).find(|n| number(*n));
        match (seat, shown) {
            ("tree/proposer", None) => answer("39"),
            ("tree/proposer", Some(n)) => answer(&(n + 1).to_string()),
            (_, n) => format!("<score>{}</score>", n.map_or(0, |n| n - 32)),
        }
    }

    #[test]
    fn the_tree_grows_deep_where_that_pays_and_its_best_is_the_answer() {
        let budget = NonZeroU32::new(12).unwrap();
        let search = Search { budget, exploration: 0.1, own_reward: 1.0, rating_penalty: 1.0 };
        let episode = play(search, climb);
        assert_eq!((episode.turns.len(), episode.answer.as_deref()), (24, Some("42")));
        assert!(!paid(&episode, "own").is_empty());
        // A rating of 10 for the correct solution is no error; 9 for a wrong one costs most of the penalty.
        assert!(paid(&episode, "rating").iter().any(|(_, value)| (value + 0.81).abs() < 1e-12));
    }

    #[test]
    fn a_first_solution_is_followed_by_one_that_makes_it_better() {
        let one = |rating: u8, parent, visits, total| Node {
            solution: Solution { text: String::new(), answer: String::new() },
            rating: Rating(rating),
            parent,
            visits,
            total,
        };
        let search = Search::default();
        assert_eq!(search.grows(&[]), None);
        assert_eq!(search.grows(&[one(5, None, 1, 0.5)]), Some(0));
        // The root has two visits and one child, so it gets another.
        assert_eq!(search.grows(&[one(5, None, 2, 1.0), one(5, Some(0), 1, 0.5)]), None);
    }

    #[test]
    fn what_cannot_be_understood_is_no_node() {
        let episode = play(Search::default(), |_, _| "42".to_owned());
        assert_eq!((episode.turns.len(), episode.answer), (4, None));
    }
}
