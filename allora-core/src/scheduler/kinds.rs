//! The kinds of handlers, which change while the node runs.

use super::node::Node;
use crate::{
    error::Result, job::Placement, pattern::Pattern, planner::Input, run::Run, stored::Router,
};
use std::{
    mem,
    sync::{Arc, PoisonError},
};

impl Node {
    /// The code that runs stored schedules, with its present kinds.
    pub(crate) fn router(&self) -> Arc<Router> {
        self.router.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The handler of this id is for these kinds.
    pub(super) fn set_kinds(&self, id: &str, kinds: Vec<Pattern>) -> Result {
        let before = {
            let mut router = self.router.write().unwrap_or_else(PoisonError::into_inner);
            let Some(changed) = router.with_kinds(id, kinds)? else { return Ok(()) };
            let changed = Arc::new(changed);
            // Under the lock: the last change is the last input. It has no destructor of the user.
            let _ =
                self.shared().inboxes[Placement::OneNode].push(Input::Handlers(changed.clone()));
            mem::replace(&mut *router, changed)
        };
        drop(before);
        self.claimers[Placement::OneNode].notify();
        Ok(())
    }

    /// At most so many runs of the handler of this id are active at once.
    pub(super) fn set_kind_limit(&self, id: &str, runs: usize) -> Result {
        let limit = self.router().limit_of_named(id)?;
        let before = mem::replace(&mut self.shared().kind_limits[limit], runs);
        if runs > before {
            self.claimers[Placement::OneNode].notify();
        }
        Ok(())
    }

    /// `true` if the handler of this run is for its kind, as when it was claimed.
    pub(super) fn handles(&self, run: &Run) -> bool {
        run.handler().is_none_or(|handler| self.router().handler_of(run.kind()) == Some(handler))
    }
}
