//! The record of changes: who changed what, and what it was before.

use crate::cluster::*;
use allora_core::{
    ErrorKind,
    backend::{
        Action, Author, CancelScope, Completion, Cursor, HistoryLimits, HistoryQuery,
        ImportedProgress, NewSchedule, Operation, Replan, Reply,
    },
    record::{Change, ChangeAction, ChangeResult, MAX_CHANGE_DATA, Record},
};

const DAY: i64 = 24 * 60 * 60;

fn ann() -> Author {
    Author::new("ann").via("console")
}

fn new(data: &[u8]) -> Action<'_> {
    Action::Create(NewSchedule::new("mail", "every 1m", Some(t(60).into())).data(data))
}

/// The action and the result of each change.
fn told(changes: &[Change]) -> Vec<(ChangeAction, &'static str)> {
    changes.iter().map(|change| (change.action, change.result.word())).collect()
}

/// One of the sides of a change.
fn side(record: &Option<Box<Record>>) -> &Record {
    record.as_deref().expect("the change keeps this side")
}

pub(super) async fn each_change_by_an_author_is_noted_once(w: &Cluster) {
    let author = ann().note("why");
    let by = |now, action| w.node().by(&author, t(now), "job", action);
    let generation = state(fine(by(1, new(b"")).await)).generation;
    fine(by(2, Action::Pause { note: "unused", until: None }).await);
    let replan = Replan::new(Some(t(60).into()), Some(t(90).into()));
    let definition = Some(("every 90s", replan));
    fine(by(3, edit(generation, None, definition, None)).await);
    fine(by(4, Action::trigger("id")).await);
    fine(by(5, Action::Cancel(CancelScope::All)).await);
    fine(by(6, Action::Resume).await);
    fine(by(7, Action::Resume).await);
    fine(by(8, Action::Delete).await);
    let changes = w.node().changes(Some("job")).await;
    let expected = [
        (ChangeAction::Delete, "applied"),
        (ChangeAction::Resume, "unchanged"),
        (ChangeAction::Resume, "applied"),
        (ChangeAction::Cancel, "applied"),
        (ChangeAction::Trigger, "applied"),
        (ChangeAction::Modify, "applied"),
        (ChangeAction::Pause, "applied"),
        (ChangeAction::Create, "applied"),
    ];
    assert_eq!(told(&changes), expected);
    assert!(changes.windows(2).all(|pair| pair[0].sequence > pair[1].sequence));
    for (change, second) in changes.iter().rev().zip(1..) {
        assert_eq!((&*change.name, change.at, &change.author), ("job", t(second), &author));
    }
    assert_eq!(changes[4].detail, "id");
    let [edit, pause, creation] = &changes[5..] else { panic!("eight changes: {changes:?}") };
    let definitions = [&edit.before, &edit.after].map(|record| &*side(record).definition);
    assert_eq!(definitions, ["every 1m", "every 90s"]);
    assert_eq!(side(&pause.before).paused, None);
    assert_eq!(side(&pause.after).paused.as_ref().map(|pause| pause.since), Some(t(2)));
    assert_eq!((&creation.before, &*side(&creation.after).kind), (&None, "mail"));
    assert_eq!(changes[0].after, None);
}

pub(super) async fn a_change_without_an_author_is_not_noted(w: &Cluster) {
    w.node().add(t(0), "job", "mail", t(60)).await;
    w.node().pause(t(1), "job").await;
    let run = w.node().trigger(t(2), "job", "id").await;
    won(w.node().claim(t(3), "job", triggered(&run, 1)).await);
    w.node().delete(t(4), "job").await;
    assert_eq!(w.node().changes(Some("job")).await, []);
    assert_eq!(w.node().changes(None).await, []);
}

pub(super) async fn a_refused_change_is_noted_and_changes_nothing(w: &Cluster) {
    let seen = w.node().add(t(0), "job", "mail", t(60)).await;
    let late = edit(seen.generation - 1, None, None, Some(b"x"));
    let error = w.node().by(&ann(), t(1), "job", late).await.expect_err("it was read otherwise");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    let mut now = w.node().read("job").await;
    now.fence = seen.fence;
    assert_eq!(now, seen);
    let changes = w.node().changes(Some("job")).await;
    assert_eq!(told(&changes), [(ChangeAction::Modify, "refused")]);
    assert_eq!(changes[0].result, ChangeResult::Refused(error.to_string()));
    assert_eq!((&changes[0].before, &changes[0].after), (&None, &None));
    // A bad author, and a name without a job.
    let bad = w.node().by(&Author::new(""), t(2), "job", Action::Resume).await;
    assert_eq!(bad.expect_err("it is no name").kind(), ErrorKind::Invalid);
    let none = w.node().by(&ann(), t(2), "none", Action::Resume).await;
    assert_eq!(none.expect_err("there is none").kind(), ErrorKind::NotFound);
    assert_eq!(w.node().changes(None).await, changes);
}

