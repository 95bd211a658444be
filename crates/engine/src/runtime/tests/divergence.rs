//! Updates with the divergence from a teacher.

use super::ranks::testing::on_ranks;
use super::slopes::{assert_slopes, first_moments};
use super::splits::updated_alike;
use super::*;
use crate::loss::{DistillOptions, TeacherDivergence, teacher_divergence};
use crate::text::{ChatInput, ChatMessage};
use maverl_dist::Ranks;

const DIVERGENCES: [TeacherDivergence; 3] =
    [TeacherDivergence::Reverse, TeacherDivergence::Forward, TeacherDivergence::Jsd];
/// Log-probs of a teacher's tokens, which have less than all of the probability.
const TEACHER: [f32; 3] = [-0.9, -1.6, -2.4];

/// Returns rows without advantages, of which all but the second have a teacher.
fn taught_rows() -> Vec<Row> {
    let mut rows = given_rows(500, -5.0);
    rows.truncate(6);
    for (index, row) in rows.iter_mut().enumerate() {
        row.advantages.fill(0.0);
        let places = row.completion.len();
        let ids = (0..places as u32 * 3).map(|place| (place * 31 + index as u32 * 7) % 500);
        let (ids, logprobs) = (ids.collect(), TEACHER.repeat(places));
        row.teacher = (index != 1).then_some(TeacherTokens { ids, logprobs, coef: 0.5 });
    }
    rows
}

fn taught(options: DistillOptions) -> Batch {
    Batch { distill: options, lr: 1e-3, ..batch(taught_rows()) }
}

/// Computes the loss of a batch from log-probs of single tokens.
async fn loss_of(policy: &Policy, batch: &Batch) -> f64 {
    let (mut sum, mut tokens, mut coef) = (0.0, 0, 0.0);
    for row in &batch.rows {
        let Some(teacher) = &row.teacher else { continue };
        let k = teacher.ids.len() / row.completion.len();
        let places = teacher.ids.chunks_exact(k).zip(teacher.logprobs.chunks_exact(k));
        for (place, (ids, other)) in places.enumerate() {
            let single = ids.iter().map(|&id| Row {
                prompt: [&row.prompt[..], &row.completion[..place]].concat(),
                completion: vec![id],
                ..Row::default()
            });
            let own = policy.logprobs(single.collect()).await.unwrap().concat();
            let mut slopes = vec![0.0; k];
            let found = teacher_divergence(&batch.distill, &own, other, &mut slopes);
            (sum, tokens) = (sum + found.value, tokens + 1);
        }
        coef = f64::from(teacher.coef);
    }
    coef * sum / f64::from(tokens)
}

#[tokio::test]
async fn the_gradient_of_a_divergence_is_the_difference_of_its_loss() {
    for divergence in DIVERGENCES {
        for tail in [true, false] {
            let batch = taught(DistillOptions { divergence, beta: 0.3, tail });
            let loss = async |policy: &Policy| loss_of(policy, &batch).await;
            let name = format!("{divergence:?}, tail {tail}");
            assert_slopes(&name, (setup(&["p"]), batch.clone()), loss).await;
        }
    }
}

#[tokio::test]
async fn the_most_probable_tokens_have_the_log_probs_of_the_policy_in_any_micro_batches() {
    let rows = given_rows(500, -5.0);
    let mut found = Vec::new();
    for tokens in [4096, 16] {
        let mut setup = setup(&["p"]);
        setup.options.micro_batch_tokens = tokens.try_into().unwrap();
        let policy = setup.start().policies()[0].clone();
        let tops = policy.top_tokens(rows.clone(), 3).await.unwrap();
        let sampled: Vec<Vec<f32>> = tops.iter().map(|top| top.sampled.clone()).collect();
        assert_eq!(sampled, policy.logprobs(rows.clone()).await.unwrap());
        found.push(tops);
        let last = |id: u32| Row { completion: vec![id], ..rows[4].clone() };
        let top = &found[0][4];
        let single: Vec<Row> = top.ids[..3].iter().map(|&id| last(id)).collect();
        let own = policy.logprobs(single).await.unwrap().concat();
        assert_eq!(own, top.logprobs[..3]);
        assert!(own.is_sorted_by(|a, b| a >= b), "{own:?}");
        let all = policy.top_tokens(rows.clone(), 1_000_000).await.unwrap();
        let vocab = all[4].ids.len() / rows[4].completion.len();
        assert!(vocab < 10_000, "all tokens of the vocabulary, and no more: {vocab}");
        let mass: f64 = all[4].logprobs[..vocab].iter().map(|&p| f64::from(p).exp()).sum();
        assert!((mass - 1.0).abs() < 1e-5, "{mass}");
        let entropy: f64 =
            all[4].logprobs[..vocab].iter().map(|&p| -f64::from(p).exp() * f64::from(p)).sum();
        assert!((entropy - f64::from(top.entropies[0])).abs() < 1e-4, "{entropy}");
    }
    assert_eq!(found[0], found[1]);
}

