//! `cargo xtask lines`: the lines of product code of each package, without documentation, comments,
//! blank lines and tests.

use crate::{
    Failure, Outcome, command,
    tidy::{File, Kind, Tree, parts},
};
use std::collections::{BTreeMap, BTreeSet};

/// The folders whose code is no part of the product.
const OTHER: &[&str] = &["xtask", "benches", "examples", "tests"];

/// Prints the lines of each package, and their sum.
///
/// # Errors
/// If a file cannot be read.
pub(crate) fn run() -> Outcome {
    let tree = Tree::read(command::root())
        .map_err(|cause| Failure::Check(format!("lines: a file cannot be read: {cause}")))?;
    let mut packages: BTreeMap<&str, usize> = BTreeMap::new();
    for file in tree.files.iter().filter(|file| is_product(file)) {
        let package = match file.path.split_once('/') {
            Some((folder, _)) if folder != "src" => folder,
            _ => "allora",
        };
        *packages.entry(package).or_default() += code(file);
    }
    for (package, lines) in &packages {
        println!("{lines:>7}  {package}");
    }
    println!("{:>7}  in all", packages.values().sum::<usize>());
    Ok(())
}

fn is_product(file: &File) -> bool {
    let is_other = OTHER.iter().any(|folder| file.path.starts_with(&format!("{folder}/")));
    let is_code = file.is("rs") || file.is("lua") || file.is("sql");
    is_code && !is_other && !file.is_test() && !file.path.contains("/benches/")
}

/// The lines of a file with code. A module of tests inside the file ends with a brace at its own depth.
fn code(file: &File) -> usize {
    let with_code: BTreeSet<usize> = parts(file)
        .into_iter()
        .filter(|part| part.kind != Kind::Prose && !part.text.trim().is_empty())
        .map(|part| part.line)
        .collect();
    let (mut count, mut is_attribute, mut tests) = (0, false, None);
    for (number, line) in file.lines() {
        let depth = line.len() - line.trim_start().len();
        if let Some(begin) = tests {
            if depth == begin && line.trim_end() == format!("{}}}", " ".repeat(begin)) {
                tests = None;
            }
            continue;
        }
        if line.trim() == "#[cfg(test)]" {
            is_attribute = true;
            continue;
        }
        if std::mem::take(&mut is_attribute) {
            tests = line.trim_end().ends_with('{').then_some(depth);
            continue;
        }
        let is_comment = ["--", "//"].iter().any(|mark| line.trim_start().starts_with(mark));
        count += usize::from(with_code.contains(&number) && !is_comment);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> usize {
        code(&File { path: path.into(), text: text.into() })
    }

    #[test]
    fn documentation_comments_blanks_and_tests_are_not_counted() {
        let text = "//! A file.\n\n/// A function.\nfn f() { // here\n    /* not\n    here */\n}\n\n\
                    #[cfg(test)]\nmod tests {\n    fn g() {\n    }\n}\nconst A: &str = \"\n// text\";\n";
        assert_eq!(lines("a.rs", text), 3);
        assert_eq!(lines("a.lua", "-- why\n\nlocal a = 1\n"), 1);
    }
}
