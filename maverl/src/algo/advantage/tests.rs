#![allow(clippy::unwrap_used)]
#![allow(clippy::approx_constant)] // values of the reference, as it prints them

use maverl_kernels::advantage::{
    GaeParams, GaeSteps, RaggedRows, Relative, gae_advantages, relative_advantages, whiten_groups,
};
use serde_json::Value;

use super::*;
use crate::algo::loss::{Kl, kl};
use crate::algo::testing::{assert_close, episode, matrix, numbers, plan, rl_math, turn};
use crate::algo::{TaskKey, samples};
use crate::config::{
    AdvantagePlan, AnchorPlan, GreedyPlan, GroupBaseline, GroupPlan, MovingAveragePlan, RewardPlan,
    Shaping, ShapingPlan, Singleton,
};
use crate::credit::{CPU, GroupBy};
use crate::plan::{Chosen, InfluencePlan, Instance};
use crate::trajectory::{RewardOf, RewardPart};

fn advantages(episodes: &[Episode], samples: &[Sample], algorithm: &AlgorithmPlan) -> Advantages {
    super::advantages(episodes, samples, algorithm, &CPU)
}

fn sample(task: &str, episode: usize, seat: usize, reward: f64) -> Sample {
    Sample {
        episode,
        turn: 0,
        task: TaskKey { source: "test".to_owned(), id: task.to_owned() },
        seat,
        policy: 0,
        reward,
        baseline: 0.0,
        solved: reward > 0.5,
        tokens: 1,
    }
}

/// The golden batch of Dr. MAS: one task; t0: S 1, V 1; t1: S 0, V −0.1, S 0; t2: S 1, V 1, S 1.
fn golden() -> Vec<Sample> {
    let rows = [
        (0, 0, 1.0),
        (0, 1, 1.0),
        (1, 0, 0.0),
        (1, 1, -0.1),
        (1, 0, 0.0),
        (2, 0, 1.0),
        (2, 1, 1.0),
        (2, 0, 1.0),
    ];
    rows.into_iter().map(|(episode, seat, reward)| sample("p", episode, seat, reward)).collect()
}

fn by(by: GroupBy) -> GroupPlan {
    GroupPlan { by, ..GroupPlan::default() }
}

fn algorithm(group: GroupPlan) -> AlgorithmPlan {
    AlgorithmPlan { advantage: AdvantagePlan::Group(group), ..plan(&[]).algorithm }
}

#[test]
fn dr_mas_agrees_with_the_reference() {
    let of = |group| advantages(&[], &golden(), &algorithm(group)).values;
    let want = [0.730295, 0.577349, -1.095443, -1.154699, -1.095443, 0.730295, 0.577349, 0.730295];
    assert_close("golden", &of(by(GroupBy::TaskSeat)), &want, 1e-6);
    let want = [0.4, 0.366667, -0.6, -0.733333, -0.6, 0.4, 0.366667, 0.4];
    let centered = GroupPlan { normalize_std: false, ..by(GroupBy::TaskSeat) };
    assert_close("golden", &of(centered), &want, 1e-6);
}

#[test]
fn grpo_compares_episodes_not_rows() {
    let got = advantages(&[], &golden(), &algorithm(by(GroupBy::Task)));
    let (up, down) = (0.577349, -1.154699);
    assert_close("golden", &got.values, &[up, up, down, down, down, up, up, up], 1e-6);
    assert_eq!((got.groups.count, got.groups.size_min), (1, 3));
}

#[test]
fn tasks_of_two_sources_with_one_id_are_two_groups() {
    let mut samples = vec![sample("p", 0, 0, 1.0), sample("p", 1, 0, 0.0)];
    samples[1].task.source = "other".to_owned();
    let got = advantages(&[], &samples, &algorithm(by(GroupBy::TaskSeat)));
    assert_eq!((got.groups.count, got.groups.singletons), (2, 2));
}

#[test]
fn a_group_of_one_is_zero_or_raw() {
    let samples = [sample("p", 0, 0, 1.0)];
    let zero = advantages(&[], &samples, &algorithm(by(GroupBy::TaskSeat)));
    assert_eq!((zero.values, zero.groups.singletons, zero.groups.flat), (vec![0.0], 1, true));
    let raw = GroupPlan { singleton: Singleton::Raw, ..by(GroupBy::TaskSeat) };
    let raw = advantages(&[], &samples, &algorithm(raw));
    assert_close("raw", &raw.values, &[0.999999], 1e-6);
    assert!(!raw.groups.flat);
}

