//! The defects: each is a mistake that a store or its author has made.

use crate::broken::{Defect, Step};
use allora_conformance::reference::ReferenceModel;
use allora_core::{
    Result, Time,
    backend::{
        Action, Claim, ClaimDue, Claimed, Cursor, DueQuery, Flag, HistoryCursor, HistoryEntry,
        HistoryLimits, HistoryQuery, ImportedProgress, JobState, Lease, NextRun, OnExpiry, Outcome,
        Reply, RetryCause, Sharing,
    },
    record::{Change, HistoryBuffer, Record},
    time::{end_of_time, saturating_add, whole_millis},
};
use chrono::{SubsecRound, TimeDelta};
use std::{mem::take, time::Duration};

/// The claim, if the operation is one.
fn claim_of(step: &Step<'_>) -> Option<Claim> {
    match &step.operation.action {
        Action::Claim(claim) => Some(claim.clone()),
        _ => None,
    }
}

/// The fence of an operation on a run.
fn fence_of(action: &Action<'_>) -> Option<i64> {
    match action {
        Action::Extend { fence, .. }
        | Action::Complete { fence, .. }
        | Action::Retry { fence, .. }
        | Action::Release { fence } => Some(*fence),
        _ => None,
    }
}

/// The same operation on the run under this fence.
fn under<'a>(action: &Action<'a>, fence: i64) -> Action<'a> {
    match action.clone() {
        Action::Extend { duration, .. } => Action::Extend { fence, duration },
        Action::Complete { then, completion, .. } => Action::Complete { fence, then, completion },
        Action::Retry { not_before, cause, .. } => Action::Retry { fence, not_before, cause },
        Action::Release { .. } => Action::Release { fence },
        other => other,
    }
}

/// Nothing is wrong.
pub(crate) struct Sound;
impl Defect for Sound {}

/// Reads, and writes a little later.
pub(crate) struct ReadsThenWrites;
impl Defect for ReadsThenWrites {
    fn is_atomic() -> bool {
        false
    }
}

/// Grants an occurrence that another claim has taken to the next one that asks.
pub(crate) struct GrantsTwice;
impl Defect for GrantsTwice {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let reply = step.apply();
        if let (Some(claim), Ok(Reply::State(_)), Some(record)) =
            (claim_of(step), &reply, &mut *step.record)
            && claim.lease.on_expiry == OnExpiry::Lost
            && record.last_started == Some(claim.expected.scheduled_at)
            && (record.generation..record.fence).contains(&claim.fence)
        {
            record.fence += 1;
            let until = whole_millis(saturating_add(step.context.now, claim.lease.duration));
            let claimed = Claimed::new(claim.start, record.fence, record.incarnation, until);
            return Ok(Reply::Claimed(claimed));
        }
        reply
    }
}

/// Compares no fences: the end of any run ends the one that is there.
pub(crate) struct AcceptsAStaleFence;
impl Defect for AcceptsAStaleFence {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let Some(fence) = fence_of(&step.operation.action) else { return step.apply() };
        let leases = step.record.as_ref().map(|record| &*record.leases).unwrap_or_default();
        let fence = leases.first().map_or(fence, |lease| lease.fence);
        step.apply_instead(under(&step.operation.action, fence))
    }
}

/// Starts the occurrence, and leaves the cursor where it was.
pub(crate) struct ForgetsTheCursor;
impl Defect for ForgetsTheCursor {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let before = step.record.clone();
        let reply = step.apply();
        if let (Ok(Reply::Claimed(_)), Some(before), Some(record)) =
            (&reply, before, &mut *step.record)
        {
            (record.cursor, record.last_started) = (before.cursor, before.last_started);
        }
        reply
    }
}

/// `<` where `<=` is meant.
pub(crate) struct DueIsNotYet;
impl Defect for DueIsNotYet {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let head = step.record.as_ref().and_then(|record| record.head());
        let due_at = head.map(|head| head.due_at);
        match &step.operation.action {
            Action::Claim(_) if due_at == Some(step.context.now) => step.read(),
            _ => step.apply(),
        }
    }
}

/// Offers what is due within a second, to be early.
pub(crate) struct ClaimsTooEarly;
impl Defect for ClaimsTooEarly {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        if matches!(step.operation.action, Action::Claim(_)) {
            step.context.now += TimeDelta::seconds(1);
        }
        step.apply()
    }
}

