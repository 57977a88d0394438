//! Concurrency keys: the places of their holders, and the queue of the jobs that wait.

use crate::cluster::*;
use allora_core::{
    Time,
    backend::{Action, Batch, ClaimKey, Claimed, JobState, Operation, Page, Reply, TimeSource},
};
use std::time::Duration;

const KEY: &str = "allora:key:tapes";
const LEASE: Duration = Duration::from_secs(60);

/// The claim of a place for the occurrence of `job` that is due since this second.
fn ask(claim_id: u128, limit: u32, job: &str, due: i64) -> Action<'_> {
    Action::ClaimKey(ClaimKey::new(claim_id, limit, job, t(due), LEASE))
}

/// The place, or the record of the key.
fn place(reply: Reply) -> Won {
    match reply {
        Reply::Claimed(claimed) => Ok(claimed),
        Reply::State(state) => Err(state),
        other => panic!("the reply to a claim of a key is {other:?}"),
    }
}

async fn claim(node: &Node, now: i64, action: Action<'_>) -> Won {
    place(node.act(t(now), KEY, action).await)
}

async fn release(node: &Node, now: i64, fence: i64) -> Reply {
    node.act(t(now), KEY, Action::ReleaseKey { fence }).await
}

async fn renew(node: &Node, now: i64, fence: i64) -> Reply {
    node.act(t(now), KEY, Action::Extend { fence, duration: LEASE }).await
}

/// The jobs that hold the key, in the order of their fences.
fn holders(seen: &JobState) -> Vec<&str> {
    let jobs = seen.leases.iter().map(|lease| lease.occurrence.trigger.as_deref());
    jobs.map(|job| job.expect("the lease of a key names its job")).collect()
}

/// The jobs that wait, in their order, with the times since which they wait.
fn waiters(seen: &JobState) -> Vec<(&str, Time)> {
    seen.waiters.iter().map(|waiter| (&*waiter.job, waiter.since)).collect()
}

pub(super) async fn a_key_of_one_has_one_holder_and_is_free_when_it_is_released(w: &Cluster) {
    let other = w.join("node-2").await;
    let first = won(claim(w.node(), 10, ask(1, 1, "a", 5)).await);
    assert_eq!(first.occurrence.trigger.as_deref(), Some("a"));
    let busy = lost(claim(&other, 11, ask(2, 1, "b", 6)).await);
    assert_eq!(busy, other.read(KEY).await, "the reply is the record");
    let lease = &busy.leases[0];
    assert_eq!((&*lease.node, lease.fence), ("node-1", first.fence));
    assert_eq!((lease.started_at, lease.due_at), (t(10), t(5)));
    assert_eq!(waiters(&busy), [("b", t(11))]);
    assert_eq!(release(w.node(), 12, first.fence).await, Reply::Accepted);
    let free = other.read(KEY).await;
    assert_eq!((holders(&free), waiters(&free)), (vec![], vec![("b", t(11))]));
    let second = won(claim(&other, 13, ask(3, 1, "b", 6)).await);
    assert_eq!(second.occurrence.scheduled_at, t(11), "it has waited since then");
    assert!(second.fence > first.fence);
    let held = w.node().read(KEY).await;
    assert_eq!((holders(&held), waiters(&held)), (vec!["b"], vec![]));
}

pub(super) async fn a_key_of_three_has_three_holders_on_all_nodes(w: &Cluster) {
    let other = w.join("node-2").await;
    let mut fences = Vec::new();
    for (i, (node, job)) in
        [(w.node(), "a"), (&other, "b"), (w.node(), "c")].into_iter().enumerate()
    {
        fences.push(won(claim(node, 10, ask(i as u128, 3, job, 5)).await).fence);
    }
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
    let busy = lost(claim(&other, 11, ask(9, 3, "d", 6)).await);
    assert_eq!(holders(&busy), ["a", "b", "c"]);
    assert_eq!(release(&other, 12, fences[1]).await, Reply::Accepted);
    won(claim(&other, 13, ask(10, 3, "d", 6)).await);
    assert_eq!(holders(&w.node().read(KEY).await), ["a", "c", "d"]);
}

