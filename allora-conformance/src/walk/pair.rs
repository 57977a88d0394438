//! The store's and the reference's answers to the same request, and their comparison.

use allora_core::{
    ErrorKind, Time,
    backend::{Applied, Chain, Due, HistoryEntry, JobState, Reply},
    record::Change,
};

/// An answer, from either side.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Observed {
    Replies(Time, Vec<Result<Reply, ErrorKind>>),
    Due(Time, Vec<JobState>, Option<Time>),
    States(Vec<JobState>),
    History(Vec<HistoryEntry>),
    Changes(Vec<Change>),
}

/// The parts that the comparison includes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exactness {
    /// True if fences, generations and incarnations are compared.
    pub(super) fences: bool,
    /// True if the ends of leases are compared.
    pub(super) lease_ends: bool,
}

impl From<Applied> for Observed {
    fn from(applied: Applied) -> Self {
        let replies = applied.replies.into_iter().map(|reply| reply.map_err(|error| error.kind()));
        Observed::Replies(applied.now, replies.collect())
    }
}

impl From<Due> for Observed {
    fn from(due: Due) -> Self {
        Observed::Due(due.now, due.found, due.next_due)
    }
}

impl Exactness {
    fn blank(self, observed: &mut Observed) {
        match observed {
            Observed::Replies(_, replies) => {
                replies.iter_mut().flatten().for_each(|reply| self.blank_reply(reply));
            }
            Observed::Due(_, states, _) => {
                states.iter_mut().for_each(|state| self.blank_state(state));
                states.iter_mut().for_each(|state| state.dead.clear());
            }
            Observed::States(states) => {
                states.iter_mut().for_each(|state| self.blank_state(state));
            }
            Observed::History(entries) if !self.fences => {
                entries.iter_mut().for_each(|entry| entry.fence = 0);
            }
            Observed::Changes(changes) if !self.fences => {
                changes.iter_mut().for_each(blank_change);
            }
            Observed::History(_) | Observed::Changes(_) => {}
        }
    }

    fn blank_reply(self, reply: &mut Reply) {
        match reply {
            Reply::Claimed(claimed) => {
                if !self.fences {
                    (claimed.fence, claimed.incarnation) = (0, 0);
                }
                if !self.lease_ends {
                    claimed.until = Time::UNIX_EPOCH;
                }
            }
            Reply::Extended(until) | Reply::Completed(until) | Reply::CancelRequested(until)
                if !self.lease_ends =>
            {
                *until = Time::UNIX_EPOCH;
            }
            Reply::State(state) => self.blank_state(state),
            Reply::Outbox(chain) if !self.fences => blank_chain(chain),
            Reply::Triggered(triggered) => self.blank_state(&mut triggered.state),
            _ => {}
        }
    }

    fn blank_state(self, state: &mut JobState) {
        if !self.fences {
            (state.fence, state.generation, state.incarnation) = (0, 0, 0);
        }
        if let Some(chain) = state.chain.as_deref_mut().filter(|_| !self.fences) {
            blank_chain(chain);
        }
        for lease in &mut state.leases {
            if !self.fences {
                lease.fence = 0;
            }
            if !self.lease_ends {
                lease.until = Time::UNIX_EPOCH;
            }
        }
    }
}

/// Ids have the incarnation.
fn blank_chain(chain: &mut Chain) {
    chain.number = 0;
    for follow_up in &mut chain.outbox {
        follow_up.number = 0;
        follow_up.id.clear();
    }
}

fn blank_change(change: &mut Change) {
    change.sequence = 0;
    if change.detail.starts_with("run ") {
        change.detail.clear();
    }
    for record in [&mut change.before, &mut change.after].into_iter().flatten() {
        (record.fence, record.generation, record.incarnation) = (0, 0, 0);
    }
}

/// Compares, as exactly as the store allows.
pub(super) fn same(
    store: impl Into<Observed>,
    reference: impl Into<Observed>,
    exactness: Exactness,
) -> Result<(), String> {
    let (mut store, mut reference) = (store.into(), reference.into());
    exactness.blank(&mut store);
    exactness.blank(&mut reference);
    if store == reference {
        return Ok(());
    }
    Err(format!("  the store's answer      {store:?}\n  the reference's answer  {reference:?}"))
}
