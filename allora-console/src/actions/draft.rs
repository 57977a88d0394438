//! The definition of a job as the fields of a form, and the text that they make together.
//!
//! There is no second model of a definition: the fields are the parts of its text, and the library reads the whole. The
//! place of an error in that text is the place in one of the fields.

use crate::{
    pages::{FIELDS, sentence},
    params::Params,
};
use allora_core::{
    Error, StoredSchedule,
    backend::JobState,
    schedule::{AnySchedule, Field, ParseError},
    stored::Definition,
};
use serde_json::{Map, Value};
use std::{error::Error as _, ops::Range};

/// Key, label, example and default.
type Part = (&'static str, &'static str, &'static str, &'static str);

/// The fields before those of the settings.
const FIRST: [Part; 2] = [
    (
        "schedule",
        "schedule",
        "as 0 2 * * *, @every 90m or every weekday at 9:30; rules follow after a semicolon: except 2026-12-25",
        "",
    ),
    ("zone", "zone", "as Europe/Rome", "that in the schedule, or UTC"),
];

/// A definition as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(super) name: String,
    pub(super) kind: String,
    /// By the order of [`parts`].
    values: Vec<String>,
    /// `None`: it stays as it is.
    pub(super) data: Option<String>,
}

/// A field that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) key: &'static str,
    /// The defect, and the text to write instead.
    pub(crate) message: String,
    /// The text before, at and behind the place.
    pub(crate) marked: Option<[String; 3]>,
}

impl Wrong {
    pub(super) fn new(key: &'static str, message: &str) -> Self {
        Self { key, message: sentence(message), marked: None }
    }
}

/// The schedule, its zone and the settings.
fn parts() -> impl Iterator<Item = &'static Part> {
    FIRST.iter().chain(FIELDS)
}

impl Draft {
    /// That of a job that is to be added, with the settings of a new one.
    pub(super) fn new() -> Self {
        let settings = StoredSchedule::new("", "", "").settings().definition("");
        Self { name: String::new(), kind: String::new(), values: split(&settings), data: None }
    }

    pub(super) fn of(state: &JobState) -> Self {
        let read = Definition::parse(&state.name, &state.definition).ok();
        let text = read.map_or_else(|| state.definition.clone(), |read| read.to_string());
        Self {
            name: state.name.clone(),
            kind: state.kind.clone(),
            values: split(&text),
            data: None,
        }
    }

    /// That of a stored schedule as an object, whose values have their types.
    pub(crate) fn of_object(object: &Map<String, Value>) -> Self {
        let given = |key: &str| object.get(&key.replace('-', "_")).or_else(|| object.get(key));
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            Value::Array(words) => {
                words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
            }
            other => other.to_string(),
        };
        let mut draft = Self::new();
        let is_at_most_once = given("at-most-once") == Some(&Value::Bool(true));
        for ((key, ..), own) in parts().zip(&mut draft.values) {
            match given(key) {
                Some(value) => *own = text(value),
                None if is_at_most_once => own.clear(),
                None => {}
            }
        }
        let exact = |key: &str| given(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        (draft.name, draft.kind) = (exact("name"), exact("kind"));
        draft
    }

    /// Takes over from this job what was not changed since the form was made from one of this kind and definition.
    pub(super) fn follow(&mut self, [kind, definition]: &[String; 2], state: &JobState) {
        let mut base = JobState::empty(&self.name);
        (base.kind, base.definition) = (kind.clone(), definition.clone());
        let (base, now) = (Self::of(&base), Self::of(state));
        if self.kind == base.kind {
            self.kind = now.kind;
        }
        for ((value, base), now) in self.values.iter_mut().zip(base.values).zip(now.values) {
            if *value == base {
                *value = now;
            }
        }
    }

    pub(super) fn read(params: &Params) -> Self {
        let exact = |name: &str| params.exact(name).to_owned();
        let value = |(key, ..): &Part| params.get(&format!("f-{key}")).to_owned();
        Self {
            name: exact("name"),
            kind: exact("f-kind"),
            values: parts().map(value).collect(),
            data: params.given("f-data").map(str::to_owned),
        }
    }

    /// Each part with its key, its label, a hint and its value.
    pub(super) fn fields(
        &self,
    ) -> impl Iterator<Item = (&'static str, &'static str, String, &str)> {
        parts().zip(&self.values).map(|((key, label, example, default), value)| {
            let hint = match default.is_empty() {
                true => (*example).to_owned(),
                false => format!("{example}; empty means {default}"),
            };
            (*key, *label, hint, value.as_str())
        })
    }

