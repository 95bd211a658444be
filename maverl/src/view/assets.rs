//! Files of the pages, which the binary contains.

use super::http::{Body, Response};

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
    ("page_overview.js", JS, include_str!("web/page_overview.js")),
    ("page_metrics.js", JS, include_str!("web/page_metrics.js")),
    ("page_step.js", JS, include_str!("web/page_step.js")),
    ("page_episodes.js", JS, include_str!("web/page_episodes.js")),
    ("page_episode.js", JS, include_str!("web/page_episode.js")),
    ("page_tokens.js", JS, include_str!("web/page_tokens.js")),
    ("page_group.js", JS, include_str!("web/page_group.js")),
    ("page_timeline.js", JS, include_str!("web/page_timeline.js")),
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

#[cfg(not(test))]
fn content(_: &str, text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

/// Tests read the files themselves, so that a page can be changed without compiling.
#[cfg(test)]
fn content(name: &str, text: &str) -> Vec<u8> {
    let name = if name.is_empty() { "index.html" } else { name };
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/view/web");
    let read = std::fs::read(std::path::Path::new(path).join(name));
    read.unwrap_or_else(|_| text.as_bytes().to_vec())
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
        let bytes: usize = FILES.iter().map(|(.., text)| text.len()).sum();
        assert!(bytes < 150_000, "{bytes} bytes");
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
