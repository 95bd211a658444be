//! Teachers of a step: log-probabilities of sampled replies under other weights, or with a hint, as a part of the advantages; or the
//! log-probs of the most probable tokens, for a loss.
//!
//! The equations are in `algo/advantage/distill.rs`, and of the loss in the engine's `loss/teacher.rs`. Teachers score rows in one
//! pass for each policy, which computes what the rows begin with once.

use std::collections::BTreeMap;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::algo::advantage::{add_teacher, teacher_differences};
use crate::algo::{Row, Sample, row};
use crate::config::{DistillKind, DistillPlan, DistillSupport};
use crate::metrics::Metrics;
use crate::plan::{Plan, TeacherSource};
use crate::runtime::{Policy, RuntimeError, TeacherTokens, TopTokens};
use crate::train::error::TrainError;
use crate::train::learner::batches::StepAdvantages;
use crate::train::learner::hints::hinted_prompt;
use crate::train::ranks::join_all;
use crate::train::record::measure::mean_of;
use crate::train::record::whole_or_mean;
use crate::trajectory::Episode;

/// Weights that score a turn.
enum Scorer {
    /// A policy, or its reference.
    Policy(usize, bool),
    /// An endpoint, with the log-probs that are recorded with the turn.
    Endpoint(Vec<f32>),
}

impl Scorer {
    /// Returns the policy of this process that scores, and true if its reference does.
    fn here(&self) -> Option<(usize, bool)> {
        match self {
            Self::Policy(policy, reference) => Some((*policy, *reference)),
            Self::Endpoint(_) => None,
        }
    }
}

/// A turn that a teacher scores.
struct TaughtTurn {
    /// Index of its sample.
    sample: usize,
    /// Weights that score it.
    scorer: Scorer,
    /// Row that the policy sampled.
    own: Row,
    /// Row that the teacher reads, with its hint.
    read: Row,
}

/// Scores of taught turns.
struct Scores {
    /// Log-probs of the sampled tokens under the teacher, `[N][T]`.
    sampled: Vec<Vec<f32>>,
    /// Tokens that are compared, with the teacher's log-probs, `[N]`; empty if none are.
    tops: Vec<TopTokens>,
}

/// Adds the terms of teachers to the advantages of a step, or the distributions of teachers. In a step without a signal of rewards,
/// they are the whole signal.
pub(crate) async fn teach(
    plan: &Plan,
    policies: &[Policy],
    (episodes, samples): (&[Episode], &[Sample]),
    advantages: &mut StepAdvantages,
) -> Result<(), TrainError> {
    if plan.teachers.is_empty() {
        return Ok(());
    }
    let (turns, unfit) = taught_turns(plan, policies, episodes, samples)?;
    let scored = (samples, turns.as_slice());
    let Scores { sampled, tops } = scores(&plan.algorithm.distill, policies, scored).await?;
    let own = policy_logprobs(policies, samples, &turns).await?;
    if advantages.flat {
        advantages.tokens.iter_mut().flatten().for_each(|advantage| *advantage = 0.0);
    }
    let scored = (turns.as_slice(), sampled.as_slice(), own.as_slice());
    advantages.metrics.extend(teacher_metrics(plan, samples, scored, (&tops, &unfit)));
    let distill = &plan.algorithm.distill;
    let taught = if distill.kind == DistillKind::Divergence { turns.len() } else { 0 };
    if taught > 0 {
        advantages.taught = vec![None; samples.len()];
    }
    let coefs = turns.iter().map(|turn| {
        plan.seats[samples[turn.sample].seat].teachers.as_ref().map_or(0.0, |of| of.coef)
    });
    let coefs: Vec<f64> = coefs.collect();
    for ((turn, top), coef) in turns.iter().zip(tops).zip(&coefs) {
        let TopTokens { ids, logprobs, .. } = top;
        let teacher = TeacherTokens { ids, logprobs, coef: *coef as f32 };
        advantages.taught[turn.sample] = Some(teacher);
    }
    for (((turn, teacher), own), coef) in turns.iter().zip(&sampled).zip(&own).zip(coefs) {
        let coef = if taught > 0 { 0.0 } else { coef };
        let differences = teacher_differences(distill, teacher, own);
        add_teacher(distill.task_coef, coef, &differences, &mut advantages.tokens[turn.sample]);
        let terms = differences.iter().map(|difference| coef * difference);
        let record = &mut advantages.record.samples[turn.sample];
        record.teacher = Some(mean_of(terms));
        let (total, tokens) = whole_or_mean(&advantages.tokens[turn.sample]);
        (record.taught, record.taught_tokens) = (Some(total), tokens);
    }
    let all = advantages.tokens.iter().flatten();
    advantages.flat = taught == 0 && all.into_iter().all(|advantage| *advantage == 0.0);
    Ok(())
}

