//! Equality of two texts: readings of both, and the verdict on them.

use crate::equality;
use crate::read::read_answer;
use crate::reading::NotationReading;
use crate::reply::reference_answer;
use crate::unicode::to_latex;
use crate::unit::MathUnit;
use crate::value::{MathAnswer, MathValue};
use crate::verdict::AnswerVerdict;
use crate::work::{Stop, WorkBudget};

/// Maximum length in bytes of an answer that is parsed. A character that stands for a command, as `½` for `\frac{1}{2}`, has
/// the length of the command.
const MAX_BYTES: usize = 2000;

/// Compares an answer with a reference. Units, currency signs and the name before `=` may be omitted.
///
/// ```
/// use maverl_answers::{AnswerVerdict, compare_answers};
///
/// assert_eq!(compare_answers("\\frac{\\sqrt{8}}{4}", "1/\\sqrt2"), AnswerVerdict::Equal);
/// assert_eq!(compare_answers("3.14159", "\\pi"), AnswerVerdict::Unequal);
/// ```
pub fn compare_answers(answer: &str, reference: &str) -> AnswerVerdict {
    compare_counted(answer, reference).0
}

/// A verdict and its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judgment {
    /// The best verdict on any of the references.
    pub verdict: AnswerVerdict,
    /// The reason, in words for a reader of the verdict.
    pub reason: &'static str,
}

/// Judges an answer by references, of which it must equal one. A reference may be a whole solution that marks its answer.
///
/// ```
/// use maverl_answers::{AnswerVerdict, judge_answer};
///
/// let judgment = judge_answer("x = 0.5", &["so it is half.\n#### 1/2"]);
/// assert_eq!(judgment.verdict, AnswerVerdict::Equal);
/// ```
pub fn judge_answer(answer: &str, references: &[&str]) -> Judgment {
    use AnswerVerdict::{Equal, Undecided, Unequal};
    let references: Vec<&str> = references.iter().map(|text| reference_answer(text)).collect();
    let verdicts: Vec<AnswerVerdict> =
        references.iter().map(|text| compare_answers(answer, text)).collect();
    let (verdict, reason) = if verdicts.contains(&Equal) {
        (Equal, "it says what a reference says")
    } else if answer.is_empty() {
        (Unequal, "there is no answer")
    } else if !references.into_iter().any(is_readable) {
        (
            Undecided,
            "the reference cannot be read, so that only the same text is right; counted as wrong",
        )
    } else if verdicts.contains(&Undecided) {
        (Undecided, "it cannot be told whether it is a reference; counted as wrong")
    } else {
        (Unequal, "it says something else than every reference")
    };
    Judgment { verdict, reason }
}

/// Returns true if a reference can be parsed. An unreadable reference matches only identical text.
///
/// ```
/// use maverl_answers::is_readable;
///
/// assert!(is_readable("\\frac{1}{2}"));
/// assert!(!is_readable("\\frac{1}{"));
/// ```
pub fn is_readable(reference: &str) -> bool {
    let reference = reference.trim();
    !reference.is_empty()
        && !is_too_long(reference)
        && read_answer(reference, NotationReading::Plain, &mut WorkBudget::new()).is_ok()
}

/// Returns the verdict, and the number of operations used.
pub(crate) fn compare_counted(answer: &str, reference: &str) -> (AnswerVerdict, u64) {
    let mut work = WorkBudget::new();
    let (answer, reference) = (answer.trim(), reference.trim());
    if is_too_long(answer) || is_too_long(reference) || answer.is_empty() || reference.is_empty() {
        let same = answer == reference && !answer.is_empty();
        return (if same { AnswerVerdict::Equal } else { AnswerVerdict::Undecided }, 0);
    }
    if answer == reference {
        return (AnswerVerdict::Equal, 0);
    }
    let verdict =
        compare_readings(answer, reference, &mut work).unwrap_or(AnswerVerdict::Undecided);
    (verdict, work.operations())
}

