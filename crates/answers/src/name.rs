//! Left-hand sides of equations: names of results, and quantities to be solved for.

use crate::brackets::{depth_change, inside_brackets, is_enclosed, split_outside, strip_braces};
use crate::exact::{Atom, ExactExpr, Monomial};
use crate::expression::read_expression;
use crate::function::{GREEK, is_function, is_known};
use crate::token::MathToken;
use crate::work::{Stop, WorkBudget};

/// Words that negate the following text.
const DENIALS: &str = "not no never isn't wrong incorrect false except";
/// Letters that multiply a following bracket instead of applying a function: `x(x+1)`.
const FACTORS: &str = "xyznkit";

/// The name of a result: `x`, `a_5`, `f(2)`, `AB`, `\text{Area}`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResultName {
    /// Text as written, without braces and spaces.
    text: String,
    /// True if the name has no words, so that different symbolic names are different quantities.
    symbolic: bool,
}

/// The left-hand side of an equation.
pub(crate) enum LeftSide {
    /// A name of the right-hand side.
    Name(ResultName),
    /// `(x, y)`: names of the items of the right-hand side.
    Names(Vec<ResultName>),
    /// An expression with a value of its own.
    Value,
    /// An expression of variables. `combined` is true if there are several variables, so that the equation states the
    /// value of the combination and cannot be solved for one: `m + n = 12`, but not `2x = 12`.
    Expression { expr: ExactExpr, combined: bool },
}

impl ResultName {
    pub(crate) fn new(tokens: &[MathToken]) -> Self {
        let mut text = String::new();
        for token in tokens {
            match token {
                MathToken::Number { digits, .. } => text.push_str(digits),
                MathToken::Letter(letter) => text.push(*letter),
                MathToken::Word(word) | MathToken::Text(word) => {
                    text.push_str(&word.to_lowercase())
                }
                MathToken::Symbol('{' | '}') | MathToken::Row => {}
                MathToken::Symbol(symbol) => text.push(*symbol),
            }
        }
        Self { text, symbolic: tokens.iter().all(is_symbolic) }
    }

    /// Returns the letter of a variable, with its numeric subscript: `x` and `x_1`.
    pub(crate) fn as_variable(&self) -> Option<(char, Option<u32>)> {
        let mut letters = self.text.chars();
        let letter = letters.next()?;
        match letters.as_str() {
            "" => Some((letter, None)),
            rest => Some((letter, Some(rest.strip_prefix('_')?.parse().ok()?))),
        }
    }

    /// Returns true if two names denote different quantities: `x` and `y`, `a_5` and `a_6`, `f(2)` and `f(3)`, `AB` and
    /// `CD`. Names of different kinds may denote the same quantity: `AB` and `x`.
    pub(crate) fn conflicts_with(&self, other: &Self) -> bool {
        if !self.symbolic || !other.symbolic || self.text == other.text {
            return false;
        }
        let mut letters = self.text.chars().chain(other.text.chars());
        match [self, other].map(|name| name.text.chars().count() == 1) {
            [true, true] => true,
            [true, false] | [false, true] => false,
            _ if letters.all(|c| c.is_ascii_uppercase()) => {
                self.sorted_letters() != other.sorted_letters()
            }
            _ => self.text.chars().next() == other.text.chars().next(),
        }
    }

    /// Returns the characters of the text, sorted.
    fn sorted_letters(&self) -> Vec<char> {
        let mut letters: Vec<char> = self.text.chars().collect();
        letters.sort_unstable();
        letters
    }
}