pub(super) async fn of_two_edits_at_once_each_is_noted_as_it_ended(w: &Cluster) {
    let seen = w.node().add(t(0), "job", "mail", t(60)).await;
    let (one, two) = (w.join("one").await, w.join("two").await);
    let edit = |data: &'static [u8]| edit(seen.generation, None, None, Some(data));
    let (bob, eve) = (Author::new("bob"), Author::new("eve"));
    let (mine, theirs) = futures::join!(
        one.by(&bob, t(1), "job", edit(b"bob")),
        two.by(&eve, t(1), "job", edit(b"eve"))
    );
    assert!(mine.is_ok() != theirs.is_ok(), "one of them wins: {mine:?}, {theirs:?}");
    let data = w.node().read("job").await.data;
    let mut changes = w.node().changes(Some("job")).await;
    changes.sort_by_key(|change| change.result.word());
    let expected = [(ChangeAction::Modify, "applied"), (ChangeAction::Modify, "refused")];
    assert_eq!(told(&changes), expected);
    assert_eq!(changes[0].author.actor.as_bytes(), data);
    assert_ne!(changes[1].author.actor.as_bytes(), data);
}

pub(super) async fn the_newest_changes_come_first_page_by_page(w: &Cluster) {
    // Names whose order differs from that of their lengths, and one that begins with another.
    let names = ["b", "a", "aa", "🧾"];
    for name in names {
        fine(w.node().by(&ann(), t(1), name, new(b"")).await);
    }
    // At one time, so that jobs have equal numbers.
    for second in 2..6 {
        for name in names {
            fine(
                w.node().by(&ann(), t(second), name, Action::Pause { note: "", until: None }).await,
            );
        }
    }
    let all = w.node().changes(None).await;
    assert_eq!(all.len(), 20);
    assert!(all.windows(2).all(|pair| pair[0].cursor() > pair[1].cursor()));
    assert_eq!(paged(w, None).await, all);
    for name in names {
        let of_name: Vec<Change> =
            all.iter().filter(|change| change.name == name).cloned().collect();
        assert_eq!(of_name.len(), 5);
        assert_eq!(w.node().changes(Some(name)).await, of_name);
        assert_eq!(paged(w, Some(name)).await, of_name);
    }
    assert_eq!(w.node().changes(Some("c")).await, []);
}

/// All changes, in pages of three.
async fn paged(w: &Cluster, name: Option<&str>) -> Vec<Change> {
    let mut paged: Vec<Change> = Vec::new();
    loop {
        let before = paged.last().map(Change::cursor);
        let mut query = HistoryQuery::new(3);
        (query.name, query.before) = (name, before.as_ref());
        let page = fine(w.node().queries().changes(query).await);
        assert!(page.len() <= 3);
        if page.is_empty() {
            return paged;
        }
        paged.extend(page);
        assert!(paged.len() < 100, "the pages repeat changes: {paged:?}");
    }
}

pub(super) async fn the_changes_of_a_deleted_job_are_kept(w: &Cluster) {
    for second in [1, 3] {
        fine(w.node().by(&ann(), t(second), "job", new(b"")).await);
        let deleted = w.node().by(&ann(), t(second + 1), "job", Action::Delete).await;
        assert_eq!(fine(deleted), Reply::Deleted);
    }
    let changes = w.node().changes(Some("job")).await;
    let (create, delete) = ((ChangeAction::Create, "applied"), (ChangeAction::Delete, "applied"));
    assert_eq!(told(&changes), [delete, create, delete, create]);
    assert!(changes.windows(2).all(|pair| pair[0].sequence > pair[1].sequence));
}

