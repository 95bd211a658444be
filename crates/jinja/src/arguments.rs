//! Arguments of calls, filters and tests.

use std::sync::Arc;

use crate::meter::{Outcome, refused};
use crate::value::Value;

/// Evaluated arguments.
#[derive(Default, Clone)]
pub(crate) struct CallArguments {
    pub(crate) positional: Vec<Value>,
    pub(crate) named: Vec<(Arc<str>, Value)>,
}

impl CallArguments {
    /// Binds the arguments to parameters, by position or name.
    pub(crate) fn bind<const N: usize>(
        self,
        of: &str,
        parameters: [&str; N],
    ) -> Outcome<[Option<Value>; N]> {
        if self.positional.len() > N {
            return refused(format!("`{of}` takes at most {N} arguments"));
        }
        let mut bound = [const { None }; N];
        for (slot, value) in bound.iter_mut().zip(self.positional) {
            *slot = Some(value);
        }
        for (name, value) in self.named {
            match parameters.iter().position(|parameter| *parameter == &*name) {
                Some(at) if bound[at].is_none() => bound[at] = Some(value),
                Some(_) => return refused(format!("`{of}` got the argument `{name}` twice")),
                None => return refused(format!("`{of}` has no parameter `{name}`")),
            }
        }
        Ok(bound)
    }

    /// Removes the first argument and returns it.
    pub(crate) fn shift(&mut self) -> Option<Value> {
        if self.positional.is_empty() { None } else { Some(self.positional.remove(0)) }
    }
}

/// Returns a required text argument.
pub(crate) fn text<'v>(of: &str, value: Option<&'v Value>) -> Outcome<&'v Arc<str>> {
    match value {
        Some(Value::Str(text)) => Ok(text),
        Some(other) => refused(format!("`{of}` takes a text, not '{}'", other.kind())),
        None => refused(format!("`{of}` lacks an argument")),
    }
}

/// Returns an integer argument, or the default.
pub(crate) fn int(of: &str, value: Option<&Value>, default: i128) -> Outcome<i128> {
    match value {
        None | Some(Value::None) => Ok(default),
        Some(value) => match value.as_int() {
            Some(number) => Ok(number),
            None => refused(format!("`{of}` takes a whole number, not '{}'", value.kind())),
        },
    }
}

/// Returns a boolean option; false by default.
pub(crate) fn flag(value: Option<&Value>) -> bool {
    value.is_some_and(Value::is_true)
}
