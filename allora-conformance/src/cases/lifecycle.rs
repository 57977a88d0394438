//! A store from its first day on: empty, filled, seen by nodes that join.

use crate::{Capability, cluster::*};
use allora_core::{
    Backend, ErrorKind,
    backend::{
        Action, Advance, Claim, Completion, Cursor, Edit, NotRun, NotRunReason, Operation, Page,
        Replan, Reply, Sharing,
    },
};

pub(super) async fn an_empty_store_has_no_job(w: &Cluster) {
    let then = Cursor::To(Some(t(60).into()));
    let claim = Claim::at_most_once(1, 0, t(0).into(), then, MINUTE, Sharing::Shared);
    let passed = NotRun { count: None, last: t(0), reason: NotRunReason::CatchUp };
    for act in [
        Action::Read,
        Action::Redefine {
            generation: 0,
            definition: "every 1h",
            version: 9,
            plan: Replan::default(),
        },
        Action::Claim(claim),
        Action::Advance(Advance::new(0, t(0), passed, Some(t(60).into()))),
        Action::Reap,
    ] {
        assert_eq!(w.node().act(t(0), "missing", act).await, Reply::Absent);
    }
    assert_eq!(
        w.node().act(t(0), "missing", Action::Read).await,
        Reply::Absent,
        "nothing was left"
    );
}

pub(super) async fn a_registered_job_is_seen_by_every_node(w: &Cluster) {
    let first = Some(t(60).into());
    let act = Action::Register { definition: "*/5 * * * *", version: 3, first };
    let mine = state(w.node().act(t(0), "job", act).await);
    assert_eq!((&*mine.name, &*mine.kind), ("job", ""));
    assert_eq!((&*mine.definition, mine.version), ("*/5 * * * *", 3));
    assert_eq!((mine.next, mine.due_at), (first, Some(t(60))));
    assert_eq!(mine.head, Some(t(60).into()));
    assert_eq!((mine.attempts, mine.last_started), (0, None));
    assert!(mine.leases.is_empty() && mine.paused.is_none() && mine.unreadable.is_none());
    let late = w.join("late").await;
    assert_eq!(late.read("job").await, mine);
}

pub(super) async fn registering_again_alters_nothing(w: &Cluster) {
    let mine = w.node().register(t(0), "job", t(60)).await;
    let other = w.join("other").await;
    for seconds in [1, 100] {
        let first = Some(t(seconds + 7).into());
        let act = Action::Register { definition: "something else", version: 7, first };
        assert_eq!(state(other.act(t(seconds), "job", act).await), mine);
    }
    assert_eq!(w.node().read("job").await, mine);
}

pub(super) async fn reading_alters_nothing(w: &Cluster) {
    let mine = w.node().register(t(0), "job", t(60)).await;
    for seconds in [0, 60, 1_000_000] {
        assert_eq!(state(w.node().act(t(seconds), "job", Action::Read).await), mine);
    }
}

pub(super) async fn jobs_do_not_disturb_each_other(w: &Cluster) {
    let one = w.node().register(t(0), "one", t(60)).await;
    let two = w.node().register(t(0), "two", t(60)).await;
    won(w.node().claim(t(60), "one", once(&one, 1, Some(t(120).into()))).await);
    assert_eq!(w.node().read("two").await, two);
}

pub(super) async fn a_job_without_a_first_occurrence_offers_nothing(w: &Cluster) {
    let act = Action::Register { definition: "never", version: 0, first: None };
    let seen = state(w.node().act(t(0), "job", act).await);
    assert_eq!((seen.head, seen.due_at, seen.next), (None, None, None));
}

pub(super) async fn namespaces_are_invisible_to_each_other(w: &Cluster) {
    let beside = w.beside().await;
    let mine = w.node().register(t(0), "job", t(60)).await;
    assert_eq!(beside.node().act(t(0), "job", Action::Read).await, Reply::Absent);
    let theirs = beside.node().register(t(0), "job", t(30)).await;
    let claimed = beside.node().claim(t(30), "job", once(&theirs, 1, Some(t(90).into()))).await;
    won(claimed);
    assert_eq!(w.node().read("job").await, mine);
    if w.node().backend.queries().is_some() {
        w.node().add(t(0), "stored", "kind", t(60)).await;
        let there = beside.node();
        assert_eq!(there.list(allora_core::backend::Page::first(9)).await, ["job"]);
        assert_eq!(there.found(&["kind"], t(999), 9).await, (vec![], None));
        w.node().delete(t(1), "stored").await;
    }
    fine(beside.tear_down().await);
}

pub(super) async fn unsupported_capabilities_are_denied_and_the_others_work(w: &Cluster) {
    for what in Capability::ALL {
        let declared = !w.unsupported().contains(what);
        let offered = what.is_offered(&*w.node().backend);
        assert!(
            offered.is_none_or(|offered| offered == declared),
            "{what:?}: the fixture says {declared}, the backend says {offered:?}"
        );
    }
}

pub(super) async fn the_namespace_is_the_same_on_every_node(w: &Cluster) {
    let other = w.join("other").await;
    assert_eq!(w.node().backend.namespace(), other.backend.namespace());
    assert!(!w.node().backend.namespace().is_empty());
}

