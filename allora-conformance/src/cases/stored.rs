//! Stored schedules: add, get, list, edit, delete, find.

use crate::cluster::*;
use allora_core::{
    ErrorKind,
    backend::{
        Action, DeadLetter, DueQuery, ImportedProgress, JobState, NewSchedule, Operation, Page,
        Pause, Preferred, Replan, Reply,
    },
};

async fn error_of<T: std::fmt::Debug>(result: allora_core::Result<T>) -> ErrorKind {
    result.expect_err("this must be refused").kind()
}

pub(super) async fn a_created_schedule_is_there(w: &Cluster) {
    let new = NewSchedule::new("mail", "every 1h", Some(t(60).into())).data(b"to: x");
    let added = fine(w.node().add_one(t(0), "job", new).await);
    assert_eq!((&*added.name, &*added.kind, &*added.definition), ("job", "mail", "every 1h"));
    assert_eq!((&*added.data, added.version), (&b"to: x"[..], 0));
    assert_eq!((added.next, added.due_at), (Some(t(60).into()), Some(t(60))));
    let other = w.join("other").await;
    assert_eq!(other.shown("job").await, added);
}

pub(super) async fn a_name_that_is_taken_is_refused(w: &Cluster) {
    let mine = w.node().add(t(0), "job", "mail", t(60)).await;
    let new = NewSchedule::new("other", "every 1h", None).data(b"x");
    assert_eq!(error_of(w.node().add_one(t(1), "job", new).await).await, ErrorKind::AlreadyExists);
    assert_eq!(w.node().read("job").await, mine);
    w.node().register(t(0), "code", t(60)).await;
    let new = NewSchedule::new("mail", "every 1h", None);
    assert_eq!(error_of(w.node().add_one(t(1), "code", new).await).await, ErrorKind::AlreadyExists);
}

pub(super) async fn many_creations_have_their_replies_by_position(w: &Cluster) {
    w.node().add(t(0), "job 7", "mail", t(60)).await;
    let names: Vec<String> = (0..1_200).rev().map(|i| format!("job {i}")).collect();
    let new = |i: i64| NewSchedule::new("sms", "every 1h", Some(t(i).into()));
    let mut new: Vec<_> = (0..).zip(&names).map(|(i, name)| (name.as_str(), new(i))).collect();
    new.insert(3, ("bad\n", NewSchedule::new("sms", "every 1h", None)));
    new.push(("job 9", NewSchedule::new("fax", "every 1h", None)));
    let create = new.iter().map(|(name, new)| Operation::new(name, Action::Create(*new)));
    let operations: Vec<Operation<'_>> = create.collect();
    let added = w.node().apply(t(0), &operations).await.replies;
    for (i, ((name, new), added)) in new.iter().zip(added).enumerate() {
        match (*name, added.map(state)) {
            ("bad\n", added) => assert_eq!(error_of(added).await, ErrorKind::Invalid),
            ("job 7", added) => assert_eq!(error_of(added).await, ErrorKind::AlreadyExists),
            (_, added) if i + 1 == new_len(&names) => {
                assert_eq!(error_of(added).await, ErrorKind::AlreadyExists, "twice in one batch");
            }
            (name, added) => {
                let added = fine(added);
                assert_eq!((&*added.name, &*added.kind), (name, "sms"));
                assert_eq!(added.next, new.first);
                assert_eq!(w.node().shown(name).await, added);
            }
        }
    }
    assert_eq!(w.node().list(Page::first(2_000).kind("sms")).await.len(), 1_199);
}

/// The batch has a bad name and one name twice beside these.
fn new_len(names: &[String]) -> usize {
    names.len() + 2
}

