//! The capacity of the node and of its limited handlers, and the jobs that are put aside until
//! their handler has capacity again.

use super::wake_up::WakeUp;
use std::collections::BTreeSet;

/// The number of further runs for which there is capacity.
#[derive(Clone, Debug, Default)]
pub(crate) struct Room {
    pub(crate) all: usize,
    /// Of each limited handler.
    pub(crate) kinds: Vec<KindRoom>,
}

/// The capacity of a limited handler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KindRoom {
    limit: usize,
    /// The number of further runs for which there is capacity.
    room: usize,
}

impl KindRoom {
    pub(crate) fn new(limit: usize, running: usize) -> Self {
        Self { limit, room: limit.saturating_sub(running) }
    }
}

/// The capacity of the node.
pub(super) struct Capacity {
    /// The most that unresolved requests reserve.
    most_unresolved: usize,
    /// The number of further runs for which there is capacity now, before reservations.
    room: usize,
    kinds: Vec<Kind>,
}

/// A limited handler.
#[derive(Default)]
struct Kind {
    limit: usize,
    /// The number of further runs for which it has capacity, less what is reserved.
    room: usize,
    /// The jobs that were due when it had none. Entries that their slot does not confirm are stale.
    aside: BTreeSet<WakeUp>,
}

impl Capacity {
    /// Unresolved requests reserve at most half of these numbers of runs; none of those of jobs that
    /// run on every node, of which half is left to the others.
    pub(super) fn new(runs: usize, is_every_node: bool) -> Self {
        let most_unresolved = if is_every_node { 0 } else { runs / 2 };
        Self { most_unresolved, room: usize::MAX, kinds: Vec::new() }
    }

    pub(super) fn set_room(&mut self, room: &Room) {
        self.room = room.all;
        self.kinds.resize_with(room.kinds.len(), Kind::default);
        for (kind, room) in self.kinds.iter_mut().zip(&room.kinds) {
            (kind.limit, kind.room) = (room.limit, room.room);
        }
    }

    /// The capacity of the node that these requests leave.
    pub(super) fn left(&self, reserved: Reserved) -> usize {
        self.room.saturating_sub(self.reserved(reserved))
    }

    /// The capacity that these requests reserve.
    pub(super) fn reserved(&self, requests: Reserved) -> usize {
        requests.within(self.most_unresolved)
    }

    /// The number of limited handlers.
    pub(super) fn kinds(&self) -> usize {
        self.kinds.len()
    }

    /// Reserves capacity of the limited handlers.
    pub(super) fn reserve_kinds(&mut self, requests: &[Reserved]) {
        for (kind, requests) in self.kinds.iter_mut().zip(requests) {
            kind.room = kind.room.saturating_sub(requests.within(kind.limit / 2));
        }
    }

    /// `true` if the node has capacity for more runs than this; and the handler, for more than that.
    pub(super) fn exceeds(&self, firm: usize, of_kind: Option<(usize, usize)>) -> bool {
        let exceeds =
            |(kind, firm): (usize, usize)| self.kinds.get(kind).is_none_or(|kind| kind.room > firm);
        self.room > firm && of_kind.is_none_or(exceeds)
    }

    /// A run of a limited handler, or of none, takes capacity.
    pub(super) fn take(&mut self, kind: Option<usize>) {
        self.room = self.room.saturating_sub(1);
        self.take_kind(kind);
    }

    /// A claim of a limited handler takes its capacity.
    pub(super) fn take_kind(&mut self, kind: Option<usize>) {
        if let Some(kind) = kind.and_then(|kind| self.kinds.get_mut(kind)) {
            kind.room = kind.room.saturating_sub(1);
        }
    }

    /// `true` for a limited handler that has capacity, or a handler without a limit.
    pub(super) fn has_kind_room(&self, kind: usize) -> bool {
        self.kinds.get(kind).is_none_or(|kind| kind.room > 0)
    }

    /// Puts a job aside. `before`: the wake-up with which it was put aside before.
    pub(super) fn put_aside(
        &mut self,
        kind: usize,
        wake_up: WakeUp,
        before: Option<WakeUp>,
    ) -> bool {
        let Some(kind) = self.kinds.get_mut(kind) else { return false };
        if let Some(before) = before {
            kind.aside.remove(&before);
        }
        kind.aside.insert(wake_up)
    }

    /// Takes back jobs that were put aside, if their handler has capacity. `takes_up`: looks at one
    /// again, if it still wants a run.
    pub(super) fn take_from_aside(&mut self, mut takes_up: impl FnMut(WakeUp) -> bool) {
        for kind in &mut self.kinds {
            let mut left = kind.room;
            while left > 0
                && let Some(wake_up) = kind.aside.pop_first()
            {
                left -= usize::from(takes_up(wake_up));
            }
        }
    }

    /// `true` if a limited handler has capacity, and jobs are aside.
    pub(super) fn has_aside(&self) -> bool {
        self.kinds.iter().any(|kind| kind.room > 0 && !kind.aside.is_empty())
    }

    /// The limited handlers that have no capacity for what is due, or run nothing at present. Their kinds
    /// need not be searched.
    pub(super) fn at_limit(&self) -> Vec<bool> {
        let is_at_limit = |kind: &Kind| kind.limit == 0 || kind.room == 0 && !kind.aside.is_empty();
        self.kinds.iter().map(is_at_limit).collect()
    }
}

/// A number of requests that reserve capacity.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reserved {
    /// They have a reply soon, or have won.
    pub(super) firm: usize,
    /// The reply to the last request was lost.
    pub(super) unresolved: usize,
}

impl Reserved {
    /// Adds one request.
    pub(super) fn add(&mut self, is_unresolved: bool) {
        *(if is_unresolved { &mut self.unresolved } else { &mut self.firm }) += 1;
    }

    /// The capacity that they reserve, if the unresolved ones have at most so much.
    fn within(self, most_unresolved: usize) -> usize {
        self.firm + self.unresolved.min(most_unresolved)
    }
}