/// Gives the same fence to every claim of a job.
pub(crate) struct FencesStandStill;
impl Defect for FencesStandStill {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let before = step.record.as_ref().map(|record| record.fence);
        let mut reply = step.apply();
        if let (Ok(Reply::Claimed(claimed)), Some(before), Some(record)) =
            (&mut reply, before, &mut *step.record)
            && record.fence > before
        {
            record.fence = before;
            let mine = record.leases.iter_mut().filter(|lease| lease.fence == claimed.fence);
            mine.for_each(|lease| lease.fence = before);
            claimed.fence = before;
        }
        reply
    }
}

/// Deletes the row, and with it the name's fences.
pub(crate) struct FencesBeginAnew;
impl Defect for FencesBeginAnew {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        if matches!(step.operation.action, Action::Register { .. } | Action::Create(_)) {
            step.record.take_if(|record| record.deleted_at.is_some());
        }
        step.apply()
    }
}

/// Has no tombstones at all.
pub(crate) struct ForgetsTheDeleted;
impl Defect for ForgetsTheDeleted {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let reply = step.apply();
        step.record.take_if(|record| record.deleted_at.is_some());
        reply
    }
}

/// Does not remember accepted ends.
pub(crate) struct CompletesOnce;
impl Defect for CompletesOnce {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let reply = step.apply();
        if let Some(record) = step.record {
            record.ended = None;
        }
        reply
    }
}

/// Has room for one trigger.
pub(crate) struct LosesATrigger;
impl Defect for LosesATrigger {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let reply = step.apply();
        let Some(record) = &mut *step.record else { return reply };
        record.triggers.truncate(1);
        match reply {
            Ok(Reply::Triggered(mut triggered)) => {
                if let Reply::State(state) = step.read()? {
                    triggered.state = *state;
                }
                Ok(Reply::Triggered(triggered))
            }
            Ok(Reply::State(_)) => step.read(),
            reply => reply,
        }
    }
}

/// Knows only the triggers that wait or run.
pub(crate) struct ForgetsTriggers;
impl Defect for ForgetsTriggers {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let reply = step.apply();
        if let Some(record) = step.record {
            record.remembered.clear();
        }
        reply
    }
}

/// Gives the runs of triggers the data of the schedule.
pub(crate) struct ForgetsTheDataOfTriggers;
impl Defect for ForgetsTheDataOfTriggers {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let reply = step.apply();
        step.record.iter_mut().for_each(|record| record.occurrence_data.clear());
        reply
    }
}

/// Counts the attempts of runs that were released for a while.
pub(crate) struct CountsReleases;
impl Defect for CountsReleases {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        match step.operation.action {
            Action::Retry { fence, not_before, cause: RetryCause::Released } => {
                let cause = RetryCause::Interrupted;
                step.apply_instead(Action::Retry { fence, not_before, cause })
            }
            _ => step.apply(),
        }
    }
}

/// Ends the lease of a run that has completed itself and works on.
pub(crate) struct EndsCompletedLeases;
impl Defect for EndsCompletedLeases {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let reply = step.apply();
        step.record.iter_mut().for_each(|record| record.leases.retain(|lease| !lease.completed));
        reply
    }
}

/// Forgets that a run has completed itself.
pub(crate) struct ForgetsCompletions;
impl Defect for ForgetsCompletions {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let reply = step.apply();
        let leases = step.record.iter_mut().flat_map(|record| &mut record.leases);
        leases.for_each(|lease| lease.completed = false);
        reply
    }
}

/// Keeps no checkpoint.
pub(crate) struct ForgetsCheckpoints;
impl Defect for ForgetsCheckpoints {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let reply = step.apply();
        let kept = step.record.iter_mut().flat_map(|record| &mut record.occurrence_data);
        kept.for_each(|one| one.checkpoint = None);
        reply
    }
}

/// Keeps the checkpoint of a run that another one has taken over.
pub(crate) struct KeepsLateCheckpoints;
impl Defect for KeepsLateCheckpoints {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let reply = step.apply();
        if let (Ok(Reply::LeaseLost), Some(checkpoint), Some(record)) =
            (&reply, step.operation.checkpoint, &mut *step.record)
        {
            let kept = record.occurrence_data.iter_mut().flat_map(|one| &mut one.checkpoint);
            kept.for_each(|saved| saved.value = checkpoint.to_vec());
        }
        reply
    }
}