#[test]
fn a_step_is_flat_when_no_group_has_spread_rounding_aside() {
    let equal = |task: &str, reward: f64| {
        let task = task.to_owned();
        (0..7).map(move |episode| sample(&task, episode, 0, reward))
    };
    let mut samples: Vec<_> = equal("p", 0.1).chain(equal("q", 0.7)).collect();
    let got = advantages(&[], &samples, &algorithm(by(GroupBy::TaskSeat))).groups;
    assert!(got.flat);
    assert_eq!((got.zero_std_frac, got.all_good_frac, got.all_bad_frac), (1.0, 0.5, 0.5));
    samples[0].reward = 0.0;
    let got = advantages(&[], &samples, &algorithm(by(GroupBy::TaskSeat))).groups;
    assert!(!got.flat);
    assert_eq!(got.zero_std_frac, 0.5);
}

#[test]
fn no_samples_give_no_advantages_and_a_flat_step() {
    let got = advantages(&[], &[], &algorithm(by(GroupBy::Task)));
    assert!(got.values.is_empty() && got.groups.flat);
}

const TRL: Relative = Relative {
    baseline: kernels::Baseline::Mean,
    singleton: kernels::Singleton::Zero,
    normalize_std: true,
    eps: 1e-4,
};

/// The advantages of the rows that have a value; 0 for the others.
fn scored(values: &[Option<f64>], of: impl Fn(&[f64], &[usize]) -> Vec<f64>) -> Vec<f64> {
    let rows: Vec<usize> = (0..values.len()).filter(|&row| values[row].is_some()).collect();
    let present: Vec<f64> = rows.iter().filter_map(|&row| values[row]).collect();
    let mut all = vec![0.0; values.len()];
    for (row, value) in rows.iter().zip(of(&present, &rows)) {
        all[*row] = value;
    }
    all
}

fn normalized(values: &[f64]) -> Vec<f64> {
    relative_advantages(values, &Segments::single_group(values.len()).into(), None, &TRL).0
}

#[test]
fn group_advantages_of_two_reward_functions_agree_with_trl() {
    let name = "grpo_advantages/two_functions_with_nulls";
    let case = rl_math(name);
    let (params, weights) = (&case["params"], numbers(&case["params"]["reward_weights"]));
    let size = params["num_generations"].as_u64().unwrap() as usize;
    let rewards: Vec<Option<f64>> = matrix(&case["inputs"]["rewards_per_func"])
        .iter()
        .map(|row| {
            let given: Vec<_> = row.iter().map(|x| (!x.is_nan()).then_some(*x)).collect();
            weighted_rewards(&given, &weights)
        })
        .collect();
    let got = scored(&rewards, |values, rows| {
        let groups: Vec<usize> = rows.iter().map(|row| row / size).collect();
        relative_advantages(values, &Grouping::from_row_groups(&groups), None, &TRL).0
    });
    assert_close(name, &got, &numbers(&case["outputs"]["advantages"]), 1e-9);
}

#[test]
fn rewards_normalized_before_they_are_summed_agree_with_trl() {
    let name = "grpo_advantages/normalize_then_sum";
    let case = rl_math(name);
    let (rows, weights) = (matrix(&case["inputs"]["rewards_per_func"]), [1.0, 0.5]);
    let by_group =
        Grouping::from_row_groups(&(0..rows.len()).map(|row| row / 4).collect::<Vec<_>>());
    let each = [0, 1].map(|k| {
        let values: Vec<f64> = rows.iter().map(|row| row[k]).collect();
        relative_advantages(&values, &by_group, None, &TRL).0
    });
    let sums: Vec<f64> = (0..rows.len())
        .filter_map(|row| weighted_rewards(&[Some(each[0][row]), Some(each[1][row])], &weights))
        .collect();
    assert_close(name, &normalized(&sums), &numbers(&case["outputs"]["advantages"]), 1e-9);
}

