//! Texts as answers: numbers, tuples, sets, intervals, matrices, relations, words.

use super::exact::{Atom, Expr, Stop, Work};
use super::expression::expression;
use super::function::{is_function, is_known};
use super::token::{Token, tokens};
use super::value::{Answer, Value};

/// Most items of a list that is compared.
const MAX_ITEMS: usize = 40;
/// Deepest nesting of brackets.
const MAX_DEPTH: u32 = 8;

impl Answer {
    /// Reads an answer.
    pub(super) fn read(text: &str, work: &mut Work) -> Result<Self, Stop> {
        if let Some(choice) = choice(text) {
            return Ok(Value::Choice(choice).into());
        }
        if let Some(words) = words(text) {
            return Ok(words);
        }
        let mut tokens = tokens(text);
        while matches!(tokens.last(), Some(Token::Symbol('.' | ',' | ';'))) {
            tokens.pop();
        }
        work.spend(tokens.len() as u64)?;
        answer(&tokens, MAX_DEPTH, work)
    }
}

/// `A`, `(B)`, `\text{(C)}`, `D.`
fn choice(text: &str) -> Option<char> {
    let text = unwrapped(text);
    let text = text.trim_end_matches('.').trim_matches(['(', ')']).trim();
    let mut letters = text.chars();
    letters.next().filter(|c| ('A'..='J').contains(c) && letters.next().is_none())
}

/// The argument of `\text{..}` where that is all; else the text.
fn unwrapped(text: &str) -> &str {
    let text = text.trim().trim_matches('$').trim_end_matches('.').trim();
    let text = text.strip_prefix("\\displaystyle").unwrap_or(text).trim();
    let inner = ["\\text{", "\\mbox{", "\\textbf{", "\\mathrm{", "\\textnormal{", "\\textrm{"]
        .iter()
        .find_map(|start| text.strip_prefix(start))
        .and_then(|rest| rest.strip_suffix('}'));
    inner.filter(|inner| !inner.contains(['{', '}'])).unwrap_or(text).trim()
}

/// An answer in words, or a number word as a number.
fn words(text: &str) -> Option<Answer> {
    let text = unwrapped(text).trim_end_matches('.').to_lowercase();
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
    if first == "pi" || first.len() <= 4 && is_product(first) {
        return None;
    }
    Some(Value::Words(text.split_whitespace().collect::<Vec<_>>().join(" ")).into())
}

fn is_product(word: &str) -> bool {
    word.len() <= 2 || word.as_bytes().windows(2).all(|pair| pair[0] < pair[1])
}

fn answer(tokens: &[Token], depth: u32, work: &mut Work) -> Result<Answer, Stop> {
    let depth = depth.checked_sub(1).ok_or(Stop::Budget)?;
    if let Some(at) = top(tokens, |c| c == '∈') {
        return answer(&tokens[at + 1..], depth, work);
    }
    if tokens == [Token::Symbol('∅')] {
        return Ok(Value::Set(Vec::new()).into());
    }
    let parts = split(tokens, '∪');
    if parts.len() > 1 {
        return Ok(Value::Union(all(&parts, depth, work)?).into());
    }
    let parts = split(tokens, ',');
    if parts.len() > 1 {
        return Ok(Value::Set(items(&parts, depth, work)?).into());
    }
    if let Some([plus, minus]) = both_signs(tokens) {
        return Ok(Value::Set(items(&[&plus, &minus], depth, work)?).into());
    }
    if let Some(answer) = relation(tokens, work)? {
        return Ok(answer);
    }
    if let Some(answer) = bracketed(tokens, depth, work)? {
        return Ok(answer);
    }
    if let Some(rows) = matrix(tokens, work)? {
        return Ok(Value::Matrix(rows).into());
    }
    if let Some(based) = based(tokens) {
        return Ok(based.into());
    }
    quantity(tokens, work)
}

fn all(parts: &[&[Token]], depth: u32, work: &mut Work) -> Result<Vec<Answer>, Stop> {
    if parts.len() > MAX_ITEMS {
        return Err(Stop::Budget);
    }
    parts.iter().map(|part| answer(part, depth, work)).collect()
}

