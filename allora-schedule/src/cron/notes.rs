//! The effect of a change of the clock on an expression, in words.

use super::civil::{DAY, civil};
use crate::{Note, NoteReason, Time, zone::Zone};
use chrono::DateTime;

/// The policies of [`Changes`].
pub(crate) const ELAPSED: &str = "the schedule follows elapsed time";
pub(crate) const FIXED: &str = "the schedule names a fixed time";

/// A schedule on the wall clock of a zone.
pub(crate) struct Changes<'a> {
    pub(crate) zone: &'a Zone,
    /// By Debian's rule for fixed times.
    pub(crate) once: bool,
    /// The reason, in words.
    pub(crate) policy: &'a str,
    /// The last UTC second that may match.
    pub(crate) end: i64,
    /// The first matching wall second not before another one.
    pub(crate) next_wall: &'a dyn Fn(i64) -> Option<i64>,
}

impl Changes<'_> {
    /// One note for each change of the zone's offset after `after` and up to `until` that skips or
    /// repeats a matching local time.
    pub(crate) fn notes(&self, after: Time, until: Time) -> Vec<Note> {
        let zone = self.zone;
        let back = zone.cycles_before(after.timestamp());
        let first = zone.segment_at(after.timestamp() - back) + 1;
        let segments = zone.segments();
        let mut notes = Vec::new();
        for k in first..segments.len() {
            let (segment, before) = (segments[k], segments[k - 1]);
            let Some(at) = DateTime::from_timestamp(segment.start + back, 0) else { break };
            if at > until || at.timestamp() > self.end {
                break;
            }
            let (shown, from) = (at.timestamp() + segment.offset, at.timestamp() + before.offset);
            let (low, high) = (shown.min(from), shown.max(from));
            let Some(wall) = (self.next_wall)(low).filter(|wall| *wall < high) else { continue };
            let reason = match (shown > from, self.once) {
                (true, true) => NoteReason::Moved,
                (true, false) => NoteReason::Skipped,
                (false, true) => NoteReason::Once,
                (false, false) => NoteReason::Twice,
            };
            let message = self.message(reason, wall, (low, high), at);
            notes.push(Note { at, reason, message });
        }
        notes
    }

    fn message(&self, reason: NoteReason, wall: i64, (low, high): (i64, i64), at: Time) -> String {
        let (zone, policy) = (self.zone.name(), self.policy);
        let (wall, low, high) = (shown(wall), shown(low), shown(high));
        let at = at.format("%Y-%m-%dT%H:%M:%SZ");
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
                "{wall} comes twice in {zone}, whose clocks go back from {high} to {low}: it runs \
                 the first time only, since {policy}"
            ),
            _ => format!(
                "{wall} comes twice in {zone}, whose clocks go back from {high} to {low}: it runs \
                 both times, since {policy}"
            ),
        }
    }
}

/// A wall second as `2026-03-29 02:30`.
pub(crate) fn shown(wall: i64) -> String {
    let (year, month, day) = civil(wall.div_euclid(DAY));
    let time = wall.rem_euclid(DAY);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    let seconds = if second == 0 { String::new() } else { format!(":{second:02}") };
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}{seconds}")
}
