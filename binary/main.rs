//! The stock binary: the teams that ship with maverl.
//!
//! It is a crate of its own, since a package compiles the dependencies of all its targets.

maverl::main!(orchestras);