fn is_too_long(answer: &str) -> bool {
    answer.len() > MAX_BYTES || to_latex(answer).len() > MAX_BYTES
}

/// Returns the verdict on the plain readings of both, else on their alternative readings.
fn compare_readings(
    answer: &str,
    reference: &str,
    work: &mut WorkBudget,
) -> Result<AnswerVerdict, Stop> {
    let (said, truth) = (
        read_answer(answer, NotationReading::Plain, work),
        read_answer(reference, NotationReading::Plain, work),
    );
    let plain = match (&said, &truth) {
        (Ok(said), Ok(truth)) => equality::compare_parsed(said, truth, work)?,
        (Err(Stop::Meaningless), Err(Stop::Meaningless)) => compare_spelling(answer, reference),
        // An expression without a value differs from one with a value.
        (Err(Stop::Meaningless), Ok(_)) => AnswerVerdict::Unequal,
        (Ok(_), Err(Stop::Meaningless)) => AnswerVerdict::Undecided,
        (Err(stop), _) | (_, Err(stop)) => return Err(*stop),
    };
    let Ok(truth) = truth else { return Ok(plain) };
    if plain == AnswerVerdict::Equal {
        return Ok(plain);
    }
    let readings = [
        (NotationReading::Lists, has_thousands(answer)),
        (NotationReading::Spaced, has_thousands(answer) && has_spaced_commas(answer)),
        (
            NotationReading::Units,
            truth.unit.is_known() || is_spaced_letter(answer) && is_plain(&truth),
        ),
    ];
    for (reading, _) in readings.into_iter().filter(|(_, possible)| *possible) {
        if let Ok(said) = read_answer(answer, reading, work)
            && equality::compare_parsed(&said, &truth, work)? == AnswerVerdict::Equal
        {
            return Ok(AnswerVerdict::Equal);
        }
    }
    let Ok(said) = said else { return Ok(plain) };
    // A reference that may be a list is read as one if the answer is a list, in the order as written.
    if has_thousands(reference)
        && let (MathValue::Set(items), Ok(truth)) =
            (&said.value, read_answer(reference, NotationReading::Lists, work))
        && let MathValue::Set(truth) = &truth.value
        && equality::in_order(items, truth, work)? == AnswerVerdict::Equal
    {
        return Ok(AnswerVerdict::Equal);
    }
    if said.unit.is_known()
        && let Ok(truth) = read_answer(reference, NotationReading::Units, work)
        && truth.unit.is_known()
    {
        return equality::compare_parsed(&said, &truth, work);
    }
    Ok(plain)
}

/// Returns true if a comma may separate thousands, and nothing else shows that it does.
fn has_thousands(text: &str) -> bool {
    text.match_indices(',').any(|(at, _)| {
        let digits = text[at + 1..].bytes().take_while(u8::is_ascii_digit).count();
        digits == 3 && text[..at].ends_with(|c: char| c.is_ascii_digit())
    })
}

fn has_spaced_commas(text: &str) -> bool {
    text.contains(", ")
}

/// Returns true if the last letter may be a unit: `12 m`, but not `12m`.
fn is_spaced_letter(text: &str) -> bool {
    let text = text.trim_matches(['$', '.', ' ']);
    let Some((before, unit)) = text.rsplit_once(' ') else { return false };
    let letters = unit.bytes().take_while(u8::is_ascii_alphabetic).count();
    letters == 1 && before.ends_with(|c: char| c.is_ascii_digit() || c == '}')
}

/// Returns true for a number without unit.
fn is_plain(answer: &MathAnswer) -> bool {
    answer.as_number().is_some() && answer.unit == MathUnit::default()
}

/// Compares two unparsed texts: equal if they differ only in white space and case.
fn compare_spelling(a: &str, b: &str) -> AnswerVerdict {
    let [a, b] =
        [a, b].map(|text| text.chars().filter(|c| !c.is_whitespace()).flat_map(char::to_lowercase));
    if a.eq(b) { AnswerVerdict::Equal } else { AnswerVerdict::Undecided }
}
