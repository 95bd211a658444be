//! The program in a reply.

/// What opens and closes a block of code.
const FENCE: &str = "```";

/// The program in a reply: what stands in its last complete fenced block, whatever language the fence names; without one,
/// the whole reply. What comes before `</think>` never counts. `None` if that leaves nothing.
pub fn program(reply: &str) -> Option<&str> {
    let said = reply.rsplit_once("</think>").map_or(reply, |(_, said)| said);
    let program = fenced(said).unwrap_or(said);
    (!program.trim().is_empty()).then_some(program)
}

/// What stands in the last complete fenced block.
pub(super) fn fenced(text: &str) -> Option<&str> {
    let (mut open, mut found) = (None, None);
    for line in text.split_inclusive('\n') {
        // A line begins where it lies in the text.
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
