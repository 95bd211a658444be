//! Units of a verifier's loss: replies alone, pairs of a right and a wrong reply, or the steps of an episode.

use std::collections::BTreeMap;

use crate::algo::loss::cross_entropy;
use crate::config::{HeadKind, VerifierLabels, VerifierLoss, VerifierPlan};
use crate::data::LabeledReply;
use crate::net::{reply_ids, scored_ids};
use crate::runtime::{Policy, ValueText};
use crate::text::{ChatInput, TokenizerError};
use crate::train::error::TrainError;

/// Texts of a unit, with the targets of their logits.
#[derive(Clone)]
pub(super) struct TextUnit {
    /// One text; of a pair two, the right reply first.
    pub(super) texts: Vec<ValueText>,
    /// Target of each logit of the text; none where nothing is trained.
    targets: Vec<Option<f64>>,
    /// Logits of a text.
    logits: Logits,
}

/// Logits of a text from its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Logits {
    /// One for each value.
    Each,
    /// One: their mean.
    Mean,
}

impl From<HeadKind> for Logits {
    fn from(head: HeadKind) -> Self {
        match head {
            HeadKind::Value | HeadKind::Reward => Self::Each,
            HeadKind::Likelihood => Self::Mean,
        }
    }
}

impl Logits {
    /// Returns the logits of a text.
    pub(super) fn of(self, values: &[f32]) -> Vec<f64> {
        let values = values.iter().map(|&value| f64::from(value));
        match self {
            Self::Each => values.collect(),
            Self::Mean => {
                let n = values.len().max(1) as f64;
                vec![values.sum::<f64>() / n]
            }
        }
    }

    /// Returns the derivatives by `n` values from those by the logits.
    fn back(self, slopes: Vec<f64>, n: usize) -> Vec<f64> {
        match self {
            Self::Each => slopes,
            Self::Mean => vec![slopes[0] / n as f64; n],
        }
    }
}

/// Loss of a unit, with the derivatives of its logits.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Loss {
    /// The loss.
    pub(super) value: f64,
    /// Derivatives by text and place.
    pub(super) slopes: Vec<Vec<f64>>,
    /// Number of judgements, and of those that are correct.
    pub(super) judged: (usize, usize),
}

/// Returns the units of training rows, as indices of rows. Of a pair, the right reply is first.
///
/// Replies to one prompt are paired in their order, and the replies of the rarer label as often as needed; the two replies of a
/// row are always a pair.
pub(super) fn units(rows: &[LabeledReply], loss: VerifierLoss) -> Vec<Vec<usize>> {
    let indices: Vec<usize> = (0..rows.len()).collect();
    let of_rows = indices.chunk_by(|a, b| rows[*a].row == rows[*b].row);
    match loss {
        VerifierLoss::Last | VerifierLoss::Span => indices.iter().map(|i| vec![*i]).collect(),
        VerifierLoss::Steps => of_rows.map(<[usize]>::to_vec).collect(),
        VerifierLoss::Pairs => pairs(rows, of_rows),
    }
}

fn pairs<'r>(rows: &[LabeledReply], of_rows: impl Iterator<Item = &'r [usize]>) -> Vec<Vec<usize>> {
    let mut pairs = Vec::new();
    let mut open: BTreeMap<String, [Vec<usize>; 2]> = BTreeMap::new();
    for of_row in of_rows {
        if let [a, b] = of_row
            && rows[*a].prompt == rows[*b].prompt
            && rows[*a].label != rows[*b].label
        {
            pairs.push(if rows[*a].label { vec![*a, *b] } else { vec![*b, *a] });
            continue;
        }
        for &i in of_row {
            // Debug output of JSON values is a function of them.
            open.entry(format!("{:?}", rows[i].prompt)).or_default()[usize::from(rows[i].label)]
                .push(i);
        }
    }
    for [wrong, right] in open.into_values().filter(|both| both.iter().all(|one| !one.is_empty())) {
        let n = right.len().max(wrong.len());
        pairs.extend((0..n).map(|i| vec![right[i % right.len()], wrong[i % wrong.len()]]));
    }
    pairs.sort_unstable();
    pairs
}

