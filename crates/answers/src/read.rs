//! Texts as answers: numbers, tuples, sets, intervals, matrices, relations, words.

use crate::based::Based;
use crate::brackets::{closes, split, symbols, top, ungrouped};
use crate::choice::{choice, labeled, unwrapped};
use crate::equation::{approximation, equation};
use crate::exact::Expr;
use crate::expression::expression;
use crate::function::is_known;
use crate::inequality::{SIGNS, inequality};
use crate::list::{self, MAX_ITEMS, SEPARATORS};
use crate::name::is_name;
use crate::quantity::split_unit;
use crate::reading::Reading;
use crate::reals::Reals;
use crate::token::Token;
use crate::tokens::tokens;
use crate::unit;
use crate::value::{Answer, Value};
use crate::work::{Stop, Work};

/// Deepest nesting of brackets.
const MAX_DEPTH: u32 = 8;
/// Phrases that state that there is no solution.
const NOTHING: [&str; 7] = [
    "no solution",
    "no solutions",
    "no real solution",
    "no real solutions",
    "empty set",
    "the empty set",
    "no real roots",
];
/// Phrases that state that every real number is a solution.
const EVERYTHING: [&str; 6] = [
    "all real numbers",
    "all reals",
    "the set of all real numbers",
    "every real number",
    "any real number",
    "real numbers",
];
/// Phrases after a comma at the end that say nothing about the value: `72, in total`.
const ASIDES: [&str; 6] =
    ["in total", "in all", "all together", "altogether", "overall", "respectively"];
/// Words after [`EVERYTHING`] that introduce excluded numbers.
const EXCEPTIONS: [&str; 4] = ["except", "except for", "other than", "excluding"];

/// Reads an answer.
pub(crate) fn read_answer(text: &str, reading: Reading, work: &mut Work) -> Result<Answer, Stop> {
    let text = without_aside(text);
    if let Some(choice) = choice(text) {
        return Ok(Value::Choice(choice).into());
    }
    if let Some((option, rest)) = labeled(text, reading)
        && let Ok(value) = read_value(rest, reading, work)
        && (value.is_single() || matches!(value.value, Value::Words(_)))
    {
        return Ok(Value::Labeled { option, value: Box::new(value) }.into());
    }
    read_value(text, reading, work)
}

/// Reads an answer that is no option.
fn read_value(text: &str, reading: Reading, work: &mut Work) -> Result<Answer, Stop> {
    if let Some(words) = words(unwrapped(text)) {
        return Ok(words);
    }
    let mut tokens = tokens(text, reading);
    while matches!(tokens.last(), Some(Token::Symbol('.' | ',' | ';'))) {
        tokens.pop();
    }
    work.spend(tokens.len() as u64)?;
    answer(&tokens, MAX_DEPTH, work)
}

/// Returns the text without an aside after a comma at its end.
fn without_aside(text: &str) -> &str {
    let trimmed = text.trim_end_matches(['.', ' ']);
    let rest = ASIDES.iter().find_map(|aside| {
        let at = trimmed.len().checked_sub(aside.len())?;
        let is_aside = trimmed.get(at..)?.eq_ignore_ascii_case(aside);
        trimmed[..at].trim_end().strip_suffix(',').filter(|_| is_aside)
    });
    rest.unwrap_or(text)
}

/// Reads an answer in words; a number word is read as a number.
fn words(text: &str) -> Option<Answer> {
    let text = text.trim_end_matches('.').to_lowercase();
    let wordy = text.chars().all(|c| c.is_alphabetic() || c.is_whitespace() || "-'".contains(c));
    let first = text.split_whitespace().next()?;
    if !wordy || first.chars().count() < 2 || !text.contains(|c: char| "aeiouy".contains(c)) {
        return None;
    }
    const NUMBERS: [&str; 13] = [
        "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
        "eleven", "twelve",
    ];
    if let Some(number) = NUMBERS.iter().position(|word| *word == text) {
        return Some(Value::Number(Expr::integer(number as i64)).into());
    }
    let quantity = |word: &str| word.len() <= 4 && is_product(word) || unit::is_unit(word);
    if first == "pi" || quantity(first) && text.split_whitespace().all(quantity) {
        return None;
    }
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(match words.as_str() {
        words if NOTHING.contains(&words) => Value::Set(Vec::new()).into(),
        words if EVERYTHING.contains(&words) => {
            Value::Reals { set: Reals::all(), variable: None }.into()
        }
        _ => Value::Words(words).into(),
    })
}

fn is_product(word: &str) -> bool {
    word.len() <= 2 || word.as_bytes().windows(2).all(|pair| pair[0] < pair[1])
}

