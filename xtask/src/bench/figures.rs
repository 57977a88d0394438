//! The figures that the measurement program prints, and their table.

use super::ratio::Ratio;
use crate::{Failure, Outcome};
use serde_json::Value;
use std::fmt::Write;

/// The version of the contract with the program, whose first page describes it.
const FORMAT: u64 = 1;

/// One measured value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figure {
    name: String,
    unit: String,
    /// Less is better, as of requests.
    is_cost: bool,
    value: f64,
}

/// The two measurements of one round on one store.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pair {
    pub(super) base: Vec<Figure>,
    pub(super) this: Vec<Figure>,
}

/// One row of the table: one figure in all rounds.
#[derive(Debug, PartialEq)]
pub(super) struct Row {
    name: String,
    unit: String,
    is_cost: bool,
    base: f64,
    this: f64,
    ratio: Option<Ratio>,
}

/// Reads the line of JSON.
///
/// # Errors
/// If the output is something else, or of another version of the contract.
pub(super) fn parse(line: &str) -> Outcome<Vec<Figure>> {
    let wrong = |why: &str| Failure::Check(format!("the measurement printed `{line}`: {why}"));
    let value: Value = serde_json::from_str(line).map_err(|cause| wrong(&cause.to_string()))?;
    if value["format"].as_u64() != Some(FORMAT) {
        return Err(wrong(&format!("its format is not {FORMAT}")));
    }
    let figures = value["figures"].as_array().filter(|figures| !figures.is_empty());
    let figures = figures.ok_or_else(|| wrong("it has no figures"))?;
    let figure = |figure: &Value| {
        let is_cost = match figure["better"].as_str()? {
            "more" => false,
            "less" => true,
            _ => return None,
        };
        let (name, unit) = (figure["name"].as_str()?, figure["unit"].as_str()?);
        let value = figure["value"].as_f64().filter(|value| *value > 0.0)?;
        Some(Figure { name: name.to_owned(), unit: unit.to_owned(), is_cost, value })
    };
    let figures: Option<Vec<Figure>> = figures.iter().map(figure).collect();
    figures.ok_or_else(|| wrong("a figure has no name, unit, direction or positive value"))
}

/// One row for each figure that both builds have in every round.
pub(super) fn rows(pairs: &[Pair]) -> Vec<Row> {
    let Some(first) = pairs.first() else { return Vec::new() };
    first.this.iter().filter_map(|figure| row(figure, pairs)).collect()
}

fn row(figure: &Figure, pairs: &[Pair]) -> Option<Row> {
    let value = |figures: &[Figure]| {
        let same = |other: &&Figure| other.name == figure.name && other.unit == figure.unit;
        figures.iter().find(same).map(|found| found.value)
    };
    let values: Option<Vec<(f64, f64)>> =
        pairs.iter().map(|pair| Some((value(&pair.base)?, value(&pair.this)?))).collect();
    let values = values?;
    Some(Row {
        name: figure.name.clone(),
        unit: figure.unit.clone(),
        is_cost: figure.is_cost,
        base: median(values.iter().map(|(base, _)| *base)),
        this: median(values.iter().map(|(_, this)| *this)),
        ratio: Ratio::of(&values),
    })
}

/// The figures that only one of the builds has, by name.
pub(super) fn not_compared(pairs: &[Pair]) -> Vec<String> {
    let Some(pair) = pairs.first() else { return Vec::new() };
    let names = |figures: &[Figure]| figures.iter().map(|f| f.name.clone()).collect::<Vec<_>>();
    let rows = rows(pairs);
    let mut single = names(&pair.base);
    single.extend(names(&pair.this));
    single.retain(|name| !rows.iter().any(|row| row.name == *name));
    single.sort();
    single.dedup();
    single
}

/// The middle value; of an even number, the mean of both.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    f64::midpoint(low, high)
}

impl Row {
    /// The result of the interval, if it excludes 1.
    fn verdict(&self) -> &'static str {
        let Some(ratio) = self.ratio else { return "" };
        match (ratio.low > 1.0, ratio.high < 1.0, self.is_cost) {
            (true, _, false) => "faster",
            (_, true, false) => "slower",
            (true, _, true) => "more",
            (_, true, true) => "fewer",
            _ => "",
        }
    }

    /// True if this build is worse than `limit` allows and the interval excludes 1.
    pub(super) fn is_regression(&self, limit: f64) -> bool {
        let goodness = |ratio: Ratio| if self.is_cost { ratio.inverse() } else { ratio };
        self.ratio.map(goodness).is_some_and(|ratio| ratio.mean < limit && ratio.high < 1.0)
    }

    /// The row in words, for an error.
    pub(super) fn summary(&self) -> String {
        let ratio = self.ratio.map_or_else(String::new, |ratio| format!("{:.3}", ratio.mean));
        format!("{} {ratio}", self.name)
    }
}

