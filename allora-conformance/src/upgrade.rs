//! A store as an earlier version left it: what fills it, what a later build must find in it, and how it
//! goes on.
//!
//! The tests of each store keep what [`fill`] wrote as text, and beside it what [`told`] said of it then.
//! Both are written again if the variable `ALLORA_WRITE_FIXTURE` is set.

use crate::{days_work::a_days_work, differential, mutations};
use allora_core::{
    Backend, Schedules, StoredSchedule, Time,
    backend::{
        Action, Advance, Author, Batch, Claim, Completion, Cursor, DueQuery, HistoryQuery,
        JobState, NewSchedule, NotRun, NotRunReason, On, Operation, Page, Reply, TimeSource,
    },
    schedule::Calendar,
    time::{end_of_time, from_millis},
};
use serde::Serialize;
use std::{fmt::Write, path::Path, time::Duration};

/// A definition of each kind of schedule, and each setting.
const DEFINITIONS: &[(&str, &str)] = &[
    ("cron", "30 2 * * *; at-least-once 30s; zone Europe/Rome; owner sales; tags eu,gold"),
    ("every", "@every 90s; at-least-once 30s; catch-up all 5; window 1h; retry 3 1s 1h"),
    ("after_end", "@after_end 20s; at-least-once 30s; breaker 2 9s; alert 1"),
    ("rrule", "DTSTART:20260302T090000Z RRULE:FREQ=WEEKLY;INTERVAL=2; delay 30s; jitter 5s"),
    ("sun", "sunset - 30m at 41.9,12.5; overlap skip"),
    ("calendar", "@daily; except calendar:holidays"),
    ("rules", "@hourly; only-within 9:00-17:30; except 2026-12-25"),
    ("moved", "0 9 3 * *; except SAT SUN; move next"),
    ("keyed", "@hourly; concurrency-key tapes:2; max-key-wait 10m; overlap wait"),
    ("bounds", "@daily; start 2023-01-01T00:00:00.000Z; end 2099-01-01T00:00:00.000Z; max-runs 9"),
    ("created", "@daily; run-when-created yes; history 7; overlap replace; catch-up none"),
    ("once", "@at 2099-01-01T00:00:00Z; run-if-past yes"),
    ("follower", "@never; after every succeeded"),
];

/// The time of the first operation.
const FILLED: i64 = 1_700_000_000_000;

/// Fills an empty store with rows of every kind.
///
/// # Panics
/// If something is refused.
pub async fn fill(store: impl Backend + Clone) {
    a_days_work(store.clone()).await;
    let client = Schedules::new(store.clone()).unwrap().by("ann");
    let holidays = Calendar::parse("2026-12-25 # Christmas\n2026-12-26").unwrap();
    client.upsert_calendar("holidays", &holidays).await.unwrap();
    differential::fill(&store).await;
    fill_jobs(&store).await;
}

/// The part of [`fill`] for a store without queries: jobs of every kind.
///
/// # Panics
/// If something is refused.
pub async fn fill_jobs(store: &dyn Backend) {
    let node = Node { store, ms: FILLED + 3_600_000 };
    for (name, text) in DEFINITIONS {
        node.create(name, text, b"{}").await;
    }
    for (name, reason) in [
        ("catch_up", NotRunReason::CatchUp),
        ("window", NotRunReason::Window),
        ("overlap", NotRunReason::Overlap),
        ("key", NotRunReason::ConcurrencyKey),
        ("excluded", NotRunReason::Calendar),
        ("left_out", NotRunReason::Operator),
        ("many", NotRunReason::TooManyTriggers),
        ("long", NotRunReason::ChainTooLong),
    ] {
        node.create(name, "@hourly", b"").await;
        let (now, next) = (node.at(0), node.at(7_200_000));
        let not_run = NotRun { count: Some(3), last: now, reason };
        let generation = node.read(name).await.generation;
        node.act(name, Action::Advance(Advance::new(generation, now, not_run, Some(next.into()))))
            .await;
    }
    for (name, completion) in [
        ("succeeded", Completion::Succeeded),
        ("failed", Completion::Failed("no tape")),
        ("dead", Completion::Dead("no drive")),
        ("cancelled", Completion::Cancelled),
    ] {
        node.create(name, "@hourly; at-least-once 30s", b"").await;
        node.act(name, Action::Follow { job: "follower", on: On::End }).await;
        let fence = node.claim(name).await;
        let then = Cursor::To(Some(node.at(7_200_000).into()));
        let end = Operation::complete(name, fence, then, completion).output(Some("42 files"));
        node.send(end.value(Some("[42]"))).await;
    }
    for name in ["expired", "released", "leased"] {
        node.create(name, "@hourly; at-least-once 30s", b"").await;
        let fence = node.claim(name).await;
        if name == "released" {
            node.act(name, Action::Release { fence }).await;
        }
    }
    let later = Node { ms: node.ms + 60_000, ..node };
    later.claim("expired").await;
    node.create("triggered", "@never; at-least-once 30s", b"").await;
    node.trigger("triggered").await;
    node.create("held", "@hourly", b"").await;
    node.act("held", Action::Pause { note: "inventory", until: Some(node.at(86_400_000)) }).await;
}

