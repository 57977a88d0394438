//! The serde representation of stored schedules: the entries of a file of schedules.
//!
//! A schedule is an object. `name`, `kind` and `schedule` are required. The settings are those of
//! [`Definition`](super::Definition), with the same texts, and with `_` in their names where those have
//! `-`; both are read. The defaults are those of [`StoredSchedule::new`].

use super::StoredSchedule;
use crate::{
    job::{Delivery, Retry, Settings, SettingsReader},
    json,
    schedule::parse_instant,
};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, Visitor},
    ser::{self, SerializeMap},
};
use serde_json::Value;
use std::fmt;

/// The fields that are not settings, in the order in which they are written.
const PARTS: [&str; 7] = ["name", "kind", "schedule", "zone", "at_most_once", "first_run", "data"];

/// As an object:
///
/// ```
/// use allora::StoredSchedule;
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let read: StoredSchedule = serde_json::from_str(
///     r#"{
///         "name": "acme/digest",
///         "kind": "digest",
///         "schedule": "0 9 * * MON",
///         "zone": "Europe/Paris",
///         "delay": "30s",
///         "retry": "3 10s 1h",
///         "data": { "to": ["ann@acme.example"] }
///     }"#,
/// )?;
/// let delay = Duration::from_secs(30);
/// let made = StoredSchedule::new("acme/digest", "digest", "0 9 * * MON")
///     .in_zone("Europe/Paris")
///     .delay(delay)
///     .retry(allora::Retry::up_to(3, Duration::from_secs(10)))
///     .data_bytes(r#"{"to":["ann@acme.example"]}"#);
/// assert_eq!(read, made);
///
/// let error = serde_json::from_str::<StoredSchedule>(r#"{"name": "a", "dealy": "30s"}"#).unwrap_err();
/// assert!(error.to_string().starts_with("unknown field `dealy`"), "{error}");
/// # Ok(())
/// # }
/// ```
///
/// One setting differs from those of a job in code: `"at_most_once": true`, because the default is
/// at least once. Data that is not JSON is `{"$text": "…"}`, or `{"$hex": "…"}` if it is not text. The
/// generation is not part of the object.
impl Serialize for StoredSchedule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // How a change is made is no part of the schedule.
        let Self { name, kind, text, zone, settings, first_run, data, gap: _, generation: _ } =
            self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", name)?;
        map.serialize_entry("kind", kind)?;
        map.serialize_entry("schedule", text)?;
        if let Some(zone) = zone {
            map.serialize_entry("zone", zone)?;
        }
        match (settings.delivery, settings.retry) {
            (Delivery::AtMostOnce, _) => map.serialize_entry("at_most_once", &true)?,
            // The text of a definition omits this default.
            (_, Retry::NEVER) => map.serialize_entry("retry", "1 1s 1h")?,
            _ => {}
        }
        for (setting, value) in settings.words() {
            match &*setting.replace('-', "_") {
                "max_runs" => map.serialize_entry("max_runs", &settings.max_runs)?,
                "tags" => map.serialize_entry("tags", &settings.tags)?,
                setting => map.serialize_entry(setting, &value)?,
            }
        }
        if let Some(at) = first_run {
            map.serialize_entry("first_run", at)?;
        }
        let data = data.as_ref().map_err(ser::Error::custom)?;
        if !data.is_empty() {
            map.serialize_entry("data", &json::data::value(data))?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for StoredSchedule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = StoredSchedule;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a stored schedule: an object with name, kind and schedule")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<StoredSchedule, A::Error> {
        let (mut name, mut kind, mut schedule) = (None, None, None);
        let mut stored = StoredSchedule::new("", "", "");
        let mut read = SettingsReader::with(stored.settings.clone());
        let mut data = None;
        while let Some(key) = map.next_key::<String>()? {
            match &*key.replace('_', "-") {
                "name" => once(&mut name, "name", map.next_value::<String>()?)?,
                "kind" => once(&mut kind, "kind", map.next_value::<String>()?)?,
                "schedule" => once(&mut schedule, "schedule", map.next_value::<String>()?)?,
                "first-run" => {
                    let at =
                        parse_instant(&map.next_value::<String>()?).map_err(de::Error::custom)?;
                    once(&mut stored.first_run, "first_run", at)?;
                }
                "data" => once(&mut data, "data", map.next_value::<Data>()?)?,
                "at-most-once" => {
                    if map.next_value::<bool>()? {
                        read.word("at-most-once", "").map_err(de::Error::custom)?;
                    }
                }
                // As the text of a definition has them, or as a list.
                "tags" => {
                    let tags = match map.next_value::<Value>()? {
                        Value::Array(tags) => {
                            let tags: Option<Vec<&str>> = tags.iter().map(Value::as_str).collect();
                            tags.map(|tags| tags.join(","))
                        }
                        Value::String(tags) => Some(tags),
                        _ => None,
                    };
                    let wrong = "`tags` are not words; write a list, as [\"nightly\", \"billing\"]";
                    let tags = tags.ok_or_else(|| de::Error::custom(wrong))?;
                    if !tags.is_empty() {
                        read.word("tags", &tags).map_err(de::Error::custom)?;
                    }
                }
                setting if setting == "zone" || Settings::names().any(|name| name == setting) => {
                    let value: Text = map.next_value()?;
                    read.word(setting, &value.0).map_err(de::Error::custom)?;
                }
                _ => {
                    let settings = Settings::names().map(|name| name.replace('-', "_"));
                    let known: Vec<_> =
                        PARTS.map(str::to_owned).into_iter().chain(settings).collect();
                    let known = known.join(", ");
                    let unknown = format!("unknown field `{key}`, expected one of {known}");
                    return Err(de::Error::custom(unknown));
                }
            }
        }
        let part = |part: Option<String>, name| part.ok_or_else(|| de::Error::missing_field(name));
        (stored.name, stored.kind) = (part(name, "name")?, part(kind, "kind")?);
        stored.text = part(schedule, "schedule")?;
        (stored.zone, stored.settings) = read.done();
        stored.data = Ok(data.map_or_else(Vec::new, |Data(bytes)| bytes));
        // Rejects a schedule that could not be added while the reader still has its position in the
        // file.
        let wrong = |error| de::Error::custom(format!("{:?}: {error}", stored.name));
        stored.definition().map_err(wrong)?;
        stored.bytes().map_err(wrong)?;
        Ok(stored)
    }
}

