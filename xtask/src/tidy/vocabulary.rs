//! No retired name or phrase: the words are those of ARCHITECTURE.md.

use super::{
    Finding,
    parts::{Kind, Part, is_in_word, parts},
    retired::{FINE, IDENTIFIERS, Names, PHRASES, STORED},
    tree::{File, Tree},
};
use std::collections::HashSet;

/// The rule itself has to name them.
const OWN: &[&str] = &["xtask/src/tidy/retired.rs", "xtask/src/tidy/vocabulary.rs"];

const EXTENSIONS: &[&str] = &["rs", "md", "lua", "sql", "sh", "toml", "yml"];

/// Fences of Markdown around other languages than Rust.
const LANGUAGES: &[&str] =
    &["toml", "console", "text", "sh", "json", "sql", "crontab", "yaml", "yml", "lua", "ini"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let files = tree.files.iter().filter(|file| {
        EXTENSIONS.iter().any(|extension| file.is(extension)) && !OWN.contains(&&*file.path)
    });
    files.flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    let parts = parts(file);
    let mut findings = identifiers(file, &parts);
    findings.extend(stored(file, &parts));
    findings.extend(phrases(file, &parts));
    // One line may break two lists by one word.
    findings.sort();
    findings.dedup();
    findings
}

fn retired(file: &File, line: usize, word: &str, instead: &str) -> Finding {
    let what = match instead.split(' ').next() {
        Some("an") => format!("`{word}` is retired: it is {instead}"),
        _ => format!("`{word}` is retired: use `{instead}`"),
    };
    Finding::new(&file.path, line, what)
}

/// The lists that apply to a file.
fn applying<'a>(
    lists: &'static [Names],
    file: &'a File,
) -> impl Iterator<Item = &'static (&'static str, &'static str)> + use<'a> {
    let applies = move |names: &&Names| {
        names.within.is_empty() || names.within.iter().any(|prefix| file.path.starts_with(prefix))
    };
    lists.iter().filter(applies).flat_map(|names| names.names)
}

fn identifiers(file: &File, parts: &[Part<'_>]) -> Vec<Finding> {
    let tokens = code_tokens(parts);
    let known: HashSet<&str> = tokens.iter().map(|(_, token)| *token).collect();
    let mut findings = Vec::new();
    for (word, instead) in applying(IDENTIFIERS, file) {
        let last = word.rsplit("::").next().unwrap_or_default();
        if !word.ends_with('*') && !known.contains(last) {
            continue;
        }
        for line in lines_of(file, &tokens, word) {
            findings.push(retired(file, line, word, instead));
        }
    }
    findings
}

/// An identifier, `::`, or another character.
type Token<'a> = (usize, &'a str);

/// The tokens of the code, also of that in comments: between backquotes, and in examples.
fn code_tokens<'a>(parts: &[Part<'a>]) -> Vec<Token<'a>> {
    let mut tokens = Vec::new();
    let mut fence: Option<bool> = None;
    for part in parts {
        match part.kind {
            Kind::Code => tokenize(part.line, part.text, &mut tokens),
            Kind::Prose => {
                let text = part.text.trim_start_matches(['/', '!', ' ']);
                if let Some(language) = text.strip_prefix("```") {
                    let other = LANGUAGES.iter().any(|name| language.starts_with(name));
                    fence = if fence.is_some() { None } else { Some(!other) };
                } else if fence == Some(true) {
                    tokenize(part.line, text, &mut tokens);
                } else if fence.is_none() {
                    for code in part.text.split('`').skip(1).step_by(2) {
                        tokenize(part.line, code, &mut tokens);
                        // So that no path leads from one to the next.
                        tokens.push((part.line, "`"));
                    }
                }
            }
            Kind::Text => tokens.push((part.line, "\"")),
        }
    }
    tokens
}

