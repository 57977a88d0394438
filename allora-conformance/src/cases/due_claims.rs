//! Queries that find and claim in one step, and the advance by the holder of a lease. A store without
//! such queries passes the cases that need them.

use crate::cluster::*;
use allora_core::{
    Time,
    backend::{
        Action, Advance, ClaimDue, Claimed, DueQuery, JobState, NewSchedule, NotRun, NotRunReason,
        Outcome, Reply, TimeSource,
    },
    time::whole_millis,
};

const DEFINITION: &str = "@every 1m; at-least-once 60000ms";

async fn add(node: &Node, name: &str, kind: &str, first: Time) -> JobState {
    let new = NewSchedule::new(kind, DEFINITION, Some(first.into()));
    fine(node.add_one(t(0), name, new).await)
}

async fn claims(node: &Node, now: Time, query: ClaimDue<'_>) -> Vec<(JobState, Claimed)> {
    let mut due = fine(node.queries().claim_due(query, TimeSource::Fixed(now)).await);
    assert_eq!(whole_millis(due.now), whole_millis(now), "the time that was given");
    due.claimed.sort_by(|a, b| a.0.name.cmp(&b.0.name));
    due.claimed
}

async fn names(node: &Node, now: Time, query: ClaimDue<'_>) -> Vec<String> {
    claims(node, now, query).await.into_iter().map(|(state, _)| state.name).collect()
}

fn all<'a>(node: &'a Node, claim_id: u128) -> ClaimDue<'a> {
    ClaimDue::new(&node.id, claim_id, &["mail", "sms"], 100)
}

pub(super) async fn a_query_claims_as_a_claim_of_the_head_does(w: &Cluster) {
    let node = w.node();
    if !node.queries().claims_due() {
        return;
    }
    let new = NewSchedule::new("mail", DEFINITION, Some(t(60).into())).data(b"to: x");
    let mut other = new;
    other.kind = "other";
    let twin = fine(node.add_one(t(0), "twin", other).await);
    fine(node.add_one(t(0), "job", new).await);
    let granted = won(node.claim(t(61), "twin", leased(&twin, 7)).await);
    let found = claims(node, t(61), all(node, 7)).await;
    let [(state, claimed)] = &found[..] else { panic!("one is due: {found:?}") };
    assert_eq!(*claimed, granted);
    let after = node.shown("job").await;
    assert_eq!(*state, after, "it is found as it is after the claim");
    let mut twin = node.shown("twin").await;
    (twin.name, twin.kind) = ("job".to_owned(), "mail".to_owned());
    assert_eq!(after, twin);
    // Completed as any run, and due again by its next occurrence only.
    let reply = node.end(t(62), "job", claimed.fence, ran(t(120))).await;
    assert_eq!(reply, Reply::Accepted);
    assert_eq!(node.found(&["mail"], t(120), 9).await, (vec![], Some(t(120))));
    assert_eq!(names(node, t(119), all(node, 8)).await, [""; 0]);
    assert_eq!(names(node, t(120), all(node, 9)).await, ["job"]);
}

pub(super) async fn a_query_claims_only_what_needs_no_plan(w: &Cluster) {
    let node = w.node();
    if !node.queries().claims_due() {
        return;
    }
    let first = Some(t(60).into());
    for (name, definition) in [
        ("at most once", "@every 1m"),
        ("keyed", "@every 1m; at-least-once 60000ms; concurrency-key tapes"),
        ("later words", "@every 1m; at-least-once 60000ms; sparkle 3"),
        ("later format", "@v2 x; at-least-once 60000ms"),
    ] {
        fine(node.add_one(t(0), name, NewSchedule::new("mail", definition, first)).await);
    }
    add(node, "paused", "mail", t(60)).await;
    node.pause(t(1), "paused").await;
    add(node, "later", "mail", t(3_600)).await;
    add(node, "another kind", "fax", t(60)).await;
    let due = add(node, "leased", "mail", t(30)).await;
    won(node.claim(t(30), "leased", leased(&due, 1)).await);
    let due = add(node, "released", "mail", t(30)).await;
    let released = won(node.claim(t(30), "released", leased(&due, 2)).await);
    node.end(t(31), "released", released.fence, RunAction::Release).await;
    node.register(t(0), "code", t(60)).await;
    assert_eq!(names(node, t(70), all(node, 3)).await, [""; 0]);
    // They are found, and claimed in the ordinary way.
    let (mut found, _) = node.found(&["mail"], t(71), 9).await;
    found.sort();
    assert_eq!(found, ["at most once", "keyed", "later format", "later words", "released"]);
    add(node, "plain", "mail", t(60)).await;
    let limit = ClaimDue::new(&node.id, 4, &["mail"], 1);
    assert_eq!(names(node, t(70), limit).await, ["plain"], "they hide nothing");
}

