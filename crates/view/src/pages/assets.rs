//! Files of the pages, which the binary contains.
//!
//! Scripts and styles are sent without comments, indentation and empty lines, and are otherwise as in the repository.
//! Comments have the types that `just types` checks. A new page is listed here and in `web/main.js`.

use std::borrow::Cow;
use std::io::Read as _;
use std::sync::LazyLock;

use flate2::read::GzDecoder;

use maverl::train::own_name;

const JS: &str = "text/javascript; charset=utf-8";

/// Name and type of each file. A script comes after those that it imports.
pub(crate) const FILES: &[(&str, &str)] = &[
    ("", "text/html; charset=utf-8"),
    ("style.css", "text/css; charset=utf-8"),
    ("dom.js", JS),
    ("format.js", JS),
    ("data.js", JS),
    ("chart.js", JS),
    ("page_runs.js", JS),
    ("team.js", JS),
    ("page_overview.js", JS),
    ("page_metrics.js", JS),
    ("page_step.js", JS),
    ("page_episodes.js", JS),
    ("lanes.js", JS),
    ("page_episode.js", JS),
    ("page_beside.js", JS),
    ("page_tokens.js", JS),
    ("page_group.js", JS),
    ("page_timeline.js", JS),
    ("plan.js", JS),
    ("page_config.js", JS),
    ("page_compare.js", JS),
    ("main.js", JS),
];

/// Module of a page without a server.
pub(crate) const STATIC: &str = "static.js";

/// Returns the type and the text of a file; `None` if there is none of this name.
pub(crate) fn find_file(name: &str) -> Option<(&'static str, String)> {
    let (_, content_type) = FILES.iter().find(|(file, _)| *file == name)?;
    Some((content_type, sent_text(name)))
}

/// Returns the text of a file as it is sent: without comments, which hold the types, without indentation, and styles without
/// spaces that mean nothing. Commands in it have the name of this program.
pub(crate) fn sent_text(name: &str) -> String {
    let text = written_text(if name.is_empty() { "index.html" } else { name });
    match name.rsplit('.').next() {
        Some("js") => own_name(&minify_text(&text)).into_owned(),
        Some("css") => [": ", " {", "{ ", ", ", "; "]
            .into_iter()
            .fold(minify_text(&text), |text, part| text.replace(part, part.trim())),
        _ => text.into_owned(),
    }
}

/// Returns a script or style without comments, indentation and empty lines.
fn minify_text(text: &str) -> String {
    let mut parts = text.split("/**");
    let mut rest = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let after = part.split_once("*/").map_or(part, |(_, after)| after);
        rest += after.strip_prefix(' ').unwrap_or(after);
    }
    let lines = rest.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Names and texts of all files in turn, each ended by NUL: the build script packs them.
static PACKED: LazyLock<String> = LazyLock::new(|| {
    let packed: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/web.gz"));
    let mut text = String::new();
    let read = GzDecoder::new(packed).read_to_string(&mut text);
    read.map(|_| text).unwrap_or_default()
});

/// Returns the text of a file as it is written.
#[cfg(not(test))]
fn written_text(name: &str) -> Cow<'static, str> {
    Cow::Borrowed(packed_text(name))
}

/// Tests read the files themselves, so that a page can be changed without compiling.
#[cfg(test)]
fn written_text(name: &str) -> Cow<'static, str> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/web");
    let read = std::fs::read_to_string(std::path::Path::new(path).join(name));
    read.map_or_else(|_| Cow::Borrowed(packed_text(name)), Cow::Owned)
}

fn packed_text(name: &str) -> &'static str {
    let mut parts = PACKED.split('\0');
    while let (Some(file), Some(text)) = (parts.next(), parts.next()) {
        if file == name {
            return text;
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_makes_markup_of_text_or_asks_another_server() {
        let never = [
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "document.write",
            "eval(",
            "new Function",
            "style=",
            "setAttribute(\"style",
            "createContextualFragment",
            "DOMParser",
            "srcdoc",
        ];
        for name in FILES.iter().map(|(name, _)| *name).chain([STATIC]) {
            let text = written_text(if name.is_empty() { "index.html" } else { name });
            for word in never {
                assert!(!text.contains(word), "{name}: {word}");
            }
            let urls = text.match_indices("http").map(|(at, _)| &text[at..]);
            let foreign = urls.filter(|url| !url.starts_with("http://www.w3.org/2000/svg"));
            let foreign: Vec<_> = foreign.filter(|url| url[4..].starts_with([':', 's'])).collect();
            assert!(foreign.is_empty(), "{name}");
        }
    }

    #[test]
    fn scripts_are_sent_without_types_and_indentation() {
        let text = "/**\n * @param {any} x\n */\nfunction f(x) {\n  // A line.\n  return /** @type {any} */ (x) + \"//\";\n}\n";
        assert_eq!(minify_text(text), "function f(x) {\nreturn (x) + \"//\";\n}\n");
        for (name, _) in FILES.iter().filter(|(name, _)| name.ends_with(".js")) {
            let text = written_text(name);
            let odd = text.lines().find(|line| line.matches('`').count() % 2 == 1);
            assert_eq!(odd, None, "{name}: a text of several lines would lose its indentation");
        }
    }

    #[test]
    fn the_program_has_the_files_as_they_are() {
        for name in FILES.iter().map(|(name, _)| *name).chain([STATIC]) {
            let name = if name.is_empty() { "index.html" } else { name };
            assert!(
                !packed_text(name).is_empty() && packed_text(name) == written_text(name),
                "{name}"
            );
        }
    }

    #[test]
    fn every_import_is_a_file() {
        for (name, _) in FILES.iter().filter(|(name, _)| name.ends_with(".js")) {
            for import in written_text(name).lines().filter(|line| line.starts_with("import ")) {
                let from = import.rsplit("\"./").next().unwrap_or_default();
                let from = from.trim_end_matches(['"', ';']);
                assert!(FILES.iter().any(|(file, _)| *file == from), "{name}: {import}");
            }
        }
    }
}
