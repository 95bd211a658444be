//! Location of the answer in a reply.

/// Minimum number of words of a line that is a sentence about an answer instead of another answer.
const SENTENCE: usize = 4;
/// Words that introduce a reason, which is not part of the answer.
const REASONS: &str = "because since as so which hence therefore thus due given";

/// Lines that announce the answer below, without their Markdown.
const HEADINGS: [&str; 4] = ["answer", "the answer", "final answer", "the final answer"];
/// Special tokens that end a reply, beside those of the form `<|im_end|>`.
const END_TOKENS: [&str; 9] =
    ["</s>", "<s>", "<eos>", "<bos>", "<pad>", "<unk>", "<end_of_turn>", "[EOS]", "[PAD]"];
/// Brackets of special tokens: `<|im_end|>`, `<｜end▁of▁sentence｜>`.
const TOKEN_BRACKETS: [(&str, &str); 2] = [("<|", "|>"), ("<｜", "｜>")];

/// Returns the answer that a reply marks: the content of its last complete `\boxed{..}` or `\fbox{..}` that is not empty,
/// else of its only `<answer>..</answer>`, else the text after its last `####`, else the text after its last "answer is",
/// "answer:" or heading "Answer", up to the reason for it. Text before `</think>` and special tokens at the end are
/// ignored. Without braces, as in `\boxed 2`, the marked text is an expression up to the next word or punctuation.
///
/// Returns `None` if there is no such mark; see [`whole_reply`] and [`last_number`] for replies without one.
pub fn marked_answer(reply: &str) -> Option<&str> {
    let reply = text_after_thinking(reply);
    boxed_answer(reply)
        .or_else(|| tagged_answer(reply))
        .or_else(|| hash_marked_answer(reply))
        .or_else(|| announced_answer(reply))
}

/// Returns a reply as a whole, without the text before `</think>`, special tokens at its end, and the Markdown around it;
/// `None` if nothing is left.
pub fn whole_reply(reply: &str) -> Option<&str> {
    Some(strip_markdown(text_after_thinking(reply))).filter(|reply| !reply.is_empty())
}

/// Returns the last number of a reply, with sign, thousands and decimals: a guess at the answer if nothing marks it.
pub fn last_number(reply: &str) -> Option<&str> {
    let reply = text_after_thinking(reply);
    let end = reply.rfind(|c: char| c.is_ascii_digit())? + 1;
    let before = reply[..end].trim_end_matches(|c: char| c.is_ascii_digit() || ".,".contains(c));
    let before = before.len();
    let number = reply[before..end].trim_start_matches(['.', ',']);
    let start = end - number.len();
    // A sign belongs to the number unless it directly follows an operand.
    let signed = reply[..start].ends_with('-')
        && !reply[..start - 1].ends_with(|c: char| c.is_alphanumeric() || c == ')');
    Some(&reply[start - usize::from(signed)..end])
}

/// Returns the marked answer of a reply. Without one, returns its last number if `guess` is set, else the whole reply.
pub fn answer_or_guess(reply: &str, guess: bool) -> Option<&str> {
    marked_answer(reply).or_else(|| if guess { last_number(reply) } else { whole_reply(reply) })
}

/// Returns the answer in a reference, which may be a whole solution, as in GSM8K and MATH.
pub fn reference_answer(text: &str) -> &str {
    marked_answer(text).unwrap_or(text)
}

/// Returns the text after `</think>`, up to the special tokens at the end.
fn text_after_thinking(reply: &str) -> &str {
    without_tokens(reply.rsplit_once("</think>").map_or(reply, |(_, rest)| rest))
}

/// Removes the special tokens at the end of a text: `42<|im_end|></s>`.
pub fn without_tokens(text: &str) -> &str {
    let mut text = text.trim_end();
    while let Some(rest) = without_token(text) {
        text = rest.trim_end();
    }
    text
}

/// Removes the special token at the end of a text; `None` if there is none.
fn without_token(text: &str) -> Option<&str> {
    let named = END_TOKENS.iter().find_map(|token| text.strip_suffix(token));
    named.or_else(|| {
        TOKEN_BRACKETS.into_iter().find_map(|brackets| without_bracketed(text, brackets))
    })
}

