//! Tables for people: columns as wide as what is in them.

use crate::{failure::Outcome, output::on_one_line};
use std::io::{self, Write};

/// Prints rows under a header; the last column is not padded.
pub(crate) fn print<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> Outcome {
    let rows: Vec<[String; N]> =
        rows.iter().map(|row| row.each_ref().map(|cell| on_one_line(cell))).collect();
    let mut widths = header.map(width);
    for row in &rows {
        for (cell, widest) in row.iter().zip(&mut widths) {
            *widest = (*widest).max(width(cell));
        }
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    let header = header.map(str::to_owned);
    for row in std::iter::once(&header).chain(&rows) {
        for (column, (cell, widest)) in row.iter().zip(widths).enumerate() {
            let pad = widest - width(cell);
            match column + 1 == N {
                true => write!(out, "{cell}")?,
                false => write!(out, "{cell}{:pad$}  ", "")?,
            }
        }
        writeln!(out)?;
    }
    Ok(out.flush()?)
}

/// The width of a text in columns of a terminal: wide characters of East Asia and emoji take two,
/// combining marks none. Near enough for a table.
fn width(text: &str) -> usize {
    text.chars()
        .map(|char| match char as u32 {
            0x300..=0x36F | 0x200D | 0xFE00..=0xFE0F => 0,
            0x1100..=0x115F | 0x2E80..=0xA4CF | 0xAC00..=0xD7A3 | 0xF900..=0xFAFF => 2,
            0xFE30..=0xFE6F | 0xFF00..=0xFF60 | 0xFFE0..=0xFFE6 | 0x1F300..=0x1FAFF => 2,
            _ => 1,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::width;

    #[test]
    fn width_is_what_a_terminal_shows() {
        for (text, columns) in [("abc", 3), ("e\u{301}", 1), ("東京", 4), ("🧾", 2), ("", 0)] {
            assert_eq!(width(text), columns, "{text}");
        }
    }
}
