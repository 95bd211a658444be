//! The program `maverl`: the command line with the teams that ship with maverl.

maverl::main!(orchestras);
