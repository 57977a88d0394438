//! The queries that find due stored schedules and claim them in one step. They are on their way
//! next to the other requests of the claimer.
//!
//! If nodes queried at the same time, each would read the rows that another one has locked. So the
//! nodes with the same kinds and labels query one after the other, in their order for the instant.
//! If the reply to a query is lost, the query is repeated under its claim id, and so finds what it
//! has claimed. After five such repetitions it reserves no capacity any more, and what a later one
//! finds is released. A node with more than 16 kinds sends no such queries, because each kind is a
//! step of every query.

use super::unresolved::{Counted, resolve};
use crate::{
    backend::{ClaimDue, ClaimedDue, Queries, TimeSource},
    condition::StorePart,
    error::{Error, ErrorKind, Result},
    job::Placement,
    planner::{DueRequest, Release, completion_of},
    scheduler::{
        monotonic::later,
        node::Node,
        side_request::SideRequest,
        store_request::{MAX_BACKOFF, MIN_BACKOFF, within},
    },
    stored::Routed,
    time::{Time, saturating_add},
};
use futures::future::join_all;
use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

/// The operation's name in errors.
const OP: &str = "claim_due";

/// The number of repetitions that do not wait for other requests. What a query has claimed that is lost
/// more often is released, and claimed again.
const REPETITIONS: u32 = 5;

/// At most one query.
#[derive(Default)]
pub(in crate::scheduler) struct DueClaims {
    request: SideRequest<Reply>,
    /// The kinds of the last query, for its repetition.
    kinds: Vec<Arc<str>>,
}

/// The reply to a query.
pub(in crate::scheduler) struct Reply {
    pub(in crate::scheduler) result: Result<ClaimedDue>,
    /// An earlier reply was lost, and this one is to the repeated query.
    pub(in crate::scheduler) is_repeated: bool,
    /// The monotonic clock before the request.
    pub(in crate::scheduler) sent: Instant,
    /// The node's wall clock before the request.
    pub(in crate::scheduler) before: Time,
}

impl DueClaims {
    /// Sends a query for these kinds.
    pub(in crate::scheduler) fn begin(
        &mut self,
        node: &Arc<Node>,
        request: DueRequest,
        kinds: Vec<Arc<str>>,
    ) {
        if !request.is_repeated {
            self.kinds = kinds;
        }
        let (node, kinds) = (node.clone(), self.kinds.clone());
        self.request.begin(async move { ask_again(&node, request, &kinds).await });
    }

    /// Ready if there is a reply to take.
    pub(in crate::scheduler) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.request.poll(cx)
    }

    /// The reply, if it has come.
    pub(in crate::scheduler) fn take(&mut self) -> Option<Reply> {
        self.request.take()
    }

    /// Repeats these queries of a stopping node until each has a reply, and releases what they have
    /// claimed. The first may be on its way.
    pub(in crate::scheduler) async fn resolve(self, node: &Node, asked: Vec<DueRequest>) {
        let Self { request, kinds } = self;
        let mut on_way = request.has_begun().then_some(request);
        let queries = asked.into_iter().map(|asked| {
            let on_way = on_way.take();
            resolve_query(node, asked, &kinds, on_way)
        });
        join_all(queries).await;
    }
}

/// Repeats a query until there is a reply, and releases what it has claimed. Until then its limit is
/// counted.
async fn resolve_query(
    node: &Node,
    asked: DueRequest,
    kinds: &[Arc<str>],
    on_way: Option<SideRequest<Reply>>,
) {
    let mut counted = Counted::of(Placement::OneNode);
    counted.set(node, asked.limit);
    let mut reply = None;
    if let Some(mut request) = on_way {
        poll_fn(|cx| request.poll(cx)).await;
        reply = request.take();
    }
    let (again, mut wait) = (DueRequest { is_repeated: true, ..asked }, MIN_BACKOFF);
    let claimed = loop {
        let Reply { result, is_repeated, .. } = match reply.take() {
            Some(reply) => reply,
            None => ask(node, again, kinds).await,
        };
        match result {
            Ok(due) => break due.claimed,
            // A query that was rejected at once has claimed nothing.
            Err(error) if error.kind() != ErrorKind::Unavailable && !is_repeated => {
                break Vec::new();
            }
            Err(error) => {
                node.store_failed(StorePart::Claims, &error);
                node.runtime.sleep_until(later(node.runtime.now(), wait)).await;
                wait = (wait * 2).min(MAX_BACKOFF);
            }
        }
    };
    let leased = claimed.into_iter().map(|(state, claimed)| {
        let (name, started): (Arc<str>, _) = (state.name.as_str().into(), state.counters.started);
        let then = match node.route(&state) {
            Routed::Here(spec) => completion_of(&name, &spec, &claimed.occurrence, started).ok(),
            _ => None,
        };
        Release::claimed(name, claimed.fence, then, None)
    });
    resolve(node, leased.collect(), counted).await;
}

/// Sends a query, and repeats it soon if its reply is lost: the leases of what it has claimed are
/// running.
async fn ask_again(node: &Node, mut request: DueRequest, kinds: &[Arc<str>]) -> Reply {
    let mut reply = ask(node, request, kinds).await;
    for _ in 0..REPETITIONS {
        match &reply.result {
            Err(error) if error.kind() == ErrorKind::Unavailable => {}
            _ => break,
        }
        node.runtime.sleep_until(later(node.runtime.now(), MIN_BACKOFF)).await;
        request.is_repeated = true;
        reply = ask(node, request, kinds).await;
    }
    reply
}

async fn ask(node: &Node, request: DueRequest, kinds: &[Arc<str>]) -> Reply {
    let (sent, before) = (node.runtime.now(), node.runtime.wall());
    let kinds: Vec<&str> = kinds.iter().map(|kind| &**kind).collect();
    let DueRequest { claim_id, limit, is_repeated } = request;
    let mut query = ClaimDue::new(&node.id, claim_id, &kinds, limit);
    query.is_repeated = is_repeated;
    query.not_after = Some(saturating_add(node.now(&node.shared()), node.config.store_timeout));
    let time = TimeSource::Store { fallback: before };
    let result = within(node, OP, claim_due(node.backend.queries(), query, time)).await;
    Reply { result, is_repeated, sent, before }
}

async fn claim_due(
    queries: Option<&dyn Queries>,
    query: ClaimDue<'_>,
    time: TimeSource,
) -> Result<ClaimedDue> {
    match queries {
        Some(queries) => queries.claim_due(query, time).await,
        None => Err(Error::new(ErrorKind::Unsupported, "the store has no queries")),
    }
}
