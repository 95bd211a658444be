//! Reads the configuration file, and explains read errors.

use std::fs::FileType;
use std::io::{ErrorKind, Read};
use std::path::Path;

use toml_edit::ImDocument;

use super::layer::{LayerContent, SourceLayer};
use super::missing::{self, WantedEntry};
use super::shipped::ShippedName;
use super::sources::File;
use super::unread::UnreadValue;
use super::{syntax, yaml};

/// Maximum size of a configuration in bytes.
const LARGEST: u64 = 1 << 20;

/// Reads a configuration file. One that cannot be read has no values.
pub(super) fn read_file(file: &File) -> (SourceLayer, Option<UnreadValue>) {
    let (name, text, read) = match text(file) {
        Ok((name, text)) if is_yaml(&name) => {
            let read = yaml::parse(&name, &text).map(LayerContent::Yaml);
            (name, text, read)
        }
        Ok((name, text)) => {
            let read = parse(&name, &text).map(LayerContent::File);
            (name, text, read)
        }
        Err((name, shown, problem)) => (name, shown, Err(problem)),
    };
    match read {
        Ok(content) => (SourceLayer::new(name, text, content), None),
        Err(problem) => (SourceLayer::new(name, text, LayerContent::Nothing), Some(problem)),
    }
}

/// Returns name and text of a file; or its name, the text to show, and the problem with it.
pub(super) fn text(file: &File) -> Result<(String, String), (String, String, UnreadValue)> {
    let (name, bytes) = match file {
        File::Text { name, text, .. } => (name.clone(), Ok(text.clone().into_bytes())),
        File::Path(path) => (path.display().to_string(), read(path)),
        File::Shipped(name) => (name.shown_name(), read_shipped(name)),
    };
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(problem) => return Err((name, String::new(), problem)),
    };
    String::from_utf8(bytes).map(|text| (name.clone(), text)).map_err(|error| {
        let problem = not_utf8(&name, error.as_bytes(), error.utf8_error().valid_up_to());
        (name, String::from_utf8_lossy(error.as_bytes()).into_owned(), problem)
    })
}

/// Reads a configuration: a regular file of at most [`LARGEST`] bytes. A file that has no end, or that another program has
/// yet to write, is not opened.
fn read(path: &Path) -> Result<Vec<u8>, UnreadValue> {
    let kind = std::fs::metadata(path).map_err(|error| unreadable(path, &error))?.file_type();
    if !kind.is_file() {
        return Err(not_regular(path, kind));
    }
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(path);
    let limited = opened.and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes));
    limited.map_err(|error| unreadable(path, &error))?;
    if bytes.len() as u64 > LARGEST {
        let message =
            format!("{} is too large: a configuration has at most {LARGEST} bytes", path.display());
        return Err((
            None,
            message,
            Some("keep data in files that it names, such as `task.data`".to_owned()),
        ));
    }
    Ok(bytes)
}

/// Reads a configuration that the program brings, and writes the files that it names where they can be read.
fn read_shipped(name: &ShippedName) -> Result<Vec<u8>, UnreadValue> {
    let Some(shipped) = name.find() else {
        let (message, help) = name.unknown_name();
        return Err((None, message, Some(help)));
    };
    shipped.unpack().map_err(|error| {
        let message = format!("the files of `{name}` cannot be written into the cache: {error}");
        let help = format!("`maverl examples {name} --write` writes them into this directory");
        (None, message, Some(help))
    })?;
    Ok(shipped.text().as_bytes().to_vec())
}

/// Explains what is no regular file.
fn not_regular(path: &Path, kind: FileType) -> UnreadValue {
    if kind.is_dir() {
        let message = format!("{} is a directory; a configuration is a file", path.display());
        return (None, message, Some(directory(path)));
    }
    let message = format!(
        "{} is {}; a configuration is a regular file",
        path.display(),
        irregular_kind(kind)
    );
    (None, message, Some("write the configuration into a file, and name that".to_owned()))
}