    /// The definition, without calendars of the store.
    ///
    /// # Errors
    /// The field that is wrong.
    pub(crate) fn definition(&self) -> Result<Definition, Wrong> {
        let (text, places) = self.text();
        Definition::parse(&self.name, &text).map_err(|error| self.wrong(&error, &places))
    }

    /// The data, if it was this before. Browsers send each end of a line as CR LF.
    pub(super) fn data(&self, before: &[u8]) -> Vec<u8> {
        let Some(typed) = &self.data else { return before.to_vec() };
        let lines = |text: &str| text.replace("\r\n", "\n").replace('\r', "\n");
        match std::str::from_utf8(before) {
            Ok(before) if lines(before) == lines(typed) => before.into(),
            _ => lines(typed).into_bytes(),
        }
    }

    /// The text, and the places of the parts in it.
    fn text(&self) -> (String, Vec<Range<usize>>) {
        let (mut text, mut places) = (String::new(), Vec::new());
        for (i, ((key, ..), value)) in parts().zip(&self.values).enumerate() {
            if i > 0 && !value.is_empty() {
                text += &format!("; {key} ");
            }
            let begin = text.len();
            text += value;
            places.push(begin..text.len());
        }
        (text, places)
    }

    fn wrong(&self, error: &Error, places: &[Range<usize>]) -> Wrong {
        let key = |i: usize| parts().nth(i).map_or(FIRST[0].0, |(key, ..)| *key);
        let Some(found) = error.source().and_then(|cause| cause.downcast_ref::<ParseError>())
        else {
            return Wrong::new(key(self.part_to_leave_out()), &error.to_string());
        };
        // A zone of its own is read apart from the rest.
        let i = match (found.field(), found.position()) {
            (Field::Zone, 0) if !self.values[1].is_empty() => 1,
            (_, at) => {
                let mut all = places.iter().enumerate();
                let is_it = |(i, place): &(usize, &Range<usize>)| {
                    (*i == 0 || !place.is_empty()) && at <= place.end
                };
                all.find(is_it).map_or(0, |(i, _)| i)
            }
        };
        let begin = if found.position() == 0 { 0 } else { places[i].start };
        // An error of a whole setting is at its name, which is no part of the field.
        let is_whole = found.position() < begin;
        let at = found.position().saturating_sub(begin);
        let (field, advice) = (found.field(), found.advice());
        let what = format!("{field}, column {}: \"{}\" {}", at + 1, found.found(), found.reason());
        let advice = if advice.is_empty() { String::new() } else { format!("; {advice}") };
        let value = &self.values[i];
        let marked = value.split_at_checked(at).filter(|(_, rest)| !rest.is_empty());
        let marked = marked.map(|(head, rest)| {
            let len = match found.found() {
                _ if is_whole => rest.len(),
                word if !word.is_empty() && rest.starts_with(word) => word.len(),
                _ => rest.find(char::is_whitespace).unwrap_or(rest.len()),
            };
            [head, &rest[..len], &rest[len..]].map(str::to_owned)
        });
        Wrong { marked, ..Wrong::new(key(i), &(what + &advice)) }
    }

    /// The part without which the definition would be right, for an error that names no place: two settings
    /// contradict each other, or a value is out of its range. The schedule, if there is none.
    fn part_to_leave_out(&self) -> usize {
        let is_right_without = |i: &usize| {
            let mut other = self.clone();
            let left_out = std::mem::take(&mut other.values[*i]);
            !left_out.is_empty() && Definition::parse(&other.name, &other.text().0).is_ok()
        };
        (1..self.values.len()).rev().find(is_right_without).unwrap_or(0)
    }
}

