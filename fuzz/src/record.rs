//! Records and history entries as a hostile store would return them.

use allora_core::{
    backend::{Action, Claim, Completion, Cursor, NextRun, Operation, Sharing},
    record::{
        HistoryBuffer, OpContext, Record, apply,
        codec::{decode, decode_change, decode_entry, encode, encode_change, encode_entry},
    },
    time::from_millis,
};
use std::time::Duration;

/// A record, and each kind of operation on it.
pub(crate) fn record(data: &[u8]) {
    let Ok(record) = decode(data) else { return };
    is_kept(&record);
    record.head();
    // The time of the operations is one that the record may be about.
    let now = record.cursor.map_or(from_millis(1_767_225_600_000), |next| Some(next.due_at));
    let context = OpContext::new("node", now.expect("it is in range"));
    let head = record.head().map(|head| head.due_at);
    let fence = record.leases.first().map_or(record.fence, |lease| lease.fence);
    let duration = Duration::from_secs(60);
    let claim = record.cursor.map(|next: NextRun| {
        let (to, shared) = (Cursor::To(Some(next)), Sharing::Shared);
        Claim::at_most_once(7, record.fence, next.scheduled_at.into(), to, duration, shared)
    });
    let done = Operation::complete("job", fence, Cursor::Keep, Completion::Succeeded);
    let actions = [
        Action::Read,
        Action::Reap,
        Action::Resume,
        Action::Extend { fence, duration },
        Action::trigger("by hand"),
        Action::Delete,
    ];
    let operations = actions.map(|action| Operation::new("job", action)).into_iter();
    for operation in
        operations.chain([done]).chain(claim.map(|claim| Operation::claim("job", claim)))
    {
        let mut slot = Some(record.clone());
        if apply(&mut slot, &operation, context, &mut HistoryBuffer::off()).is_ok()
            && let Some(after) = &slot
        {
            is_kept(after);
        }
    }
    assert_eq!(record.head().map(|head| head.due_at), head);
}

/// The bytes of a record are read as the same record.
fn is_kept(record: &Record) {
    let bytes = encode(record);
    let again = decode(&bytes);
    assert_eq!(again.as_ref(), Ok(record), "{}", String::from_utf8_lossy(&bytes));
}

/// An entry of the history, and one of the record of changes.
pub(crate) fn entry(data: &[u8]) {
    if let Ok(entry) = decode_entry(data) {
        assert_eq!(decode_entry(&encode_entry(&entry)), Ok(entry));
    }
    if let Ok(change) = decode_change(data) {
        assert_eq!(decode_change(&encode_change(&change)), Ok(change));
    }
}