/// Offers nothing before its scheduled time, not even what a calendar has moved to an earlier day.
pub(crate) struct ForgetsMovesAhead;
impl Defect for ForgetsMovesAhead {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let reply = step.apply();
        let cursors = step.record.iter_mut().flat_map(|record| &mut record.cursor);
        cursors.for_each(|next| next.due_at = next.due_at.max(next.scheduled_at));
        reply
    }
}

/// Loses what follows the ends of runs.
pub(crate) struct LosesTheOutbox;
impl Defect for LosesTheOutbox {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let reply = step.apply();
        let chains = step.record.iter_mut().filter_map(|record| record.chain.as_deref_mut());
        if matches!(step.operation.action, Action::Complete { .. } | Action::Reap) {
            chains.for_each(|chain| chain.outbox.clear());
        }
        reply
    }
}

/// Does not keep which follow-up it has received last.
pub(crate) struct ForgetsWhatItReceived;
impl Defect for ForgetsWhatItReceived {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let reply = step.apply();
        let chains = step.record.iter_mut().filter_map(|record| record.chain.as_deref_mut());
        chains.for_each(|chain| chain.received = None);
        reply
    }
}

/// Never forgets a trigger.
pub(crate) struct RemembersTriggersForEver;
impl Defect for RemembersTriggersForEver {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let reply = step.apply();
        for remembered in step.record.iter_mut().flat_map(|record| &mut record.remembered) {
            remembered.until = end_of_time();
        }
        reply
    }
}

/// An extension sets the end of the lease, even to an earlier time.
pub(crate) struct ShrinksLeases;
impl Defect for ShrinksLeases {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        if let (Action::Extend { fence, duration }, Some(record)) =
            (&step.operation.action, &mut *step.record)
        {
            let until = whole_millis(saturating_add(step.context.now, *duration));
            let mine = record.leases.iter_mut().filter(|lease| lease.fence == *fence);
            mine.for_each(|lease| lease.until = until);
        }
        step.apply()
    }
}

/// Rejects an end because the lease is over, though no other claim has taken over.
pub(crate) struct TrustsTheClock;
impl Defect for TrustsTheClock {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let (fence, now) = (fence_of(&step.operation.action), step.context.now);
        let is_over = |lease: &Lease| Some(lease.fence) == fence && lease.until <= now;
        match &step.record {
            Some(record) if record.leases.iter().any(is_over) => Ok(Reply::LeaseLost),
            _ => step.apply(),
        }
    }
}

/// A crashed at-most-once run counts as running for ever.
pub(crate) struct LeasesAtMostOnceNeverEnd;
impl Defect for LeasesAtMostOnceNeverEnd {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let leases = step.record.as_ref().map(|record| &*record.leases).unwrap_or_default();
        let is_repeated = claim_of(step)
            .is_some_and(|claim| leases.iter().any(|lease| lease.claim_id == claim.claim_id));
        if is_repeated || fence_of(&step.operation.action).is_some() {
            return step.apply();
        }
        let now = step.context.now;
        let late = now + TimeDelta::milliseconds(1);
        let mut ends = Vec::new();
        for lease in step.record.iter_mut().flat_map(|record| &mut record.leases) {
            if lease.on_expiry == OnExpiry::Lost && lease.until <= now {
                ends.push((lease.fence, lease.until));
                lease.until = late;
            }
        }
        let reply = step.apply();
        for lease in step.record.iter_mut().flat_map(|record| &mut record.leases) {
            if let Some((_, until)) = ends.iter().find(|(fence, _)| *fence == lease.fence) {
                lease.until = *until;
            }
        }
        match reply {
            Ok(Reply::State(_)) => step.read(),
            reply => reply,
        }
    }
}

/// A collation that ignores case.
pub(crate) struct MergesCase;
impl Defect for MergesCase {
    fn key(name: &str) -> String {
        name.to_lowercase()
    }
}

/// Grants what is offered, whatever happened since the node has read it.
pub(crate) struct IgnoresTheFence;
impl Defect for IgnoresTheFence {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        match (claim_of(step), &step.record) {
            (Some(mut claim), Some(record)) => {
                claim.fence = record.fence;
                step.apply_instead(Action::Claim(claim))
            }
            _ => step.apply(),
        }
    }
}

/// An old build wins its definition back.
pub(crate) struct IgnoresTheVersion;
impl Defect for IgnoresTheVersion {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        if let (Action::Redefine { version, .. }, Some(record)) =
            (&step.operation.action, &mut *step.record)
        {
            record.version = record.version.min(*version);
        }
        step.apply()
    }
}

