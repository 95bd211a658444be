//! The error of a command.

/// Error message of a command. It is wrapped when it is printed, except for what follows an empty line.
#[derive(Debug)]
pub struct Failure(pub String);

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}