/// Returns the texts of a unit with their targets.
///
/// # Errors
///
/// If the chat template refuses a conversation, or changes earlier messages of one with steps.
pub(super) fn unit(
    policy: &Policy,
    rows: &[&LabeledReply],
    settings: &VerifierPlan,
) -> Result<TextUnit, TrainError> {
    if settings.loss == VerifierLoss::Steps {
        let ids = rows.iter().map(|row| ids(policy, &row.conversation(), row));
        let ids: Vec<Vec<u32>> = ids.collect::<Result<_, _>>()?;
        let chained = chain(&ids, policy.context()).ok_or_else(|| TrainError::Verifier {
            data: rows[0].location.clone(),
            problem: "the chat template does not leave earlier messages as they are, so steps cannot be scored in one row; \
                      set `algorithm.verifier.loss = \"last\"`"
                .to_owned(),
        })?;
        let mut targets = vec![None; chained.0.places];
        for (row, place) in rows.iter().zip(chained.1) {
            if let Some(place) = place {
                targets[place] = Some(target_of(row, settings.labels));
            }
        }
        return Ok(TextUnit { texts: vec![chained.0], targets, logits: Logits::Each });
    }
    let texts = rows.iter().map(|row| text(policy, row, (settings.head, settings.loss)));
    let texts: Vec<ValueText> = texts.collect::<Result<_, _>>()?;
    let logits = Logits::from(settings.head);
    let places = if logits == Logits::Each { texts[0].places } else { 1 };
    let target = target_of(rows[0], settings.labels);
    Ok(TextUnit { targets: vec![Some(target); places], texts, logits })
}

fn target_of(row: &LabeledReply, labels: VerifierLabels) -> f64 {
    match labels {
        VerifierLabels::Hard => f64::from(row.label),
        VerifierLabels::Soft => row.score.unwrap_or_default(),
    }
}

/// Returns the text of conversations each of which begins with the one before, and the place of the last token of each among the
/// places of the text: none where it is cut. `None` if one does not begin so.
fn chain(ids: &[Vec<u32>], context: usize) -> Option<(ValueText, Vec<Option<usize>>)> {
    let whole = ids.last()?;
    if !ids.windows(2).all(|pair| pair[1].len() > pair[0].len() && pair[1].starts_with(&pair[0])) {
        return None;
    }
    let cut = whole.len().saturating_sub(context);
    let first = ids.iter().map(|ids| ids.len() - 1).find(|last| *last >= cut)?;
    let places = ids.iter().map(|ids| (ids.len() - 1).checked_sub(first)).collect();
    Some((ValueText { ids: whole[cut..].to_vec(), places: whole.len() - first }, places))
}

/// Returns the text of a row. The reply of a row that fills the context may be cut, too.
pub(super) fn text(
    policy: &Policy,
    row: &LabeledReply,
    (head, loss): (HeadKind, VerifierLoss),
) -> Result<ValueText, TrainError> {
    if head == HeadKind::Likelihood {
        let found = reply_ids(policy.tokenizer(), &row.conversation(), policy.context());
        let (ids, places) = found.map_err(|error| refused_row(row, &error))?;
        return Ok(ValueText { ids, places });
    }
    let mut whole = ids(policy, &row.conversation(), row)?;
    let places = match loss {
        // The prompt ends with the header of the reply, which is the same in both.
        VerifierLoss::Span => {
            let prompt = ids(policy, &row.prompt, row)?;
            let same = prompt.iter().zip(&whole).take_while(|(a, b)| a == b).count();
            (whole.len() - same).max(1)
        }
        _ => 1,
    };
    let whole = whole.split_off(whole.len().saturating_sub(policy.context()));
    let places = places.min(whole.len());
    Ok(ValueText { ids: whole, places })
}