/// Everything that the queries say about the store, one thing on a line.
///
/// # Panics
/// If something cannot be read.
pub async fn told(store: impl Backend + Clone) -> String {
    let client = Schedules::new(store.clone()).unwrap();
    let queries = store.queries().unwrap();
    // At this time no pause has ended.
    let node = Node { store: &store, ms: FILLED };
    let mut text = String::new();
    for prefix in
        ["", "allora:key:", "allora:node:", "allora:calendar:", "allora:mark:", "allora:hours:"]
    {
        for state in queries.list(Page::first(1_000).prefix(prefix)).await.unwrap() {
            line(&mut text, "job", &state);
            assert_eq!(queries.get(&state.name).await.unwrap(), state);
            assert_eq!(node.read(&state.name).await, state, "as nodes read it");
            if prefix.is_empty() {
                client.why(&state.name, None).await.unwrap();
                let definition = client.definition(&state).await.map(|it| it.text().to_owned());
                line(&mut text, "definition", &definition.map_err(|error| error.to_string()));
                line(&mut text, "schedule", &StoredSchedule::of(&state).ok());
            }
        }
    }
    for entry in store.history().unwrap().entries(HistoryQuery::new(100_000)).await.unwrap() {
        line(&mut text, "run", &entry);
    }
    for change in queries.changes(HistoryQuery::new(100_000)).await.unwrap() {
        line(&mut text, "change", &change);
    }
    let mut kinds = queries.kinds().await.unwrap();
    kinds.sort();
    line(&mut text, "kinds", &kinds);
    let calendars = client.calendar("holidays").await.unwrap().to_string();
    line(&mut text, "calendar", &calendars);
    client.counts("").await.unwrap();
    text
}

/// The states of these jobs as nodes read them, one on a line.
///
/// # Panics
/// If one cannot be read.
pub async fn told_of(store: &dyn Backend, names: &[&str]) -> String {
    let node = Node { store, ms: FILLED + 86_400_000 };
    let mut text = String::new();
    for name in names {
        line(&mut text, "job", &node.read(name).await);
    }
    text
}

/// Runs what waits in the store that [`fill`] left: the next occurrence, one whose lease has ended, and a
/// trigger that is not accepted again.
///
/// # Panics
/// If something is lost, or runs twice.
pub async fn goes_on(store: impl Backend + Clone) {
    let node = Node { store: &store, ms: FILLED + 86_400_000 };
    let again = node.trigger("triggered").await;
    assert!(matches!(&again, Reply::Triggered(again) if !again.is_new()), "{again:?}");
    // A start that was given back is not counted again.
    for (name, attempt, counts) in [
        ("succeeded", 1, 1),
        ("leased", 2, 1),
        ("expired", 3, 1),
        ("released", 1, 0),
        ("triggered", 1, 1),
    ] {
        let before = node.read(name).await;
        let fence = node.claim(name).await;
        let state = node.read(name).await;
        let lease = state.leases.iter().find(|lease| lease.fence == fence).unwrap();
        let counted = |state: &JobState| state.counters.started + state.counters.expired;
        assert_eq!(
            (lease.attempt, counted(&state)),
            (attempt, counted(&before) + counts),
            "{name}"
        );
        assert!(fence > before.fence);
        let then = match name {
            "triggered" => Cursor::Keep,
            _ => Cursor::To(Some(node.at(60_000).into())),
        };
        for _ in 0..2 {
            let end = Operation::complete(name, fence, then, Completion::Succeeded);
            assert_eq!(node.send(end).await, Reply::Accepted, "{name}");
        }
        let after = node.read(name).await;
        assert_eq!(after.counters.succeeded, before.counters.succeeded + 1, "{name}");
        assert!(after.leases.is_empty(), "{after:?}");
    }
}

/// The text in this file; if `ALLORA_WRITE_FIXTURE` is set, writes `text` there first.
///
/// # Panics
/// If there is no such file.
pub async fn kept(file: &str, text: impl AsyncFnOnce() -> String) -> String {
    if std::env::var_os("ALLORA_WRITE_FIXTURE").is_some() {
        std::fs::create_dir_all(Path::new(file).parent().unwrap()).unwrap();
        std::fs::write(file, text().await).unwrap();
    }
    std::fs::read_to_string(file).unwrap()
}

