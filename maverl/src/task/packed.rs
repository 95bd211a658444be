//! JSON objects as bytes: a tag for each value, then its length or its bits.
//!
//! Bytes are a quarter of the memory of a [`Value`], and are read faster than a text. Numbers keep their type and their bits.

use serde_json::{Map, Number, Value};

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const UNSIGNED: u8 = 3;
const SIGNED: u8 = 4;
const FLOAT: u8 = 5;
const TEXT: u8 = 6;
const LIST: u8 = 7;
const OBJECT: u8 = 8;

/// Appends an object.
pub(super) fn write_map(map: &Map<String, Value>, bytes: &mut Vec<u8>) {
    write_number(map.len() as u64, bytes);
    for (key, value) in map {
        write_text(key, bytes);
        write_value(value, bytes);
    }
}

/// Reads an object at the start of bytes that [`write_map`] has written.
pub(super) fn read_map(bytes: &[u8]) -> Map<String, Value> {
    Reader { bytes }.map()
}

fn write_value(value: &Value, bytes: &mut Vec<u8>) {
    match value {
        Value::Null => bytes.push(NULL),
        Value::Bool(false) => bytes.push(FALSE),
        Value::Bool(true) => bytes.push(TRUE),
        Value::Number(number) => {
            let (tag, bits) = match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), ..) => (UNSIGNED, number),
                (_, Some(number), _) => (SIGNED, number.cast_unsigned()),
                (.., number) => (FLOAT, number.unwrap_or_default().to_bits()),
            };
            bytes.push(tag);
            bytes.extend_from_slice(&bits.to_le_bytes());
        }
        Value::String(text) => {
            bytes.push(TEXT);
            write_text(text, bytes);
        }
        Value::Array(items) => {
            bytes.push(LIST);
            write_number(items.len() as u64, bytes);
            items.iter().for_each(|item| write_value(item, bytes));
        }
        Value::Object(map) => {
            bytes.push(OBJECT);
            write_map(map, bytes);
        }
    }
}

fn write_text(text: &str, bytes: &mut Vec<u8>) {
    write_number(text.len() as u64, bytes);
    bytes.extend_from_slice(text.as_bytes());
}

/// Appends a length, seven bits in a byte, the low ones first. The high bit says that another byte follows.
fn write_number(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Bytes that are not read yet.
struct Reader<'b> {
    bytes: &'b [u8],
}

impl<'b> Reader<'b> {
    fn take(&mut self, count: usize) -> &'b [u8] {
        let (taken, rest) = self.bytes.split_at(count);
        self.bytes = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn bits(&mut self) -> u64 {
        let mut bits = [0; 8];
        bits.copy_from_slice(self.take(8));
        u64::from_le_bytes(bits)
    }

    fn length(&mut self) -> usize {
        let (mut length, mut shift) = (0_u64, 0);
        loop {
            let byte = self.byte();
            length |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return length as usize;
            }
            shift += 7;
        }
    }

    fn text(&mut self) -> String {
        let length = self.length();
        let text = std::str::from_utf8(self.take(length)).expect("keys and values were texts");
        text.to_owned()
    }

    fn map(&mut self) -> Map<String, Value> {
        let length = self.length();
        let mut map = Map::with_capacity(length);
        for _ in 0..length {
            let key = self.text();
            map.insert(key, self.value());
        }
        map
    }

    fn value(&mut self) -> Value {
        match self.byte() {
            NULL => Value::Null,
            FALSE => Value::Bool(false),
            TRUE => Value::Bool(true),
            UNSIGNED => self.bits().into(),
            SIGNED => self.bits().cast_signed().into(),
            FLOAT => Number::from_f64(f64::from_bits(self.bits())).into(),
            TEXT => self.text().into(),
            LIST => {
                let length = self.length();
                (0..length).map(|_| self.value()).collect()
            }
            _ => self.map().into(),
        }
    }
}