#[test]
fn leave_one_out_of_clipped_missing_and_penalized_rewards_agrees_with_trl() {
    for name in ["normalized", "clipped", "nulls", "kl_in_reward"] {
        let name = format!("rloo_advantages/{name}");
        let case = rl_math(&name);
        let params = &case["params"];
        let mut rewards: Vec<f64> = matrix(&case["inputs"]["rewards_per_func"]).concat();
        if let Some(range) = params["reward_clip_range"].as_array() {
            let bound = |i: usize| range[i].as_f64().unwrap();
            rewards.iter_mut().for_each(|reward| *reward = reward.clamp(bound(0), bound(1)));
        }
        let beta = params["beta"].as_f64().unwrap();
        if beta > 0.0 {
            let of = |key: &str| matrix(&case["inputs"][key]);
            let (logp, reference, mask) = (of("logps"), of("ref_logps"), of("completion_mask"));
            for (row, reward) in rewards.iter_mut().enumerate() {
                let k1 = |t: usize| kl(Kl::K1, logp[row][t], reference[row][t]).value;
                *reward -= beta * (0..mask[row].len()).map(|t| mask[row][t] * k1(t)).sum::<f64>();
            }
        }
        let given: Vec<_> = rewards.iter().map(|x| (!x.is_nan()).then_some(*x)).collect();
        let mut got = scored(&given, |values, rows| {
            let groups: Vec<usize> = rows.iter().map(|row| row / 4).collect();
            let baseline = kernels::Baseline::LeaveOneOut;
            let options = Relative { baseline, normalize_std: false, ..TRL };
            relative_advantages(values, &Grouping::from_row_groups(&groups), None, &options).0
        });
        if params["normalize_advantages"] == true {
            got = normalized(&got);
        }
        assert_close(&name, &got, &numbers(&case["outputs"]["advantages"]), 1e-9);
    }
}

#[test]
fn rewards_with_kl_and_their_advantages_agree_with_trl() {
    for name in
        ["1.0,lam=0.95,kl=k1", "0.99,lam=0.9,kl=k3", "1.0,lam=1.0,kl=k1", "0.9,lam=0.0,kl=k1"]
    {
        let name = format!("ppo_gae/gamma={name}");
        let case = rl_math(&name);
        let of = |key: &str| matrix(&case["inputs"][key]);
        let (logp, reference, values) = (of("logprobs"), of("ref_logprobs"), of("values"));
        let (scores, ends) =
            (numbers(&case["inputs"]["scores"]), numbers(&case["inputs"]["sequence_lengths"]));
        let param = |key: &str| case["params"][key].as_f64().unwrap();
        let estimator = if case["params"]["kl_estimator"] == "k1" { Kl::K1 } else { Kl::K3 };
        let steps = GaeSteps::all(GaeParams { gamma: param("gamma"), lambda: param("lam") });
        let out = |key: &str| matrix(&case["outputs"][key]);
        let (mut kept, mut want) = (vec![], vec![]);
        for row in 0..logp.len() {
            let (end, width) = (ends[row] as usize, logp[row].len());
            let n = (end + 2).min(width);
            let penalty = |t: usize| {
                if t <= end {
                    -param("kl_coef") * kl(estimator, logp[row][t], reference[row][t]).value
                } else {
                    0.0
                }
            };
            let mut rewards: Vec<f64> = (0..n).map(penalty).collect();
            rewards[n - 1] += scores[row];
            let places = RaggedRows::from_lengths(&[n]);
            let (advantages, returns) =
                gae_advantages(&rewards, &values[row][..n], &[0.0], &places, steps);
            assert_close(&name, &rewards, &out("rewards")[row][..n], 1e-9);
            assert_close(&name, &advantages, &out("advantages_raw")[row][..n], 1e-9);
            assert_close(&name, &returns, &out("returns")[row][..n], 1e-9);
            kept.extend_from_slice(&advantages[..=end]);
            want.extend_from_slice(&out("advantages")[row][..=end]);
        }
        let whitened =
            whiten_groups(&kept, &vec![1; kept.len()], &Segments::single_group(kept.len()));
        assert_close(&name, &whitened, &want, 1e-9);
    }
}

#[test]
fn turns_with_one_prompt_are_compared_with_each_other() {
    let mut plan = plan(&[("t/a", true)]);
    let anchor = Some(AnchorPlan::default());
    let gigpo = GroupPlan { normalize_std: false, anchor, ..by(GroupBy::Task) };
    plan.algorithm.advantage = AdvantagePlan::Group(gigpo);
    let mut good = episode("p", 0, 1.0, vec![turn("t/a", 0), turn("t/a", 1)]);
    let bad = episode("p", 1, 0.0, vec![turn("t/a", 0)]);
    good.turns[1].tokens.as_mut().unwrap().prompt = vec![9];
    let episodes = [good, bad];
    let samples = samples(&episodes, &plan);
    let got = advantages(&episodes, &samples, &plan.algorithm).values;
    // 0.5 of the episode; the first turns against each other have 0.95 and 0, the second turn is alone.
    assert_close("anchors", &got, &[0.5 + 0.475, 0.5, -0.5 - 0.475], 1e-12);
}

