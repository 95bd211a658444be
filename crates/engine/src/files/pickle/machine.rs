//! The pickle machine (reference: CPython's `pickletools.py`), with the instructions that state dicts have. Nothing is imported or
//! called: a call is an object that says what would be called.

use std::collections::BTreeMap;
use std::ops::Range;

/// Longest text of a program that names something, in bytes.
const LONGEST_NAME: usize = 1024;
/// Most objects of a program: tens for each tensor.
const MOST_OBJECTS: usize = 1 << 22;

/// Number of an object. Objects refer to each other by it, so that shared ones are not copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ObjectId(u32);

/// An object of the machine.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PickleObject {
    /// A whole number.
    Int(i64),
    /// Bytes of a text in the file.
    Text(Range<usize>),
    /// Module and name of a class or function.
    Class([Range<usize>; 2]),
    Tuple(Vec<ObjectId>),
    Dict(Vec<(ObjectId, ObjectId)>),
    /// Result of a call.
    Call {
        callable: ObjectId,
        arguments: ObjectId,
    },
    /// Object that is stored outside of the program, by its id.
    Persistent(ObjectId),
    /// Another object, which no tensor depends on.
    Other,
}

/// The machine, with the program that it runs.
pub(super) struct PickleMachine<'a> {
    bytes: &'a [u8],
    at: usize,
    end: usize,
    objects: Vec<PickleObject>,
    stack: Vec<ObjectId>,
    /// Lengths of the stack at marks.
    marks: Vec<usize>,
    memo: BTreeMap<u32, ObjectId>,
}

impl<'a> PickleMachine<'a> {
    /// Creates a machine for a program at a place in a file.
    pub(super) fn new(bytes: &'a [u8], program: Range<usize>) -> Self {
        Self {
            bytes,
            at: program.start,
            end: program.end.min(bytes.len()),
            objects: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: BTreeMap::new(),
        }
    }

    /// Returns an object.
    pub(super) fn object(&self, id: ObjectId) -> &PickleObject {
        &self.objects[id.0 as usize]
    }

