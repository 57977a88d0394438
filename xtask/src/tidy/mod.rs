//! `cargo xtask tidy`: the house rules that a machine can check, one file each.
//!
//! A rule is a function from the whole [`Tree`] to its findings, so that it can also compare one
//! file with another. Each is tested on text that keeps it and on text that breaks it.

mod blanks;
mod circles;
mod doc_start;
mod first_line;
mod length;
mod links;
mod named_files;
mod page_links;
mod parts;
mod paths;
mod promises;
mod tree;
mod words;

use crate::{Failure, Outcome, command};
use std::fmt;

pub(crate) use parts::{Kind, parts};
pub(crate) use tree::{File, Tree};

/// A new rule is a new file and a new line here.
const RULES: &[fn(&Tree) -> Vec<Finding>] = &[
    first_line::check,
    length::check,
    words::check,
    blanks::check,
    circles::check,
    paths::check,
    links::check,
    page_links::check,
    named_files::check,
    promises::check,
    doc_start::check,
];

/// One line that breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Checks every file of the workspace and prints what it finds.
///
/// # Errors
/// If a rule is broken, or a file cannot be read.
pub(crate) fn run() -> Outcome {
    command::step("tidy");
    let tree = Tree::read(command::root())
        .map_err(|cause| Failure::Check(format!("tidy: a file cannot be read: {cause}")))?;
    let findings = check(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        1 => Err(Failure::Check("tidy: 1 line breaks a rule".into())),
        n => Err(Failure::Check(format!("tidy: {n} lines break a rule"))),
    }
}

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(tree)).collect();
    findings.sort();
    findings
}

#[cfg(test)]
mod testing {
    //! Functions that the rules' tests share.

    use super::{Finding, Tree};

    /// The findings in a good file.
    pub(super) const NONE: [usize; 0] = [];

    /// The lines a rule finds in one file.
    pub(super) fn lines(
        rule: fn(&Tree) -> Vec<Finding>,
        path: &str,
        text: impl Into<String>,
    ) -> Vec<usize> {
        let tree = Tree::of(&[(path, &text.into())]);
        rule(&tree).into_iter().map(|finding| finding.line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_asked_and_the_findings_are_in_order() {
        let tree = Tree::of(&[("b.md", "[gone](gone.md)\n"), ("a.rs", "fn main() {} \n")]);
        let findings: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(findings.len(), 3, "{findings:?}");
        assert!(findings[0].starts_with("a.rs:1: "), "{findings:?}");
        assert!(findings[2].starts_with("b.md:1: "), "{findings:?}");
    }
}
