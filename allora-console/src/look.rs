//! The looks of the states: a word, a colour and a shape, so that nothing depends on colour alone.

/// The look of one state or outcome, drawn by `templates/glyph.html` in a box of 16 by 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// The state in a word.
    pub(crate) word: &'static str,
    /// The class of the text: `ok`, `bad`, `warn`, `run` or `none`.
    pub(crate) family: &'static str,
    /// The class of the shape, and of bars in plots.
    pub(crate) fill: &'static str,
    /// The outline of the shape.
    pub(crate) shape: &'static str,
    /// The lines inside the shape.
    pub(crate) mark: &'static str,
}

const DISC: &str = "M8 1a7 7 0 1 0 0 14a7 7 0 1 0 0-14z";
const RING: &str = "M8 1.8a6.2 6.2 0 1 0 0 12.4a6.2 6.2 0 1 0 0-12.4z";
const SQUARE: &str = "M3 1h10a2 2 0 0 1 2 2v10a2 2 0 0 1-2 2H3a2 2 0 0 1-2-2V3a2 2 0 0 1 2-2z";
const OCTAGON: &str = "M5 1h6l4 4v6l-4 4H5l-4-4V5z";
const WARNING: &str = "M8 1l7 13H1z";
const PLAY: &str = "M3 1.5l11 6.5-11 6.5z";

const TICK: &str = "M4.5 8.2l2.4 2.4 4.6-5";
const CROSS: &str = "M5 5l6 6M11 5l-6 6";
const BAR: &str = "M4.5 8h7";
const EXCLAMATION: &str = "M8 6v4M8 11.2v1.4";
const QUESTION: &str = "M6 6.2a2 2 0 1 1 2.6 1.9c-.4.2-.6.5-.6 1M8 11v1.4";
const HANDS: &str = "M8 4.5V8l2.5 1.5";
const TWO_BARS: &str = "M6.2 5v6M9.8 5v6";
const SLASH: &str = "M4 12l8-8";
const ARROW: &str = "M4.5 8h6M8 5.2L10.8 8 8 10.8";

/// One row for each word: its family, fill, shape and mark.
const LOOKS: &[(&str, &str, &str, &str, &str)] = &[
    ("succeeded", "ok", "f-ok", DISC, TICK),
    ("failed", "bad", "f-bad", SQUARE, CROSS),
    ("failing", "bad", "f-bad", SQUARE, CROSS),
    ("dead", "bad", "f-bad", OCTAGON, BAR),
    ("lost", "bad", "f-lost", SQUARE, QUESTION),
    ("expired", "bad", "f-lost", SQUARE, QUESTION),
    ("unreadable", "bad", "f-lost", SQUARE, EXCLAMATION),
    ("problem", "bad", "f-bad", OCTAGON, EXCLAMATION),
    ("overdue", "warn", "f-warn", WARNING, EXCLAMATION),
    ("warning", "warn", "f-warn", WARNING, EXCLAMATION),
    ("gone", "warn", "f-warn", WARNING, EXCLAMATION),
    ("missed", "warn", "f-miss", RING, ""),
    ("running", "run", "f-run", PLAY, ""),
    ("retried", "run", "f-again", RING, ARROW),
    ("interrupted", "run", "f-again", RING, ARROW),
    ("live", "ok", "f-ok", DISC, TICK),
    ("waiting", "none", "f-none", RING, HANDS),
    ("due", "none", "f-none", RING, HANDS),
    ("key wait", "none", "f-none", RING, TWO_BARS),
    ("paused", "none", "f-none", RING, TWO_BARS),
    ("skipped", "none", "f-none", RING, SLASH),
    ("orphaned", "none", "f-none", RING, QUESTION),
    ("cancelled", "none", "f-none", RING, CROSS),
    ("released", "none", "f-none", RING, ARROW),
    ("stopping", "none", "f-none", RING, BAR),
    ("ended", "none", "f-none", RING, ""),
];

/// The look of a word; a word that is not known looks like one that means nothing bad.
pub(crate) fn look(word: &str) -> Look {
    let found = LOOKS.iter().find(|(own, ..)| *own == word);
    let (word, family, fill, shape, mark) =
        found.copied().unwrap_or(("other", "none", "f-none", RING, ""));
    Look { word, family, fill, shape, mark }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allora_core::Outcome;
    use std::collections::BTreeSet;

    #[test]
    fn every_outcome_has_a_look() {
        for word in [
            "running",
            "succeeded",
            "failed",
            "retried",
            "interrupted",
            "dead",
            "cancelled",
            "released",
            "skipped",
            "missed",
            "lost",
            "expired",
        ] {
            let outcome = Outcome::from_word(word, "").unwrap();
            assert_eq!(look(outcome.word()).word, word);
            let family = look(word).family;
            assert_eq!(outcome.is_failure(), matches!(family, "bad" | "warn"), "{word}: {family}");
        }
    }

    #[test]
    fn words_of_different_meaning_differ_without_their_colour() {
        let shapes = |words: &[&str]| -> usize {
            words
                .iter()
                .map(|word| (look(word).shape, look(word).mark))
                .collect::<BTreeSet<_>>()
                .len()
        };
        let words = [
            "succeeded",
            "failed",
            "dead",
            "lost",
            "overdue",
            "missed",
            "running",
            "retried",
            "paused",
        ];
        assert_eq!(shapes(&words), words.len());
    }
}
