//! Filters of sequences.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Found, attribute_or_self, string};
use crate::arguments::{CallArguments, count, flag, text};
use crate::ast::Operator;
use crate::meter::{Meter, Outcome, refused};
use crate::methods;
use crate::operators::operate;
use crate::print::{self, Out};
use crate::value::{List, Missing, Value, hashable};

pub(crate) fn apply(name: &str, value: &Value, given: CallArguments, meter: &Meter) -> Found {
    Ok(match name {
        "list" => given.bind(name, []).and_then(|[]| Ok(Value::List(value.items(meter)?))),
        "first" => given.bind(name, []).and_then(|[]| end(value, true, meter)),
        "last" => given.bind(name, []).and_then(|[]| end(value, false, meter)),
        "reverse" => given.bind(name, []).and_then(|[]| reverse(value, meter)),
        "join" => join(value, given, meter),
        "sum" => sum(value, given, meter),
        "min" => extreme(name, value, given, meter),
        "max" => extreme(name, value, given, meter),
        "sort" => sort(value, given, meter),
        "unique" => unique(value, given, meter),
        "groupby" => groupby(value, given, meter),
        "dictsort" => dictsort(value, given, meter),
        "batch" => batch(value, given, meter),
        "slice" => slice(value, given, meter),
        _ => return Err(given),
    })
}

fn end(value: &Value, first: bool, meter: &Meter) -> Outcome<Value> {
    if let Value::Str(text) = value {
        let char = if first { text.chars().next() } else { text.chars().next_back() };
        return Ok(char.map_or_else(none, |char| Value::str(&*char.encode_utf8(&mut [0; 4]))));
    }
    let items = value.items(meter)?;
    let item = if first { items.items.first() } else { items.items.last() };
    Ok(item.cloned().unwrap_or_else(none))
}

fn none() -> Value {
    Value::Undefined(Missing::Of("an empty sequence", "item".into()))
}

fn reverse(value: &Value, meter: &Meter) -> Outcome<Value> {
    if let Value::Str(text) = value {
        meter.bytes(text.len())?;
        return Ok(Value::str(text.chars().rev().collect::<String>()));
    }
    let items = value.items(meter)?;
    meter.product(items.items.len(), size_of::<Value>())?;
    Value::list(items.items.iter().rev().cloned().collect())
}

fn join(value: &Value, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [separator, attribute] = given.bind("join", ["d", "attribute"])?;
    let separator = match &separator {
        None => Value::str(""),
        Some(separator) => string(separator, meter)?,
    };
    let mut out = Out::new(meter);
    for (at, item) in value.items(meter)?.items.iter().enumerate() {
        if at > 0 {
            print::write(&mut out, &separator)?;
        }
        print::write(&mut out, &attribute_or_self(item, attribute.as_ref(), meter)?)?;
    }
    Ok(Value::str(out.text))
}

fn sum(value: &Value, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [attribute, start] = given.bind("sum", ["attribute", "start"])?;
    let mut sum = start.unwrap_or(Value::Int(0));
    for item in &value.items(meter)?.items {
        let item = attribute_or_self(item, attribute.as_ref(), meter)?;
        sum = operate(Operator::Add, &sum, &item, meter)?;
    }
    Ok(sum)
}

/// Returns the sort key of an item: an attribute, in lower case unless case matters.
fn key(
    item: &Value,
    attribute: Option<&Value>,
    case_sensitive: bool,
    meter: &Meter,
) -> Outcome<Value> {
    match attribute_or_self(item, attribute, meter)? {
        Value::Str(text) if !case_sensitive => {
            meter.product(text.len(), 3)?;
            Ok(Value::str(text.to_lowercase()))
        }
        key => Ok(key),
    }
}

