//! Claims: the node that gets an occurrence, the time, and the replies to the other nodes.

use crate::cluster::*;
use allora_core::{
    Time,
    backend::{Action, Advance, Claim, Cursor, NextRun, NotRun, NotRunReason, Operation, Reply},
};

/// A job that is due at `t(60)`.
async fn job(w: &Cluster) -> allora_core::backend::JobState {
    w.node().register(t(0), "job", t(60)).await
}

fn next(at: Time) -> Option<NextRun> {
    Some(at.into())
}

fn missed(count: u64, last: Time) -> NotRun {
    NotRun { count: Some(count), last, reason: NotRunReason::CatchUp }
}

pub(super) async fn nothing_is_claimed_before_it_is_due(w: &Cluster) {
    let seen = job(w).await;
    assert_eq!(lost(w.node().claim(ms(59_999), "job", once(&seen, 1, next(t(120)))).await), seen);
    assert_eq!(w.node().read("job").await, seen);
}

pub(super) async fn an_occurrence_due_exactly_now_is_claimed(w: &Cluster) {
    let seen = job(w).await;
    let claimed = won(w.node().claim(t(60), "job", once(&seen, 1, next(t(120)))).await);
    assert_eq!((claimed.occurrence, claimed.attempt), (t(60).into(), 1));
    assert_eq!(claimed.incarnation, seen.incarnation);
    let after = w.node().read("job").await;
    assert_eq!((after.head, after.next), (Some(t(120).into()), next(t(120))));
    assert_eq!((after.last_started, after.counters.started), (Some(t(60)), 1));
    assert!(after.fence >= claimed.fence);
}

pub(super) async fn a_delayed_occurrence_is_claimed_when_its_delay_is_over(w: &Cluster) {
    let first = Some(NextRun { scheduled_at: t(60), due_at: t(65) });
    let act = Action::Register { definition: "every 1m", version: 0, first };
    let seen = state(w.node().act(t(0), "job", act).await);
    assert_eq!((seen.due_at, seen.head.clone()), (Some(t(65)), Some(t(60).into())));
    lost(w.node().claim(ms(64_999), "job", once(&seen, 1, None)).await);
    let then = Some(NextRun { scheduled_at: t(120), due_at: t(121) });
    let claimed = won(w.node().claim(t(65), "job", once(&seen, 1, then)).await);
    assert_eq!(claimed.occurrence, t(60).into());
    assert_eq!(w.node().read("job").await.next, then);
    // A calendar may have moved an occurrence to an earlier day.
    let first = Some(NextRun { scheduled_at: t(200), due_at: t(150) });
    let act = Action::Register { definition: "every 1m", version: 0, first };
    let seen = state(w.node().act(t(65), "early", act).await);
    lost(w.node().claim(ms(149_999), "early", once(&seen, 1, None)).await);
    let claimed = won(w.node().claim(t(150), "early", once(&seen, 1, next(t(260)))).await);
    assert_eq!(claimed.occurrence, t(200).into());
    let after = w.node().read("early").await;
    assert_eq!((after.last_started, after.next), (Some(t(200)), next(t(260))));
}

pub(super) async fn one_of_two_nodes_claims_and_the_other_receives_the_current_state(w: &Cluster) {
    let seen = job(w).await;
    let other = w.join("other").await;
    won(w.node().claim(t(60), "job", once(&seen, 1, next(t(120)))).await);
    let state = lost(other.claim(t(60), "job", once(&seen, 2, next(t(120)))).await);
    assert_eq!(state, w.node().read("job").await);
    assert_eq!(state.head, Some(t(120).into()));
    won(other.claim(t(120), "job", once(&state, 3, next(t(180)))).await);
}

pub(super) async fn one_of_many_claims_at_once_succeeds(w: &Cluster) {
    let seen = job(w).await;
    let mut nodes = Vec::new();
    for i in 0..8 {
        nodes.push(w.join(&format!("node {i}")).await);
    }
    let claims = (1..).zip(&nodes).map(|(id, node)| {
        let claim = once(&seen, id, next(t(120)));
        async move { node.claim(t(60), "job", claim).await.is_ok() }
    });
    let winners = futures::future::join_all(claims).await;
    assert_eq!(winners.into_iter().filter(|won| *won).count(), 1);
    assert_eq!(w.node().read("job").await.counters.started, 1);
}