/// Returns the scores of taught turns.
async fn scores(
    distill: &DistillPlan,
    policies: &[Policy],
    (samples, turns): (&[Sample], &[TaughtTurn]),
) -> Result<Scores, RuntimeError> {
    if distill.kind == DistillKind::Advantage {
        let sampled = teacher_logprobs(policies, turns).await?;
        return Ok(Scores { sampled, tops: Vec::new() });
    }
    let k = distill.top_k.get();
    let mut tops = match distill.support {
        DistillSupport::Teacher => {
            let rows = here(turns).map(|(scorer, turn)| (scorer, &turn.read));
            let rows: Vec<_> = rows.collect();
            under_weights(policies, &rows, |scorer, rows| top_tokens(scorer, rows, k).boxed())
                .await?
        }
        DistillSupport::Student => {
            let rows = with_student_support(policies, (samples, turns), k).await?;
            let rows: Vec<_> = rows.iter().map(|(scorer, row)| (*scorer, row)).collect();
            under_weights(policies, &rows, |scorer, rows| given_tokens(scorer, rows).boxed())
                .await?
        }
    };
    let sampled = tops.iter_mut().map(|top| std::mem::take(&mut top.sampled)).collect();
    Ok(Scores { sampled, tops })
}

/// Returns the turns that policies of this process score, each with its scorer.
fn here(turns: &[TaughtTurn]) -> impl Iterator<Item = ((usize, bool), &TaughtTurn)> {
    turns.iter().filter_map(|turn| Some((turn.scorer.here()?, turn)))
}

/// Returns the rows that teachers read, with the `k` tokens in each place that the policy finds most probable.
async fn with_student_support(
    policies: &[Policy],
    (samples, turns): (&[Sample], &[TaughtTurn]),
    k: usize,
) -> Result<Vec<((usize, bool), Row)>, RuntimeError> {
    let policy = |turn: &TaughtTurn| (samples[turn.sample].policy, false);
    let own: Vec<_> = here(turns).map(|(_, turn)| (policy(turn), &turn.own)).collect();
    let tops =
        under_weights(policies, &own, |scorer, rows| top_tokens(scorer, rows, k).boxed()).await?;
    let mut rows = Vec::with_capacity(tops.len());
    for ((scorer, turn), TopTokens { ids, .. }) in here(turns).zip(tops) {
        // The log-probs are those that the teacher gives to the tokens.
        let teacher = TeacherTokens { logprobs: vec![0.0; ids.len()], ids, coef: 0.0 };
        rows.push((scorer, Row { teacher: Some(teacher), ..turn.read.clone() }));
    }
    Ok(rows)
}

/// Returns the turns that teachers score, and the samples whose prompt does not fit the teacher's context with the hint.
fn taught_turns(
    plan: &Plan,
    policies: &[Policy],
    episodes: &[Episode],
    samples: &[Sample],
) -> Result<(Vec<TaughtTurn>, Vec<usize>), TrainError> {
    let (mut turns, mut unfit) = (Vec::new(), Vec::new());
    for index in 0..samples.len() {
        let Some(turn) = taught_turn(plan, policies, episodes, (samples, index))? else { continue };
        let tokens = turn.read.prompt.len() + turn.read.completion.len();
        match turn.scorer {
            Scorer::Policy(policy, _) if tokens > policies[policy].context() => unfit.push(index),
            _ => turns.push(turn),
        }
    }
    Ok((turns, unfit))
}