#[tokio::test]
async fn a_teacher_with_coefficient_zero_changes_no_bit_of_a_batch() {
    let policy = || setup(&["p"]).start().policies()[0].clone();
    let mut rows = given_rows(500, -5.0);
    let plain = policy();
    let without = plain.update(batch(rows.clone())).await.unwrap();
    for (row, taught) in rows.iter_mut().zip(taught_rows()) {
        row.teacher = taught.teacher.map(|teacher| TeacherTokens { coef: 0.0, ..teacher });
    }
    let taught = policy();
    let with = taught.update(batch(rows)).await.unwrap();
    assert_eq!(taught.fingerprint().await.unwrap(), plain.fingerprint().await.unwrap());
    assert_eq!((with.loss, without.divergence), (without.loss, None));
    assert!(with.divergence.is_some_and(|found| found.mean > 0.0 && found.mass > 0.0));
}

#[test]
fn a_divergence_falls_and_no_split_into_micro_batches_or_ranks_changes_it() {
    let whole =
        updated_alike(|| taught(DistillOptions::default()), |stats| stats.divergence.unwrap().mean);
    let [first, last] = [&whole[0], &whole[3]].map(|stats| stats.divergence.unwrap());
    assert!((whole[0].loss - 0.5 * first.mean).abs() < 1e-6, "{whole:?}");
    assert!(last.mean < first.mean && last.mass > first.mass, "{whole:?}");
}

/// Model whose most probable tokens are compared.
#[derive(Debug, Clone, Copy)]
enum Whose {
    Student,
    Teacher,
}

/// Returns a trained policy of the model `tiny`, and the model `generalist`, which is not trained.
fn with_generalist() -> Setup {
    let mut setup = setup(&["p"]);
    let mut teacher = WorkerSpec::new("t", ModelSource::Builtin("generalist".to_owned()));
    teacher.policies[0].trained = false;
    setup.workers.push(teacher);
    setup
}

fn set_teachers(rows: &mut [Row], tops: Vec<TopTokens>) {
    for (row, TopTokens { ids, logprobs, .. }) in rows.iter_mut().zip(tops) {
        row.teacher = Some(TeacherTokens { ids, logprobs, coef: 1.0 });
    }
}

/// Gives rows a teacher, which is compared with the student on `k` tokens in each place.
async fn teach(runtime: &Runtime, rows: &mut [Row], (whose, k): (Whose, usize)) {
    let [student, teacher] = runtime.policies() else { panic!("two policies") };
    let tops = match whose {
        Whose::Teacher => teacher.top_tokens(rows.to_vec(), k).await.unwrap(),
        Whose::Student => {
            let own = student.top_tokens(rows.to_vec(), k).await.unwrap();
            set_teachers(rows, own);
            teacher.given_tokens(rows.to_vec()).await.unwrap()
        }
    };
    set_teachers(rows, tops);
}

/// Returns rows without advantages, with a teacher that is compared on the student's tokens.
fn rows_of_student(tokens: usize, ranks: Option<&Ranks>) -> Vec<Row> {
    let mut rows = given_rows(500, -5.0);
    rows.truncate(6);
    rows.iter_mut().for_each(|row| row.advantages.fill(0.0));
    let mut setup = with_generalist();
    setup.options.micro_batch_tokens = tokens.try_into().unwrap();
    let runtime = Runtime::start_on(&setup.workers, &setup.options, ranks).unwrap();
    let executor = tokio::runtime::Builder::new_current_thread().build().unwrap();
    executor.block_on(teach(&runtime, &mut rows, (Whose::Student, 4)));
    if let Some(ranks) = ranks {
        ranks.channel(0).barrier().unwrap();
        ranks.leave();
    }
    rows
}

#[test]
fn the_gradient_over_tokens_of_the_student_is_the_difference_of_its_loss() {
    let rows = rows_of_student(4096, None);
    let executor = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for divergence in DIVERGENCES {
        for tail in [true, false] {
            let distill = DistillOptions { divergence, beta: 0.3, tail };
            let batch = Batch { distill, lr: 1e-3, ..batch(rows.clone()) };
            let loss = async |policy: &Policy| loss_of(policy, &batch).await;
            let name = format!("student's tokens, {divergence:?}, tail {tail}");
            executor.block_on(assert_slopes(&name, (setup(&["p"]), batch.clone()), loss));
        }
    }
}