pub(super) async fn a_deletion_keeps_what_is_needed_to_undo_it(w: &Cluster) {
    let first = NewSchedule::new("mail", "every 1m", Some(t(60).into())).data(b"data");
    let seen = fine(w.node().add_one(t(0), "job", first).await);
    let run = won(w.node().claim(t(61), "job", leased(&seen, 1)).await);
    let then = Cursor::To(Some(t(120).into()));
    let end = RunAction::Complete { then, completion: Completion::Dead("no") };
    w.node().end(t(61), "job", run.fence, end).await;
    w.node().pause(t(62), "job").await;
    let seen = w.node().shown("job").await;
    fine(w.node().by(&ann(), t(63), "job", Action::Delete).await);
    let deletion = w.node().changes(Some("job")).await.remove(0);
    let before = deletion.state_before().expect("it was there");
    let new = NewSchedule::new(&before.kind, &before.definition, before.next).data(&before.data);
    let new = new.progress(ImportedProgress::of(&before));
    fine(w.node().add_one(t(64), "job", new).await);
    let again = w.node().shown("job").await;
    assert_eq!((again.dead.len(), again.counters.failed, &*again.data), (1, 1, &b"data"[..]));
    assert_eq!((again.next, again.last_started), (seen.next, seen.last_started));
    assert_eq!((again.counters, again.dead), (seen.counters, seen.dead));
    assert_eq!((again.paused, again.kind), (seen.paused, seen.kind));
}

pub(super) async fn what_a_change_keeps_comes_back_whole(w: &Cluster) {
    let name = "a \"job\" {🧾}; --";
    let author = Author::new("Zoë <zoe@example.com>").via("API token {1}");
    let author = author.note("two\nlines, \0 and '🧾'");
    let data: Vec<u8> = (0..=255).cycle().take(MAX_CHANGE_DATA).collect();
    let generation = state(fine(w.node().by(&author, t(1), name, new(&data)).await)).generation;
    let large = vec![b'x'; MAX_CHANGE_DATA + 1];
    let edited = edit(generation, None, None, Some(&large));
    let edited = w.node().by(&author, t(2), name, edited).await;
    let generation = state(fine(edited)).generation;
    fine(w.node().by(&author, t(3), name, edit(generation, None, None, Some(b""))).await);
    let changes = w.node().changes(Some(name)).await;
    assert!(changes.iter().all(|change| change.author == author && change.name == name));
    let [emptied, edited, created] = &changes[..] else { panic!("three changes: {changes:?}") };
    assert_eq!((&side(&created.after).data, created.lacks_data), (&data, false));
    // Data that is too large is left out, and the change says so.
    assert_eq!((&side(&edited.before).data, edited.lacks_data), (&data, true));
    assert_eq!((side(&edited.after).data.len(), side(&emptied.before).data.len()), (0, 0));
    assert!(emptied.lacks_data);
}

pub(super) async fn changes_older_than_a_year_are_removed(w: &Cluster) {
    let Some(node) = w.join_with_history("limited", HistoryLimits::default()).await else { return };
    let pause = || Action::Pause { note: "", until: None };
    for name in ["job", "deleted"] {
        fine(node.by(&ann(), t(1), name, new(b"")).await);
    }
    fine(node.by(&ann(), t(2), "deleted", Action::Delete).await);
    fine(node.by(&ann(), t(200 * DAY), "job", pause()).await);
    let all = node.changes(None).await;
    node.prune(t(364 * DAY)).await;
    assert_eq!((all.len(), node.changes(None).await), (4, all.clone()), "nothing is old");
    node.prune(t(366 * DAY)).await;
    assert_eq!(node.changes(None).await, all[..1]);
    assert_eq!(node.changes(Some("job")).await, all[..1]);
    assert_eq!(node.changes(Some("deleted")).await, []);
}

pub(super) async fn the_newest_changes_are_kept(w: &Cluster) {
    let limits = HistoryLimits::default().changes(600);
    let Some(node) = w.join_with_history("limited", limits).await else { return };
    node.add(t(0), "job", "mail", t(60)).await;
    let (author, notes) = (ann(), ["a", "b"]);
    let pause = |note| Operation::new("job", Action::Pause { note, until: None }).by(Some(&author));
    let batch: Vec<Operation<'_>> = notes.into_iter().cycle().take(20).map(pause).collect();
    for second in 1..=60 {
        node.replies(t(second), &batch).await;
    }
    fine(node.by(&author, t(70), "other", new(b"")).await);
    let (all, of_other) = (node.changes(Some("job")).await, node.changes(Some("other")).await);
    assert_eq!((all.len(), of_other.len()), (1_000, 1), "a page");
    node.prune(t(80)).await;
    let left = node.changes(Some("job")).await;
    // A store of several parts may give each of them its share.
    assert!((1..=600).contains(&left.len()), "{} of 600 are left", left.len());
    assert!(left == all[..left.len()], "the newest are kept");
    assert_eq!(node.changes(Some("other")).await, of_other);
    let both = node.changes(None).await;
    assert!(both == [of_other, left].concat(), "the pages of all jobs have no more");
}