/// Damages the last words of these lines, an eighth of them at a time, and sees that the store still answers:
/// with errors, never with a panic.
///
/// # Panics
/// If the store does.
pub async fn survives(store: &dyn Backend, lines: &str, mut set: impl AsyncFnMut(Vec<Vec<u8>>)) {
    let node = Node { store, ms: FILLED + 86_400_000 };
    let time = TimeSource::Fixed(node.at(0));
    let (queries, all) = (store.queries().unwrap(), HistoryQuery::new(100_000));
    for round in 0..8 {
        for (i, line) in lines.lines().enumerate().skip(round).step_by(8) {
            let mut words = words(line);
            let last = words.pop().unwrap();
            words.extend(mutations(&[&last], i as u64, 2).last());
            set(words).await;
        }
        let listed = queries.list(Page::first(1_000)).await.unwrap_or_default();
        let operations: Vec<Operation<'_>> =
            listed.iter().map(|state| Operation::new(&state.name, Action::Reap)).collect();
        drop(store.reschedule(Batch::new("n1", time, &operations)).await);
        drop(store.history().unwrap().entries(all).await);
        drop(queries.changes(all).await);
        drop(queries.kinds().await);
        drop(queries.counts("", time).await);
        drop(queries.find_due(DueQuery::new(&["mail", "Mail"], end_of_time(), 50), time).await);
    }
    drop(store.prune(time).await);
}

/// A line of words of any bytes: JSON, in which a byte is the character of its number.
///
/// # Panics
/// Never.
pub fn words_line(words: impl IntoIterator<Item: AsRef<[u8]>>) -> String {
    let text = |word: &[u8]| word.iter().copied().map(char::from).collect::<String>();
    let words: Vec<String> = words.into_iter().map(|word| text(word.as_ref())).collect();
    serde_json::to_string(&words).unwrap() + "\n"
}

/// The words of a line that [`words_line`] wrote.
///
/// # Panics
/// At any other line.
pub fn words(line: &str) -> Vec<Vec<u8>> {
    let words: Vec<String> = serde_json::from_str(line).unwrap();
    let bytes = |word: &String| word.chars().map(|c| u8::try_from(c).unwrap()).collect();
    words.iter().map(bytes).collect()
}

/// Compares line by line what is told with what was.
///
/// # Panics
/// With the first line that differs.
pub fn agrees(told: &str, expected: &str) {
    for (i, (told, expected)) in told.lines().zip(expected.lines()).enumerate() {
        assert_eq!(told, expected, "line {}", i + 1);
    }
    assert_eq!(told.lines().count(), expected.lines().count());
}

fn line(text: &mut String, what: &str, value: &impl Serialize) {
    let _ = writeln!(text, "{what} {}", serde_json::to_string(value).unwrap());
}

/// A node at a time.
struct Node<'a> {
    store: &'a dyn Backend,
    ms: i64,
}

impl Node<'_> {
    fn at(&self, after: i64) -> Time {
        from_millis(self.ms + after).unwrap()
    }

    async fn send(&self, operation: Operation<'_>) -> Reply {
        let author = Author::new("ann").via("a fixture").note("why");
        let operations = [operation.by(Some(&author))];
        let batch = Batch::new("n1", TimeSource::Fixed(self.at(0)), &operations);
        self.store.reschedule(batch).await.unwrap().single().unwrap()
    }

    async fn act(&self, name: &str, action: Action<'_>) -> Reply {
        self.send(Operation::new(name, action)).await
    }

    async fn create(&self, name: &str, text: &str, data: &[u8]) {
        let next = (!text.starts_with("@never")).then(|| self.at(0).into());
        self.act(name, Action::Create(NewSchedule::new("mail", text, next).data(data))).await;
    }

    async fn read(&self, name: &str) -> JobState {
        self.send(Operation::read(name)).await.state().unwrap()
    }

    async fn trigger(&self, name: &str) -> Reply {
        let retention = Duration::from_secs(30 * 86_400);
        let data = Some(&b"{\"n\":1}"[..]);
        let trigger = Action::Trigger { id: "by hand", scheduled_at: None, retention, data };
        self.act(name, trigger).await
    }

    /// Claims what is due, for 30 s at least once, and returns the fence.
    async fn claim(&self, name: &str) -> i64 {
        let state = self.read(name).await;
        let id = u128::from(state.fence.unsigned_abs()) + 7;
        let head = state.head.unwrap_or_else(|| panic!("{name} has nothing to run"));
        let claim = Claim::at_least_once(id, state.fence, head, Duration::from_secs(30));
        self.send(Operation::claim(name, claim)).await.claimed().expect("it is due").fence
    }
}