pub(super) async fn an_empty_batch_returns_the_time(w: &Cluster) {
    assert_eq!(w.node().apply(t(5), &[]).await.now, t(5));
}

pub(super) async fn nodes_that_register_at_once_see_one_job(w: &Cluster) {
    let (one, two) = (w.join("one").await, w.join("two").await);
    let (mine, theirs) =
        futures::join!(one.register(t(0), "job", t(60)), two.register(t(0), "job", t(90)));
    assert_eq!(mine, theirs);
}

pub(super) async fn a_record_is_pruned_only_as_it_was_read_and_if_nothing_waits_in_it(w: &Cluster) {
    let node = w.node();
    let prune = |fence, cursor| Action::Prune { fence, cursor };
    assert_eq!(node.act(t(0), "job", prune(0, None)).await, Reply::Absent);
    let seen = node.register(t(0), "job", t(60)).await;
    let cursor = Some(t(60));
    for other in
        [prune(seen.fence - 1, cursor), prune(seen.fence, None), prune(seen.fence, Some(t(61)))]
    {
        assert_eq!(state(node.act(t(1), "job", other).await), seen);
    }
    let claimed = won(node.claim(t(60), "job", leased(&seen, 1)).await);
    let active = node.read("job").await;
    assert_eq!(state(node.act(t(61), "job", prune(active.fence, cursor)).await), active);
    let then = Cursor::To(Some(t(120).into()));
    let end = Action::Complete { fence: claimed.fence, then, completion: Completion::Succeeded };
    assert_eq!(node.act(t(62), "job", end).await, Reply::Accepted);
    let fence = node.read("job").await.fence;
    assert_eq!(node.act(t(63), "job", prune(fence, Some(t(120)))).await, Reply::Deleted);
    let late = w.join("late").await;
    assert_eq!(late.act(t(64), "job", Action::Read).await, Reply::Deleted);
    assert_eq!(late.act(t(64), "job", prune(fence, Some(t(120)))).await, Reply::Deleted);
    assert!(node.register(t(65), "job", t(180)).await.fence > fence);
}

pub(super) async fn the_records_of_nodes_are_in_no_list_and_no_search(w: &Cluster) {
    let node = w.node();
    let record = "allora:node:n1";
    let write = |definition| Action::Register { definition, version: 0, first: None };
    let first = state(node.act(t(0), record, write("seen=0")).await);
    let next = Action::Redefine {
        generation: first.generation,
        definition: "seen=1",
        version: 0,
        plan: Replan::default(),
    };
    let second = state(w.join("other").await.act(t(15), record, next).await);
    assert_eq!((second.definition.as_str(), second.next), ("seen=1", None));
    assert!(second.generation > first.generation);
    for name in ["a", "b", "z"] {
        node.register(t(16), name, t(60)).await;
    }
    assert_eq!(node.list(Page::first(2)).await, ["a", "b"]);
    assert_eq!(node.list(Page::first(2).after("a")).await, ["b", "z"]);
    assert_eq!(node.list(Page::first(9).after("a")).await, ["b", "z"]);
    assert_eq!(node.list(Page::first(9).prefix("allora:node:")).await, [record]);
    assert_eq!(node.found(&["", "kind"], t(999), 9).await, (vec![], None));
    assert!(fine(node.queries().kinds().await).is_empty());
}

pub(super) async fn the_record_of_a_calendar_is_kept_whole_and_is_in_no_list_and_no_search(
    w: &Cluster,
) {
    let (node, other) = (w.node(), w.join("other").await);
    let record = "allora:calendar:holidays-é";
    let dates = |n: i64| (0..n).map(|day| format!("{}\n", t(day * 86_400).date_naive()));
    let (short, long) = (dates(1).collect::<String>(), dates(10_000).collect::<String>());
    let first = Action::Register { definition: &short, version: 0, first: None };
    let first = state(node.act(t(0), record, first).await);
    let edit = |definition| {
        let mut edit = Edit::of(first.generation);
        edit.definition = Some((definition, Replan::default()));
        Action::Modify(edit)
    };
    let second = state(other.act(t(1), record, edit(&long)).await);
    assert_eq!((&second.definition, second.next), (&long, None));
    assert!(second.generation > first.generation);
    // Of two changes of one generation, one succeeds.
    let refused = node.apply(t(2), &[Operation::new(record, edit(&short))]).await.single();
    assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::AlreadyExists));
    for name in ["a", "z"] {
        node.register(t(3), name, t(60)).await;
    }
    assert_eq!(node.read(record).await, second);
    assert_eq!(node.list(Page::first(9)).await, ["a", "z"]);
    assert_eq!(node.list(Page::first(9).prefix("allora:calendar:")).await, [record]);
    assert_eq!(node.found(&["", "kind"], t(999), 9).await, (vec![], None));
    assert!(fine(node.queries().kinds().await).is_empty());
    assert_eq!(node.act(t(4), record, Action::Delete).await, Reply::Deleted);
    let again = Action::Register { definition: &short, version: 0, first: None };
    assert!(state(other.act(t(5), record, again).await).fence > second.fence);
}
