//! Keys of clients, kept as digests.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

/// Smallest length of a key.
const SHORTEST: usize = 8;
/// Beginning of every key that is drawn.
pub(super) const KEY_PREFIX: &str = "mv-";
/// Number of hexadecimal digits after it.
pub(super) const KEY_DIGITS: usize = 64;

/// Keys that a server accepts. Only their SHA-256 digests are kept.
#[derive(Debug, Clone, Default)]
pub struct Keys(Vec<[u8; 32]>);

impl Keys {
    /// Returns true if there is no key, so that every client is accepted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a key. `place` names where it is from, for errors: the key itself is never shown.
    ///
    /// # Errors
    ///
    /// If the key is shorter than 8 characters, or cannot be sent in a header.
    pub fn add(&mut self, place: &str, key: &str) -> Result<(), String> {
        if key.len() < SHORTEST {
            return Err(format!("the key of {place} has fewer than {SHORTEST} characters"));
        }
        if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("the key of {place} has a space, or a character beyond ASCII"));
        }
        self.0.push(Sha256::digest(key).into());
        Ok(())
    }

    /// Adds the key in an environment variable.
    ///
    /// # Errors
    ///
    /// If the variable is not set, or no key.
    pub fn add_variable(&mut self, name: &str) -> Result<(), String> {
        let key = std::env::var(name).map_err(|_| {
            format!("the environment variable `{name}`, which is to hold a key, is not set")
        })?;
        self.add(&format!("the environment variable `{name}`"), &key)
    }

    /// Adds the keys in a file, one a line.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, has no key, or may be read by other users.
    pub fn add_file(&mut self, path: &Path) -> Result<(), String> {
        let place = path.display().to_string();
        let file = File::open(path);
        let mut file = file.map_err(|error| format!("cannot read {place}: {error}"))?;
        private(&file, &place)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(|error| format!("cannot read {place}: {error}"))?;
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        if lines.is_empty() {
            return Err(format!("{place} has no key; write one a line"));
        }
        lines.into_iter().try_for_each(|key| self.add(&place, key))
    }

    /// Returns the position of a key, comparing with all in constant time.
    pub fn find(&self, key: &str) -> Option<usize> {
        let digest: [u8; 32] = Sha256::digest(key).into();
        let equal: Vec<Choice> = self.0.iter().map(|known| known.ct_eq(&digest)).collect();
        equal.into_iter().position(bool::from)
    }
}

/// Draws a key from the random numbers of the system.
pub(super) fn new_key() -> std::io::Result<String> {
    let mut bytes = [0; KEY_DIGITS / 2];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold(KEY_PREFIX.to_owned(), |mut key, byte| {
        // Writing to a text cannot fail.
        let _ = write!(key, "{byte:02x}");
        key
    }))
}

/// Fails if users other than the owner may read a file.
#[cfg(unix)]
fn private(file: &File, place: &str) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt as _;

    let mode = file.metadata().map_err(|error| format!("cannot read {place}: {error}"))?.mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let mode = mode & 0o777;
    Err(format!("{place} has mode {mode:o}, so that others may read its keys; `chmod 600 {place}`"))
}

#[cfg(not(unix))]
fn private(_: &File, _: &str) -> Result<(), String> {
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn keys_are_found_by_their_whole_text() {
        let mut keys = Keys::default();
        keys.add("a", "key-one-1").unwrap();
        keys.add("b", "key-two-2").unwrap();
        assert_eq!((keys.find("key-one-1"), keys.find("key-two-2")), (Some(0), Some(1)));
        for wrong in ["", "key-one-", "key-one-11", "KEY-ONE-1"] {
            assert_eq!(keys.find(wrong), None, "{wrong}");
        }
        assert!(!format!("{keys:?}").contains("key-one"));
    }

    #[test]
    fn a_key_that_cannot_be_one_is_refused_without_being_shown() {
        let mut keys = Keys::default();
        for key in ["secret", "secret word", "secret\u{e4}\u{e4}\u{e4}"] {
            let message = keys.add("`K`", key).unwrap_err();
            assert!(message.contains("`K`") && !message.contains("secret"), "{message}");
        }
        assert!(keys.add_variable("MAVERL_NO_SUCH_KEY").unwrap_err().contains("is not set"));
    }

    #[cfg(unix)]
    #[test]
    fn a_file_of_keys_must_be_readable_by_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt as _;

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        std::fs::write(&path, "key-one-1\n\nkey-two-2\n").unwrap();
        let mode = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let mut keys = Keys::default();
        mode(0o640);
        let message = keys.add_file(&path).unwrap_err();
        assert!(message.contains("has mode 640") && message.contains("chmod 600"), "{message}");
        mode(0o600);
        keys.add_file(&path).unwrap();
        assert_eq!((keys.find("key-two-2"), keys.find("")), (Some(1), None));
        std::fs::write(&path, "\n").unwrap();
        assert!(keys.add_file(&path).unwrap_err().contains("has no key"));
    }
}
