//! The stock binary: the teams that ship with maverl.

maverl::main!(orchestras);
