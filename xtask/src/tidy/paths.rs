//! No path of somebody's machine.

use super::{Finding, tree::Tree};

/// In two halves, so that this file does not break its own rule.
const PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/")];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| !file.is_given()) {
        for (number, line) in file.lines() {
            for path in PATHS.iter().filter(|path| has_path(line, path)) {
                let what = format!("`{path}` is a path of one machine: use a relative one");
                findings.push(Finding::new(&file.path, number, what));
            }
        }
    }
    findings
}

/// True if `path` begins a path in `line`: not inside an address or a longer path.
fn has_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-~*}/".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{NONE, lines},
        PATHS, check,
    };

    #[test]
    fn each_is_found_where_a_path_begins() {
        for path in PATHS {
            for before in ["", "\"", "see ", "(", "file="] {
                let text = format!("a\n{before}{path}x\n");
                assert_eq!(lines(check, "a.rs", text), [2], "{before}{path}");
            }
        }
    }

    #[test]
    fn addresses_and_relative_paths_are_left_alone() {
        for path in PATHS {
            for before in ["https://example.org", "src", ".", "~"] {
                assert_eq!(lines(check, "a.md", format!("{before}{path}x\n")), NONE, "{before}");
            }
        }
    }
}
