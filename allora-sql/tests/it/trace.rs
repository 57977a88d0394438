//! The recorded steps of PerfectSched's backend, repeated with calls of this backend.
//!
//! `golden/perfectsched_backend_trace.jsonl` has a line for each step, with the rows as they were
//! after it. The story walks through all of them in order; [`Trace::same`] compares a job with its
//! row where the original kept its promise: `timeout` is [`JobState::due_at`], `next_time` the
//! cursor's instant. Where it broke it, the story says what we do instead.
//!
//! | the original's call | ours |
//! |---|---|
//! | `add` | `Action::Create`, the first match computed by the schedule |
//! | `poll` | `Action::Claim`, at least once |
//! | `heartbeat` | `Action::Extend` |
//! | `finish!`, `retry!`, `release!` | `Action::Complete`, `Retry`, `Release` |
//! | `modify` | `Action::Modify`; a bad expression does not parse |
//! | `delete`, `exists?`, metadata | `Action::Delete`, `Queries::get` |
//! | `poll_multi` | `Queries::find_due` with a limit |

use crate::{
    calls::{delete as remove, get, modify as edit},
    desk::{Desk, following, seconds, t},
    stores::{Place, on_every_database},
};
use allora_core::{
    ErrorKind, Schedule,
    backend::{Edit, JobState, Replan, Reply, TimeSource},
    cron,
};

on_every_database! {
    the_trace_of_the_original_is_replayed_with_its_promises_kept
}

const MINUTELY: &str = "* * * * *";
const HOURLY: &str = "0 * * * *";

/// The steps, one after the other.
struct Trace {
    lines: std::vec::IntoIter<serde_json::Value>,
    line: serde_json::Value,
}

impl Trace {
    fn new() -> Self {
        let text = include_str!("../golden/perfectsched_backend_trace.jsonl");
        let lines: Vec<_> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Self { lines: lines.into_iter(), line: serde_json::Value::Null }
    }

    /// The next step is the one that begins so.
    fn step(&mut self, begins: &str) -> &Self {
        self.line = self.lines.next().unwrap();
        assert!(self.line["step"].as_str().unwrap().starts_with(begins), "{}", self.line["step"]);
        self
    }