pub(super) async fn a_schedule_is_created_with_its_progress(w: &Cluster) {
    let mut seen = JobState::empty("job");
    seen.last_started = Some(t(30));
    seen.paused = Some(Pause { since: t(40), until: None, note: "moving".into() });
    (seen.counters.started, seen.counters.succeeded, seen.counters.lost) = (7, 5, 1);
    (seen.counters.failed, seen.counters.missed, seen.counters.expired) = (2, 3, 4);
    (seen.counters.cancelled, seen.counters.skipped) = (6, 8);
    let letter = |at: i64| DeadLetter {
        occurrence: t(at).into(),
        attempts: 3,
        died_at: t(at + 1),
        error: "no such host".into(),
    };
    seen.dead = vec![letter(10), letter(30)];
    let new = NewSchedule::new("mail", "every 1m", Some(t(60).into()));
    let mine =
        fine(w.node().add_one(t(50), "job", new.progress(ImportedProgress::of(&seen))).await);
    assert_eq!((mine.last_started, &mine.paused), (seen.last_started, &seen.paused));
    assert_eq!((mine.counters, &mine.dead), (seen.counters, &seen.dead));
    assert_eq!((mine.next, mine.head.clone()), (Some(t(60).into()), None), "it is paused");
    assert_eq!(w.node().read("job").await, mine);
    let resumed = w.node().resume(t(51), "job").await;
    let claimed = won(w.node().claim(t(60), "job", once(&resumed, 1, Some(t(120).into()))).await);
    assert_eq!(claimed.occurrence, t(60).into());
    assert_eq!(w.node().read("job").await.counters.started, 8);
    // Its cursor would be on what was started, and no node would claim it.
    for first in [t(30), t(10)] {
        let new = NewSchedule::new("mail", "every 1m", Some(first.into()));
        let added =
            w.node().add_one(t(50), "other", new.progress(ImportedProgress::of(&seen))).await;
        assert_eq!(error_of(added).await, ErrorKind::Invalid);
    }
    assert_eq!(w.node().list(Page::first(9)).await, ["job"]);
}

pub(super) async fn registering_a_stored_name_alters_nothing(w: &Cluster) {
    let mine = w.node().add(t(0), "job", "mail", t(60)).await;
    assert_eq!(w.node().register(t(1), "job", t(99)).await, mine);
}

pub(super) async fn a_missing_schedule_is_not_found(w: &Cluster) {
    let node = w.node();
    node.register(t(0), "deleted", t(60)).await;
    node.delete(t(1), "deleted").await;
    for name in ["missing", "deleted"] {
        assert_eq!(error_of(node.queries().get(name).await).await, ErrorKind::NotFound);
        for change in [
            Action::Pause { note: "", until: None },
            Action::Resume,
            Action::trigger("x"),
            edit(0, None, None, None),
        ] {
            assert_eq!(error_of(node.modify(t(2), name, change).await).await, ErrorKind::NotFound);
        }
        assert_eq!(error_of(node.try_delete(t(2), name).await).await, ErrorKind::NotFound);
    }
    assert_eq!(node.act(t(2), "missing", Action::Read).await, Reply::Absent, "nothing was left");
}

pub(super) async fn stored_jobs_and_jobs_in_code_are_listed_page_by_page(w: &Cluster) {
    for i in 0..25 {
        if i % 3 == 0 {
            w.node().register(t(0), &format!("job {i:02}"), t(60)).await;
        } else {
            w.node().add(t(0), &format!("job {i:02}"), "mail", t(60)).await;
        }
    }
    w.node().add(t(0), "joke", "jest", t(60)).await;
    w.node().delete(t(1), "job 07").await;
    let mut listed: Vec<String> = Vec::new();
    loop {
        let mut page = Page::first(4).prefix("job ");
        if let Some(last) = listed.last() {
            page = page.after(last);
        }
        let names = w.node().list(page).await;
        assert!(names.len() <= 4);
        // What comes and goes behind the page does not shift it.
        let name = format!("a {}", listed.len());
        w.node().add(t(2), &name, "mail", t(60)).await;
        if names.is_empty() {
            break;
        }
        listed.extend(names);
    }
    let all = (0..25).filter(|i| *i != 7).map(|i| format!("job {i:02}"));
    assert_eq!(listed, all.collect::<Vec<_>>());
    assert_eq!(w.node().list(Page::first(99).kind("jest")).await, ["joke"]);
    assert_eq!(w.node().list(Page::first(99).kind("jest").prefix("job ")).await, [""; 0]);
    assert_eq!(w.node().list(Page::first(99).kind("").prefix("j")).await.len(), 9);
    let states = fine(w.node().queries().list(Page::first(1).prefix("joke")).await);
    assert_eq!(states, [fine(w.node().queries().get("joke").await)], "with all there is to know");
}

pub(super) async fn an_edit_changes_only_the_generation_that_was_read(w: &Cluster) {
    let seen = w.node().add(t(0), "job", "mail", t(60)).await;
    let next = Some(t(30).into());
    let definition = Some(("every 2h", Replan::new(seen.next, next)));
    let change = edit(seen.generation, None, definition, Some(b"new"));
    let edited = fine(w.node().modify(t(1), "job", change.clone()).await);
    assert_eq!((&*edited.definition, &*edited.data), ("every 2h", &b"new"[..]));
    assert_eq!((edited.next, edited.kind.clone()), (next, seen.kind.clone()));
    assert!(edited.generation > seen.generation);
    assert_eq!(edited.incarnation, seen.incarnation);
    assert_eq!(w.node().read("job").await, edited);
    let stale = w.node().modify(t(2), "job", change.clone()).await;
    assert_eq!(error_of(stale).await, ErrorKind::AlreadyExists);
    assert_eq!(w.node().read("job").await, edited);
    let data = edit(edited.generation, None, None, Some(b"newer"));
    let after = fine(w.node().modify(t(3), "job", data).await);
    assert_eq!((&*after.definition, after.next), ("every 2h", next));
    assert_eq!(&*after.data, b"newer");
    assert!(after.generation > edited.generation, "a node that has the old data claims nothing");
}

