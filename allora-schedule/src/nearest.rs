//! The known word that is nearest to a mistyped one.

/// The number of insertions, deletions, replacements and swaps of neighbours that make one word
/// another, without regard to case: the optimal string alignment distance.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.to_ascii_lowercase(), b.to_ascii_lowercase());
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// The nearest of the known words, the first one of equals; `None` if more than a third of its
/// letters differ, so that it is hardly what was meant.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.into_iter().filter_map(|known| {
        let most = known.len().min(word.len()) / 3;
        // Cheap lower bounds of the distance spare most of the table's work.
        if known.len().abs_diff(word.len()) > most || foreign(word, known) > most {
            return None;
        }
        let distance = distance(word, known);
        (distance <= most).then_some((distance, known))
    });
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// The number of letters of `a` that `b` lacks.
fn foreign(a: &str, b: &str) -> usize {
    let letters = |text: &str| text.bytes().fold(0_u32, |set, byte| set | 1 << (byte & 31));
    (letters(a) & !letters(b)).count_ones() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_counts_the_slips_of_a_typist() {
        for (a, b, slips) in [
            ("", "", 0),
            ("monday", "MONDAY", 0),
            ("", "abc", 3),
            ("monady", "monday", 1),
            ("mondy", "monday", 1),
            ("mondday", "monday", 1),
            ("nonday", "monday", 1),
            ("kitten", "sitting", 3),
            ("ca", "abc", 3),
        ] {
            assert_eq!((distance(a, b), distance(b, a)), (slips, slips), "{a} {b}");
        }
    }

    #[test]
    fn the_nearest_word_is_near() {
        let known = ["monday", "month", "sunday"];
        assert_eq!(nearest("monady", known), Some("monday"));
        assert_eq!(nearest("mont", known), Some("month"));
        assert_eq!(nearest("mo", known), None);
        assert_eq!(nearest("yesterday", known), None);
        assert_eq!(nearest("", known), None);
    }
}
