//! Arguments of calls, filters and tests.

use std::sync::Arc;

use crate::meter::{RenderResult, refuse_operation};
use crate::value::TemplateValue;

/// Evaluated arguments.
#[derive(Default, Clone)]
pub(crate) struct CallArguments {
    pub(crate) positional: Vec<TemplateValue>,
    pub(crate) named: Vec<(Arc<str>, TemplateValue)>,
}

impl CallArguments {
    /// Binds the arguments to parameters, by position or name.
    pub(crate) fn bind_parameters<const N: usize>(
        self,
        of: &str,
        parameters: [&str; N],
    ) -> RenderResult<[Option<TemplateValue>; N]> {
        if self.positional.len() > N {
            return refuse_operation(format!("`{of}` takes at most {N} arguments"));
        }
        let mut bound = [const { None }; N];
        for (slot, value) in bound.iter_mut().zip(self.positional) {
            *slot = Some(value);
        }
        for (name, value) in self.named {
            match parameters.iter().position(|parameter| *parameter == &*name) {
                Some(at) if bound[at].is_none() => bound[at] = Some(value),
                Some(_) => {
                    return refuse_operation(format!("`{of}` got the argument `{name}` twice"));
                }
                None => return refuse_operation(format!("`{of}` has no parameter `{name}`")),
            }
        }
        Ok(bound)
    }

    /// Removes the first argument and returns it.
    pub(crate) fn take_first(&mut self) -> Option<TemplateValue> {
        if self.positional.is_empty() { None } else { Some(self.positional.remove(0)) }
    }
}

/// Returns a required text argument.
pub(crate) fn text_argument<'v>(
    of: &str,
    value: Option<&'v TemplateValue>,
) -> RenderResult<&'v Arc<str>> {
    match value {
        Some(TemplateValue::Str(text)) => Ok(text),
        Some(other) => refuse_operation(format!("`{of}` takes a text, not '{}'", other.kind())),
        None => refuse_operation(format!("`{of}` lacks an argument")),
    }
}

/// Returns an integer argument, or the default.
pub(crate) fn int_argument(
    of: &str,
    value: Option<&TemplateValue>,
    default: i128,
) -> RenderResult<i128> {
    match value {
        None | Some(TemplateValue::None) => Ok(default),
        Some(value) => match value.as_int() {
            Some(number) => Ok(number),
            None => {
                refuse_operation(format!("`{of}` takes a whole number, not '{}'", value.kind()))
            }
        },
    }
}

/// Returns a boolean option; false by default.
pub(crate) fn flag_argument(value: Option<&TemplateValue>) -> bool {
    value.is_some_and(TemplateValue::is_true)
}
