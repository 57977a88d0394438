//! The `allora` command.

fn main() {}
