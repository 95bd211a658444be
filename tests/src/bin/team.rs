//! The command line with the team of the tests and the built-in teams.

maverl::main!(maverl_tests, orchestras);
