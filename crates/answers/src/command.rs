//! LaTeX commands, as tokens.

use crate::function::{MAGNITUDES, is_applied};
use crate::lexer::LatexLexer;
use crate::token::MathToken;
use crate::unit;

/// Commands that only affect position, size or marks; the group after one is kept.
const SILENT: &str = "left right middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr displaystyle \
    textstyle scriptstyle limits nolimits mathbf mathit mathsf mathtt mathnormal mathop mathbin mathrel \
    mathord boldsymbol bm pmb bf rm it sf tt underline uline boxed fbox framebox ensuremath strut \
    mathstrut nonumber large Large LARGE huge Huge small normalsize tiny";
/// Commands that produce space.
const SPACES: &str = "quad qquad enspace thinspace space hfill";
/// Commands whose argument carries no content: a color, a length, a label.
const MUTE: &str = "color textcolor colorbox hspace vspace mspace label tag hphantom vphantom";
/// Commands whose argument is text.
const TEXTUAL: &str = "text mbox textnormal mathrm textbf textrm operatorname textit hbox emph textsf texttt textsc textup \
    textmd unit si";
/// Maximum number of commands with text within each other that are read as mathematics. Each one is read once for every command
/// around it.
const MAX_TEXT_DEPTH: usize = 16;
/// Spaces in the argument of such a command.
const BLANKS: [&str; 7] = ["~", "\\ ", "\\,", "\\;", "\\:", "\\!", "\\quad"];
/// Commands that stand for a symbol.
const SYMBOLS: [(&str, char); 66] = [
    ("le", '≤'),
    ("leq", '≤'),
    ("leqslant", '≤'),
    ("leqq", '≤'),
    ("ge", '≥'),
    ("geq", '≥'),
    ("geqslant", '≥'),
    ("geqq", '≥'),
    ("lt", '<'),
    ("gt", '>'),
    ("ne", '≠'),
    ("neq", '≠'),
    ("approx", '≈'),
    ("simeq", '≈'),
    ("cdot", '*'),
    ("times", '*'),
    ("ast", '*'),
    ("div", '÷'),
    ("cup", '∪'),
    ("cap", '∩'),
    ("setminus", '∖'),
    ("smallsetminus", '∖'),
    ("backslash", '∖'),
    ("lor", '∨'),
    ("vee", '∨'),
    ("land", '∧'),
    ("wedge", '∧'),
    ("implies", '⇒'),
    ("Rightarrow", '⇒'),
    ("Longrightarrow", '⇒'),
    ("therefore", '⇒'),
    ("pm", '±'),
    ("mp", '∓'),
    ("circ", '°'),
    ("degree", '°'),
    ("textdegree", '°'),
    ("deg", '°'),
    ("in", '∈'),
    ("infty", '∞'),
    ("lvert", '|'),
    ("rvert", '|'),
    ("vert", '|'),
    ("langle", '('),
    ("rangle", ')'),
    ("lparen", '('),
    ("rparen", ')'),
    ("lbrack", '['),
    ("rbrack", ']'),
    ("lbrace", '⦃'),
    ("rbrace", '⦄'),
    ("colon", ':'),
    ("mid", '|'),
    ("to", '→'),
    ("rightarrow", '→'),
    ("emptyset", '∅'),
    ("varnothing", '∅'),
    ("prime", '\''),
    ("ldots", '…'),
    ("dots", '…'),
    ("cdots", '…'),
    ("textdollar", '$'),
    ("pounds", '£'),
    ("euro", '€'),
    ("yen", '¥'),
    ("cent", '¢'),
    ("percent", '%'),
];
/// Commands that stand for another command or word.
const SYNONYMS: [(&str, &str); 13] = [
    ("dfrac", "frac"),
    ("tfrac", "frac"),
    ("cfrac", "frac"),
    ("nicefrac", "frac"),
    ("sfrac", "frac"),
    ("xfrac", "frac"),
    ("dbinom", "binom"),
    ("tbinom", "binom"),
    ("surd", "sqrt"),
    ("R", "mathbb R"),
    ("reals", "mathbb R"),
    ("Reals", "mathbb R"),
    ("real", "mathbb R"),
];

