//! An entry of the history as an answer.

use super::{Facts, Why, WhyCode, facts::drawn, shown, times::Times};
use crate::{
    backend::{HistoryEntry, JobState, MAX_CHAIN, NotRunReason, OPERATOR, Outcome, followed},
    condition::one_line,
    job::{Delivery, Overlap},
    registry::NodeInfo,
    time::Time,
};
use chrono::TimeDelta;

/// The answer that the newest entry about the time `at` gives.
pub(super) fn told(facts: &Facts, at: Time, entry: &HistoryEntry) -> Why {
    let why = match entry.started_at {
        Some(started) => of_run(facts, at, entry, started),
        None => of_range(facts, at, entry),
    };
    let mut why = why.with("outcome", entry.outcome.word()).with("fence", entry.fence);
    if let Some(key) = entry.occurrence.trigger.as_deref().and_then(followed) {
        why.sentence += &format!("; it followed {key}");
        why = why.with("follows", key);
    }
    match drawn(entry).filter(|drawn| *drawn > facts.now + TimeDelta::minutes(1)) {
        None => why,
        Some(drawn) => {
            let text = format!(
                "the store's clock was ahead when this was recorded: its time is {}, which has not \
                 come yet",
                shown(drawn)
            );
            let mut why = why;
            why.also.push(Why::new(WhyCode::ClockWasAhead, text).with("until", drawn).remedy(
                format!(
                    "if the job waits for such a time, `allora reset {}` ends that",
                    facts.name()
                ),
            ));
            why
        }
    }
}

fn of_run(facts: &Facts, at: Time, entry: &HistoryEntry, started: Time) -> Why {
    let (name, node, attempt) = (facts.name(), &entry.node, entry.attempt);
    let (time, from) = (shown(at), shown(started));
    let until = entry.ended_at.map(|at| format!(" to {}", shown(at))).unwrap_or_default();
    let error = one_line(entry.outcome.error());
    let ran = format!("{time} ran on {node} from {from}{until}");
    let silent = format!("{time} was started at {from} on {node}, which did not report its end");
    let (code, text, remedy) = match &entry.outcome {
        Outcome::Running if facts.lives(node) => (
            WhyCode::Running,
            format!("{time} runs since {from} on {node}, attempt {attempt}"),
            Some(format!("`allora cancel {name}` ends the run")),
        ),
        Outcome::Running => (
            WhyCode::NodeDead,
            format!(
                "{time} was started at {from} on {node}, which is dead or does not reach the store"
            ),
            Some(format!("look at the node {node}, and at its connection to the store")),
        ),
        Outcome::Succeeded => match before(facts, entry).find(|one| is_unreported(one)) {
            None => (WhyCode::Succeeded, format!("{ran}, attempt {attempt}, and succeeded"), None),
            Some(lost) => (
                WhyCode::Recovered,
                format!(
                    "{ran}, attempt {attempt}, and succeeded; attempt {} on {} had ended without a \
                     result",
                    lost.attempt, lost.node
                ),
                None,
            ),
        },
        Outcome::Lost => (
            WhyCode::Lost,
            format!("{silent}; it is recorded as lost and, at most once, not run again"),
            Some(format!(
                "look whether its work was done, and run it again with `allora trigger {name}` if it \
                 was not"
            )),
        ),
        Outcome::Expired => {
            let (again, remedy) = follows(&facts.state, entry);
            (WhyCode::Expired, format!("{silent}; {again}"), remedy)
        }
        Outcome::Interrupted => {
            let (again, remedy) = follows(&facts.state, entry);
            (
                WhyCode::Interrupted,
                format!("{ran}, and was dropped before it ended; {again}"),
                remedy,
            )
        }
        Outcome::Released => {
            let (again, remedy) = follows(&facts.state, entry);
            (WhyCode::Released, format!("{time} was given back by {node}; {again}"), remedy)
        }
        Outcome::Retried(_) => {
            let (again, remedy) = follows(&facts.state, entry);
            let is_next = facts.state.head.as_ref() == Some(&entry.occurrence);
            let code = if is_next { WhyCode::RetryWaits } else { WhyCode::Retried };
            (code, format!("{ran}, attempt {attempt}, and failed: {error}; {again}"), remedy)
        }
        Outcome::Dead(_) => (
            WhyCode::Dead,
            format!("{ran}, attempt {attempt}, and failed: {error}; its attempts are used up"),
            Some(format!("correct the cause, then `allora rerun {name} {time}` runs it again")),
        ),
        Outcome::Failed(_) => (
            WhyCode::Failed,
            format!("{ran}, attempt {attempt}, and failed: {error}"),
            Some(format!("`allora logs {name}` shows its output")),
        ),
        _ => cut_off(entry, &ran),
    };
    let why = Why::new(code, text).with("scheduled_at", at).with("node", node.as_str());
    let why = why.with("attempt", attempt).with("started_at", started);
    let why = why.with_some("ended_at", entry.ended_at);
    let why = why.with_some("error", Some(entry.outcome.error()).filter(|one| !one.is_empty()));
    Why { remedy, ..why }
}