/// Moves the cursor by a plan that was made before an occurrence was claimed.
pub(crate) struct IgnoresThePlansCursor;
impl Defect for IgnoresThePlansCursor {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let action = step.operation.action.clone();
        match (action, &step.record) {
            (Action::Redefine { generation, definition, version, mut plan }, Some(record)) => {
                plan.expected = record.cursor.map(|next| next.scheduled_at);
                step.apply_instead(Action::Redefine { generation, definition, version, plan })
            }
            _ => step.apply(),
        }
    }
}

/// Does not store claim ids.
pub(crate) struct IgnoresTheClaimId;
impl Defect for IgnoresTheClaimId {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let reply = step.apply();
        for lease in step.record.iter_mut().flat_map(|record| &mut record.leases) {
            lease.claim_id = u128::MAX / 3;
        }
        reply
    }
}

/// Stores claim ids in 64 bits.
pub(crate) struct CutsTheClaimId;
impl Defect for CutsTheClaimId {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let Some(mut claim) = claim_of(step) else { return step.apply() };
        claim.claim_id &= u128::from(u64::MAX);
        step.apply_instead(Action::Claim(claim))
    }
}

/// Believes whatever a job's `next_at` returns.
pub(crate) struct MovesTheCursorBack;
impl Defect for MovesTheCursorBack {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        if let Some(mut claim) = claim_of(step)
            && claim.lease.on_expiry == OnExpiry::Lost
            && let Cursor::To(Some(next)) = claim.then
            && next.scheduled_at <= claim.start.scheduled_at
        {
            claim.then = Cursor::To(None);
            let reply = step.apply_instead(Action::Claim(claim));
            if let (Ok(Reply::Claimed(_)), Some(record)) = (&reply, &mut *step.record) {
                record.cursor = Some(next);
            }
            return reply;
        }
        step.apply()
    }
}

/// Replies in the order in which the rows came back.
pub(crate) struct RepliesOutOfOrder;
impl Defect for RepliesOutOfOrder {
    fn replies(mut replies: Vec<Result<Reply>>) -> Vec<Result<Reply>> {
        replies.reverse();
        replies
    }
}

/// Advances the cursor, and records nothing.
pub(crate) struct AdvancesWithoutARecord;
impl Defect for AdvancesWithoutARecord {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let Action::Advance(_) = &step.operation.action else { return step.apply() };
        let before = step.record.as_ref().map(|record| record.counters);
        let mut off = HistoryBuffer::off();
        let Step { record, operation, context, .. } = &mut *step;
        let silent = &mut Step { record, operation, context: *context, history: &mut off };
        silent.apply()?;
        if let (Some(before), Some(record)) = (before, &mut *step.record) {
            record.counters = before;
        }
        step.read()
    }
}

/// Takes over while the lease lasts.
pub(crate) struct IgnoresLeases;
impl Defect for IgnoresLeases {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        if let (Some(claim), Some(record)) = (claim_of(step), &mut *step.record)
            && record.leases.iter().all(|lease| lease.claim_id != claim.claim_id)
        {
            for lease in &mut record.leases {
                if lease.on_expiry == OnExpiry::Retry {
                    lease.until = lease.until.min(step.context.now);
                }
            }
        }
        step.apply()
    }
}

/// Starts exclusive runs beside others.
pub(crate) struct IgnoresExclusiveRuns;
impl Defect for IgnoresExclusiveRuns {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let Some(mut claim) = claim_of(step) else { return step.apply() };
        claim.lease.sharing = Sharing::Shared;
        step.apply_instead(Action::Claim(claim))
    }
}

/// Keeps data as text that ends at the first NUL.
pub(crate) struct EndsDataAtNul;
impl Defect for EndsDataAtNul {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let reply = step.apply()?;
        match (&step.operation.action, &mut *step.record) {
            (Action::Create(_), Some(record)) => {
                let end = record.data.iter().position(|byte| *byte == 0);
                record.data.truncate(end.unwrap_or(usize::MAX));
                step.read()
            }
            _ => Ok(reply),
        }
    }
}

/// Keeps times in whole seconds.
pub(crate) struct CutsInstants;
impl Defect for CutsInstants {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let cut = |next: NextRun| NextRun {
            scheduled_at: next.scheduled_at.trunc_subsecs(0),
            due_at: next.due_at.trunc_subsecs(0),
        };
        match &step.operation.action {
            Action::Register { definition, version, first } => {
                let first = first.map(cut);
                step.apply_instead(Action::Register { definition, version: *version, first })
            }
            _ => step.apply(),
        }
    }
}

