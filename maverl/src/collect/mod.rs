//! Data sets from recorded episodes: rows for supervised training, preferences, verifiers and process rewards.
//!
//! Equal episodes and options make equal files: rows are in the order of tasks, and nothing is sampled.

mod card;
mod collection;
mod dedup;
mod example;
mod filter;
mod kind;
mod options;
mod pairs;
#[cfg(feature = "parquet")]
mod parquet;
mod rows;
mod split;
mod steps;
mod write;

pub use collection::{Collection, DataSet, RowSource};
pub use example::Collected;
pub use filter::{Filters, Pattern};
pub use kind::{Dedup, Kind, RowFormat};
pub use options::CollectOptions;
pub use rows::Row;
pub use write::write;

use crate::IntoMap;

use example::{CollectedExample, examples};
use rows::{sft, verifier};

/// Makes data sets of episodes.
pub fn collect(mut episodes: Vec<Collected>, options: &CollectOptions) -> Collection {
    episodes.sort_by(|a, b| a.order().cmp(&b.order()));
    let all = episodes.len() as u64;
    episodes.retain(|collected| collected.episode.score().is_some());
    let unscored = all - episodes.len() as u64;
    let examples = examples(&episodes);
    let sets = options.kinds.iter().map(|&kind| (kind, set(kind, &examples, options)));
    Collection { sets: sets.into_map(), episodes: all, unscored }
}

fn set(kind: Kind, examples: &[CollectedExample<'_>], options: &CollectOptions) -> DataSet {
    let mut set = DataSet::default();
    let mut kept = Vec::new();
    for example in examples {
        match options.filters.reason(kind, example) {
            None => kept.push(example),
            Some(reason) => *set.removed.entry(reason).or_default() += 1,
        }
    }
    let mut rows: Vec<Row> = match kind {
        Kind::Sft => kept.into_iter().map(sft).collect(),
        Kind::Verifier => {
            kept.into_iter().map(|example| verifier(example, options.label.as_deref())).collect()
        }
        Kind::Preference => pairs::pairs(&kept, options.margin, options.pairs),
        Kind::Steps => steps::steps(&kept, examples),
    };
    let before = rows.len();
    dedup::dedup(&mut rows, options.dedup);
    let after = rows.len();
    if before > after {
        set.removed.insert("duplicate", (before - after) as u64);
    }
    if let (Kind::Verifier, Some(most)) = (kind, options.balance) {
        split::balance(&mut rows, most);
        if after > rows.len() {
            set.removed.insert("balance", (after - rows.len()) as u64);
        }
    }
    let tested = rows.extract_if(.., |row| split::is_test(&row.question, options.test_share));
    set.test = tested.collect();
    set.train = rows;
    // Rows of the same question cannot be trained on either.
    let asked = set.test.extract_if(.., |row| row.asked).count() as u64;
    if asked > 0 {
        set.removed.insert("asked", asked);
    }
    set
}

#[cfg(test)]
mod tests;
