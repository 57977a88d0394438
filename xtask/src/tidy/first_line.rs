//! Every Rust file says in its first line what it is about.

use super::{Finding, tree::Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.with("rs")
        .filter(|file| !is_input(&file.path))
        .filter(|file| !file.text.starts_with("//! "))
        .map(|file| Finding::new(&file.path, 1, "begin the file with a `//!` line: its one idea"))
        .collect()
}

/// Build scripts, and programs whose compiler messages are compared line by line.
fn is_input(path: &str) -> bool {
    path.rsplit('/').next() == Some("build.rs") || path.contains("tests/ui/")
}

#[cfg(test)]
mod tests {
    use super::super::testing::{NONE, lines};

    #[test]
    fn it_is_a_doc_comment() {
        let check = |path, text| lines(super::check, path, text);
        assert_eq!(check("a.rs", "//! What it is.\n"), NONE);
        for bad in ["", "use std::fmt;\n", "// A comment.\n", "\n//! Too late.\n", "//!\n"] {
            assert_eq!(check("a.rs", bad), [1], "{bad:?}");
        }
    }

    #[test]
    fn files_that_are_input_are_left_alone() {
        for path in ["build.rs", "core/build.rs", "core/tests/ui/fails.rs", "a.md"] {
            assert_eq!(lines(super::check, path, "fn main() {}\n"), NONE, "{path}");
        }
        assert_eq!(lines(super::check, "src/rebuild.rs", "fn main() {}\n"), [1]);
    }
}
