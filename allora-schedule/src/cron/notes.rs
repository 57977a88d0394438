//! The effect of a change of the clock on an expression, in words.

use super::{
    Cron, Dst,
    civil::{DAY, civil},
};
use crate::{Note, NoteReason, Time};
use chrono::DateTime;

/// One note for each change of the zone's offset after `after` and up to `until` that skips or
/// repeats a matching local time.
pub(super) fn notes(cron: &Cron, after: Time, until: Time) -> Vec<Note> {
    let zone = &cron.zone;
    let back = zone.cycles_before(after.timestamp());
    let first = zone.segment_at(after.timestamp() - back) + 1;
    let segments = zone.segments();
    let mut notes = Vec::new();
    for k in first..segments.len() {
        let (segment, before) = (segments[k], segments[k - 1]);
        let Some(at) = DateTime::from_timestamp(segment.start + back, 0) else { break };
        if at > until || at.timestamp() > cron.fields.end() {
            break;
        }
        let (shown, from) = (segment.start + segment.offset, segment.start + before.offset);
        let (low, high) = (shown.min(from), shown.max(from));
        let Some(wall) = cron.fields.next(low).filter(|wall| *wall < high) else { continue };
        let reason = reason(cron, shown > from);
        let message = message(cron, reason, wall + back, (low + back, high + back), at);
        notes.push(Note { at, reason, message });
    }
    notes
}

fn reason(cron: &Cron, gap: bool) -> NoteReason {
    match (gap, cron.once()) {
        (true, true) => NoteReason::Moved,
        (true, false) => NoteReason::Skipped,
        (false, true) => NoteReason::Once,
        (false, false) => NoteReason::Twice,
    }
}

fn message(
    cron: &Cron,
    reason: NoteReason,
    wall: i64,
    (low, high): (i64, i64),
    at: Time,
) -> String {
    let zone = cron.zone();
    let (wall, low, high) = (shown(wall), shown(low), shown(high));
    let at = at.format("%Y-%m-%dT%H:%M:%SZ");
    let policy = match cron.dst {
        Dst::Debian if cron.fields.is_wildcard() => "the schedule follows elapsed time",
        Dst::Debian => "the schedule names a fixed time",
        Dst::Literal => "the schedule follows the wall clock",
    };
    match reason {
        NoteReason::Moved => format!(
            "{wall} does not exist in {zone}, whose clocks go from {low} to {high}: what falls \
             into the gap runs once, at {at}"
        ),
        NoteReason::Skipped => format!(
            "{wall} does not exist in {zone}, whose clocks go from {low} to {high}: it is left \
             out, since {policy}"
        ),
        NoteReason::Once => format!(
            "{wall} comes twice in {zone}, whose clocks go back from {high} to {low}: it runs the \
             first time only, since {policy}"
        ),
        _ => format!(
            "{wall} comes twice in {zone}, whose clocks go back from {high} to {low}: it runs \
             both times, since {policy}"
        ),
    }
}

fn shown(wall: i64) -> String {
    let (year, month, day) = civil(wall.div_euclid(DAY));
    let time = wall.rem_euclid(DAY);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    let seconds = if second == 0 { String::new() } else { format!(":{second:02}") };
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}{seconds}")
}
