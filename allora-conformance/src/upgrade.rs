//! A store as an earlier version left it: what fills it, what a later build must find in it, and how it
//! goes on.
//!
//! The tests of each store keep what [`fill`] wrote, as text, and next to it what [`told`] said of it then.
//! Both are written again if the variable `ALLORA_WRITE_FIXTURE` is set.

use crate::{days_work::a_days_work, mutations};
use allora_core::{
    Backend, Result, Schedules, StoredSchedule, Time,
    backend::{
        Action, Advance, Author, Batch, CancelScope, Claim, ClaimKey, Completion, Cursor, DueQuery,
        Edit, HistoryQuery, JobState, NewSchedule, NotRun, NotRunReason, On, Operation, Page,
        Reply, RetryCause, Sharing, TimeSource,
    },
    schedule::Calendar,
    time::{end_of_time, from_millis},
};
use serde::Serialize;
use serde_json::{Value, json};
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
    ("created", "@daily; run-when-created yes; history 7 7d; overlap replace; catch-up none"),
    ("once", "@at 2099-01-01T00:00:00Z; run-if-past yes"),
    ("follower", "@never; after succeeded ended"),
];

/// The file with what [`told`] said of the store that version 1 filled, from the folder of a store's package.
pub const TOLD: &str = "tests/it/upgrade/told.txt";

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
    node.create("'; --{x} 🧾", "@never", b"\0\xff").await;
    fill_not_run(&node).await;
    fill_ended(&node).await;
    fill_open(&node).await;
    fill_operated(&node).await;
}

/// An occurrence that was not run for each reason.
async fn fill_not_run(node: &Node<'_>) {
    node.create("not_run", "@hourly", b"").await;
    let reasons = [
        NotRunReason::CatchUp,
        NotRunReason::Window,
        NotRunReason::Overlap,
        NotRunReason::ConcurrencyKey,
        NotRunReason::Calendar,
        NotRunReason::Operator,
        NotRunReason::TooManyTriggers,
        NotRunReason::ChainTooLong,
    ];
    let mut node = Node { ..*node };
    for reason in reasons {
        let (now, next) = (node.at(0), node.at(3_600_000));
        let not_run = NotRun { count: Some(3), last: now, reason };
        let generation = node.read("not_run").await.generation;
        let advance = Advance::new(generation, now, not_run, Some(next.into()));
        node.act("not_run", Action::Advance(advance)).await;
        node.ms += 3_600_000;
    }
}

/// A run that ended in each way.
async fn fill_ended(node: &Node<'_>) {
    let then = Cursor::To(Some(node.at(7_200_000).into()));
    let failed = Completion::Failed("no tape");
    // Its definition has a rule for failures.
    node.send(Operation::complete("after_end", node.claim("after_end").await, then, failed)).await;
    for (name, completion) in [
        ("succeeded", Completion::Succeeded),
        ("failed", failed),
        ("dead", Completion::Dead("no drive")),
        ("rerun", Completion::Dead("")),
        ("dismissed", Completion::Dead("")),
        ("cancelled", Completion::Cancelled),
        ("deleted", Completion::Cancelled),
    ] {
        let fence = node.start(name).await;
        match name {
            "succeeded" => {
                node.act(name, Action::Follow { job: "follower", on: On::End }).await;
            }
            "deleted" => {
                node.act(name, Action::Delete).await;
            }
            _ => {}
        }
        let end = Operation::complete(name, fence, then, completion).output(Some("42 files"));
        node.send(end.value(Some("[42]"))).await;
    }
    let follow_up = node.read("succeeded").await.chain.unwrap().outbox[0].clone();
    node.act("follower", Action::FollowUp { from: "succeeded", follow_up: &follow_up }).await;
    let fence = node.replace("replaced").await;
    let end = Operation::complete("replaced", fence, Cursor::Keep, Completion::Cancelled);
    node.send(end).await;
    node.register("lost", 3_600_000).await;
    let later = Node { ms: node.ms + 60_000, ..*node };
    later.act("lost", Action::Reap).await;
}

/// Runs that go on, were given back, or wait for the next attempt; and what waits for them.
async fn fill_open(node: &Node<'_>) {
    for name in ["expired", "released", "retried", "interrupted", "leased", "asked"] {
        let fence = node.start(name).await;
        let not_before = node.at(90_000);
        let retry = |cause| Operation::new(name, Action::Retry { fence, not_before, cause });
        match name {
            "released" => {
                node.act(name, Action::Release { fence }).await;
            }
            "retried" => {
                let retry = retry(RetryCause::Failed("no tape"));
                node.send(retry.checkpoint(Some(b"\0\xff"))).await;
            }
            "interrupted" => {
                node.send(retry(RetryCause::Interrupted)).await;
            }
            "asked" => {
                node.act(name, Action::Cancel(CancelScope::All)).await;
            }
            _ => {}
        }
    }
    let later = Node { ms: node.ms + 60_000, ..*node };
    later.claim("expired").await;
    node.register("registered", 3_600_000).await;
    node.replace("replacing").await;
    for (id, job) in [(1, "keyed"), (2, "moved")] {
        let claim = ClaimKey::new(id, 1, job, node.at(0), Duration::from_secs(60));
        node.act("allora:key:tapes", Action::ClaimKey(claim)).await;
    }
}