/// Reads a left-hand side.
///
/// # Errors
///
/// If it negates the right-hand side, or is meaningless.
pub(crate) fn read_left(tokens: &[MathToken], work: &mut WorkBudget) -> Result<LeftSide, Stop> {
    let tokens = match strip_braces(tokens) {
        [rest @ .., MathToken::Symbol(':')] => rest,
        tokens => tokens,
    };
    if tokens.is_empty() || tokens.iter().any(denies) {
        return Err(Stop::Meaningless);
    }
    if let Some(names) = read_names(tokens) {
        return Ok(LeftSide::Names(names));
    }
    if is_name(tokens) {
        return Ok(LeftSide::Name(ResultName::new(tokens)));
    }
    let grouped = replace_segments(tokens);
    match (read_expression(tokens, work), read_expression(&grouped, work)) {
        (Ok(expr), Ok(grouped)) => {
            let variables = distinct_variables(&grouped);
            if variables.is_empty() {
                return Ok(LeftSide::Value);
            }
            if is_angle_function(&grouped) {
                return Ok(LeftSide::Name(ResultName::new(tokens)));
            }
            let product = tokens.iter().all(|token| matches!(token, MathToken::Letter(_)));
            // With a constant beside the variables it is an equation, such as that of a line.
            let constant = grouped.above.0.contains_key(&Monomial::default());
            let combined = variables.len() > 1 && !constant && !(product && tokens.len() > 2);
            Ok(LeftSide::Expression { expr, combined })
        }
        (Err(Stop::Budget), _) | (_, Err(Stop::Budget)) => Err(Stop::Budget),
        // `(f \circ g)(2)`, `AB : BC`
        _ if is_opaque(tokens) => Ok(LeftSide::Name(ResultName::new(tokens))),
        _ => Err(Stop::Meaningless),
    }
}

/// Returns true if a text denies what follows.
fn denies(token: &MathToken) -> bool {
    let (MathToken::Word(text) | MathToken::Text(text)) = token else { return false };
    let text = text.to_lowercase();
    text.split(' ').any(|word| DENIALS.split(' ').any(|denial| denial == word))
}

/// Returns true for a token of a name in symbols: no text, and no word that is not known.
fn is_symbolic(token: &MathToken) -> bool {
    match token {
        MathToken::Text(_) => false,
        MathToken::Word(word) => is_known(word),
        _ => true,
    }
}

/// Reads the names in `(x, y)`.
fn read_names(tokens: &[MathToken]) -> Option<Vec<ResultName>> {
    let inside = inside_brackets(tokens, '(', ')')?;
    let parts = split_outside(inside, |c| c == ',');
    let all = parts.len() > 1 && parts.iter().all(|part| is_name(part));
    all.then(|| parts.into_iter().map(ResultName::new).collect())
}

/// Returns true for the name of a result that cannot be solved for anything.
pub(crate) fn is_name(tokens: &[MathToken]) -> bool {
    use MathToken::{Letter, Symbol, Word};
    let tokens = strip_braces(tokens);
    match tokens {
        [] => false,
        [Letter(letter)] => *letter != 'π',
        [Word(word)] if GREEK.iter().any(|(name, _)| name == word) => true,
        [Letter(_), Symbol('_'), below @ ..] if below.len() == 1 || is_enclosed(below) => true,
        [Letter(_), Symbol('_'), below @ ..] if is_applied('\0', below) => true,
        // `f(2)`, `f'(2)`, `f^{-1}(2)`
        [Letter(letter), rest @ ..] if is_applied(*letter, rest) => true,
        // The length of a complex number or a segment, the area of a polygon. `|x|` is left to be solved.
        [Symbol('|'), Letter('z' | 'w'), Symbol('|')] => true,
        [Symbol('|' | '['), inside @ .., Symbol('|' | ']')] => is_segment(inside),
        _ if is_segment(tokens) => true,
        [first, ..] => {
            // `2 \angle A` is not a name.
            (matches!(first, Letter(_) | Symbol('(' | '[' | '|')) || !is_symbolic(first))
                && !tokens.iter().all(is_symbolic)
                && !has_terms(tokens)
        }
    }
}

/// Returns true if there are terms or factors outside of brackets: `\text{so } 2x` is not a name.
fn has_terms(tokens: &[MathToken]) -> bool {
    let mut depth = 0;
    (0..tokens.len()).any(|at| {
        depth += depth_change(&tokens[at]);
        let before = at.checked_sub(1).map(|before| &tokens[before]);
        let term = matches!(before, Some(MathToken::Symbol('+' | '-' | '*' | '/')));
        // In `\int_0^1 x` the number is a limit of integration.
        let limit = matches!(before, Some(MathToken::Symbol('^' | '_')));
        let factor =
            matches!(tokens.get(at + 1), Some(MathToken::Letter(_) | MathToken::Symbol('(')));
        let number = matches!(tokens[at], MathToken::Number { .. });
        depth == 0 && number && (term || factor && !limit)
    })
}