pub(super) async fn a_claim_of_another_occurrence_is_refused(w: &Cluster) {
    let seen = job(w).await;
    for wrong in [t(59), t(61), t(0)] {
        let mut claim = once(&seen, 1, next(t(120)));
        (claim.expected, claim.start) = (wrong.into(), wrong.into());
        assert_eq!(lost(w.node().claim(t(100), "job", claim).await), seen);
    }
    assert_eq!(w.node().read("job").await, seen);
}

pub(super) async fn a_claim_with_another_fence_is_refused(w: &Cluster) {
    let seen = job(w).await;
    for fence in [seen.fence - 1, seen.fence + 1, 0] {
        let mut claim = once(&seen, 1, next(t(120)));
        claim.fence = fence;
        assert_eq!(lost(w.node().claim(t(60), "job", claim).await), seen);
    }
    assert_eq!(w.node().read("job").await, seen);
}

pub(super) async fn a_claim_with_an_old_state_never_succeeds(w: &Cluster) {
    let old = job(w).await;
    won(w.node().claim(t(60), "job", once(&old, 1, next(t(120)))).await);
    for (claim, seconds) in (2..).zip([120, 180, 240]) {
        let seen = w.node().read("job").await;
        let then = next(t(seconds + 60));
        lost(w.node().claim(t(seconds), "job", once(&old, 100 + claim, then)).await);
        won(w.node().claim(t(seconds), "job", once(&seen, claim, then)).await);
    }
    lost(w.node().claim(t(999), "job", once(&old, 99, next(t(1_200)))).await);
    assert_eq!(w.node().read("job").await.counters.started, 4);
}

pub(super) async fn the_cursor_moves_only_forward(w: &Cluster) {
    let seen = job(w).await;
    for then in [t(60), t(59), t(0), ms(59_999)] {
        assert_eq!(lost(w.node().claim(t(100), "job", once(&seen, 1, next(then))).await), seen);
    }
    let mut keep = once(&seen, 1, None);
    keep.then = Cursor::Keep;
    assert_eq!(lost(w.node().claim(t(100), "job", keep).await), seen);
    won(w.node().claim(t(100), "job", once(&seen, 1, next(ms(60_001)))).await);
    let after = w.node().read("job").await;
    assert_eq!(after.next, next(ms(60_001)));
}

pub(super) async fn an_ended_schedule_offers_nothing(w: &Cluster) {
    let seen = job(w).await;
    won(w.node().claim(t(60), "job", once(&seen, 1, None)).await);
    let after = w.node().read("job").await;
    assert_eq!((after.head, after.due_at, after.next), (None, None, None));
    assert_eq!(after.last_started, Some(t(60)));
}

pub(super) async fn nothing_starts_after_not_after(w: &Cluster) {
    let seen = job(w).await;
    let mut claim = once(&seen, 1, next(t(120)));
    claim.not_after = Some(t(70));
    assert_eq!(lost(w.node().claim(ms(70_001), "job", claim.clone()).await), seen);
    won(w.node().claim(t(70), "job", claim).await);
}

pub(super) async fn a_later_occurrence_starts_and_those_before_it_are_counted(w: &Cluster) {
    let seen = job(w).await;
    let claim = once(&seen, 1, next(t(360))).starting(t(300).into(), missed(4, t(240)));
    let claimed = won(w.node().claim(t(301), "job", claim).await);
    assert_eq!(claimed.occurrence, t(300).into());
    let after = w.node().read("job").await;
    assert_eq!((after.next, after.last_started), (next(t(360)), Some(t(300))));
    assert_eq!((after.counters.started, after.counters.missed), (1, 4));
}

pub(super) async fn nothing_starts_before_its_scheduled_time(w: &Cluster) {
    let seen = job(w).await;
    let claim = once(&seen, 1, next(t(360))).starting(t(300).into(), missed(4, t(240)));
    assert_eq!(lost(w.node().claim(ms(299_999), "job", claim).await), seen);
    assert_eq!(w.node().read("job").await, seen);
}

pub(super) async fn an_earlier_occurrence_is_not_started(w: &Cluster) {
    let seen = job(w).await;
    let claim = once(&seen, 1, next(t(120))).starting(t(30).into(), missed(1, t(30)));
    assert_eq!(lost(w.node().claim(t(60), "job", claim).await), seen);
}

