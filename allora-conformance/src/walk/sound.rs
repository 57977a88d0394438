//! The invariants of records.

use allora_core::{
    backend::{Lease, Occurrence, OnExpiry, Sharing, Waiter},
    record::{MAX_LOST, Record},
};
use std::collections::BTreeSet;

/// The invariants of the record of a concurrency key, whose jobs have limits up to `largest_limit`.
pub(super) fn sound_key(record: &Record, largest_limit: u64) -> Result<(), String> {
    let are_few = record.leases.len() as u64 <= largest_limit;
    let grow = record.leases.windows(2).all(|pair| pair[0].fence < pair[1].fence);
    let below = record.leases.iter().all(|lease| lease.fence <= record.fence);
    let place = |waiter: &Waiter| (waiter.due_at, waiter.job.clone());
    let are_ordered = record.waiters.windows(2).all(|pair| place(&pair[0]) < place(&pair[1]));
    for (wrong, text) in [
        (!are_few, "more places than any limit"),
        (!grow || !below, "the fences of the places are not in order"),
        (!are_ordered, "the queue is not in order"),
    ] {
        if wrong {
            return Err(format!("  {text}: {record:?}"));
        }
    }
    Ok(())
}

/// The invariants of every record.
pub(super) fn sound(record: &Record) -> Result<(), String> {
    // Leases of a deleted job of this name have other occurrences, and a completed run is over.
    let leases = record.leases.iter().filter(|lease| lease.fence >= record.incarnation);
    let leases = leases.filter(|lease| !lease.completed);
    let lost = record.lost.iter();
    let is_kept = lost.len() <= MAX_LOST
        && lost
            .clone()
            .all(|lease| (lease.on_expiry, lease.sharing) == (OnExpiry::Lost, Sharing::Shared));
    let runs = leases.chain(lost).map(|lease| &lease.occurrence);
    let runs: Vec<&Occurrence> =
        runs.chain(record.retries.iter().map(|retry| &retry.occurrence)).collect();
    let unique = runs.iter().collect::<BTreeSet<_>>().len() == runs.len();
    // An attempt that was cancelled while it waited is a lease without a duration, beside another.
    let is_alone = |lease: &&Lease| {
        lease.on_expiry == OnExpiry::Retry
            && (lease.started_at < lease.until || !lease.cancel_requested)
    };
    let exclusive = record.leases.iter().filter(is_alone).count();
    let grow = record.leases.windows(2).all(|pair| pair[0].fence < pair[1].fence);
    let below = record.leases.iter().all(|lease| lease.fence <= record.fence);
    let cursor = record.cursor.map(|next| Occurrence::from(next.scheduled_at));
    let started = record.cursor.is_some_and(|next| record.last_started >= Some(next.scheduled_at));
    let stuck = started && cursor.is_some_and(|cursor| !runs.contains(&&cursor));
    for (wrong, text) in [
        (!unique, "an occurrence is leased, lost or waits twice"),
        (!is_kept, "a lost run is kept that is exclusive, or too many are"),
        (exclusive > 1, "two leases that are retried on expiry"),
        (!grow || !below, "the fences of the leases are not in order"),
        (stuck, "the cursor is on an occurrence that is neither leased nor offered"),
    ] {
        if wrong {
            return Err(format!("  {text}: {record:?}"));
        }
    }
    Ok(())
}
