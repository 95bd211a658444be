#![allow(clippy::unwrap_used)]

use std::os::fd::AsRawFd;

use super::*;

/// Returns a list that writes a text to a descriptor by a vector of buffers.
fn writing(descriptor: c_int, text: &str) -> CallList {
    let mut calls = CallList::new(BirthStep::Session);
    let bytes = calls.add_bytes(text.as_bytes());
    let vector = [[0; 8], (text.len() as u64).to_ne_bytes()].concat();
    let vector = calls.add_structure(vector, [(0, bytes)]);
    calls.begin_step(BirthStep::Limits);
    calls.add_call_returning(libc::SYS_writev, [descriptor.into(), vector, 1.into()], 4);
    calls
}

#[test]
fn calls_read_the_memory_of_their_list_also_through_pointers() {
    let (read, written) = rustix::pipe::pipe().unwrap();
    let calls = writing(written.as_raw_fd(), "text");
    // SAFETY: the list writes to a pipe.
    unsafe { calls.make_calls() }.unwrap();
    let mut buffer = [0; 8];
    assert_eq!(rustix::io::read(&read, &mut buffer).unwrap(), 4);
    assert_eq!(&buffer[..4], b"text");
}

#[test]
fn the_call_that_fails_is_named_and_the_ignored_one_is_not() {
    let mut calls = CallList::new(BirthStep::Session);
    calls.add_ignored_call(libc::SYS_close, [(-1).into()]);
    calls.begin_step(BirthStep::Root);
    calls.add_call(libc::SYS_close, [(-1).into()]);
    // SAFETY: no descriptor has this number.
    let (index, error) = unsafe { calls.make_calls() }.unwrap_err();
    assert_eq!((index, error.raw_os_error()), (1, Some(libc::EBADF)));
    assert_eq!(calls.step_at(index), BirthStep::Root);
}

#[test]
fn another_result_than_the_required_one_is_a_failure() {
    let (_read, written) = rustix::pipe::pipe().unwrap();
    let calls = writing(written.as_raw_fd(), "four bytes and more");
    // SAFETY: the list writes to a pipe.
    let (index, error) = unsafe { calls.make_calls() }.unwrap_err();
    assert_eq!((index, error.raw_os_error()), (0, Some(libc::EBADF)));
}

#[test]
fn a_list_as_text_has_a_line_for_each_block_pointer_and_call() {
    let mut calls = writing(1, "text");
    calls.add_ignored_call(5, []);
    let number = libc::SYS_writev;
    let text = calls.to_text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "memory 74657874");
    assert!(lines[1].ends_with("0400000000000000"), "{}", lines[1]);
    assert_eq!(
        lines[2..],
        ["pointer 1 0 0", &format!("call {number} 4 1 *1 1 0 0 0"), "call 5 ignored 0 0 0 0 0 0"]
    );
}