#[test]
fn leave_one_out_by_seat_agrees_with_the_reference() {
    let baseline = GroupBaseline::LeaveOneOut;
    let rloo = GroupPlan { baseline, normalize_std: false, ..by(GroupBy::TaskSeat) };
    let want = [0.5, 0.55, -0.75, -1.1, -0.75, 0.5, 0.55, 0.5];
    assert_close("RLOO", &advantages(&[], &golden(), &algorithm(rloo)).values, &want, 1e-6);
}

#[test]
fn mean_and_deviation_may_be_of_the_task_or_of_the_seat() {
    let parts = |mean, deviation| {
        let group = GroupPlan { deviation_by: Some(deviation), ..by(mean) };
        advantages(&[], &golden(), &algorithm(group)).values
    };
    // Row 1 is the verifier's in a solved episode: 1 − 0.6333 over its own σ 0.6351 or that of episodes 0.5966.
    let (task, seat) = (GroupBy::Task, GroupBy::TaskSeat);
    let episodes = [1.0_f64, -0.1 / 3.0, 1.0];
    let mean = episodes.iter().sum::<f64>() / 3.0;
    let std = (episodes.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 2.0).sqrt();
    let own = (2.0 * (1.0_f64 - 1.9 / 3.0).powi(2) + (-0.1_f64 - 1.9 / 3.0).powi(2)) / 2.0;
    let got =
        [parts(seat, seat)[1], parts(seat, task)[1], parts(task, seat)[1], parts(task, task)[1]];
    let want = [
        (1.0 - 1.9 / 3.0) / own.sqrt(),
        (1.0 - 1.9 / 3.0) / std,
        (1.0 - mean) / own.sqrt(),
        (1.0 - mean) / std,
    ];
    assert_close("four baselines", &got, &want, 1e-5);
}

#[test]
fn a_baseline_of_each_seat_moves_after_its_advantages() {
    let mut ema = EmaBaseline::new(0.9);
    assert_eq!(ema.step(&[1.0, 0.0, 2.0], &[0, 0, 1], &CPU), [1.0, 0.0, 2.0]);
    assert_close("ema", &[ema.seats[&0], ema.seats[&1]], &[0.05, 0.2], 1e-12);
    assert_close("ema", &ema.step(&[1.0], &[1], &CPU), &[0.8], 1e-12);
    assert_close("ema", &[ema.seats[&0], ema.seats[&1]], &[0.05, 0.28], 1e-12);
}

/// Seat 0 speaks 0, 1 and 3 times in three episodes, seat 1 once in each; a second task has one episode.
fn ragged() -> Vec<Sample> {
    let mut rows = vec![
        sample("p", 0, 1, 0.3),
        sample("p", 1, 0, 1.0),
        sample("p", 1, 1, 0.9),
        sample("p", 2, 0, 0.0),
        sample("p", 2, 0, -0.1),
        sample("p", 2, 0, 0.2),
        sample("p", 2, 1, 0.0),
        sample("q", 3, 0, 0.7),
    ];
    for (i, row) in rows.iter_mut().enumerate() {
        row.tokens = 1 + i % 3;
    }
    rows
}

fn every_algorithm() -> Vec<AlgorithmPlan> {
    let mut all = vec![];
    let of = |advantage, whiten| AlgorithmPlan { advantage, whiten, ..plan(&[]).algorithm };
    for baseline in [GroupBaseline::Mean, GroupBaseline::LeaveOneOut, GroupBaseline::SecondBest] {
        for (mean, deviation) in [
            (GroupBy::Task, GroupBy::Task),
            (GroupBy::Task, GroupBy::TaskSeat),
            (GroupBy::TaskSeat, GroupBy::Task),
            (GroupBy::TaskSeat, GroupBy::TaskSeat),
        ] {
            for (normalize_std, whiten) in [(true, false), (false, false), (false, true)] {
                let deviation_by = Some(deviation);
                let group = GroupPlan { baseline, deviation_by, normalize_std, ..by(mean) };
                all.push(of(AdvantagePlan::Group(group), whiten));
            }
        }
    }
    for (by, whiten) in [(GroupBy::Task, false), (GroupBy::TaskSeat, true)] {
        all.push(of(AdvantagePlan::Reward(RewardPlan { by, anchor: None }), whiten));
    }
    all
}

