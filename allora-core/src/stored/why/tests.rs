//! Answers for states that are put together by hand. Each code on a real occurrence is in the
//! integration tests.

use super::{
    Facts, Why, WhyCode, explain,
    facts::{KeyFact, Past},
};
use crate::{
    backend::{
        DeadLetter, HistoryEntry, JobState, Lease, NextRun, NotRunReason, OPERATOR, Occurrence,
        OnExpiry, Outcome, Pause, Sharing,
    },
    job::is_code,
    registry::{Fleet, NodeInfo, RunProgress, decode, name_hash},
    stored::Definition,
    time::{Time, from_millis},
};

/// 2026-01-01T00:00:00Z, and so many seconds.
fn at(seconds: i64) -> Time {
    from_millis(1_767_225_600_000 + seconds * 1_000).unwrap()
}

fn next(seconds: i64) -> Option<NextRun> {
    Some(at(seconds).into())
}

fn node(id: &str) -> NodeInfo {
    let mut info = decode(id, "seen=1970-01-01T00:00:00Z heartbeat=15000").unwrap();
    (info.is_live, info.last_seen, info.started_at) = (true, at(3_595), at(-3_600));
    (info.concurrency, info.is_complete) = (10, true);
    info.job_names = Some(vec![name_hash("job")]);
    info.kinds = vec!["mail".into()];
    info
}

/// A healthy job in code at minute 60, which has run each 10 minutes, on one node.
fn healthy() -> Facts {
    let text = "*/10 * * * * UTC";
    let mut state = JobState::empty("job");
    state.definition = text.to_owned();
    (state.generation, state.incarnation) =
        (at(-86_400).timestamp_micros(), at(-86_400).timestamp_micros());
    state.next = next(4_200);
    (state.due_at, state.head) = (Some(at(4_200)), Some(at(4_200).into()));
    state.last_started = Some(at(3_600));
    state.last = Some(Outcome::Succeeded);
    facts(state)
}

/// One minute after that.
fn facts(state: JobState) -> Facts {
    let definition = match is_code(&state.definition) {
        true => None,
        false => Some(
            Definition::parse(&state.name, &state.definition).map_err(|error| error.to_string()),
        ),
    };
    let fleet = Fleet { nodes: vec![node("n1")], forgotten: Vec::new() };
    let past = Some(Past::default());
    Facts {
        now: at(3_660),
        state,
        is_gone: false,
        definition,
        fleet,
        key: None,
        before: None,
        past,
    }
}

fn with(change: impl FnOnce(&mut Facts)) -> Facts {
    let mut facts = healthy();
    change(&mut facts);
    facts
}

fn defined(text: &str, change: impl FnOnce(&mut Facts)) -> Facts {
    let mut state = healthy().state;
    state.definition = text.to_owned();
    let mut facts = facts(state);
    change(&mut facts);
    facts
}

fn lease(seconds: i64, on_expiry: OnExpiry) -> Lease {
    Lease::new("n1", 1, 7, at(seconds).into(), at(seconds + 3_600), on_expiry)
}

fn run(seconds: i64, outcome: Outcome) -> HistoryEntry {
    let mut entry =
        HistoryEntry::new("job", at(seconds).timestamp_micros(), at(seconds).into(), outcome);
    entry.node = "n1".to_owned();
    (entry.started_at, entry.ended_at) = (Some(at(seconds)), Some(at(seconds + 5)));
    entry
}

fn range(first: i64, last: i64, reason: NotRunReason) -> HistoryEntry {
    let not_run = crate::backend::NotRun { count: None, last: at(last), reason };
    let fence = at(last + 120).timestamp_micros();
    let mut entry = HistoryEntry::new("job", fence, at(first).into(), not_run.outcome());
    (entry.last, entry.attempt, entry.reason) = (Some(at(last)), 0, Some(reason));
    (entry.node, entry.ended_at) = ("n1".to_owned(), Some(at(last + 120)));
    entry
}

fn recorded(facts: &mut Facts, entries: &[HistoryEntry]) {
    let begins = Some(at(-7_200));
    facts.past = Some(Past { entries: entries.to_vec(), begins, ..Past::default() });
}

