//! Jobs that run after others: the outbox is written with the end, and delivered once.

use crate::cluster::*;
use allora_core::{
    backend::{
        Action, Chain, Completion, Cursor, Flag, FollowUp, NewSchedule, On, Operation, Page, Reply,
        TimeSource,
    },
    time::whole_millis,
};

/// The followers and the outbox, after this was confirmed.
async fn confirm(node: &Node, done: &[FollowUp]) -> Chain {
    match node.act(t(0), "job", Action::Confirm { done, gone: &[] }).await {
        Reply::Outbox(chain) => *chain,
        other => panic!("expected an outbox, got {other:?}"),
    }
}

/// The jobs that are to be triggered.
fn jobs(chain: &Chain) -> Vec<&str> {
    chain.outbox.iter().map(|follow_up| &*follow_up.job).collect()
}

/// A job with a follower for each kind of end.
async fn followed(w: &Cluster) {
    w.node().add(t(0), "job", "mail", t(60)).await;
    for (job, on) in
        [("after success", On::Success), ("after failure", On::Failure), ("both", On::End)]
    {
        w.node().act(t(0), "job", Action::Follow { job, on }).await;
    }
}

pub(super) async fn an_end_and_what_follows_it_are_written_together(w: &Cluster) {
    let (one, other) = (w.node(), &w.join("other").await);
    followed(w).await;
    let run = won(one.lease(t(60), "job", 1).await);
    let end = Operation::new("job", ran(t(120)).under(run.fence));
    let applied = one.apply(t(61), std::slice::from_ref(&end)).await;
    assert_eq!(applied.outboxes, ["job"], "the node is told");
    let seen = other.read("job").await;
    let chain = confirm(other, &[]).await;
    assert_eq!(seen.chain.as_deref(), Some(&chain), "every node sees it");
    assert_eq!(jobs(&chain), ["after success", "both"]);
    assert!(chain.outbox.iter().all(|it| it.ended_at == whole_millis(t(61))));
    // The same end again adds nothing.
    assert_eq!(one.apply(t(62), &[end]).await.single().ok(), Some(Reply::Accepted));
    assert_eq!(confirm(other, &[]).await, chain);

    let again = won(one.lease(t(120), "job", 2).await);
    let then = Cursor::To(Some(t(180).into()));
    let failed = RunAction::Complete { then, completion: Completion::Dead("broken") };
    assert_eq!(one.end(t(121), "job", again.fence, failed).await, Reply::Accepted);
    let all = confirm(other, &[]).await;
    assert_eq!(jobs(&all)[2..], ["after failure", "both"]);
    assert!(all.outbox[2].number > all.outbox[1].number && all.outbox[2].id != all.outbox[1].id);
    let left = confirm(one, &all.outbox[..3]).await;
    assert_eq!(left.outbox, all.outbox[3..]);
    assert!(w.node().try_delete(t(122), "job").await.is_err(), "what follows would be lost");
    assert_eq!(jobs(&confirm(other, &left.outbox).await), [] as [&str; 0]);
    one.delete(t(123), "job").await;
}

pub(super) async fn a_lost_run_is_followed(w: &Cluster) {
    let one = w.node();
    followed(w).await;
    let seen = one.read("job").await;
    let claim = marked(&seen, 1, t(120), allora_core::backend::Sharing::Exclusive);
    let run = won(one.claim(t(60), "job", claim).await);
    one.reap(run.until + chrono::TimeDelta::seconds(1), "job").await;
    assert_eq!(jobs(&confirm(one, &[]).await), ["after failure", "both"]);
}

pub(super) async fn what_follows_is_received_once(w: &Cluster) {
    let (one, other) = (w.node(), &w.join("other").await);
    let new = NewSchedule::new("mail", "@never; after before succeeded", None);
    fine(one.add_one(t(0), "job", new).await);
    let follow_up =
        |number, id: &str| FollowUp::new("job", format!("allora:after:1:{id}"), number, t(9));
    let (first, second) = (follow_up(7, "before/1/x"), follow_up(9, "before/1/y"));
    let receive = async |node: &Node, from: &str, follow_up: &FollowUp| {
        node.act(t(10), "job", Action::FollowUp { from, follow_up }).await
    };
    assert_eq!(receive(one, "another", &first).await, Reply::Invalid);
    for node in [one, other, one] {
        assert_eq!(receive(node, "before", &first).await, Reply::Accepted);
    }
    let run = won(one.lease(t(10), "job", 1).await);
    assert_eq!(
        (run.occurrence.trigger.as_deref(), run.occurrence.scheduled_at),
        (Some(&*first.id), t(9))
    );
    assert_eq!(receive(other, "before", &second).await, Reply::Accepted);
    assert_eq!(one.end(t(11), "job", run.fence, ran_and_stay()).await, Reply::Accepted);
    // Long after the ids of triggers are forgotten.
    let day = t(26 * 3_600);
    one.trigger(day, "job", "by hand").await;
    for late in [&first, &second] {
        let action = Action::FollowUp { from: "before", follow_up: late };
        assert_eq!(other.act(day, "job", action).await, Reply::Accepted);
    }
    let next = won(one.lease(day, "job", 2).await);
    assert_eq!(next.occurrence.trigger.as_deref(), Some(&*second.id));
    assert_eq!(one.end(day, "job", next.fence, ran_and_stay()).await, Reply::Accepted);
    let last = won(one.lease(day, "job", 3).await);
    assert_eq!(last.occurrence.trigger.as_deref(), Some("by hand"));
}

pub(super) async fn a_job_that_is_created_later_knows_its_followers(w: &Cluster) {
    let (one, other) = (w.node(), &w.join("other").await);
    one.act(t(0), "job", Action::Follow { job: "b", on: On::Success }).await;
    assert_eq!(other.act(t(1), "job", Action::Read).await, Reply::Absent);
    other.register(t(1), "job", t(60)).await;
    let run = won(one.lease(t(60), "job", 1).await);
    assert_eq!(one.end(t(61), "job", run.fence, ran(t(120))).await, Reply::Accepted);
    assert_eq!(jobs(&confirm(other, &[]).await), ["b"]);
}

pub(super) async fn a_job_with_an_outbox_is_found(w: &Cluster) {
    let one = w.node();
    followed(w).await;
    one.add(t(0), "another", "mail", t(60)).await;
    let found = async || {
        let time = TimeSource::Fixed(t(60));
        let page = fine(one.queries().flagged(Flag::Outbox, Page::first(10), time).await);
        page.found.into_iter().map(|state| state.name).collect::<Vec<_>>()
    };
    assert_eq!(found().await, [] as [&str; 0]);
    let run = won(one.lease(t(60), "job", 1).await);
    assert_eq!(one.end(t(61), "job", run.fence, ran(t(120))).await, Reply::Accepted);
    assert_eq!(found().await, ["job"]);
    let chain = confirm(one, &[]).await;
    confirm(one, &chain.outbox).await;
    assert_eq!(found().await, [] as [&str; 0]);
}
