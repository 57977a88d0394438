//! A page that rustdoc shows links to no file: rustdoc has no files.
//!
//! A README is both a page of its repository and the first page of its crate. There, a link to a file
//! is a definition (`[guide]: src/guide.md`), and `lib.rs` has one with the same name before it
//! includes the README: of two definitions the first one counts.

use super::{
    Finding,
    links::{is_file, prose, targets},
    tree::{File, Tree},
};

const INCLUDES: &str = "#![doc = include_str!(\"../README.md\")]";
const GUIDES: &str = "src/guide/";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let find = |path: &str| tree.files.iter().find(|file| file.path == path);
    let mut findings = Vec::new();
    for lib in tree.with("rs").filter(|file| file.text.contains(INCLUDES)) {
        let Some(folder) = lib.path.strip_suffix("src/lib.rs") else { continue };
        if let Some(readme) = find(&format!("{folder}README.md")) {
            findings.extend(check_page(readme, &defined(lib)));
        }
    }
    let guides = tree.with("md").filter(|file| file.path.starts_with(GUIDES));
    findings.extend(guides.flat_map(|file| check_page(file, &[])));
    findings
}

/// The names of the links that the docs of a crate define before the README.
fn defined(lib: &File) -> Vec<&str> {
    let before = lib.text.split(INCLUDES).next().unwrap_or_default();
    before.lines().filter_map(|line| name(line.strip_prefix("//! ")?)).collect()
}

/// The name of the link that a line defines: `[name]: target`.
fn name(line: &str) -> Option<&str> {
    Some(line.strip_prefix('[')?.split_once("]: ")?.0)
}

fn check_page(page: &File, defined: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in prose(page) {
        if name(line).is_some_and(|name| defined.contains(&name)) {
            continue;
        }
        for target in targets(line).into_iter().filter(|target| is_file(target)) {
            // A page of rustdoc, or an item.
            if target.ends_with(".html") || target.contains("::") || !target.contains(['/', '.']) {
                continue;
            }
            let what = format!("rustdoc shows this page, and `{target}` is no page there");
            findings.push(Finding::new(&page.path, number, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{super::testing::NONE, *};

    const LIB: &str =
        "//! A.\n//!\n//! [guide]: crate::guide\n#![doc = include_str!(\"../README.md\")]\n";

    fn found(path: &str, text: &str) -> Vec<usize> {
        let tree = Tree::of(&[("a/src/lib.rs", LIB), (path, text)]);
        check(&tree).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_link_to_a_file_is_found_on_a_page_of_rustdoc() {
        for bad in ["[b](b.md)", "[b](../b/)", "[b]: src/b.md", "[`B`]: src/b.rs"] {
            assert_eq!(found("a/README.md", &format!("# A\n\n{bad}\n")), [3], "{bad}");
            assert_eq!(found("src/guide/b.md", &format!("A.\n\n{bad}\n")), [3], "{bad}");
        }
        assert_eq!(found("src/guide/b.md", "[guide]: src/guide.md\n"), [1]);
    }

    #[test]
    fn other_links_and_other_pages_are_left_alone() {
        for good in [
            "[guide]: src/guide.md",
            "[web](https://example.org/b.md), [here](#a)",
            "[item](crate::Item::method), [`Item`]",
            "```\n[b](b.md)\n```",
        ] {
            assert_eq!(found("a/README.md", &format!("{good}\n")), NONE, "{good}");
        }
        assert_eq!(found("b/README.md", "[b](b.md)\n"), NONE);
    }
}