#[test]
fn the_order_of_rows_changes_no_advantage() {
    let (rows, order) = (ragged(), [5, 2, 7, 0, 3, 6, 1, 4]);
    let permuted: Vec<Sample> = order.iter().map(|&row| rows[row].clone()).collect();
    for algorithm in every_algorithm() {
        let whole = advantages(&[], &rows, &algorithm).values;
        let got = advantages(&[], &permuted, &algorithm).values;
        let want: Vec<f64> = order.iter().map(|&row| whole[row]).collect();
        assert_close(&format!("{algorithm:?}"), &got, &want, 1e-12);
    }
}

#[test]
fn equal_rewards_teach_nothing_and_one_member_has_no_comparison() {
    for algorithm in every_algorithm().iter().filter(|a| a.advantage.compares_group()) {
        let mut rows = ragged();
        for row in &mut rows {
            row.reward = 0.1;
        }
        let got = advantages(&[], &rows, algorithm);
        assert!(got.groups.flat, "{algorithm:?}");
        assert!(got.values.iter().all(|a| a.abs() < 1e-9), "{algorithm:?}: {:?}", got.values);
        let alone = advantages(&[], &ragged(), algorithm).values;
        if !algorithm.whiten {
            assert_eq!(alone[7], 0.0, "{algorithm:?}");
        }
        assert!(alone.iter().all(|a| a.is_finite() && a.abs() < 100.0), "{algorithm:?}: {alone:?}");
    }
}

#[test]
fn without_a_baseline_a_step_is_flat_when_rewards_are_zero_or_whitened_to_zero() {
    let reward = RewardPlan { by: GroupBy::Task, anchor: None };
    let mut algorithm = algorithm(GroupPlan::default());
    algorithm.advantage = AdvantagePlan::Reward(reward);
    let of = |reward: f64, algorithm: &AlgorithmPlan| {
        let rows = [sample("p", 0, 0, reward), sample("p", 1, 0, reward)];
        advantages(&[], &rows, algorithm).groups.flat
    };
    assert!(of(0.0, &algorithm) && !of(1.0, &algorithm));
    algorithm.whiten = true;
    assert!(of(0.0, &algorithm) && of(1.0, &algorithm));
}

#[test]
fn scores_over_turns_agree_with_the_reference() {
    let scores = vec![vec![1.0, 0.0], vec![0.0, 1.0], vec![1.0, 1.0]];
    let of = |scores: &[Vec<f64>], gamma, share| discounted_scores(scores, gamma, share).concat();
    for (gamma, share, want) in [
        (0.3, ScoreShare::All, [0.892086, 0.172662, 0.230769, 1.0, 1.0, 1.0]),
        (1.0, ScoreShare::All, [0.833333, 0.5, 0.5, 1.0, 1.0, 1.0]),
        (0.3, ScoreShare::Individual, [0.784173, 0.280576, 0.230769, 1.0, 1.0, 1.0]),
    ] {
        assert_close("marl.md 8.1", &of(&scores, gamma, share), &want, 1e-6);
    }
    let short = of(&scores[..2], 0.3, ScoreShare::All);
    assert_close("marl.md 8.1, two turns", &short, &[0.884615, 0.115385, 0.0, 1.0], 1e-6);
    assert_close("undiscounted later", &of(&scores, 0.0, ScoreShare::All), &scores.concat(), 1e-12);
}

#[test]
fn influence_agrees_with_the_published_code_in_its_sign_and_with_the_paper_in_ours() {
    let right = |turns: [[u8; 2]; 3]| turns.map(|turn| turn.map(|x| x == 1).to_vec());
    let bonus = InfluencePlan { follow: 0.1, resist: 0.2, provoke: -0.3, persuade: -0.4 };
    for (turns, want) in [
        ([[1, 0], [0, 1], [1, 1]], [0.0, 0.0, -0.1, -0.3, 0.1, 0.0]),
        ([[0, 0], [1, 0], [1, 1]], [0.0, 0.0, -0.2, 0.0, 0.0, 0.1]),
        ([[1, 1], [0, 1], [0, 0]], [0.0, 0.0, 0.2, 0.0, 0.0, -0.1]),
    ] {
        let got = influence_bonus(&right(turns), &bonus).concat();
        assert_close("marl.md 8.2", &got, &want, 1e-12);
    }
    let ours = InfluencePlan { provoke: 0.3, persuade: 0.4, ..bonus };
    let got = influence_bonus(&right([[1, 0], [0, 1], [1, 1]]), &ours);
    assert_close("sign", &got[1], &[-0.1, 0.1 + 0.4], 1e-12);
    // An agent that is right before the other becomes so is rewarded, and not penalized.
    let got = influence_bonus(&right([[0, 0], [1, 0], [1, 1]]), &ours);
    assert_close("persuaded", &got[1], &[0.2 + 0.4, 0.0], 1e-12);
    // Repeating an answer, right or wrong, has no bonus, and whoever is alone resists.
    for same in [false, true] {
        let got = influence_bonus(&vec![vec![same; 3]; 4], &ours).concat();
        assert_eq!(got, [0.0; 12]);
    }
    assert_eq!(influence_bonus(&[vec![false], vec![true]], &ours), [[0.0], [0.2]]);
}