/// Removes a name in brackets at the end of a text; `None` if there is none.
fn without_bracketed<'t>(text: &'t str, (open, close): (&str, &str)) -> Option<&'t str> {
    let inside = text.strip_suffix(close)?;
    let before = inside.trim_end_matches(|c: char| c.is_alphanumeric() || "_▁-".contains(c));
    let rest = before.strip_suffix(open)?;
    // `<|x|>` is no token.
    (inside.len() - rest.len() > open.len() + 2).then_some(rest)
}

/// Returns the text before the first special token.
fn before_tokens(text: &str) -> &str {
    let ends = text.match_indices('>').map(|(at, _)| &text[..=at]);
    ends.filter_map(without_token).next().unwrap_or(text)
}

fn boxed_answer(reply: &str) -> Option<&str> {
    let mut end = reply.len();
    // The search starts at the last mark, so that a truncated or empty one does not hide an earlier one.
    loop {
        let at = reply[..end].rfind("\\boxed").max(reply[..end].rfind("\\fbox"))?;
        let rest = reply[at + 1..].trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let inside = braced_content(rest.trim_start()).map(strip_markdown);
        if let Some(inside) = inside.filter(|inside| !inside.is_empty()) {
            return Some(inside);
        }
        if let Some(expression) = unbraced_expression(rest).filter(|_| inside.is_none()) {
            return Some(expression);
        }
        end = at;
    }
}

/// Returns the expression at the beginning of a text: `2`, `-\frac{1}{2}`, `(1, 2)`. A word is not an expression.
fn unbraced_expression(text: &str) -> Option<&str> {
    let text = text.trim_start_matches([' ', '~']);
    let mut start = text.chars();
    let (first, second) = (start.next()?, start.next().unwrap_or(' '));
    let begins = match first {
        '\\' => second.is_ascii_alphabetic() || second == '{',
        'a'..='z' | 'A'..='Z' => !second.is_alphanumeric(),
        _ => first.is_ascii_digit() || "-+.([|√π".contains(first),
    };
    let end = text.char_indices().scan(0, |depth: &mut i32, (at, c)| {
        *depth += match c {
            '{' | '(' | '[' => 1,
            '}' | ')' | ']' => -1,
            _ => 0,
        };
        Some((at, *depth < 0 || *depth == 0 && ends_expression(&text[at..])))
    });
    let end = end.skip(1).find(|(_, ends)| *ends).map_or(text.len(), |(at, _)| at);
    let expression = text[..end].trim().trim_end_matches(['.', ',', ';', ':']);
    Some(expression).filter(|expression| begins && !expression.is_empty())
}

/// Returns true at the end of an expression: a math delimiter, a line end, punctuation or a word.
fn ends_expression(rest: &str) -> bool {
    let delimiter = ["$", "\\)", "\\]", "\n", ". ", ", ", "; ", "**"];
    let word = rest.strip_prefix(' ').unwrap_or_default();
    let letters = word.chars().take_while(char::is_ascii_alphabetic).count();
    letters > 1 || delimiter.iter().any(|mark| rest.starts_with(mark))
}

/// Returns the content of the braces at the beginning of a text.
fn braced_content(text: &str) -> Option<&str> {
    let mut depth = 0_usize;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '{' if !escaped => depth += 1,
            '}' if !escaped => depth = depth.checked_sub(1)?,
            _ if depth == 0 => return None,
            _ => {}
        }
        if depth == 0 && at > 0 {
            return Some(&text[1..at]);
        }
        escaped = c == '\\' && !escaped;
    }
    None
}

/// Returns the content of the only `<answer>..</answer>`, or what it marks.
fn tagged_answer(reply: &str) -> Option<&str> {
    let (_, rest) = reply.split_once("<answer>")?;
    let (inside, rest) = rest.split_once("</answer>")?;
    if [inside, rest].iter().any(|text| text.contains("<answer>") || text.contains("</answer>")) {
        return None;
    }
    let marked = hash_marked_answer(inside).or_else(|| announced_answer(inside));
    marked.or(Some(strip_markdown(inside))).filter(|inside| !inside.is_empty())
}

/// Returns the line after the last `####`: `#### 18`, `#### The answer is 18`. If it is a heading, returns what follows.
fn hash_marked_answer(reply: &str) -> Option<&str> {
    let (_, rest) = reply.rsplit_once("####")?;
    let line = rest.lines().find(|line| !line.trim().is_empty())?;
    let line = if is_heading(line) { return announced_answer(rest) } else { before_tokens(line) };
    announced_answer(line).or(Some(strip_markdown(line))).filter(|line| !line.is_empty())
}

