//! Left-hand sides of equations: names of results, and quantities to be solved for.

use crate::brackets::{closes, inside, nesting, split, ungrouped};
use crate::exact::{Atom, Expr, Monomial};
use crate::expression::expression;
use crate::function::{GREEK, is_function, is_known};
use crate::token::Token;
use crate::work::{Stop, Work};

/// Words that negate the following text.
const DENIALS: &str = "not no never isn't wrong incorrect false except";
/// Letters that multiply a following bracket instead of applying a function: `x(x+1)`.
const FACTORS: &str = "xyznkit";

/// The name of a result: `x`, `a_5`, `f(2)`, `AB`, `\text{Area}`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Name {
    /// Text as written, without braces and spaces.
    text: String,
    /// True if the name has no words, so that different symbolic names are different quantities.
    symbolic: bool,
}

/// The left-hand side of an equation.
pub(crate) enum Left {
    /// A name of the right-hand side.
    Name(Name),
    /// `(x, y)`: names of the items of the right-hand side.
    Names(Vec<Name>),
    /// An expression with a value of its own.
    Value,
    /// An expression of variables. `combined` is true if there are several variables, so that the equation states the
    /// value of the combination and cannot be solved for one: `m + n = 12`, but not `2x = 12`.
    Expression { expr: Expr, combined: bool },
}

impl Name {
    pub(crate) fn new(tokens: &[Token]) -> Self {
        let mut text = String::new();
        for token in tokens {
            match token {
                Token::Number { digits, .. } => text.push_str(digits),
                Token::Letter(letter) => text.push(*letter),
                Token::Word(word) | Token::Text(word) => text.push_str(&word.to_lowercase()),
                Token::Symbol('{' | '}') | Token::Row => {}
                Token::Symbol(symbol) => text.push(*symbol),
            }
        }
        let plain = |token: &Token| match token {
            Token::Text(_) => false,
            Token::Word(word) => is_known(word),
            _ => true,
        };
        Self { text, symbolic: tokens.iter().all(plain) }
    }

    /// Returns the letter of a variable, with its numeric subscript: `x` and `x_1`.
    pub(crate) fn variable(&self) -> Option<(char, Option<u32>)> {
        let mut letters = self.text.chars();
        let letter = letters.next()?;
        match letters.as_str() {
            "" => Some((letter, None)),
            rest => Some((letter, Some(rest.strip_prefix('_')?.parse().ok()?))),
        }
    }

    /// Returns true if two names denote different quantities: `x` and `y`, `a_5` and `a_6`, `f(2)` and `f(3)`, `AB` and
    /// `CD`. Names of different kinds may denote the same quantity: `AB` and `x`.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        let single = |name: &Self| name.text.chars().count() == 1;
        let segment = |name: &Self| name.text.chars().all(|c| c.is_ascii_uppercase());
        let letters = |name: &Self| {
            let mut letters: Vec<char> = name.text.chars().collect();
            letters.sort_unstable();
            letters
        };
        if !self.symbolic || !other.symbolic || self.text == other.text {
            return false;
        }
        match (single(self), single(other)) {
            (true, true) => true,
            (true, false) | (false, true) => false,
            _ if segment(self) && segment(other) => letters(self) != letters(other),
            _ => self.text.chars().next() == other.text.chars().next(),
        }
    }
}

