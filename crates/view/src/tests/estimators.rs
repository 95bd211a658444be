//! The arithmetic of every estimator, as the page of a group writes it: computed again, it gives the advantage.

use super::pages::Visit;
use super::*;

/// Makes the samples of an estimator from those of Dr. MAS.
type Change = fn(&mut StepSamples);

/// Changes each sample by its group.
fn each(all: &mut StepSamples, change: impl Fn(&mut SampleRecord, &GroupRecord)) {
    let groups = all.groups.clone();
    for sample in &mut all.samples {
        change(sample, &groups[sample.group.unwrap()]);
    }
}

/// Makes a group of one of the first group.
fn alone(all: &mut StepSamples, singleton: &str) {
    all.estimator.singleton = singleton.to_owned();
    let first = all.of_group(0).next().unwrap().clone();
    all.samples.retain(|sample| sample.group != Some(0) || *sample == first);
    let group = &mut all.groups[0];
    (group.size, group.mean, group.deviation, group.spread) = (1, first.reward, 0.0, false);
}

/// Every kind of estimator, with a part of its text.
const KINDS: [(&str, Change); 14] = [
    ("/ (", |_| {}),
    ("· 4 / 3", |all| {
        (all.estimator.baseline, all.estimator.normalize_std) =
            ("leave_one_out".into(), Some(false));
        each(all, |sample, of| sample.advantage = (sample.reward - of.mean) * 4.0 / 3.0);
    }),
    ("second best", |all| {
        (all.estimator.baseline, all.estimator.normalize_std) = ("second_best".into(), Some(false));
        // One of each group is better than all others.
        for sample in &mut all.samples {
            sample.reward =
                f64::from(sample.episode % 4 == 1) + 0.125 * (sample.episode % 4) as f64;
        }
        each(all, |sample, _| sample.advantage = if sample.episode % 4 == 1 { 0.75 } else { 0.0 });
    }),
    ("a group of one: 0", |all| {
        alone(all, "zero");
        all.samples.iter_mut().find(|sample| sample.group == Some(0)).unwrap().advantage = 0.0;
    }),
    ("a group of one: ", |all| {
        alone(all, "raw");
        let sample = all.samples.iter_mut().find(|sample| sample.group == Some(0)).unwrap();
        sample.advantage = sample.reward / (1.0 + 1e-6);
    }),
    ("a group of one: 0.500 / (0.250", |all| {
        alone(all, "raw");
        let mut other = all.groups[1].clone();
        (other.id, other.deviation, other.spread) = (0, 0.25, true);
        all.deviation_groups = vec![other];
        each(all, |sample, of| {
            sample.deviation_group = Some(0);
            sample.advantage = (sample.reward - of.mean) / (0.25 + 1e-6);
        });
        let sample = all.samples.iter_mut().find(|sample| sample.group == Some(0)).unwrap();
        (sample.reward, sample.advantage) = (0.5, 0.5 / (0.25 + 1e-6));
    }),
    ("· 0: the group of the deviation has no spread", |all| {
        let mut other = all.groups[1].clone();
        (other.id, other.deviation, other.spread) = (0, 0.0, false);
        all.deviation_groups = vec![other];
        each(all, |sample, _| (sample.deviation_group, sample.advantage) = (Some(0), 0.0));
    }),
    ("among equal prompts", |all| {
        all.estimator.anchor_weight = 0.5;
        each(all, |sample, _| {
            sample.anchor = Some(0.25 * (sample.episode as f64 - 3.0));
            sample.advantage += 0.5 * sample.anchor.unwrap();
        });
    }),
    ("whitened", |all| {
        all.estimator.whiten = Some((0.125, 0.75));
        each(all, |sample, _| {
            sample.unwhitened = Some(sample.advantage);
            sample.advantage = (sample.advantage - 0.125) / (0.75_f64.powi(2) + 1e-8).sqrt();
        });
    }),
    ("of policies updated before", |all| each(all, |sample, _| sample.factor = Some(0.875))),
    ("− 0.250", |all| {
        (all.estimator.baseline, all.estimator.normalize_std) = ("none".into(), Some(false));
        each(all, |sample, _| {
            sample.baseline = 0.25;
            sample.advantage = sample.reward - 0.25;
        });
    }),
    ("of the episode", |all| {
        each(all, |sample, of| {
            sample.unit = Some(0.375);
            sample.advantage = (0.375 - of.mean) / (of.deviation + 1e-6);
        });
    }),
    ("return 0.750 − value 0.500, mean over tokens", |all| {
        all.estimator.estimator = "critic".to_owned();
        each(all, |sample, _| {
            (sample.values, sample.returns) = (vec![0.25, 0.75], vec![0.5, 1.0]);
            (sample.advantages, sample.advantage) = (vec![0.25, 0.25], 0.25);
        });
    }),
    ("by “shop/own”", |all| all.estimator.estimator = "shop/own".to_owned()),
];