pub(super) async fn a_claim_names_every_occurrence_before_the_started_one(w: &Cluster) {
    let seen = job(w).await;
    let mut silent = once(&seen, 1, next(t(360)));
    silent.start = t(300).into();
    assert_eq!(lost(w.node().claim(t(301), "job", silent).await), seen);
    // The missed range of a claim lies between the expected occurrence and the started one.
    for last in [t(59), t(300), t(301)] {
        let claim = once(&seen, 1, next(t(360))).starting(t(300).into(), missed(4, last));
        assert_eq!(lost(w.node().claim(t(301), "job", claim).await), seen);
    }
    let mut nothing = once(&seen, 1, next(t(120)));
    nothing.not_run = Some(missed(1, t(60)));
    assert_eq!(lost(w.node().claim(t(60), "job", nothing).await), seen);
    assert_eq!(w.node().read("job").await, seen);
}

pub(super) async fn an_advance_moves_the_cursor_and_counts(w: &Cluster) {
    let seen = job(w).await;
    let skip = Advance::new(seen.generation, t(60), missed(5, t(300)), next(t(360)));
    let after = state(w.node().act(t(301), "job", Action::Advance(skip)).await);
    assert_eq!((after.next, after.last_started), (next(t(360)), None));
    assert_eq!((after.counters.missed, after.counters.started), (5, 0));
    let passed = NotRun { count: Some(2), last: t(420), reason: NotRunReason::Overlap };
    let skip = Advance::new(seen.generation, t(360), passed, next(t(480)));
    let after = state(w.node().act(t(421), "job", Action::Advance(skip)).await);
    assert_eq!((after.counters.missed, after.counters.skipped), (5, 2));
    let uncounted = NotRun { count: None, last: t(480), reason: NotRunReason::CatchUp };
    let skip = Advance::new(seen.generation, t(480), uncounted, None);
    let after = state(w.node().act(t(481), "job", Action::Advance(skip)).await);
    assert_eq!((after.next, after.head, after.counters.missed), (None, None, 5));
}

pub(super) async fn an_advance_that_expects_another_cursor_changes_nothing(w: &Cluster) {
    let seen = job(w).await;
    let skip = |generation, expected, last, then| {
        Advance::new(generation, expected, missed(1, last), next(then))
    };
    for (now, wrong) in [
        (t(61), skip(seen.generation + 1, t(60), t(60), t(120))),
        (t(61), skip(seen.generation, t(59), t(59), t(120))),
        (t(61), skip(seen.generation, t(60), t(60), t(60))),
        (t(61), skip(seen.generation, t(60), t(60), t(59))),
        (t(61), skip(seen.generation, t(60), t(59), t(120))),
        (t(61), skip(seen.generation, t(60), t(120), t(120))),
        (ms(59_999), skip(seen.generation, t(60), t(60), t(120))),
    ] {
        assert_eq!(
            state(w.node().act(now, "job", Action::Advance(wrong)).await),
            seen,
            "{wrong:?}"
        );
    }
    let right = skip(seen.generation, t(60), t(60), t(120));
    let after = state(w.node().act(t(61), "job", Action::Advance(right)).await);
    let again = state(w.node().act(t(61), "job", Action::Advance(right)).await);
    assert_eq!(again, after, "asked again, it counts nothing twice");
}

pub(super) async fn a_claim_whose_reply_was_lost_has_the_same_reply_again(w: &Cluster) {
    let seen = job(w).await;
    let claim = once(&seen, 7, next(t(120)));
    let claimed = won(w.node().claim(t(60), "job", claim.clone()).await);
    let before = w.node().read("job").await;
    for seconds in [60, 90, 130] {
        assert_eq!(won(w.node().claim(t(seconds), "job", claim.clone()).await), claimed);
    }
    assert_eq!(w.node().read("job").await, before, "and wins nothing new");
    let mut other = claim;
    other.claim_id = 8;
    lost(w.node().claim(t(90), "job", other).await);
}

pub(super) async fn claim_ids_differ_to_the_last_bit(w: &Cluster) {
    let seen = job(w).await;
    let claim = u128::MAX - 1;
    let claimed = won(w.node().claim(t(60), "job", once(&seen, claim, next(t(120)))).await);
    for other in [u128::MAX, claim >> 1, claim & u128::from(u64::MAX), claim << 64, 0] {
        lost(w.node().claim(t(60), "job", once(&seen, other, next(t(120)))).await);
    }
    assert_eq!(won(w.node().claim(t(60), "job", once(&seen, claim, next(t(120)))).await), claimed);
}

