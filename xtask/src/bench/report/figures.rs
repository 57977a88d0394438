//! The figures of all rounds, and the file of them.

use crate::{Failure, Outcome, bench::figures::median};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, fs, path::Path};

/// The named numbers of one measurement.
pub(super) type Numbers = BTreeMap<String, f64>;

/// All figures, by measurement and name, with one value for each round.
#[derive(Debug, Default)]
pub(super) struct Figures {
    values: BTreeMap<String, BTreeMap<String, Vec<f64>>>,
}

impl Figures {
    /// Adds what a measurement printed: an object of numbers.
    ///
    /// # Errors
    /// If it is something else.
    pub(super) fn add(&mut self, key: &str, printed: &str) -> Outcome {
        let wrong = || Failure::Check(format!("the measurement `{key}` printed `{printed}`"));
        let numbers: Numbers = serde_json::from_str::<Map<String, Value>>(printed)
            .map_err(|_| wrong())?
            .into_iter()
            .map(|(name, value)| Some((name, value.as_f64()?)))
            .collect::<Option<_>>()
            .filter(|numbers: &Numbers| !numbers.is_empty())
            .ok_or_else(wrong)?;
        self.add_numbers(key, numbers);
        Ok(())
    }

    pub(super) fn add_numbers(&mut self, key: &str, numbers: Numbers) {
        let values = self.values.entry(key.to_owned()).or_default();
        for (name, value) in numbers {
            values.entry(name).or_default().push(value);
        }
    }

    /// The median of a figure; `None` if it was not measured.
    pub(super) fn median(&self, key: &str, name: &str) -> Option<f64> {
        Some(median(self.values(key, name)?.iter().copied()))
    }

    /// The median of the ratios of two figures of the same rounds; `None` if there is no such ratio,
    /// because the other figure was too small to be measured.
    pub(super) fn ratio(&self, (key, other): (&str, &str), name: &str) -> Option<f64> {
        let pairs = self.values(key, name)?.iter().zip(self.values(other, name)?);
        let ratio = median(pairs.map(|(value, other)| value / other));
        ratio.is_finite().then_some(ratio)
    }

    fn values(&self, key: &str, name: &str) -> Option<&Vec<f64>> {
        self.values.get(key)?.get(name)
    }

    /// The median, the least and the most of each figure, and the number of its rounds.
    pub(super) fn json(&self) -> Value {
        let summary = |values: &Vec<f64>| {
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let [median, least, most] = [median(values.iter().copied()), least, most].map(rounded);
            json!({"median": median, "least": least, "most": most, "rounds": values.len()})
        };
        let measurement = |(key, figures): (&String, &BTreeMap<String, Vec<f64>>)| {
            let figures: Map<String, Value> =
                figures.iter().map(|(name, values)| (name.clone(), summary(values))).collect();
            (key.clone(), figures.into())
        };
        Value::Object(self.values.iter().map(measurement).collect())
    }
}

/// Four digits, which is more than any measurement here is good for.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// Writes a page, and says which if that fails.
pub(super) fn write(path: &Path, text: &str) -> Outcome {
    fs::write(path, text).map_err(|cause| Failure::Check(format!("{}: {cause}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(lines: &[(&str, &str)]) -> Figures {
        let mut figures = Figures::default();
        lines.iter().for_each(|(key, line)| figures.add(key, line).unwrap());
        figures
    }

    #[test]
    fn rounds_are_summed_up_by_their_median() {
        let figures = figures(&[
            ("ours", r#"{"per_s": 30.0}"#),
            ("peer", r#"{"per_s": 10.0}"#),
            ("ours", r#"{"per_s": 10.0}"#),
            ("peer", r#"{"per_s": 10.0}"#),
            ("ours", r#"{"per_s": 11.0}"#),
            ("peer", r#"{"per_s": 1.0}"#),
        ]);
        assert_eq!(figures.median("ours", "per_s"), Some(11.0));
        assert_eq!(figures.ratio(("ours", "peer"), "per_s"), Some(3.0));
        assert_eq!(figures.median("ours", "server_us"), None);
        let expected = json!({"median": 11.0, "least": 10.0, "most": 30.0, "rounds": 3});
        assert_eq!(figures.json()["ours"]["per_s"], expected);
    }

    #[test]
    fn there_is_no_ratio_to_what_was_too_small_to_be_measured() {
        let figures = figures(&[("ours", r#"{"cpu_us": 9.0}"#), ("bare", r#"{"cpu_us": 0.0}"#)]);
        assert_eq!(figures.ratio(("ours", "bare"), "cpu_us"), None);
    }

    #[test]
    fn anything_but_numbers_is_refused() {
        for line in ["", "12", "{}", r#"{"per_s": "many"}"#, r#"{"per_s": null}"#] {
            let refused = Figures::default().add("ours", line);
            assert!(matches!(refused, Err(Failure::Check(_))), "{line}");
        }
    }
}