pub(super) async fn each_claim_compares_the_holders_with_its_own_limit(w: &Cluster) {
    won(claim(w.node(), 10, ask(1, 3, "a", 1)).await);
    let b = won(claim(w.node(), 10, ask(2, 3, "b", 1)).await);
    let busy = lost(claim(w.node(), 11, ask(3, 1, "c", 2)).await);
    assert_eq!((holders(&busy), busy.version), (vec!["a", "b"], 3), "the last granted limit");
    lost(claim(w.node(), 11, ask(4, 2, "d", 3)).await);
    // Two of its three places are held, and "c" comes first.
    lost(claim(w.node(), 11, ask(5, 3, "e", 4)).await);
    won(claim(w.node(), 11, ask(6, 6, "f", 5)).await);
    assert_eq!(release(w.node(), 12, b.fence).await, Reply::Accepted);
    // Two hold it still.
    lost(claim(w.node(), 13, ask(7, 1, "c", 2)).await);
    lost(claim(w.node(), 13, ask(8, 2, "c", 2)).await);
    won(claim(w.node(), 13, ask(9, 3, "c", 2)).await);
}

pub(super) async fn a_renewed_place_is_kept(w: &Cluster) {
    let held = won(claim(w.node(), 0, ask(1, 1, "a", 0)).await);
    assert_eq!(held.until, t(60));
    for now in [50, 100, 150] {
        assert_eq!(renew(w.node(), now, held.fence).await, Reply::Extended(t(now + 60)));
        lost(claim(w.node(), now + 20, ask(2, 1, "b", 1)).await);
    }
    let longer = Action::Extend { fence: held.fence, duration: Duration::from_secs(1) };
    let kept = w.node().act(t(160), KEY, longer).await;
    assert_eq!(kept, Reply::Extended(t(210)), "it never shrinks");
}

pub(super) async fn a_silent_holder_has_its_place_until_its_lease_ends(w: &Cluster) {
    let silent = won(claim(w.node(), 0, ask(1, 1, "a", 0)).await);
    lost(claim(w.node(), 59, ask(2, 1, "b", 1)).await);
    let next = won(claim(w.node(), 60, ask(3, 1, "b", 1)).await);
    assert!(next.fence > silent.fence);
    assert_eq!(holders(&w.node().read(KEY).await), ["b"]);
    for late in [renew(w.node(), 61, silent.fence).await, release(w.node(), 61, silent.fence).await]
    {
        assert_eq!(late, Reply::LeaseLost);
    }
    assert_eq!(renew(w.node(), 62, next.fence).await, Reply::Extended(t(122)));
}

pub(super) async fn a_late_renewal_is_accepted_if_no_other_job_has_the_place(w: &Cluster) {
    let held = won(claim(w.node(), 0, ask(1, 1, "a", 0)).await);
    assert_eq!(renew(w.node(), 70, held.fence).await, Reply::Extended(t(130)));
    lost(claim(w.node(), 129, ask(2, 1, "b", 1)).await);
}

pub(super) async fn a_place_is_released_once(w: &Cluster) {
    assert_eq!(release(w.node(), 0, 1).await, Reply::Absent);
    let held = won(claim(w.node(), 1, ask(1, 2, "a", 0)).await);
    let other = won(claim(w.node(), 1, ask(2, 2, "b", 0)).await);
    assert_eq!(release(w.node(), 2, held.fence + 77).await, Reply::LeaseLost);
    assert_eq!(release(w.node(), 2, held.fence).await, Reply::Accepted);
    assert_eq!(release(w.node(), 3, held.fence).await, Reply::LeaseLost);
    assert_eq!(renew(w.node(), 3, held.fence).await, Reply::LeaseLost);
    assert_eq!(holders(&w.node().read(KEY).await), ["b"], "that of {}", other.fence);
}

pub(super) async fn a_claim_of_a_key_whose_reply_was_lost_has_the_same_reply_again(w: &Cluster) {
    let first = won(claim(w.node(), 10, ask(1, 1, "a", 5)).await);
    let again = won(claim(w.node(), 12, ask(1, 1, "a", 5)).await);
    assert_eq!((again.fence, &again.occurrence), (first.fence, &first.occurrence));
    assert_eq!(holders(&w.node().read(KEY).await), ["a"], "it has one place");
    // Another node of the same job, with a claim of its own.
    let refused = lost(claim(w.node(), 13, ask(2, 1, "a", 5)).await);
    assert_eq!(waiters(&refused), [], "the occurrence does not wait for itself");
    assert_eq!(release(w.node(), 14, first.fence).await, Reply::Accepted);
    let late = won(claim(w.node(), 15, ask(1, 1, "a", 5)).await);
    assert!(late.fence > first.fence, "the place was released: it is another one");
}

pub(super) async fn one_occurrence_has_one_place_of_a_key(w: &Cluster) {
    let other = w.join("node-2").await;
    won(claim(w.node(), 10, ask(1, 2, "a", 5)).await);
    let busy = lost(claim(&other, 10, ask(2, 2, "a", 5)).await);
    assert_eq!((holders(&busy), waiters(&busy)), (vec!["a"], vec![]));
    won(claim(&other, 10, ask(3, 2, "a", 65)).await);
    assert_eq!(holders(&w.node().read(KEY).await), ["a", "a"], "of two occurrences");
}

