//! The files of a crate import each other in no circle.
//!
//! A file whose folder has further files may use those: only what they import counts. A file that
//! re-exports a name does not count; the file that defines it does.

use super::{
    Finding,
    parts::{Kind, is_in_word, parts},
    tree::{File, Tree},
};
use std::collections::{BTreeMap, BTreeSet};

/// Imports that do not count: from a file or folder, and of a module or what is in it.
const EXCEPTIONS: &[(&str, &str)] = &[
    // The adapters of a schedule are schedules, and methods of the trait return them.
    ("allora-schedule/src/schedule.rs", "calendar"),
    // A rule of a calendar may hold a schedule, which may have rules.
    ("allora-schedule/src/calendar/", "any"),
    // A rule may name a calendar, which has rules.
    ("allora-schedule/src/calendar/rule.rs", "calendar::named"),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Modules<'_>> = BTreeMap::new();
    for file in tree.with("rs").filter(|file| !file.is_test()) {
        if let Some((folder, name)) = placed(&file.path) {
            crates.entry(folder).or_default().insert(module(name), Module::read(file));
        }
    }
    crates.values().flat_map(circles).collect()
}

/// The folder of the crate and the rest of a path.
fn placed(path: &str) -> Option<(&str, &str)> {
    match path.split_once("/src/") {
        Some(parts) => Some(parts),
        None => Some(("", path.strip_prefix("src/")?)),
    }
}

/// The names of a module and of those around it.
type Path = Vec<String>;

type Modules<'a> = BTreeMap<Path, Module<'a>>;

fn module(name: &str) -> Path {
    let mut path: Path = name.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    path.pop_if(|last| ["mod", "lib", "main"].contains(&&**last));
    path
}

/// A file with its imports.
struct Module<'a> {
    file: &'a str,
    imports: Vec<Import>,
}

/// A path in a file.
struct Import {
    line: usize,
    path: Path,
    /// The name by which the file has what a `use` imports.
    name: Option<String>,
    is_public: bool,
}

impl<'a> Module<'a> {
    fn read(file: &'a File) -> Self {
        let mut imports = Vec::new();
        let words = words(file);
        let mut rest = &words[..];
        while let Some(((line, word), more)) = rest.split_first() {
            let before = &words[..words.len() - rest.len()];
            rest = match &**word {
                "#" if starts_with(more, &["[", "cfg", "("]) => {
                    let end = more.iter().position(|(_, word)| word == "]").unwrap_or(more.len());
                    let (condition, more) = more.split_at(end);
                    let is_test = condition.iter().any(|(_, word)| word == "test");
                    if is_test { item(more) } else { more }
                }
                "use" => {
                    let is_public = ends_with_pub(before);
                    let end = more.iter().position(|(_, word)| word == ";").unwrap_or(more.len());
                    leaves(&more[..end], &[], is_public, &mut imports);
                    &more[end..]
                }
                "crate" | "super" | "self" if starts_with(more, &["::"]) => {
                    let path = more.iter().map(|(_, word)| &**word);
                    let path =
                        path.take_while(|word| *word == "::" || word.starts_with(is_in_word));
                    let mut path: Path =
                        path.filter(|word| *word != "::").map(str::to_owned).collect();
                    path.insert(0, word.clone());
                    imports.push(Import { line: *line, path, name: None, is_public: false });
                    more
                }
                _ => more,
            };
        }
        Self { file: &file.path, imports }
    }
}

/// The names and signs of the code with their lines; `::` is one sign.
fn words(file: &File) -> Vec<(usize, String)> {
    let mut words: Vec<(usize, String)> = Vec::new();
    for part in parts(file).iter().filter(|part| part.kind == Kind::Code) {
        let mut is_after_word = false;
        for char in part.text.chars() {
            let joins = if is_in_word(char) { is_after_word } else { char == ':' };
            match words.last_mut().filter(|(_, last)| joins && (is_in_word(char) || last == ":")) {
                Some((_, last)) => last.push(char),
                None if char.is_whitespace() => {}
                None => words.push((part.line, char.to_string())),
            }
            is_after_word = is_in_word(char);
        }
    }
    words
}

fn starts_with(words: &[(usize, String)], start: &[&str]) -> bool {
    words.len() >= start.len() && words.iter().zip(start).all(|((_, word), other)| word == other)
}

/// `true` behind `pub` or `pub(…)`.
fn ends_with_pub(words: &[(usize, String)]) -> bool {
    let is = |back: usize, word: &str| words.iter().rev().nth(back).is_some_and(|(_, w)| w == word);
    is(0, "pub") || (is(0, ")") && is(3, "pub"))
}

/// The words after an item, which ends with its braces or with a semicolon.
fn item(words: &[(usize, String)]) -> &[(usize, String)] {
    let mut depth = 0;
    let is_use = words.iter().map(|(_, word)| &**word).take(5).any(|word| word == "use");
    for (i, (_, word)) in words.iter().enumerate() {
        depth += i32::from(word == "{") - i32::from(word == "}");
        if depth == 0 && (word == ";" || (word == "}" && !is_use)) {
            return &words[i + 1..];
        }
    }
    &[]
}

