//! Commands that a user types to go on: how this program is called from where the user is.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use crate::registry::has_feature;

/// Name of the stock program, as messages of the library have it.
const STOCK: &str = "maverl";

/// Crate of the command line, which has the features of this one.
const COMMAND_LINE: &str = "maverl-cli";

/// Subcommands of every program with maverl's command line.
pub const COMMANDS: [&str; 30] = [
    "new",
    "list",
    "examples",
    "explain",
    "schema",
    "check",
    "train",
    "launch",
    "eval",
    "info",
    "doctor",
    "runs",
    "track",
    "replay",
    "view",
    "show",
    "extract",
    "generate",
    "score",
    "grade",
    "collect",
    "data",
    "inspect",
    "export",
    "new-model",
    "serve",
    "bench",
    "device",
    "completions",
    "help",
];

/// Cargo features of this crate, and whether the program has them.
const FEATURES: [(&str, bool); 10] = [
    ("candle", cfg!(feature = "candle")),
    ("cuda", cfg!(feature = "cuda")),
    ("grpc", cfg!(feature = "grpc")),
    ("hub", cfg!(feature = "hub")),
    ("https", cfg!(feature = "https")),
    ("mcp", cfg!(feature = "mcp")),
    ("mpi", cfg!(feature = "mpi")),
    ("openenv", cfg!(feature = "openenv")),
    ("parquet", cfg!(feature = "parquet")),
    ("sqlite", cfg!(feature = "sqlite")),
];

/// Cargo feature of the command line that brings pages about runs.
const VIEW: &str = "view";

/// Cargo features of the command line that bring crates above this one, or parts of them.
const ABOVE: [&str; 5] = ["grammar", "serve", "tinker", "tls", VIEW];

/// Cargo features of the command line that no built program needs to ask for: they are on by default.
const DEFAULT: [&str; 2] = ["serve", VIEW];

/// Features that are not part of the feature `full`.
const APART: [&str; 5] = ["candle", "cuda", "grammar", "mpi", "tinker"];

/// Returns the Cargo features of the command line, and whether this program has them.
pub fn features() -> Vec<(&'static str, bool)> {
    let above = ABOVE.map(|name| (name, has_feature(name)));
    let mut all: Vec<(&str, bool)> = FEATURES.into_iter().chain(above).collect();
    all.sort_unstable();
    all
}

/// Returns true if this program has pages about runs.
pub(crate) fn has_view() -> bool {
    has_feature(VIEW)
}

/// Returns the command that resumes a run.
pub fn resume_command(dir: &Path) -> String {
    ProgramStart::of_process().resume(dir)
}

/// Returns the command that serves pages about a run, with the name of the feature that it builds this program with, if
/// this program lacks it. `None` if the source that it would be built from is not known.
pub(crate) fn view_command(dir: &Path) -> Option<String> {
    let start = ProgramStart::of_process();
    let call = if has_view() { Some(start.call()) } else { start.with_view() };
    Some(format!("{} view {}", call?, quote_word(&dir.display().to_string())))
}

/// Returns the name of this program.
pub fn program() -> String {
    ProgramStart::of_process().name()
}

/// Replaces the name of the stock program in commands, as in "`maverl check run.toml`", by the name of this one.
pub fn own_name(text: &str) -> Cow<'_, str> {
    match program() {
        name if name == STOCK => Cow::Borrowed(text),
        name => Cow::Owned(rename_program(text, &name)),
    }
}

/// Replaces the name of the stock program before each subcommand.
pub fn rename_program(text: &str, name: &str) -> String {
    let mut parts = text.split(STOCK);
    let mut renamed = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let word = part
            .strip_prefix(' ')
            .and_then(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next());
        let inside = renamed.ends_with(|c: char| c.is_alphanumeric() || "_-/.".contains(c));
        let command = word.is_some_and(|word| COMMANDS.contains(&word));
        renamed += if command && !inside { name } else { STOCK };
        renamed += part;
    }
    renamed
}