pub(super) async fn fences_grow_with_every_claim(w: &Cluster) {
    let mut seen = job(w).await;
    let mut fence = 0;
    // The clock stands still, and once it goes back.
    for (claim, now) in (1..).zip([t(900), t(900), t(900), t(800), t(1_000), t(1_000)]) {
        let at = head(&seen).scheduled_at;
        let then = next(at + chrono::TimeDelta::seconds(60));
        let claimed = won(w.node().claim(now, "job", once(&seen, claim, then)).await);
        assert!(claimed.fence > fence, "{} after {fence}", claimed.fence);
        fence = claimed.fence;
        seen = w.node().read("job").await;
    }
}

pub(super) async fn each_operation_of_a_batch_is_decided_alone(w: &Cluster) {
    let (due, later) = (job(w).await, w.node().register(t(0), "later", t(999)).await);
    let stale = w.node().register(t(0), "stale", t(60)).await;
    won(w.node().claim(t(60), "stale", once(&stale, 9, next(t(120)))).await);
    let claim = |seen, id| Action::Claim(once(seen, id, next(t(1_200))));
    let first = Some(t(60).into());
    let operations = [
        Operation::new("stale", claim(&stale, 1)),
        Operation::new("missing", Action::Read),
        Operation::new("job", claim(&due, 2)),
        Operation::new("new", Action::Register { definition: "every 1m", version: 0, first }),
        Operation::new("later", claim(&later, 3)),
    ];
    let applied = w.node().apply(t(60), &operations).await;
    assert_eq!(applied.now, t(60));
    let shown: Vec<String> = applied
        .replies
        .into_iter()
        .map(|reply| match fine(reply) {
            Reply::Absent => "absent".to_owned(),
            Reply::Claimed(claimed) => {
                format!("claimed {}", claimed.occurrence.scheduled_at == t(60))
            }
            Reply::State(state) => state.name,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(shown, ["stale", "absent", "claimed true", "new", "later"]);
}

pub(super) async fn operations_on_one_job_are_applied_in_their_order(w: &Cluster) {
    let first = Some(t(60).into());
    let trigger = || Action::trigger("id");
    let register = || Action::Register { definition: "every 1m", version: 0, first };
    let operations = [
        Action::Read,
        register(),
        trigger(),
        Action::Pause { note: "because", until: None },
        trigger(),
        Action::Resume,
        Action::Delete,
        Action::Read,
        register(),
    ]
    .map(|action| Operation::new("job", action));
    let replies = w.node().replies(t(1), &operations).await;
    let shown: Vec<_> = replies
        .iter()
        .map(|reply| match reply {
            Reply::State(state) => Ok((state.due_at, state.paused.is_some())),
            Reply::Triggered(triggered) => {
                Ok((triggered.state.due_at, triggered.state.paused.is_some()))
            }
            other => Err(other),
        })
        .collect();
    let (triggered, absent, deleted) = (Some(t(1)), Err(&Reply::Absent), Err(&Reply::Deleted));
    assert_eq!(
        shown[..4],
        [absent, Ok((Some(t(60)), false)), Ok((triggered, false)), Ok((triggered, true))]
    );
    assert_eq!(
        shown[4..],
        [Ok((triggered, true)), Ok((triggered, false)), deleted, deleted, Ok((Some(t(60)), false))]
    );
    assert_eq!(replies[8], Reply::State(Box::new(w.node().read("job").await)));
}

pub(super) async fn a_repeated_batch_has_the_same_replies(w: &Cluster) {
    let seen: Vec<_> =
        [w.node().register(t(0), "one", t(60)).await, w.node().register(t(0), "two", t(60)).await]
            .into();
    let operations = [
        Operation::new("one", Action::Claim(once(&seen[0], 1, next(t(120))))),
        Operation::new("two", Action::Claim(once(&seen[1], 2, next(t(120))))),
    ];
    let first = w.node().replies(t(60), &operations[..1]).await;
    let both = w.node().replies(t(60), &operations).await;
    let again = w.node().replies(t(61), &operations).await;
    assert_eq!(both[0], first[0]);
    assert_eq!(again, both);
    assert!(matches!(both[1], Reply::Claimed(_)));
}

pub(super) async fn a_claim_is_not_a_trigger_of_the_same_instant(w: &Cluster) {
    let seen = job(w).await;
    let mut claim: Claim = once(&seen, 1, next(t(120)));
    claim.expected.trigger = Some("id".into());
    claim.start.trigger = Some("id".into());
    assert_eq!(lost(w.node().claim(t(60), "job", claim).await), seen);
}
