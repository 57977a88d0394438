//! Numbers as a reader of a page likes them.

/// A number with a comma after each three digits: `1,204,638`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let is_first_of_three = |place: usize| place > 0 && (digits.len() - place).is_multiple_of(3);
    let with_comma =
        |(place, digit)| is_first_of_three(place).then_some(',').into_iter().chain([digit]);
    digits.chars().enumerate().flat_map(with_comma).collect()
}

/// Milliseconds as seconds: `61.9 s`.
pub(crate) fn seconds(ms: i64) -> String {
    format!("{:.1} s", ms as f64 / 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_easy_to_read() {
        let written = [0, 999, 1_000, 53_256_717].map(grouped);
        assert_eq!(written, ["0", "999", "1,000", "53,256,717"]);
        assert_eq!([0, 49, 61_934].map(seconds), ["0.0 s", "0.0 s", "61.9 s"]);
    }
}
