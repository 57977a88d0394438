//! A file or folder that ARCHITECTURE or CONTRIBUTING names between backquotes exists.

use super::{Finding, tree::Tree};

const PAGES: &[&str] = &["ARCHITECTURE.md", "CONTRIBUTING.md"];

/// The endings of names that are files also without a folder before them.
const ENDINGS: &[&str] = &[".rs", ".lua", ".sql", ".md", ".toml", ".sh"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| PAGES.contains(&&*file.path)) {
        let mut in_code = false;
        for (number, line) in file.lines() {
            in_code ^= line.starts_with("```");
            if in_code {
                continue;
            }
            // A row whose first cell is a folder names the files of that folder.
            let first_cell = line.strip_prefix("| ").and_then(|row| row.split(" | ").next());
            let folders: Vec<&str> = first_cell.map(quoted).unwrap_or_default();
            let folder = folders.first().filter(|name| tree.has(name) && !is_file(name));
            for name in quoted(line).into_iter().filter(|name| is_name(name)) {
                let name = name.trim_end_matches('/');
                let inside = folder.is_some_and(|folder| tree.has(&format!("{folder}/{name}")));
                let known = match folder {
                    Some(_) if !name.contains('/') => inside,
                    _ => inside || tree.has(name) || tree.has_end(name),
                };
                if !known {
                    let what = format!("`{name}` is named here, and does not exist{}", {
                        folder.map(|folder| format!(" in `{folder}`")).unwrap_or_default()
                    });
                    findings.push(Finding::new(&file.path, number, what));
                }
            }
        }
    }
    findings
}

/// The texts between backquotes: every other piece.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn is_name(text: &str) -> bool {
    let is_path = text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    is_path && (is_file(text) || (text.contains('/') && !text.starts_with('/')))
}

fn is_file(text: &str) -> bool {
    ENDINGS.iter().any(|ending| text.len() > ending.len() && text.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::{super::testing::NONE, *};

    fn found(text: &str) -> Vec<usize> {
        let tree = Tree::of(&[
            ("ARCHITECTURE.md", text),
            ("core/src/planner/decide.rs", ""),
            ("core/src/store/engine.rs", ""),
        ]);
        check(&tree).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_file_that_has_moved_is_found() {
        for bad in [
            "see `decided.rs`",
            "see `planner/engine.rs`",
            "see `core/src/plan`",
            "see `core/src/plan/`",
            "see `ide.rs`",
            "| `core/src/planner` | `engine.rs` has the loop |",
            "| `core/src/plans` | all of it |",
        ] {
            assert_eq!(found(&format!("# A\n{bad}\n")), [2], "{bad}");
        }
    }

    #[test]
    fn names_of_files_that_exist_and_other_code_are_fine() {
        for good in [
            "see `decide.rs`",
            "see `planner/decide.rs`, `core/src/store`",
            "see `core/src/planner/`",
            "| `core/src/planner` | `decide.rs` has the policies, `store/engine.rs` the loop |",
            "| `decide.rs` | the policies |",
            "`Claim`, `record::apply`, `redis://a/b`, `/etc/crontab`, `cargo test a/b`, `a.b`",
            "```text\n`gone.rs`\n```",
        ] {
            assert_eq!(found(&format!("{good}\n")), NONE, "{good}");
        }
    }

    #[test]
    fn other_pages_may_name_files_of_others() {
        let tree = Tree::of(&[("README.md", "your `main.rs`\n")]);
        assert_eq!(check(&tree), []);
    }
}
