//! The crates that `maverl::main!` names, compared with those of the manifest.

use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Ident, Span, TokenStream, TokenTree};

use crate::errors::{Errors, did_you_mean};

/// The crate whose command line the macro runs.
const COMMAND_LINE: &str = "maverl_cli";

/// The message if it is missing.
const NO_COMMAND_LINE: &str = "`maverl::main!` runs the command line of the crate `maverl-cli`, which `Cargo.toml` does not \
                               have; add it to `[dependencies]`, beside `maverl`";

/// Emits an error for each name that is neither a crate of the manifest nor a module of the file.
pub(crate) fn crates(names: TokenStream) -> TokenStream {
    let Some(dir) = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from) else {
        return TokenStream::new();
    };
    let manifest = fs::read_to_string(dir.join("Cargo.toml")).unwrap_or_default();
    let mut known = crates_of(&manifest, dir.join("src/lib.rs").is_file());
    let mut errors = Errors::default();
    if lacks_command_line(&known) {
        errors.at_span(Span::call_site(), NO_COMMAND_LINE);
    }
    known.retain(|name| name != COMMAND_LINE);
    for token in names {
        let TokenTree::Ident(name) = token else { continue };
        let written = name.to_string();
        if !known.is_empty() && !known.contains(&written) && !is_module(&name, &dir) {
            errors.at(&name, unknown_name(&written, &known));
        }
    }
    errors.finish(Some(())).map_or_else(|error| error.to_compile_error(), |()| TokenStream::new())
}

/// Returns true for a manifest with dependencies, but without the command line.
fn lacks_command_line(known: &[String]) -> bool {
    !known.is_empty() && !known.iter().any(|name| name == COMMAND_LINE)
}

fn unknown_name(name: &str, known: &[String]) -> String {
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let hint = did_you_mean(name, &known);
    format!(
        "`Cargo.toml` has no crate `{name}`; add it to `[dependencies]`, or write one that is there{hint}"
    )
}

/// Returns true if the file of the call declares a module of this name, or the crate renames one to it.
fn is_module(name: &Ident, dir: &Path) -> bool {
    let file = name.span().unwrap().local_file();
    let files = file.into_iter().chain([dir.join("src/main.rs")]);
    let mut texts = files.filter_map(|file| fs::read_to_string(file).ok());
    texts.any(|text| {
        ["mod ", "as ", "use "].iter().any(|before| text.contains(&format!("{before}{name}")))
    })
}

/// Returns the names by which code knows the crates of a manifest: the library of the package, and the dependencies other
/// than maverl itself.
fn crates_of(manifest: &str, has_library: bool) -> Vec<String> {
    let mut crates = Vec::new();
    let (mut table, mut package, mut library) = (String::new(), None, None);
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            table = header.trim_end_matches(']').replace(['"', '\''], "");
            if let Some((_, name)) = table.split_once("dependencies.") {
                crates.push(name.to_owned());
            }
            continue;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) else {
            continue;
        };
        let key = key.trim().trim_matches('"');
        let value = value.split('"').nth(1).unwrap_or_default().to_owned();
        match (table.as_str(), key) {
            ("package", "name") => package = Some(value),
            ("lib", "name") => library = Some(value),
            (table, key) if table.ends_with("dependencies") => {
                crates.push(key.split('.').next().unwrap_or(key).to_owned());
            }
            _ => {}
        }
    }
    let own = library.or(package.filter(|_| has_library));
    let mut all: Vec<String> =
        own.into_iter().chain(crates).map(|name| name.replace('-', "_")).collect();
    all.retain(|name| name != "maverl");
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = r#"
[package]
name = "my-team"
[features]
full = ["maverl/full"]
[dependencies]
maverl = { path = "../maverl" }
#orchestras = "1"
serde_json.workspace = true
"quoted-name" = "1"
[dependencies.other-team]
path = "../other"
[target.'cfg(unix)'.dev-dependencies]
tempfile = "3"
"#;

    #[test]
    fn the_crates_of_a_manifest_are_its_library_and_its_dependencies() {
        let crates = crates_of(MANIFEST, true);
        assert_eq!(crates, ["my_team", "serde_json", "quoted_name", "other_team", "tempfile"]);
        assert_eq!(crates_of("[lib]\nname = \"duo\"\n[package]\nname = \"a\"\n", true), ["duo"]);
        assert_eq!(crates_of("[package]\nname = \"a\"\n", false), [""; 0]);
    }

    #[test]
    fn a_manifest_without_the_command_line_is_found() {
        assert!(lacks_command_line(&crates_of(MANIFEST, true)));
        let with = format!("{MANIFEST}\n[dependencies]\nmaverl-cli = \"1\"\n");
        assert!(!lacks_command_line(&crates_of(&with, true)));
        assert!(!lacks_command_line(&crates_of("", false)));
    }

    #[test]
    fn a_misspelt_crate_is_answered_with_the_one_that_was_meant() {
        let known = ["my_team".to_owned(), "orchestras".to_owned()];
        let near = unknown_name("my_taem", &known);
        assert!(near.starts_with("`Cargo.toml` has no crate `my_taem`; add it to"), "{near}");
        assert!(near.ends_with("; did you mean `my_team`?"), "{near}");
        let far = unknown_name("quiz", &known);
        assert!(far.contains("one that is there; known: `my_team`, `orchestras`"), "{far}");
    }
}
