//! The capacity of the node, and a number of requests that reserve some of it.

/// The capacity of the node.
#[derive(Debug)]
pub(super) struct Capacity {
    /// The most that unresolved requests reserve.
    pub(super) most_unresolved: usize,
    /// The limits of the limited handlers.
    pub(super) kind_limits: Vec<usize>,
    /// The number of further runs for which there is capacity now, before reservations; and of each
    /// limited handler.
    pub(super) room: usize,
    pub(super) kind_room: Vec<usize>,
}

impl Default for Capacity {
    fn default() -> Self {
        let (most_unresolved, room) = (usize::MAX, usize::MAX);
        Self { most_unresolved, kind_limits: Vec::new(), room, kind_room: Vec::new() }
    }
}

impl Capacity {
    /// A run of a limited handler, or of none, takes capacity.
    pub(super) fn take(&mut self, kind: Option<usize>) {
        self.room = self.room.saturating_sub(1);
        if let Some(room) = kind.and_then(|kind| self.kind_room.get_mut(kind)) {
            *room = room.saturating_sub(1);
        }
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
    /// The capacity that they reserve, if the unresolved ones have at most so much.
    pub(super) fn within(self, most_unresolved: usize) -> usize {
        self.firm + self.unresolved.min(most_unresolved)
    }
}
