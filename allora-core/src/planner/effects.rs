//! The effects of the planner's machines: events for its next output, and releases for its next
//! requests.

use super::release::Release;
use crate::event::Event;

#[derive(Default)]
pub(super) struct Effects {
    pub(super) events: Vec<Event>,
    /// Claims that are to be given back.
    pub(super) releases: Vec<Release>,
}
