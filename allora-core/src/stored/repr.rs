//! The serde representation of stored schedules: the entries of a file of schedules.
//!
//! A schedule is an object. `name`, `kind` and `schedule` are required. The settings are those of
//! [`Definition`], with the same names and texts. The defaults are those of
//! [`StoredSchedule::new`].

use super::StoredSchedule;
use crate::{
    job::{Delivery, Retry, Settings, SettingsReader},
    schedule::parse_instant,
    time::Time,
};
use chrono::SecondsFormat;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, Visitor},
    ser::{self, SerializeMap},
};
use serde_json::Value;
use std::fmt;

/// The fields that are not settings, in the order in which they are written.
const PARTS: [&str; 7] = ["name", "kind", "schedule", "first-run", "data", "data-text", "data-hex"];

/// The field in place of `at-least-once`, which is the default.
const AT_MOST_ONCE: &str = "at-most-once";

/// As an object:
///
/// ```
/// use allora_core::StoredSchedule;
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
///     .zone("Europe/Paris")
///     .delay(delay)
///     .retry(allora_core::Retry::up_to(3, Duration::from_secs(10)))
///     .data_bytes(r#"{"to":["ann@acme.example"]}"#);
/// assert_eq!(read, made);
///
/// let error = serde_json::from_str::<StoredSchedule>(r#"{"name": "a", "dealy": "30s"}"#).unwrap_err();
/// assert!(error.to_string().starts_with("unknown field `dealy`"), "{error}");
/// # Ok(())
/// # }
/// ```
///
/// One setting differs from those of a job in code: `"at-most-once": true`, because the default is
/// at least once. Data that is not JSON is `data-text`, or `data-hex` if it is not text. The
/// generation is not part of the object.
impl Serialize for StoredSchedule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("kind", &self.kind)?;
        map.serialize_entry("schedule", &self.text)?;
        if let Some(zone) = &self.zone {
            map.serialize_entry("zone", zone)?;
        }
        match (self.settings.delivery, self.settings.retry) {
            (Delivery::AtMostOnce, _) => map.serialize_entry(AT_MOST_ONCE, &true)?,
            // The text of a definition omits this default.
            (_, Retry::NEVER) => map.serialize_entry("retry", "1 1s 1h")?,
            _ => {}
        }
        for (name, value) in self.settings.words() {
            match name {
                "max-runs" => map.serialize_entry(name, &self.settings.max_runs)?,
                _ => map.serialize_entry(name, &value)?,
            }
        }
        if let Some(at) = self.first_run {
            map.serialize_entry("first-run", &written(at))?;
        }
        let data = self.data.as_ref().map_err(ser::Error::custom)?;
        match DataRepr::of(data) {
            DataRepr::None => {}
            DataRepr::Json(value) => map.serialize_entry("data", &value)?,
            DataRepr::Text(text) => map.serialize_entry("data-text", &text)?,
            DataRepr::Hex(hex) => map.serialize_entry("data-hex", &hex)?,
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
            match key.as_str() {
                "name" => once(&mut name, "name", map.next_value::<String>()?)?,
                "kind" => once(&mut kind, "kind", map.next_value::<String>()?)?,
                "schedule" => once(&mut schedule, "schedule", map.next_value::<String>()?)?,
                "first-run" => {
                    let at = instant(&map.next_value::<String>()?).map_err(de::Error::custom)?;
                    once(&mut stored.first_run, "first-run", at)?;
                }
                "data" => once(&mut data, "data", DataRepr::Json(map.next_value()?))?,
                "data-text" => once(&mut data, "data", DataRepr::Text(map.next_value()?))?,
                "data-hex" => once(&mut data, "data", DataRepr::Hex(map.next_value()?))?,
                AT_MOST_ONCE => {
                    if map.next_value::<bool>()? {
                        read.word(AT_MOST_ONCE, "").map_err(de::Error::custom)?;
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
                other => {
                    let settings: Vec<&str> = Settings::names().collect();
                    let known =
                        [&PARTS[..], &[AT_MOST_ONCE, "zone"], &settings].concat().join(", ");
                    let unknown = format!("unknown field `{other}`, expected one of {known}");
                    return Err(de::Error::custom(unknown));
                }
            }
        }
        let part = |part: Option<String>, name| part.ok_or_else(|| de::Error::missing_field(name));
        (stored.name, stored.kind) = (part(name, "name")?, part(kind, "kind")?);
        stored.text = part(schedule, "schedule")?;
        (stored.zone, stored.settings) = read.done();
        stored.data = Ok(data.unwrap_or(DataRepr::None).bytes().map_err(de::Error::custom)?);
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

/// The data in the most readable form that gives the same bytes again.
pub(crate) enum DataRepr {
    None,
    Json(Value),
    Text(String),
    Hex(String),
}

impl DataRepr {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            return Self::None;
        }
        let same = |value: &Value| serde_json::to_vec(value).is_ok_and(|again| again == bytes);
        match serde_json::from_slice::<Value>(bytes) {
            Ok(value) if same(&value) => Self::Json(value),
            _ => match str::from_utf8(bytes) {
                Ok(text) => Self::Text(text.to_owned()),
                Err(_) => Self::Hex(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
            },
        }
    }

    pub(super) fn bytes(self) -> Result<Vec<u8>, String> {
        match self {
            Self::None => Ok(Vec::new()),
            Self::Json(value) => serde_json::to_vec(&value).map_err(|why| why.to_string()),
            Self::Text(text) => Ok(text.into_bytes()),
            Self::Hex(hex) => {
                let wrong = || "data-hex has two hexadecimal digits for each byte".to_owned();
                if !hex.len().is_multiple_of(2) || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return Err(wrong());
                }
                let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).map_err(|_| wrong());
                (0..hex.len()).step_by(2).map(byte).collect()
            }
        }
    }
}

pub(crate) fn written(at: Time) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

pub(super) fn instant(text: &str) -> Result<Time, String> {
    parse_instant(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::CatchUp;
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
        check_with(r#""data": 1, "data-text": "x""#, "duplicate field `data`");
        check_with(r#""data-hex": "0""#, "two hexadecimal digits");
        check_with(r#""data-hex": "é""#, "two hexadecimal digits");
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
        let at = instant("2026-01-01T00:00:00.123Z").unwrap();
        let new = || StoredSchedule::new("a", "t", "0 9 * * MON");
        for stored in [
            new(),
            new().at_most_once(),
            new().at_most_once().overlap(crate::Overlap::Skip),
            new().retry(Retry::NEVER),
            new().retry(Retry::up_to(7, second).at_most_every(3 * second)).at_least_once(second),
            new().zone("Europe/Paris").delay(second).jitter(second).timeout(second).window(second),
            new().starting(at).ending(at).max_runs(u64::MAX).first_run(at),
            new().catch_up(CatchUp::None).mutex("tapes"),
            new().concurrency_key("tapes", 3).max_key_wait(second),
            new().catch_up(CatchUp::All { limit: 3 }),
            new().data(&serde_json::json!({ "b": [1, 2.5, null, "x"], "a": u64::MAX })),
            new().data_bytes("{ \"b\": 1, \"a\": 2 }"),
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
