//! Pages without a server as a directory: a page, a script, a style, and a file for each block, which is loaded when it
//! is needed. The size of the whole is not bounded by what a browser can open at once.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Map, Value};

use super::blocks::pack_answers;
use super::bundle;
use crate::pages::assets;

/// Content security policy: scripts and styles of the directory. The only scripts that a script may add are blocks.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; base-uri 'none'; \
    form-action 'none'; require-trusted-types-for 'script'; trusted-types maverl";

/// Writes the pages into a directory that is new or empty, and returns their size in bytes.
pub(crate) fn write_folder(
    blocks: &BTreeMap<String, Map<String, Value>>,
    out: &Path,
) -> io::Result<usize> {
    if out.is_dir() && fs::read_dir(out)?.next().is_some() {
        let reason = "the directory is not empty; give a new one";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, reason));
    }
    fs::create_dir_all(out.join("data"))?;
    let mut files = vec![
        ("index.html".to_owned(), page_html(blocks.keys())),
        ("style.css".to_owned(), assets::sent_text("style.css")),
        ("pages.js".to_owned(), bundle::bundle_script()),
    ];
    files.extend(blocks.iter().map(|(name, answers)| {
        let block = format!("maverlBlock(\"{name}\", \"{}\");\n", pack_answers(answers));
        (format!("data/{name}.js"), block)
    }));
    for (name, text) in &files {
        fs::write(out.join(name), text)?;
    }
    Ok(files.iter().map(|(_, text)| text.len()).sum())
}

/// Returns the page with the names of its blocks.
fn page_html<'n>(names: impl Iterator<Item = &'n String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    let meta = format!(
        "<meta charset=\"utf-8\">\n    <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n    \
         <meta name=\"blocks\" content=\"{}\">",
        names.join(" ")
    );
    let page = assets::sent_text("").replace("<meta charset=\"utf-8\">", &meta);
    page.replace(
        "<script type=\"module\" src=\"main.js\"></script>",
        "<script defer src=\"pages.js\"></script>",
    )
}