/// The codes of the answer, the main one first, after checking a part of its texts.
#[track_caller]
fn codes(facts: &Facts, seconds: Option<i64>, says: &str) -> Vec<&'static str> {
    let why = explain(facts, seconds.map(at));
    let text: Vec<String> = why.each().map(Why::to_string).collect();
    assert!(text.join("\n").contains(says), "{says}: {text:#?}");
    assert!(!text.iter().any(|line| line.contains("doctor")), "a circle: {text:#?}");
    assert!(why.also.iter().all(|other| other.also.is_empty()), "{why:?}");
    why.each().map(|one| one.code.word()).collect()
}

#[track_caller]
fn now(change: impl FnOnce(&mut Facts), says: &str) -> Vec<&'static str> {
    codes(&with(change), None, says)
}

#[track_caller]
fn then(seconds: i64, change: impl FnOnce(&mut Facts), says: &str) -> Vec<&'static str> {
    codes(&with(change), Some(seconds), says)
}

#[test]
fn a_healthy_job_waits_for_its_next_time() {
    let says = "its next occurrence is scheduled at 2026-01-01T01:10:00Z";
    assert_eq!(now(|_| {}, says), ["scheduled"]);
    let later = |facts: &mut Facts| facts.state.due_at = Some(at(4_230));
    assert_eq!(now(later, "and due at 2026-01-01T01:10:30Z by delay and jitter"), ["scheduled"]);
    let ended = |facts: &mut Facts| {
        (facts.state.next, facts.state.due_at, facts.state.head) = (None, None, None);
    };
    assert_eq!(now(ended, "no further occurrence"), ["ended"]);
}

#[test]
fn a_released_occurrence_waits_until_it_is_due_again() {
    let released = |facts: &mut Facts| {
        facts.state.next = next(3_600);
        (facts.state.head, facts.state.due_at) = (Some(at(3_600).into()), Some(at(4_000)));
    };
    let says = "its run has released the occurrence of 2026-01-01T01:00:00Z, which is due again at \
                2026-01-01T01:06:40Z";
    assert_eq!(now(released, says), ["retry-waits"]);
}

#[test]
fn the_progress_of_a_run_is_in_the_answer() {
    let running = |facts: &mut Facts| {
        facts.state.leases = vec![lease(3_600, OnExpiry::Retry)];
        let name = "job".to_owned();
        let of = |fence, text: &str| RunProgress { name: name.clone(), fence, text: text.into() };
        facts.fleet.nodes[0].progress = vec![of(6, "all"), of(7, "40 %")];
    };
    assert_eq!(now(running, "; its progress: 40 %"), ["running", "scheduled"]);
}

#[test]
fn a_healthy_first_attempt_is_not_counted_as_failed() {
    let running = |facts: &mut Facts| {
        facts.state.leases = vec![lease(3_600, OnExpiry::Retry)];
        facts.state.head = Some(at(3_600).into());
        (facts.state.next, facts.state.due_at, facts.state.attempts) =
            (next(3_600), Some(at(7_200)), 1);
    };
    assert_eq!(now(running, "its schedule continues when the run ends"), ["running"]);
    let why = explain(&with(running), None);
    assert!(!why.sentence.contains("failed") && !why.sentence.contains("after 1"), "{why}");
}

#[test]
fn a_trigger_behind_an_active_run_waits_for_its_end() {
    let waiting = |facts: &mut Facts| {
        facts.state.leases = vec![lease(3_600, OnExpiry::Lost).sharing(Sharing::Exclusive)];
        facts.state.head =
            Some(Occurrence { scheduled_at: at(3_650), trigger: Some("mine".to_owned()) });
        facts.state.due_at = Some(at(3_650));
    };
    let says = "its trigger \"mine\" has been due since 2026-01-01T01:00:50Z and waits for the end of the \
                run of 2026-01-01T01:00:00Z on n1";
    assert_eq!(now(waiting, says), ["running", "waits-for-run"]);
}

#[test]
fn the_last_run_that_was_lost_is_told() {
    let lost = |facts: &mut Facts| facts.state.last = Some(Outcome::Lost);
    assert_eq!(now(lost, "its last run was lost"), ["scheduled", "lost"]);
}

