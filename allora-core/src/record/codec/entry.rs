//! History entries as bytes.

use super::{Unreadable, VERSION, WireOccurrence, ms, outcome, time, wrong};
use crate::backend::{HistoryEntry, NotRunReason};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireEntry<'a> {
    v: u32,
    name: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    kind: Cow<'a, str>,
    fence: i64,
    occurrence: WireOccurrence<'a>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due_at: Option<i64>,
    attempt: u32,
    node: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended_at: Option<i64>,
    outcome: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    error: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Cow<'a, str>>,
}

/// The entry as bytes. Instants are cut to whole milliseconds.
pub fn encode_entry(entry: &HistoryEntry) -> Vec<u8> {
    let wire = WireEntry {
        v: VERSION,
        name: Cow::from(&entry.name),
        kind: Cow::from(&entry.kind),
        fence: entry.fence,
        occurrence: WireOccurrence::from(&entry.occurrence),
        last: entry.last.map(ms),
        count: entry.count,
        due_at: entry.due_at.map(ms),
        attempt: entry.attempt,
        node: Cow::from(&entry.node),
        started_at: entry.started_at.map(ms),
        ended_at: entry.ended_at.map(ms),
        outcome: entry.outcome.word().into(),
        error: entry.outcome.error().into(),
        reason: entry.reason.map(|reason| reason.text().into()),
        output: entry.output.as_deref().map(Cow::from),
        value: entry.value.as_deref().map(Cow::from),
    };
    serde_json::to_vec(&wire).expect("the form has only text keys and finite numbers")
}

/// The entry in these bytes.
///
/// # Errors
/// [`Unreadable`] for another version of the format, and for bytes that [`encode_entry`] does not
/// write.
pub fn decode_entry(bytes: &[u8]) -> Result<HistoryEntry, Unreadable> {
    let wire: WireEntry<'_> = super::read(bytes)?;
    let reason = |word: Cow<'_, str>| {
        NotRunReason::from_text(&word).ok_or_else(|| wrong(&format!("no reason is {word:?}")))
    };
    Ok(HistoryEntry {
        name: wire.name.into_owned(),
        kind: wire.kind.into_owned(),
        fence: wire.fence,
        occurrence: wire.occurrence.occurrence()?,
        last: wire.last.map(time).transpose()?,
        count: wire.count,
        due_at: wire.due_at.map(time).transpose()?,
        attempt: wire.attempt,
        node: wire.node.into_owned(),
        started_at: wire.started_at.map(time).transpose()?,
        ended_at: wire.ended_at.map(time).transpose()?,
        outcome: outcome(&wire.outcome, &wire.error)?,
        reason: wire.reason.map(reason).transpose()?,
        output: wire.output.map(Cow::into_owned),
        value: wire.value.map(Cow::into_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backend::{Occurrence, Outcome},
        time::from_millis,
    };

    fn run() -> HistoryEntry {
        let at = |ms| from_millis(ms).unwrap();
        let occurrence = Occurrence { scheduled_at: at(5), trigger: Some("by \"hand\"".into()) };
        HistoryEntry {
            kind: "mail".into(),
            due_at: Some(at(6)),
            attempt: 3,
            node: "n\0\n".into(),
            started_at: Some(at(7)),
            ended_at: Some(at(8)),
            output: Some("done\n".into()),
            ..HistoryEntry::new("a b", i64::MAX, occurrence, Outcome::Retried("x\0y".into()))
        }
    }

    fn range() -> HistoryEntry {
        let at = |ms| from_millis(ms).unwrap();
        HistoryEntry {
            last: Some(at(9)),
            count: Some(u64::MAX),
            attempt: 0,
            ended_at: Some(at(9)),
            reason: Some(NotRunReason::Window),
            ..HistoryEntry::new("{}", 8, at(0).into(), Outcome::Missed)
        }
    }

    #[test]
    fn entries_are_read_as_they_were_written() {
        for reason in [
            NotRunReason::CatchUp,
            NotRunReason::Window,
            NotRunReason::Overlap,
            NotRunReason::ConcurrencyKey,
            NotRunReason::Replaced { by: from_millis(7).unwrap() },
            NotRunReason::Calendar,
        ] {
            let range = HistoryEntry { reason: Some(reason), count: None, ..range() };
            assert_eq!(decode_entry(&encode_entry(&range)), Ok(range));
        }
        let with_value = HistoryEntry { value: Some("{\"a\":\"\u{e4}\"}".into()), ..run() };
        for entry in [run(), with_value, range()] {
            assert_eq!(decode_entry(&encode_entry(&entry)), Ok(entry));
        }
    }

    /// The first released format: bytes in stores must stay readable.
    #[test]
    fn what_the_first_release_wrote_is_read() {
        let first = concat!(
            r#"{"v":1,"name":"a b","kind":"mail","fence":9223372036854775807,"#,
            r#""occurrence":{"scheduled_at":5,"trigger":"by \"hand\""},"count":1,"due_at":6,"#,
            r#""attempt":3,"node":"n\u0000\n","started_at":7,"ended_at":8,"outcome":"retried","#,
            r#""error":"x\u0000y","output":"done\n"}"#
        );
        assert_eq!(decode_entry(first.as_bytes()), Ok(run()));
        assert_eq!(String::from_utf8(encode_entry(&run())).unwrap(), first);
    }

    #[test]
    fn garbage_is_an_error() {
        let good = String::from_utf8(encode_entry(&range())).unwrap();
        for (from, to) in [
            ("\"v\":1", "\"v\":2"),
            ("missed", "dismissed"),
            ("window", "door"),
            ("fence", "hence"),
            ("\"last\":9", "\"last\":-9"),
        ] {
            assert!(good.contains(from), "{from}");
            assert!(decode_entry(good.replacen(from, to, 1).as_bytes()).is_err(), "{from}");
        }
        assert!(decode_entry(b"[]").is_err());
    }
}