/// The values of the parts in a text. A part that is none of them, such as a rule of the schedule, stays in the
/// schedule, where it has its place if it is wrong.
fn split(text: &str) -> Vec<String> {
    let mut values = vec![String::new(); parts().count()];
    for (i, part) in AnySchedule::parts(text).map(|(_, part)| part.trim()).enumerate() {
        let (key, value) = part.split_once(' ').unwrap_or((part, ""));
        let place = parts().skip(1).position(|(own, ..)| *own == key).map(|place| place + 1);
        match place.filter(|place| i > 0 && values[*place].is_empty()) {
            Some(place) => value.trim().clone_into(&mut values[place]),
            None => {
                values[0] += if i > 0 { "; " } else { "" };
                values[0] += part;
            }
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(definition: &str) -> Draft {
        let mut state = JobState::empty("report");
        state.kind = "mail".into();
        state.definition = definition.into();
        Draft::of(&state)
    }

    fn value<'a>(draft: &'a Draft, key: &str) -> &'a str {
        draft.fields().find(|field| field.0 == key).unwrap().3
    }

    #[test]
    fn the_fields_together_are_the_text_that_they_were_made_from() {
        for text in [
            "@daily",
            "0 2 * * *; except 2026-12-25; only-within 1:00-3:00; zone Europe/Rome; at-least-once 30s; \
             catch-up all 10; window 1h; retry 5 10s 1h; delay 1m30s; jitter 5m; max-runs 12; \
             run-when-created yes; run-if-past yes; \
             concurrency-key tapes:2; max-key-wait 1h; owner ann; tags a,b; timeout 5m",
            "every weekday at 9:30 Europe/Rome; overlap skip; start 2026-12-01T00:00:00.000Z; \
             end 2026-12-31T00:00:00.000Z",
        ] {
            let before = Definition::parse("report", text).unwrap();
            let draft = of(text);
            assert_eq!(draft.definition().unwrap().to_string(), before.to_string());
            assert!(!value(&draft, "schedule").contains("owner"));
        }
        let whole = Draft::read(
            &Params::read("f-schedule=%40daily%3B+delay+90s&f-jitter=5m&f-kind=mail").unwrap(),
        );
        assert_eq!(whole.definition().unwrap().to_string(), "@daily; delay 1m30s; jitter 5m");
        let new =
            Draft { values: split("@daily; at-least-once 30s; retry 5 10s 1h"), ..Draft::new() };
        assert_eq!(value(&new, "retry"), value(&Draft::new(), "retry"));
        let stored = StoredSchedule::new("", "", "@daily").definition().unwrap();
        assert_eq!(new.definition().unwrap().to_string(), stored.to_string());
    }

    /// Checks the field, the marked text and the message of a definition that is wrong.
    #[track_caller]
    fn check(text: &str, key: &str, marked: &str, says: &str) {
        let wrong = of(text).definition().unwrap_err();
        assert_eq!(wrong.key, key, "{text}: {wrong:?}");
        assert_eq!(
            wrong.marked.map(|parts| parts[1].clone()).unwrap_or_default(),
            marked,
            "{text}"
        );
        assert!(wrong.message.contains(says), "{text}: {}", wrong.message);
    }

    #[test]
    fn an_error_is_at_its_field_with_its_place_and_the_remedy() {
        check("0 0 * * Mond; delay 5m", "schedule", "Mond", "column 9");
        check("61 * * * *", "schedule", "61", "Minute, column 1");
        check("", "schedule", "", "Schedule");
        check("@daily; delay 30", "delay", "30", "column 1");
        check("@daily; retry 5 10 1h; at-least-once 30s", "retry", "10", "column 3");
        check("@daily; retry 5", "retry", "5", "has no value");
        check("0 2 * * *; zone Mars/X", "zone", "Mars/X", "Mars/X");
        check("@every 1h; zone Europe/Rome", "zone", "Europe/Rome", "no wall clock");
        check("@daily; sparkle 3; delay 5m", "schedule", "sparkle", "column 9");
        check("@daily; delay 1m; delay 2m", "delay", "1m", "given twice");
    }

    #[test]
    fn an_error_without_a_place_is_at_the_field_without_which_there_is_none() {
        check("@daily; retry 5 10s 1h", "retry", "", "at least once");
        check("@daily; at-least-once 30s; overlap skip", "overlap", "", "overlap");
        check("@daily; max-key-wait 1h", "max-key-wait", "", "key");
        check("@daily; max-runs 0", "max-runs", "", "at least 1");
        check("0 2 * * * Asia/Tokyo; zone Europe/Rome", "zone", "", "use one");
        check("0 9 * * *; except 0 9 * * *", "schedule", "", "excluded");
    }

    #[test]
    fn what_was_not_touched_follows_the_newer_definition() {
        let mut draft = of("@hourly; delay 1m; owner ann");
        let mut now = JobState::empty("report");
        (now.kind, now.definition) = ("mail2".into(), "@weekly; delay 5m; tags a".into());
        draft.follow(&["mail".into(), "@daily; delay 1m; owner ben".into()], &now);
        assert_eq!(draft.kind, "mail2");
        let together = draft.definition().unwrap().to_string();
        assert_eq!(together, "@hourly; delay 5m; owner ann; tags a");
    }

    #[test]
    fn data_that_was_not_changed_keeps_its_bytes() {
        let typed = |text: &str| Draft { data: Some(text.into()), ..Draft::new() };
        assert_eq!(typed("a\r\nb").data(b"a\nb"), b"a\nb");
        assert_eq!(typed("a\r\nb").data(b"a\r\nb"), b"a\r\nb");
        assert_eq!(typed("a\r\nc").data(b"a\r\nb"), b"a\nc");
        assert_eq!((typed("").data(b"x"), Draft::new().data(b"\xff")), (vec![], vec![0xff]));
    }
}