/// Reads a left-hand side.
///
/// # Errors
///
/// If it negates the right-hand side, or is meaningless.
pub(crate) fn left(tokens: &[Token], work: &mut Work) -> Result<Left, Stop> {
    let tokens = match ungrouped(tokens) {
        [rest @ .., Token::Symbol(':')] => rest,
        tokens => tokens,
    };
    let denied = |word: &str| {
        let word = word.to_lowercase();
        word.split(' ').any(|word| DENIALS.split(' ').any(|denial| denial == word))
    };
    let words =
        |token: &Token| matches!(token, Token::Word(word) | Token::Text(word) if denied(word));
    if tokens.is_empty() || tokens.iter().any(words) {
        return Err(Stop::Meaningless);
    }
    if let Some(names) = names(tokens) {
        return Ok(Left::Names(names));
    }
    if is_name(tokens) {
        return Ok(Left::Name(Name::new(tokens)));
    }
    let grouped = segments(tokens);
    match (expression(tokens, work), expression(&grouped, work)) {
        (Ok(expr), Ok(grouped)) => {
            let variables = variables(&grouped);
            if variables.is_empty() {
                return Ok(Left::Value);
            }
            if is_angle_function(&grouped) {
                return Ok(Left::Name(Name::new(tokens)));
            }
            let product = tokens.iter().all(|token| matches!(token, Token::Letter(_)));
            // With a constant beside the variables it is an equation, such as that of a line.
            let constant = grouped.above.0.contains_key(&Monomial::default());
            let combined = variables.len() > 1 && !constant && !(product && tokens.len() > 2);
            Ok(Left::Expression { expr, combined })
        }
        (Err(Stop::Budget), _) | (_, Err(Stop::Budget)) => Err(Stop::Budget),
        // `(f \circ g)(2)`, `AB : BC`
        _ if is_opaque(tokens) => Ok(Left::Name(Name::new(tokens))),
        _ => Err(Stop::Meaningless),
    }
}

/// Reads the names in `(x, y)`.
fn names(tokens: &[Token]) -> Option<Vec<Name>> {
    let inside = inside(tokens, '(', ')')?;
    let parts = split(inside, |c| c == ',');
    let all = parts.len() > 1 && parts.iter().all(|part| is_name(part));
    all.then(|| parts.into_iter().map(Name::new).collect())
}

/// Returns true for the name of a result that cannot be solved for anything.
pub(crate) fn is_name(tokens: &[Token]) -> bool {
    use Token::{Letter, Symbol, Text, Word};
    let tokens = ungrouped(tokens);
    match tokens {
        [] => false,
        [Letter(letter)] => *letter != 'π',
        [Word(word)] if GREEK.iter().any(|(name, _)| name == word) => true,
        [Letter(_), Symbol('_'), below @ ..] if below.len() == 1 || closes(below) => true,
        [Letter(_), Symbol('_'), below @ ..] if applied('\0', below) => true,
        // `f(2)`, `f'(2)`, `f^{-1}(2)`
        [Letter(letter), rest @ ..] if applied(*letter, rest) => true,
        // The length of a complex number or a segment, the area of a polygon. `|x|` is left to be solved.
        [Symbol('|'), Letter('z' | 'w'), Symbol('|')] => true,
        [Symbol('|' | '['), inside @ .., Symbol('|' | ']')] => is_segment(inside),
        _ if is_segment(tokens) => true,
        [first, ..] => {
            let word = |token: &Token| match token {
                Text(_) => true,
                Word(word) => !is_known(word),
                _ => false,
            };
            // `2 \angle A` is not a name.
            (matches!(first, Letter(_) | Symbol('(' | '[' | '|')) || word(first))
                && tokens.iter().any(word)
                && !has_terms(tokens)
        }
    }
}

/// Returns true if there are terms or factors outside of brackets: `\text{so } 2x` is not a name.
fn has_terms(tokens: &[Token]) -> bool {
    let mut depth = 0;
    (0..tokens.len()).any(|at| {
        depth += nesting(&tokens[at]);
        let before = at.checked_sub(1).map(|before| &tokens[before]);
        let term = matches!(before, Some(Token::Symbol('+' | '-' | '*' | '/')));
        // In `\int_0^1 x` the number is a limit of integration.
        let limit = matches!(before, Some(Token::Symbol('^' | '_')));
        let factor = matches!(tokens.get(at + 1), Some(Token::Letter(_) | Token::Symbol('(')));
        let number = matches!(tokens[at], Token::Number { .. });
        depth == 0 && number && (term || factor && !limit)
    })
}