/// Returns the name of a kind of file that is neither regular nor a directory.
#[cfg(unix)]
pub fn irregular_kind(kind: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    let kinds = [
        (kind.is_fifo(), "a pipe"),
        (kind.is_socket(), "a socket"),
        (kind.is_char_device() || kind.is_block_device(), "a device"),
    ];
    kinds.into_iter().find(|(is, _)| *is).map_or("no file", |(_, name)| name)
}

/// Returns the name of a kind of file that is neither regular nor a directory.
#[cfg(not(unix))]
pub fn irregular_kind(_: FileType) -> &'static str {
    "no file"
}

/// Returns true for the name of a file in YAML.
pub(super) fn is_yaml(name: &str) -> bool {
    let extension = Path::new(name).extension();
    extension.is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// The content of a file in TOML.
pub(super) fn parse(name: &str, text: &str) -> Result<ImDocument<String>, UnreadValue> {
    let parsed = ImDocument::parse(text.to_owned());
    parsed.map_err(|error| syntax::explain(name, text, &error))
}

/// Explains an unreadable path.
fn unreadable(path: &Path, error: &std::io::Error) -> UnreadValue {
    let shown = path.display();
    let toml = WantedEntry::Extension("toml");
    if error.kind() == ErrorKind::NotFound {
        let here = Path::new("");
        return (None, missing::message(path, here, toml), missing::help(path, here, toml));
    }
    (None, format!("{shown} could not be read: {error}"), None)
}

/// Returns help for a directory in place of a file: the options for runs and models.
fn directory(path: &Path) -> String {
    let dir = path.display();
    if path.join("manifest.json").is_file() && path.join("resolved.toml").is_file() {
        return format!(
            "it is a run: `maverl train --resume {dir}` goes on with it, `maverl eval --run {dir}` evaluates it, and \
             `maverl train {dir}/resolved.toml` starts another like it"
        );
    }
    if path.join("config.json").is_file() {
        return format!(
            "it is a model: name it in a configuration as `path = \"{dir}\"` in `[models.NAME]`"
        );
    }
    missing::help(&path.join(".toml"), Path::new(""), WantedEntry::Extension("toml"))
        .unwrap_or_else(|| "name the TOML file that describes the run".to_owned())
}

/// Explains a file that is not UTF-8, with the command that converts it.
fn not_utf8(name: &str, bytes: &[u8], at: usize) -> UnreadValue {
    const KINDS: [(&[u8], &str); 5] = [
        (&[0x28, 0xb5, 0x2f, 0xfd], "compressed with zstd"),
        (&[0x1f, 0x8b], "compressed with gzip"),
        (b"PK\x03\x04", "a zip archive"),
        (b"PAR1", "a Parquet file"),
        (b"GGUF", "a model in the GGUF format"),
    ];
    if let Some((_, kind)) = KINDS.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        let help = "a configuration is a text file in TOML";
        return (None, format!("{name} is {kind}, not a configuration"), Some(help.to_owned()));
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        let help = format!(
            "PowerShell's `>` writes it so; save it as UTF-8, or run `iconv -f UTF-16 -t UTF-8 {name} > utf8.toml`"
        );
        return (None, format!("{name} is UTF-16; a configuration is UTF-8"), Some(help));
    }
    let before = String::from_utf8_lossy(&bytes[..at]);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let byte = bytes.get(at).copied().unwrap_or_default();
    let message = format!(
        "{name} is not UTF-8: the byte 0x{byte:02x} in line {line}, column {column}, is no character"
    );
    let help = if bytes.contains(&0) {
        "it is not a text: a configuration is a text file in TOML".to_owned()
    } else {
        format!(
            "save it as UTF-8; if it is Latin-1, `iconv -f LATIN1 -t UTF-8 {name} > utf8.toml` does"
        )
    };
    // In the shown text, each invalid byte is one character of three bytes.
    let shown = before.len()..before.len() + '\u{fffd}'.len_utf8();
    (Some(shown), message, Some(help))
}
