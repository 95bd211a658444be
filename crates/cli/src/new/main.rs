maverl::main!(my_team);