/// Items of a list; `a \pm b` is two of them, and what stands before `and` may end in a comma.
fn items(parts: &[&[Token]], depth: u32, work: &mut Work) -> Result<Vec<Answer>, Stop> {
    let parts: Vec<&[Token]> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    let mut items = Vec::new();
    for item in all(&parts, depth, work)? {
        match item.value {
            Value::Set(inner) if !inner.is_empty() => items.extend(inner),
            Value::Set(inner) => items.push(Value::Set(inner).into()),
            _ => items.push(item),
        }
    }
    Ok(items)
}

/// How a symbol changes how deep in brackets one is.
fn nesting(token: &Token) -> i32 {
    match token {
        Token::Symbol('(' | '[' | '{' | '⦃') => 1,
        Token::Symbol(')' | ']' | '}' | '⦄') => -1,
        Token::Word(word) if word.starts_with("begin ") => 1,
        Token::Word(word) if word.starts_with("end ") => -1,
        _ => 0,
    }
}

/// The first symbol of a kind that is in no bracket.
fn top(tokens: &[Token], wanted: impl Fn(char) -> bool) -> Option<usize> {
    let mut depth = 0;
    tokens.iter().position(|token| {
        depth += nesting(token);
        matches!(token, Token::Symbol(symbol) if depth == 0 && wanted(*symbol))
    })
}

fn split(mut tokens: &[Token], symbol: char) -> Vec<&[Token]> {
    let mut parts = Vec::new();
    while let Some(at) = top(tokens, |c| c == symbol) {
        parts.push(&tokens[..at]);
        tokens = &tokens[at + 1..];
    }
    parts.push(tokens);
    parts
}

/// What an answer with `±` says with the upper signs, and with the lower ones.
fn both_signs(tokens: &[Token]) -> Option<[Vec<Token>; 2]> {
    let chosen = |upper: char, lower: char| -> Vec<Token> {
        let chosen = tokens.iter().map(|token| match token {
            Token::Symbol('±') => Token::Symbol(upper),
            Token::Symbol('∓') => Token::Symbol(lower),
            token => token.clone(),
        });
        chosen.collect()
    };
    let inside_brackets =
        matches!(tokens.first(), Some(Token::Symbol('⦃' | '(' | '['))) && closes(tokens);
    let signed = tokens.contains(&Token::Symbol('±')) && !inside_brackets;
    signed.then(|| [chosen('+', '-'), chosen('-', '+')])
}

/// Whether the bracket that opens the tokens is closed by the last of them.
fn closes(tokens: &[Token]) -> bool {
    let mut depth = 0;
    let end = tokens.iter().position(|token| {
        depth += nesting(token);
        depth == 0
    });
    tokens.len() > 1 && end == Some(tokens.len() - 1)
}

fn relation(tokens: &[Token], work: &mut Work) -> Result<Option<Answer>, Stop> {
    let sign = |c: char| "=<>≤≥≠".contains(c);
    let Some(at) = top(tokens, sign) else { return Ok(None) };
    let Token::Symbol(first) = tokens[at] else { return Ok(None) };
    let (left, rest) = (&tokens[..at], &tokens[at + 1..]);
    if let Some(second) = top(rest, sign) {
        let Token::Symbol(last) = rest[second] else { return Ok(None) };
        return chain([left, &rest[..second], &rest[second + 1..]], [first, last], work);
    }
    if first == '=' && left.iter().any(|token| matches!(token, Token::Word(_) | Token::Text(_))) {
        return Err(Stop::Meaningless);
    }
    // `f(x) = ..` and `x = (1, 2)` name what comes.
    let named = matches!(left, [Token::Letter(_)])
        || matches!(
            left,
            [Token::Letter(_), Token::Symbol('('), Token::Letter(_), Token::Symbol(')')]
        );
    if first == '=' && named {
        let mut value = answer(rest, MAX_DEPTH - 1, work)?;
        if let (Value::Number(right), [Token::Letter(_)]) = (&value.value, left) {
            let left = expression(left, work)?;
            if !right.names().is_empty() {
                let right = right.clone();
                value.value = Value::Relation { left, sign: '=', right };
            }
        }
        return Ok(Some(value));
    }
    let (left, right) = (expression(left, work)?, quantity(rest, work)?);
    let Value::Number(right) = right.value else { return Err(Stop::Meaningless) };
    Ok(Some(inequality(left, first, right)))
}

