//! No tabs, no blanks at the end of a line, no carriage returns, and a line feed at the end.

use super::{Finding, tree::Tree};

/// The kinds of file that people edit; a crontab, for one, may need its tabs.
const KINDS: &[&str] = &["rs", "md", "toml", "yml", "yaml", "sh", "sql", "lua", "json"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| KINDS.iter().any(|kind| file.is(kind))) {
        let mut find = |line, what: &str| findings.push(Finding::new(&file.path, line, what));
        let mut last = 1;
        for (number, line) in file.lines() {
            last = number;
            if line.contains('\t') {
                find(number, "a tab: indent with spaces, in a string write `\\t`");
            }
            if line.ends_with([' ', '\t', '\r']) {
                find(number, "blanks or a carriage return at the end of the line");
            }
        }
        if !file.text.is_empty() && !file.text.ends_with('\n') {
            find(last, "no line feed at the end of the file");
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{NONE, lines},
        check,
    };

    #[test]
    fn each_kind_of_blank_is_found() {
        assert_eq!(lines(check, "a.rs", "//! A.\n\nfn a() {}\n"), NONE);
        for bad in ["a\n\tb\n", "a\nb \n", "a\nb\r\n", "a\nb"] {
            assert_eq!(lines(check, "a.rs", bad), [2], "{bad:?}");
        }
    }

    #[test]
    fn other_kinds_of_file_may_need_them() {
        assert_eq!(lines(check, "examples/crontab", "* *\t* * *\ttrue\n"), NONE);
    }
}
