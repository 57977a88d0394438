//! The queries that find due stored schedules and claim them in one step, beside the other requests.

use super::{
    monotonic::later,
    node::Node,
    side_request::SideRequest,
    store_health::Part,
    store_request::{MAX_BACKOFF, MIN_BACKOFF, within},
    unresolved::Counted,
};
use crate::{
    backend::{ClaimDue, ClaimedDue, Queries, TimeSource},
    error::{Error, ErrorKind, Result},
    planner::DueRequest,
    time::{Time, saturating_add},
};
use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

/// The operation's name in errors.
const OP: &str = "claim_due";

/// The number of repetitions that do not wait for other requests.
const REPETITIONS: u32 = 2;

/// At most one query.
#[derive(Default)]
pub(super) struct DueClaims {
    request: SideRequest<Reply>,
    /// The kinds of the last query, for its repetition.
    kinds: Vec<Arc<str>>,
}

/// The reply to a query.
pub(super) struct Reply {
    pub(super) result: Result<ClaimedDue>,
    /// An earlier reply was lost, and this one is to the repeated query.
    pub(super) is_repeated: bool,
    /// The monotonic clock before the request.
    pub(super) sent: Instant,
    /// The node's wall clock before the request.
    pub(super) before: Time,
}

impl DueClaims {
    /// Sends a query for these kinds.
    pub(super) fn begin(&mut self, node: &Arc<Node>, request: DueRequest, kinds: Vec<Arc<str>>) {
        if !request.is_repeated {
            self.kinds = kinds;
        }
        let (node, kinds) = (node.clone(), self.kinds.clone());
        self.request.begin(async move { ask_again(&node, request, &kinds).await });
    }

    /// Ready if there is a reply to take.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.request.poll(cx)
    }

    /// The reply, if it has come.
    pub(super) fn take(&mut self) -> Option<Reply> {
        self.request.take()
    }

    /// The claims of these queries of a stopping node, as names and fences. Each query is repeated until
    /// there is a reply. The first may be on its way. Until then its limit is counted.
    pub(super) async fn resolve(
        mut self,
        node: &Node,
        asked: Vec<DueRequest>,
        counted: &mut Counted,
    ) -> Vec<(Arc<str>, i64)> {
        let mut unknown: usize = asked.iter().map(|asked| asked.limit).sum();
        counted.set(node, unknown);
        let mut result = match self.request.has_begun() {
            true => {
                poll_fn(|cx| self.request.poll(cx)).await;
                self.request.take().map(|reply| reply.result)
            }
            false => None,
        };
        let (mut leased, mut wait) = (Vec::new(), MIN_BACKOFF);
        for asked in asked {
            let asked = DueRequest { is_repeated: true, ..asked };
            loop {
                match result.take() {
                    Some(Ok(due)) => {
                        let fences = due.claimed.into_iter();
                        leased
                            .extend(fences.map(|(job, claimed)| (job.name.into(), claimed.fence)));
                        break;
                    }
                    Some(Err(error)) if error.kind() != ErrorKind::Unavailable => break,
                    Some(Err(error)) => {
                        node.store_failed(Part::Claims, error);
                        node.runtime.sleep_until(later(node.runtime.now(), wait)).await;
                        wait = (wait * 2).min(MAX_BACKOFF);
                    }
                    None => {}
                }
                result = Some(ask(node, asked, &self.kinds).await.result);
            }
            unknown -= asked.limit;
            counted.set(node, unknown + leased.len());
        }
        leased
    }
}

/// Sends a query, and repeats it soon if its reply is lost: the leases of what it has claimed are running.
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
