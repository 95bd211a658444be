//! Comparison of runs: differing keys and hashes, and held-out tasks paired by task.

use std::collections::{BTreeMap, BTreeSet};

use maverl::eval::{Interval, over_runs, paired_interval};
use maverl::run_dir::HELD_OUT;
use serde_json::{Value, json};

use crate::compact::{collect_into, sort_by};
use crate::report::rows::run::{ReportedRun, WholeFiles};

/// Maximum number of tasks that are listed as different.
const TASKS: usize = 100;
/// Maximum number of runs of which all pairs have lists of tasks, which cost a pass over the rows for each task.
const LISTED: usize = 4;

/// Compares runs, every two of them. `lines` are their lines in the list of runs.
pub(crate) fn compare_runs(runs: &[&ReportedRun], lines: &[Value]) -> Value {
    let facts: Vec<_> = runs.iter().map(|run| run.lock_content().facts.clone()).collect();
    let mut keys: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (i, facts) in facts.iter().enumerate() {
        flatten_table("", &facts.config, &mut |key, value| {
            keys.entry(key).or_insert_with(|| vec![Value::Null; runs.len()])[i] = value;
        });
    }
    keys.retain(|key, values| key != "base" && values.iter().any(|value| *value != values[0]));
    let mut hashes: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (i, facts) in facts.iter().enumerate() {
        for part in ["weights", "data"] {
            flatten_table(part, &facts.provenance[part], &mut |key, value| {
                hashes.entry(key).or_insert_with(|| vec![Value::Null; runs.len()])[i] = value;
            });
        }
    }
    let pairs = compare_pairs(runs, &facts);
    let seeds = seed_sets(&facts, &keys, &pairs);
    object!({
        "runs": lines,
        "seeds": seeds,
        "keys": keys.into_iter().map(|(key, values)| object!({ "key": key, "values": values })).collect::<Vec<_>>(),
        "hashes": hashes.into_iter().map(|(key, values)| {
            let equal = values.iter().all(|value| *value == values[0]);
            object!({ "key": key, "values": values, "equal": equal })
        }).collect::<Vec<_>>(),
        "pairs": pairs,
    })
}

/// Compares every two runs: the later one with the earlier one.
fn compare_pairs(runs: &[&ReportedRun], facts: &[WholeFiles]) -> Vec<Value> {
    let outcomes: Vec<Shares> = runs
        .iter()
        .map(|run| ["before", "after"].map(|name| run.lock_content().task_outcomes(name)))
        .collect();
    let all = (0..runs.len()).flat_map(|i| (i + 1..runs.len()).map(move |j| (i, j)));
    all.map(|(i, j): (usize, usize)| {
        let differs = differing_splits(&facts[i].provenance, &facts[j].provenance);
        let listed = i == 0 || runs.len() <= LISTED;
        let mut found = compare_pair([i, j].map(|k| (runs[k], &outcomes[k][1])), &differs, listed);
        found["runs"] = json!([i, j]);
        found["gain"] = if differs.is_empty() {
            gain_difference(&outcomes[i], &outcomes[j])
        } else {
            Value::Null
        };
        found
    })
    .collect()
}

/// Shares of solved episodes of the held-out tasks before and after training.
type Shares = [BTreeMap<String, f64>; 2];

/// Returns the difference of the gains over training of two runs, paired by task; null if no task is in all four evaluations.
fn gain_difference(one: &Shares, other: &Shares) -> Value {
    let differences = one[1].keys().filter_map(|task| {
        let [gain, other] =
            [one, other].map(|[before, after]: &Shares| Some(after.get(task)? - before.get(task)?));
        Some(other? - gain?)
    });
    let differences: Vec<f64> = differences.collect();
    if differences.is_empty() {
        return Value::Null;
    }
    let of = paired_interval(&differences);
    object!({ "mean": of.mean, "low": of.low, "high": of.high })
}

