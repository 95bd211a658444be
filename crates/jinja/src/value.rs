//! Values of templates, with Python's semantics.

use std::cmp::Ordering;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::ast::Macro;
use crate::meter::{DEPTH, RenderFailure, RenderMeter, RenderResult, refuse_operation};

/// A value. Containers store their nesting depth, so that no recursion goes deeper than [`DEPTH`].
#[derive(Clone)]
pub(crate) enum TemplateValue {
    Undefined(MissingValue),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Arc<str>),
    List(Arc<List>),
    Dict(Arc<Dict>),
    /// Index of a namespace, which the interpreter owns.
    Namespace(usize),
    Macro(Arc<Closure>),
    Loop(Arc<Loop>),
    /// A function of the environment, or the name of a method that is not called.
    Function(Arc<str>),
}

/// Origin of an undefined value.
#[derive(Clone)]
pub(crate) enum MissingValue {
    /// A variable or a parameter.
    Name(Arc<str>),
    /// An attribute or an item of a value of a type.
    Of(&'static str, Arc<str>),
}

/// Items of a list or a tuple.
pub(crate) struct List {
    pub(crate) items: Vec<TemplateValue>,
    pub(crate) tuple: bool,
    depth: u32,
}

/// Entries of a dictionary, in insertion order.
pub(crate) struct Dict {
    pub(crate) entries: Vec<(TemplateValue, TemplateValue)>,
    depth: u32,
}

/// A macro and the scope of its declaration.
pub(crate) struct Closure {
    pub(crate) code: Arc<Macro>,
    /// Enclosing scope.
    pub(crate) scope: usize,
}

/// State of a loop in one iteration.
pub(crate) struct Loop {
    pub(crate) items: Arc<List>,
    pub(crate) index: usize,
}

impl TemplateValue {
    pub(crate) fn str(text: impl Into<Arc<str>>) -> Self {
        Self::Str(text.into())
    }

    pub(crate) fn char(char: char) -> Self {
        Self::str(&*char.encode_utf8(&mut [0; 4]))
    }

    /// Creates a list of items that are already charged.
    pub(crate) fn list(items: Vec<Self>) -> RenderResult<Self> {
        Ok(Self::List(List::new(items, false)?))
    }

    pub(crate) fn tuple(items: Vec<Self>) -> RenderResult<Self> {
        Ok(Self::List(List::new(items, true)?))
    }

    /// Creates a dictionary of entries that are already charged and have different keys.
    pub(crate) fn dict(entries: Vec<(Self, Self)>) -> RenderResult<Self> {
        let depth = depth_above(entries.iter().map(|(key, value)| key.depth().max(value.depth())))?;
        Ok(Self::Dict(Arc::new(Dict { entries, depth })))
    }

    /// Creates the value of an attribute or an item that does not exist.
    pub(crate) fn undefined(&self, name: &Arc<str>) -> Self {
        Self::Undefined(MissingValue::Of(self.kind(), Arc::clone(name)))
    }