/// Reads tokens as an answer.
fn answer(tokens: &[Token], depth: u32, work: &mut Work) -> Result<Answer, Stop> {
    let depth = depth.checked_sub(1).ok_or(Stop::Budget)?;
    work.spend(1)?;
    let part = |tokens: &[Token], work: &mut Work| answer(tokens, depth, work);
    let has = |wanted: &str| top(tokens, |c| wanted.contains(c)).is_some();
    // The conclusion follows the arrow.
    if let Some(at) = top(tokens, |c| c == '⇒') {
        return answer(&tokens[at + 1..], depth, work);
    }
    if let Some(rows) = rows(tokens) {
        return list::bare(&rows, &part, work);
    }
    if tokens == [Token::Symbol('∅')] {
        return Ok(Value::Set(Vec::new()).into());
    }
    if let Some(at) = top(tokens, |c| c == '∈').filter(|at| is_name(&tokens[..*at])) {
        return answer(&tokens[at + 1..], depth, work);
    }
    if let Some(reals) = line(tokens, depth, work)? {
        return Ok(reals);
    }
    if has(SEPARATORS) {
        return list::bare(tokens, &part, work);
    }
    if let Some(both) = list::both_signs(tokens) {
        let items = both.join(&Token::Symbol(','));
        return list::bare(&items, &part, work);
    }
    if let Some(at) = top(tokens, |c| c == '∈') {
        return answer(&tokens[at + 1..], depth, work);
    }
    if has("∪∩∖") {
        return sets(tokens, depth, work);
    }
    if has("≈") {
        return approximation(tokens, &part, work);
    }
    if has(SIGNS) {
        return inequality(tokens, work);
    }
    if has("=") {
        return equation(tokens, &part, work);
    }
    simple(tokens, depth, work)
}

/// Reads an answer without relations and separators.
fn simple(tokens: &[Token], depth: u32, work: &mut Work) -> Result<Answer, Stop> {
    if let Some(answer) = bracketed(tokens, depth, work)? {
        return Ok(answer);
    }
    if let Some(rows) = matrix(tokens, work)? {
        return Ok(Value::Matrix(rows).into());
    }
    if let Some(based) = Based::read(tokens) {
        return Ok(Value::Based(based).into());
    }
    if let Some(words) = spoken(tokens) {
        return Ok(words);
    }
    quantity(tokens, depth, work)
}

/// Returns the rows of `aligned` and `cases` as items of a list; `None` for cases with conditions.
fn rows(tokens: &[Token]) -> Option<Vec<Token>> {
    let [Token::Word(begin), inside @ .., Token::Word(_)] = tokens else { return None };
    let name = begin.strip_prefix("begin ")?.trim_end_matches('*');
    let aligned = matches!(name, "align" | "aligned" | "gathered" | "gather" | "split");
    if !closes(tokens) || !aligned && name != "cases" {
        return None;
    }
    let kept = inside.iter().filter(|token| !aligned || **token != Token::Symbol('&'));
    let item = |token: &Token| match token {
        Token::Row => Token::Symbol(','),
        token => token.clone(),
    };
    let rows: Vec<Token> = kept.map(item).collect();
    (!rows.contains(&Token::Symbol('&'))).then_some(rows)
}

/// Reads the set of all real numbers, or of all except some: `\mathbb{R}`, `\mathbb{R} - \{2\}`,
/// `all real numbers except 2`.
fn line(tokens: &[Token], depth: u32, work: &mut Work) -> Result<Option<Answer>, Stop> {
    let real = Token::Word("mathbb R".to_owned());
    let set = |set| Ok(Some(Value::Reals { set, variable: None }.into()));
    let without = match tokens {
        [first] if *first == real => return set(Reals::all()),
        [first, Token::Symbol('^' | '_'), sign @ ..]
            if *first == real && ungrouped(sign) == [Token::Symbol('+')] =>
        {
            return set(Reals::above(Expr::integer(0), false));
        }
        [first, Token::Symbol('-'), rest @ ..] if *first == real => rest,
        _ => {
            let run = tokens.iter().map_while(word).collect::<Vec<&str>>();
            let (length, phrase) = (run.len(), run.join(" ").to_lowercase());
            let rest = EVERYTHING.iter().find_map(|start| phrase.strip_prefix(start));
            match rest.map(str::trim) {
                Some("") if length == tokens.len() => return set(Reals::all()),
                Some(except) if EXCEPTIONS.contains(&except) => &tokens[length..],
                _ => return Ok(None),
            }
        }
    };
    let points = answer(without, depth, work)?;
    let points = match points.number() {
        Some(number) => Some(Reals::point(number.clone())),
        None => points.reals(work)?,
    };
    set(points.ok_or(Stop::Meaningless)?.complement())
}

/// Returns the word of a token that cannot be part of an expression.
fn word(token: &Token) -> Option<&str> {
    match token {
        Token::Word(word) if !is_known(word) && !word.contains(' ') => Some(word),
        Token::Text(text) => Some(text),
        _ => None,
    }
}