/// Returns the sets of at least two runs that differ in the seed only: their results, and the interval of a run from
/// another seed by Student's t, within 0 to 1.
fn seed_sets(
    facts: &[WholeFiles],
    keys: &BTreeMap<String, Vec<Value>>,
    pairs: &[Value],
) -> Vec<Value> {
    let mut sets: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    (0..facts.len()).for_each(|i| sets.entry(other_values(keys, i)).or_default().push(i));
    let mut sets: Vec<&Vec<usize>> = sets.values().filter(|members| members.len() > 1).collect();
    sort_by(&mut sets, Ord::cmp);
    sets.into_iter().map(|members| seed_set(facts, members, pairs)).collect()
}

/// Returns the settings of a run but its seed, as a text.
fn other_values(keys: &BTreeMap<String, Vec<Value>>, i: usize) -> String {
    let values = keys.iter().filter(|(key, _)| *key != "seed").map(|(_, values)| &values[i]);
    json!(values.collect::<Vec<_>>()).to_string()
}

/// Describes a set of runs that differ in the seed only.
fn seed_set(facts: &[WholeFiles], members: &[usize], pairs: &[Value]) -> Value {
    let afters = members.iter().map(|i| &facts[*i].after["sampled"]["overall"]["avg"]["mean"]);
    let results: Vec<Option<f64>> = afters.map(Value::as_f64).collect();
    let known: Vec<f64> = results.iter().copied().flatten().collect();
    let interval = over_runs(&known).filter(|_| known.len() > 1).map(within_shares);
    let score = differing_runs("Held-out score after training", "difference", members, pairs);
    let gain = differing_runs("Gain over training", "gain", members, pairs);
    let equal = start_equal(members.iter().map(|i| &facts[*i].provenance["weights"]));
    let note = "Their starting weights are equal, so their scores before training differ by sampling alone, and the scores after \
                it tell more than the gains.";
    let note = (equal && gain.is_some()).then_some(note);
    let text = [score, gain];
    object!({
        "members": members,
        "after": results,
        "interval": interval,
        "text": text.into_iter().flatten().collect::<Vec<_>>(),
        "note": note,
    })
}

/// Returns an interval of shares as JSON; ends that are unknown are null.
fn within_shares(interval: Interval) -> Value {
    let Interval { mean, low, high } = interval;
    let [low, high] = if interval.is_known() { [low.max(0.0), high.min(1.0)] } else { [low, high] };
    object!({ "mean": mean, "low": low, "high": high })
}

/// Returns true if runs begin with the same known weights.
fn start_equal<'v>(mut weights: impl Iterator<Item = &'v Value>) -> bool {
    let first =
        weights.next().filter(|weights| weights.as_object().is_some_and(|of| !of.is_empty()));
    first.is_some_and(|first| weights.all(|other| other == first))
}

/// Says which runs of a set differ beyond chance in a quantity of their pairs; `None` if no pair has it.
fn differing_runs(what: &str, key: &str, members: &[usize], pairs: &[Value]) -> Option<String> {
    let (mut known, mut apart) = (0, Vec::new());
    for pair in pairs {
        let runs = [0, 1].map(|at| pair["runs"][at].as_u64().map(|run| run as usize));
        let [Some(first), Some(second)] = runs else { continue };
        let ends = ["low", "high"].map(|name| pair[key][name].as_f64());
        let [Some(low), Some(high)] = ends else { continue };
        if !members.contains(&first) || !members.contains(&second) {
            continue;
        }
        known += 1;
        if low > 0.0 || high < 0.0 {
            let side = if low > 0.0 { "higher" } else { "lower" };
            let [first, second] = [first, second].map(|run| char::from(b'A' + run as u8));
            apart.push(format!("{second} {side} than {first}"));
        }
    }
    let found = if apart.is_empty() {
        "no two of these seeds differ beyond chance".to_owned()
    } else {
        format!("seeds differ beyond chance: {}", apart.join(", "))
    };
    (known > 0).then(|| format!("{what}: {found}."))
}

