//! Flags: jobs are found and counted by what operators look for.

use crate::cluster::*;
use allora_core::{
    Time,
    backend::{
        Action, Completion, Count, Cursor, Flag, HistoryQuery, JobState, NewSchedule, Page, Replan,
        TimeSource,
    },
};

/// The names of all jobs with this flag, in pages of so many.
async fn flagged_in(w: &Cluster, now: Time, flag: Flag<'_>, page: Page<'_>) -> Vec<String> {
    let (mut names, mut after): (Vec<String>, Option<String>) = (Vec::new(), None);
    loop {
        let mut part = page;
        part.after = after.as_deref().or(page.after);
        let flagged = w.node().queries().flagged(flag, part, TimeSource::Fixed(now)).await;
        let flagged = fine(flagged);
        assert!(flagged.is_complete, "there are few jobs");
        assert!(flagged.found.len() <= page.limit);
        names.extend(flagged.found.into_iter().map(|state| state.name));
        match flagged.next {
            None => return names,
            next => after = next,
        }
    }
}

async fn flagged(w: &Cluster, now: Time, flag: Flag<'_>) -> Vec<String> {
    flagged_in(w, now, flag, Page::first(100)).await
}

/// The words of the flags that a job has.
async fn words(w: &Cluster, now: Time, name: &str) -> Vec<&'static str> {
    let mut words = Vec::new();
    for flag in Flag::STATES {
        if flagged(w, now, flag).await.iter().any(|flagged| flagged == name) {
            words.push(flag.word());
        }
    }
    words
}

async fn add(w: &Cluster, name: &str, kind: &str, definition: &str) -> JobState {
    let new = NewSchedule::new(kind, definition, Some(t(60).into()));
    fine(w.node().add_one(t(0), name, new).await)
}

/// Runs the head of a job and ends the run so.
async fn run(w: &Cluster, now: Time, claim_id: u128, end: RunAction<'_>) {
    let run = won(w.node().lease(now, "job", claim_id).await);
    w.node().end(now, "job", run.fence, end).await;
}