#[test]
fn an_orphan_has_no_next_time_and_one_whose_label_is_missing_is_none() {
    let orphan = |facts: &mut Facts| facts.fleet.nodes[0].job_names = Some(Vec::new());
    assert_eq!(now(orphan, "`allora gc`"), ["jobs-orphaned"]);
    let label = |facts: &mut Facts| {
        orphan(facts);
        facts.fleet.nodes[0].needed_labels = vec!["gpu".to_owned()];
    };
    assert_eq!(now(label, "need the label gpu"), ["label-unmatched"]);
    let kept = |facts: &mut Facts| {
        orphan(facts);
        facts.fleet.nodes[0].kept_names = vec![name_hash("job")];
        facts.fleet.nodes[0].problems = vec!["program-report: crontab x:1: bad".to_owned()];
    };
    assert_eq!(now(kept, "runs it now: crontab x:1: bad"), ["job-kept"]);
}

#[test]
fn what_keeps_every_occurrence_from_running_comes_first() {
    let nobody = |facts: &mut Facts| {
        (facts.fleet.nodes[0].is_live, facts.fleet.nodes[0].last_seen) = (false, at(100));
    };
    let says = "the last one, n1, was last seen at 2026-01-01T00:01:40Z";
    assert_eq!(now(nobody, says), ["no-live-node"]);
    let left = |facts: &mut Facts| facts.fleet.nodes[0].left_jobs = vec![name_hash("job")];
    assert_eq!(now(left, "cannot run its definition"), ["definition-conflict"]);
    let unhandled = |facts: &mut Facts| facts.state.kind = "report".to_owned();
    assert_eq!(now(unhandled, "kind \"report\""), ["kind-unhandled"]);
    let paused = |facts: &mut Facts| {
        facts.state.paused = Some(Pause { since: at(3_000), until: None, note: "a\nb".to_owned() });
    };
    assert_eq!(now(paused, "since 2026-01-01T00:50:00Z: a b; `allora resume job`"), ["paused"]);
    let window = |facts: &mut Facts| {
        let until = Some(at(7_200));
        facts.state.paused = Some(Pause { since: at(3_000), until, note: "a".to_owned() });
    };
    let says = "since 2026-01-01T00:50:00Z and is until 2026-01-01T02:00:00Z: a; wait until then";
    assert_eq!(now(window, says), ["paused"]);
    let unreadable = |facts: &mut Facts| facts.state.unreadable = Some("cut".to_owned());
    assert_eq!(now(unreadable, "cannot be read: cut"), ["record-unreadable"]);
    let invalid = |facts: &mut Facts| {
        facts.state.kind = "mail".to_owned();
        facts.definition = Some(Err("no such calendar".to_owned()));
    };
    assert_eq!(now(invalid, "no such calendar"), ["job-invalid"]);
}

#[test]
fn a_time_of_a_clock_that_was_ahead_is_not_the_next_one() {
    let ahead = |facts: &mut Facts| {
        facts.state.fence = at(86_400).timestamp_micros();
        (facts.state.next, facts.state.due_at) = (next(87_000), Some(at(87_000)));
    };
    assert_eq!(now(ahead, "`allora reset job`"), ["clock-was-ahead"]);
}

#[test]
fn what_is_due_says_what_it_waits_for() {
    fn due(facts: &mut Facts) {
        facts.state.next = next(3_600);
        (facts.state.due_at, facts.state.head) = (Some(at(3_600)), Some(at(3_600).into()));
    }
    let soon = |facts: &mut Facts| (due(facts), facts.now = at(3_601)).1;
    assert_eq!(now(soon, "any moment"), ["due"]);
    assert_eq!(now(due, "those that can run it (n1)"), ["job-overdue"]);
    let full = |facts: &mut Facts| (due(facts), facts.fleet.nodes[0].running = 10).1;
    assert_eq!(now(full, "n1 with 10 of 10"), ["capacity-full"]);
    let mut busy = defined("*/10 * * * * UTC; concurrency-key tapes", due);
    let mut record = JobState::empty("allora:key:tapes");
    let holder = Occurrence { scheduled_at: at(3_500), trigger: Some("other".to_owned()) };
    record.leases = vec![Lease { occurrence: holder, ..lease(3_500, OnExpiry::Lost) }];
    let key = crate::ConcurrencyKey::new("tapes", 1);
    busy.key = Some(KeyFact { key, record: Some(record) });
    let says = "key tapes, held by other on n1 since 2026-01-01T00:58:20Z";
    assert_eq!(codes(&busy, None, says), ["key-busy"]);
}

