//! Changes by clients as bytes.

use super::{Unreadable, VERSION, Wire, ms, time, wrong};
use crate::{
    backend::Author,
    record::{Change, ChangeAction, ChangeResult, Record},
};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireChange<'a> {
    v: u32,
    name: Cow<'a, str>,
    sequence: i64,
    at: i64,
    actor: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    via: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    note: Cow<'a, str>,
    action: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    detail: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<Box<Wire<'a>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<Box<Wire<'a>>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    lacks_data: bool,
    result: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    error: Cow<'a, str>,
}

/// The change as bytes. Instants are cut to whole milliseconds.
pub fn encode_change(change: &Change) -> Vec<u8> {
    let wire = WireChange::from(change);
    serde_json::to_vec(&wire).expect("the form has only text keys and finite numbers")
}

/// The change in these bytes.
///
/// # Errors
/// [`Unreadable`] for another version of the format, and for bytes that [`encode_change`] does not
/// write.
pub fn decode_change(bytes: &[u8]) -> Result<Change, Unreadable> {
    super::read::<WireChange<'_>>(bytes)?.change()
}

impl<'a> From<&'a Change> for WireChange<'a> {
    fn from(change: &'a Change) -> Self {
        let wire = |record: &'a Option<Box<Record>>| {
            record.as_deref().map(|record| Box::new(Wire::from(record)))
        };
        Self {
            v: VERSION,
            name: Cow::from(&change.name),
            sequence: change.sequence,
            at: ms(change.at),
            actor: Cow::from(&change.author.actor),
            via: Cow::from(&change.author.via),
            note: Cow::from(&change.author.note),
            action: change.action.word().into(),
            detail: Cow::from(&change.detail),
            before: wire(&change.before),
            after: wire(&change.after),
            lacks_data: change.lacks_data,
            result: change.result.word().into(),
            error: change.result.error().into(),
        }
    }
}

impl WireChange<'_> {
    pub(super) fn change(self) -> Result<Change, Unreadable> {
        let record = |wire: Option<Box<Wire<'_>>>| -> Result<_, Unreadable> {
            wire.map(|wire| wire.record().map(Box::new)).transpose()
        };
        let action = ChangeAction::from_word(&self.action);
        let result = ChangeResult::from_word(&self.result, &self.error);
        Ok(Change {
            name: self.name.into_owned(),
            sequence: self.sequence,
            at: time(self.at)?,
            author: Author {
                actor: self.actor.into_owned(),
                via: self.via.into_owned(),
                note: self.note.into_owned(),
            },
            action: action.ok_or_else(|| wrong(&format!("no action is {:?}", self.action)))?,
            detail: self.detail.into_owned(),
            before: record(self.before)?,
            after: record(self.after)?,
            lacks_data: self.lacks_data,
            result: result.ok_or_else(|| wrong(&format!("no result is {:?}", self.result)))?,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::time::from_millis;

    fn edit() -> Change {
        let record = |definition: &str, data: &[u8]| {
            let (definition, data) = (definition.to_owned(), data.to_vec());
            Some(Box::new(Record { kind: "mail".into(), definition, data, ..Record::default() }))
        };
        Change {
            name: "a b".into(),
            sequence: i64::MAX,
            at: from_millis(5).unwrap(),
            author: Author::new("ann").via("console").note("a \"note\"\n"),
            action: ChangeAction::Modify,
            detail: String::new(),
            before: record("every 60s", b"x\xff"),
            after: record("every 90s", b""),
            lacks_data: false,
            result: ChangeResult::Applied,
        }
    }

    /// One with every part, one with the fewest, one that was refused.
    pub(in crate::record::codec) fn all() -> Vec<Change> {
        let edit = edit();
        let author = Author::new("bob");
        let bare = Change { author, before: None, after: None, ..edit.clone() };
        let result = ChangeResult::Refused("no\0".into());
        let refused = Change { lacks_data: true, detail: "run 7".into(), result, ..bare.clone() };
        vec![edit, bare, refused]
    }

    #[test]
    fn changes_are_read_as_they_were_written() {
        for change in all() {
            assert_eq!(decode_change(&encode_change(&change)), Ok(change));
        }
    }

    /// The first released format: bytes in stores must stay readable.
    #[test]
    fn what_the_first_release_wrote_is_read() {
        let first = concat!(
            r#"{"v":1,"name":"a b","sequence":9223372036854775807,"at":5,"actor":"bob","#,
            r#""action":"modify","detail":"run 7","lacks_data":true,"result":"refused","#,
            r#""error":"no\u0000"}"#
        );
        let [.., refused] = &all()[..] else { unreachable!() };
        assert_eq!(decode_change(first.as_bytes()), Ok(refused.clone()));
        assert_eq!(String::from_utf8(encode_change(refused)).unwrap(), first);
    }

    #[test]
    fn garbage_is_an_error() {
        let good = String::from_utf8(encode_change(&edit())).unwrap();
        for (from, to) in [
            ("{\"v\":1", "{\"v\":2"),
            ("modify", "modified"),
            ("applied", "done"),
            ("actor", "author"),
            ("\"at\":5", "\"at\":-5"),
            ("\"hex\":\"78ff\"", "\"hex\":\"7\""),
        ] {
            assert!(good.contains(from), "{from} in {good}");
            assert!(decode_change(good.replacen(from, to, 1).as_bytes()).is_err(), "{from}");
        }
        assert!(decode_change(b"[]").is_err());
    }
}