#[test]
fn margins_and_qualities_agree_with_the_reference() {
    let of = |reward| [margin(reward, 0.25, 0.5), quality(reward, 0.25, 0.5)];
    assert_eq!((of(1.0), of(0.0)), ([1.375, 1.125], [-0.125, -0.375]));
    assert_eq!(difference_rewards(1.0, &[0.0, 1.0]), [1.0, 0.0]);
    assert_eq!(weighted_rewards(&[None, None], &[1.0, 2.0]), None);
}

#[test]
fn similarity_is_that_of_difflib() {
    // SequenceMatcher(None, a, b, autojunk=False).ratio() on the code points.
    let cases = [
        ("abcd", "bcde", 0.75),
        ("", "", 1.0),
        ("kitten", "sitting", 0.6153846153846154),
        ("aaaa", "aa", 0.6666666666666666),
        ("abxcd", "abcd", 0.8888888888888888),
        ("the cat sat", "the hat sits", 0.782608695652174),
        ("xyz", "", 0.0),
    ];
    for (a, b, want) in cases {
        let ids = |text: &str| text.chars().map(u32::from).collect::<Vec<_>>();
        assert_close(&format!("{a:?} {b:?}"), &[similarity(&ids(a), &ids(b))], &[want], 1e-12);
    }
}

#[test]
fn turns_with_similar_prompts_are_compared_where_that_is_wanted() {
    let plan = plan(&[("t/a", true)]);
    let mut episodes: Vec<_> = [1.0, 0.0, 0.5]
        .into_iter()
        .zip(0..)
        .map(|(reward, index)| episode("p", index, reward, vec![turn("t/a", 0)]))
        .collect();
    let prompts = [vec![1, 2, 3, 4], vec![1, 2, 3, 5], vec![9, 9, 9, 9]];
    for (episode, prompt) in episodes.iter_mut().zip(prompts) {
        episode.turns[0].tokens.as_mut().unwrap().prompt = prompt;
    }
    let samples = samples(&episodes, &plan);
    let step = rewarded_step(&episodes, &samples, None, GroupBy::Task);
    let groups = |least| anchor::groups(&step.view(), least).group;
    assert_eq!(groups(1.0), [0, 1, 2]);
    assert_eq!(groups(0.8), [0, 1, 2]);
    assert_eq!(groups(0.75), [0, 0, 1]);
    assert_eq!(groups(0.01), [0, 0, 1]);
}

#[test]
fn a_greedy_episode_is_compared_with_and_not_trained_on() {
    let mut plan = plan(&[("t/a", true), ("t/b", true)]);
    plan.algorithm.advantage = AdvantagePlan::Greedy(GreedyPlan::default());
    let two = std::num::NonZeroU32::new(2).unwrap();
    plan.config = plan.config.with(|config| config.task.group_size = two);
    let turns = || vec![turn("t/a", 0), turn("t/b", 1)];
    let mut greedy = episode("p", 2, 0.25, vec![turn("t/a", 0), turn("t/a", 1)]);
    greedy.rewards.push(RewardPart { name: "x".to_owned(), value: 0.5, of: RewardOf::Turn(1) });
    let episodes = [
        episode("p", 0, 1.0, turns()),
        episode("p", 1, 0.0, turns()),
        greedy,
        episode("q", 0, 1.0, turns()), // its greedy episode was not scored
    ];
    let mut found = samples(&episodes, &plan);
    assert_eq!(found.len(), 6);
    baselines(&plan, &episodes, &mut found, &mut EmaBaseline::default(), &CPU);
    // Seat a earned 0.25 and 0.75 greedily; b did not speak then.
    assert_eq!(found.iter().map(|s| s.baseline).collect::<Vec<_>>(), [0.5; 4]);
    let values = advantages(&episodes, &found, &plan.algorithm).values;
    assert_eq!(values, [0.5, 0.5, -0.5, -0.5]);
}