    /// When the row of `name` wants attention, and the instant it is about.
    fn row(&self, name: &str) -> (i64, i64) {
        let rows = self.line["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["id"] == name).unwrap();
        let since = |field: &str| row[field].as_i64().unwrap() - 1_323_820_800;
        (since("timeout"), since("next_time"))
    }

    /// The job is as the original's row was.
    fn same(&self, state: &JobState) {
        assert_eq!(shown(state), self.row(&state.name), "{}", self.line["step"]);
    }
}

fn shown(state: &JobState) -> (i64, i64) {
    (seconds(state.due_at.unwrap()), seconds(state.next.unwrap().scheduled_at))
}

async fn the_trace_of_the_original_is_replayed_with_its_promises_kept(place: Place) {
    let store = place.open().await;
    let mut trace = Trace::new();
    let (one, two) = (Desk::new(&store, "one"), Desk::new(&store, "two"));
    lease_and_preemption(&mut trace, &one, &two).await;
    catch_up_and_retry(&mut trace, &one, &two).await;
    modify(&mut trace, &one).await;
    delete(&mut trace, &one).await;
    several(&mut trace, &one).await;
    assert!(trace.lines.next().is_none(), "a step was not told");
    store.close().await;
}

async fn lease_and_preemption(trace: &mut Trace, one: &Desk, two: &Desk) {
    trace.step("add a every minute").same(&one.add("a", MINUTELY, t(0)).await.unwrap());
    assert_eq!(one.poll(t(-1), "a", 120).await, None);
    trace.step("poll now=T-1").same(&one.get("a").await);
    let first = one.poll(t(0), "a", 120).await.unwrap();
    assert_eq!((first.occurrence.scheduled_at, first.attempt), (t(0), 1));
    trace.step("poll now=T alive=120").same(&one.get("a").await);
    assert_eq!(two.poll(t(60), "a", 120).await, None);
    trace.step("poll again now=T+60").same(&one.get("a").await);
    assert_eq!(one.extend(t(100), "a", &first, 120).await, Reply::Extended(t(220)));
    trace.step("heartbeat now=T+100").same(&one.get("a").await);
    assert_eq!(two.poll(t(219), "a", 120).await, None);
    trace.step("poll now=T+219").same(&one.get("a").await);
    let second = two.poll(t(220), "a", 120).await.unwrap();
    assert_eq!((second.occurrence.scheduled_at, second.attempt), (t(0), 2));
    let taken_over = two.get("a").await;
    trace.step("poll now=T+220").same(&taken_over);

    // The original let the zombie extend the other's lease, and then complete its occurrence.
    trace.step("first holder heartbeats after being preempted (no error!)");
    assert_eq!(one.extend(t(230), "a", &first, 120).await, Reply::LeaseLost);
    trace.step("first holder finish! after being preempted (succeeds");
    assert_eq!(one.complete(t(230), "a", &first, MINUTELY).await, Reply::LeaseLost);
    assert_eq!(one.retry(t(230), "a", &first, 30).await, Reply::LeaseLost);
    assert_eq!(one.release(t(230), "a", &first).await, Reply::LeaseLost);
    assert_eq!(two.get("a").await, taken_over);

    // In the original, the second holder then received an error: the run was already finished.
    trace.step("second holder finish! -> IdempotentAlreadyFinishedError");
    assert_eq!(two.complete(t(230), "a", &second, MINUTELY).await, Reply::Accepted);
    let finished = two.get("a").await;
    trace.same(&finished);
    // Finished twice is finished; a heartbeat or a retry of what is finished is refused.
    assert_eq!(two.complete(t(231), "a", &second, MINUTELY).await, Reply::Accepted);
    trace.step("second holder heartbeat -> PreemptedError");
    assert_eq!(two.extend(t(231), "a", &second, 120).await, Reply::LeaseLost);
    trace.same(&two.get("a").await);
    trace.step("second holder retry! -> PreemptedError");
    assert_eq!(two.retry(t(231), "a", &second, 30).await, Reply::LeaseLost);
    trace.same(&two.get("a").await);
    assert_eq!(two.get("a").await, finished);

    // It had no release at all.
    trace.step("release! -> backend has no release method");
    let taken = one.poll(t(240), "a", 300).await.unwrap();
    assert_eq!(one.release(t(241), "a", &taken).await, Reply::Accepted);
    // It is due since its own instant, and not behind what has become due since.
    assert_eq!(seconds(two.get("a").await.due_at.unwrap()), 60);
    let again = two.poll(t(241), "a", 300).await.unwrap();
    assert_eq!((again.occurrence.scheduled_at, again.attempt), (t(60), 1));
    assert_eq!(two.release(t(242), "a", &again).await, Reply::Accepted);
}

async fn catch_up_and_retry(trace: &mut Trace, one: &Desk, two: &Desk) {
    let run = one.poll(t(600), "a", 300).await.unwrap();
    assert_eq!(run.occurrence.scheduled_at, t(60));
    trace.step("catch-up: poll now=T+600").same(&one.get("a").await);
    assert_eq!(one.complete(t(600), "a", &run, MINUTELY).await, Reply::Accepted);
    trace.step("finish").same(&one.get("a").await);
    let run = one.poll(t(600), "a", 300).await.unwrap();
    assert_eq!(run.occurrence.scheduled_at, t(120));
    trace.step("catch-up: poll now=T+600 again").same(&one.get("a").await);
    assert_eq!(one.retry(t(600), "a", &run, 30).await, Reply::Accepted);
    trace.step("retry! retry_wait=30 now=T+600");
    assert_eq!(shown(&one.get("a").await).0, trace.row("a").0);
    assert_eq!(one.get("a").await.head.unwrap().scheduled_at, t(120));
    assert_eq!(two.poll(t(629), "a", 300).await, None);
    trace.step("poll now=T+629");
    let again = two.poll(t(630), "a", 300).await.unwrap();
    assert_eq!((again.occurrence.scheduled_at, again.attempt), (t(120), 2));
    trace.step("poll now=T+630 -> same occurrence again");
    assert_eq!(shown(&two.get("a").await).0, trace.row("a").0);

    // The original accepted the finish of a run that had been released.
    trace.step("finish after retry! is still possible with the pre-retry token");
    assert_eq!(one.complete(t(631), "a", &run, MINUTELY).await, Reply::LeaseLost);
    assert_eq!(two.complete(t(631), "a", &again, MINUTELY).await, Reply::Accepted);
    trace.same(&two.get("a").await);
}

/// The original checked nothing here, and moved nothing.
async fn modify(trace: &mut Trace, one: &Desk) {
    trace.step("modify cron/delay/timezone does not move next_time");
    let state = one.edit(t(640), "a", "0 0 * * * Asia/Tokyo").await.unwrap();
    assert_eq!(shown(&state), (15 * 3_600, 15 * 3_600));
    trace.step("modify data/type silently ignored");
    let now = TimeSource::Fixed(t(640));
    let mut change = Edit::of(state.generation);
    change.data = Some(b"{\"k\":2}");
    let state = edit(&one.store, "a", change, now).await.unwrap();
    assert_eq!((&state.data[..], shown(&state)), (&b"{\"k\":2}"[..], (15 * 3_600, 15 * 3_600)));
    trace.step("modify with next_time option silently ignored");
    let plan = Replan::new(state.next, Some(t(700).into()));
    let (generation, definition) = (state.generation, Some((MINUTELY, plan)));
    let mut change = Edit::of(generation);
    change.definition = definition;
    let state = edit(&one.store, "a", change, now).await.unwrap();
    assert_eq!(shown(&state), (700, 700));
    // An edit based on an older read fails, and changes nothing.
    let error = edit(&one.store, "a", change, now).await.unwrap_err();
    assert_eq!((error.kind(), &one.get("a").await), (ErrorKind::AlreadyExists, &state));

    trace.step("modify invalid cron is NOT validated");
    assert_eq!(
        allora_core::Error::from(cron("not a cron").unwrap_err()).kind(),
        ErrorKind::Invalid
    );
    // What could be taken for ever and never finished is therefore not there to be taken.
    trace.step("poll returns task with invalid cron");
    trace.step("finish with invalid cron raises");
    trace.step("modify back; token keeps OLD cron");
    trace.step("finish with old token still fails");
    one.edit(t(640), "a", HOURLY).await.unwrap();
    trace.step("re-acquire then finish ok").same(&one.get("a").await);

    // The run goes on under the old definition; the schedule as the new one says.
    trace.step("modify while running");
    let run = one.poll(t(3_600), "a", 300).await.unwrap();
    one.edit(t(3_601), "a", "30 * * * *").await.unwrap();
    assert_eq!(one.complete(t(3_602), "a", &run, HOURLY).await, Reply::Accepted);
    assert_eq!(shown(&one.get("a").await), (5_400, 5_400));
}

async fn delete(trace: &mut Trace, one: &Desk) {
    let run = one.poll(t(5_400), "a", 300).await.unwrap();
    remove(&one.store, "a", TimeSource::Fixed(t(5_401))).await.unwrap();
    trace.step("delete while running then finish");
    // It was recorded as cancelled by the deletion. Its end only frees its lease.
    assert_eq!(one.complete(t(5_402), "a", &run, HOURLY).await, Reply::Accepted);
    trace.step("heartbeat on deleted");
    assert_eq!(one.extend(t(5_402), "a", &run, 300).await, Reply::Deleted);
    trace.step("delete again");
    let error = remove(&one.store, "a", TimeSource::Fixed(t(5_403))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    for step in ["exists?", "metadata of missing"] {
        trace.step(step);
        assert_eq!(get(&one.store, "a").await.unwrap_err().kind(), ErrorKind::NotFound);
    }
}

async fn several(trace: &mut Trace, one: &Desk) {
    trace.step("add with Float/String").same(&one.add("b", MINUTELY, t(0)).await.unwrap());
    trace.step("add without cron");
    assert_eq!(allora_core::Error::from(cron("").unwrap_err()).kind(), ErrorKind::Invalid);
    // A run before its nominal time is not to be had: the first occurrence is the next match.
    trace.step("add next_run_time earlier than next_time");
    let daily = "0 0 * * *";
    assert_eq!(shown(&one.add("c", daily, t(1)).await.unwrap()).1, trace.row("c").1);
    one.add("d", daily, t(-86_400)).await.unwrap();
    trace.step("poll picks lowest timeout first");
    assert_eq!(one.due(t(10), 1).await, ["d"]);
    assert_eq!(one.poll(t(10), "d", 3_600).await.unwrap().occurrence.scheduled_at, t(-86_400));
    trace.same(&one.get("d").await);
    // The original answered with one, whatever was asked for.
    trace.step("poll_multi max_acquire 10 still returns 1");
    one.add("e", MINUTELY, t(5)).await.unwrap();
    assert_eq!(one.due(t(70), 10).await, ["b", "e"]);
    let run = one.poll(t(10), "b", 3_600).await.unwrap();
    trace.same(&one.get("b").await);
    trace.step("retry: two tokens for same occurrence; retry! does not count attempts");
    assert_eq!(one.retry(t(11), "b", &run, 0).await, Reply::Accepted);
    assert_eq!(one.poll(t(11), "b", 3_600).await.unwrap().attempt, 2);
    trace.step("DST fall-back repeats");
    let angeles = "0 1 * * * America/Los_Angeles";
    let added = one.add("la", angeles, t(122_544_000)).await.unwrap();
    trace.same(&added);
    // Once, unless it is asked for twice.
    assert!(
        following(angeles, added.next.unwrap().scheduled_at).scheduled_at > t(122_544_000 + 86_400)
    );
    trace.step("unknown timezone");
    assert_eq!(
        allora_core::Error::from(cron("* * * * * Mars/X").unwrap_err()).kind(),
        ErrorKind::Invalid
    );
    assert_eq!(cron(MINUTELY).unwrap().next_at(t(0)), Some(t(60)));
}