/// Parts of a written sum between its equal signs: the value on the left of each part, and the expression on its right.
fn parts(text: &str) -> Vec<(String, String)> {
    let mut text = text.replace('−', "-").replace('·', "*");
    let words = [
        ": the group of the deviation has no spread",
        " among equal prompts",
        " of the episode",
        " of policies updated before",
        " of the second best",
        "a group of one: ",
        "not the best of the group: ",
    ];
    for word in words {
        text = text.replace(word, "");
    }
    let part = |part: &str| match part.split_once(", whitened: ") {
        Some((value, expression)) => (value.to_owned(), expression.to_owned()),
        None => (part.split(" * ").next().unwrap().to_owned(), part.to_owned()),
    };
    text.split(" = ").map(part).collect()
}

#[test]
fn the_sum_of_every_estimator_gives_the_advantage() {
    let home = tempfile::tempdir().unwrap();
    let mut written = Written::new(&home.path().join("a"));
    let mut all = Vec::new();
    for ((_, change), step) in KINDS.iter().zip(1..) {
        let episodes: Vec<Episode> = (0..8).map(|n| searched(step, n)).collect();
        let mut of_step = samples(&episodes);
        change(&mut of_step);
        written.dir.write_samples(step, &of_step).unwrap();
        written.played(step, &episodes);
        all.push(of_step);
    }
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    let kinds = KINDS.iter().zip(1..).zip(&all);
    for (((expected, _), step), of_step) in kinds.step_by(stride(4)) {
        let mut seen = false;
        for group in &of_step.groups {
            at.go(&format!("r/0/group/{step}/{}", group.id));
            let its: Vec<&SampleRecord> = of_step.of_group(group.id).collect();
            at.browser
                .wait(&format!("document.querySelectorAll('td.sum').length === {}", its.len()));
            let texts = at
                .browser
                .value("[...document.querySelectorAll('td.sum')].map((cell) => cell.textContent)");
            let texts: Vec<String> = serde_json::from_value(texts).unwrap();
            let mut equal = Vec::new();
            for (text, sample) in texts.iter().zip(its) {
                seen |= text.contains(expected);
                let parts = parts(text);
                let shown: f64 = parts.last().unwrap().0.parse().unwrap();
                let recorded = sample.advantage * sample.factor.unwrap_or(1.0);
                assert!((shown - recorded).abs() < 6e-4, "{text}: {recorded}");
                if of_step.estimator.estimator == "group" {
                    let pair = |pair: &[(String, String)]| (pair[0].1.clone(), pair[1].0.clone());
                    equal.extend(parts.windows(2).map(pair));
                }
            }
            // The browser computes every expression of a page at once.
            let expressions: Vec<&str> = equal.iter().map(|(left, _)| left.as_str()).collect();
            let values = at.browser.value(&format!("[{}]", expressions.join(", ")));
            let values: Vec<f64> = serde_json::from_value(values).unwrap();
            for ((left, right), value) in equal.iter().zip(values) {
                let right: f64 = right.parse().unwrap();
                assert!((value - right).abs() < 4e-3 * (1.0 + right.abs()), "{left}: {value}");
            }
        }
        assert!(seen, "{expected}");
    }
    at.browser.assert_quiet();
}