pub(super) async fn of_what_is_due_the_earliest_is_claimed_first(w: &Cluster) {
    let node = w.node();
    if !node.queries().claims_due() {
        return;
    }
    for (name, kind, first) in
        [("c", "mail", t(10)), ("a", "mail", t(30)), ("d", "mail", t(40)), ("b", "mail", t(20))]
    {
        add(node, name, kind, first).await;
    }
    let two = |claim_id| ClaimDue::new(&node.id, claim_id, &["mail"], 2);
    assert_eq!(names(node, t(60), two(1)).await, ["b", "c"]);
    assert_eq!(names(node, t(60), two(2)).await, ["a", "d"]);
    assert_eq!(names(node, t(60), two(3)).await, [""; 0]);
    for i in 0..150 {
        add(node, &format!("job {i:03}"), "sms", t(i)).await;
    }
    let mut claimed = names(node, t(1_000), ClaimDue::new(&node.id, 4, &["sms"], 149)).await;
    assert_eq!(claimed.len(), 149);
    claimed.extend(names(node, t(1_000), ClaimDue::new(&node.id, 5, &["sms"], 149)).await);
    assert_eq!(claimed.len(), 150);
    assert_eq!(claimed.last().map(String::as_str), Some("job 149"));
}

pub(super) async fn two_nodes_never_claim_the_same_schedule(w: &Cluster) {
    let node = w.node();
    if !node.queries().claims_due() {
        return;
    }
    for i in 0..40 {
        add(node, &format!("job {i:02}"), "mail", t(i)).await;
    }
    let nodes = [w.join("one").await, w.join("two").await, w.join("three").await];
    let mut claimed = Vec::new();
    for round in 0..8_u128 {
        let part = |(i, node): (usize, &Node)| {
            let (node, claim_id) = (node.clone(), 10 * round + i as u128);
            async move { names(&node, t(60), ClaimDue::new(&node.id, claim_id, &["mail"], 5)).await }
        };
        let all = futures::future::join_all(nodes.iter().enumerate().map(part)).await;
        claimed.extend(all.into_iter().flatten());
    }
    claimed.sort();
    let expected: Vec<String> = (0..40).map(|i| format!("job {i:02}")).collect();
    assert_eq!(claimed, expected, "each once");
}

pub(super) async fn a_query_whose_reply_was_lost_finds_its_claims_again(w: &Cluster) {
    let node = w.node();
    if !node.queries().claims_due() {
        return;
    }
    for name in ["a", "b", "c"] {
        add(node, name, "mail", t(60)).await;
    }
    let two = ClaimDue::new(&node.id, u128::MAX - 1, &["mail", "sms"], 2);
    let mut first = claims(node, t(60), two).await;
    assert_eq!(first.len(), 2);
    assert_eq!(claims(node, t(61), two.repeated()).await, first);
    let mut other = two;
    other.claim_id = u128::MAX - 2;
    assert_eq!(names(node, t(61), other.repeated()).await, [""; 0], "another query");
    // Runs that have ended are not found, nor those that another node has claimed since.
    let (state, claimed) = first.remove(0);
    node.end(t(62), &state.name, claimed.fence, ran(t(120))).await;
    assert_eq!(claims(node, t(63), two.repeated()).await, first);
    assert_eq!(names(node, t(63), other).await, ["c"]);
}

pub(super) async fn a_query_claims_nothing_after_not_after(w: &Cluster) {
    let node = w.node();
    if !node.queries().claims_due() {
        return;
    }
    add(node, "job", "mail", t(60)).await;
    assert_eq!(names(node, t(70), all(node, 1).not_after(t(69))).await, [""; 0]);
    assert_eq!(names(node, t(70), all(node, 1).not_after(t(70))).await, ["job"]);
}

pub(super) async fn a_claimed_schedule_that_is_silent_is_found_again(w: &Cluster) {
    let node = w.node();
    if !node.queries().claims_due() {
        return;
    }
    add(node, "job", "mail", t(60)).await;
    assert_eq!(names(node, t(60), all(node, 1)).await, ["job"]);
    assert_eq!(node.found(&["mail"], t(120), 9).await, (vec![], Some(t(120))));
    assert_eq!(names(node, t(120), all(node, 2)).await, [""; 0], "the general way decides");
    let (found, _) = node.find(DueQuery::new(&["mail"], t(121), 9)).await;
    let again = won(node.claim(t(120), "job", leased(&found[0], 3)).await);
    assert_eq!((again.occurrence, again.attempt), (t(60).into(), 2));
    assert_eq!(node.read("job").await.counters.expired, 1);
}

fn passed(last: Time) -> NotRun {
    NotRun { count: Some(3), last, reason: NotRunReason::CatchUp }
}