fn once<T, E: de::Error>(place: &mut Option<T>, name: &'static str, value: T) -> Result<(), E> {
    match place.replace(value) {
        Some(_) => Err(de::Error::duplicate_field(name)),
        None => Ok(()),
    }
}

#[derive(Deserialize)]
struct Data(#[serde(with = "json::data")] Vec<u8>);

/// The value of a setting: a text, or a number.
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self(text)),
            Value::Number(number) if number.is_u64() => Ok(Self(number.to_string())),
            other => {
                let wrong = format!("{other} is not a setting; write a text, such as \"90s\"");
                Err(de::Error::custom(wrong))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{AlertRule, Breaker, CatchUp};
    use std::time::Duration;

    /// Checks the error for an object; empty: no error.
    #[track_caller]
    fn check(object: &str, says: &str) {
        let said =
            serde_json::from_str::<StoredSchedule>(object).err().map(|error| error.to_string());
        let said = said.unwrap_or_default();
        assert!(said.contains(says) && said.is_empty() == says.is_empty(), "{object}: {said:?}");
    }

    fn check_with(more: &str, says: &str) {
        check(&format!(r#"{{"name":"a","kind":"t","schedule":"@daily",{more}}}"#), says);
    }

    #[test]
    fn errors_name_their_place() {
        check_with(r#""delay": "90s""#, "");
        check_with(r#""max-runs": 3"#, "");
        check_with(r#""max-runs": "3""#, "");
        check_with(r#""delay": "30""#, "in `delay 30`: period, column 7");
        check_with(r#""delay": 1.5"#, "1.5 is not a setting");
        check_with(r#""delay": "1m", "delay": "2m""#, "is given twice");
        check_with(r#""name": "b""#, "duplicate field `name`");
        check_with(r#""data": 1, "data": "x""#, "duplicate field `data`");
        check_with(r#""data": {"$hex": "0"}"#, "two hexadecimal digits");
        check_with(r#""data-text": "x""#, "unknown field `data-text`");
        check_with(r#""max_runs": 3, "first_run": "2026-01-01T00:00:00Z""#, "");
        check_with(r#""zone": "Mars/X""#, "Mars/X");
        check_with(r#""first-run": "tomorrow""#, "RFC 3339");
        check_with(r#""at-most-once": true, "at-least-once": "5s""#, "is given twice");
        check_with(r#""at-most-once": true, "retry": "5 1s 1h""#, "an at-most-once job");
        check_with(r#""at-most-once": false"#, "");
        check_with(r#""start": "x; delay 1s""#, "in `start x; delay 1s`: instant");
        check(r#"{"name":"a","kind":"t"}"#, "missing field `schedule`");
        check(r#"{"name":"a","kind":"t","schedule":"* * * *"}"#, "\"a\": ");
        check(r#"{"name":"a","kind":"t","schedule":"@daily; delay 1s"}"#, "column");
        check("[]", "an object with name, kind and schedule");
    }

    #[test]
    fn what_is_written_is_read_again() {
        let second = Duration::from_secs(1);
        let at = parse_instant("2026-01-01T00:00:00.123Z").unwrap();
        let new = || StoredSchedule::new("a", "t", "0 9 * * MON");
        for stored in [
            new(),
            new().at_most_once(),
            new().at_most_once().overlap(crate::Overlap::Skip),
            new().retry(Retry::NEVER),
            new().retry(Retry::up_to(7, second).at_most_every(3 * second)).at_least_once(second),
            new()
                .in_zone("Europe/Paris")
                .delay(second)
                .jitter(second)
                .timeout(second)
                .window(second),
            new().starting(at).ending(at).max_runs(u64::MAX).first_run(at),
            new().run_when_created().run_if_past(),
            new().catch_up(CatchUp::None).mutex("tapes"),
            new().concurrency_key("tapes", 3).max_key_wait(second),
            new().breaker(Breaker::after(5).probe_after(second)).alert(AlertRule::after(3)),
            new().history(50, Duration::from_secs(86_400)),
            new().owner("sales").tag("eu").tag("gold"),
            new().catch_up(CatchUp::All { limit: 3 }),
            new().data(&serde_json::json!({ "b": [1, 2.5, null, "x"], "a": u64::MAX })),
            new().data_bytes("{ \"b\": 1, \"b\": 2 }"),
            new().data_bytes("null"),
            new().data_bytes("plain; text\n"),
            new().data_bytes([0xff, 0x00, 0x7f]),
        ] {
            let text = serde_json::to_string(&stored).unwrap();
            let read: StoredSchedule =
                serde_json::from_str(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(read, stored, "{text}");
        }
    }
}