fn ids(policy: &Policy, chat: &ChatInput, row: &LabeledReply) -> Result<Vec<u32>, TrainError> {
    let ids = scored_ids(policy.tokenizer(), chat, usize::MAX);
    ids.map_err(|error| refused_row(row, &error))
}

fn refused_row(row: &LabeledReply, source: &TokenizerError) -> TrainError {
    let problem = format!("the chat template refuses a conversation: {source}");
    TrainError::Verifier { data: row.location.clone(), problem }
}

impl TextUnit {
    /// Computes the loss of the values of the texts: binary cross-entropy of their logits, or of a pair that of the difference
    /// (Bradley-Terry).
    pub(super) fn loss(&self, values: &[Vec<f32>]) -> Loss {
        let logits: Vec<Vec<f64>> = values.iter().map(|values| self.logits.of(values)).collect();
        let mut loss = self.of_logits(&logits);
        for (slopes, values) in loss.slopes.iter_mut().zip(values) {
            *slopes = self.logits.back(std::mem::take(slopes), values.len());
        }
        loss
    }

    fn of_logits(&self, logits: &[Vec<f64>]) -> Loss {
        if self.texts.len() == 2 {
            let difference = logits[0][logits[0].len() - 1] - logits[1][logits[1].len() - 1];
            let term = cross_entropy(difference, 1.0);
            let judged = (1, usize::from(difference > 0.0));
            let slopes = vec![vec![term.grad], vec![-term.grad]];
            return Loss { value: term.value, slopes, judged };
        }
        let trained = self.targets.iter().enumerate();
        let trained: Vec<(usize, f64)> =
            trained.filter_map(|(place, target)| Some((place, (*target)?))).collect();
        let weight = 1.0 / trained.len().max(1) as f64;
        let mut slopes = vec![0.0; self.targets.len()];
        let mut value = 0.0;
        for &(place, target) in &trained {
            let term = cross_entropy(logits[0][place], target);
            value += weight * term.value;
            slopes[place] = weight * term.grad;
        }
        // With every token of a reply trained, the last one is its judgement.
        let spans = trained.len() == self.targets.len();
        let from = if spans { trained.len().saturating_sub(1) } else { 0 };
        let judgements = trained[from..].iter();
        let agreed =
            judgements.filter(|(place, target)| (logits[0][*place] > 0.0) == (*target >= 0.5));
        let judged = (trained[from..].len(), agreed.count());
        Loss { value, slopes: vec![slopes], judged }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::ChatMessage;

    fn row(number: usize, prompt: &str, label: bool) -> LabeledReply {
        let prompt = ChatInput::new([ChatMessage::new("user", prompt)]);
        let empty = String::new;
        LabeledReply {
            prompt,
            reply: ChatMessage::new("assistant", "r"),
            label,
            score: None,
            task: empty(),
            policy: empty(),
            place: empty(),
            validates: false,
            row: number,
            location: empty(),
        }
    }

    fn text(places: usize) -> ValueText {
        ValueText { ids: vec![0; places], places }
    }

    #[test]
    fn replies_are_units_alone_in_pairs_of_a_prompt_or_in_the_steps_of_a_row() {
        let rows = [
            row(0, "a", true),
            row(1, "a", false),
            row(2, "b", false),
            row(3, "a", true),
            row(4, "c", false),
            row(4, "c", true),
            row(5, "d", true),
            row(5, "d, then", false),
        ];
        let of = |loss| units(&rows, loss);
        assert_eq!(of(VerifierLoss::Last), (0..8).map(|i| vec![i]).collect::<Vec<_>>());
        // The one wrong reply to `a` is paired with both right ones; the prompts of row 5 differ.
        assert_eq!(of(VerifierLoss::Pairs), [vec![0, 1], vec![3, 1], vec![5, 4]]);
        let steps = of(VerifierLoss::Steps);
        assert_eq!(steps, [vec![0], vec![1], vec![2], vec![3], vec![4, 5], vec![6, 7]]);
    }

    #[test]
    fn the_loss_of_a_pair_is_that_of_bradley_and_terry() {
        let unit = TextUnit {
            texts: vec![text(1), text(1)],
            targets: vec![Some(1.0)],
            logits: Logits::Each,
        };
        let loss = |right: f32, wrong: f32| unit.loss(&[vec![right], vec![wrong]]);
        let found = loss(1.5, 0.5);
        assert!((found.value - (1.0 + (-1.0_f64).exp()).ln()).abs() < 1e-12, "{found:?}");
        let slope = -1.0 / (1.0 + 1.0_f64.exp());
        assert!(
            (found.slopes[0][0] - slope).abs() < 1e-12 && found.slopes[1][0] == -found.slopes[0][0]
        );
        assert_eq!((found.judged, loss(0.0, 0.5).judged), ((1, 1), (1, 0)));
        // A constant that is added to both changes nothing.
        assert_eq!(loss(11.5, 10.5), found);
    }

    #[test]
    fn steps_have_equal_weights_at_their_places_and_the_tokens_between_them_none() {
        let targets = vec![Some(1.0), None, None, Some(0.0)];
        let unit = TextUnit { texts: vec![text(4)], targets, logits: Logits::Each };
        let found = unit.loss(&[vec![2.0, 9.0, -9.0, 1.0]]);
        let [first, last] = [cross_entropy(2.0, 1.0), cross_entropy(1.0, 0.0)];
        assert_eq!(found.slopes, [vec![first.grad / 2.0, 0.0, 0.0, last.grad / 2.0]]);
        assert!((found.value - (first.value + last.value) / 2.0).abs() < 1e-12);
        assert_eq!(found.judged, (2, 1));
        let targets = vec![Some(1.0); 3];
        let span = TextUnit { texts: vec![text(3)], targets, logits: Logits::Each };
        assert_eq!(span.loss(&[vec![-1.0, -1.0, 1.0]]).judged, (1, 1));
    }

    #[test]
    fn the_logit_of_log_probs_is_their_mean_and_each_gets_its_share_of_the_slope() {
        let targets = vec![Some(1.0)];
        let unit =
            TextUnit { texts: vec![text(4)], targets: targets.clone(), logits: Logits::Mean };
        let found = unit.loss(&[vec![-1.0, -3.0, 0.0, 2.0]]);
        let whole = cross_entropy(-0.5, 1.0);
        assert_eq!((found.value, found.judged), (whole.value, (1, 0)));
        assert_eq!(found.slopes, [vec![whole.grad / 4.0; 4]]);
        // Replies of a pair may differ in length.
        let pair = TextUnit { texts: vec![text(1), text(2)], targets, logits: Logits::Mean };
        let found = pair.loss(&[vec![-1.0], vec![-2.0, -4.0]]);
        let term = cross_entropy(2.0, 1.0);
        assert_eq!(found.slopes, [vec![term.grad], vec![-term.grad / 2.0; 2]]);
        assert_eq!((found.value, found.judged), (term.value, (1, 1)));
    }

    #[test]
    fn conversations_that_begin_with_each_other_are_one_text_with_a_place_for_each() {
        let ids = [vec![1, 2, 3], vec![1, 2, 3, 4, 5], vec![1, 2, 3, 4, 5, 6]];
        let (found, places) = chain(&ids, 10).unwrap_or_else(|| panic!("a chain"));
        assert_eq!((found.ids.as_slice(), found.places), (&[1, 2, 3, 4, 5, 6][..], 4));
        assert_eq!(places, [Some(0), Some(2), Some(3)]);
        // The first place is cut.
        let (found, places) = chain(&ids, 3).unwrap_or_else(|| panic!("a chain"));
        assert_eq!((found.ids.as_slice(), found.places), (&[4, 5, 6][..], 2));
        assert_eq!(places, [None, Some(0), Some(1)]);
        assert!(chain(&[vec![1, 2], vec![1, 3, 4]], 9).is_none());
    }
}
