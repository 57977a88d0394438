//! The definition of a job as fields: what is set, and in grey what holds by default.

use allora_core::{
    Schedule, Settings, backend::JobState, schedule::period_text, stored::Definition,
};

/// The schedule of a job in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Described {
    /// In English, or the text itself where it has no description.
    pub(crate) words: String,
    /// The text, if the words are not it.
    pub(crate) text: String,
    /// The zone that the schedule follows.
    pub(crate) zone: Option<String>,
    pub(crate) owner: String,
    pub(crate) tags: Vec<String>,
    /// The reason why the definition cannot be read.
    pub(crate) error: String,
}

/// The schedule of a job, as far as it can be read without the calendars of the store.
pub(crate) fn described(state: &JobState) -> Described {
    match Definition::parse(&state.name, &state.definition) {
        Ok(definition) => {
            let schedule = definition.schedule();
            let settings = definition.settings();
            let text = definition.text().to_owned();
            let words = schedule.describe().unwrap_or_else(|| text.clone());
            Described {
                text: if words == text { String::new() } else { text },
                words,
                zone: definition.zone().or(schedule.zone()).map(str::to_owned),
                owner: settings.owner.clone().unwrap_or_default(),
                tags: settings.tags.iter().cloned().collect(),
                error: String::new(),
            }
        }
        // The schedule of a job in code may be known to its code alone.
        Err(_) if state.kind.is_empty() => {
            Described { words: "a schedule of its own, in code".into(), ..Described::default() }
        }
        Err(error) => Described {
            words: state.definition.clone(),
            error: error.to_string(),
            ..Described::default()
        },
    }
}

/// A setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) is_default: bool,
}

/// The settings by the names of their texts, each with its label, an example and its default; one without a
/// default is shown only if it is set.
pub(crate) const FIELDS: &[(&str, &str, &str, &str)] = &[
    ("at-least-once", "delivery", "the lease of at least once, as 30s", "at most once"),
    ("retry", "retries", "attempts, first and longest wait, as 5 10s 1h", "none"),
    ("timeout", "time-out", "as 5m", "none"),
    ("overlap", "overlap", "skip, wait or replace", "runs may overlap"),
    ("catch-up", "catch-up", "none, or all 10", "the latest missed time runs"),
    ("window", "window", "as 1h", "none: it runs however late"),
    ("delay", "delay", "as 90s", ""),
    ("jitter", "jitter", "as 5m", ""),
    (
        "concurrency-key",
        "concurrency key",
        "as billing, billing:2 for two at a time, or mail:100/1m for a rate",
        "",
    ),
    ("max-key-wait", "longest wait for the key", "as 1h", ""),
    ("breaker", "pauses itself after", "failures in a row and the wait for a probe, as 5 10m", ""),
    ("alert", "alerts after", "failures in a row and the time between alerts, as 3 6h", ""),
    ("history", "history", "entries and their age, as 50 30d", ""),
    ("start", "first time", "as 2026-12-01T00:00:00Z", ""),
    ("end", "last time", "as 2026-12-31T23:59:59Z", ""),
    ("max-runs", "largest number of runs", "as 12", ""),
    ("run-when-created", "once when created", "yes", ""),
    ("run-if-past", "runs even if past", "yes", ""),
    ("owner", "owner", "a person or a team, as ann", ""),
    ("tags", "tags", "words, as nightly,billing", ""),
];

/// The fields of these settings.
pub(crate) fn fields(settings: &Settings) -> Vec<Field> {
    let text = settings.definition("");
    let set: Vec<(&str, &str)> = text.split("; ").filter_map(|part| part.split_once(' ')).collect();
    let timeout = settings.timeout.map(period_text);
    let mut fields = Vec::new();
    for (key, name, _, default) in FIELDS {
        let value = set.iter().find(|(own, _)| own == key).map(|(_, value)| *value);
        let value = value.or(timeout.as_deref().filter(|_| *key == "timeout"));
        match value {
            Some(value) => {
                fields.push(Field { name, value: in_words(key, value), is_default: false });
            }
            None if !default.is_empty() => {
                fields.push(Field { name, value: (*default).to_owned(), is_default: true });
            }
            None => {}
        }
    }
    fields
}

/// The value of a setting, where its text alone says too little.
fn in_words(key: &str, value: &str) -> String {
    let words: Vec<&str> = value.split(' ').collect();
    match (key, words.as_slice()) {
        ("at-least-once", [lease]) => format!("at least once, lease {lease}"),
        ("retry", [attempts, first, longest]) => {
            format!("up to {attempts} attempts, the first wait {first}, the longest {longest}")
        }
        ("catch-up", ["none"]) => "none: missed times are left out".to_owned(),
        ("catch-up", ["all", limit]) => format!("the last {limit} missed times run"),
        ("overlap", ["skip"]) => "skip: not while a run is active".to_owned(),
        ("overlap", ["wait"]) => "wait for the end of the active run".to_owned(),
        ("overlap", ["replace"]) => "replace the active run".to_owned(),
        ("window", [window]) => format!("{window}: later ones are missed"),
        _ => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(definition: &str) -> Vec<(&'static str, String, bool)> {
        let definition = Definition::parse("report", definition).unwrap();
        let fields = fields(definition.settings()).into_iter();
        fields.map(|field| (field.name, field.value, field.is_default)).collect()
    }

    #[test]
    fn defaults_are_shown_as_such() {
        let fields = of("@daily");
        assert_eq!(fields[0], ("delivery", "at most once".into(), true));
        assert!(fields.iter().all(|(.., is_default)| *is_default), "{fields:?}");
    }

    #[test]
    fn settings_are_shown_in_words() {
        let fields =
            of("@daily; at-least-once 30s; retry 5 10s 1h; catch-up none; concurrency-key billing");
        let has = |name: &str, value: &str| {
            assert!(
                fields.contains(&(
                    FIELDS.iter().find(|field| field.1 == name).unwrap().1,
                    value.into(),
                    false
                )),
                "{fields:?}"
            );
        };
        has("delivery", "at least once, lease 30s");
        has("retries", "up to 5 attempts, the first wait 10s, the longest 1h");
        has("catch-up", "none: missed times are left out");
        has("concurrency key", "billing");
    }

    #[test]
    fn a_schedule_is_described_and_one_that_cannot_be_read_is_shown_as_it_is() {
        let mut state = JobState::empty("report");
        state.kind = "report".into();
        state.definition = "0 2 * * * Europe/Rome; owner ann; tags billing".into();
        let found = described(&state);
        assert_eq!(
            (&*found.text, found.zone.as_deref()),
            ("0 2 * * * Europe/Rome", Some("Europe/Rome"))
        );
        assert_eq!((&*found.owner, found.tags), ("ann", vec!["billing".to_owned()]));
        state.definition = "61 * * * *".into();
        let found = described(&state);
        assert!(found.words == "61 * * * *" && found.error.contains("minute"), "{found:?}");
        state.kind.clear();
        assert!(described(&state).error.is_empty());
    }
}
