//! Names of data sets on the hub: `hf:ORG/NAME[/CONFIG][@REVISION][:GLOB]`.

use std::fmt;

/// Beginning of the name of a data set on the hub.
const SCHEME: &str = "hf:";
/// The revision that is meant if none is named.
const MAIN: &str = "main";

/// A data set on the hub, and the part of it that is meant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HubName {
    /// Repository, `ORG/NAME`.
    pub repo: String,
    /// Name of a configuration.
    pub config: Option<String>,
    /// Branch, tag or commit.
    pub revision: String,
    /// Pattern of files, in place of a configuration.
    pub glob: Option<String>,
}

/// Returns true if data are of a data set on the hub.
pub fn is_hub(data: &str) -> bool {
    data.starts_with(SCHEME)
}

impl HubName {
    /// Parses the name of data; `None` if they are not on the hub.
    ///
    /// # Errors
    ///
    /// If the name has another form.
    pub fn parse(data: &str) -> Option<Result<Self, String>> {
        let text = data.strip_prefix(SCHEME)?;
        let (text, glob) = divide(text, ':');
        let (path, revision) = divide(text, '@');
        let parts: Vec<&str> = path.split('/').collect();
        let (repo, config) = match parts.as_slice() {
            [repo] => ((*repo).to_owned(), None),
            [organization, repo] => (format!("{organization}/{repo}"), None),
            [organization, repo, config] => (format!("{organization}/{repo}"), Some(*config)),
            _ => return Some(Err(wrong(data, "it has more than three parts"))),
        };
        let empty = parts.iter().copied().chain(revision).chain(glob).any(str::is_empty);
        let what = match (empty, config, glob) {
            (true, ..) => "a part of it is empty",
            (false, Some(_), Some(_)) => "a pattern of files takes the place of a configuration",
            _ => {
                let (config, glob) = (config.map(str::to_owned), glob.map(str::to_owned));
                let revision = revision.unwrap_or(MAIN).to_owned();
                return Some(Ok(Self { repo, config, revision, glob }));
            }
        };
        Some(Err(wrong(data, what)))
    }

    /// Returns the name of the data set without its organization: the source of its tasks.
    pub(in crate::data) fn source(&self) -> &str {
        self.repo.rsplit('/').next().unwrap_or(&self.repo)
    }
}

/// Writes the name in the form that users write.
impl fmt::Display for HubName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.repo)?;
        if let Some(config) = &self.config {
            write!(f, "/{config}")?;
        }
        if self.revision != MAIN {
            write!(f, "@{}", self.revision)?;
        }
        match &self.glob {
            Some(glob) => write!(f, ":{glob}"),
            None => Ok(()),
        }
    }
}

/// Divides a text at the first sign.
fn divide(text: &str, sign: char) -> (&str, Option<&str>) {
    match text.split_once(sign) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

fn wrong(data: &str, what: &str) -> String {
    format!("`{data}`: {what}; write `hf:ORG/NAME[/CONFIG][@REVISION][:GLOB]`")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn names_are_read_and_written_in_the_same_form() {
        let cases = [
            ("hf:openai/gsm8k", "openai/gsm8k", None, "main", None),
            ("hf:openai/gsm8k/main@e53f048", "openai/gsm8k", Some("main"), "e53f048", None),
            ("hf:me/mine@refs/pr/3", "me/mine", None, "refs/pr/3", None),
            ("hf:me/mine:data/*.jsonl", "me/mine", None, "main", Some("data/*.jsonl")),
            ("hf:me/mine@v1:a@b.jsonl", "me/mine", None, "v1", Some("a@b.jsonl")),
            ("hf:squad", "squad", None, "main", None),
        ];
        for (text, repo, config, revision, glob) in cases {
            let name = HubName::parse(text).unwrap().unwrap();
            let found =
                (name.repo.as_str(), name.config.as_deref(), &*name.revision, name.glob.as_deref());
            assert_eq!(found, (repo, config, revision, glob), "{text}");
            assert_eq!(name.to_string(), text);
        }
        assert_eq!(HubName::parse("rows.jsonl"), None);
        for text in ["hf:", "hf:a/b/c/d", "hf:a/b@", "hf:a/b:", "hf:a//c", "hf:a/b/c:*.json"] {
            let told = HubName::parse(text).unwrap().unwrap_err();
            assert!(told.contains("write `hf:ORG/NAME[/CONFIG][@REVISION][:GLOB]`"), "{told}");
        }
    }
}
