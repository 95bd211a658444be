//! Files of the pages, which the binary contains.

use std::borrow::Cow;

use super::http::{Body, Response};
use crate::train::own;

const JS: &str = "text/javascript; charset=utf-8";

/// Name, type and content of each file.
pub(super) const FILES: &[(&str, &str, &str)] = &[
    ("", "text/html; charset=utf-8", include_str!("web/index.html")),
    ("style.css", "text/css; charset=utf-8", include_str!("web/style.css")),
    ("dom.js", JS, include_str!("web/dom.js")),
    ("format.js", JS, include_str!("web/format.js")),
    ("data.js", JS, include_str!("web/data.js")),
    ("chart.js", JS, include_str!("web/chart.js")),
    ("page_runs.js", JS, include_str!("web/page_runs.js")),
    ("team.js", JS, include_str!("web/team.js")),
    ("page_overview.js", JS, include_str!("web/page_overview.js")),
    ("page_metrics.js", JS, include_str!("web/page_metrics.js")),
    ("page_step.js", JS, include_str!("web/page_step.js")),
    ("page_episodes.js", JS, include_str!("web/page_episodes.js")),
    ("lanes.js", JS, include_str!("web/lanes.js")),
    ("page_episode.js", JS, include_str!("web/page_episode.js")),
    ("page_beside.js", JS, include_str!("web/page_beside.js")),
    ("page_tokens.js", JS, include_str!("web/page_tokens.js")),
    ("page_group.js", JS, include_str!("web/page_group.js")),
    ("page_timeline.js", JS, include_str!("web/page_timeline.js")),
    ("plan.js", JS, include_str!("web/plan.js")),
    ("page_config.js", JS, include_str!("web/page_config.js")),
    ("page_compare.js", JS, include_str!("web/page_compare.js")),
    ("main.js", JS, include_str!("web/main.js")),
];

/// Module of a page without a server.
pub(super) const STATIC: (&str, &str) = ("static.js", include_str!("web/static.js"));

/// Returns the text of a file.
pub(super) fn text(name: &str) -> String {
    let of_page = FILES.iter().find(|(file, ..)| *file == name).map(|(.., text)| *text);
    let text = of_page.or((name == STATIC.0).then_some(STATIC.1)).unwrap_or_default();
    String::from_utf8_lossy(&content(name, text)).into_owned()
}

/// Returns a file by its name.
pub(super) fn answer(name: &str) -> Response {
    match FILES.iter().find(|(file, ..)| *file == name) {
        Some((_, content_type, text)) => {
            Response::new(200, content_type, Body::Whole(content(name, text)))
        }
        None => Response::refusal(404, "there is no such page"),
    }
}

/// Returns the content of a file as it is sent: without comments, which hold the types, and without indentation. Commands in
/// it have the name of this program.
fn content(name: &str, text: &str) -> Vec<u8> {
    let text = source(name, text);
    match name.ends_with(".js") || name.ends_with(".css") {
        true => own(&short(&text)).into_owned().into_bytes(),
        false => text.into_owned().into_bytes(),
    }
}

/// Returns a script or style without comments, indentation and empty lines.
fn short(text: &str) -> String {
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

#[cfg(not(test))]
fn source<'t>(_: &str, text: &'t str) -> Cow<'t, str> {
    Cow::Borrowed(text)
}

/// Tests read the files themselves, so that a page can be changed without compiling.
#[cfg(test)]
fn source<'t>(name: &str, text: &'t str) -> Cow<'t, str> {
    let name = if name.is_empty() { "index.html" } else { name };
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/view/web");
    let read = std::fs::read_to_string(std::path::Path::new(path).join(name));
    read.map_or(Cow::Borrowed(text), Cow::Owned)
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
        let files = FILES.iter().map(|(name, _, text)| (*name, *text)).chain([STATIC]);
        for (name, text) in files {
            for word in never {
                assert!(!text.contains(word), "{name}: {word}");
            }
            let urls = text.match_indices("http").map(|(at, _)| &text[at..]);
            let foreign = urls.filter(|url| !url.starts_with("http://www.w3.org/2000/svg"));
            let foreign: Vec<_> = foreign.filter(|url| url[4..].starts_with([':', 's'])).collect();
            assert!(foreign.is_empty(), "{name}");
        }
        let bytes: usize = FILES.iter().map(|(name, _, text)| content(name, text).len()).sum();
        assert!(bytes <= 155_000, "{bytes} bytes");
    }

    #[test]
    fn scripts_are_sent_without_types_and_indentation() {
        let text = "/**\n * @param {any} x\n */\nfunction f(x) {\n  // A line.\n  return /** @type {any} */ (x) + \"//\";\n}\n";
        assert_eq!(short(text), "function f(x) {\nreturn (x) + \"//\";\n}\n");
        for (name, _, text) in FILES.iter().filter(|(name, ..)| name.ends_with(".js")) {
            let odd = text.lines().find(|line| line.matches('`').count() % 2 == 1);
            assert_eq!(odd, None, "{name}: a text of several lines would lose its indentation");
        }
    }

    #[test]
    fn every_import_is_a_file() {
        for (name, _, text) in FILES.iter().filter(|(name, ..)| name.ends_with(".js")) {
            for import in text.lines().filter(|line| line.starts_with("import ")) {
                let from = import.rsplit("\"./").next().unwrap_or_default();
                let from = from.trim_end_matches(['"', ';']);
                assert!(FILES.iter().any(|(file, ..)| *file == from), "{name}: {import}");
            }
        }
    }
}