/// The attempts at the same occurrence before this one.
fn before<'a>(facts: &'a Facts, entry: &'a HistoryEntry) -> impl Iterator<Item = &'a HistoryEntry> {
    let earlier =
        |one: &&HistoryEntry| one.occurrence == entry.occurrence && one.fence < entry.fence;
    facts.entries().iter().filter(earlier)
}

fn is_unreported(entry: &HistoryEntry) -> bool {
    entry.has_lapsed() || entry.outcome == Outcome::Interrupted
}

/// The sentence about the attempt after one that is not the last, and its remedy.
fn follows(state: &JobState, entry: &HistoryEntry) -> (String, Option<String>) {
    let name = &state.name;
    match state.due_at.filter(|_| state.head.as_ref() == Some(&entry.occurrence)) {
        Some(due) => (
            format!("the next attempt is due at {}", shown(due)),
            Some(format!("wait for it, or end the occurrence with `allora cancel {name}`")),
        ),
        None if state.paused.is_some() => (
            "the next attempt waits until the job is resumed".to_owned(),
            Some(format!("`allora resume {name}` or `Schedules::resume` ends the pause")),
        ),
        None => ("another attempt was to follow, and none is in the history".to_owned(), None),
    }
}

/// A run that was cancelled.
fn cut_off(entry: &HistoryEntry, ran: &str) -> (WhyCode, String, Option<String>) {
    match entry.reason {
        Some(NotRunReason::Shutdown) => (
            WhyCode::Shutdown,
            format!("{ran}: its node was stopped before it ended"),
            Some("give it more time with a longer grace period (`--grace`)".to_owned()),
        ),
        Some(NotRunReason::Replaced { by }) => (
            WhyCode::Replaced,
            format!("{ran}: the occurrence of {} replaced it, by its overlap policy", shown(by)),
            None,
        ),
        Some(NotRunReason::Deleted) => {
            (WhyCode::Deleted, format!("{ran}: it was cancelled because the job was deleted"), None)
        }
        Some(NotRunReason::Operator) => {
            (WhyCode::Cancelled, format!("{ran}: an operator cancelled it"), None)
        }
        _ => (
            WhyCode::Cancelled,
            format!("{ran}, and was {}; the reason is not recorded", entry.outcome.word()),
            None,
        ),
    }
}