/// Adds the imports of one tree of a `use`.
fn leaves(words: &[(usize, String)], before: &[String], is_public: bool, to: &mut Vec<Import>) {
    let Some((line, _)) = words.first() else { return };
    let mut path = before.to_vec();
    let mut name = None;
    for (i, (_, word)) in words.iter().enumerate() {
        match &**word {
            "{" => {
                let mut depth = 0;
                let branches = words[i + 1..words.len() - 1].split(|(_, word)| {
                    depth += i32::from(word == "{") - i32::from(word == "}");
                    depth == 0 && word == ","
                });
                return branches.for_each(|branch| leaves(branch, &path, is_public, to));
            }
            "::" => {}
            "as" => {
                name = words.get(i + 1).map(|(_, name)| name.clone());
                break;
            }
            "self" if !path.is_empty() => {}
            word => path.push(word.to_owned()),
        }
    }
    let name = name.or_else(|| path.last().cloned());
    to.push(Import { line: *line, path, name, is_public });
}

/// The module that defines what a module means by a path; `None` for another crate.
fn resolve(modules: &Modules<'_>, from: &Path, path: &[String], depth: usize) -> Option<Path> {
    let (first, mut rest) = path.split_first()?;
    let mut at = match &**first {
        "crate" => Path::new(),
        "self" => from.clone(),
        "super" => from.split_last()?.1.to_vec(),
        _ if modules.contains_key(&inside(from, first)) => inside(from, first),
        _ => return None,
    };
    while let Some((name, more)) = rest.split_first() {
        if name == "super" {
            at.pop();
        } else if modules.contains_key(&inside(&at, name)) {
            at.push(name.clone());
        } else {
            let imports = modules.get(&at).map_or(&[][..], |module| &module.imports);
            let import = imports.iter().find(|import| import.name.as_ref() == Some(name));
            let other = import.filter(|_| depth > 0);
            let found = other.and_then(|other| resolve(modules, &at, &other.path, depth - 1));
            return found.or(Some(at));
        }
        rest = more;
    }
    Some(at)
}

fn inside(path: &Path, name: &String) -> Path {
    path.iter().chain([name]).cloned().collect()
}

/// One finding for each file of a circle.
fn circles(modules: &Modules<'_>) -> Vec<Finding> {
    let mut used: BTreeMap<&Path, BTreeMap<Path, usize>> = BTreeMap::new();
    for (path, module) in modules {
        for import in module.imports.iter().filter(|import| !import.is_public) {
            let Some(other) = resolve(modules, path, &import.path, 8) else { continue };
            let text = other.join("::");
            let is_exception = |(from, of): &(&str, &str)| {
                let inner = text.strip_prefix(of);
                module.file.starts_with(from)
                    && inner.is_some_and(|rest| !rest.starts_with(is_in_word))
            };
            if !other.starts_with(path) && !EXCEPTIONS.iter().any(is_exception) {
                used.entry(path).or_default().entry(other).or_insert(import.line);
            }
        }
    }
    let reached = |from: &Path| {
        let mut reached = BTreeSet::new();
        let mut waiting = vec![from];
        while let Some(path) = waiting.pop() {
            for other in used.get(path).into_iter().flat_map(BTreeMap::keys) {
                if reached.insert(other) {
                    waiting.push(other);
                }
            }
        }
        reached
    };
    let mut findings = Vec::new();
    for (path, others) in &used {
        let back = others.iter().find(|(other, _)| reached(other).contains(path));
        if let (Some((other, line)), Some(module)) = (back, modules.get(*path)) {
            let file = modules.get(other).map_or("", |module| module.file);
            let what = format!("uses {file}, which uses this file, itself or through others");
            findings.push(Finding::new(module.file, *line, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let findings = check(&Tree::of(files)).into_iter();
        findings.map(|finding| format!("{}:{}", finding.path, finding.line)).collect()
    }

    #[test]
    fn a_circle_is_found_whatever_the_imports_look_like() {
        for import in [
            "use crate::a::A;",
            "use super::a::A;",
            "use super::{b::B, a::{self, A}};",
            "pub(crate) use std::fmt;\nuse crate::A;",
            "use crate::Renamed;",
            "fn f() -> crate::a::A {}",
        ] {
            let root = "mod a;\nmod b;\npub use a::A;\npub(crate) use a::A as Renamed;\n";
            let files = [
                ("x/src/lib.rs", root),
                ("x/src/a.rs", "use crate::b::B;\n"),
                ("x/src/b.rs", import),
            ];
            assert_eq!(found(&files).len(), 2, "{import}");
        }
    }

    #[test]
    fn a_circle_of_three_is_found_with_the_lines_of_its_imports() {
        let files = [
            ("src/lib.rs", "mod a;\nmod b;\nmod c;\n"),
            ("src/a.rs", "use std::fmt;\nuse crate::b::B;\n"),
            ("src/b/mod.rs", "use super::c::C;\n"),
            ("src/c.rs", "\nuse crate::a;\n"),
        ];
        assert_eq!(found(&files), ["src/a.rs:2", "src/b/mod.rs:1", "src/c.rs:2"]);
    }

    #[test]
    fn a_parent_tests_comments_and_other_crates_are_fine() {
        for good in [
            "use super::b::B;",
            "//! use crate::c::C;",
            "#[cfg(test)]\nmod tests { use crate::c::C; }",
            "#[cfg(test)]\nuse crate::c::C;",
            "#[cfg(all(test, unix))]\npub(crate) use crate::c::{C, D};",
            "use other::c::C;",
        ] {
            let files = [
                ("x/src/lib.rs", "mod a;\nmod b;\nmod c;\nuse a::A;\npub struct Root;"),
                ("x/src/a.rs", good),
                ("x/src/b.rs", "use crate::Root;"),
                ("x/src/c.rs", "use crate::a::A;"),
                ("other/src/lib.rs", "mod c;"),
                ("other/src/c.rs", ""),
            ];
            assert_eq!(found(&files), [""; 0], "{good}");
        }
    }
}