#[test]
fn a_greedy_episode_is_shaped_as_the_samples_that_are_compared_with_it() {
    let mut plan = plan(&[("t/a", true)]);
    plan.algorithm.advantage = AdvantagePlan::Greedy(GreedyPlan::default());
    plan.config = plan.config.with(|config| config.task.group_size = std::num::NonZeroU32::MIN);
    let debate = |index| {
        let mut debate = episode("p", index, 0.0, vec![turn("t/a", 0), turn("t/a", 1)]);
        let of = RewardOf::Turn(1);
        debate.rewards.push(RewardPart { name: "right".to_owned(), value: 1.0, of });
        debate
    };
    for shaping in [Shaping::None, Shaping::Margin(ShapingPlan::default())] {
        plan.algorithm.shaping = shaping;
        let episodes = [debate(0), debate(1)];
        let mut found = samples(&episodes, &plan);
        shaped_rewards(&episodes, &mut found, &plan.algorithm);
        baselines(&plan, &episodes, &mut found, &mut EmaBaseline::default(), &CPU);
        let last = if shaping == Shaping::None { 1.0 } else { 1.5 };
        assert_eq!(found.iter().map(|s| s.reward).collect::<Vec<_>>(), [0.0, last]);
        assert_eq!(found.iter().map(|s| s.baseline).collect::<Vec<_>>(), [last / 2.0; 2]);
    }
}

#[test]
fn a_moving_average_is_taken_off_before_it_moves() {
    let mut plan = plan(&[("t/a", true), ("t/b", true)]);
    let average = MovingAveragePlan { momentum: 0.5, ..MovingAveragePlan::default() };
    plan.algorithm.advantage = AdvantagePlan::MovingAverage(average);
    let mut averages = EmaBaseline::default();
    let mut step = |rewards: [f64; 2]| {
        let of =
            |(reward, index)| episode("p", index, reward, vec![turn("t/a", 0), turn("t/b", 1)]);
        let episodes: Vec<_> = rewards.into_iter().zip(0..).map(of).collect();
        let mut found = samples(&episodes, &plan);
        baselines(&plan, &episodes, &mut found, &mut averages, &CPU);
        advantages(&episodes, &found, &plan.algorithm).values
    };
    assert_eq!(step([1.0, 0.0]), [1.0, 1.0, 0.0, 0.0]);
    assert_eq!(step([1.0, 1.0]), [0.75; 4]);
    assert_eq!(averages.of(1), 0.625);
}

#[test]
fn rewards_are_shaped_by_those_of_earlier_rounds() {
    let mut plan = plan(&[("t/a", true), ("t/b", true)]);
    let turns = (0..4).map(|i| turn(if i % 2 == 0 { "t/a" } else { "t/b" }, i)).collect();
    let mut debate = episode("p", 0, 0.0, turns);
    for (turn, value) in [(0, 0.5), (2, 1.0)] {
        let of = RewardOf::Turn(turn);
        debate.rewards.push(RewardPart { name: "right".to_owned(), value, of });
    }
    let debate = [debate];
    let mut shaped = |shaping| {
        plan.algorithm.shaping = shaping;
        let mut found = samples(&debate, &plan);
        shaped_rewards(&debate, &mut found, &plan.algorithm);
        found.iter().map(|sample| sample.reward).collect::<Vec<_>>()
    };
    assert_eq!(shaped(Shaping::None), [0.5, 0.0, 1.0, 0.0]);
    // marl.md 8.8: Q = 0.25.
    assert_eq!(shaped(Shaping::Margin(ShapingPlan::default())), [0.5, 0.0, 1.375, -0.125]);
    assert_eq!(shaped(Shaping::Quality(ShapingPlan::default())), [0.5, 0.0, 1.125, -0.375]);
}

