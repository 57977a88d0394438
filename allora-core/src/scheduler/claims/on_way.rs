//! The requests of a claimer that are on their way.
//!
//! A request may contain a job whose shard or record hangs. So if it is not answered soon, the
//! claimer stops waiting for it and sends what is due next.

use super::driver::apply;
use crate::{
    backend::{Applied, TimeSource},
    error::Result,
    planner::{OnWay, Request},
    scheduler::{
        node::Node,
        store_request::{OP, within},
    },
    time::Time,
};
use futures::{
    StreamExt,
    future::{BoxFuture, FutureExt},
    stream::FuturesUnordered,
};
use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

/// The largest number of requests on their way, without those about jobs whose operations fail.
const MOST: usize = 8;

/// A request with its reply.
pub(in crate::scheduler) struct Answered {
    number: u64,
    pub(in crate::scheduler) requests: Vec<Request>,
    pub(in crate::scheduler) are_suspects: bool,
    /// The number of operations that were on their way when it was sent, with its own.
    pub(in crate::scheduler) load: usize,
    /// The time and the node's wall clock when it was sent.
    pub(in crate::scheduler) sent: Instant,
    pub(in crate::scheduler) before: Time,
    pub(in crate::scheduler) result: Result<Applied>,
}

#[derive(Default)]
pub(in crate::scheduler) struct Requests {
    on_way: FuturesUnordered<BoxFuture<'static, Answered>>,
    replies: Vec<Answered>,
    /// The number of the last request.
    last: u64,
    load: OnWay,
}

impl Requests {
    /// Sends a request. Returns its number.
    pub(in crate::scheduler) fn begin(
        &mut self,
        node: &Arc<Node>,
        requests: Vec<Request>,
        are_suspects: bool,
    ) -> u64 {
        self.last += 1;
        self.load = self.load.with(requests.len(), are_suspects);
        let (number, load) = (self.last, self.load.operations);
        let node = node.clone();
        let request = async move {
            let (sent, before) = (node.runtime.now(), node.runtime.wall());
            let time = TimeSource::Store { fallback: before };
            let call = apply(&node, &*node.backend, time, &requests);
            let result = within(&node, OP, call).await;
            Answered { number, requests, are_suspects, load, sent, before, result }
        };
        self.on_way.push(request.boxed());
        number
    }

    /// Ready if there are replies to take.
    pub(in crate::scheduler) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Poll::Ready(Some(answered)) = self.on_way.poll_next_unpin(cx) {
            self.load = self.load.without(answered.requests.len(), answered.are_suspects);
            self.replies.push(answered);
        }
        if self.has_reply() { Poll::Ready(()) } else { Poll::Pending }
    }

    pub(in crate::scheduler) fn take(&mut self) -> Vec<Answered> {
        std::mem::take(&mut self.replies)
    }

    /// `true` if there is a reply to the request of this number.
    pub(in crate::scheduler) fn is_answered(&self, number: u64) -> bool {
        self.replies.iter().any(|answered| answered.number == number)
    }

    /// `true` if there is a reply to take.
    pub(in crate::scheduler) fn has_reply(&self) -> bool {
        !self.replies.is_empty()
    }

    pub(in crate::scheduler) fn load(&self) -> OnWay {
        self.load
    }

    /// `true` if no other request may be sent.
    pub(in crate::scheduler) fn is_full(&self) -> bool {
        self.on_way.len() >= MOST + self.load.suspects
    }

    /// `true` if a request is on its way, or a reply is not taken.
    pub(in crate::scheduler) fn has_any(&self) -> bool {
        !self.on_way.is_empty() || self.has_reply()
    }
}
