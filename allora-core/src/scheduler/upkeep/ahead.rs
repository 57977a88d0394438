//! Stored schedules that wait for a time which the store's clock left in their records while it was
//! ahead.
//!
//! While they wait, the planner has no slots for them. So the node lists them once, when the clock
//! is set back.

use crate::{
    backend::{JobState, Operation, Page, Reply},
    condition::{Code, Condition},
    error::Result,
    event::Event,
    job::ahead_until,
    scheduler::{
        node::Node,
        store_request::{send, within},
    },
    stored::Routed,
    time::{Time, whole_millis},
};
use std::{collections::BTreeSet, sync::Arc};

/// The number of records in one request.
const PAGE: usize = 1_000;

/// The reported schedules.
#[derive(Debug, Default)]
pub(in crate::scheduler) struct Ahead {
    names: BTreeSet<Arc<str>>,
}

impl Ahead {
    /// Reports the schedules of this node's kinds that wait, and their number.
    pub(in crate::scheduler) async fn find(&mut self, node: &Node) -> Result {
        let Some(queries) = node.backend.queries() else { return Ok(()) };
        let mut after: Option<String> = None;
        let (mut waiting, mut last) = (0, None);
        loop {
            let page = Page { after: after.as_deref(), ..Page::first(PAGE) };
            let states = within(node, "list", queries.list(page)).await?;
            let now = node.now(&node.shared());
            for state in &states {
                if let Some(until) = waits(node, state, now) {
                    waiting += 1;
                    last = last.max(Some(until));
                    let name: Arc<str> = state.name.as_str().into();
                    if self.names.insert(name.clone()) {
                        node.begin_condition(Condition::ClockWasAhead { job: name, until });
                    }
                }
            }
            match states.last().filter(|_| states.len() >= PAGE) {
                Some(state) => after = Some(state.name.clone()),
                None => {
                    let event = |until| Event::ClockWasSetBack { stored: true, waiting, until };
                    node.emit(last.map(event));
                    return Ok(());
                }
            }
        }
    }

    /// Reads the reported schedules again, and reports those that wait no more.
    pub(in crate::scheduler) async fn check(&mut self, node: &Node) -> Result {
        let names: Vec<_> = self.names.iter().cloned().collect();
        for names in names.chunks(PAGE) {
            let operations: Vec<_> = names.iter().map(|name| Operation::read(name)).collect();
            let applied = send(node, &operations).await?;
            let now = whole_millis(applied.now);
            for (name, reply) in names.iter().zip(applied.replies) {
                let waits = match reply? {
                    Reply::State(state) => waits(node, &state, now).is_some(),
                    _ => false,
                };
                if !waits {
                    self.names.remove(name);
                    node.end_condition(Code::ClockWasAhead, name);
                }
            }
        }
        Ok(())
    }
}

/// The time until which a stored schedule waits that this node runs.
fn waits(node: &Node, state: &JobState, now: Time) -> Option<Time> {
    match node.route(state) {
        Routed::Here(spec) => ahead_until(&state.name, &spec, state, now),
        Routed::Elsewhere | Routed::Broken(_) | Routed::Later => None,
    }
}