fn extreme(name: &str, value: &Value, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [case_sensitive, attribute] = given.bind(name, ["case_sensitive", "attribute"])?;
    let case_sensitive = flag(case_sensitive.as_ref(), false);
    let wanted = if name == "min" { Ordering::Less } else { Ordering::Greater };
    let mut best: Option<(Value, &Value)> = None;
    let items = value.items(meter)?;
    for item in &items.items {
        let key = key(item, attribute.as_ref(), case_sensitive, meter)?;
        let better = match &best {
            None => true,
            Some((best, _)) => key.compare(best, meter)? == Some(wanted),
        };
        if better {
            best = Some((key, item));
        }
    }
    Ok(best.map_or_else(none, |(_, item)| item.clone()))
}

/// Sorts items by their keys; the sort is stable.
fn sorted<T>(mut items: Vec<(Value, T)>, reverse: bool, meter: &Meter) -> Outcome<Vec<(Value, T)>> {
    let after = |a: &Value, b: &Value| -> Outcome<bool> {
        let order = a.compare(b, meter)?.unwrap_or(Ordering::Equal);
        Ok(order == if reverse { Ordering::Less } else { Ordering::Greater })
    };
    let mut width = 1;
    while width < items.len() {
        let mut merged = Vec::with_capacity(items.len());
        let mut rest = items.into_iter();
        loop {
            let mut left = rest.by_ref().take(width).collect::<Vec<_>>().into_iter().peekable();
            let mut right = rest.by_ref().take(width).collect::<Vec<_>>().into_iter().peekable();
            if left.peek().is_none() {
                break;
            }
            while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
                let next = if after(&a.0, &b.0)? { right.next() } else { left.next() };
                merged.extend(next);
            }
            merged.extend(left.chain(right));
        }
        items = merged;
        width *= 2;
    }
    Ok(items)
}

/// Pairs items with their sort keys. Several attributes, separated by commas, give a tuple.
fn by_attribute(
    items: &List,
    attribute: Option<&Value>,
    case_sensitive: bool,
    meter: &Meter,
) -> Outcome<Vec<(Value, Value)>> {
    // Sorting holds the items twice.
    meter.product(items.items.len(), 4 * size_of::<Value>())?;
    let paths: Vec<Value> = match attribute {
        None | Some(Value::None) => Vec::new(),
        Some(Value::Str(paths)) => paths.split(',').map(|path| Value::str(path.trim())).collect(),
        Some(place) => vec![place.clone()],
    };
    let key_of = |item: &Value| match &paths[..] {
        [] => key(item, attribute, case_sensitive, meter),
        paths => {
            let parts = paths.iter().map(|path| key(item, Some(path), case_sensitive, meter));
            Value::tuple(parts.collect::<Outcome<_>>()?)
        }
    };
    items.items.iter().map(|item| Ok((key_of(item)?, item.clone()))).collect()
}

fn sort(value: &Value, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let parameters = ["reverse", "case_sensitive", "attribute"];
    let [reverse, case_sensitive, attribute] = given.bind("sort", parameters)?;
    let case_sensitive = flag(case_sensitive.as_ref(), false);
    let items = by_attribute(&*value.items(meter)?, attribute.as_ref(), case_sensitive, meter)?;
    let items = sorted(items, flag(reverse.as_ref(), false), meter)?;
    Value::list(items.into_iter().map(|(_, item)| item).collect())
}

fn unique(value: &Value, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [case_sensitive, attribute] = given.bind("unique", ["case_sensitive", "attribute"])?;
    let case_sensitive = flag(case_sensitive.as_ref(), false);
    let (mut keys, mut kept): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    'items: for item in &value.items(meter)?.items {
        let key = key(item, attribute.as_ref(), case_sensitive, meter)?;
        hashable(&key)?;
        for known in &keys {
            if known.equals(&key, meter)? {
                continue 'items;
            }
        }
        meter.product(2, size_of::<Value>())?;
        keys.push(key);
        kept.push(item.clone());
    }
    Value::list(kept)
}