pub(super) async fn waiters_have_their_turn_by_due_time_and_name(w: &Cluster) {
    let other = w.join("node-2").await;
    let held = won(claim(w.node(), 10, ask(1, 1, "holder", 1)).await);
    for (i, (job, due)) in [("d", 4), ("b", 3), ("c", 3), ("a", 9)].into_iter().enumerate() {
        let node = [w.node(), &other][i % 2];
        lost(claim(node, 10 + i as i64 / 2, ask(10 + i as u128, 1, job, due)).await);
    }
    let queue = w.node().shown(KEY).await;
    let order = [("b", t(10)), ("c", t(11)), ("d", t(10)), ("a", t(11))];
    assert_eq!(waiters(&queue), order, "by due time, then name");
    assert_eq!(release(w.node(), 12, held.fence).await, Reply::Accepted);
    let mut last = held.fence;
    for (i, (job, due)) in [("b", 3), ("c", 3), ("d", 4), ("a", 9)].into_iter().enumerate() {
        let id = 20 + 10 * i as u128;
        // The others keep their places by asking again, and come later.
        for (j, (later, due)) in [("c", 3), ("d", 4), ("a", 9)].into_iter().enumerate().skip(i) {
            lost(claim(&other, 13, ask(id + j as u128, 1, later, due)).await);
        }
        let mine = won(claim(w.node(), 13, ask(id + 9, 1, job, due)).await);
        assert!(mine.fence > last, "{job}");
        last = mine.fence;
        assert_eq!(release(w.node(), 13, mine.fence).await, Reply::Accepted);
    }
    let after = w.node().read(KEY).await;
    assert_eq!((holders(&after), waiters(&after)), (vec![], vec![]));
}

pub(super) async fn a_waiter_that_does_not_ask_again_loses_its_turn(w: &Cluster) {
    let held = won(claim(w.node(), 0, ask(1, 1, "holder", 0)).await);
    lost(claim(w.node(), 1, ask(2, 1, "silent", 1)).await);
    lost(claim(w.node(), 2, ask(3, 1, "patient", 2)).await);
    assert_eq!(release(w.node(), 3, held.fence).await, Reply::Accepted);
    lost(claim(w.node(), 6, ask(4, 1, "patient", 2)).await);
    let held = won(claim(w.node(), 8, ask(5, 1, "patient", 2)).await);
    assert_eq!(held.occurrence.scheduled_at, t(2), "it has waited since then");
}

pub(super) async fn the_time_of_a_wait_survives_the_place_in_the_queue(w: &Cluster) {
    let held = won(claim(w.node(), 0, ask(1, 1, "holder", 0)).await);
    let since = |id| ClaimKey::new(id, 1, "job", t(1), LEASE).waiting_since(Some(t(2)));
    let busy = lost(claim(w.node(), 50, Action::ClaimKey(since(2))).await);
    assert_eq!(waiters(&busy), [("job", t(2))]);
    assert_eq!(release(w.node(), 51, held.fence).await, Reply::Accepted);
    let claimed = won(claim(w.node(), 52, Action::ClaimKey(since(3))).await);
    assert_eq!(claimed.occurrence.scheduled_at, t(2));
}

pub(super) async fn no_place_of_a_key_is_given_after_not_after(w: &Cluster) {
    let timed = |id, job, until| {
        Action::ClaimKey(ClaimKey::new(id, 1, job, t(5), LEASE).not_after(Some(t(until))))
    };
    let millis = async |at, action| w.node().act(ms(at), KEY, action).await;
    assert_eq!(millis(10_001, timed(1, "a", 10)).await, Reply::Absent, "nothing is written");
    let held = won(place(millis(10_000, timed(1, "a", 10)).await));
    // A claim that was carried out is found, however late it is repeated.
    assert_eq!(won(place(millis(30_000, timed(1, "a", 10)).await)), held);
    let busy = lost(place(millis(30_001, timed(2, "b", 30)).await));
    assert_eq!((holders(&busy), waiters(&busy)), (vec!["a"], vec![]), "nobody waits for it");
    // One that is late does not hold up the others of its batch.
    let operations = [timed(3, "c", 30), ask(4, 2, "d", 6), timed(5, "e", 31)];
    let operations = operations.map(|action| Operation::new(KEY, action));
    let replies = w.node().replies(t(31), &operations).await;
    let [Reply::State(_), Reply::Claimed(_), Reply::State(busy)] = &replies[..] else {
        panic!("{replies:?}");
    };
    assert_eq!((holders(busy), waiters(busy)), (vec!["a", "d"], vec![("e", t(31))]));
    // By the store's own clock, too.
    let time = TimeSource::Store { fallback: t(90) };
    let other = "allora:key:other";
    let late = ClaimKey::new(6, 1, "f", t(5), LEASE).not_after(Some(Time::UNIX_EPOCH));
    let late = Operation::new(other, Action::ClaimKey(late));
    let batch = [late.clone(), Operation::new(other, ask(7, 1, "g", 6)), late];
    for _ in 0..2 {
        let applied = fine(w.node().backend.reschedule(Batch::new("node-1", time, &batch)).await);
        let replies: Vec<Reply> = applied.replies.into_iter().map(fine).collect();
        let [_, Reply::Claimed(_), Reply::State(busy)] = &replies[..] else {
            panic!("{replies:?}");
        };
        assert_eq!((holders(busy), waiters(busy)), (vec!["g"], vec![]));
    }
}