/// Start of a process.
#[derive(Debug, Clone, Default)]
struct ProgramStart {
    /// File of the program.
    exe: PathBuf,
    /// The program as it was called.
    called: String,
    /// Directory of the package that `cargo run` was started for.
    package: Option<PathBuf>,
    /// Working directory.
    here: PathBuf,
    /// Source of maverl that the program was built from, if it is still there.
    checkout: Option<PathBuf>,
}

impl ProgramStart {
    fn of_process() -> Self {
        let under_cargo = std::env::var_os("CARGO").and(std::env::var_os("CARGO_MANIFEST_DIR"));
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
        let checkout = checkout.filter(|dir| dir.join("orchestras/Cargo.toml").is_file());
        Self {
            exe: std::env::current_exe().unwrap_or_default(),
            called: std::env::args_os()
                .next()
                .map_or_else(String::new, |called| called.to_string_lossy().into_owned()),
            package: under_cargo.map(PathBuf::from),
            here: std::env::current_dir().unwrap_or_default(),
            checkout: checkout.map(Path::to_path_buf),
        }
    }

    fn folder(&self) -> &str {
        let folder = self.exe.parent().and_then(Path::file_name);
        folder.and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// Returns true for tests: the program has no command line.
    fn is_test(&self) -> bool {
        self.folder() == "deps" || self.exe.file_stem().is_none()
    }

    /// Returns true for an example, whose arguments are those of `train`.
    fn is_example(&self) -> bool {
        self.folder() == "examples"
    }

    /// Returns the name of the file; that of the stock program in tests and examples, whose teams are part of it.
    fn name(&self) -> String {
        if self.is_test() || self.is_example() { STOCK.to_owned() } else { self.stem() }
    }

    fn stem(&self) -> String {
        self.exe.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Returns the words that start this program again.
    fn call(&self) -> String {
        if self.is_test() {
            return STOCK.to_owned();
        }
        match (&self.package, self.is_example()) {
            (Some(package), true) => {
                self.cargo(package, &format!(" --example {}", self.stem()), "")
            }
            (Some(package), false) => {
                self.cargo(package, &self.bin(package), &self.features(package))
            }
            (None, _) if self.called.contains('/') => quote_word(&self.called),
            (None, _) => self.stem(),
        }
    }

    /// Returns the command that resumes a run.
    fn resume(&self, dir: &Path) -> String {
        let dir = quote_word(&dir.display().to_string());
        if self.is_example() {
            format!("{} --resume {dir}", self.call())
        } else {
            format!("{} train --resume {dir}", self.call())
        }
    }

    /// Returns the words that build this program with the feature `view` and start it: from the package that it was started
    /// for or that the user is in, or from the source of maverl.
    fn with_view(&self) -> Option<String> {
        let stem = self.stem();
        let around = self.here.ancestors().find(|dir| is_package(dir, &stem));
        let own = self.package.as_deref().filter(|dir| is_package(dir, &stem)).or(around);
        if let Some(package) = own.filter(|dir| !self.is_example() && !self.is_stock(dir)) {
            let features = match self.features(package) {
                none if none.is_empty() => format!(" --features {COMMAND_LINE}/view"),
                others => format!("{others},{COMMAND_LINE}/view"),
            };
            return Some(self.cargo(package, "", &features));
        }
        let checkout = self.checkout.as_ref()?;
        Some(self.cargo(checkout, " --bin maverl", " --features view"))
    }

    /// Returns a call of `cargo run` for a package, or for a program of the workspace in this directory.
    fn cargo(&self, package: &Path, target: &str, features: &str) -> String {
        let levels = if self.is_example() { 2 } else { 1 };
        // An installed program was optimized too.
        let plain = self.exe.ancestors().nth(levels).is_some_and(|dir| dir.ends_with("debug"));
        let profile = if plain { "" } else { " --release" };
        // Cargo takes the nearest manifest: that of the package or of its workspace.
        let nearest = self.here.ancestors().find(|dir| dir.join("Cargo.toml").is_file());
        let found = nearest.is_some_and(|dir| package.starts_with(dir));
        let manifest = if found {
            String::new()
        } else {
            let manifest = package.join("Cargo.toml").display().to_string();
            format!(" --manifest-path {}", quote_word(&manifest))
        };
        format!("cargo run{profile}{target}{features}{manifest} --")
    }

    /// Returns the flag for a program of a package that the user is not in.
    fn bin(&self, package: &Path) -> String {
        if self.here.starts_with(package) && !self.is_stock(package) {
            String::new()
        } else {
            format!(" --bin {}", self.stem())
        }
    }

    /// Returns true for the workspace of maverl and its packages.
    fn is_stock(&self, package: &Path) -> bool {
        let members = ["", "crates/cli", "examples", "maverl", "orchestras", "tests"];
        let checkout = self.checkout.as_ref();
        checkout.is_some_and(|dir| members.iter().any(|member| dir.join(member) == package))
    }

    /// Returns the flag for the features of this program that its manifest does not name.
    fn features(&self, package: &Path) -> String {
        let stock = self.is_stock(package);
        let named = if stock { default_features() } else { features_of(package) };
        let full = named.iter().any(|name| name == "full");
        let lacking = built_features().into_iter().filter(|feature| {
            !(named.iter().any(|name| name == feature) || full && !APART.contains(feature))
        });
        let prefix = if stock { String::new() } else { format!("{COMMAND_LINE}/") };
        let flags: Vec<String> = lacking.map(|feature| format!("{prefix}{feature}")).collect();
        if flags.is_empty() { String::new() } else { format!(" --features {}", flags.join(",")) }
    }
}

/// Returns the Cargo features that this program was built with.
fn built_features() -> Vec<&'static str> {
    features().into_iter().filter(|(_, built)| *built).map(|(name, _)| name).collect()
}

/// Returns the manifest of a package; an empty one if it cannot be read.
fn manifest(package: &Path) -> toml::Table {
    let text = std::fs::read_to_string(package.join("Cargo.toml")).unwrap_or_default();
    text.parse().unwrap_or_default()
}

fn is_package(dir: &Path, name: &str) -> bool {
    let manifest = manifest(dir);
    manifest.get("package").and_then(|package| package.get("name")?.as_str()) == Some(name)
}

/// Returns the features that the command line has if nothing else is asked for.
fn default_features() -> Vec<String> {
    DEFAULT.map(str::to_owned).to_vec()
}

/// Returns the features of the command line that a package asks for in its manifest.
fn features_of(package: &Path) -> Vec<String> {
    let manifest = manifest(package);
    let dependency = manifest.get("dependencies").and_then(|all| all.get(COMMAND_LINE));
    let features = dependency.and_then(|dependency| dependency.get("features")?.as_array());
    let names = features.into_iter().flatten().filter_map(|name| name.as_str());
    let without = dependency.and_then(|dependency| dependency.get("default-features")?.as_bool());
    let mut found = if without == Some(false) { Vec::new() } else { default_features() };
    found.extend(names.map(str::to_owned));
    found
}

/// Quotes a word for a shell, if that is needed.
pub fn quote_word(word: &str) -> String {
    if word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+=,:@".contains(c)) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Returns the start of a program in the crate of a team, which is in `home`.
    fn of_team(home: &Path, features: &str) -> ProgramStart {
        let package = home.join("my_team");
        std::fs::create_dir_all(package.join("runs")).unwrap();
        let manifest = format!(
            "[package]\nname = \"my_team\"\n[dependencies]\nmaverl-cli = {{ version = \"1\"{features} }}\n"
        );
        std::fs::write(package.join("Cargo.toml"), manifest).unwrap();
        ProgramStart {
            exe: package.join("target/release/my_team"),
            called: "target/release/my_team".to_owned(),
            package: None,
            here: package,
            checkout: None,
        }
    }

    #[test]
    fn a_run_goes_on_with_the_program_as_the_user_called_it() {
        let home = tempfile::tempdir().unwrap();
        let team = of_team(
            home.path(),
            ", features = [\"full\", \"candle\", \"cuda\", \"grammar\", \"mpi\"]",
        );
        let dir = Path::new("runs/a b");
        assert_eq!(team.name(), "my_team");
        assert_eq!(team.resume(dir), "target/release/my_team train --resume 'runs/a b'");
        let installed = ProgramStart { called: "my_team".to_owned(), ..team.clone() };
        assert_eq!(installed.resume(dir), "my_team train --resume 'runs/a b'");
        let by_cargo = ProgramStart { package: Some(team.here.clone()), ..team };
        assert_eq!(by_cargo.resume(dir), "cargo run --release -- train --resume 'runs/a b'");
        let inside = ProgramStart { here: by_cargo.here.join("runs"), ..by_cargo.clone() };
        assert_eq!(inside.call(), "cargo run --release --");
        let elsewhere = ProgramStart { here: home.path().to_path_buf(), ..by_cargo };
        let manifest = home.path().join("my_team/Cargo.toml");
        let expected = format!(
            "cargo run --release --bin my_team --manifest-path {} --",
            quote_word(&manifest.display().to_string())
        );
        assert_eq!(elsewhere.call(), expected);
    }

    #[test]
    fn a_program_without_pages_is_built_with_them_from_where_the_user_is() {
        let home = tempfile::tempdir().unwrap();
        let team = of_team(home.path(), ", features = [\"full\"]");
        let call = team.with_view().unwrap();
        let features = built_features();
        let apart = features.iter().filter(|feature| APART.contains(feature));
        let apart: String = apart.map(|feature| format!("maverl-cli/{feature},")).collect();
        assert_eq!(call, format!("cargo run --release --features {apart}maverl-cli/view --"));
        let alone = ProgramStart { here: home.path().to_path_buf(), ..team };
        assert_eq!(alone.with_view(), None);
        let checkout = home.path().join("maverl");
        for member in ["orchestras", "maverl"] {
            std::fs::create_dir_all(checkout.join(member)).unwrap();
            let manifest = format!("[package]\nname = \"{member}\"\n");
            std::fs::write(checkout.join(member).join("Cargo.toml"), manifest).unwrap();
        }
        std::fs::write(checkout.join("Cargo.toml"), "[workspace]\n").unwrap();
        let stock = |here: PathBuf| ProgramStart {
            exe: checkout.join("target/release/maverl"),
            called: "target/release/maverl".to_owned(),
            package: Some(checkout.join("orchestras")),
            here,
            checkout: Some(checkout.clone()),
        };
        let inside = "cargo run --release --bin maverl --features view --";
        assert_eq!(stock(checkout.clone()).with_view().as_deref(), Some(inside));
        for elsewhere in [home.path().to_path_buf(), checkout.join("maverl")] {
            let outside = stock(elsewhere).with_view().unwrap();
            let manifest = quote_word(&checkout.join("Cargo.toml").display().to_string());
            let end = format!(" --features view --manifest-path {manifest} --");
            assert!(outside.ends_with(&end), "{outside}");
        }
        let example = ProgramStart {
            exe: checkout.join("target/release/examples/search_orchestra"),
            package: Some(checkout.join("examples")),
            ..stock(checkout.clone())
        };
        assert_eq!(example.with_view().as_deref(), Some(inside));
        let resume = "cargo run --release --example search_orchestra -- --resume runs/a";
        assert_eq!(example.resume(Path::new("runs/a")), resume);
    }

    #[test]
    fn commands_in_messages_have_the_name_of_the_program() {
        let text = "`maverl check run.toml` checks; see maverl list, maverl-engine and this maverl. In a clone of maverl, \
                    `maverl::main!(a)`: target/maverl train; `maverl new-model`";
        let expected = "`duo check run.toml` checks; see duo list, maverl-engine and this maverl. In a clone of maverl, \
                        `maverl::main!(a)`: target/maverl train; `duo new-model`";
        assert_eq!(rename_program(text, "duo"), expected);
    }
}
