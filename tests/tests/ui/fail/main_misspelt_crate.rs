maverl::main!(orchestars);