pub(super) async fn claims_of_one_batch_are_decided_in_their_order(w: &Cluster) {
    let held = won(claim(w.node(), 0, ask(1, 1, "a", 0)).await);
    let operations = [
        Operation::new(KEY, ask(2, 1, "b", 1)),
        Operation::new(KEY, Action::ReleaseKey { fence: held.fence }),
        Operation::new(KEY, ask(3, 1, "c", 2)),
        Operation::new("allora:key:other", ask(4, 1, "c", 2)),
        Operation::new(KEY, ask(2, 1, "b", 1)),
    ];
    let replies = w.node().replies(t(1), &operations).await;
    let [busy, Reply::Accepted, second, Reply::Claimed(_), Reply::Claimed(b)] = &replies[..] else {
        panic!("{replies:?}");
    };
    assert_eq!(waiters(&state(busy.clone())), [("b", t(1))]);
    let busy = state(second.clone());
    assert_eq!(waiters(&busy), [("b", t(1)), ("c", t(1))], "\"b\" comes first");
    assert_eq!(w.node().read(KEY).await.leases[0].fence, b.fence);
}

pub(super) async fn keys_and_jobs_have_names_of_any_text(w: &Cluster) {
    let long = format!("allora:key#{}#{}", "x".repeat(32), "0".repeat(32));
    let widest = format!("allora:key:{}", "k".repeat(189));
    let odd = "allora:key:'; DROP TABLE x; --{a}*?[\\\u{1f9fe}";
    let keys = ["allora:key:a", "allora:key:A", "allora:key:a:2", odd, &widest, &long];
    let jobs = ["'); --", "\u{1f9fe} {b}", "j", "J", "a \"b\" \\c", &"j".repeat(200)];
    let mut fences = Vec::new();
    for (i, (key, job)) in keys.into_iter().zip(jobs).enumerate() {
        let action = ask(i as u128, 1, job, 1);
        let held = won(place(w.node().act(t(10), key, action).await));
        assert_eq!(held.occurrence.trigger.as_deref(), Some(job), "{key}");
        fences.push(held.fence);
    }
    for (i, (key, job)) in keys.into_iter().zip(jobs).enumerate() {
        let other = jobs[(i + 1) % jobs.len()];
        lost(place(w.node().act(t(11), key, ask(90 + i as u128, 1, other, 2)).await));
        let seen = w.node().shown(key).await;
        assert_eq!((holders(&seen), waiters(&seen)), (vec![job], vec![(other, t(11))]), "{key}");
        let free = Action::ReleaseKey { fence: fences[i] };
        assert_eq!(w.node().act(t(12), key, free).await, Reply::Accepted, "{key}");
    }
}

pub(super) async fn a_long_queue_is_kept_whole(w: &Cluster) {
    won(claim(w.node(), 0, ask(1, 1, "holder", 0)).await);
    let jobs: Vec<String> = (0..100).map(|i| format!("{i:03}{}", "x".repeat(150))).collect();
    let ask = |(i, job)| Operation::new(KEY, ask(10 + i as u128, 1, job, 1));
    let operations: Vec<Operation<'_>> =
        jobs.iter().map(|job| &**job).enumerate().rev().map(ask).collect();
    w.node().replies(t(2), &operations).await;
    let seen = w.node().shown(KEY).await;
    let queue: Vec<&str> = seen.waiters.iter().map(|waiter| &*waiter.job).collect();
    assert_eq!(queue, jobs);
}