pub(super) async fn an_edited_kind_routes_the_schedule_elsewhere(w: &Cluster) {
    let node = w.node();
    let seen = node.add(t(0), "job", "mail", t(60)).await;
    let route = |generation, kind| edit(generation, kind, None, None);
    let edited = fine(node.modify(t(1), "job", route(seen.generation, Some("sms"))).await);
    assert_eq!((&*edited.kind, edited.next), ("sms", seen.next));
    assert!(edited.generation > seen.generation, "a node that knows the old kind claims nothing");
    assert_eq!(node.found(&["mail"], t(99), 9).await, (vec![], None));
    assert_eq!(node.found(&["sms"], t(99), 9).await, (vec!["job".into()], None));
    assert_eq!(node.list(Page::first(9).kind("sms")).await, ["job"]);
    let bad = node.modify(t(2), "job", route(edited.generation, Some("bad\n"))).await;
    assert_eq!(error_of(bad).await, ErrorKind::Invalid);
    assert_eq!(node.read("job").await, edited);
    let code = node.register(t(0), "code", t(60)).await;
    let routed = node.modify(t(2), "code", route(code.generation, Some("sms"))).await;
    assert_eq!(error_of(routed).await, ErrorKind::Invalid, "no kind routes a job in code");
}

pub(super) async fn an_edit_does_not_repeat_a_started_occurrence(w: &Cluster) {
    let seen = w.node().add(t(0), "job", "mail", t(60)).await;
    won(w.node().claim(t(60), "job", once(&seen, 1, Some(t(120).into()))).await);
    let seen = w.node().read("job").await;
    for back in [t(60), t(0)] {
        let definition = Some(("every 2h", Replan::new(seen.next, Some(back.into()))));
        let edit = edit(seen.generation, None, definition, Some(b"x"));
        assert_eq!(error_of(w.node().modify(t(61), "job", edit).await).await, ErrorKind::Invalid);
    }
    assert_eq!(w.node().read("job").await, seen, "and half of it is not done either");
}

pub(super) async fn a_due_occurrence_before_an_edited_cursor_is_missed(w: &Cluster) {
    let seen = w.node().add(t(0), "job", "mail", t(60)).await;
    let plan = Replan::new(seen.next, Some(t(7_200).into()));
    let definition = Some(("every 2h", plan));
    let edit = edit(seen.generation, None, definition, None);
    assert_eq!(fine(w.node().modify(t(61), "job", edit).await).counters.missed, 1);
}

pub(super) async fn a_deleted_job_is_deleted_for_every_operation(w: &Cluster) {
    let seen = w.node().add(t(0), "job", "mail", t(60)).await;
    w.node().trigger(t(1), "job", "x").await;
    w.node().delete(t(2), "job").await;
    for act in [
        Action::Read,
        Action::Claim(once(&seen, 1, Some(t(120).into()))),
        Action::Redefine {
            generation: seen.generation,
            definition: "x",
            version: 9,
            plan: Replan::default(),
        },
        Action::Reap,
    ] {
        assert_eq!(w.node().act(t(61), "job", act).await, Reply::Deleted);
    }
    assert!(w.node().list(Page::first(9)).await.is_empty());
    assert_eq!(w.node().found(&["mail"], t(999), 9).await, (vec![], None));
}

pub(super) async fn a_name_that_comes_back_begins_anew_above_its_old_fences(w: &Cluster) {
    let old = w.node().add(t(0), "job", "mail", t(60)).await;
    let claimed = won(w.node().claim(t(600), "job", once(&old, 1, Some(t(660).into()))).await);
    w.node().trigger(t(600), "job", "x").await;
    w.node().pause(t(600), "job").await;
    w.node().delete(t(600), "job").await;
    // The clock has gone back, and the other kind of job comes with the name.
    let new = w.node().register(t(1), "job", t(60)).await;
    assert!(new.incarnation > old.incarnation && new.generation > claimed.fence);
    assert_eq!((&*new.kind, &new.data[..]), ("", &[][..]));
    assert_eq!((new.paused.clone(), new.counters.started, new.last_started), (None, 0, None));
    assert_eq!(new.head, Some(t(60).into()));
    lost(w.node().claim(t(60), "job", once(&old, 2, Some(t(120).into()))).await);
    let again = won(w.node().claim(t(60), "job", once(&new, 3, Some(t(120).into()))).await);
    assert!(again.fence > claimed.fence);
    assert_eq!(again.incarnation, new.incarnation);
    lost(w.node().claim(t(700), "job", once(&old, 1, Some(t(660).into()))).await);
}

