//! The program of the team that `maverl new` writes.

maverl::main!(my_team);