/// Returns true if the tokens after a letter apply it to an argument that does not contain the letter.
fn applied(letter: char, rest: &[Token]) -> bool {
    let open = rest.iter().position(|token| matches!(token, Token::Symbol('(' | '[')));
    let Some((marks, argument)) = open.map(|at| rest.split_at(at)) else { return false };
    let mark = |token: &Token| {
        matches!(token, Token::Symbol('\'' | '^' | '{' | '}' | '-' | '_') | Token::Number { .. })
    };
    // `f(f(2))` applies the function twice, `a(a+1)` multiplies.
    let own = argument
        .windows(2)
        .any(|pair| pair[0] == Token::Letter(letter) && pair[1] != Token::Symbol('('));
    marks.iter().all(mark) && closes(argument) && !own && !FACTORS.contains(letter)
}

/// Returns true for a sequence of capitals, the names of points on a line: `AB`, `ABC`.
fn is_segment(tokens: &[Token]) -> bool {
    let capital = |token: &Token| match token {
        Token::Letter(letter) => letter.is_ascii_uppercase(),
        Token::Word(word) => word.chars().all(|c| c.is_ascii_uppercase()),
        _ => false,
    };
    let letters = tokens.iter().map(|token| match token {
        Token::Word(word) => word.len(),
        _ => 1,
    });
    tokens.iter().all(capital) && letters.sum::<usize>() > 1
}

/// Replaces each segment by one letter, so that `2AB` has one variable.
fn segments(tokens: &[Token]) -> Vec<Token> {
    let capital =
        |token: &Token| matches!(token, Token::Letter(letter) if letter.is_ascii_uppercase());
    let mut grouped = Vec::new();
    let mut known: Vec<&[Token]> = Vec::new();
    for run in tokens.chunk_by(|a, b| capital(a) && capital(b)) {
        if run.len() < 2 {
            grouped.extend_from_slice(run);
            continue;
        }
        let at = known.iter().position(|other| *other == run).unwrap_or(known.len());
        if at == known.len() {
            known.push(run);
        }
        // Private-use characters, which do not occur in answers.
        let private = char::from_u32(0xe000 + at as u32).unwrap_or('\u{e000}');
        grouped.push(Token::Letter(private));
    }
    grouped
}

/// Returns true for letters and signs that are no expression, with numbers in brackets alone, and nothing to be solved
/// for.
fn is_opaque(tokens: &[Token]) -> bool {
    let mut depth = 0;
    let mut allowed = |token: &Token| {
        depth += nesting(token);
        match token {
            Token::Number { .. } => depth > 0,
            Token::Word(word) => !is_known(word),
            Token::Symbol('!') => false,
            _ => true,
        }
    };
    tokens.iter().any(|token| matches!(token, Token::Letter(_))) && tokens.iter().all(&mut allowed)
}

/// Returns the variables of an expression, each once.
pub(crate) fn variables(expr: &Expr) -> Vec<char> {
    let mut names = expr.names();
    names.retain(|name| !matches!(name, 'π' | 'e' | '∞'));
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns true for a trigonometric function of one variable: `\sin A`. Such answers are never left unsolved.
fn is_angle_function(expr: &Expr) -> bool {
    let single = expr.above.0.len() == 1 && expr.below.rational().is_some();
    let Some((monomial, factor)) = expr.above.0.first_key_value() else { return false };
    let mut atoms = monomial.atoms.iter();
    let call = match (atoms.next(), atoms.next()) {
        (Some((Atom::Call(name, arguments), 1)), None) => {
            is_function(name) && *name != "log" && arguments.iter().all(|a| a.name().is_some())
        }
        _ => false,
    };
    let plain = monomial.roots.is_empty() && !monomial.imaginary;
    single && call && plain && *factor == num_rational::BigRational::from_integer(1.into())
}
