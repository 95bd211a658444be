//! Methods that pad a text to a width.

use crate::arguments::{CallArguments, count, text};
use crate::meter::{Meter, Outcome, refused};
use crate::print::Out;
use crate::value::Value;

/// Calls a method.
pub(crate) fn fill(of: &str, name: &str, given: CallArguments, meter: &Meter) -> Outcome<Value> {
    let mut out = Out::new(meter);
    if name == "expandtabs" {
        let [size] = given.bind(name, ["tabsize"])?;
        let size = count(name, size.as_ref(), 8)?;
        let mut column = 0;
        for char in of.chars() {
            match char {
                '\t' if size > 0 => {
                    let missing = size - column % size;
                    out.fill(" ", missing)?;
                    column += missing;
                }
                '\t' => {}
                _ => {
                    out.push(char.encode_utf8(&mut [0; 4]))?;
                    column = if matches!(char, '\n' | '\r') { 0 } else { column + 1 };
                }
            }
        }
        return Ok(Value::str(out.text));
    }
    let [width, with] = given.bind(name, ["width", "fillchar"])?;
    let length = of.chars().count();
    let missing = count(name, width.as_ref(), 0)?.saturating_sub(length);
    let with = match &with {
        None => " ",
        with => &**text(name, with.as_ref())?,
    };
    if with.chars().count() != 1 {
        return refused("the fill character must be exactly one character long");
    }
    match name {
        "zfill" => {
            let sign = of.chars().next().filter(|char| "+-".contains(*char));
            let (sign, digits) = of.split_at(usize::from(sign.is_some()));
            out.push(sign)?;
            out.fill("0", missing)?;
            out.push(digits)?;
        }
        "ljust" => {
            out.push(of)?;
            out.fill(with, missing)?;
        }
        "rjust" => {
            out.fill(with, missing)?;
            out.push(of)?;
        }
        _ => {
            // Python puts the odd fill character to the left if the width is odd too.
            let left = missing / 2 + (missing & (length + missing) & 1);
            out.fill(with, left)?;
            out.push(of)?;
            out.fill(with, missing - left)?;
        }
    }
    Ok(Value::str(out.text))
}