/// Returns true for a token between the name of a function and its argument, as in `f'(2)` and `f^{-1}(2)`.
fn is_superscript(token: &MathToken) -> bool {
    use MathToken::{Number, Symbol};
    matches!(token, Symbol('\'' | '^' | '{' | '}' | '-' | '_') | Number { .. })
}

/// Returns true if the tokens after a letter apply it to an argument that does not contain the letter.
fn is_applied(letter: char, rest: &[MathToken]) -> bool {
    let open = rest.iter().position(|token| matches!(token, MathToken::Symbol('(' | '[')));
    let Some((marks, argument)) = open.map(|at| rest.split_at(at)) else { return false };
    // `f(f(2))` applies the function twice, `a(a+1)` multiplies.
    let own = argument
        .windows(2)
        .any(|pair| pair[0] == MathToken::Letter(letter) && pair[1] != MathToken::Symbol('('));
    marks.iter().all(is_superscript) && is_enclosed(argument) && !own && !FACTORS.contains(letter)
}

/// Returns true for a sequence of capitals, the names of points on a line: `AB`, `ABC`.
fn is_segment(tokens: &[MathToken]) -> bool {
    let letters = tokens.iter().map(|token| match token {
        MathToken::Word(word) => word.len(),
        _ => 1,
    });
    tokens.iter().all(is_capital) && letters.sum::<usize>() > 1
}

/// Returns true for a capital, or a word of capitals.
fn is_capital(token: &MathToken) -> bool {
    match token {
        MathToken::Letter(letter) => letter.is_ascii_uppercase(),
        MathToken::Word(word) => word.chars().all(|c| c.is_ascii_uppercase()),
        _ => false,
    }
}

/// Replaces each segment by one letter, so that `2AB` has one variable.
fn replace_segments(tokens: &[MathToken]) -> Vec<MathToken> {
    let capital = |token: &MathToken| matches!(token, MathToken::Letter(letter) if letter.is_ascii_uppercase());
    let mut grouped = Vec::new();
    let mut known: Vec<&[MathToken]> = Vec::new();
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
        grouped.push(MathToken::Letter(private));
    }
    grouped
}

/// Returns true for letters and signs that are no expression, with numbers in brackets alone, and nothing to be solved
/// for.
fn is_opaque(tokens: &[MathToken]) -> bool {
    let mut depth = 0;
    for token in tokens {
        depth += depth_change(token);
        let allowed = match token {
            MathToken::Number { .. } => depth > 0,
            MathToken::Word(word) => !is_known(word),
            MathToken::Symbol('!') => false,
            _ => true,
        };
        if !allowed {
            return false;
        }
    }
    tokens.iter().any(|token| matches!(token, MathToken::Letter(_)))
}

/// Returns the variables of an expression, each once.
pub(crate) fn distinct_variables(expr: &ExactExpr) -> Vec<char> {
    let mut names = expr.atom_names();
    names.retain(|name| !matches!(name, 'π' | 'e' | '∞'));
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns true for a trigonometric function of one variable: `\sin A`. Such answers are never left unsolved.
fn is_angle_function(expr: &ExactExpr) -> bool {
    let single = expr.above.0.len() == 1 && expr.below.rational().is_some();
    let Some((monomial, factor)) = expr.above.0.first_key_value() else { return false };
    let mut atoms = monomial.atoms.iter();
    let call = match (atoms.next(), atoms.next()) {
        (Some((Atom::Call(name, arguments), 1)), None) => {
            is_function(name) && *name != "log" && arguments.iter().all(|a| a.as_name().is_some())
        }
        _ => false,
    };
    let plain = monomial.roots.is_empty() && !monomial.imaginary;
    single && call && plain && *factor == num_rational::BigRational::from_integer(1.into())
}