fn ends(then: Option<Time>, completion: Completion<'_>) -> RunAction<'_> {
    RunAction::Complete { then: Cursor::To(then.map(Into::into)), completion }
}

pub(super) async fn a_job_is_found_by_the_flags_of_its_state(w: &Cluster) {
    let none: [&str; 0] = [];
    w.node().add(t(0), "job", "mail", t(60)).await;
    w.node().add(t(0), "other", "mail", t(9_999)).await;
    assert_eq!(words(w, t(1), "job").await, none);
    w.node().pause(t(2), "job").await;
    assert_eq!(words(w, t(3), "job").await, ["paused"]);
    w.node().resume(t(4), "job").await;
    assert_eq!(words(w, t(5), "job").await, none);
    run(w, t(60), 1, RunAction::Retry { not_before: t(61), error: "no" }).await;
    assert_eq!(words(w, t(60), "job").await, ["failing"]);
    run(w, t(61), 2, ends(Some(t(62)), Completion::Succeeded)).await;
    assert_eq!(words(w, t(61), "job").await, none, "it has recovered");
    run(w, t(62), 3, ends(Some(t(63)), Completion::Dead("no"))).await;
    assert_eq!(words(w, t(62), "job").await, ["failing", "dead"]);
    run(w, t(63), 4, ends(Some(t(64)), Completion::Succeeded)).await;
    assert_eq!(words(w, t(63), "job").await, ["dead"]);
    run(w, t(64), 5, ends(Some(t(65)), Completion::Succeeded)).await;
    run(w, t(65), 6, ends(None, Completion::Succeeded)).await;
    assert_eq!(words(w, t(66), "job").await, ["dead", "ended"]);
    w.node().trigger(t(67), "job", "now").await;
    assert_eq!(words(w, t(67), "job").await, ["due", "dead"], "something waits");
    w.node().delete(t(68), "job").await;
    assert_eq!(words(w, t(69), "job").await, none);
    assert_eq!(words(w, t(69), "other").await, none);
}

pub(super) async fn kind_owner_and_tags_are_found_until_an_edit_or_a_deletion(w: &Cluster) {
    let none: [&str; 0] = [];
    add(w, "a", "mail", "every 1h; owner sales; tags eu,gold").await;
    let seen = add(w, "b", "mail", "every 1h; tags eu").await;
    add(w, "c", "sms", "every 1h; owner sale").await;
    w.node().register(t(0), "code", t(60)).await;
    for (flag, names) in [
        (Flag::Kind("mail"), &["a", "b"][..]),
        (Flag::Kind("sms"), &["c"]),
        (Flag::Kind("mai"), &none),
        (Flag::Kind(""), &["code"]),
        (Flag::Owner("sales"), &["a"]),
        (Flag::Owner("sale"), &["c"]),
        (Flag::Tag("eu"), &["a", "b"]),
        (Flag::Tag("gold"), &["a"]),
        (Flag::Tag("silver"), &none),
    ] {
        assert_eq!(flagged(w, t(1), flag).await, names, "{flag:?}");
    }
    let definition = ("every 1h; owner sales", Replan::new(seen.next, seen.next));
    let change = edit(seen.generation, Some("sms"), Some(definition), None);
    fine(w.node().modify(t(2), "b", change).await);
    w.node().delete(t(3), "a").await;
    assert_eq!(flagged(w, t(4), Flag::Kind("mail")).await, none);
    assert_eq!(flagged(w, t(4), Flag::Kind("sms")).await, ["b", "c"]);
    assert_eq!(flagged(w, t(4), Flag::Owner("sales")).await, ["b"]);
    assert_eq!(flagged(w, t(4), Flag::Tag("eu")).await, none);
    add(w, "a", "fax", "every 1h; tags eu").await;
    assert_eq!(flagged(w, t(5), Flag::Tag("eu")).await, ["a"], "it was created again");
}

pub(super) async fn the_history_of_an_owner_is_that_of_its_schedules(w: &Cluster) {
    let many: Vec<String> = (10..30).map(|i| format!("many/{i}")).collect();
    let owned = many.iter().map(|name| (name.as_str(), "every 1m; owner sale"));
    for (name, definition) in owned.chain([("a", "every 1m; owner sales"), ("b", "every 1m")]) {
        add(w, name, "mail", definition).await;
        let run = won(w.node().lease(t(61), name, 1).await);
        w.node().end(t(62), name, run.fence, ran(t(120))).await;
    }
    let names = async |query| -> Vec<String> {
        let mut entries = fine(w.node().history().entries(query).await);
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        entries.into_iter().map(|entry| entry.name).collect()
    };
    let query = HistoryQuery::new(99);
    assert_eq!(names(query.owner("sales")).await, ["a"]);
    assert_eq!(names(query.owner("sale")).await, many);
    assert_eq!(names(query.owner("sale").prefix("many/2")).await, many[10..]);
    assert_eq!(names(query.owner("sale").name("many/11")).await, ["many/11"]);
    assert_eq!(names(HistoryQuery::new(3).owner("sale")).await.len(), 3);
    for nothing in [query.owner("nobody"), query.owner("sales").name("b")] {
        assert_eq!(names(nothing).await, [""; 0]);
    }
    w.node().delete(t(70), "a").await;
    assert_eq!(names(query.owner("sales")).await, [""; 0], "it was deleted");
}

pub(super) async fn flagged_jobs_come_page_by_page(w: &Cluster) {
    let mut names: Vec<String> = (0..23).map(|i| format!("job {i}")).collect();
    for name in &names {
        w.node().add(t(0), name, "mail", t(60)).await;
        w.node().pause(t(1), name).await;
    }
    w.node().add(t(0), "joke", "jest", t(60)).await;
    w.node().pause(t(1), "joke").await;
    w.node().add(t(0), "job 9 active", "mail", t(60)).await;
    names.sort_unstable();
    let page = Page::first(5).prefix("job ");
    assert_eq!(flagged_in(w, t(2), Flag::Paused, page).await, names);
    assert_eq!(flagged_in(w, t(2), Flag::Paused, page.after("job 3")).await, names[17..]);
    let of_kind = Page::first(5).kind("jest");
    assert_eq!(flagged_in(w, t(2), Flag::Paused, of_kind).await, ["joke"]);
    assert_eq!(flagged_in(w, t(2), Flag::Kind("mail"), page).await.len(), 24);
}

pub(super) async fn what_runs_and_what_is_overdue_is_found(w: &Cluster) {
    let none: [&str; 0] = [];
    w.node().add(t(0), "stored", "mail", t(60)).await;
    w.node().register(t(0), "code", t(60)).await;
    assert_eq!(flagged(w, t(59), Flag::Due).await, none);
    assert_eq!(flagged(w, t(60), Flag::Due).await, ["code", "stored"]);
    assert_eq!(flagged(w, t(119), Flag::Overdue).await, none);
    assert_eq!(flagged(w, t(120), Flag::Overdue).await, ["code", "stored"]);
    let stored = won(w.node().lease(t(120), "stored", 1).await);
    won(w.node().lease(t(120), "code", 2).await);
    assert_eq!(flagged(w, t(121), Flag::Running).await, ["code", "stored"]);
    assert_eq!(flagged(w, t(121), Flag::Overdue).await, none);
    assert_eq!(flagged(w, t(121), Flag::Due).await, none);
    w.node().pause(t(122), "stored").await;
    assert_eq!(flagged(w, t(123), Flag::Running).await, ["code", "stored"], "it goes on");
    w.node().end(t(124), "stored", stored.fence, ran(t(240))).await;
    assert_eq!(flagged(w, t(125), Flag::Running).await, ["code"]);
}

pub(super) async fn numbers_agree_with_the_pages(w: &Cluster) {
    for i in 0..7 {
        add(w, &format!("a/{i}"), "mail", "every 1h; owner sales; tags eu,gold").await;
    }
    add(w, "b", "sms", "every 1h; tags eu").await;
    w.node().register(t(0), "code", t(60)).await;
    for name in ["a/1", "a/3", "b"] {
        w.node().pause(t(1), name).await;
    }
    w.node().delete(t(2), "a/6").await;
    fine(w.node().modify(t(3), "a/3", Action::Resume).await);
    for (prefix, flag, number) in [
        ("", Flag::Paused, 2),
        ("a/", Flag::Paused, 1),
        ("c", Flag::Paused, 0),
        ("", Flag::Kind("mail"), 6),
        ("", Flag::Kind(""), 1),
        ("", Flag::Owner("sales"), 6),
        ("", Flag::Tag("eu"), 7),
        ("a/", Flag::Tag("eu"), 6),
        ("", Flag::Ended, 0),
        ("", Flag::Overdue, 0),
    ] {
        let counts = fine(w.node().queries().counts(prefix, TimeSource::Fixed(t(4))).await);
        assert_eq!(counts.of(flag), Some(Count::new(number, true)), "{flag:?} of {prefix:?}");
        let page = Page::first(3).prefix(prefix);
        let names = flagged_in(w, t(4), flag, page).await;
        assert_eq!(names.len() as u64, number, "{flag:?} of {prefix:?}");
    }
    let counts = fine(w.node().queries().counts("", TimeSource::Fixed(t(4))).await);
    assert_eq!(counts.of(Flag::Tag("silver")), None);
    assert_eq!(counts.active, []);
    let counts = fine(w.node().queries().counts("", TimeSource::Fixed(t(60))).await);
    let active: Vec<&str> = counts.active.iter().map(|state| &*state.name).collect();
    assert_eq!(active, ["a/0", "a/2", "a/3", "a/4", "a/5", "code"], "they are due");
}