impl LatexLexer {
    /// Reads a command. Returns the text that is to be read instead of it, as outside of it: `7` in `\text{7}`.
    pub(crate) fn read_command(&mut self) -> Option<String> {
        self.at += 1;
        let c = self.peek(0);
        if !c.is_ascii_alphabetic() {
            self.at += 1;
            match c {
                '\\' => self.tokens.push(MathToken::Row),
                '{' => self.push_symbol('⦃'),
                '}' => self.push_symbol('⦄'),
                '%' | '|' | '$' => self.push_symbol(c),
                _ => self.space = self.at,
            }
            return None;
        }
        let name: String = self.take_while(|c| c.is_ascii_alphabetic());
        match name.as_str() {
            name if is_one_of(name, SILENT) => {}
            name if is_one_of(name, SPACES) => self.space = self.at,
            name if is_one_of(name, MUTE) => self.skip_argument(),
            "fcolorbox" => {
                self.skip_argument();
                self.skip_argument();
            }
            name if is_one_of(name, TEXTUAL) => return self.read_text(name),
            "begin" | "end" => {
                let environment = self.take_group().unwrap_or_default();
                if (name.as_str(), environment.as_str()) == ("begin", "array") {
                    self.skip_argument();
                }
                self.tokens.push(MathToken::Word(format!("{name} {environment}")));
            }
            "phantom" => {
                if self.take_group().is_none() {
                    self.at += 1;
                }
            }
            "mathbb" | "Bbb" | "mathds" => {
                let set = self.take_group().unwrap_or_else(|| self.take_character());
                self.tokens.push(MathToken::Word(format!("mathbb {}", set.trim())));
            }
            "pi" => self.tokens.push(MathToken::Letter('π')),
            name => self.push_named(name),
        }
        None
    }

    fn push_named(&mut self, name: &str) {
        let symbol = SYMBOLS.iter().find(|(word, _)| *word == name);
        let synonym = SYNONYMS.iter().find(|(word, _)| *word == name);
        match (symbol, synonym) {
            (Some((_, symbol)), _) => self.push_symbol(*symbol),
            (None, Some((_, word))) => self.tokens.push(MathToken::Word((*word).to_owned())),
            (None, None) => self.tokens.push(MathToken::Word(name.to_owned())),
        }
    }

    /// Returns the next character, as the argument of a command without braces.
    fn take_character(&mut self) -> String {
        let c = self.peek(0);
        self.at += 1;
        c.to_string()
    }

    /// Skips an argument without content, and the option in `[ ]` before it.
    fn skip_argument(&mut self) {
        if self.peek(0) == '*' {
            self.at += 1;
        }
        if self.peek(0) == '[' {
            self.take_while(|c| c != ']');
            self.at += 1;
        }
        self.take_group();
    }

    /// Reads a command whose argument is text. Returns the text if it is mathematics.
    fn read_text(&mut self, command: &str) -> Option<String> {
        let text = self.take_group()?;
        // `\mathrm{~cm}`, `\mathrm{\mu m}`
        let text = BLANKS.iter().fold(text, |text, blank| text.replace(blank, " "));
        let text = text.replace("\\mu ", "μ").replace("\\mu", "μ");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let first = words.split(' ').next().unwrap_or_default();
        match words.trim_matches([',', ' ']) {
            "" if words.is_empty() => self.space = self.at,
            "and" => self.push_symbol('∧'),
            "or" => self.push_symbol('∨'),
            "i" => self.tokens.push(MathToken::Letter('i')),
            "e" => self.tokens.push(MathToken::Letter('e')),
            // After a number, `sec` means seconds.
            "sec" if command != "operatorname" && self.after_value() => {
                self.tokens.push(MathToken::Text(words));
            }
            word if is_applied(word) => self.tokens.push(MathToken::Word(word.to_owned())),
            _ if MAGNITUDES.iter().any(|(name, _)| *name == first) => return Some(words),
            _ if self.text_depth < MAX_TEXT_DEPTH && is_inline(&words) => return Some(text),
            _ => self.tokens.push(MathToken::Text(words)),
        }
        None
    }
}

fn is_one_of(name: &str, names: &str) -> bool {
    names.split(' ').any(|other| other == name)
}

/// Returns true if a text contains mathematics and is more than a unit: `7`, `x = 3`, `or 43`, `(A), (C)`.
fn is_inline(words: &str) -> bool {
    words.contains(|c: char| c.is_ascii_digit() || "=\\$√π∞<>,;".contains(c))
        && !unit::is_unit(words)
}
