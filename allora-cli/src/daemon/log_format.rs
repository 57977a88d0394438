//! The forms of a log line: text, JSON, or text for systemd's journal.

use crate::{clock, output::on_one_line};
use chrono::SecondsFormat;
use clap::ValueEnum;
use serde_json::{Map, Value};
use std::fmt::{self, Write as _};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

/// The form of the log's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// The time, the level, the message, and fields as `name=value`.
    Text,
    /// One object a line, with time, level, message and each field.
    Json,
    /// As text, with the level as the journal reads it, and without the time, which the journal
    /// has.
    Journal,
}

/// The target of the library's lines about runs.
const RUNS_OF_THE_LIBRARY: &str = "allora::run";

/// Writes each event as one line.
#[derive(Debug)]
pub(super) struct Lines {
    pub(super) format: LogFormat,
    pub(super) has_colours: bool,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        // The daemon has lines of its own about runs.
        if event.metadata().target() == RUNS_OF_THE_LIBRARY {
            return Ok(());
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let level = *event.metadata().level();
        let now = || clock::now().to_rfc3339_opts(SecondsFormat::Millis, true);
        let line = match self.format {
            LogFormat::Text => {
                format!("{} {} {}", now(), shown(level, self.has_colours), fields.text())
            }
            LogFormat::Journal => format!("<{}>{}", priority(level), fields.text()),
            LogFormat::Json => fields.json(&now(), level),
        };
        writeln!(writer, "{line}")
    }
}

/// The level, as wide as the widest.
fn shown(level: Level, has_colours: bool) -> String {
    let colour = match level {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 32,
        _ => 34,
    };
    match has_colours {
        true => format!("\u{1b}[{colour}m{level:>5}\u{1b}[0m"),
        false => format!("{level:>5}"),
    }
}

/// The priority of `syslog(3)`.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// The fields of an event, in their order.
#[derive(Default)]
struct Fields {
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl Fields {
    /// The message and the fields on one line, with nothing in it that a terminal obeys.
    fn text(&self) -> String {
        let mut text = on_one_line(&self.message);
        for (name, value) in &self.fields {
            let value = match value {
                Value::String(value) if is_plain(value) => value.clone(),
                Value::String(value) => format!("{value:?}"),
                other => other.to_string(),
            };
            // A `String` does not fail.
            let _ = write!(text, " {name}={value}");
        }
        text
    }

    fn json(self, time: &str, level: Level) -> String {
        let mut object = Map::new();
        object.insert("time".into(), time.into());
        object.insert("level".into(), level.as_str().to_lowercase().into());
        object.insert("message".into(), self.message.into());
        object.extend(self.fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
        Value::Object(object).to_string()
    }

    fn push(&mut self, field: &Field, value: impl Into<Value>) {
        self.fields.push((field.name(), value.into()));
    }
}

/// True if a value needs no quotes: names, times and numbers.
fn is_plain(value: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@+#".contains(c);
    !value.is_empty() && value.chars().all(plain)
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.message = text,
            _ => self.push(field, text),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            _ => self.push(field, value),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.push(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.push(field, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> Fields {
        let mut fields = Fields { message: "a\u{1b}[31m\nb".into(), ..Fields::default() };
        fields.fields.push(("job", "jobs:backup@a".into()));
        fields.fields.push(("late_ms", 12.into()));
        fields.fields.push(("error", "exit status: 3; \"x\"\u{7}".into()));
        fields.fields.push(("empty", "".into()));
        fields
    }

    #[test]
    fn a_line_of_text_has_plain_values_and_no_control_characters() {
        assert_eq!(
            fields().text(),
            "a\\u{1b}[31m; b job=jobs:backup@a late_ms=12 \
             error=\"exit status: 3; \\\"x\\\"\\u{7}\" empty=\"\""
        );
    }

    #[test]
    fn a_line_of_json_has_numbers_as_numbers() {
        let line = fields().json("2026-01-01T00:00:00.000Z", Level::WARN);
        assert!(!line.contains(['\n', '\u{1b}', '\u{7}']), "{line}");
        let object: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&object["level"], &object["late_ms"]), (&"warn".into(), &12.into()));
        assert_eq!(
            (&object["message"], &object["job"]),
            (&"a\u{1b}[31m\nb".into(), &"jobs:backup@a".into())
        );
    }
}