#[test]
fn tokens_of_the_student_and_their_scores_have_equal_bits_in_any_micro_batches_and_on_two_ranks() {
    let whole = rows_of_student(4096, None);
    let parted = rows_of_student(16, None);
    let both = on_ranks(2, |ranks| rows_of_student(4096, Some(&ranks)));
    for other in [&parted, &both[0], &both[1]] {
        assert_eq!(other, &whole);
    }
    let runtime = with_generalist().start();
    let [student, teacher] = runtime.policies() else { panic!("two policies") };
    let executor = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for row in &whole {
        let own = row.teacher.as_ref().unwrap();
        let first =
            |id: u32| Row { completion: vec![id], prompt: row.prompt.clone(), ..Row::default() };
        let rows: Vec<Row> = own.ids[..4].iter().map(|&id| first(id)).collect();
        let theirs = executor.block_on(teacher.logprobs(rows.clone())).unwrap().concat();
        assert_eq!(theirs, own.logprobs[..4], "as the teacher gives to each token alone");
        let ours = executor.block_on(student.logprobs(rows)).unwrap().concat();
        assert!(ours.is_sorted_by(|a, b| a >= b), "the student's most probable tokens: {ours:?}");
    }
    let mut untaught = whole;
    untaught[2].teacher = None;
    let refused = executor.block_on(teacher.given_tokens(untaught)).unwrap_err().to_string();
    assert!(refused.contains("row 2 has no tokens to be scored"), "{refused}");
}

#[test]
fn no_split_into_micro_batches_or_ranks_changes_an_update_over_tokens_of_the_student() {
    let rows = rows_of_student(4096, None);
    let taught = || Batch { lr: 1e-3, ..batch(rows.clone()) };
    let whole = updated_alike(taught, |stats| stats.divergence.unwrap().mean);
    let [first, last] = [&whole[0], &whole[3]].map(|stats| stats.divergence.unwrap().mean);
    assert!(last < first, "{whole:?}");
}

/// Returns the gradient of one update of the model `tiny` with the model `generalist` as its teacher, compared on `k` tokens in each
/// place, and the mass of these under `tiny`.
async fn taught_by_generalist(support: (Whose, usize), tail: bool) -> (Vec<f64>, f64) {
    let mut setup = with_generalist();
    setup.workers[0].policies[0].optim.grad_clip = 1e9;
    let runtime = setup.start();
    let student = &runtime.policies()[0];
    let mut rows = Vec::new();
    for seed in 0..6 {
        let question = format!("What is {} + {}?", 12 + 5 * seed, 7 + 3 * seed);
        let chat = ChatInput::open([ChatMessage::new("user", question)]);
        let tokenizer = student.tokenizer();
        let prompt = tokenizer.encode_rendered(&tokenizer.render_chat(&chat).unwrap()).unwrap();
        let request = Request::new(prompt.clone(), sampling(24), seed);
        rows.push(row(&student.generate(request).await.unwrap(), prompt, 0.0));
    }
    teach(&runtime, &mut rows, support).await;
    let distill = DistillOptions { tail, ..DistillOptions::default() };
    let stats = student.update(Batch { distill, ..batch(rows) }).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    student.save(dir.path()).await.unwrap();
    (first_moments(dir.path()), stats.divergence.unwrap().mass)
}

/// Returns the cosines of the gradients over 16 tokens in each place to that over the whole vocabulary, with a tail and without.
async fn cosines(whose: Whose) -> [f64; 2] {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let (all, whole) = taught_by_generalist((Whose::Teacher, 1_000_000), true).await;
    let mut found = [0.0; 2];
    for (found, tail) in found.iter_mut().zip([true, false]) {
        let (own, mass) = taught_by_generalist((whose, 16), tail).await;
        *found = dot(&all, &own) / (dot(&all, &all) * dot(&own, &own)).sqrt();
        println!(
            "16 tokens of the {whose:?} with mass {mass:.4} of {whole:.4}, tail {tail}: cosine {found:.4}"
        );
    }
    found
}

#[tokio::test]
async fn with_a_tail_the_gradient_of_sixteen_tokens_is_nearer_to_that_of_the_whole_vocabulary() {
    let [with, without] = cosines(Whose::Teacher).await;
    assert!(with > 0.5 && with > without, "{with} {without}");
}

#[tokio::test]
async fn the_reverse_gradient_over_tokens_of_the_student_is_near_that_of_the_whole_vocabulary() {
    let [with, without] = cosines(Whose::Student).await;
    assert!(with > 0.8 && without > 0.8, "{with} {without}");
}