#[test]
fn attempts_letters_and_silent_nodes_are_told() {
    let retry = |facts: &mut Facts| {
        (facts.state.head, facts.state.attempts) = (Some(at(3_600).into()), 2);
        (facts.state.next, facts.state.due_at) = (next(3_600), Some(at(3_720)));
        facts.state.last = Some(Outcome::Retried("boom".to_owned()));
    };
    let says = "due at 2026-01-01T01:02:00Z, after 2 attempts at the occurrence of \
                2026-01-01T01:00:00Z: boom";
    assert_eq!(now(retry, says), ["retry-waits"]);
    let dead = |facts: &mut Facts| {
        let error = "boom".to_owned();
        let letter =
            DeadLetter { occurrence: at(3_000).into(), attempts: 3, died_at: at(3_010), error };
        facts.state.dead = vec![letter];
        facts.state.last = Some(Outcome::Dead("boom".to_owned()));
    };
    assert_eq!(now(dead, "1 dead letter"), ["scheduled", "dead"]);
    let failed = |facts: &mut Facts| facts.state.last = Some(Outcome::Failed("x\ny".to_owned()));
    assert_eq!(now(failed, "ended as failed: x y"), ["scheduled", "failed"]);
    let silent = |facts: &mut Facts| {
        facts.state.leases = vec![Lease { node: "n0".into(), ..lease(3_600, OnExpiry::Retry) }];
        facts.state.head = Some(at(3_600).into());
        (facts.state.next, facts.state.due_at) = (next(3_600), Some(at(7_200)));
    };
    assert_eq!(now(silent, "then another node runs it again"), ["node-dead"]);
}

#[test]
fn a_run_is_told_by_its_newest_entry() {
    let entry = |entry: HistoryEntry| move |facts: &mut Facts| recorded(facts, &[entry]);
    let ran = "ran on n1 from 2026-01-01T00:10:00Z to 2026-01-01T00:10:05Z";
    assert_eq!(then(600, entry(run(600, Outcome::Succeeded)), ran), ["succeeded"]);
    let failed = Outcome::Failed("boom".to_owned());
    assert_eq!(then(600, entry(run(600, failed)), "and failed: boom"), ["failed"]);
    let dead = Outcome::Dead("boom".to_owned());
    assert_eq!(then(600, entry(run(600, dead)), "`allora rerun job 2026-01-01T00:10"), ["dead"]);
    assert_eq!(then(600, entry(run(600, Outcome::Lost)), "not run again"), ["lost"]);
    assert_eq!(then(600, entry(run(600, Outcome::Interrupted)), "dropped"), ["interrupted"]);
    assert_eq!(then(600, entry(run(600, Outcome::Released)), "given back"), ["released"]);
    let retried = run(3_600, Outcome::Retried("boom".to_owned()));
    let waiting = |facts: &mut Facts| {
        recorded(facts, std::slice::from_ref(&retried));
        facts.state.head = Some(at(3_600).into());
        facts.state.due_at = Some(at(3_720));
    };
    let says = "the next attempt is due at 2026-01-01T01:02:00Z";
    assert_eq!(then(3_600, waiting, says), ["retry-waits"]);
    assert_eq!(then(3_600, entry(retried.clone()), "none is in the history"), ["retried"]);
    let expired = run(600, Outcome::Expired);
    let again =
        HistoryEntry { fence: expired.fence + 9, attempt: 2, ..run(600, Outcome::Succeeded) };
    let both = |facts: &mut Facts| recorded(facts, &[again.clone(), expired.clone()]);
    assert_eq!(then(600, both, "attempt 1 on n1 had ended without a result"), ["recovered"]);
    assert_eq!(then(600, entry(expired.clone()), "did not report its end"), ["expired"]);
    for (reason, code) in [
        (NotRunReason::Operator, "cancelled"),
        (NotRunReason::Shutdown, "shutdown"),
        (NotRunReason::Deleted, "deleted"),
        (NotRunReason::Replaced { by: at(1_200) }, "replaced"),
    ] {
        let cancelled = HistoryEntry { reason: Some(reason), ..run(600, Outcome::Cancelled) };
        assert_eq!(then(600, entry(cancelled), ran), [code]);
    }
}

