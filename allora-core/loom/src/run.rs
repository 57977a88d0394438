//! A run, as far as threads share it.

#[expect(dead_code, reason = "no thread waits for the rest")]
#[path = "../../src/run/control.rs"]
mod control;

pub(crate) use control::Control;

impl Control {
    /// Waits as the code of a run does.
    pub(crate) async fn cancelled(&self) {
        self.reached(Self::is_cancelled).await;
    }

    pub(crate) async fn confirmed_twice(&self) {
        self.reached(|control| control.confirmed() >= 2).await;
    }
}