pub(super) async fn a_run_of_a_deleted_job_receives_that_and_moves_nothing(w: &Cluster) {
    w.node().add(t(0), "job", "mail", t(60)).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    w.node().delete(t(61), "job").await;
    let told = w.node().end(t(62), "job", run.fence, extend()).await;
    assert_eq!(told, Reply::CancelRequested(t(122)));
    for _ in 0..2 {
        assert_eq!(w.node().end(t(62), "job", run.fence, ran(t(120))).await, Reply::Accepted);
    }
    assert_eq!(w.node().end(t(62), "job", run.fence, extend()).await, Reply::Deleted);
    let new = w.node().add(t(63), "job", "mail", t(90)).await;
    for end in [extend(), ran(t(120))] {
        assert_eq!(w.node().end(t(64), "job", run.fence, end).await, Reply::LeaseLost);
    }
    assert_eq!(w.node().read("job").await, new);
}

pub(super) async fn a_tombstone_outlives_every_late_writer(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    w.node().delete(t(1), "job").await;
    let almost_seven_days = t(7 * 86_400);
    let answer = w.node().act(almost_seven_days, "job", Action::Read).await;
    assert_eq!(answer, Reply::Deleted);
}

pub(super) async fn fences_grow_after_the_tombstone_is_removed(w: &Cluster) {
    let seen = w.node().register(t(0), "job", t(60)).await;
    let claimed = won(w.node().claim(t(600), "job", once(&seen, 1, Some(t(660).into()))).await);
    w.node().delete(t(600), "job").await;
    w.node().prune(t(8 * 86_400)).await;
    w.node().act(t(8 * 86_400), "job", Action::Read).await;
    // The clock has gone back to the beginning.
    let new = w.node().register(t(0), "job", t(60)).await;
    assert!(new.incarnation > claimed.fence, "{} after {}", new.incarnation, claimed.fence);
}

pub(super) async fn due_schedules_are_found_by_kind_the_earliest_first(w: &Cluster) {
    for (name, kind, due) in [
        // Of equal times, any may be first.
        ("a", "mail", 60),
        ("c", "mail", 60),
        ("b", "sms", 50),
        ("d", "mail", 40),
        ("e", "fax", 10),
    ] {
        w.node().add(t(0), name, kind, t(due)).await;
    }
    w.node().register(t(0), "code", t(5)).await;
    let node = w.node();
    let found = async |kinds: &[&str], until, limit| {
        let (names, next) = node.found(kinds, t(until), limit).await;
        (names.join(" "), next)
    };
    assert_eq!(found(&["mail", "sms"], 99, 9).await, ("d b a c".into(), None));
    assert_eq!(found(&["mail", "sms"], 99, 2).await, ("d b".into(), Some(t(60))));
    assert_eq!(found(&["mail", "sms"], 60, 9).await, ("d b".into(), Some(t(60))), "before");
    assert_eq!(found(&["mail", "mail"], 61, 9).await, ("d a c".into(), None), "once");
    assert_eq!(found(&["sms"], 50, 9).await, (String::new(), Some(t(50))));
    assert_eq!(found(&["mail"], 99, 0).await, (String::new(), Some(t(40))));
    assert_eq!(found(&[], 99, 9).await, (String::new(), None));
    assert_eq!(found(&["missing"], 99, 9).await, (String::new(), None));
    assert_eq!(found(&[""], 99, 9).await, (String::new(), None), "nodes know their own");
}

pub(super) async fn the_kinds_of_stored_schedules_are_listed(w: &Cluster) {
    let node = w.node();
    let kinds = async || fine(node.queries().kinds().await);
    let knows = async |kind: &str| kinds().await.iter().any(|known| known == kind);
    node.register(t(0), "code", t(60)).await;
    node.trigger(t(0), "code", "by hand").await;
    assert_eq!(kinds().await, [""; 0], "jobs in code have none");
    for (name, kind) in [("a", "mail"), ("b", "sms"), ("c", "mail"), ("d", "ß%_")] {
        node.add(t(0), name, kind, t(60)).await;
    }
    let mut all = kinds().await;
    all.sort_unstable();
    assert_eq!(all, ["mail", "sms", "ß%_"], "each once");
    let seen = node.read("b").await;
    let edit = edit(seen.generation, Some("fax"), None, None);
    fine(node.modify(t(1), "b", edit).await);
    assert!(knows("fax").await);
    node.delete(t(1), "a").await;
    assert!(knows("mail").await, "there is another one");
}

