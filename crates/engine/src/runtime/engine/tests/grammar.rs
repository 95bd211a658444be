use super::*;
use crate::runtime::{Grammar, GrammarState};

/// A grammar in which even and odd ids alternate, up to a number of ids.
#[derive(Debug)]
struct Alternating(usize);

/// Parity of the next id, and the number of ids that are left.
struct Parity(u32, usize);

impl Grammar for Alternating {
    fn begin(&self) -> Box<dyn GrammarState> {
        Box::new(Parity(0, self.0))
    }
}

impl GrammarState for Parity {
    fn mask(&mut self, logits: &mut [f32]) -> Result<(), String> {
        let Self(parity, left) = *self;
        if left == 0 {
            return Err("no id is left".to_owned());
        }
        let forbidden = |(id, _): &(u32, &mut f32)| id % 2 != parity;
        (0..).zip(logits).filter(forbidden).for_each(|(_, logit)| *logit = f32::NEG_INFINITY);
        Ok(())
    }

    fn push(&mut self, id: u32) -> Result<(), String> {
        assert_eq!(id % 2, self.0);
        *self = Self(1 - self.0, self.1 - 1);
        Ok(())
    }
}

#[test]
fn a_grammar_decides_which_tokens_are_sampled_and_no_other_completion_or_log_prob_changes() {
    let fixture = Fixture::new();
    let model = &fixture.versions[0];
    let free = fixture.alone(0, (0..12).map(some));
    let bound = |i| Request { grammar: Some(Arc::new(Alternating(99))), ..some(i) };
    let alone = fixture.alone(0, (0..12).map(bound));
    let mut engine = fixture.engine(9, true, 16);
    let answers = (0..12).flat_map(|i| [some(i), bound(i)]);
    let answers = answers.map(|request| send(&mut engine, model, request)).collect();
    let done = finish(&mut engine, model, answers);
    for (i, pair) in done.chunks_exact(2).enumerate() {
        assert_eq!((&pair[0], &pair[1]), (&free[i], &alone[i]), "request {i}");
        let ids = &pair[1].ids;
        assert!(ids.iter().enumerate().all(|(at, id)| *id as usize % 2 == at % 2), "{ids:?}");
        let prompt = some(i as u64).prompt;
        let at_one = Sampling { temperature: 1.0, ..(*some(i as u64).sampling).clone() };
        let at_one = Request { sampling: Arc::new(at_one), ..bound(i as u64) };
        let plain = fixture.alone(0, std::iter::once(at_one)).remove(0);
        let row = [prompt.as_slice(), &plain.ids].concat();
        let scores = crate::runtime::score(model, &[row]).unwrap();
        assert_eq!(scores[0].logprobs[prompt.len() - 1..], plain.logprobs, "request {i}");
    }
}

#[test]
fn a_grammar_that_allows_nothing_ends_its_request_alone() {
    let fixture = Fixture::new();
    let model = &fixture.versions[0];
    let expected = fixture.alone(0, (0..4).map(some));
    let mut engine = fixture.engine(100, true, 4096);
    for left in [0, 2] {
        let grammar: Arc<dyn Grammar> = Arc::new(Alternating(left));
        let stuck = Request { grammar: Some(grammar), ..some(0) };
        let mut stuck = send(&mut engine, model, stuck);
        let answers = (0..4).map(|i| send(&mut engine, model, some(i))).collect();
        assert_eq!(finish(&mut engine, model, answers), expected);
        let error = stuck.try_recv().unwrap().unwrap_err();
        assert!(error.to_string().contains("no id is left"), "{error}");
    }
}
