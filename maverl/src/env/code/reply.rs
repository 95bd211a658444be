//! The program in a reply.

/// Delimiter of a code block.
const FENCE: &str = "```";

/// Returns the program in a reply: the content of its last complete fenced block, whatever language the fence names.
/// Without a block it is the whole reply. Text before `</think>` is ignored. Returns `None` if nothing is left.
pub fn program(reply: &str) -> Option<&str> {
    let said = reply.rsplit_once("</think>").map_or(reply, |(_, said)| said);
    let program = fenced(said).unwrap_or(said);
    (!program.trim().is_empty()).then_some(program)
}

/// Returns the content of the last complete fenced block.
pub(super) fn fenced(text: &str) -> Option<&str> {
    let (mut open, mut found) = (None, None);
    for line in text.split_inclusive('\n') {
        // The offset of a line in the text.
        let start = line.as_ptr() as usize - text.as_ptr() as usize;
        if !line.trim_start().starts_with(FENCE) {
            continue;
        }
        match open.take() {
            None => open = Some(start + line.len()),
            Some(begin) => found = text.get(begin..start),
        }
    }
    found
}