/// Returns true for a line that announces the answer below it: `### Final Answer`.
fn is_heading(line: &str) -> bool {
    let line = line.trim_matches(|c: char| c.is_whitespace() || "#*_:".contains(c));
    HEADINGS.contains(&line.to_ascii_lowercase().as_str())
}

/// Removes the Markdown around a text: `**42**`, `__42__`, `` `42` ``.
fn strip_markdown(text: &str) -> &str {
    let mut text = text.trim();
    while let Some(inside) = ["**", "*", "__", "`"]
        .iter()
        .find_map(|mark| text.strip_prefix(mark)?.strip_suffix(mark))
        .filter(|inside| !inside.trim().is_empty())
    {
        text = inside.trim();
    }
    text
}

/// Returns the text after the last "answer is", "answer:" or heading, up to the end of the sentence or line. If the line
/// ends there, returns the next line with content.
fn announced_answer(reply: &str) -> Option<&str> {
    let lower = reply.to_ascii_lowercase();
    let ends = ["answer is", "answer:", "answer is:", "answer:**", "answer**:", "answer ="]
        .iter()
        .filter_map(|mark| lower.rfind(mark).map(|at| at + mark.len()));
    let heading = reply.lines().rfind(|line| is_heading(line));
    let after_heading = heading.map(|line| position_in(reply, line) + line.len());
    let rest = before_tokens(&reply[ends.chain(after_heading).max()?..]);
    let line = rest.lines().next()?;
    let rest = if announces_nothing(line) { first_line_below(rest)? } else { line };
    let end = [". ", ".** "].iter().filter_map(|end| rest.find(end)).min();
    let rest = strip_reason(end.map_or(rest, |at| &rest[..at]));
    let rest = rest.trim_matches(is_wrapping);
    let rest = rest.strip_suffix('.').unwrap_or(rest).trim_end_matches(is_wrapping);
    let rest = strip_outer_brace(rest).trim_matches(is_wrapping);
    Some(rest).filter(|rest| !rest.is_empty())
}

/// Removes the brace that closes a group opened before the text: `\text{Answer: } 7`, `\text{Answer: 7}`.
fn strip_outer_brace(text: &str) -> &str {
    if text.matches('}').count() <= text.matches('{').count() {
        return text;
    }
    text.strip_prefix('}').or_else(|| text.strip_suffix('}')).unwrap_or(text)
}

/// Returns the text before the reason.
fn strip_reason(sentence: &str) -> &str {
    let mut depth = 0;
    let reason = sentence.char_indices().find(|(at, c)| {
        depth += match c {
            '{' => 1,
            '}' => -1,
            _ => 0,
        };
        let word = sentence[*at..].split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
        let begins = sentence[..*at].ends_with([' ', '(', ',']);
        let word = word.to_ascii_lowercase();
        depth == 0 && begins && !word.is_empty() && REASONS.split(' ').any(|other| other == word)
    });
    let end = reason.map_or(sentence.len(), |(at, _)| at);
    sentence[..end].trim_end_matches([' ', '(', ',', ';', '-', '–', '—'])
}

/// Returns true for white space, and for a mark that may enclose an answer.
fn is_wrapping(c: char) -> bool {
    c.is_whitespace() || matches!(c, '*' | ':' | '$' | '`')
}

/// Returns where a line of a text begins in it.
fn position_in(text: &str, line: &str) -> usize {
    line.as_ptr() as usize - text.as_ptr() as usize
}

/// Returns true if a line is only decoration.
fn announces_nothing(line: &str) -> bool {
    matches!(line.trim_matches(|c| is_wrapping(c) || "_#-".contains(c)), "" | "\\[" | "\\]")
}

/// Returns the first line below that has content. A following line that is not a sentence is included: two answers
/// count as none.
fn first_line_below(text: &str) -> Option<&str> {
    let mut lines = text.lines().filter(|line| !announces_nothing(line));
    let first = lines.next()?;
    let last = lines.take_while(|line| count_words(line) < SENTENCE).last().unwrap_or(first);
    Some(&text[position_in(text, first)..position_in(text, last) + last.len()])
}

/// Returns the number of words of at least two letters.
fn count_words(line: &str) -> usize {
    let words = line.split_whitespace();
    words.filter(|word| word.chars().filter(|c| c.is_alphabetic()).count() > 1).count()
}