/// Reads a set built with `∪`, `∩` and `∖`, from left to right. A union of sets that are not real is kept unevaluated.
fn sets(tokens: &[Token], depth: u32, work: &mut Work) -> Result<Answer, Stop> {
    let parts = split(tokens, |c| "∪∩∖".contains(c));
    let signs = symbols(tokens, |c| "∪∩∖".contains(c));
    if parts.len() > MAX_ITEMS {
        return Err(Stop::Budget);
    }
    let parts: Result<Vec<Answer>, Stop> =
        parts.iter().map(|part| answer(part, depth, work)).collect();
    let parts = parts?;
    let mut all = parts[0].reals(work)?;
    for (sign, part) in signs.iter().zip(&parts[1..]) {
        all = match (all, part.reals(work)?) {
            (Some(all), Some(part)) => Some(match sign {
                '∪' => all.union(&part, work)?,
                '∩' => all.intersection(&part, work)?,
                _ => all.without(&part, work)?,
            }),
            _ => None,
        };
    }
    match all {
        Some(set) => Ok(Value::Reals { set, variable: None }.into()),
        None if signs.iter().all(|sign| *sign == '∪') => Ok(Value::Union(parts).into()),
        None => Err(Stop::Meaningless),
    }
}

fn bracketed(tokens: &[Token], depth: u32, work: &mut Work) -> Result<Option<Answer>, Stop> {
    let (Some(Token::Symbol(open)), Some(Token::Symbol(close))) = (tokens.first(), tokens.last())
    else {
        return Ok(None);
    };
    if !"([{⦃".contains(*open) || !closes(tokens) {
        return Ok(None);
    }
    let part = |tokens: &[Token], work: &mut Work| answer(tokens, depth, work);
    let inside = &tokens[1..tokens.len() - 1];
    let parts = split(inside, |c| ",;".contains(c));
    match (open, close) {
        ('⦃', _) => list::set(inside, &part, work).map(Some),
        ('{', _) if parts.len() > 1 => list::set(inside, &part, work).map(Some),
        ('{', _) => answer(inside, depth, work).map(Some),
        _ if parts.len() > 1 => {
            let parts: Vec<Vec<Token>> = parts.into_iter().map(<[Token]>::to_vec).collect();
            let items = list::all(&parts, &part, work)?;
            Ok(Some(Value::Tuple { open: *open, items, close: *close }.into()))
        }
        ('(', ')') | ('[', ']') => answer(inside, depth, work).map(Some),
        _ => Ok(None),
    }
}

fn matrix(tokens: &[Token], work: &mut Work) -> Result<Option<Vec<Vec<Expr>>>, Stop> {
    let [Token::Word(begin), inside @ .., Token::Word(end)] = tokens else { return Ok(None) };
    let name = begin.strip_prefix("begin ");
    let name = name.filter(|name| name.ends_with("matrix") || *name == "array");
    if name.is_none() || name != end.strip_prefix("end ") {
        return Ok(None);
    }
    let rows = inside.split(|token| *token == Token::Row).filter(|row| !row.is_empty());
    let rows: Result<Vec<Vec<Expr>>, Stop> = rows
        .map(|row| {
            let cells = row.split(|token| *token == Token::Symbol('&'));
            cells.map(|cell| expression(cell, work)).collect()
        })
        .collect();
    rows.map(Some)
}

/// Reads an item of a list that consists of words alone.
fn spoken(tokens: &[Token]) -> Option<Answer> {
    let text = tokens.iter().map(word).collect::<Option<Vec<&str>>>()?.join(" ");
    match choice(&text) {
        Some(choice) => Some(Value::Choice(choice).into()),
        None => words(&text),
    }
}

/// Reads a number or an expression with its unit, or a ratio.
fn quantity(tokens: &[Token], depth: u32, work: &mut Work) -> Result<Answer, Stop> {
    let length = tokens.len();
    let (tokens, unit) = split_unit(tokens)?;
    if tokens.len() < length && closes(&tokens) {
        let value = answer(&tokens, depth, work)?;
        return Ok(Answer { unit, ..value });
    }
    if let Some(at) = top(&tokens, |c| c == ':') {
        let (left, right) = (&tokens[..at], &tokens[at + 1..]);
        // `Area: 120`
        if is_name(left) {
            let value = answer(right, depth, work)?;
            return Ok(Answer { unit, ..value });
        }
        // `3:30 p.m.` is not a ratio.
        if unit.is_daytime()
            && let ([Token::Number { digits: hours, .. }], [Token::Number { digits, .. }]) =
                (left, right)
        {
            let time = Value::Words(format!("{}:{digits}", hours.trim_start_matches('0')));
            return Ok(Answer { unit, ..time.into() });
        }
        let ratio = expression(left, work)?.over(&expression(right, work)?, work)?;
        return Ok(Value::Number(ratio).into());
    }
    let digits = match &tokens[..] {
        [Token::Number { digits, .. }] => Some(digits.clone()),
        _ => None,
    };
    let value = Value::Number(expression(&tokens, work)?);
    Ok(Answer { unit, digits, ..value.into() })
}
