//! Values of templates, with Python's semantics.

use std::cmp::Ordering;
use std::sync::Arc;

use serde_json::Value as Json;

use super::ast::{For, Macro};
use super::meter::{DEPTH, Failure, Meter, Outcome, refused};

/// A value. Containers store their nesting depth, so that no recursion goes deeper than [`DEPTH`].
#[derive(Clone)]
pub(crate) enum Value {
    Undefined(Missing),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Arc<str>),
    List(Arc<List>),
    Tuple(Arc<List>),
    Dict(Arc<Dict>),
    /// Index of a namespace, which the interpreter owns.
    Namespace(usize),
    /// Index of a cycler of the interpreter.
    Cycler(usize),
    /// Index of a joiner of the interpreter.
    Joiner(usize),
    Macro(Arc<Closure>),
    Loop(Arc<Loop>),
    /// A bound method of a value.
    Method(Arc<(Self, Arc<str>)>),
    /// A function of the environment.
    Function(&'static str),
}

/// Origin of an undefined value.
#[derive(Clone)]
pub(crate) enum Missing {
    /// A variable.
    Name(Arc<str>),
    /// An attribute or an item of a value of a type.
    Of(&'static str, Arc<str>),
    /// Missing `else` branch of a condition.
    Else,
    /// Parameter of a macro that was not given.
    Parameter(Arc<str>),
}

/// Items of a list or tuple.
pub(crate) struct List {
    pub(crate) items: Vec<Value>,
    depth: u32,
}

/// Entries of a dictionary, in insertion order.
pub(crate) struct Dict {
    pub(crate) entries: Vec<(Value, Value)>,
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
    /// Depth of recursion of the loop.
    pub(crate) level: usize,
    /// Id of the loop's run, which stores the arguments of `loop.changed`.
    pub(crate) run: usize,
    /// Code and enclosing scope, if the loop is recursive.
    pub(crate) recursive: Option<(Arc<For>, usize)>,
}

impl Value {
    pub(crate) fn str(text: impl Into<Arc<str>>) -> Self {
        Self::Str(text.into())
    }

    /// Creates a list of items that are already charged.
    pub(crate) fn list(items: Vec<Self>) -> Outcome<Self> {
        Ok(Self::List(List::new(items)?))
    }

    pub(crate) fn tuple(items: Vec<Self>) -> Outcome<Self> {
        Ok(Self::Tuple(List::new(items)?))
    }

    /// Creates a dictionary of entries that are already charged and have different keys.
    pub(crate) fn dict(entries: Vec<(Self, Self)>) -> Outcome<Self> {
        let depth = deeper(entries.iter().map(|(key, value)| key.depth().max(value.depth())))?;
        Ok(Self::Dict(Arc::new(Dict { entries, depth })))
    }

