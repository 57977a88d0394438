//! Every chore of the project: `cargo xtask test`, `ci`, `bench`.

fn main() {}