#[test]
fn what_was_not_run_says_what_the_record_shows_and_no_more() {
    let entry = |entry: HistoryEntry| move |facts: &mut Facts| recorded(facts, &[entry]);
    let one = |reason| range(600, 1_800, reason);
    for (reason, says, code) in [
        (NotRunReason::Window, "later than the window", "missed-window"),
        (NotRunReason::Overlap, "still active", "skipped-overlap"),
        (NotRunReason::ConcurrencyKey, "key was busy", "skipped-key"),
        (NotRunReason::Calendar, "calendar", "skipped-calendar"),
        (NotRunReason::CatchUp, "what kept the nodes from it is not recorded", "missed-catch-up"),
    ] {
        for seconds in [600, 1_200, 1_800] {
            assert_eq!(then(seconds, entry(one(reason)), says), [code]);
        }
    }
    let operator = || HistoryEntry { node: OPERATOR.to_owned(), ..one(NotRunReason::CatchUp) };
    assert_eq!(then(600, entry(operator()), "an operator resumed"), ["missed-change"]);
    // Behind a run that lasted that long.
    let behind = defined("*/10 * * * * UTC; overlap wait", |facts| {
        let long = HistoryEntry { ended_at: Some(at(1_900)), ..run(0, Outcome::Succeeded) };
        recorded(facts, &[one(NotRunReason::CatchUp), long]);
    });
    let says = "the run of 2026-01-01T00:00:00Z on n1 was still active until 2026-01-01T00:31:40Z";
    assert_eq!(codes(&behind, Some(1_200), says), ["missed-behind-run"]);
    let late = |facts: &mut Facts| {
        recorded(facts, &[one(NotRunReason::CatchUp)]);
        facts.fleet.nodes[0].started_at = at(1_900);
    };
    let says = "none of the known nodes was live at that time";
    assert_eq!(then(1_200, late, says), ["missed-catch-up", "no-live-node"]);
}

#[test]
fn an_instant_in_a_missed_range_that_was_no_scheduled_time_was_not_missed() {
    let missed = |facts: &mut Facts| recorded(facts, &[range(600, 1_800, NotRunReason::CatchUp)]);
    let says =
        "not a scheduled time of its schedule; the next one after it is 2026-01-01T00:20:00Z";
    assert_eq!(then(601, missed, says), ["not-scheduled", "missed-catch-up"]);
    // A period counts from the job's own occurrences.
    let every = defined("@every 10m", missed);
    assert_eq!(codes(&every, Some(601), "not a scheduled time")[0], "not-scheduled");
    assert_eq!(codes(&every, Some(1_200), "was missed")[0], "missed-catch-up");
}

#[test]
fn a_time_that_has_come_and_has_not_run_says_what_it_waits_for() {
    fn due(facts: &mut Facts) {
        facts.state.next = next(3_000);
        (facts.state.due_at, facts.state.head) = (Some(at(3_000)), Some(at(3_000).into()));
    }
    let paused = |facts: &mut Facts| {
        facts.state.next = next(3_000);
        (facts.state.due_at, facts.state.head) = (None, None);
        facts.state.paused = Some(Pause { since: at(2_000), until: None, note: String::new() });
    };
    let says =
        "2026-01-01T00:50:00Z has not run yet: it has been paused since 2026-01-01T00:33:20Z";
    assert_eq!(then(3_000, paused, says), ["paused"]);
    let nobody = |facts: &mut Facts| (due(facts), facts.fleet.nodes[0].is_live = false).1;
    let says = "has not run yet: no node is live on this store";
    assert_eq!(then(3_600, nobody, says), ["no-live-node"]);
    assert_eq!(then(3_600, due, "has not run yet: it has been due since"), ["job-overdue"]);
    let behind = |facts: &mut Facts| {
        due(facts);
        facts.state.leases = vec![lease(3_000, OnExpiry::Retry)];
        facts.state.due_at = Some(at(7_200));
    };
    let says = "has not run yet: it waits for the end of the run of 2026-01-01T00:50:00Z on n1";
    assert_eq!(then(3_600, behind, says), ["waits-for-run"]);
}