/// Returns a sample with its teacher; `None` if it has none, if its hint is empty, or if an endpoint has not scored it.
fn taught_turn(
    plan: &Plan,
    policies: &[Policy],
    episodes: &[Episode],
    (samples, index): (&[Sample], usize),
) -> Result<Option<TaughtTurn>, TrainError> {
    let sample = &samples[index];
    let Some(teacher) = plan.teacher_of(sample.seat, &sample.task.source) else { return Ok(None) };
    let teacher = &plan.teachers[teacher];
    let scorer = match &teacher.source {
        TeacherSource::Policy(policy) => Scorer::Policy(*policy, false),
        TeacherSource::Current => Scorer::Policy(sample.policy, false),
        TeacherSource::Reference => Scorer::Policy(sample.policy, true),
        TeacherSource::Endpoint { .. } => {
            let recorded = &episodes[sample.episode].turns[sample.turn].teacher;
            let Some(score) = recorded else { return Ok(None) };
            Scorer::Endpoint(score.logprobs.clone())
        }
    };
    let own = row(plan, episodes, sample, &[]);
    // The teacher's routers choose for themselves.
    let mut read = Row { routes: None, ..own.clone() };
    if let Some(hint) = &teacher.hint {
        let tokenizer = policies[sample.policy].tokenizer();
        let prompt = hinted_prompt(tokenizer, hint, episodes, sample).map_err(|source| {
            let (teacher, task) = (teacher.name.clone(), sample.task.id.clone());
            TrainError::Hint { teacher, task, source }
        })?;
        let Some(prompt) = prompt else { return Ok(None) };
        read.prompt = prompt;
    }
    Ok(Some(TaughtTurn { sample: index, scorer, own, read }))
}

/// Returns the log-probs of taught turns by their teachers. `[N][T]`
async fn teacher_logprobs(
    policies: &[Policy],
    turns: &[TaughtTurn],
) -> Result<Vec<Vec<f32>>, RuntimeError> {
    let here = turns.iter().filter_map(|turn| Some((turn.scorer.here()?, &turn.read)));
    let mut found = logprobs_under(policies, &here.collect::<Vec<_>>()).await?.into_iter();
    let all = turns.iter().map(|turn| match &turn.scorer {
        Scorer::Policy(..) => found.next().unwrap_or_default(),
        Scorer::Endpoint(recorded) => recorded.clone(),
    });
    Ok(all.collect())
}

/// Computes the log-probs of rows, each under the weights of a policy or of its reference. `[N][T]`
pub(super) async fn logprobs_under(
    policies: &[Policy],
    rows: &[((usize, bool), &Row)],
) -> Result<Vec<Vec<f32>>, RuntimeError> {
    under_weights(policies, rows, |scorer, rows| logprobs(scorer, rows).boxed()).await
}

