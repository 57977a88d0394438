//! A Rust file is short enough to have one idea; its tests do not count.

use super::{
    Finding,
    tree::{File, Tree},
};

const MOST: usize = 700;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.with("rs")
        .filter(|file| !file.is_test())
        .filter_map(|file| {
            let length = untested(file);
            let what = format!("{length} lines, at most {MOST}: look for the second idea inside");
            (length > MOST).then(|| Finding::new(&file.path, MOST + 1, what))
        })
        .collect()
}

/// The number of lines before the tests at the end.
fn untested(file: &File) -> usize {
    let all: Vec<&str> = file.lines().map(|(_, line)| line).collect();
    let tests = all
        .windows(2)
        .rposition(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod tests {"));
    tests.unwrap_or(all.len())
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{NONE, lines},
        MOST, check,
    };

    #[test]
    fn one_line_too_many_is_found() {
        assert_eq!(lines(check, "a.rs", "//\n".repeat(MOST)), NONE);
        assert_eq!(lines(check, "a.rs", "//\n".repeat(MOST + 1)), [MOST + 1]);
    }

    #[test]
    fn tests_and_other_files_may_be_longer() {
        let long = "//\n".repeat(MOST + 1);
        assert_eq!(lines(check, "core/tests/it/a.rs", &*long), NONE);
        assert_eq!(lines(check, "core/src/a/tests.rs", &*long), NONE);
        assert_eq!(lines(check, "core/src/attests.rs", &*long), [MOST + 1]);
        assert_eq!(lines(check, "a.md", &*long), NONE);
        assert_eq!(lines(check, "a.rs", format!("#[cfg(test)]\nmod tests {{\n{long}}}\n")), NONE);
        assert_eq!(lines(check, "a.rs", format!("#[cfg(test)]\nuse it;\n{long}")), [MOST + 1]);
    }
}