fn tokenize<'a>(line: usize, text: &'a str, tokens: &mut Vec<Token<'a>>) {
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if is_in_word(first) {
            rest.find(|c| !is_in_word(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        tokens.push((line, &rest[..length]));
        rest = rest[length..].trim_start();
    }
}

/// The lines with this retired identifier.
fn lines_of(file: &File, tokens: &[Token<'_>], word: &str) -> Vec<usize> {
    if let Some((module, name)) = word.split_once("::") {
        return qualified(file, tokens, module, name);
    }
    let is_it = |token: &str| match word.strip_suffix('*') {
        Some(beginning) => token.starts_with(beginning),
        None => token == word,
    };
    tokens.iter().filter(|(_, token)| is_it(token)).map(|(line, _)| *line).collect()
}

/// The lines where `name` is that of `module`: after its path, in its `use` group, or where a file
/// of the module defines it.
fn qualified(file: &File, tokens: &[Token<'_>], module: &str, name: &str) -> Vec<usize> {
    let mut lines = Vec::new();
    let at = |i: usize| tokens.get(i).map_or("", |(_, token)| *token);
    let is_own =
        file.path.contains(&format!("/{module}/")) || file.path.ends_with(&format!("/{module}.rs"));
    for (i, (line, token)) in tokens.iter().enumerate() {
        let defines = matches!(*token, "struct" | "enum" | "trait" | "type");
        if is_own && defines && at(i + 1) == name {
            lines.push(*line);
        }
        if *token != module || at(i + 1) != "::" {
            continue;
        }
        if at(i + 2) == name {
            lines.push(*line);
        } else if at(i + 2) == "{" {
            lines.extend(in_group(&tokens[i + 2..], name));
        }
    }
    lines
}

/// The line of `name` directly inside the braces at the beginning.
fn in_group(tokens: &[Token<'_>], name: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for pair in tokens.windows(2) {
        match pair[0].1 {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        match depth {
            0 => return None,
            1 if matches!(pair[0].1, "{" | ",") && pair[1].1 == name => return Some(pair[1].0),
            _ => {}
        }
    }
    None
}

fn stored(file: &File, parts: &[Part<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if file.is("toml") {
        return findings;
    }
    for (word, instead) in applying(STORED, file) {
        for part in parts.iter().filter(|part| part.kind != Kind::Code) {
            if has_word(part.text, word) {
                findings.push(retired(file, part.line, word, instead));
            }
        }
    }
    findings
}

/// True if `word` is in `text`, not as a part of a longer word.
fn has_word(text: &str, word: &str) -> bool {
    let joins = |c: Option<char>| c.is_some_and(|c| is_in_word(c) || c == '-');
    text.match_indices(word).any(|(start, _)| {
        let (before, after) = (&text[..start], &text[start + word.len()..]);
        let open = word.starts_with([':', '-']) || !joins(before.chars().next_back());
        let closed = word.ends_with('/') || !joins(after.chars().next());
        open && closed
    })
}

fn phrases(file: &File, parts: &[Part<'_>]) -> Vec<Finding> {
    let words = prose_words(parts);
    let mut findings = Vec::new();
    let stands = |at: usize, phrase: &str| {
        let rest = words.get(at..).unwrap_or_default();
        let mut wanted = phrase.split(' ').zip(rest).enumerate();
        rest.len() > phrase.matches(' ').count()
            && wanted.all(|(i, (wanted, word))| word.text == wanted && (i == 0 || word.continues))
    };
    for (phrase, instead) in PHRASES {
        let last = phrase.matches(' ').count();
        for (i, word) in words.iter().enumerate() {
            if stands(i, phrase) && !FINE.iter().any(|fine| stands(i + last, fine)) {
                let what = format!("\"{phrase}\" is retired: write \"{instead}\"");
                findings.push(Finding::new(&file.path, word.line, what));
            }
        }
    }
    findings
}

/// A word of prose, in lower case.
struct Word {
    line: usize,
    text: String,
    /// Only blanks, or the end of a line, are between the word before and this one.
    continues: bool,
}

fn prose_words(parts: &[Part<'_>]) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut before = None;
    for part in parts {
        if part.kind == Kind::Code {
            // Blanks before a comment do not end the sentence of the comment above.
            before = before.filter(|_| part.text.trim().is_empty());
            continue;
        }
        let begins_line = before.is_none_or(|(kind, line)| kind != part.kind || line != part.line);
        let mut continues =
            before.is_some_and(|(kind, line)| kind == part.kind && line + 1 == part.line);
        let text = if begins_line {
            part.text.trim_start_matches(['/', '!', '*', '-', '>', '#', ' '])
        } else {
            part.text
        };
        if text.is_empty() {
            before = None;
            continue;
        }
        let mut rest = text;
        while let Some(start) = rest.find(is_in_word) {
            continues &= rest[..start].chars().all(|c| c == ' ' || c == '*' || c == '\\');
            let end = rest[start..].find(|c| !is_in_word(c)).map_or(rest.len(), |end| start + end);
            words.push(Word { line: part.line, text: rest[start..end].to_lowercase(), continues });
            rest = &rest[end..];
            continues = true;
        }
        let ends_open = rest.chars().all(|c| c == ' ' || c == '*' || c == '\\');
        before = ends_open.then_some((part.kind, part.line));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{NONE, lines},
        *,
    };

    fn at(path: &str, text: &str) -> Vec<usize> {
        let mut lines = lines(check, path, text);
        lines.sort_unstable();
        lines
    }

    #[test]
    fn a_retired_identifier_is_found_in_code_and_between_backquotes() {
        for bad in [
            "use a::Taken;",
            "fn settle_at_once() {}",
            "self.settled += 1;",
            "let a: Box<Ledger> = b;",
            "/// Returns [`Undecodable`].",
            "// see `notice_at`",
            "/// ```\n/// builder.safety_poll(a);\n/// ```",
        ] {
            assert_eq!(at("a.rs", &format!("//! A.\n{bad}\n")).len(), 1, "{bad}");
        }
        assert_eq!(at("a.md", "# A\n\nCall `caveat()`.\n"), [3]);
        assert_eq!(at("a.md", "```rust\nlet a = Powers;\n```\n"), [2]);
    }

    #[test]
    fn english_words_and_longer_identifiers_are_fine() {
        for good in [
            "/// Taken together, they settle it. One caveat: none.",
            "let a = \"Taken\";",
            "let takenly = unsettled_not;",
            "let is_settled_not_a_prefix = 'T';",
            "use std::iter::once;",
        ] {
            assert_eq!(at("a.rs", &format!("//! A.\n{good}\n")), NONE, "{good}");
        }
        assert_eq!(at("a.md", "```toml\nTaken = 1\n```\nTaken.\n"), NONE);
        assert_eq!(at("a.json", "{ \"Taken\": 1 }\n"), NONE);
    }

    #[test]
    fn a_name_is_retired_only_in_its_module() {
        for bad in [
            "use crate::backend::Next;",
            "use crate::{\n    backend::{Batch, Next},\n    time,\n};",
            "fn a() -> record::At {}",
            "use allora_core::{Error, Kind, Time};",
            "/// See [`backend::State`].",
            "Event::Passed => 1,",
        ] {
            assert_eq!(at("allora-core/src/a.rs", &format!("//! A.\n{bad}\n")).len(), 1, "{bad}");
        }
        for good in [
            "use crate::middleware::Next;",
            "use crate::{\n    backend::{state::Other, Batch},\n    middleware::Next,\n};",
            "use crate::schedule::At;",
            "use crate::crontab::Entry;",
            "use clap::{Kind, Parser};",
            "enum State { Passed }",
        ] {
            assert_eq!(at("allora-core/src/a.rs", &format!("//! A.\n{good}\n")), NONE, "{good}");
        }
        let defined = "//! A.\npub struct Next;\n";
        assert_eq!(at("allora-core/src/backend/state.rs", defined), [2]);
        assert_eq!(at("allora-core/src/backend.rs", defined), [2]);
        assert_eq!(at("allora-core/src/middleware.rs", defined), NONE);
    }

    #[test]
    fn a_name_is_retired_only_in_its_folder() {
        let text = "//! A.\nfn a(token: Known) {}\n";
        assert_eq!(at("allora-redis/src/a.rs", text), [2, 2]);
        assert_eq!(at("allora-etcd/src/a.rs", text), NONE);
    }

    #[test]
    fn retired_settings_and_columns_are_found_in_strings_and_pages() {
        assert_eq!(at("a.md", "allora run --slots 4\n"), [1]);
        assert_eq!(at("a.rs", "//! A.\nlet a = \"--spread\";\n"), [2]);
        assert_eq!(at("allora-sql/src/a.rs", "//! A.\nlet a = \"hold_at, edition\";\n"), [2, 2]);
        assert_eq!(at("allora-redis/src/a.lua", "-- A.\nkey .. ':gone'\n"), [2]);
        assert_eq!(at("a.rs", "//! A.\nlet a = \"--slots-of, edition\";\n"), NONE);
        assert_eq!(at("allora-sql/src/a.rs", "//! A.\nlet a = \"household_at\";\n"), NONE);
        assert_eq!(at("allora-sql/Cargo.toml", "edition = \"2024\"\n"), NONE);
    }

    #[test]
    fn a_retired_phrase_is_found_also_over_the_end_of_a_line() {
        for (bad, line) in [
            ("/// What is given back.", 2),
            ("/// it is given\n/// back", 2),
            ("    // It is\n    // told.", 2),
            ("/// It was *passed over*.", 2),
            ("let a = \"The truth is out\";", 2),
            ("let a = \"it goes on \\\n    where it was\";", 2),
        ] {
            assert_eq!(at("a.rs", &format!("//! A.\n{bad}\n")), [line], "{bad}");
        }
        assert_eq!(at("a.md", "# A\n\n- He is\n  told.\n"), [3]);
        assert_eq!(at("a.lua", "-- given back\n"), [1]);
    }

    #[test]
    fn other_sentences_may_have_the_same_words() {
        for good in [
            "/// As given. Back again.",
            "/// It is given\n///\n/// back",
            "// It is given\nlet back = 1;",
            "/// They can be told apart.",
            "/// They can be told\n/// apart.",
            "fn the(truth: bool) {}",
            "let a = \"given\"; // back",
        ] {
            assert_eq!(at("a.rs", &format!("//! A.\n{good}\n")), NONE, "{good}");
        }
    }

    #[test]
    fn every_entry_is_found_where_it_applies() {
        for (lists, in_text) in [(IDENTIFIERS, false), (STORED, true)] {
            for names in lists {
                let folder = names.within.first().copied().unwrap_or_default();
                let path = match folder.strip_suffix(".rs") {
                    Some(_) => folder.to_owned(),
                    None => format!("{folder}a.rs"),
                };
                for (word, _) in names.names {
                    let word = word.trim_end_matches('*');
                    let line = if in_text { format!("\"{word}\"") } else { format!("({word});") };
                    assert!(at(&path, &format!("//! A.\n{line}\n")).contains(&2), "{path}: {word}");
                }
            }
        }
    }
}