/// Computes something of rows, each under the weights of a policy or of its reference, in one pass for each. `[N]`
async fn under_weights<'p, T: Clone + Default>(
    policies: &'p [Policy],
    rows: &[((usize, bool), &Row)],
    compute: impl Fn((&'p Policy, bool), Vec<Row>) -> BoxFuture<'p, Result<Vec<T>, RuntimeError>>,
) -> Result<Vec<T>, RuntimeError> {
    let mut groups: BTreeMap<(usize, bool), Vec<usize>> = BTreeMap::new();
    for (index, (scorer, _)) in rows.iter().enumerate() {
        groups.entry(*scorer).or_default().push(index);
    }
    let passes = groups.into_iter().map(async |((policy, reference), indices)| {
        let rows = indices.iter().map(|&index| rows[index].1.clone()).collect();
        let found = compute((&policies[policy], reference), rows).await?;
        Ok::<_, RuntimeError>(indices.into_iter().zip(found))
    });
    let mut all = vec![T::default(); rows.len()];
    for (index, found) in join_all(policies, passes).await?.into_iter().flatten() {
        all[index] = found;
    }
    Ok(all)
}

/// Computes the log-probs of rows under a policy, or under its reference.
async fn logprobs(
    (policy, reference): (&Policy, bool),
    rows: Vec<Row>,
) -> Result<Vec<Vec<f32>>, RuntimeError> {
    if reference { policy.reference(rows).await } else { policy.logprobs(rows).await }
}

/// Computes the most probable tokens of rows under a policy, or under its reference.
async fn top_tokens(
    (policy, reference): (&Policy, bool),
    rows: Vec<Row>,
    k: usize,
) -> Result<Vec<TopTokens>, RuntimeError> {
    if reference {
        policy.reference_top_tokens(rows, k).await
    } else {
        policy.top_tokens(rows, k).await
    }
}

/// Computes the log-probs of given tokens of rows under a policy, or under its reference.
async fn given_tokens(
    (policy, reference): (&Policy, bool),
    rows: Vec<Row>,
) -> Result<Vec<TopTokens>, RuntimeError> {
    if reference {
        policy.reference_given_tokens(rows).await
    } else {
        policy.given_tokens(rows).await
    }
}

/// Returns the policy's log-probs of taught turns: those of sampling, or the trainer's where the loss corrects differences
/// between the two. `[N][T]`
async fn policy_logprobs(
    policies: &[Policy],
    samples: &[Sample],
    turns: &[TaughtTurn],
) -> Result<Vec<Vec<f32>>, RuntimeError> {
    let mut own: Vec<Vec<f32>> = turns.iter().map(|turn| turn.own.logprobs.clone()).collect();
    let corrected: Vec<usize> =
        (0..turns.len()).filter(|&at| turns[at].own.loss.is_corrected()).collect();
    let rows =
        corrected.iter().map(|&at| ((samples[turns[at].sample].policy, false), &turns[at].own));
    let found = logprobs_under(policies, &rows.collect::<Vec<_>>()).await?;
    for (at, found) in corrected.into_iter().zip(found) {
        own[at] = found;
    }
    Ok(own)
}

/// Returns the metrics of the teachers of each policy. A policy without a teacher has none.
fn teacher_metrics(
    plan: &Plan,
    samples: &[Sample],
    (turns, teacher, own): (&[TaughtTurn], &[Vec<f32>], &[Vec<f32>]),
    (tops, unfit): (&[TopTokens], &[usize]),
) -> Metrics {
    let mut metrics = Metrics::default();
    for (index, policy) in plan.policies.iter().enumerate() {
        let is_its = |sample: usize| samples[sample].policy == index;
        let its = turns.iter().zip(teacher).zip(own).filter(|((turn, _), _)| is_its(turn.sample));
        let differences: Vec<Vec<f64>> = its
            .map(|((_, teacher), own)| {
                let both = teacher.iter().zip(own);
                both.map(|(&t, &s)| f64::from(t) - f64::from(s)).collect()
            })
            .collect();
        let tops = turns.iter().zip(tops).filter(|(turn, _)| is_its(turn.sample));
        let entropies: Vec<f64> =
            tops.flat_map(|(_, top)| &top.entropies).map(|&entropy| f64::from(entropy)).collect();
        let unfit = unfit.iter().filter(|sample| is_its(**sample)).count();
        if differences.is_empty() && unfit == 0 {
            continue;
        }
        let all: usize =
            samples.iter().filter(|its| its.policy == index).map(|its| its.tokens).sum();
        let tokens: Vec<f64> = differences.iter().flatten().copied().collect();
        let first: Vec<f64> = differences.iter().filter_map(|row| row.first().copied()).collect();
        let mut set = |name: &str, value: f64| {
            metrics.set(format!("distill/{}/{name}", policy.name), value);
        };
        set("share", tokens.len() as f64 / all.max(1) as f64);
        set("unfit", unfit as f64);
        if !tokens.is_empty() {
            set("length", tokens.len() as f64 / differences.len() as f64);
            set("first_token", mean_of(first));
            set("kl", 0.0 - mean_of(tokens));
        }
        if !entropies.is_empty() {
            set("teacher_entropy", mean_of(entropies));
        }
    }
    metrics
}
