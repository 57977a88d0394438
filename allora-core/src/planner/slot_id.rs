//! The place of a job in the planner, by which replies find it.

/// The place of a job in the planner. No two jobs ever have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SlotId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl SlotId {
    /// The first one in the order of places.
    pub(super) const FIRST: Self = Self { index: 0, generation: 0 };
}
