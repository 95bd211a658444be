maverl::main!(my-team);

fn main() {}