/// A relation; of a variable and a number, the interval that it is.
fn inequality(left: Expr, sign: char, right: Expr) -> Answer {
    let turned = |sign| match sign {
        '<' => '>',
        '>' => '<',
        '≤' => '≥',
        '≥' => '≤',
        sign => sign,
    };
    if left.name().is_none() && right.name().is_some_and(|name| !"πe".contains(name)) {
        return inequality(right, turned(sign), left);
    }
    let infinity = || Expr::atom(Atom::Name('∞'));
    let bounded = left.name().is_some() && right.names().is_empty();
    match sign {
        '>' | '≥' if bounded => {
            interval(if sign == '>' { '(' } else { '[' }, right, infinity(), ')')
        }
        '<' | '≤' if bounded => {
            interval('(', infinity().negated(), right, if sign == '<' { ')' } else { ']' })
        }
        '>' | '≥' => Value::Relation { left: right, sign: turned(sign), right: left }.into(),
        _ => Value::Relation { left, sign, right }.into(),
    }
}

fn interval(open: char, low: Expr, high: Expr, close: char) -> Answer {
    let items = vec![Value::Number(low).into(), Value::Number(high).into()];
    Value::Tuple { open, items, close }.into()
}

/// `a < x \le b` as an interval.
fn chain(
    [left, middle, right]: [&[Token]; 3],
    signs: [char; 2],
    work: &mut Work,
) -> Result<Option<Answer>, Stop> {
    let (left, right) = (expression(left, work)?, expression(right, work)?);
    if expression(middle, work)?.name().is_none() {
        return Err(Stop::Meaningless);
    }
    let [first, last] = signs;
    let (low, high, first, last) = match (first, last) {
        ('<' | '≤', '<' | '≤') => (left, right, first == '≤', last == '≤'),
        ('>' | '≥', '>' | '≥') => (right, left, last == '≥', first == '≥'),
        _ => return Err(Stop::Meaningless),
    };
    let (open, close) = (if first { '[' } else { '(' }, if last { ']' } else { ')' });
    Ok(Some(interval(open, low, high, close)))
}

fn bracketed(tokens: &[Token], depth: u32, work: &mut Work) -> Result<Option<Answer>, Stop> {
    let (Some(Token::Symbol(open)), Some(Token::Symbol(close))) = (tokens.first(), tokens.last())
    else {
        return Ok(None);
    };
    if !"([{⦃".contains(*open) || !closes(tokens) {
        return Ok(None);
    }
    let inside = &tokens[1..tokens.len() - 1];
    let parts = split(inside, ',');
    match open {
        '⦃' => Ok(Some(Value::Set(items(&parts, depth, work)?).into())),
        '{' if parts.len() > 1 => Ok(Some(Value::Set(items(&parts, depth, work)?).into())),
        '{' => answer(inside, depth, work).map(Some),
        _ if parts.len() > 1 => {
            let items = all(&parts, depth, work)?;
            Ok(Some(Value::Tuple { open: *open, items, close: *close }.into()))
        }
        _ => Ok(None),
    }
}

