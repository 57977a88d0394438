//! The sources of the claimer's wake-ups, as the metrics name them.

/// The source of a wake-up of the claimer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scheduler) enum WokenBy {
    /// A timer: something is due, or a wait is over.
    Timer,
    /// The timer of the poll.
    Poll,
    Notification,
    /// The reply to a search or to a request to prune.
    Reply,
    /// Another part of this node: a run has ended, or a job was added.
    Node,
}

impl WokenBy {
    pub(in crate::scheduler) fn word(self) -> &'static str {
        match self {
            WokenBy::Timer => "timer",
            WokenBy::Poll => "poll",
            WokenBy::Notification => "notification",
            WokenBy::Reply => "reply",
            WokenBy::Node => "node",
        }
    }
}