/// Occurrences that were not run.
fn of_range(facts: &Facts, at: Time, entry: &HistoryEntry) -> Why {
    let time = shown(at);
    let passed = entry.ended_at.or(drawn(entry));
    let passed_at = passed.map(shown).unwrap_or_default();
    let author = entry.operator_note().map(|by| format!(" {}", one_line(by)));
    let author = author.unwrap_or_default();
    let (code, text, remedy) = match entry.reason {
        _ if entry.is_mark() => (
            WhyCode::Succeeded,
            format!(
                "{time} was marked as succeeded at {passed_at}{author}; no run of it succeeded"
            ),
            None,
        ),
        Some(NotRunReason::Overlap) => {
            let run = run_at(facts, at).map(still_active);
            let run = run.unwrap_or_else(|| "the run before it was still active".to_owned());
            (
                WhyCode::SkippedOverlap,
                format!("{time} was skipped: {run}"),
                Some("overlap `wait` or `allow` would run it (ALLORA_OVERLAP)"),
            )
        }
        Some(NotRunReason::ConcurrencyKey) => (
            WhyCode::SkippedKey,
            format!("{time} was skipped: its concurrency key was busy until {passed_at}"),
            Some("a longer `max-key-wait` (ALLORA_MAX_KEY_WAIT) or a larger limit would run it"),
        ),
        Some(NotRunReason::Calendar) => {
            let rule = Times { facts, at }.excluded();
            let rule = rule.map(|rule| format!(": {rule}")).unwrap_or_default();
            let text =
                format!("{time} was skipped: the calendar of its schedule excludes it{rule}");
            (WhyCode::SkippedCalendar, text, None)
        }
        Some(NotRunReason::Operator) => (
            WhyCode::SkippedOperator,
            format!(
                "{time} was {} by an operator at {passed_at}, before it ran{author}",
                entry.outcome.word()
            ),
            None,
        ),
        Some(NotRunReason::Deleted) => {
            (WhyCode::Deleted, format!("{time} did not run: the job was deleted"), None)
        }
        Some(NotRunReason::TooManyTriggers) => (
            WhyCode::MissedFull,
            format!("{time} was missed: too many triggers waited already"),
            Some("let the job before it run less often, or make this one faster"),
        ),
        Some(NotRunReason::ChainTooLong) => (
            WhyCode::MissedChain,
            format!(
                "what follows {time} was not triggered: more than {MAX_CHAIN} jobs have run one after \
                 the other, probably in a cycle"
            ),
            Some("let one of these jobs run at times of its own (after)"),
        ),
        Some(NotRunReason::Window) => (
            WhyCode::MissedWindow,
            format!(
                "{time} was missed: when it could have been claimed at {passed_at}, it was later than \
                 the window allows"
            ),
            Some("a longer window (ALLORA_WINDOW) would run it"),
        ),
        Some(NotRunReason::CatchUp) if entry.node == OPERATOR => (
            WhyCode::MissedChange,
            format!(
                "{time} was left out at {passed_at}, when an operator resumed the schedule or changed it"
            ),
            Some("resume with catch-up to run what came due"),
        ),
        Some(NotRunReason::CatchUp) => match run_at(facts, at) {
            Some(run) => (
                WhyCode::MissedBehindRun,
                format!(
                    "{time} was missed: {}, and when it ended, the catch-up policy left this one out",
                    still_active(run)
                ),
                Some("`catch-up all 100` (ALLORA_CATCH_UP) would run them one after the other"),
            ),
            None => (
                WhyCode::MissedCatchUp,
                format!(
                    "{time} was missed: no node claimed it before {passed_at}, and then the catch-up \
                     policy left it out; what kept the nodes from it is not recorded: a pause, the \
                     store, or that none was live"
                ),
                Some("`catch-up all 100` (ALLORA_CATCH_UP) would run such occurrences late"),
            ),
        },
        _ => (
            WhyCode::NoEntry,
            format!("{time} was {}, and the reason is not recorded", entry.outcome.word()),
            None,
        ),
    };
    let mut why = Why::new(code, text)
        .with("first", entry.occurrence.scheduled_at)
        .with_some("last", entry.last)
        .with_some("count", entry.count)
        .with("node", entry.node.as_str())
        .with_some("passed_at", passed);
    why.remedy = remedy.map(str::to_owned);
    if matches!(code, WhyCode::MissedCatchUp | WhyCode::MissedWindow) {
        why.also.extend(none_was_live(facts, at));
    }
    why
}

/// The run of the same job that was active at this time, if runs exclude each other.
fn run_at(facts: &Facts, at: Time) -> Option<&HistoryEntry> {
    let is_shared = facts.readable().is_some_and(|definition| {
        let settings = definition.settings();
        (settings.delivery, settings.overlap) == (Delivery::AtMostOnce, Overlap::Allow)
    });
    let was_active = |one: &&HistoryEntry| {
        !is_shared
            && one.started_at.is_some_and(|started| started <= at)
            && one.ended_at.is_none_or(|ended| ended > at)
    };
    facts.entries().iter().find(was_active)
}

fn still_active(run: &HistoryEntry) -> String {
    let until = run.ended_at.map(|at| format!(" until {}", shown(at))).unwrap_or_default();
    let at = shown(run.occurrence.scheduled_at);
    format!("the run of {at} on {} was still active{until}", run.node)
}

/// That none of the nodes whose records exist was live at the time.
fn none_was_live(facts: &Facts, at: Time) -> Option<Why> {
    let nodes = &facts.fleet.nodes;
    let was_live = |node: &NodeInfo| node.started_at <= at && node.last_seen >= at;
    let first = nodes.iter().map(|node| node.started_at).filter(|started| *started > at).min()?;
    if nodes.iter().any(was_live) {
        return None;
    }
    let text = format!(
        "none of the known nodes was live at that time: the first one since started at {}; nodes that \
         were stopped in order leave no record",
        shown(first)
    );
    Some(Why::new(WhyCode::NoLiveNode, text).with("started_at", first))
}
