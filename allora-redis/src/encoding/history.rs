//! A history entry as the member of a sorted set, its score, and a text.

use super::ms;
use allora_core::{
    Occurrence,
    backend::{HistoryEntry, Outcome},
    time::from_millis,
};
use chrono::DateTime;

/// An entry as its member, its score and its text.
pub(crate) fn encode(entry: &HistoryEntry) -> [Vec<u8>; 3] {
    let HistoryEntry {
        name,
        fence,
        occurrence,
        last,
        count,
        attempt,
        node,
        recorded_at,
        outcome,
        ..
    } = entry;
    let number = |number: Option<String>| number.unwrap_or_default();
    // No name and no id has this separator in it; the error is the last part.
    let text = [
        ms(occurrence.scheduled_at).to_string(),
        occurrence.trigger.clone().unwrap_or_default(),
        number(last.map(|last| ms(last).to_string())),
        number(count.map(|count| count.to_string())),
        attempt.to_string(),
        node.replace('\0', " "),
        recorded_at.timestamp_micros().to_string(),
        outcome.word().to_owned(),
        outcome.error().to_owned(),
    ]
    .join("\0");
    let member = format!("{fence} {name}");
    [member.into_bytes(), fence.to_string().into_bytes(), text.into_bytes()]
}

/// The fence and the name in a member; `None` if it is no entry.
pub(crate) fn fence_and_name(member: &[u8]) -> Option<(i64, &str)> {
    let (fence, name) = std::str::from_utf8(member).ok()?.split_once(' ')?;
    Some((fence.parse().ok()?, name))
}

/// The entry of a member and its text; `None` if it cannot be read.
pub(crate) fn decode(member: &[u8], text: &[u8]) -> Option<HistoryEntry> {
    let (fence, name) = fence_and_name(member)?;
    let mut parts = std::str::from_utf8(text).ok()?.splitn(9, '\0');
    let mut next = || parts.next();
    let number = |text: &str| (!text.is_empty()).then(|| text.parse::<i64>());
    let scheduled_at = from_millis(next()?.parse().ok()?)?;
    let trigger = Some(next()?).filter(|id| !id.is_empty()).map(str::to_owned);
    let last = number(next()?).transpose().ok()?;
    let count = next()?;
    let count = (!count.is_empty()).then(|| count.parse()).transpose().ok()?;
    let (attempt, node) = (next()?.parse().ok()?, next()?);
    let recorded_at = DateTime::from_timestamp_micros(next()?.parse().ok()?)?;
    let outcome = Outcome::from_word(next()?, next()?)?;
    let last = match last {
        Some(last) => Some(from_millis(last)?),
        None => None,
    };
    let occurrence = Occurrence { scheduled_at, trigger };
    let entry = HistoryEntry::new(name, fence, occurrence, recorded_at, outcome);
    Some(entry.range(last, count).by(node, attempt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_they_were_written() {
        let t = |ms| from_millis(ms).unwrap();
        let run = Occurrence { scheduled_at: t(5), trigger: Some("by hand".into()) };
        let failed = Outcome::Failed("x\0y\n".into());
        let entries = [
            HistoryEntry::new("a b", 7, t(5).into(), t(6), Outcome::Running).by("node 1", 3),
            HistoryEntry::new("a", i64::MAX, run, t(6), failed),
            HistoryEntry::new("{}", 8, t(0).into(), t(6), Outcome::Missed)
                .range(Some(t(9)), None)
                .by("n", 0),
            HistoryEntry::new("c", 9, t(0).into(), t(6), Outcome::Skipped)
                .range(Some(t(9)), Some(u64::MAX)),
        ];
        for expected in entries {
            let [member, _, text] = encode(&expected);
            assert_eq!(decode(&member, &text), Some(expected));
        }
    }
}