    /// Returns a text that is not too long for a name.
    pub(super) fn text(&self, id: ObjectId) -> Option<&'a str> {
        match self.object(id) {
            PickleObject::Text(range) => self.name_at(range),
            _ => None,
        }
    }

    /// Returns the text of a place, if it is UTF-8 and not too long. It is checked each time that it is asked for.
    fn name_at(&self, range: &Range<usize>) -> Option<&'a str> {
        let text = Some(&self.bytes[range.clone()]).filter(|text| text.len() <= LONGEST_NAME)?;
        std::str::from_utf8(text).ok()
    }

    /// Returns module and name of a class.
    pub(super) fn class(&self, id: ObjectId) -> Option<[&'a str; 2]> {
        let PickleObject::Class([module, name]) = self.object(id) else { return None };
        Some([self.name_at(module)?, self.name_at(name)?])
    }

    /// Returns the elements of a tuple.
    pub(super) fn tuple(&self, id: ObjectId) -> Option<&[ObjectId]> {
        match self.object(id) {
            PickleObject::Tuple(elements) => Some(elements),
            _ => None,
        }
    }

    /// Returns a whole number that is not negative.
    pub(super) fn size(&self, id: ObjectId) -> Option<usize> {
        match self.object(id) {
            PickleObject::Int(number) => usize::try_from(*number).ok(),
            _ => None,
        }
    }

    /// Runs the program, and returns its result.
    ///
    /// # Errors
    ///
    /// If it is damaged, or has another instruction.
    pub(super) fn run(&mut self) -> Result<ObjectId, String> {
        loop {
            let at = self.at;
            let [code] = self.array()?;
            if code == b'.' {
                return self.pop();
            }
            let known = self.step(code)? || self.combine(code)? || self.push_constant(code)?;
            if !known {
                return Err(format!(
                    "its program has the instruction {code:#04x} at byte {at}, which is not read"
                ));
            }
        }
    }

    fn take(&mut self, count: usize) -> Result<Range<usize>, String> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.end);
        let end = end.ok_or("its program has no end")?;
        let taken = self.at..end;
        self.at = end;
        Ok(taken)
    }

    fn skip(&mut self, count: usize) -> Result<(), String> {
        self.take(count).map(|_| ())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let taken = self.take(N)?;
        Ok(*self.bytes[taken].first_chunk().expect("as many bytes as were taken"))
    }

    /// Reads a line, without its end.
    fn line(&mut self) -> Result<Range<usize>, String> {
        let rest = &self.bytes[self.at..self.end];
        let length = rest.iter().position(|byte| *byte == b'\n').ok_or("its program has no end")?;
        let line = self.take(length + 1)?;
        Ok(line.start..line.end - 1)
    }

    fn push(&mut self, object: PickleObject) -> Result<(), String> {
        if self.objects.len() >= MOST_OBJECTS {
            return Err(format!("its program has more than {MOST_OBJECTS} objects"));
        }
        self.stack.push(ObjectId(self.objects.len() as u32));
        self.objects.push(object);
        Ok(())
    }

    fn pop(&mut self) -> Result<ObjectId, String> {
        let bottom = self.marks.last().copied().unwrap_or(0);
        let found = if self.stack.len() > bottom { self.stack.pop() } else { None };
        found.ok_or_else(|| "its program takes an object that is not there".to_owned())
    }

    /// Takes the last objects, in their order.
    fn pop_many(&mut self, count: usize) -> Result<Vec<ObjectId>, String> {
        let mut objects = (0..count).map(|_| self.pop()).collect::<Result<Vec<_>, _>>()?;
        objects.reverse();
        Ok(objects)
    }

    /// Takes the objects after the last mark.
    fn pop_to_mark(&mut self) -> Result<Vec<ObjectId>, String> {
        let mark = self.marks.pop().ok_or("its program has no mark")?;
        Ok(self.stack.split_off(mark.min(self.stack.len())))
    }

    fn last(&self) -> Result<ObjectId, String> {
        self.stack.last().copied().ok_or_else(|| "its program needs an object".to_owned())
    }

    /// Runs an instruction about the stack or the memo; false if it is another.
    fn step(&mut self, code: u8) -> Result<bool, String> {
        match code {
            0x80 => self.skip(1)?,
            0x95 => self.skip(8)?,
            b'(' => self.marks.push(self.stack.len()),
            b'0' => {
                self.pop()?;
            }
            b'q' => {
                let [key] = self.array()?;
                let last = self.last()?;
                self.memo.insert(key.into(), last);
            }
            b'r' => {
                let key = u32::from_le_bytes(self.array()?);
                let last = self.last()?;
                self.memo.insert(key, last);
            }
            0x94 => {
                let last = self.last()?;
                self.memo.insert(self.memo.len() as u32, last);
            }
            b'h' => {
                let [key] = self.array()?;
                self.push_memo(key.into())?;
            }
            b'j' => {
                let key = u32::from_le_bytes(self.array()?);
                self.push_memo(key)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn push_memo(&mut self, key: u32) -> Result<(), String> {
        let found = self.memo.get(&key).copied();
        self.stack.push(found.ok_or_else(|| format!("its program has no object {key}"))?);
        Ok(())
    }

    /// Runs an instruction that makes an object of others; false if it is another.
    fn combine(&mut self, code: u8) -> Result<bool, String> {
        match code {
            b't' => {
                let elements = self.pop_to_mark()?;
                self.push(PickleObject::Tuple(elements))?;
            }
            0x85..=0x87 => {
                let elements = self.pop_many(usize::from(code - 0x84))?;
                self.push(PickleObject::Tuple(elements))?;
            }
            b'Q' => {
                let id = self.pop()?;
                self.push(PickleObject::Persistent(id))?;
            }
            b'R' | 0x81 => {
                let (arguments, callable) = (self.pop()?, self.pop()?);
                let ordered = self.class(callable) == Some(["collections", "OrderedDict"]);
                let call = PickleObject::Call { callable, arguments };
                self.push(if ordered { PickleObject::Dict(Vec::new()) } else { call })?;
            }
            // The state of an object, as the `_metadata` of a state dict, and the elements of a list change no tensor.
            b'b' | b'a' => {
                self.pop()?;
            }
            b's' => {
                let pair = self.pop_many(2)?;
                self.add_items(&pair)?;
            }
            b'u' => {
                let pairs = self.pop_to_mark()?;
                self.add_items(&pairs)?;
            }
            b'd' => {
                let pairs = self.pop_to_mark()?;
                self.push(PickleObject::Dict(Vec::new()))?;
                self.add_items(&pairs)?;
            }
            b'e' => drop(self.pop_to_mark()?),
            0x93 => {
                let names = self.pop_many(2)?;
                let [PickleObject::Text(module), PickleObject::Text(name)] =
                    [0, 1].map(|i| self.object(names[i]).clone())
                else {
                    return Err("its program names a class by what is no text".to_owned());
                };
                self.push(PickleObject::Class([module, name]))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Adds keys and values, in turn, to the dict on top of the stack.
    fn add_items(&mut self, pairs: &[ObjectId]) -> Result<(), String> {
        let last = self.last()?;
        let (pairs, rest) = pairs.as_chunks::<2>();
        match &mut self.objects[last.0 as usize] {
            PickleObject::Dict(entries) if rest.is_empty() => {
                entries.extend(pairs.iter().map(|[key, value]| (*key, *value)));
                Ok(())
            }
            _ => Err("its program adds items to what is no dict".to_owned()),
        }
    }

    /// Runs an instruction that pushes what it contains; false if it is another.
    fn push_constant(&mut self, code: u8) -> Result<bool, String> {
        let object = match code {
            b')' => PickleObject::Tuple(Vec::new()),
            b'}' => PickleObject::Dict(Vec::new()),
            // Lists, sets, flags and None.
            b']' | 0x8f | b'N' | 0x88 | 0x89 => PickleObject::Other,
            b'G' => {
                self.take(8)?;
                PickleObject::Other
            }
            b'K' => PickleObject::Int(i64::from(self.array::<1>()?[0])),
            b'M' => PickleObject::Int(u16::from_le_bytes(self.array()?).into()),
            b'J' => PickleObject::Int(i32::from_le_bytes(self.array()?).into()),
            0x8a => self.long()?,
            0x8c => {
                let [length] = self.array()?;
                PickleObject::Text(self.take(length.into())?)
            }
            b'X' => {
                let length = u32::from_le_bytes(self.array()?);
                PickleObject::Text(self.take(length as usize)?)
            }
            b'c' => PickleObject::Class([self.line()?, self.line()?]),
            _ => return Ok(false),
        };
        self.push(object)?;
        Ok(true)
    }

    /// Reads a whole number of up to 255 bytes; those of more than 8 are of no tensor.
    fn long(&mut self) -> Result<PickleObject, String> {
        let [length] = self.array()?;
        let taken = self.take(length.into())?;
        let bytes = &self.bytes[taken];
        let negative = bytes.last().is_some_and(|byte| *byte & 0x80 != 0);
        let mut wide = if negative { [0xff; 8] } else { [0; 8] };
        let Some(low) = wide.get_mut(..bytes.len()) else { return Ok(PickleObject::Other) };
        low.copy_from_slice(bytes);
        Ok(PickleObject::Int(i64::from_le_bytes(wide)))
    }
}