pub(super) async fn the_holder_of_a_lease_moves_it_past_what_is_not_run(w: &Cluster) {
    let node = w.node();
    let due = add(node, "job", "mail", t(60)).await;
    let claimed = won(node.claim(t(300), "job", leased(&due, 1)).await);
    let advance = Advance::new(due.generation, t(60), passed(t(180)), Some(t(240).into()));
    // Without the fence it is an active occurrence, which is not skipped.
    let other = state(node.act(t(301), "job", Action::Advance(advance)).await);
    assert_eq!(other.next, Some(t(60).into()));
    let wrong = Action::Advance(advance.by_holder(claimed.fence + 1));
    assert_eq!(state(node.act(t(301), "job", wrong).await), other);
    let advance = Action::Advance(advance.by_holder(claimed.fence));
    let moved = node.act(t(301), "job", advance.clone()).await;
    let moved = moved.claimed().expect("the lease is kept");
    let mut expected = claimed.clone();
    (expected.occurrence, expected.fence) = (t(240).into(), moved.fence);
    assert_eq!(moved, expected);
    assert!(moved.fence > claimed.fence);
    let after = node.shown("job").await;
    assert_eq!((after.next, after.last_started), (Some(t(240).into()), Some(t(240))));
    assert_eq!((after.counters.started, after.counters.missed), (1, 3));
    assert_eq!(leases(&after), [(moved.fence, moved.until)]);
    assert_eq!(state(node.act(t(302), "job", advance).await), after, "its reply was lost");
    assert_eq!(after.leases[0].claim_id, 1);
    let completed = node.end(t(303), "job", moved.fence, ran(t(360))).await;
    assert_eq!(completed, Reply::Accepted);
    let ended = node.read("job").await;
    assert_eq!((ended.counters.succeeded, ended.due_at), (1, Some(t(360))));
}

pub(super) async fn the_holder_of_a_lease_ends_it_if_nothing_is_to_be_run(w: &Cluster) {
    let node = w.node();
    let due = add(node, "job", "mail", t(60)).await;
    let claimed = won(node.claim(t(200), "job", leased(&due, 1)).await);
    let advance = Advance::new(due.generation, t(60), passed(t(180)), Some(t(240).into()));
    let (mut back, mut other) = (advance, advance);
    back.then = Some(t(180).into());
    other.generation += 1;
    let refused =
        state(node.act(t(201), "job", Action::Advance(back.by_holder(claimed.fence))).await);
    assert_eq!(refused.next, Some(t(60).into()), "it moves forward only");
    let other = Action::Advance(other.by_holder(claimed.fence));
    assert_eq!(state(node.act(t(201), "job", other).await), refused);
    let advance = Action::Advance(advance.by_holder(claimed.fence));
    let after = state(node.act(t(201), "job", advance.clone()).await);
    assert_eq!((after.next, after.due_at), (Some(t(240).into()), Some(t(240))));
    assert_eq!((after.counters.started, after.counters.missed), (0, 3));
    assert!(after.leases.is_empty() && after.fence > claimed.fence);
    assert_eq!(state(node.act(t(202), "job", advance).await), after, "its reply was lost");
    let late = node.end(t(203), "job", claimed.fence, ran(t(360))).await;
    assert_eq!(late, Reply::LeaseLost);
    assert_eq!(node.shown("job").await, after);
}

pub(super) async fn what_the_holder_of_a_lease_passes_over_is_one_entry(w: &Cluster) {
    let node = w.node();
    let due = add(node, "kept", "mail", t(60)).await;
    add(node, "ended", "mail", t(60)).await;
    for (name, then) in [("kept", t(240)), ("ended", t(600))] {
        let claimed = won(node.lease(t(300), name, 1).await);
        let advance = Advance::new(due.generation, t(60), passed(t(180)), Some(then.into()));
        let advance = Action::Advance(advance.by_holder(claimed.fence));
        let moved = node.act(t(301), name, advance.clone()).await.claimed();
        node.act(t(301), name, advance).await;
        if let Some(moved) = moved {
            node.end(t(302), name, moved.fence, ran(t(360))).await;
        }
    }
    let ended = node.history_entries("ended").await;
    let of = |outcome: &Outcome, entry: &allora_core::backend::HistoryEntry| {
        entry.outcome == *outcome && entry.occurrence == t(60).into()
    };
    assert_eq!(ended.len(), 1, "{ended:?}");
    assert!(of(&Outcome::Missed, &ended[0]) && ended[0].last == Some(t(180)));
    let mut kept = node.history_entries("kept").await;
    kept.sort_by_key(|entry| entry.occurrence.scheduled_at);
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert!(of(&Outcome::Missed, &kept[0]));
    assert_eq!((&kept[1].outcome, &kept[1].occurrence), (&Outcome::Succeeded, &t(240).into()));
    assert_eq!((kept[1].due_at, kept[1].attempt), (Some(t(240)), 1));
    assert_eq!(kept[1].started_at, Some(t(300)));
}
