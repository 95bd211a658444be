//! Pages without a server as a directory: a page, a script, a style, and a file for each block, which is loaded when it
//! is needed. The size of the whole is not bounded by what a browser can open at once.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Map, Value};

use super::blocks::packed;
use super::bundle;
use crate::pages::assets;

/// Content security policy: scripts and styles of the directory. The only scripts that a script may add are blocks.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; base-uri 'none'; \
    form-action 'none'; require-trusted-types-for 'script'; trusted-types maverl";

/// Writes the pages into a directory that is new or empty, and returns their size in bytes.
pub(crate) fn write(
    blocks: &BTreeMap<String, Map<String, Value>>,
    out: &Path,
) -> io::Result<usize> {
    if out.is_dir() && fs::read_dir(out)?.next().is_some() {
        let reason = "the directory is not empty; give a new one";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, reason));
    }
    fs::create_dir_all(out.join("data"))?;
    let mut bytes = 0;
    let mut write = |name: &str, text: &str| {
        bytes += text.len();
        fs::write(out.join(name), text)
    };
    write("index.html", &page(blocks.keys()))?;
    write("style.css", &assets::text("style.css"))?;
    write("pages.js", &bundle::script())?;
    for (name, answers) in blocks {
        let block = format!("maverlBlock(\"{name}\", \"{}\");\n", packed(answers));
        write(&format!("data/{name}.js"), &block)?;
    }
    Ok(bytes)
}

/// Returns the page with the names of its blocks.
fn page<'n>(names: impl Iterator<Item = &'n String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    let meta = format!(
        "<meta charset=\"utf-8\">\n    <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n    \
         <meta name=\"blocks\" content=\"{}\">",
        names.join(" ")
    );
    let page = assets::text("").replace("<meta charset=\"utf-8\">", &meta);
    page.replace(
        "<script type=\"module\" src=\"main.js\"></script>",
        "<script defer src=\"pages.js\"></script>",
    )
}