/// A pause is shown, and holds back nothing.
pub(crate) struct IgnoresThePause;
impl Defect for IgnoresThePause {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let moves = matches!(step.operation.action, Action::Claim(_) | Action::Advance(_));
        let pause = step.record.as_mut().filter(|_| moves).and_then(|record| record.paused.take());
        let reply = step.apply();
        if let (Some(pause), Some(record)) = (pause, &mut *step.record) {
            record.paused = Some(pause);
        }
        match reply {
            Ok(Reply::State(_)) => step.read(),
            reply => reply,
        }
    }
}

/// The failures in a row are counted, and the job goes on.
pub(crate) struct IgnoresTheBreaker;
impl Defect for IgnoresTheBreaker {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let was_paused = step.record.as_ref().is_some_and(|record| record.paused.is_some());
        let reply = step.apply();
        let by_itself = |record: &&mut Record| {
            !was_paused && record.streak.as_ref().is_some_and(|streak| streak.has_paused)
        };
        if let Some(record) = step.record.as_mut().filter(by_itself) {
            record.paused = None;
        }
        reply
    }
}

/// The failures in a row are not kept.
pub(crate) struct ForgetsTheStreak;
impl Defect for ForgetsTheStreak {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let reply = step.apply();
        if let Some(record) = step.record {
            record.streak = None;
        }
        reply
    }
}

/// A pause lasts until it is ended by hand.
pub(crate) struct ForgetsTheEndOfThePause;
impl Defect for ForgetsTheEndOfThePause {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        match &step.operation.action {
            Action::Pause { note, .. } => step.apply_instead(Action::Pause { note, until: None }),
            _ => step.apply(),
        }
    }
}

/// A pause that has ended comes back when the clock is set back, or is shown for ever.
pub(crate) struct KeepsEndedPauses;
impl Defect for KeepsEndedPauses {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let before = step.record.as_ref().and_then(|record| record.paused.clone());
        let reply = step.apply();
        let is_other = matches!(step.operation.action, Action::Pause { .. } | Action::Resume);
        if let Some(record) = step.record.as_mut().filter(|record| record.is_live() && !is_other) {
            record.paused = record.paused.take().or(before);
        }
        reply
    }
}