#[test]
fn without_an_entry_the_records_say_why_there_is_none() {
    assert_eq!(then(7_200, |_| {}, "has not come yet"), ["in-future"]);
    let created = |facts: &mut Facts| facts.state.incarnation = at(1_000).timestamp_micros();
    assert_eq!(then(600, created, "the job was created at"), ["created-later"]);
    let changed = |facts: &mut Facts| facts.state.generation = at(1_000).timestamp_micros();
    assert_eq!(then(600, changed, "was changed at"), ["changed-later"]);
    assert_eq!(then(600, |facts| facts.past = None, "keeps no history"), ["no-history"]);
    let later = |facts: &mut Facts| {
        recorded(facts, &[run(1_200, Outcome::Succeeded)]);
        facts.past.as_mut().unwrap().begins = Some(at(1_200));
    };
    let says = "begins at 2026-01-01T00:20:00Z, after 2026-01-01T00:10:00Z";
    assert_eq!(then(600, later, says), ["before-history"]);
    let older = |facts: &mut Facts| recorded(facts, &[run(0, Outcome::Succeeded)]);
    assert_eq!(then(600, older, "none for 2026-01-01T00:10:00Z"), ["no-entry"]);
    let paused = |facts: &mut Facts| {
        facts.state.paused = Some(Pause { since: at(2_000), until: None, note: String::new() });
    };
    assert_eq!(then(7_200, paused, "has not come yet"), ["in-future", "paused"]);
}

#[test]
fn changes_of_the_clocks_are_told() {
    let night = |text: &str| {
        let mut facts = defined(text, |_| {});
        facts.now = "2026-12-01T00:00:00Z".parse().unwrap();
        facts.state.next = Some(facts.now.into());
        (facts.state.generation, facts.state.incarnation) = (0, 0);
        facts
    };
    let ask = |facts: &Facts, time: &str| {
        let why = explain(facts, Some(time.parse().unwrap()));
        (why.code.word(), why.sentence)
    };
    let nightly = night("30 2 * * * Europe/Rome");
    let (code, text) = ask(&nightly, "2026-10-25T01:30:00Z");
    assert_eq!(code, "dropped-by-clock-change", "{text}");
    assert!(text.contains("comes twice in Europe/Rome"), "{text}");
    let mut moved = night("30 2 * * * Europe/Rome");
    let at: Time = "2026-03-29T01:00:00Z".parse().unwrap();
    let ran = HistoryEntry::new("job", at.timestamp_micros(), at.into(), Outcome::Succeeded);
    recorded(&mut moved, &[HistoryEntry { started_at: Some(at), ..ran }]);
    let why = explain(&moved, Some(at));
    let codes: Vec<&str> = why.each().map(|one| one.code.word()).collect();
    assert_eq!(codes, ["succeeded", "moved-by-clock-change"]);
    let (code, _) = ask(&nightly, "2026-06-01T02:30:00Z");
    assert_eq!(code, "not-scheduled");
}

#[test]
fn a_rule_of_a_calendar_is_told_for_a_time_that_it_excludes() {
    let daily = defined("0 9 * * * UTC; except 2026-01-02", |_| {});
    let why = explain(&daily, Some(at(86_400 + 9 * 3_600)));
    assert_eq!(why.code, WhyCode::SkippedCalendar, "{why}");
    assert!(why.sentence.ends_with("the next one after it is 2026-01-03T09:00:00Z"), "{why}");
}

#[test]
fn a_job_that_is_gone_is_told_by_its_history() {
    let mut facts = with(|facts| recorded(facts, &[run(600, Outcome::Succeeded)]));
    (facts.state, facts.definition, facts.is_gone) = (JobState::empty("job"), None, true);
    assert_eq!(codes(&facts, None, "\"job\" was deleted"), ["deleted"]);
    assert_eq!(codes(&facts, Some(600), "succeeded"), ["succeeded"]);
}