/// The operations of operators.
async fn fill_operated(node: &Node<'_>) {
    node.create("triggered", "@never; at-least-once 30s", b"").await;
    node.trigger("triggered").await;
    let pause = |until| Action::Pause { note: "inventory", until };
    node.act("sun", pause(Some(node.at(86_400_000)))).await;
    node.act("created", pause(None)).await;
    node.act("created", Action::Resume).await;
    node.act("created", Action::Resume).await;
    let occurrence = node.at(0).into();
    node.act("rerun", Action::Rerun { occurrence: &occurrence }).await;
    node.act("dismissed", Action::Dismiss { occurrence: &occurrence }).await;
    node.act("failed", Action::MarkSucceeded { occurrence: &occurrence }).await;
    node.try_act("failed", Action::Dismiss { occurrence: &occurrence }).await.unwrap_err();
    let mut edit = Edit::of(node.read("every").await.generation);
    edit.data = Some(b"{\"n\":2}");
    node.act("every", Action::Modify(edit)).await;
    let once = node.read("once").await;
    let first = Some(node.at(3_600_000).into());
    node.act("once", Action::Reset { incarnation: once.incarnation, first }).await;
    let (last, reason) = (node.at(0), NotRunReason::Operator);
    let not_run = NotRun { count: Some(1), last, reason };
    let generation = node.read("cron").await.generation;
    node.act("cron", Action::Skip(Advance::new(generation, last, not_run, first))).await;
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
                drop(client.definition(&state).await);
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
        line(&mut text, "job", &node.send(Operation::read(name)).await.state());
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
    // A start that was given back is not counted again, and that of a trigger not at all.
    for (name, attempt, counts) in [
        ("succeeded", 1, 1),
        ("leased", 2, 1),
        ("expired", 3, 1),
        ("released", 1, 0),
        ("triggered", 1, 0),
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

/// Compares the answers with the expected ones, line by line.
///
/// # Panics
/// With the first line that differs.
pub fn agrees(told: &str, expected: &str) {
    for (i, (told, expected)) in told.lines().zip(expected.lines()).enumerate() {
        assert_eq!(told, expected, "line {}", i + 1);
    }
    assert_eq!(told.lines().count(), expected.lines().count());
}

/// Writes what a value has: no property that is null, zero or empty.
fn line(text: &mut String, what: &str, value: &impl Serialize) {
    let mut value = serde_json::to_value(value).unwrap();
    shorten(&mut value);
    let _ = writeln!(text, "{what} {value}");
}

/// Leaves out what is not set, and what differs with each filling: all of it is later than the fixed times.
fn shorten(value: &mut Value) {
    let is_later = |micros: i64| (1_750_000_000_000_000..4_000_000_000_000_000).contains(&micros);
    let differs = match value {
        Value::Object(properties) => {
            properties.values_mut().for_each(shorten);
            let unset = [Value::Null, json!(0), json!([]), json!({})];
            properties.retain(|_, value| !unset.contains(value));
            false
        }
        Value::Array(values) => {
            values.iter_mut().for_each(shorten);
            false
        }
        Value::String(text) => match text.parse::<Time>() {
            Ok(at) => is_later(at.timestamp_micros()),
            Err(_) => text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        },
        Value::Number(number) => number.as_i64().is_some_and(is_later),
        _ => false,
    };
    if differs {
        *value = json!("differs");
    }
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

    async fn try_send(&self, operation: Operation<'_>) -> Result<Reply> {
        let author = Author::new("ann").via("a fixture").note("why");
        // Entries of changes are long, and few are enough.
        let is_short = !matches!(operation.action, Action::Create(_));
        let operations = [operation.by(is_short.then_some(&author))];
        let batch = Batch::new("n1", TimeSource::Fixed(self.at(0)), &operations);
        self.store.reschedule(batch).await?.single()
    }

    async fn send(&self, operation: Operation<'_>) -> Reply {
        self.try_send(operation).await.unwrap()
    }

    async fn try_act(&self, name: &str, action: Action<'_>) -> Result<Reply> {
        self.try_send(Operation::new(name, action)).await
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

    /// Creates a job and claims its occurrence.
    async fn start(&self, name: &str) -> i64 {
        self.create(name, "@hourly; at-least-once 30s", b"").await;
        self.claim(name).await
    }

    /// The same for a job in code, at most once; its next time is so many milliseconds later.
    async fn register(&self, name: &str, later: i64) -> i64 {
        let first = Some(self.at(0).into());
        self.act(name, Action::Register { definition: "@hourly", version: 3, first }).await;
        let then = Cursor::To(Some(self.at(later).into()));
        let (fence, lease) = (self.read(name).await.fence, Duration::from_secs(30));
        let head = self.at(0).into();
        let claim = Claim::at_most_once(7, fence, head, then, lease, Sharing::Shared);
        self.send(Operation::claim(name, claim)).await.claimed().unwrap().fence
    }

    /// The same, with a run that the next occurrence replaces.
    async fn replace(&self, name: &str) -> i64 {
        let fence = self.register(name, 1).await;
        let generation = self.read(name).await.generation;
        let later = Node { ms: self.ms + 1, ..*self };
        let by = later.at(0);
        later.act(name, Action::Replace { generation, expected: by, by }).await;
        fence
    }
}
