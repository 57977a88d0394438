//! A link in a Markdown file leads to a file that exists.

use super::{
    Finding,
    tree::{File, Tree},
};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.with("md").flat_map(|file| check_file(tree, file)).collect()
}

fn check_file(tree: &Tree, file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in prose(file) {
        for target in targets(line).into_iter().filter(|target| is_file(target)) {
            let path = target.split('#').next().unwrap_or_default();
            if !resolve(&file.path, path).is_some_and(|path| path.is_empty() || tree.has(&path)) {
                findings.push(Finding::new(&file.path, number, format!("no file `{path}`")));
            }
        }
    }
    findings
}

/// The lines of a page that are not in a block of code.
pub(super) fn prose(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    file.lines().filter(move |(_, line)| {
        let line = line.trim_start();
        in_code ^= line.starts_with("```") || line.starts_with("~~~");
        !in_code
    })
}

/// The targets of the links of a line: `[text](target)`, `[text]: target`.
pub(super) fn targets(line: &str) -> Vec<String> {
    let line = without_code(line);
    let mut found = Vec::new();
    for (start, _) in line.match_indices("](") {
        let rest = &line[start + 2..];
        let target = rest.split([')', ' ']).next().unwrap_or_default();
        found.push(target.trim_matches(['<', '>']).to_owned());
    }
    if line.starts_with('[')
        && let Some((_name, target)) = line.split_once("]: ")
    {
        found.push(target.split_whitespace().next().unwrap_or_default().to_owned());
    }
    found
}

/// The line without what stands between backquotes; the other text stays as it is.
fn without_code(line: &str) -> String {
    let pieces: Vec<&str> = line.split('`').collect();
    // A backquote without its partner is a plain character.
    let closed = pieces.len() - 1 + pieces.len() % 2;
    let outside = pieces.iter().enumerate().filter(|(at, _)| at % 2 == 0 || *at >= closed);
    outside.map(|(_, piece)| *piece).collect()
}

/// True if it is neither an address, nor a place in the same file, nor an item that rustdoc finds.
pub(super) fn is_file(target: &str) -> bool {
    let elsewhere = ["#", "mailto:", "crate::"];
    !target.contains("://") && !elsewhere.iter().any(|start| target.starts_with(start))
}

/// The path that a link in `from` means; `None` if it leaves the workspace.
fn resolve(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::{super::testing::NONE, *};

    fn found(text: &str) -> Vec<usize> {
        let tree = Tree::of(&[("docs/a.md", text), ("docs/b.md", ""), ("src/lib.rs", "//! A.\n")]);
        check(&tree).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_link_to_nothing_is_found() {
        for bad in [
            "[c](c.md)",
            "[b](b.md) and [c](c.md#part)",
            "[b](../b.md)",
            "[lib](src/lib.rs)",
            "[`code`](c.md)",
            "[c]: c.md",
            "[out](../../out.md)",
            "![picture](c.svg \"title\")",
        ] {
            assert_eq!(found(&format!("# A\n\n{bad}\n")), [3], "{bad}");
        }
    }

    #[test]
    fn other_links_are_left_alone() {
        for good in [
            "[b](b.md)",
            "[b](./b.md#part)",
            "[lib](../src/lib.rs), [all](../src/), [here](#a)",
            "[web](https://example.org/c.md), [post](mailto:a@example.org)",
            "`[c](c.md)` is a link",
            "```\n[c](c.md)\n```",
            "[b]: b.md \"title\"",
            "an array `[0]` (of one) and a `",
        ] {
            assert_eq!(found(&format!("{good}\n")), NONE, "{good}");
        }
    }
}
