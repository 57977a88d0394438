//! Every trait of a backend makes numbered promises, and each names cases that the suite has.

use super::{
    Finding,
    tree::{File, Tree},
};
use std::collections::BTreeSet;

const TRAITS: &str = "allora-core/src/backend/";
const LIST: &str = "allora-conformance/src/cases/list.rs";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let list = tree.files.iter().find(|file| file.path == LIST);
    let cases = list.map(cases).unwrap_or_default();
    let files = tree.files.iter().filter(|file| file.path.starts_with(TRAITS));
    files.flat_map(|file| check_file(file, &cases)).collect()
}

/// The names in the list, as `file::sentence`.
fn cases(list: &File) -> BTreeSet<String> {
    let (mut names, mut group) = (BTreeSet::new(), "");
    for (_, line) in list.lines() {
        let line = line.trim();
        if let Some(name) = line.strip_suffix(" {") {
            group = name;
        } else if let Some((case, needs)) = line.split_once(": [")
            && needs.ends_with("];")
        {
            names.insert(format!("{group}::{case}"));
        }
    }
    names
}

/// A promise: its first line, and its text.
type Promise = (usize, String);

fn check_file(file: &File, cases: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut promises: Option<Vec<Promise>> = None;
    for (number, line) in file.lines() {
        if let Some(text) = line.strip_prefix("///") {
            let text = text.trim();
            match &mut promises {
                None if text == "# Promises" => promises = Some(Vec::new()),
                None => {}
                Some(found) if is_item(text) => found.push((number, text.to_owned())),
                Some(found) => {
                    if let Some((_, promise)) = found.last_mut() {
                        *promise += &format!(" {text}");
                    }
                }
            }
        } else if line.starts_with("pub trait ") {
            let promises = promises.take().unwrap_or_default();
            if promises.is_empty() {
                let what = "a trait of a backend has a `# Promises` section, with a numbered list";
                findings.push(Finding::new(&file.path, number, what));
            }
            for (line, promise) in promises {
                findings.extend(
                    wrong(&promise, cases).map(|what| Finding::new(&file.path, line, what)),
                );
            }
        } else if !line.starts_with("#[") {
            promises = None;
        }
    }
    findings
}

fn is_item(text: &str) -> bool {
    text.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok())
}

fn wrong(promise: &str, cases: &BTreeSet<String>) -> Option<String> {
    let Some((_, named)) = promise.split_once("Cases: ") else {
        return Some("name the cases that ask for this promise: `Cases: ..`".into());
    };
    // What stands between backquotes is every other piece.
    let mut names = named.split('`').skip(1).step_by(2).peekable();
    if names.peek().is_none() {
        return Some("name at least one case, between backquotes".into());
    }
    let unknown = names.find(|name| !cases.contains(*name))?;
    Some(format!("the suite has no case `{unknown}`"))
}

#[cfg(test)]
mod tests {
    use super::{super::testing::NONE, *};

    const CASES: &str =
        "//! L.\n            claim {\n                one_wins: [Leases];\n            }\n";

    fn found(docs: &str) -> Vec<usize> {
        let text = format!("//! A.\n{docs}#[async_trait]\npub trait A {{\n");
        let tree = Tree::of(&[("allora-core/src/backend/a.rs", &text), (LIST, CASES)]);
        check(&tree).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_promise_that_names_its_case_is_fine() {
        let one = "/// # Promises\n/// 1. *Fine.* Cases: `claim::one_wins`.\n";
        assert_eq!(found(one), NONE);
        let two = "/// A.\n///\n/// # Promises\n/// Some words.\n/// 1. *One.* Cases:\n///    `claim::one_wins`.\n/// 2. Two. Cases: `claim::one_wins`,\n///    `claim::one_wins`.\n";
        assert_eq!(found(two), NONE);
    }

    #[test]
    fn a_promise_without_a_case_or_with_a_wrong_one_is_found() {
        for bad in
            ["Fine.", "Fine. Cases: none.", "Cases: `claim::gone`.", "Cases: `other::one_wins`."]
        {
            assert_eq!(found(&format!("/// # Promises\n/// 1. {bad}\n")), [3], "{bad}");
        }
        let second =
            "/// # Promises\n/// 1. A. Cases: `claim::one_wins`.\n/// 2. B.\n///    Cases: `x`.\n";
        assert_eq!(found(second), [4]);
    }

    #[test]
    fn a_trait_without_promises_is_found() {
        assert_eq!(found("/// A trait.\n"), [4]);
        assert_eq!(found("/// # Promises\n/// None.\n"), [5]);
    }
}