pub(super) async fn the_records_of_keys_are_in_no_list_and_no_search(w: &Cluster) {
    w.node().add(t(0), "job", "mail", t(60)).await;
    won(claim(w.node(), 0, ask(1, 1, "job", 0)).await);
    lost(claim(w.node(), 0, ask(2, 1, "other", 0)).await);
    assert_eq!(w.node().list(Page::first(9)).await, ["job"]);
    assert_eq!(w.node().list(Page::first(9).prefix("al")).await, [""; 0]);
    assert_eq!(w.node().list(Page::first(9).prefix("allora:key:")).await, [KEY]);
    assert_eq!(w.node().found(&["mail", ""], t(999_999), 9).await.0, ["job"]);
}

pub(super) async fn a_deleted_key_is_free_and_its_fences_continue(w: &Cluster) {
    let held = won(claim(w.node(), 0, ask(1, 1, "a", 0)).await);
    lost(claim(w.node(), 0, ask(2, 1, "b", 0)).await);
    w.node().delete(t(1), KEY).await;
    assert_eq!(release(w.node(), 1, held.fence + 1_000_000_000).await, Reply::Deleted);
    // The run that held it is being cancelled, and has its place until its lease ends.
    let told = renew(w.node(), 2, held.fence).await;
    assert_eq!(told, Reply::CancelRequested(t(62)));
    let next = lost(claim(w.node(), 3, ask(3, 1, "b", 0)).await);
    assert_eq!(waiters(&next), [("b", t(3))]);
    assert_eq!(release(w.node(), 4, held.fence).await, Reply::Accepted);
    let b = won(claim(w.node(), 5, ask(4, 1, "b", 0)).await);
    assert!(b.fence > held.fence);
}

pub(super) async fn eight_nodes_have_no_more_places_than_the_key(w: &Cluster) {
    let mut nodes = Vec::new();
    for i in 0..8 {
        nodes.push(w.join(&format!("key-{i}")).await);
    }
    let mut highest = 0;
    for round in 0..5_i64 {
        let claims = nodes.iter().enumerate().map(|(i, node)| async move {
            let id = (round as u128 + 1) * 100 + i as u128;
            claim(node, 10 * round, ask(id, 3, &format!("job {i}"), round)).await
        });
        let replies = futures::future::join_all(claims).await;
        let won: Vec<Claimed> = replies.into_iter().filter_map(Result::ok).collect();
        assert_eq!(won.len(), 3, "in round {round}");
        let mut fences: Vec<i64> = won.iter().map(|claimed| claimed.fence).collect();
        fences.sort_unstable();
        assert!(fences.is_sorted_by(|one, next| one < next) && fences[0] > highest, "{fences:?}");
        highest = fences[2];
        // The places in the queue of this round are over before the next one.
        for fence in fences {
            assert_eq!(release(w.node(), 10 * round, fence).await, Reply::Accepted);
        }
    }
}

pub(super) async fn a_key_that_no_job_uses_is_pruned_and_its_fences_continue(w: &Cluster) {
    let held = won(claim(w.node(), 0, ask(1, 1, "a", 0)).await);
    let prune = |fence| Action::Prune { fence, cursor: None };
    let kept = w.node().act(t(1), KEY, prune(held.fence)).await;
    assert_eq!(holders(&state(kept)), ["a"], "it is held");
    lost(claim(w.node(), 2, ask(2, 1, "b", 0)).await);
    assert_eq!(release(w.node(), 2, held.fence).await, Reply::Accepted);
    let kept = w.node().act(t(3), KEY, prune(held.fence)).await;
    assert_eq!(waiters(&state(kept)), [("b", t(2))], "a job waits for it");
    let other = w.node().act(t(99), KEY, prune(held.fence - 1)).await;
    assert!(matches!(other, Reply::State(_)), "the fence is another one");
    assert_eq!(w.node().act(t(99), KEY, prune(held.fence)).await, Reply::Deleted);
    assert_eq!(w.node().act(t(99), KEY, Action::Read).await, Reply::Deleted);
    assert_eq!(release(w.node(), 99, held.fence).await, Reply::Deleted);
    // The clock was set back: its fences grow all the same.
    let again = won(claim(w.node(), 1, ask(3, 1, "a", 0)).await);
    assert!(again.fence > held.fence);
    assert_eq!(release(w.node(), 1, again.fence).await, Reply::Accepted);
    assert_eq!(w.node().act(t(99), KEY, prune(again.fence)).await, Reply::Deleted);
    w.node().prune(t(30 * 86_400)).await;
    let after = won(claim(w.node(), 1, ask(4, 1, "a", 0)).await);
    assert!(after.fence > again.fence, "the tombstone is removed");
}
