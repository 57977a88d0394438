//! Tables and numbers as the pages show them.

/// A table; all columns but the first are numbers.
pub(super) fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut lines = vec![
        format!("| {} |", header.join(" | ")),
        format!("|---|{}", "--:|".repeat(header.len() - 1)),
    ];
    lines.extend(rows.into_iter().map(|row| format!("| {} |", row.join(" | "))));
    lines.join("\n")
}

/// A figure, or a dash if it was not measured.
pub(super) fn or_dash(value: Option<f64>, show: fn(f64) -> String) -> String {
    value.map_or_else(|| "–".into(), show)
}

/// Three digits, as `12.3 k`.
pub(super) fn rate(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{:.2} M", v / 1e6),
        v if v >= 1e5 => format!("{:.0} k", v / 1e3),
        v if v >= 1e4 => format!("{:.1} k", v / 1e3),
        v if v >= 1e3 => format!("{:.2} k", v / 1e3),
        v => format!("{v:.0}"),
    }
}

/// "1 node", "4 nodes".
pub(super) fn nodes(number: u64) -> String {
    format!("{number} {}", if number == 1 { "node" } else { "nodes" })
}

/// A whole number, as `12,345`.
pub(super) fn number(value: f64) -> String {
    let digits = format!("{value:.0}");
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).unwrap_or_default())
        .collect();
    groups.join(",")
}

/// Milliseconds or microseconds: one decimal below a hundred.
pub(super) fn milliseconds(value: f64) -> String {
    if value < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// A part of one, as `47 %`.
pub(super) fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

/// A small part of one, as `0.4 %`.
pub(super) fn few_percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// A ratio, as `1.25`.
pub(super) fn multiple(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.2}") } else { format!("{ratio:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_as_many_digits_as_they_are_good_for() {
        assert_eq!(
            [12.4, 1_234.0, 12_345.0, 123_456.0, 1.5e6].map(rate),
            ["12", "1.23 k", "12.3 k", "123 k", "1.50 M"]
        );
        assert_eq!([0.0, 999.0, 1_000.0, 1e8].map(number), ["0", "999", "1,000", "100,000,000"]);
        assert_eq!([0.24, 99.0, 123.4].map(milliseconds), ["0.2", "99.0", "123"]);
        assert_eq!(percent(0.474), "47 %");
        assert_eq!(or_dash(None, rate), "–");
    }

    #[test]
    fn a_table_has_a_cell_for_each_column() {
        let text = table(&["a", "b"], [vec!["1".to_owned(), "2".to_owned()]]);
        assert_eq!(text, "| a | b |\n|---|--:|\n| 1 | 2 |");
    }
}
