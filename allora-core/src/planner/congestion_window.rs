//! The number of operations that one request may have.
//!
//! If the reply to a request does not come in time, the request may have been too large for the
//! store, which then discards all of it. So the number is halved, down to one. When full requests
//! are answered, it grows again: it doubles up to half of the number that was too large, and then
//! grows by one, as in TCP (V. Jacobson, "Congestion Avoidance and Control", 1988).

/// The largest number of operations in one request.
pub(super) const BATCH: usize = 1_000;

pub(super) struct CongestionWindow {
    size: usize,
    /// The size up to which it doubles.
    threshold: usize,
    /// The last request was lost.
    is_losing: bool,
}

impl Default for CongestionWindow {
    fn default() -> Self {
        Self { size: BATCH, threshold: BATCH, is_losing: false }
    }
}

impl CongestionWindow {
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// A request with this number of operations was answered.
    pub(super) fn answered(&mut self, operations: usize) {
        self.is_losing = false;
        if operations >= self.size {
            let grown = if self.size < self.threshold { self.size * 2 } else { self.size + 1 };
            self.size = grown.min(self.threshold.max(self.size + 1)).min(BATCH);
        }
    }

    /// A request was lost while this number of operations was on its way, with those of other requests.
    /// An outage loses many in a row, whatever their sizes: only the first of them shows what was too
    /// much. A single operation is never too much.
    pub(super) fn lost(&mut self, operations: usize) {
        if operations <= 1 && self.size > 1 {
            return;
        }
        self.size = (operations.min(self.size) / 2).max(1);
        if !std::mem::replace(&mut self.is_losing, true) {
            self.threshold = self.size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends full requests to a store that answers at most `serves` operations in time. Returns the
    /// sizes.
    fn sizes(window: &mut CongestionWindow, serves: usize, requests: usize) -> Vec<usize> {
        let request = |_| {
            let size = window.size();
            if size <= serves {
                window.answered(size)
            } else {
                window.lost(size)
            }
            size
        };
        (0..requests).map(request).collect()
    }

    #[test]
    fn a_request_that_times_out_shrinks_down_to_one_operation() {
        let mut window = CongestionWindow::default();
        assert_eq!(
            sizes(&mut window, 1, 12),
            [1000, 500, 250, 125, 62, 31, 15, 7, 3, 1, 2, 1],
            "it tries more only after an answer"
        );
    }

    #[test]
    fn a_slow_store_is_used_at_the_rate_it_can_serve() {
        for serves in [1, 3, 10, 100, 700] {
            let mut window = CongestionWindow::default();
            sizes(&mut window, serves, 20);
            let sizes = sizes(&mut window, serves, 1_000);
            let served: usize = sizes.iter().filter(|size| **size <= serves).sum();
            assert!(served * 2 >= serves * 1_000 / 2, "{served} of {}", serves * 1_000);
        }
    }

    #[test]
    fn after_an_outage_it_is_large_again_soon() {
        let mut window = CongestionWindow::default();
        sizes(&mut window, 0, 100);
        assert_eq!(window.size(), 1);
        sizes(&mut window, BATCH, 10);
        assert!(window.size() >= BATCH / 2, "{}", window.size());
    }

    #[test]
    fn small_requests_prove_nothing() {
        let mut window = CongestionWindow::default();
        window.lost(100);
        (0..100).for_each(|_| window.answered(3));
        assert_eq!(window.size(), 50);
    }
}