pub(super) async fn due_schedules_are_found_whole_and_up_to_date(w: &Cluster) {
    let seen = w.node().add(t(0), "job", "mail", t(60)).await;
    let (found, _) = w.node().find(DueQuery::new(&["mail"], t(61), 9)).await;
    assert_eq!(found, std::slice::from_ref(&seen));
    let run = won(w.node().claim(t(60), "job", once(&seen, 1, Some(t(120).into()))).await);
    w.node().end(t(61), "job", run.fence, ran_and_stay()).await;
    assert_eq!(w.node().found(&["mail"], t(120), 9).await, (vec![], Some(t(120))));
    let seen = w.node().read("job").await;
    let run = won(w.node().claim(t(120), "job", once(&seen, 2, None)).await);
    w.node().end(t(121), "job", run.fence, ran_and_stay()).await;
    assert_eq!(w.node().found(&["mail"], t(9_999), 9).await, (vec![], None));
}

pub(super) async fn no_more_due_schedules_are_left_out_than_asked_for(w: &Cluster) {
    let node = w.node();
    let names: Vec<String> = (0..6).map(|i| format!("due-{i}")).collect();
    for (i, name) in (0..).zip(&names) {
        node.add(t(0), name, "mail", t(i)).await;
    }
    for skip in [0, 1, 3, 6, 99] {
        let (found, _) = node.find(DueQuery::new(&["mail"], t(99), 9).skipping(skip)).await;
        let found: Vec<String> = found.into_iter().map(|state| state.name).collect();
        assert!(found.is_sorted(), "{found:?}");
        let behind = names.iter().skip(skip);
        assert!(behind.clone().all(|name| found.contains(name)), "{skip}: {found:?}");
    }
}

pub(super) async fn a_query_that_prefers_some_schedules_hides_no_other(w: &Cluster) {
    let node = w.node();
    let names: Vec<String> = (0..6).map(|i| format!("due-{i}")).collect();
    for (i, name) in (0..).zip(&names) {
        node.add(t(0), name, "mail", t(i)).await;
    }
    let rank = |name: &str| usize::from(name != "due-2" && name != "due-5");
    for limit in [1, 3, 6, 9] {
        let query = DueQuery::new(&["mail"], t(99), limit);
        let query = query.preferring(Preferred::new(3, &rank));
        let (found, next_due) = node.find(query).await;
        let found: Vec<String> = found.into_iter().map(|state| state.name).collect();
        assert_eq!(found.len(), limit.min(6), "{found:?}");
        assert!(found.is_sorted(), "{found:?}");
        let first_other = (0..).zip(&names).find(|(_, name)| !found.contains(name));
        assert_eq!(next_due, first_other.map(|(i, _)| t(i)), "beside {found:?}");
    }
}

pub(super) async fn a_leased_schedule_is_found_again_when_its_lease_ends(w: &Cluster) {
    w.node().add(t(0), "job", "mail", t(60)).await;
    let run = won(w.node().lease(t(60), "job", 1).await);
    assert_eq!(w.node().found(&["mail"], t(120), 9).await, (vec![], Some(t(120))));
    w.node().end(t(90), "job", run.fence, extend()).await;
    assert_eq!(w.node().found(&["mail"], t(150), 9).await, (vec![], Some(t(150))));
    assert_eq!(w.node().found(&["mail"], t(151), 9).await, (vec!["job".into()], None));
    w.node().end(t(91), "job", run.fence, ran(t(200))).await;
    assert_eq!(w.node().found(&["mail"], t(151), 9).await, (vec![], Some(t(200))));
}

pub(super) async fn an_ended_lease_is_found_to_be_reaped(w: &Cluster) {
    let seen = w.node().add(t(0), "job", "mail", t(60)).await;
    let claim = marked(&seen, 1, t(900), allora_core::backend::Sharing::Exclusive);
    won(w.node().claim(t(60), "job", claim).await);
    assert_eq!(w.node().found(&["mail"], t(120), 9).await, (vec![], Some(t(120))));
    assert_eq!(w.node().found(&["mail"], t(121), 9).await.0, ["job"]);
    w.node().reap(t(120), "job").await;
    assert_eq!(w.node().found(&["mail"], t(121), 9).await, (vec![], Some(t(900))));
}