    /// Converts a JSON value.
    pub(crate) fn from_json(json: &Json) -> Outcome<Self> {
        Ok(match json {
            Json::Null => Self::None,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => match number.as_i128() {
                Some(number) => Self::Int(number),
                None => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::str(text.as_str()),
            Json::Array(items) => {
                Self::list(items.iter().map(Self::from_json).collect::<Outcome<_>>()?)?
            }
            Json::Object(entries) => {
                let entry = |(key, value): (&String, &Json)| {
                    Ok((Self::str(key.as_str()), Self::from_json(value)?))
                };
                Self::dict(entries.iter().map(entry).collect::<Outcome<_>>()?)?
            }
        })
    }

    /// Returns the nesting depth of its parts.
    pub(crate) fn depth(&self) -> u32 {
        match self {
            Self::List(list) | Self::Tuple(list) => list.depth,
            Self::Dict(dict) => dict.depth,
            Self::Method(method) => method.0.depth() + 1,
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
            Self::List(_) => "list",
            Self::Tuple(_) => "tuple",
            Self::Dict(_) => "dict",
            Self::Namespace(_) => "namespace",
            Self::Cycler(_) => "cycler",
            Self::Joiner(_) => "joiner",
            Self::Macro(_) => "macro",
            Self::Loop(_) => "loop",
            Self::Method(_) => "method",
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
            Self::List(list) | Self::Tuple(list) => !list.items.is_empty(),
            Self::Dict(dict) => !dict.entries.is_empty(),
            _ => true,
        }
    }

    /// Returns the items that a loop iterates over: those of a sequence, the keys of a dictionary, the characters of a
    /// text; an undefined value has none.
    pub(crate) fn items(&self, meter: &Meter) -> Outcome<Arc<List>> {
        match self {
            Self::List(list) | Self::Tuple(list) => Ok(Arc::clone(list)),
            Self::Undefined(_) => List::new(Vec::new()),
            Self::Dict(dict) => {
                meter.product(dict.entries.len(), size_of::<Self>())?;
                List::new(dict.entries.iter().map(|(key, _)| key.clone()).collect())
            }
            Self::Str(text) => {
                // A value and an allocation each.
                meter.product(text.len(), 2 * size_of::<Self>())?;
                let chars = text.chars();
                List::new(chars.map(|char| Self::str(&*char.encode_utf8(&mut [0; 4]))).collect())
            }
            Self::Loop(state) => {
                let rest = &state.items.items[state.index.min(state.items.items.len())..];
                meter.product(rest.len(), size_of::<Self>())?;
                List::new(rest.to_vec())
            }
            other => refused(format!("'{}' object is not iterable", other.kind())),
        }
    }

    /// Returns true if two values are equal; `1`, `1.0` and `True` are.
    pub(crate) fn equals(&self, other: &Self, meter: &Meter) -> Outcome<bool> {
        meter.step()?;
        Ok(match (self, other) {
            (Self::Undefined(_), Self::Undefined(_)) | (Self::None, Self::None) => true,
            (Self::Str(a), Self::Str(b)) => {
                meter.work(if a.len() == b.len() { a.len() } else { 0 })?;
                a == b
            }
            (Self::List(a), Self::List(b)) | (Self::Tuple(a), Self::Tuple(b)) => {
                if a.items.len() != b.items.len() {
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
            (Self::Namespace(a), Self::Namespace(b))
            | (Self::Cycler(a), Self::Cycler(b))
            | (Self::Joiner(a), Self::Joiner(b)) => a == b,
            (Self::Macro(a), Self::Macro(b)) => Arc::ptr_eq(a, b),
            (Self::Function(a), Self::Function(b)) => a == b,
            (a, b) if a.is_number() && b.is_number() => {
                compare_numbers(a, b) == Some(Ordering::Equal)
            }
            _ => false,
        })
    }

    /// Returns the order of two values, if Python defines one.
    pub(crate) fn compare(&self, other: &Self, meter: &Meter) -> Outcome<Option<Ordering>> {
        meter.step()?;
        let none = |operand: &Self| matches!(operand, Self::Undefined(_));
        match (self, other) {
            (a, b) if none(a) || none(b) => Err(undefined(if none(a) { a } else { b })),
            (Self::Str(a), Self::Str(b)) => {
                meter.work(a.len().min(b.len()))?;
                Ok(Some(a.cmp(b)))
            }
            (Self::List(a), Self::List(b)) | (Self::Tuple(a), Self::Tuple(b)) => {
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
                refused(format!("'<' not supported between instances of '{a}' and '{b}'"))
            }
        }
    }
}

/// Returns the order of two numbers; `None` with a NaN.
fn compare_numbers(a: &Value, b: &Value) -> Option<Ordering> {
    match (a.as_int(), b.as_int()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_float()?.partial_cmp(&b.as_float()?),
    }
}

impl List {
    /// Creates a list of items that are already charged.
    pub(crate) fn new(items: Vec<Value>) -> Outcome<Arc<Self>> {
        let depth = deeper(items.iter().map(Value::depth))?;
        Ok(Arc::new(Self { items, depth }))
    }
}

impl Dict {
    /// Returns the value of a key. Dictionaries of templates are small, so the search is linear.
    pub(crate) fn get(&self, key: &Value, meter: &Meter) -> Outcome<Option<&Value>> {
        hashable(key)?;
        for (found, value) in &self.entries {
            if found.equals(key, meter)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Returns the value of a text key.
    pub(crate) fn text(&self, key: &str, meter: &Meter) -> Outcome<Option<&Value>> {
        meter.work(self.entries.len().saturating_mul(16))?;
        let entry = self.entries.iter().find(|(found, _)| found.as_str() == Some(key));
        Ok(entry.map(|(_, value)| value))
    }
}

/// Returns an error if a value cannot be a key.
pub(crate) fn hashable(key: &Value) -> Outcome<()> {
    match key {
        Value::List(_) | Value::Dict(_) => refused(format!("unhashable type: '{}'", key.kind())),
        _ => Ok(()),
    }
}

/// Sets a key in the entries of a dictionary.
pub(crate) fn set(
    entries: &mut Vec<(Value, Value)>,
    key: Value,
    value: Value,
    meter: &Meter,
) -> Outcome<()> {
    hashable(&key)?;
    for (found, old) in entries.iter_mut() {
        if found.equals(&key, meter)? {
            *old = value;
            return Ok(());
        }
    }
    meter.product(2, size_of::<Value>())?;
    entries.push((key, value));
    Ok(())
}

/// Returns the depth of a container whose parts have these depths.
fn deeper(parts: impl Iterator<Item = u32>) -> Outcome<u32> {
    let depth = parts.max().map_or(0, |depth| depth + 1);
    if depth > DEPTH {
        return Err(Failure::Limit("a value nested too deeply".to_owned()));
    }
    Ok(depth)
}

/// Returns the error of using an undefined value.
pub(crate) fn undefined(value: &Value) -> Failure {
    Failure::Refused(match value {
        Value::Undefined(Missing::Name(name)) => format!("'{name}' is undefined"),
        Value::Undefined(Missing::Of(kind, name)) => format!("'{kind}' has no '{name}'"),
        Value::Undefined(Missing::Parameter(name)) => {
            format!("parameter '{name}' was not provided")
        }
        _ => "the condition without `else` is not true, so there is no value".to_owned(),
    })
}
