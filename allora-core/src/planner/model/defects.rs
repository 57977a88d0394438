//! The rules of the record that its model can do without.

use super::job::instants;
use crate::{
    backend::{Action, Cursor, HistoryEntry, Lease, Outcome},
    record::Record,
    time::Time,
};

/// A rule that is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defect {
    FenceNotComparedAtTheEnd,
    FenceNotComparedAtAnExtension,
    FenceNotComparedAtAClaim,
    /// A claim whose reply was lost is sent again under another id.
    ClaimRepeatedWithoutItsId,
    /// The repetition of an end is refused.
    EndNotRemembered,
    /// A completion moves the cursor to the first instant after now.
    CursorFromNow,
    CursorNotMovedByTheEnd,
    CursorNotMovedByTheClaim,
    LeaseNotRespected,
    ExpiredNotOffered,
    LossNotRecorded,
    PauseNotRespected,
    TombstoneForgotten,
    /// An edit is applied to a record that has changed since it was read.
    EditNotCompared,
}

impl Defect {
    /// Changes record and operation so that the rule does not apply.
    pub(super) fn disarm(self, slot: &mut Option<Record>, action: &mut Action<'_>, now: Time) {
        if self == Self::TombstoneForgotten && matches!(action, Action::Create(_)) {
            *slot = None;
        }
        let Some(record) = slot.as_mut().filter(|record| record.is_live()) else { return };
        match (self, action) {
            (Self::FenceNotComparedAtTheEnd, Action::Complete { fence, .. })
            | (Self::FenceNotComparedAtAnExtension, Action::Extend { fence, .. }) => {
                let has_ended = record.ended.is_some_and(|ended| ended.fence == *fence);
                let is_outdated = record.run(*fence).is_none() && !has_ended;
                if let Some(lease) = record.leases.first().filter(|_| is_outdated) {
                    *fence = lease.fence;
                }
            }
            (Self::FenceNotComparedAtAClaim, Action::Claim(claim)) => claim.fence = record.fence,
            (Self::ClaimRepeatedWithoutItsId, Action::Claim(claim)) => {
                let is_it = |lease: &Lease| lease.claim_id == claim.claim_id;
                claim.claim_id += if record.leases.iter().any(is_it) { 100 } else { 0 };
            }
            (Self::CursorFromNow, Action::Complete { then, .. }) => {
                if matches!(then, Cursor::To(Some(next)) if next.scheduled_at <= now) {
                    let next = instants().map(|(_, at)| at).find(|at| *at > now);
                    *then = Cursor::To(next.map(Into::into));
                }
            }
            (Self::LeaseNotRespected, Action::Claim(_)) => {
                record.leases.iter_mut().for_each(|lease| lease.until = lease.until.min(now));
            }
            (Self::ExpiredNotOffered, Action::Claim(claim)) if !record.leases.is_empty() => {
                claim.fence = 0;
            }
            (Self::PauseNotRespected, Action::Claim(_)) => record.paused = None,
            (Self::EditNotCompared, Action::Modify(edit)) => {
                edit.generation = record.generation;
                if let Some((_, plan)) = &mut edit.definition {
                    plan.expected = record.cursor.map(|next| next.scheduled_at);
                }
            }
            _ => {}
        }
    }

    /// Takes back what the rule has changed, or what was changed to disarm it.
    pub(super) fn restore(
        self,
        record: &mut Record,
        before: &Record,
        action: &Action<'_>,
        entries: &mut Vec<HistoryEntry>,
    ) {
        match (self, action) {
            (Self::EndNotRemembered, _) => record.ended = None,
            (Self::CursorNotMovedByTheEnd, Action::Complete { .. }) => {
                record.cursor = before.cursor
            }
            (Self::CursorNotMovedByTheClaim, Action::Claim(_)) => {
                (record.cursor, record.last_started) = (before.cursor, before.last_started);
            }
            (Self::PauseNotRespected, Action::Claim(_)) => record.paused = before.paused.clone(),
            (Self::LeaseNotRespected, Action::Claim(_)) => {
                let of = |fence| before.leases.iter().find(|lease| lease.fence == fence);
                for lease in &mut record.leases {
                    lease.until = of(lease.fence).map_or(lease.until, |before| before.until);
                }
            }
            (Self::LossNotRecorded, _) => entries.retain(|entry| entry.outcome != Outcome::Lost),
            _ => {}
        }
    }
}