#[test]
fn the_four_baselines_of_dr_mas_are_of_rows_of_a_seat_or_of_all() {
    // Computed by Python's `statistics` (sample deviation, 1e-6 added) from the rows of the golden batch.
    let of = |mean, deviation| {
        let group = GroupPlan { deviation_by: Some(deviation), ..by(mean) };
        advantages(&[], &golden(), &algorithm(group)).values
    };
    let cases = [
        (
            "mean Turn, deviation Turn",
            [GroupBy::TaskTurn, GroupBy::TaskTurn],
            [0.723364, 0.723364, -1.143382, -1.330057, -1.143382, 0.723364, 0.723364, 0.723364],
        ),
        (
            "mean Turn, deviation Seat",
            [GroupBy::TaskTurn, GroupBy::TaskSeat],
            [0.707474, 0.610153, -1.118265, -1.121895, -1.118265, 0.707474, 0.610153, 0.707474],
        ),
        (
            "mean Seat, deviation Turn",
            [GroupBy::TaskSeat, GroupBy::TaskTurn],
            [0.746698, 0.684474, -1.120048, -1.368947, -1.120048, 0.746698, 0.684474, 0.746698],
        ),
        (
            "mean Seat, deviation Seat",
            [GroupBy::TaskSeat, GroupBy::TaskSeat],
            [0.730295, 0.577349, -1.095443, -1.154699, -1.095443, 0.730295, 0.577349, 0.730295],
        ),
    ];
    for (name, [mean, deviation], want) in cases {
        assert_close(name, &of(mean, deviation), &want, 1e-5);
    }
}

/// Gives each token the part `score` of its row's reward, plus its seat and its group.
struct Seen;

impl crate::credit::Advantage for Seen {
    fn estimate(&self, step: &crate::credit::Rewarded<'_>, out: &mut [f64]) {
        assert_eq!(out.len(), step.tokens());
        assert_eq!(step.values, None);
        let names: Vec<&str> = step.parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["score", "bonus", "other"]);
        for row in 0..step.len() {
            let sum: f64 = step.parts.iter().map(|part| part.values[row]).sum();
            assert!((sum - step.rewards[row]).abs() < 1e-12);
            let seen = step.parts[0].values[row] + 10.0 * step.seats[row] as f64;
            out[2 * row..2 * row + 2].fill(seen + 100.0 * step.groups[row] as f64);
        }
    }

    fn by_token(&self) -> bool {
        true
    }
}

#[test]
fn a_declared_estimator_sees_parts_and_dense_ids_and_gives_an_advantage_for_each_token() {
    let plan = plan(&[("t/a", true), ("t/b", true)]);
    let turns = || vec![turn("t/a", 0), turn("t/b", 1)];
    let mut episodes = [episode("p", 0, 1.0, turns()), episode("q", 0, 0.25, turns())];
    let of = RewardOf::Turn(1);
    episodes[0].rewards.push(RewardPart { name: "bonus".to_owned(), value: 0.5, of });
    let mut samples = samples(&episodes, &plan);
    samples[3].reward += 0.125;
    let chosen = Chosen { name: "t/seen".to_owned(), options: Value::Null };
    let seen = Instance { chosen, value: std::sync::Arc::new(Seen) as _ };
    let algorithm = AlgorithmPlan { advantage: AdvantagePlan::Declared(seen), ..plan.algorithm };
    let got = declared_advantages(&episodes, &samples, &[], &algorithm, &CPU).unwrap();
    assert_eq!(got, [[1.0, 1.0], [111.0, 111.0], [200.25, 200.25], [310.25, 310.25]]);
}

#[test]
fn every_estimator_gives_what_training_takes() {
    let plan = plan(&[("t/a", true), ("t/b", true)]);
    let turns = || vec![turn("t/a", 0), turn("t/b", 1), turn("t/a", 2)];
    let mut episodes = [
        episode("p", 0, 1.0, turns()),
        episode("p", 1, 0.25, turns()),
        episode("q", 0, 0.5, turns()),
    ];
    let of = RewardOf::Turn(1);
    episodes[0].rewards.push(RewardPart { name: "bonus".to_owned(), value: 0.5, of });
    let samples = samples(&episodes, &plan);
    let anchor = Some(AnchorPlan { weight: 0.5, ..AnchorPlan::default() });
    for advantage in [
        AdvantagePlan::Group(GroupPlan {
            deviation_by: Some(GroupBy::Task),
            ..GroupPlan::default()
        }),
        AdvantagePlan::Group(GroupPlan { anchor, ..by(GroupBy::Task) }),
        AdvantagePlan::Reward(RewardPlan { by: GroupBy::Task, anchor }),
        AdvantagePlan::Greedy(GreedyPlan::default()),
        AdvantagePlan::MovingAverage(MovingAveragePlan::default()),
    ] {
        let estimator = advantage.estimator().unwrap();
        let step = rewarded_step(&episodes, &samples, None, estimator.group_by());
        let algorithm = AlgorithmPlan { advantage: advantage.clone(), ..plan.algorithm.clone() };
        let trained = advantages(&episodes, &samples, &algorithm).values;
        assert_eq!(step.estimate(estimator), trained, "{advantage:?}");
    }
}