/// `<=` where `<` is meant, in the query of what is due.
pub(crate) struct FindsTooMuch;
impl Defect for FindsTooMuch {
    fn query(mut query: DueQuery<'_>) -> DueQuery<'_> {
        query.until += TimeDelta::milliseconds(1);
        query
    }
}

/// A query for the node's own schedules does not find all others beside them.
pub(crate) struct HidesOthers;
impl Defect for HidesOthers {
    fn query(query: DueQuery<'_>) -> DueQuery<'_> {
        if query.preferred.is_some() { query.skipping(1) } else { query }
    }
}

/// The last first, where names are listed in order.
pub(crate) struct ListsBackwards;
impl Defect for ListsBackwards {
    fn listed(mut states: Vec<JobState>) -> Vec<JobState> {
        states.reverse();
        states
    }
}

/// Every attempt is the first.
pub(crate) struct ForgetsAttempts;
impl Defect for ForgetsAttempts {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let reply = step.apply();
        for retry in step.record.iter_mut().flat_map(|record| &mut record.retries) {
            retry.attempts = 0;
        }
        reply
    }
}

/// The history has no outcomes.
pub(crate) struct ForgetsOutcomes;
impl Defect for ForgetsOutcomes {
    fn entries(mut entries: Vec<HistoryEntry>) -> Vec<HistoryEntry> {
        for entry in entries.iter_mut().filter(|entry| entry.attempt > 0) {
            entry.outcome = Outcome::Running;
        }
        entries
    }
}

/// The history has one time for each entry.
pub(crate) struct ForgetsWhenRunsStarted;
impl Defect for ForgetsWhenRunsStarted {
    fn entries(mut entries: Vec<HistoryEntry>) -> Vec<HistoryEntry> {
        for entry in &mut entries {
            entry.ended_at = entry.ended_at.or(entry.started_at);
            entry.started_at = entry.ended_at;
        }
        entries
    }
}

/// A page of the history begins at the next lower fence.
pub(crate) struct PagesByFence;
impl Defect for PagesByFence {
    fn history_cursor(before: Option<&HistoryCursor>) -> Option<HistoryCursor> {
        before.map(|before| HistoryCursor { name: String::new(), ..before.clone() })
    }
}

/// The history of an owner has the entries of all jobs.
pub(crate) struct IgnoresTheOwner;
impl Defect for IgnoresTheOwner {
    fn history_query(mut query: HistoryQuery<'_>) -> HistoryQuery<'_> {
        query.owner = None;
        query
    }
}

/// Keeps the newest entries of all jobs together.
pub(crate) struct EvictsTheOldestOfAll;
impl Defect for EvictsTheOldestOfAll {
    fn prune(model: &mut ReferenceModel, limits: &HistoryLimits, _: Time) {
        let newest = usize::try_from(limits.per_job.unwrap_or(1_000)).unwrap();
        let newest = model.entries(HistoryQuery::new(newest));
        model.retain_history(|entry| newest.contains(entry));
    }
}

/// Removes failures as other entries.
pub(crate) struct ForgetsFailures;
impl Defect for ForgetsFailures {
    fn prune(model: &mut ReferenceModel, limits: &HistoryLimits, now: Time) {
        model.prune_history(limits, now);
        let all = model.entries(HistoryQuery::new(usize::MAX));
        let newer = |entry: &HistoryEntry| {
            all.iter().filter(|other| other.name == entry.name && other.fence > entry.fence).count()
        };
        let per_job = usize::try_from(limits.per_job.unwrap_or(1_000)).unwrap();
        model.retain_history(|entry| !entry.outcome.is_failure() || newer(entry) < per_job);
    }
}

/// Removes the entry of a run that was taken for lost with the failures.
pub(crate) struct CountsWhatSucceededAsLost;
impl Defect for CountsWhatSucceededAsLost {
    fn prune(model: &mut ReferenceModel, limits: &HistoryLimits, now: Time) {
        model.prune_history(limits, now);
        if limits.failures_per_job == Some(1) {
            model.retain_history(|entry| entry.outcome.is_failure());
        }
    }
}

/// Keeps successes although the limits leave them out.
pub(crate) struct KeepsSuccesses;
impl Defect for KeepsSuccesses {
    fn leaves_successes_out() -> bool {
        false
    }
}

/// Keeps entries however old they are.
pub(crate) struct IgnoresTheAge;
impl Defect for IgnoresTheAge {
    fn prune(model: &mut ReferenceModel, limits: &HistoryLimits, now: Time) {
        let century = Duration::from_secs(100 * 365 * 86_400);
        model.prune_history(&limits.age(century).failure_age(century), now);
    }
}

/// Removes active runs with the history.
pub(crate) struct ForgetsActiveRuns;
impl Defect for ForgetsActiveRuns {
    fn prune(model: &mut ReferenceModel, limits: &HistoryLimits, now: Time) {
        model.prune_history(limits, now);
        model.with("job", |record, _| record.iter_mut().for_each(|job| job.leases.clear()));
    }
}

/// Notifies no node.
pub(crate) struct NeverNotifies;
impl Defect for NeverNotifies {
    fn notifies() -> bool {
        false
    }
}

/// Has one kind.
pub(crate) struct ForgetsKinds;
impl Defect for ForgetsKinds {
    fn kinds(mut kinds: Vec<String>) -> Vec<String> {
        kinds.truncate(1);
        kinds
    }
}

/// Keeps no dead letters.
pub(crate) struct ForgetsDeadLetters;
impl Defect for ForgetsDeadLetters {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let reply = step.apply();
        if fence_of(&step.operation.action).is_some() {
            step.record.iter_mut().for_each(|record| record.dead.clear());
        }
        reply
    }
}

/// Keeps the runs of a job that is reset.
pub(crate) struct KeepsRunsAtReset;
impl Defect for KeepsRunsAtReset {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let leases = step.record.as_ref().map(|record| record.leases.clone());
        let reply = step.apply();
        if let (Action::Reset { .. }, Some(record)) = (&step.operation.action, &mut *step.record) {
            record.leases = leases.unwrap_or_default();
        }
        reply
    }
}

/// Does not store that a cancellation was requested.
pub(crate) struct ForgetsCancellations;
impl Defect for ForgetsCancellations {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let reply = step.apply();
        for lease in step.record.iter_mut().flat_map(|record| &mut record.leases) {
            lease.cancel_requested = false;
        }
        reply
    }
}