    /// Converts a JSON value.
    pub(crate) fn from_json(json: &Json) -> RenderResult<Self> {
        Ok(match json {
            Json::Null => Self::None,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => match number.as_i128() {
                Some(number) => Self::Int(number),
                None => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::str(text.as_str()),
            Json::Array(items) => {
                Self::list(items.iter().map(Self::from_json).collect::<RenderResult<_>>()?)?
            }
            Json::Object(entries) => {
                let entries = entries
                    .iter()
                    .map(|(key, value)| Ok((Self::str(key.as_str()), Self::from_json(value)?)));
                Self::dict(entries.collect::<RenderResult<_>>()?)?
            }
        })
    }

    /// Returns the nesting depth of its parts.
    fn depth(&self) -> u32 {
        match self {
            Self::List(list) => list.depth,
            Self::Dict(dict) => dict.depth,
            Self::Loop(state) => state.items.depth + 1,
            _ => 0,
        }
    }

    /// Returns Python's name of its type.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Undefined(_) => "undefined",
            Self::None => "None",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Str(_) => "str",
            Self::List(list) if list.tuple => "tuple",
            Self::List(_) => "list",
            Self::Dict(_) => "dict",
            Self::Namespace(_) => "namespace",
            Self::Macro(_) => "macro",
            Self::Loop(_) => "loop",
            Self::Function(_) => "function",
        }
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// Returns an integer; `True` is 1.
    pub(crate) fn as_int(&self) -> Option<i128> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Bool(value) => Some(i128::from(*value)),
            _ => None,
        }
    }

    pub(crate) fn as_float(&self) -> Option<f64> {
        match self {
            Self::Float(number) => Some(*number),
            other => other.as_int().map(|number| number as f64),
        }
    }

    pub(crate) fn is_number(&self) -> bool {
        matches!(self, Self::Int(_) | Self::Float(_) | Self::Bool(_))
    }

    pub(crate) fn is_undefined(&self) -> bool {
        matches!(self, Self::Undefined(_))
    }

    /// Returns the truth value.
    pub(crate) fn is_true(&self) -> bool {
        match self {
            Self::Undefined(_) | Self::None => false,
            Self::Bool(value) => *value,
            Self::Int(number) => *number != 0,
            Self::Float(number) => *number != 0.0,
            Self::Str(text) => !text.is_empty(),
            Self::List(list) => !list.items.is_empty(),
            Self::Dict(dict) => !dict.entries.is_empty(),
            _ => true,
        }
    }

    /// Returns the items that a loop iterates over: those of a sequence, the keys of a dictionary, the characters of a
    /// text; an undefined value has none.
    pub(crate) fn items(&self, meter: &RenderMeter) -> RenderResult<Arc<List>> {
        match self {
            Self::List(list) => Ok(Arc::clone(list)),
            Self::Undefined(_) => List::new(Vec::new(), false),
            Self::Dict(dict) => {
                meter.charge_product(dict.entries.len(), size_of::<Self>())?;
                List::new(dict.entries.iter().map(|(key, _)| key.clone()).collect(), false)
            }
            Self::Str(text) => {
                // A value and an allocation each.
                meter.charge_product(text.len(), 2 * size_of::<Self>())?;
                List::new(text.chars().map(Self::char).collect(), false)
            }
            other => refuse_operation(format!("'{}' object is not iterable", other.kind())),
        }
    }

    /// Returns true if two values are equal; `1`, `1.0` and `True` are.
    pub(crate) fn equals(&self, other: &Self, meter: &RenderMeter) -> RenderResult<bool> {
        meter.charge_step()?;
        Ok(match (self, other) {
            (Self::Undefined(_), Self::Undefined(_)) | (Self::None, Self::None) => true,
            (Self::Str(a), Self::Str(b)) => {
                meter.charge_work(if a.len() == b.len() { a.len() } else { 0 })?;
                a == b
            }
            (Self::List(a), Self::List(b)) => {
                if a.items.len() != b.items.len() || a.tuple != b.tuple {
                    return Ok(false);
                }
                for (a, b) in a.items.iter().zip(&b.items) {
                    if !a.equals(b, meter)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Dict(a), Self::Dict(b)) => {
                if a.entries.len() != b.entries.len() {
                    return Ok(false);
                }
                for (key, value) in &a.entries {
                    match b.get(key, meter)? {
                        Some(other) if value.equals(other, meter)? => {}
                        _ => return Ok(false),
                    }
                }
                true
            }
            (Self::Namespace(a), Self::Namespace(b)) => a == b,
            (Self::Macro(a), Self::Macro(b)) => Arc::ptr_eq(a, b),
            (Self::Function(a), Self::Function(b)) => a == b,
            (a, b) if a.is_number() && b.is_number() => {
                compare_numbers(a, b) == Some(Ordering::Equal)
            }
            _ => false,
        })
    }

    /// Returns the order of two values, if Python defines one.
    pub(crate) fn compare(
        &self,
        other: &Self,
        meter: &RenderMeter,
    ) -> RenderResult<Option<Ordering>> {
        meter.charge_step()?;
        match (self, other) {
            (Self::Undefined(missing), _) | (_, Self::Undefined(missing)) => Err(missing.failure()),
            (Self::Str(a), Self::Str(b)) => {
                meter.charge_work(a.len().min(b.len()))?;
                Ok(Some(a.cmp(b)))
            }
            (Self::List(a), Self::List(b)) if a.tuple == b.tuple => {
                for (a, b) in a.items.iter().zip(&b.items) {
                    if !a.equals(b, meter)? {
                        return a.compare(b, meter);
                    }
                }
                Ok(Some(a.items.len().cmp(&b.items.len())))
            }
            (a, b) if a.is_number() && b.is_number() => Ok(compare_numbers(a, b)),
            (a, b) => {
                let (a, b) = (a.kind(), b.kind());
                refuse_operation(format!("'<' not supported between instances of '{a}' and '{b}'"))
            }
        }
    }
}

