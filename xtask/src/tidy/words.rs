//! Nothing is left for later in the sources: no such marks, no tests that do not run.

use super::{Finding, tree::Tree};

/// In two halves, so that this file does not break its own rule.
const WORDS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("#[ig", "nore"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| !file.is_given()) {
        for (number, line) in file.lines() {
            for word in WORDS.iter().filter(|word| has_word(line, word)) {
                let what = format!("`{word}`: finish it, or say in a sentence what is missing");
                findings.push(Finding::new(&file.path, number, what));
            }
        }
    }
    findings
}

/// True if `word` stands in `line` on its own, not as a part of a longer word.
fn has_word(line: &str, word: &str) -> bool {
    let in_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(start, _)| {
        let end = start + word.len();
        !in_word(line[..start].chars().next_back()) && !in_word(line[end..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{NONE, lines},
        WORDS, check,
    };

    #[test]
    fn each_word_is_found_where_it_stands() {
        for word in WORDS {
            assert_eq!(lines(check, "a.rs", format!("//! A.\n\n    // {word} x\n")), [3], "{word}");
            assert_eq!(lines(check, "a.md", format!("({word})\n")), [1], "{word}");
        }
    }

    #[test]
    fn longer_words_and_given_files_are_left_alone() {
        let inside = format!("mktemp x{}{}\n", WORDS[2], WORDS[2]);
        assert_eq!(lines(check, "a.sh", inside), NONE);
        assert_eq!(lines(check, "Cargo.lock", format!("{}\n", WORDS[0])), NONE);
        assert_eq!(lines(check, "a.md", "a todo list\n"), NONE);
    }
}
