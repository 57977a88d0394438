//! The ids of this node's claims. They never repeat: they count up from a random number of 128 bits.

pub(super) struct ClaimIds {
    first: u128,
    next: u128,
}

impl ClaimIds {
    pub(super) fn from_random(first: u128) -> Self {
        Self { first, next: first }
    }

    /// The id that is drawn next.
    pub(super) fn next(&self) -> u128 {
        self.next
    }

    pub(super) fn draw(&mut self) -> u128 {
        let drawn = self.next;
        self.next = drawn.wrapping_add(1);
        drawn
    }

    /// `true` if this node has drawn the id.
    pub(super) fn is_own(&self, id: u128) -> bool {
        id.wrapping_sub(self.first) < self.next.wrapping_sub(self.first)
    }
}