/// Returns the order of two numbers; `None` with a NaN.
fn compare_numbers(a: &TemplateValue, b: &TemplateValue) -> Option<Ordering> {
    match (a.as_int(), b.as_int()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_float()?.partial_cmp(&b.as_float()?),
    }
}

impl MissingValue {
    /// Returns the failure of using the value.
    pub(crate) fn failure(&self) -> RenderFailure {
        let reason = match self {
            Self::Name(name) => format!("'{name}' is undefined"),
            Self::Of(kind, name) => format!("'{kind}' has no '{name:.60}'"),
        };
        RenderFailure { reason, remedy: None }
    }
}

impl List {
    /// Creates a list or a tuple of items that are already charged.
    pub(crate) fn new(items: Vec<TemplateValue>, tuple: bool) -> RenderResult<Arc<Self>> {
        let depth = depth_above(items.iter().map(TemplateValue::depth))?;
        Ok(Arc::new(Self { items, tuple, depth }))
    }
}

impl Dict {
    /// Returns the value of a key. Dictionaries of templates are small, so the search is linear.
    pub(crate) fn get(
        &self,
        key: &TemplateValue,
        meter: &RenderMeter,
    ) -> RenderResult<Option<&TemplateValue>> {
        if let TemplateValue::Str(name) = key {
            return self.get_text(name, meter);
        }
        check_hashable(key)?;
        for (found, value) in &self.entries {
            if found.equals(key, meter)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Returns the value of a text key.
    pub(crate) fn get_text(
        &self,
        key: &str,
        meter: &RenderMeter,
    ) -> RenderResult<Option<&TemplateValue>> {
        meter.charge_work(self.entries.len().saturating_mul(16))?;
        for (found, value) in &self.entries {
            let Some(found) = found.as_str().filter(|found| found.len() == key.len()) else {
                continue;
            };
            meter.charge_work(key.len())?;
            if found == key {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}

/// Returns an error if a value cannot be a key.
pub(crate) fn check_hashable(key: &TemplateValue) -> RenderResult<()> {
    match key {
        TemplateValue::List(list) if list.tuple => list.items.iter().try_for_each(check_hashable),
        TemplateValue::List(_) | TemplateValue::Dict(_) => {
            refuse_operation(format!("unhashable type: '{}'", key.kind()))
        }
        _ => Ok(()),
    }
}

/// Sets a key in the entries of a dictionary.
pub(crate) fn set_entry(
    entries: &mut Vec<(TemplateValue, TemplateValue)>,
    key: TemplateValue,
    value: TemplateValue,
    meter: &RenderMeter,
) -> RenderResult<()> {
    check_hashable(&key)?;
    for (found, old) in entries.iter_mut() {
        if found.equals(&key, meter)? {
            *old = value;
            return Ok(());
        }
    }
    meter.charge_product(2, size_of::<TemplateValue>())?;
    entries.push((key, value));
    Ok(())
}

/// Returns the depth of a container whose parts have these depths.
fn depth_above(parts: impl Iterator<Item = u32>) -> RenderResult<u32> {
    let depth = parts.max().map_or(0, |depth| depth + 1);
    if depth > DEPTH {
        return refuse_operation("a value nested too deeply");
    }
    Ok(depth)
}
