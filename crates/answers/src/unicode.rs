//! LaTeX forms of characters beyond ASCII.

/// Characters that stand for a command.
const COMMANDS: [(char, &str); 31] = [
    ('½', "\\frac{1}{2}"),
    ('⅓', "\\frac{1}{3}"),
    ('⅔', "\\frac{2}{3}"),
    ('¼', "\\frac{1}{4}"),
    ('¾', "\\frac{3}{4}"),
    ('⅕', "\\frac{1}{5}"),
    ('⅖', "\\frac{2}{5}"),
    ('⅗', "\\frac{3}{5}"),
    ('⅘', "\\frac{4}{5}"),
    ('⅙', "\\frac{1}{6}"),
    ('⅚', "\\frac{5}{6}"),
    ('⅐', "\\frac{1}{7}"),
    ('⅛', "\\frac{1}{8}"),
    ('⅜', "\\frac{3}{8}"),
    ('⅝', "\\frac{5}{8}"),
    ('⅞', "\\frac{7}{8}"),
    ('⅑', "\\frac{1}{9}"),
    ('⅒', "\\frac{1}{10}"),
    ('√', "\\sqrt "),
    ('∛', "\\sqrt[3]"),
    ('∜', "\\sqrt[4]"),
    ('ℝ', "\\mathbb{R}"),
    ('ℤ', "\\mathbb{Z}"),
    ('ℕ', "\\mathbb{N}"),
    ('ℚ', "\\mathbb{Q}"),
    ('ℂ', "\\mathbb{C}"),
    ('⌊', "\\lfloor "),
    ('⌋', "\\rfloor "),
    ('⌈', "\\lceil "),
    ('⌉', "\\rceil "),
    ('…', "\\ldots "),
];
/// Superscript and subscript characters, in the order of [`LEVEL`].
const RAISED: &str = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ";
const LOWERED: &str = "₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙᵢ";
const LEVEL: &str = "0123456789+-()ni";

/// Replaces characters by commands where they have one: `√2` becomes `\sqrt 2`, `x²` becomes `x^{2}`, `1½` becomes
/// `1\frac{1}{2}`. Wide forms of ASCII become ASCII, and characters without width are dropped.
pub(crate) fn to_latex(text: &str) -> String {
    if text.is_ascii() {
        return text.to_owned();
    }
    let mut latex = String::with_capacity(text.len() + 16);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let Some((mark, alphabet)) = find_alphabet(c) else {
            push_latex(c, &mut latex);
            continue;
        };
        let mut run = String::new();
        run.extend(base_character(c, alphabet));
        while let Some(next) = rest.peek().and_then(|c| base_character(*c, alphabet)) {
            run.push(next);
            rest.next();
        }
        latex.extend([mark, "{", &run, "}"]);
    }
    latex
}

fn find_alphabet(c: char) -> Option<(&'static str, &'static str)> {
    [("^", RAISED), ("_", LOWERED)].into_iter().find(|(_, alphabet)| alphabet.contains(c))
}

/// Returns the base character of a superscript or subscript.
fn base_character(c: char, alphabet: &str) -> Option<char> {
    alphabet.chars().position(|other| other == c).and_then(|at| LEVEL.chars().nth(at))
}

fn push_latex(c: char, latex: &mut String) {
    match c {
        '\u{ff01}'..='\u{ff5e}' => latex.extend(char::from_u32(c as u32 - 0xfee0)),
        '\u{3000}' => latex.push(' '),
        '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' => {}
        '℃' => latex.push_str("°C"),
        '℉' => latex.push_str("°F"),
        _ => match COMMANDS.iter().find(|(character, _)| *character == c) {
            Some((_, command)) => latex.push_str(command),
            None => latex.push(c),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_become_commands() {
        for (text, latex) in [
            ("8√13", "8\\sqrt 13"),
            ("x²³+y", "x^{23}+y"),
            ("2⁻¹", "2^{-1}"),
            ("1021₄", "1021_{4}"),
            ("1½", "1\\frac{1}{2}"),
            ("（１，２）", "(1,2)"),
            ("4\u{200b}2", "42"),
            ("π ≤ é", "π ≤ é"),
        ] {
            assert_eq!(to_latex(text), latex, "{text}");
        }
    }
}