/// Calls `found` with every leaf of a table by its whole key.
fn flatten_table(prefix: &str, value: &Value, found: &mut impl FnMut(String, Value)) {
    match value {
        Value::Object(table) => {
            for (key, value) in table {
                let whole = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten_table(&whole, value, found);
            }
        }
        Value::Null => {}
        value => found(prefix.to_owned(), value.clone()),
    }
}

/// Returns the held-out splits whose tasks differ.
fn differing_splits(one: &Value, other: &Value) -> Vec<String> {
    let (one, other) = (held_out_splits(one), held_out_splits(other));
    let names: BTreeSet<&String> = collect_into(one.keys().chain(other.keys()));
    names.into_iter().filter(|name| one.get(*name) != other.get(*name)).cloned().collect()
}

/// Returns the hashes of the held-out splits of a run by their names.
fn held_out_splits(provenance: &Value) -> BTreeMap<String, Value> {
    let splits = provenance["data"].as_object().into_iter().flatten();
    let splits = splits.filter(|(name, _)| name.starts_with(HELD_OUT));
    collect_into(splits.map(|(name, hash)| (name.clone(), hash.clone())))
}

/// Compares the evaluations after training of two runs, task by task. Without equal tasks there is no interval. The
/// tasks that differ are `listed` with an episode of each run.
fn compare_pair(
    [(one, a), (other, b)]: [(&ReportedRun, &BTreeMap<String, f64>); 2],
    differs: &[String],
    listed: bool,
) -> Value {
    if !differs.is_empty() {
        let reason = format!("the tasks of {} differ", differs.join(", "));
        return object!({ "difference": Value::Null, "reason": reason });
    }
    let both: Vec<(&String, f64, f64)> =
        a.iter().filter_map(|(task, a)| Some((task, *a, *b.get(task)?))).collect();
    if both.is_empty() {
        return object!({ "difference": Value::Null, "reason": "one of the runs has no evaluation after training" });
    }
    let differences: Vec<f64> = both.iter().map(|(_, a, b)| b - a).collect();
    let interval = paired_interval(&differences);
    let changed = both.iter().filter(|(_, a, b)| listed && a != b).take(TASKS);
    // An episode of each that shows the difference: solved in the run that solves more.
    let changed = changed.map(|&(task, a, b)| {
        let episodes = [(one, a > b), (other, b > a)]
            .map(|(run, solved)| run.lock_content().index.with_outcome("after", task, solved));
        object!({ "task": task, "shares": [a, b], "episodes": episodes })
    });
    object!({
        "difference": object!({ "mean": interval.mean, "low": interval.low, "high": interval.high }),
        "tasks": both.len(),
        "better": differences.iter().filter(|d| **d > 0.0).count(),
        "worse": differences.iter().filter(|d| **d < 0.0).count(),
        "changed": changed.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_seeds_with_equal_shares_is_unknown_and_others_are_within_0_to_1() {
        let of = |shares: &[f64]| over_runs(shares).map(within_shares).unwrap_or_default();
        assert_eq!(of(&[0.5, 0.5]), json!({ "mean": 0.5, "low": null, "high": null }));
        let wide = of(&[0.9, 1.0]);
        assert_eq!(
            (&wide["high"], wide["low"].as_f64() > Some(0.3)),
            (&json!(1.0), true),
            "{wide}"
        );
    }

    #[test]
    fn starting_weights_that_are_not_known_are_not_called_equal() {
        let (a, b) = (json!({ "tiny": "a" }), json!({ "tiny": "b" }));
        assert!(start_equal([&a, &a].into_iter()));
        assert!(!start_equal([&a, &b].into_iter()));
        for unknown in [json!({}), Value::Null] {
            assert!(!start_equal([&unknown, &unknown].into_iter()));
        }
    }
}