fn matrix(tokens: &[Token], work: &mut Work) -> Result<Option<Vec<Vec<Expr>>>, Stop> {
    let [Token::Word(begin), inside @ .., Token::Word(end)] = tokens else { return Ok(None) };
    let name = begin.strip_prefix("begin ").filter(|name| name.ends_with("matrix"));
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

/// `52_8`, `4210_{5}`.
fn based(tokens: &[Token]) -> Option<Value> {
    let [Token::Number { digits, .. }, Token::Symbol('_'), base @ ..] = tokens else { return None };
    let base = match base {
        [Token::Number { digits, .. }]
        | [Token::Symbol('{'), Token::Number { digits, .. }, Token::Symbol('}')] => digits.clone(),
        _ => return None,
    };
    Some(Value::Based { digits: digits.clone(), base })
}

/// A number or expression with its unit, or a ratio.
fn quantity(tokens: &[Token], work: &mut Work) -> Result<Answer, Stop> {
    let (mut tokens, mut unit, mut percent) = (tokens, None, false);
    while let Some((length, name)) = trailing_unit(tokens) {
        if length == tokens.len() {
            break;
        }
        unit = name.or(unit);
        tokens = &tokens[..tokens.len() - length];
    }
    if let [rest @ .., Token::Symbol('%')] = tokens {
        (tokens, percent) = (rest, true);
    }
    if let Some(at) = top(tokens, |c| c == ':') {
        let (left, right) =
            (expression(&tokens[..at], work)?, expression(&tokens[at + 1..], work)?);
        return Ok(Value::Number(left.over(&right, work)?).into());
    }
    let digits = match tokens {
        [Token::Number { digits, .. }] => Some(digits.clone()),
        _ => None,
    };
    let value = Value::Number(expression(tokens, work)?);
    Ok(Answer { value, unit, percent, digits })
}

/// How many tokens at the end are a unit, and which if it is a known one.
fn trailing_unit(tokens: &[Token]) -> Option<(usize, Option<&'static str>)> {
    use Token::{Number, Symbol, Text, Word};
    let angle = tokens.iter().any(|token| matches!(token, Word(word) if is_function(word)));
    let named = |word: &str| (!is_known(word) && !word.contains(' ')).then(|| unit(word));
    match tokens {
        // Inside a function degrees are part of the number.
        [.., Symbol('°')] | [.., Symbol('°'), Symbol('}')] if angle => None,
        [.., Symbol('^'), Symbol('{'), Symbol('°'), Symbol('}')] => Some((4, Some("°"))),
        [.., Symbol('^'), Symbol('°')] => Some((2, Some("°"))),
        [.., Symbol('°')] => Some((1, Some("°"))),
        [.., Text(text)] => Some((1, unit(text))),
        [.., Word(word)] => named(word).map(|name| (1, name)),
        [.., Text(_), Symbol('^'), Number { .. }] => Some((3, None)),
        [.., Word(word), Symbol('^'), Number { .. }] => named(word).map(|_| (3, None)),
        [.., Text(_), Symbol('^'), Symbol('{'), Number { .. }, Symbol('}')] => Some((5, None)),
        _ => None,
    }
}

/// The one name of a known unit.
fn unit(word: &str) -> Option<&'static str> {
    const UNITS: [(&str, &[&str]); 22] = [
        ("°", &["degree", "degrees"]),
        ("cm", &["centimeter", "centimeters"]),
        ("mm", &["millimeter", "millimeters"]),
        ("m", &["meter", "meters", "metre", "metres"]),
        ("km", &["kilometer", "kilometers"]),
        ("in", &["inch", "inches"]),
        ("ft", &["foot", "feet"]),
        ("yd", &["yard", "yards"]),
        ("mi", &["mile", "miles"]),
        ("g", &["gram", "grams"]),
        ("kg", &["kilogram", "kilograms"]),
        ("lb", &["pound", "pounds", "lbs"]),
        ("oz", &["ounce", "ounces"]),
        ("s", &["second", "seconds"]),
        ("min", &["minute", "minutes"]),
        ("h", &["hour", "hours", "hr", "hrs"]),
        ("d", &["day", "days"]),
        ("week", &["weeks"]),
        ("month", &["months"]),
        ("year", &["years"]),
        ("cent", &["cents"]),
        ("dollar", &["dollars"]),
    ];
    let word = word.trim().trim_end_matches('.').to_lowercase();
    UNITS
        .iter()
        .find(|(name, others)| *name == word || others.contains(&word.as_str()))
        .map(|u| u.0)
}