/// Cancels active runs only.
pub(crate) struct KeepsWhatWaits;
impl Defect for KeepsWhatWaits {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        if !matches!(step.operation.action, Action::Cancel(_)) {
            return step.apply();
        }
        let waiting = |record: &mut Record| (take(&mut record.retries), take(&mut record.triggers));
        let waiting = step.record.as_mut().map(waiting);
        let reply = step.apply();
        if let (Some(waiting), Some(record)) = (waiting, &mut *step.record) {
            (record.retries, record.triggers) = waiting;
        }
        match reply {
            Ok(Reply::State(_)) => step.read(),
            reply => reply,
        }
    }
}

/// Does not store which occurrence replaces a run.
pub(crate) struct ForgetsReplacements;
impl Defect for ForgetsReplacements {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let reply = step.apply();
        for lease in step.record.iter_mut().flat_map(|record| &mut record.leases) {
            lease.replaced_by = None;
        }
        reply
    }
}

/// Extends and ends runs by a fast path that does not see the request of a cancellation.
pub(crate) struct ExtendsWithoutAWord;
impl Defect for ExtendsWithoutAWord {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        if fence_of(&step.operation.action).is_none() {
            return step.apply();
        }
        let mut requested = Vec::new();
        for lease in step.record.iter_mut().flat_map(|record| &mut record.leases) {
            if std::mem::take(&mut lease.cancel_requested) {
                requested.push(lease.fence);
            }
        }
        let reply = step.apply();
        for lease in step.record.iter_mut().flat_map(|record| &mut record.leases) {
            lease.cancel_requested = requested.contains(&lease.fence);
        }
        reply
    }
}

/// Keeps no leases in tombstones.
pub(crate) struct ForgetsRunsOfTheDeleted;
impl Defect for ForgetsRunsOfTheDeleted {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let reply = step.apply();
        if let Some(record) = step.record.as_mut().filter(|record| record.deleted_at.is_some()) {
            record.leases.clear();
        }
        reply
    }
}

/// Writes entries without the output.
pub(crate) struct ForgetsOutputs;
impl Defect for ForgetsOutputs {
    fn entries(mut entries: Vec<HistoryEntry>) -> Vec<HistoryEntry> {
        entries.iter_mut().for_each(|entry| entry.output = None);
        entries
    }
}

/// Writes entries without the value.
pub(crate) struct ForgetsValues;
impl Defect for ForgetsValues {
    fn entries(mut entries: Vec<HistoryEntry>) -> Vec<HistoryEntry> {
        entries.iter_mut().for_each(|entry| entry.value = None);
        entries
    }
}

/// Creates imported schedules as new ones.
pub(crate) struct BeginsAnew;
impl Defect for BeginsAnew {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        match step.operation.action {
            Action::Create(new) => {
                step.apply_instead(Action::Create(new.progress(ImportedProgress::default())))
            }
            _ => step.apply(),
        }
    }
}

/// Ignores the kind of an edit.
pub(crate) struct KeepsTheKind;
impl Defect for KeepsTheKind {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let kind = step.record.as_ref().map(|record| record.kind.clone());
        let reply = step.apply()?;
        match (&step.operation.action, kind, &mut *step.record) {
            (Action::Modify(_), Some(kind), Some(record)) => {
                record.kind = kind;
                step.read()
            }
            _ => Ok(reply),
        }
    }
}

/// Keeps records in the memory of its process.
pub(crate) struct KeepsNothing;
impl Defect for KeepsNothing {
    fn is_durable() -> bool {
        false
    }
}

/// Takes the records of an emptied store for deleted jobs.
pub(crate) struct TakesEmptiedForDeleted;
impl Defect for TakesEmptiedForDeleted {
    fn min_fence_when_emptied(now: i64) -> i64 {
        now + 1
    }
}

/// A query that is repeated claims, as if it had not been asked before.
pub(crate) struct ForgetsItsQueries;
impl Defect for ForgetsItsQueries {
    fn claim_query(mut query: ClaimDue<'_>) -> ClaimDue<'_> {
        query.is_repeated = false;
        query
    }
}

/// A query claims whatever is due, with or without a plan.
pub(crate) struct ClaimsWithoutAPlan;
impl Defect for ClaimsWithoutAPlan {
    fn due_claim(state: &JobState, claim_id: u128) -> Option<Claim> {
        let (head, lease) = (state.head.clone()?, Duration::from_secs(60));
        Some(Claim::at_least_once(claim_id, state.fence, head, lease))
    }
}

/// Grants one place of a concurrency key more than the limit.
pub(crate) struct CountsKeysFromZero;
impl Defect for CountsKeysFromZero {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        match step.operation.action {
            Action::ClaimKey(mut claim) => {
                claim.limit += 1;
                step.apply_instead(Action::ClaimKey(claim))
            }
            _ => step.apply(),
        }
    }
}