fn groupby(value: &Value, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [attribute, default, case_sensitive] =
        given.bind("groupby", ["attribute", "default", "case_sensitive"])?;
    let case_sensitive = flag(case_sensitive.as_ref(), false);
    if attribute.is_none() {
        return refused("`groupby` lacks an attribute");
    }
    let mut items = Vec::new();
    for item in &value.items(meter)?.items {
        meter.bytes(4 * size_of::<Value>())?;
        let key = key(item, attribute.as_ref(), case_sensitive, meter)?;
        let key = default.clone().filter(|_| key.is_undefined()).unwrap_or(key);
        items.push((key, item.clone()));
    }
    let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
    for (key, item) in sorted(items, false, meter)? {
        match groups.last_mut() {
            Some((last, group)) if last.equals(&key, meter)? => group.push(item),
            _ => {
                meter.product(1, 4 * size_of::<Value>())?;
                groups.push((key, vec![item]));
            }
        }
    }
    let group = |(key, group): (Value, Vec<Value>)| {
        // The value of the first item in the group.
        let shown = match group.first() {
            Some(first) if !key.is_undefined() => {
                let own = attribute_or_self(first, attribute.as_ref(), meter)?;
                if own.is_undefined() { key } else { own }
            }
            _ => key,
        };
        Value::tuple(vec![shown, Value::list(group)?])
    };
    Value::list(groups.into_iter().map(group).collect::<Outcome<_>>()?)
}

fn dictsort(value: &Value, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [case_sensitive, by, reverse] =
        given.bind("dictsort", ["case_sensitive", "by", "reverse"])?;
    let case_sensitive = flag(case_sensitive.as_ref(), false);
    let place = match &by {
        None => 0,
        by => match &**text("dictsort", by.as_ref())? {
            "key" => 0,
            "value" => 1,
            _ => return refused("`dictsort` is by \"key\" or \"value\""),
        },
    };
    let Value::List(pairs) = methods::items(value, meter)? else { return Value::list(Vec::new()) };
    let items = by_attribute(&pairs, Some(&Value::Int(place)), case_sensitive, meter)?;
    let items = sorted(items, flag(reverse.as_ref(), false), meter)?;
    Value::list(items.into_iter().map(|(_, item)| item).collect())
}

/// Splits a value into lists of `n` items. The last list is filled up if a fill value is given.
fn batch(value: &Value, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [size, with] = given.bind("batch", ["linecount", "fill_with"])?;
    let size = count("batch", size.as_ref(), 0)?;
    if size == 0 {
        return refused("`batch` takes a number above 0");
    }
    let items = value.items(meter)?;
    meter.product(items.items.len(), 3 * size_of::<Value>())?;
    let row = |chunk: &[Value]| {
        let mut row = chunk.to_vec();
        if let Some(with) = with.as_ref().filter(|with| !matches!(with, Value::None)) {
            meter.product(size - row.len(), size_of::<Value>())?;
            row.resize(size, with.clone());
        }
        Value::list(row)
    };
    Value::list(items.items.chunks(size).map(row).collect::<Outcome<_>>()?)
}

/// Splits a value into `n` lists that together hold all items; the first ones are the longer.
fn slice(value: &Value, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let [slices, with] = given.bind("slice", ["slices", "fill_with"])?;
    let slices = count("slice", slices.as_ref(), 0)?;
    if slices == 0 {
        return refused("`slice` takes a number above 0");
    }
    let items: Arc<List> = value.items(meter)?;
    let n = items.items.len();
    meter.product(slices.saturating_add(n), 2 * size_of::<Value>())?;
    let (each, more) = (n / slices, n % slices);
    let mut rows = Vec::with_capacity(slices);
    for at in 0..slices {
        let start = at * each + at.min(more);
        let mut row = items.items[start..start + each + usize::from(at < more)].to_vec();
        if let Some(with) = with.as_ref().filter(|with| !matches!(with, Value::None)) {
            row.extend((at >= more).then(|| with.clone()));
        }
        rows.push(Value::list(row)?);
    }
    Value::list(rows)
}
