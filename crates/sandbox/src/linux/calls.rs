//! System calls as data: the steps of a new process in the order in which it makes them.
//!
//! One list serves both starts of a process. A process that starts an interpreter makes the calls itself
//! ([`CallList::make_calls`]) and allocates nothing. A process that an interpreter has forked reads them as text
//! ([`CallList::to_text`], `launch/fork.py`). Both are thus confined by the same calls.
#![allow(unsafe_code)] // makes the calls

use std::ffi::{CStr, c_int, c_long};
use std::fmt::Write as _;
use std::io;

/// Maximum number of arguments of a system call.
const ARGUMENTS: usize = 6;

/// Step of a new process, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BirthStep {
    Clone,
    Session,
    Descriptors,
    Identity,
    Namespaces,
    Root,
    Limits,
    Privileges,
    Landlock,
    Threads,
    Seccomp,
    Execute,
}

/// Argument of a system call.
#[derive(Debug, Clone, Copy)]
pub(super) enum CallArgument {
    /// A number; a null pointer is 0.
    Number(i64),
    /// Address of the block of the list's memory with this index.
    Memory(usize),
}

impl From<c_int> for CallArgument {
    fn from(number: c_int) -> Self {
        Self::Number(number.into())
    }
}

impl From<u32> for CallArgument {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<u64> for CallArgument {
    fn from(number: u64) -> Self {
        Self::Number(number as i64)
    }
}

/// Required result of a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallResult {
    /// Anything but an error.
    Success,
    /// This number, such as that of a new descriptor which later calls name.
    Number(c_int),
    /// Anything.
    Ignored,
}

/// A system call of a step.
#[derive(Debug)]
struct StepCall {
    step: BirthStep,
    number: c_long,
    arguments: [CallArgument; ARGUMENTS],
    result: CallResult,
}

/// A pointer in memory: its block and offset, and the block that it points to.
#[derive(Debug)]
struct MemoryPointer {
    block: usize,
    offset: usize,
    target: usize,
}

/// A list of system calls with the memory that they read.
#[derive(Debug)]
pub(super) struct CallList {
    step: BirthStep,
    calls: Vec<StepCall>,
    memory: Vec<Vec<u8>>,
    pointers: Vec<MemoryPointer>,
}

impl CallList {
    /// Creates an empty list whose next calls belong to a step.
    pub(super) fn new(step: BirthStep) -> Self {
        Self { step, calls: Vec::new(), memory: Vec::new(), pointers: Vec::new() }
    }

    /// Begins a step.
    pub(super) fn begin_step(&mut self, step: BirthStep) {
        self.step = step;
    }

    /// Adds bytes that calls may read.
    pub(super) fn add_bytes(&mut self, bytes: impl Into<Vec<u8>>) -> CallArgument {
        CallArgument::Memory(self.add_block(bytes.into()))
    }

    /// Adds a text that calls may read.
    pub(super) fn add_text(&mut self, text: &CStr) -> CallArgument {
        self.add_bytes(text.to_bytes_with_nul())
    }

    /// Adds bytes with pointers to other bytes, each at its offset.
    pub(super) fn add_structure<const N: usize>(
        &mut self,
        bytes: impl Into<Vec<u8>>,
        pointers: [(usize, CallArgument); N],
    ) -> CallArgument {
        let block = self.add_block(bytes.into());
        for (offset, target) in pointers {
            let CallArgument::Memory(target) = target else { continue };
            let address = self.memory[target].as_ptr().expose_provenance();
            self.memory[block][offset..offset + size_of::<usize>()]
                .copy_from_slice(&address.to_ne_bytes());
            self.pointers.push(MemoryPointer { block, offset, target });
        }
        CallArgument::Memory(block)
    }

    fn add_block(&mut self, bytes: Vec<u8>) -> usize {
        self.memory.push(bytes);
        self.memory.len() - 1
    }

    /// Adds a call that must succeed.
    pub(super) fn add_call<const N: usize>(
        &mut self,
        number: c_long,
        arguments: [CallArgument; N],
    ) {
        self.add(number, &arguments, CallResult::Success);
    }

    /// Adds a call that must return this number.
    pub(super) fn add_call_returning<const N: usize>(
        &mut self,
        number: c_long,
        arguments: [CallArgument; N],
        result: c_int,
    ) {
        self.add(number, &arguments, CallResult::Number(result));
    }

    /// Adds a call that may fail.
    pub(super) fn add_ignored_call<const N: usize>(
        &mut self,
        number: c_long,
        arguments: [CallArgument; N],
    ) {
        self.add(number, &arguments, CallResult::Ignored);
    }

    fn add(&mut self, number: c_long, given: &[CallArgument], result: CallResult) {
        let mut arguments = [CallArgument::Number(0); ARGUMENTS];
        arguments[..given.len()].copy_from_slice(given);
        self.calls.push(StepCall { step: self.step, number, arguments, result });
    }

    /// Returns the step of a call.
    pub(super) fn step_at(&self, call: usize) -> BirthStep {
        self.calls.get(call).map_or(self.step, |call| call.step)
    }

    /// Makes the calls. Does not allocate. Returns the index of the call that failed.
    ///
    /// # Safety
    ///
    /// The calls must be ones that this process may make: they replace its descriptors, its root and its rights.
    pub(super) unsafe fn make_calls(&self) -> Result<(), (usize, io::Error)> {
        for (index, call) in self.calls.iter().enumerate() {
            let [a, b, c, d, e, f] = call.arguments.map(|argument| match argument {
                CallArgument::Number(number) => number,
                CallArgument::Memory(block) => {
                    self.memory[block].as_ptr().expose_provenance() as i64
                }
            });
            // SAFETY: the caller answers for what the calls do; they read memory of this list, which is borrowed.
            let result = unsafe { libc::syscall(call.number, a, b, c, d, e, f) };
            match call.result {
                CallResult::Success if result < 0 => {
                    return Err((index, io::Error::last_os_error()));
                }
                CallResult::Number(_) if result < 0 => {
                    return Err((index, io::Error::last_os_error()));
                }
                CallResult::Number(number) if result != c_long::from(number) => {
                    return Err((index, io::Error::from_raw_os_error(libc::EBADF)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the list as text, a line each: `memory HEX` for a block, `pointer BLOCK OFFSET TARGET`, and
    /// `call NUMBER RESULT ARGUMENT..`, where the result is a number, `success` or `ignored`, and an argument is a number
    /// or `*` and the index of a block.
    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for block in &self.memory {
            text.push_str("memory ");
            text.extend(block.iter().flat_map(|byte| hex_digits(*byte)));
            text.push('\n');
        }
        for MemoryPointer { block, offset, target } in &self.pointers {
            // Writing to a text cannot fail.
            let _ = writeln!(text, "pointer {block} {offset} {target}");
        }
        for call in &self.calls {
            let _ = write!(text, "call {}", call.number);
            let _ = match call.result {
                CallResult::Success => write!(text, " success"),
                CallResult::Number(number) => write!(text, " {number}"),
                CallResult::Ignored => write!(text, " ignored"),
            };
            for argument in call.arguments {
                let _ = match argument {
                    CallArgument::Number(number) => write!(text, " {number}"),
                    CallArgument::Memory(block) => write!(text, " *{block}"),
                };
            }
            text.push('\n');
        }
        text
    }
}

fn hex_digits(byte: u8) -> [char; 2] {
    [byte >> 4, byte & 15].map(|half| char::from(b"0123456789abcdef"[usize::from(half)]))
}

#[cfg(test)]
mod tests;