/// A table in Markdown.
pub(super) fn table(store: &str, base: &str, rounds: usize, rows: &[Row]) -> String {
    let mut text = format!("\n### {store}, {rounds} rounds\n\n");
    let _ = writeln!(text, "| measurement | {base} | this tree | ratio | 95 % interval | |");
    text.push_str("|---|---|---|---|---|---|\n");
    for row in rows {
        let (base, this) = (number(row.base), number(row.this));
        let ratio = row.ratio.map_or_else(
            || "– | –".to_owned(),
            |Ratio { mean, low, high }| format!("{mean:.3} | {low:.3} to {high:.3}"),
        );
        let (name, unit) = (&row.name, &row.unit);
        let _ =
            writeln!(text, "| {name}, {unit} | {base} | {this} | {ratio} | {} |", row.verdict());
    }
    text
}

/// Whole numbers from a hundred on, whose thousands are set apart; three digits below.
fn number(value: f64) -> String {
    match value {
        v if v < 10.0 => return format!("{v:.2}"),
        v if v < 100.0 => return format!("{v:.1}"),
        _ => {}
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// The figures of one build, for the file of raw figures.
pub(super) fn json(figures: &[Figure]) -> Value {
    figures.iter().map(|figure| (figure.name.clone(), Value::from(figure.value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"format":1,"store":"redis","figures":[
        {"name":"claims","unit":"/s","better":"more","value":5120.5},
        {"name":"requests","unit":"/min","better":"less","value":12}]}"#;

    fn figures(claims: f64, requests: f64) -> Vec<Figure> {
        let figure = |name: &str, unit: &str, is_cost, value| Figure {
            name: name.to_owned(),
            unit: unit.to_owned(),
            is_cost,
            value,
        };
        vec![figure("claims", "/s", false, claims), figure("requests", "/min", true, requests)]
    }

    fn compared(claims: f64, requests: f64) -> Vec<Row> {
        let pair = |speed| Pair {
            base: figures(1_000.0 * speed, 12.0),
            this: figures(claims * speed, requests),
        };
        rows(&[pair(1.0), pair(1.1), pair(0.9)])
    }

    #[test]
    fn the_line_is_read() {
        assert_eq!(parse(LINE), Ok(figures(5_120.5, 12.0)));
    }

    #[test]
    fn what_is_not_the_line_is_an_error() {
        for (from, to) in [
            ("\"format\":1", "\"format\":2"),
            ("\"more\"", "\"big\""),
            ("5120.5", "0"),
            ("5120.5", "\"many\""),
            ("\"name\":\"claims\"", "\"name\":1"),
            ("figures", "numbers"),
            ("{", "["),
        ] {
            assert!(matches!(parse(&LINE.replace(from, to)), Err(Failure::Check(_))), "{from}");
        }
        assert!(parse("").is_err());
    }

    #[test]
    fn a_faster_and_a_slower_build_are_marked() {
        let verdicts = |rows: &[Row]| rows.iter().map(Row::verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(&compared(1_100.0, 14.0)), ["faster", "more"]);
        assert_eq!(verdicts(&compared(900.0, 10.0)), ["slower", "fewer"]);
        assert_eq!(verdicts(&compared(1_000.0, 12.0)), ["", ""]);
    }

    #[test]
    fn only_a_significant_change_below_the_limit_is_a_regression() {
        let regressions =
            |rows: &[Row]| rows.iter().map(|r| r.is_regression(0.95)).collect::<Vec<_>>();
        assert_eq!(regressions(&compared(900.0, 14.0)), [true, true]);
        assert_eq!(regressions(&compared(970.0, 12.2)), [false, false], "within the limit");
        assert_eq!(regressions(&compared(1_200.0, 6.0)), [false, false], "better");
        let noisy = [(1_000.0, 200.0), (1_000.0, 1_500.0)];
        let noisy =
            noisy.map(|(base, this)| Pair { base: figures(base, 1.0), this: figures(this, 1.0) });
        assert!(!rows(&noisy)[0].is_regression(0.95), "the interval contains 1");
    }

    #[test]
    fn the_table_has_the_medians_and_the_ratio() {
        let text = table("redis", "main (1234567)", 3, &compared(900.0, 12.0));
        assert!(text.contains("### redis, 3 rounds"), "{text}");
        assert!(text.contains("| measurement | main (1234567) | this tree |"), "{text}");
        let row = "| claims, /s | 1 000 | 900 | 0.900 | 0.900 to 0.900 | slower |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("| requests, /min | 12.0 | 12.0 | 1.000 |"), "{text}");
    }

    #[test]
    fn a_figure_of_one_build_is_not_compared() {
        let mut pair = Pair { base: figures(1.0, 1.0), this: figures(1.0, 1.0) };
        pair.base.remove(1);
        let pairs = [pair.clone(), pair];
        assert_eq!(rows(&pairs).len(), 1);
        assert_eq!(not_compared(&pairs), ["requests"]);
    }

    #[test]
    fn numbers_are_short() {
        let short = [1.234, 12.34, 123.4, 12_345.6, 1_234_567.0].map(number);
        assert_eq!(short, ["1.23", "12.3", "123", "12 346", "1 234 567"]);
    }
}