/// Stores no queue of a concurrency key: the first that asks has the next place.
pub(crate) struct ForgetsTheQueue;
impl Defect for ForgetsTheQueue {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let reply = step.apply();
        if let Some(record) = &mut *step.record {
            record.waiters.clear();
        }
        reply
    }
}

/// Accepts the release of a place, and keeps it.
pub(crate) struct KeepsReleasedKeys;
impl Defect for KeepsReleasedKeys {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let before = step.record.clone();
        let reply = step.apply();
        if matches!(step.operation.action, Action::ReleaseKey { .. }) {
            *step.record = before;
        }
        reply
    }
}

/// Never removes the flag of a job that has failed.
pub(crate) struct FailsForEver;
impl Defect for FailsForEver {
    fn has_flag(flag: Flag<'_>, state: &JobState, now: Time) -> bool {
        flag.holds(state, now) || (flag == Flag::Failing && state.counters.failed > 0)
    }
}

/// Counts the jobs of all names, whichever are asked for.
pub(crate) struct CountsAllNames;
impl Defect for CountsAllNames {
    fn counted_prefix(_: &str) -> &str {
        ""
    }
}

/// Keeps the places of a concurrency key whose holders are silent.
pub(crate) struct KeysOfTheDeadStay;
impl Defect for KeysOfTheDeadStay {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        if let (Action::ClaimKey(claim), Some(record)) = (&step.operation.action, &mut *step.record)
        {
            let until = whole_millis(saturating_add(step.context.now, claim.duration));
            let over = record.leases.iter_mut().filter(|lease| lease.until <= step.context.now);
            over.for_each(|lease| lease.until = until);
        }
        step.apply()
    }
}

/// Grants a place of a key, or one in its queue, however late the claim comes.
pub(crate) struct GrantsKeysLate;
impl Defect for GrantsKeysLate {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        match step.operation.action {
            Action::ClaimKey(claim) => step.apply_instead(Action::ClaimKey(claim.not_after(None))),
            _ => step.apply(),
        }
    }
}

/// Takes every claim of a key for a new one.
pub(crate) struct IgnoresTheClaimIdOfAKey;
impl Defect for IgnoresTheClaimIdOfAKey {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        match step.operation.action {
            Action::ClaimKey(mut claim) => {
                let fence = step.record.as_ref().map_or(0, |record| record.fence);
                claim.claim_id ^= (fence as u128) << 64;
                step.apply_instead(Action::ClaimKey(claim))
            }
            _ => step.apply(),
        }
    }
}

/// Notes no change that was refused.
pub(crate) struct ForgetsRefusals;
impl Defect for ForgetsRefusals {
    fn changes(mut changes: Vec<Change>) -> Vec<Change> {
        changes.retain(|change| change.result.error().is_empty());
        changes
    }
}

/// Keeps of a change what the job became, and not what it was.
pub(crate) struct ForgetsWhatWas;
impl Defect for ForgetsWhatWas {
    fn changes(mut changes: Vec<Change>) -> Vec<Change> {
        changes.iter_mut().for_each(|change| change.before = None);
        changes
    }
}

/// Keeps all changes, however old or many they are.
pub(crate) struct KeepsAllChanges;
impl Defect for KeepsAllChanges {
    fn prune_changes(_: &mut ReferenceModel, _: &HistoryLimits, _: Time) {}
}

/// Removes changes long before they are a year old.
pub(crate) struct ForgetsChangesEarly;
impl Defect for ForgetsChangesEarly {
    fn prune_changes(model: &mut ReferenceModel, limits: &HistoryLimits, now: Time) {
        model.prune_changes(limits, now + Duration::from_secs(300 * 86_400));
    }
}

/// Shows the oldest change of a page first.
pub(crate) struct ShowsOldChangesFirst;
impl Defect for ShowsOldChangesFirst {
    fn changes(mut changes: Vec<Change>) -> Vec<Change> {
        changes.reverse();
        changes
    }
}

/// Changes the record in one step, and notes that in another, which fails for a deletion.
pub(crate) struct NotesInAnotherStep;
impl Defect for NotesInAnotherStep {
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        let Action::Delete = &step.operation.action else { return step.apply() };
        let reply = step.apply();
        step.history.take_changes();
        reply
    }
}
