//! The command line with the team of the tests and those that ship with maverl.

maverl::main!(maverl_tests, orchestras);
