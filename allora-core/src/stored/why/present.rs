//! Why a job does not run now.

use super::{Facts, Why, WhyCode, counted, shown};
use crate::{
    backend::{After, Follower, JobState, Lease, On, OnExpiry, Outcome, Sharing, followed},
    condition::{KeyHolder, OVERDUE, one_line},
    record::MAX_LEASES,
    registry::NodeInfo,
    stored::ahead_until,
    time::Time,
};
use allora_schedule::period_text;

pub(super) fn of_now(facts: &Facts) -> Why {
    if facts.is_gone {
        return gone(facts);
    }
    Why::first_of(reasons(facts)).unwrap_or_else(ended)
}

fn reasons(facts: &Facts) -> Vec<Why> {
    let state = &facts.state;
    if let Some(reason) = &state.unreadable {
        let text = format!("its record cannot be read: {}", one_line(reason));
        let remedy = format!(
            "use a build that can read it, or delete the job with `allora delete {}` and create it again",
            state.name
        );
        let why = Why::new(WhyCode::RecordUnreadable, text).with("reason", reason.as_str());
        return vec![why.remedy(remedy)];
    }
    let runs = state.leases.iter().filter(|lease| lease.claim_id != 0);
    let (live, silent): (Vec<&Lease>, Vec<&Lease>) = runs.partition(|run| facts.lives(&run.node));
    let mut reasons: Vec<Why> = live.iter().map(|run| running(facts, run)).collect();
    let blockers = blockers(facts);
    let mut is_blocked = !blockers.is_empty();
    reasons.extend(blockers);
    let (after, is_broken) = runs_after(facts);
    is_blocked |= is_broken && state.due_at.is_none();
    reasons.extend(after.clone().filter(|_| is_broken));
    reasons.extend(silent.iter().map(|run| on_dead_node(facts, run)));
    let is_trigger = state.head.as_ref().is_some_and(|head| head.trigger.is_some());
    let pause = paused(state);
    if !is_trigger {
        is_blocked |= pause.is_some();
        reasons.extend(pause.clone());
    }
    let when = when(facts).filter(|_| !is_blocked);
    let (ended, when): (Option<Why>, Option<Why>) = match when {
        Some(when) if when.code == WhyCode::Ended => (Some(when), None),
        when => (None, when),
    };
    let ended = ended.filter(|_| after.is_none());
    let after = after.filter(|_| !is_broken);
    let is_retried = when.as_ref().is_some_and(|when| when.code == WhyCode::RetryWaits);
    reasons.extend(when);
    reasons.extend(after);
    if is_trigger {
        reasons.extend(pause);
    }
    reasons.extend(aftermath(state, is_retried));
    reasons.extend(ended);
    reasons
}

fn ended() -> Why {
    Why::new(WhyCode::Ended, "its schedule has no further occurrence")
}

/// The job after which it runs, with the occurrence of that job that it follows now. `true`: no run of
/// that job will be followed.
fn runs_after(facts: &Facts) -> (Option<Why>, bool) {
    let Some((After { job, on }, before)) = &facts.before else { return (None, false) };
    let name = facts.name();
    let ends = match on {
        On::Success => "succeeds",
        On::Failure => "fails",
        On::End => "ends",
    };
    let broken = |text: String, remedy: String| {
        let why = Why::new(WhyCode::NothingBefore, text).with("after", job.as_str());
        (Some(why.remedy(remedy)), true)
    };
    let Some(before) = before else {
        return broken(
            format!("it runs when {job:?} {ends}, and there is no job {job:?} in the store"),
            format!("add {job:?}, or let {name:?} run after another job"),
        );
    };
    let chain = before.chain.as_deref();
    let is_it = |follower: &Follower| follower.job == name && follower.on == *on;
    if !chain.is_some_and(|chain| chain.followers.iter().any(is_it)) {
        return broken(
            format!("it runs when {job:?} {ends}, and the record of {job:?} does not say so"),
            "start a node that has it in code, or remove `after` from a stored schedule and set it again"
                .to_owned(),
        );
    }
    let waiting = chain.into_iter().flat_map(|chain| &chain.outbox);
    let waiting = waiting.filter(|follow_up| follow_up.job == name).count();
    let head = facts.state.head.as_ref().and_then(|head| followed(head.trigger.as_deref()?));
    let text = match (head, waiting) {
        (Some(key), _) => format!("it is to run after {key}"),
        (None, 0) => format!("it runs when {job:?} {ends}"),
        (None, n) => format!("it runs when {job:?} {ends}, and is about to be triggered {n} times"),
    };
    let why = Why::new(WhyCode::RunsAfter, text).with("after", job.as_str()).with("on", on.word());
    let why = why.with_some("follows", head).with("waiting", waiting);
    (Some(why.remedy(format!("`allora why {job}` says when that job runs"))), false)
}

fn gone(facts: &Facts) -> Why {
    let name = facts.name();
    let last = facts.entries().first().and_then(|entry| entry.ended_at.or(entry.started_at));
    let until = last.map(|at| format!("; its history ends at {}", shown(at))).unwrap_or_default();
    Why::new(WhyCode::Deleted, format!("the job {name:?} was deleted{until}"))
        .with_some("last", last)
        .remedy("add it again, or deploy what declares it")
}

fn running(facts: &Facts, run: &Lease) -> Why {
    let state = &facts.state;
    let (at, since) = (shown(run.occurrence.scheduled_at), shown(run.started_at));
    let mut text = format!(
        "it runs now: the occurrence of {at} on {}, attempt {}, since {since}",
        run.node, run.attempt
    );
    if run.completed {
        text = format!(
            "its run of {at} has succeeded on {}, where its code works on since it completed itself",
            run.node
        );
        if run.sharing == Sharing::Exclusive {
            text += "; the next occurrence waits until it returns";
        }
    } else if is_leased(state, run) || state.due_at.is_none() {
        text += "; its schedule continues when the run ends";
    }
    let progress = facts.progress(run.fence);
    if let Some(progress) = progress {
        text += &format!("; its progress: {}", one_line(progress));
    }
    let why = Why::new(WhyCode::Running, text)
        .with("scheduled_at", run.occurrence.scheduled_at)
        .with("node", run.node.as_str())
        .with("attempt", run.attempt)
        .with("since", run.started_at)
        .with_some("outcome", run.completed.then_some("succeeded"))
        .with_some("progress", progress);
    why.remedy(format!("`allora cancel {}` ends the run", state.name))
}

/// `true` if the occurrence that is offered next is the one that runs: at least once, the schedule
/// waits for its end.
fn is_leased(state: &JobState, run: &Lease) -> bool {
    run.on_expiry == OnExpiry::Retry
        && state.head.as_ref().is_none_or(|head| *head == run.occurrence)
}

fn on_dead_node(facts: &Facts, run: &Lease) -> Why {
    let (at, started) = (shown(run.occurrence.scheduled_at), shown(run.started_at));
    let (ends, then) = match (run.until > facts.now, run.on_expiry) {
        (true, OnExpiry::Retry) => ("ends", "then another node runs it again"),
        (true, OnExpiry::Lost) => ("ends", "then it is recorded as lost"),
        (false, OnExpiry::Retry) => ("ended", "the next node that looks runs it again"),
        (false, OnExpiry::Lost) => ("ended", "the next node that looks records it as lost"),
    };
    let then =
        if run.completed { "nothing is left of it but that, since it had succeeded" } else { then };
    let text = format!(
        "the occurrence of {at}, attempt {}, was started at {started} on {}, which is dead or does not \
         reach the store; its lease {ends} at {}, and {then}",
        run.attempt,
        run.node,
        shown(run.until)
    );
    let seen = facts.fleet.nodes.iter().find(|node| node.node == run.node);
    Why::new(WhyCode::NodeDead, text)
        .with("node", run.node.as_str())
        .with_some("last_seen", seen.map(|node| node.last_seen))
        .with("lease_until", run.until)
        .remedy(format!("look at the node {}, and at its connection to the store", run.node))
}

/// The reasons that keep every occurrence of the job from running, the most important first.
fn blockers(facts: &Facts) -> Vec<Why> {
    let state = &facts.state;
    let mut reasons = Vec::new();
    let stored = !state.kind.is_empty();
    if let Some(Err(error)) = facts.definition.as_ref().filter(|_| stored) {
        let text = format!("its definition cannot be read: {}", one_line(error));
        let why = Why::new(WhyCode::JobInvalid, text).with("reason", error.as_str());
        reasons.push(why.remedy(
            "correct the definition with `allora modify` or `Schedules::modify`, put the calendar that \
             is missing with `allora calendar put`, or use a build that can read it",
        ));
    }
    reasons.extend(unattended(facts));
    if let Some(until) = ahead_until(state, facts.now) {
        let text = format!(
            "the store's clock was ahead when its record was written, and it waits until {}",
            shown(until)
        );
        let remedy = format!("`allora reset {}` or `Schedules::reset` ends that", state.name);
        let why = Why::new(WhyCode::ClockWasAhead, text).with("until", until);
        reasons.push(why.remedy(remedy));
    }
    reasons
}

/// Why no live node would run the job.
fn unattended(facts: &Facts) -> Option<Why> {
    let state = &facts.state;
    if !facts.has_live_nodes() {
        return Some(no_live_node(facts));
    }
    let having: Vec<&NodeInfo> = facts.having().collect();
    let unmatched: Vec<&str> = facts.fleet.unmatched_labels().into_keys().collect();
    if having.is_empty() {
        if !state.kind.is_empty() {
            let kind = &state.kind;
            let why =
                Why::new(WhyCode::KindUnhandled, format!("no live node handles its kind {kind:?}"));
            let why = why.with("kind", kind.as_str()).with_some("due_at", state.due_at);
            return Some(why.remedy("start a node with a handler for the kind"));
        }
        if !NodeInfo::is_orphan(&facts.fleet.nodes, state) {
            return None;
        }
        return Some(match unmatched.is_empty() {
            false => unmatched_label(&unmatched),
            true => Why::new(
                WhyCode::JobsOrphaned,
                "it is orphaned: no live node has this line or job any more",
            )
            .remedy(
                "put it back or deploy the build that declares it, or remove its record with `allora gc` \
                 or `Schedules::delete`",
            ),
        });
    }
    if !facts.able().is_empty() {
        return None;
    }
    let left: Vec<String> =
        having.iter().filter(|node| facts.is_left_by(node)).map(|node| node.node.clone()).collect();
    if !left.is_empty() {
        let text = format!(
            "the builds of the live nodes that have it cannot run its definition in the store: {}",
            left.join(", ")
        );
        let why = Why::new(WhyCode::DefinitionConflict, text).with("nodes", left);
        return Some(why.remedy(
            "start a node with the build of that definition, or deploy one build on all nodes",
        ));
    }
    Some(match unmatched.is_empty() {
        false => unmatched_label(&unmatched),
        true => kept(&having),
    })
}

fn no_live_node(facts: &Facts) -> Why {
    let last = facts.fleet.nodes.iter().max_by_key(|node| node.last_seen);
    let text = match last {
        Some(node) if node.is_stopping => {
            format!("no node is live on this store; {} is stopping", node.node)
        }
        Some(node) => format!(
            "no node is live on this store; the last one, {}, was last seen at {}",
            node.node,
            shown(node.last_seen)
        ),
        None => "no node is live on this store".to_owned(),
    };
    Why::new(WhyCode::NoLiveNode, text)
        .with_some("last_seen", last.map(|node| node.last_seen))
        .with_some("due_at", facts.state.due_at)
        .remedy(
            "start one, the program with the job or `allora run`; if one runs, it does not reach the \
             store: look at its log",
        )
}

fn unmatched_label(labels: &[&str]) -> Why {
    let text = format!(
        "no live node runs it: programs of live nodes need the label {}, which none of them has",
        labels.join(", ")
    );
    let names: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
    let remedy =
        format!("start a node with the label, such as `allora run --node-label {}`", labels[0]);
    Why::new(WhyCode::LabelUnmatched, text).with("labels", names).remedy(remedy)
}

fn kept(having: &[&NodeInfo]) -> Why {
    let reports: Vec<String> = having
        .iter()
        .flat_map(|node| &node.problems)
        .filter_map(|problem| problem.strip_prefix("program-report: "))
        .map(str::to_owned)
        .collect();
    let nodes: Vec<String> = having.iter().map(|node| node.node.clone()).collect();
    let why = match reports.is_empty() {
        true => "its line or job is for other nodes, or its source has errors".to_owned(),
        false => reports.join("; "),
    };
    let text = format!("live nodes have it, and none of them runs it now: {}", one_line(&why));
    Why::new(WhyCode::JobKept, text)
        .with("nodes", nodes)
        .with("reports", reports)
        .remedy("correct what is named, or start a node that it is for")
}

fn paused(state: &JobState) -> Option<Why> {
    let pause = state.paused.as_ref()?;
    let note = match pause.note.is_empty() {
        true => String::new(),
        false => format!(": {}", one_line(&pause.note)),
    };
    let since = shown(pause.since);
    let resume = format!("`allora resume {}` or `Schedules::resume`", state.name);
    let (text, remedy) = match pause.until {
        None => (format!("it has been paused since {since}{note}"), format!("{resume} ends that")),
        Some(until) => (
            format!("it has been paused since {since} and is until {}{note}", shown(until)),
            format!("wait until then, or end the pause now with {resume}"),
        ),
    };
    let own = state.streak.as_ref().filter(|streak| streak.has_paused);
    let (code, remedy) = match own {
        None => (WhyCode::Paused, remedy),
        Some(_) => (
            WhyCode::PausedItself,
            format!(
                "correct the cause; then `allora trigger {}`: a run that succeeds ends the pause, and so does \
                 {resume}",
                state.name
            ),
        ),
    };
    let why = Why::new(code, text).with("since", pause.since);
    let why = why.with_some("failures", own.map(|streak| streak.failures));
    let why = why.with_some("until", pause.until).with("note", pause.note.as_str());
    Some(why.remedy(remedy))
}

/// When the occurrence that is offered next runs, or what it waits for; `None` if the active runs say
/// it.
fn when(facts: &Facts) -> Option<Why> {
    let (state, now) = (&facts.state, facts.now);
    let Some(due) = state.due_at else {
        return state.leases.is_empty().then(ended);
    };
    if state.leases.iter().any(|run| is_leased(state, run)) {
        return None;
    }
    if due > now {
        return Some(match (state.attempts, state.next) {
            (1.., _) => retry_waits(state, due),
            (0, _) if was_started(state) => released(state, due),
            (0, next) => {
                let at = next.map_or(due, |next| next.scheduled_at.min(due));
                let later = match due > at {
                    true => format!(", and due at {} by delay and jitter", shown(due)),
                    false => String::new(),
                };
                let text = format!("its next occurrence is scheduled at {}{later}", shown(at));
                let why = Why::new(WhyCode::Scheduled, text).with("scheduled_at", at);
                why.with("due_at", due)
            }
        });
    }
    Some(
        key_busy(facts, due)
            .or_else(|| waits_for_run(state, due))
            .or_else(|| capacity_full(facts, due))
            .unwrap_or_else(|| overdue(facts, due)),
    )
}

/// `true` if the occurrence that is offered next was started before.
fn was_started(state: &JobState) -> bool {
    let head = state.head.as_ref().filter(|head| head.trigger.is_none());
    head.is_some_and(|head| state.last_started >= Some(head.scheduled_at))
}

/// An occurrence whose run has given it back for a while.
fn released(state: &JobState, due: Time) -> Why {
    let at = state.head.as_ref().map(|head| head.scheduled_at);
    let of = at.map(|at| format!("the occurrence of {}", shown(at))).unwrap_or_default();
    let text = format!("its run has released {of}, which is due again at {}", shown(due));
    Why::new(WhyCode::RetryWaits, text)
        .with_some("scheduled_at", at)
        .with("due_at", due)
        .with("attempts", state.attempts)
        .remedy(format!("wait for it, or end the occurrence with `allora cancel {}`", state.name))
}

fn retry_waits(state: &JobState, due: Time) -> Why {
    let at = state.head.as_ref().map(|head| head.scheduled_at);
    let of = at.map(|at| format!(" at the occurrence of {}", shown(at))).unwrap_or_default();
    let error = state.last.as_ref().map(|last| last.error()).filter(|error| !error.is_empty());
    let said = error.map(|error| format!(": {}", one_line(error))).unwrap_or_default();
    let before = counted(state.attempts as usize, "attempt");
    let text = format!("its next attempt is due at {}, after {before}{of}{said}", shown(due));
    Why::new(WhyCode::RetryWaits, text)
        .with_some("scheduled_at", at)
        .with("due_at", due)
        .with("attempts", state.attempts)
        .with_some("error", error)
        .remedy(format!("wait for it, or end the occurrence with `allora cancel {}`", state.name))
}

fn key_busy(facts: &Facts, due: Time) -> Option<Why> {
    let fact = facts.key.as_ref()?;
    let record = fact.record.as_ref()?;
    let live = record.leases.iter().filter(|lease| lease.until > facts.now);
    let holders: Vec<KeyHolder> = live.map(KeyHolder::of).collect();
    if holders.len() < fact.key.limit as usize {
        return None;
    }
    let named: Vec<String> = holders
        .iter()
        .map(|one| format!("{} on {} since {}", one.job, one.node, shown(one.since)))
        .collect();
    let key = &*fact.key.key;
    if let Some(per) = fact.key.per {
        let free_at = record.leases.iter().map(|lease| lease.until).filter(|end| *end > facts.now);
        let free_at = free_at.min().unwrap_or(facts.now);
        let text = format!(
            "it has been due since {} and waits for its rate {key}: {} began within {}, and the first \
             place is free at {}",
            shown(due),
            counted(holders.len(), "run"),
            period_text(per),
            shown(free_at)
        );
        let why = Why::new(WhyCode::KeyBusy, text).with("key", key).with("limit", fact.key.limit);
        let why = why.with("due_at", due).with("free_at", free_at).with("holders", holders);
        return Some(why.remedy("wait, or set a higher rate"));
    }
    let text = format!(
        "it has been due since {} and waits for the concurrency key {key}, held by {}",
        shown(due),
        named.join(", ")
    );
    let job = holders.first().map_or("JOB", |one| one.job.as_str());
    let remedy =
        format!("wait, end the run of a holder with `allora cancel {job}`, or set a larger limit");
    let why = Why::new(WhyCode::KeyBusy, text).with("key", key).with("limit", fact.key.limit);
    Some(why.with("due_at", due).with("holders", holders).remedy(remedy))
}

/// The active run whose end the offered occurrence waits for.
fn waits_for_run(state: &JobState, due: Time) -> Option<Why> {
    let is_full = state.leases.len() >= MAX_LEASES;
    let run = state.leases.iter().find(|run| is_full || run.sharing == Sharing::Exclusive)?;
    let trigger = state.head.as_ref().and_then(|head| head.trigger.as_deref());
    let what = trigger.map_or_else(|| "it".to_owned(), |id| format!("its trigger {id:?}"));
    let text = format!(
        "{what} has been due since {} and waits for the end of the run of {} on {}, which began at {}",
        shown(due),
        shown(run.occurrence.scheduled_at),
        run.node,
        shown(run.started_at)
    );
    let why = Why::new(WhyCode::WaitsForRun, text)
        .with("due_at", due)
        .with_some("trigger", trigger)
        .with("running", run.occurrence.scheduled_at)
        .with("node", run.node.as_str());
    Some(why.remedy(format!("wait, or end the run with `allora cancel {}`", state.name)))
}

fn capacity_full(facts: &Facts, due: Time) -> Option<Why> {
    let able = facts.able();
    let is_full = |node: &&NodeInfo| {
        node.running >= node.concurrency
            || node.problems.iter().any(|problem| problem.starts_with("capacity-full"))
    };
    if able.is_empty() || !able.iter().all(is_full) {
        return None;
    }
    let nodes: Vec<String> = able
        .iter()
        .map(|node| format!("{} with {} of {}", node.node, node.running, node.concurrency))
        .collect();
    let text = format!(
        "it has been due since {}, and the nodes that can run it have no capacity left: {}",
        shown(due),
        nodes.join(", ")
    );
    let why = Why::new(WhyCode::CapacityFull, text).with("due_at", due).with("nodes", nodes);
    Some(why.remedy("start more nodes, or set a larger concurrency"))
}

fn overdue(facts: &Facts, due: Time) -> Why {
    let since = shown(due);
    if due + OVERDUE > facts.now {
        let text = format!("it has been due since {since}, and a node claims it any moment");
        return Why::new(WhyCode::Due, text).with("due_at", due);
    }
    let able = facts.able();
    let nodes: Vec<String> = able.iter().map(|node| node.node.clone()).collect();
    let problems: Vec<String> = able
        .iter()
        .flat_map(|node| node.problems.iter().map(|what| format!("{}: {what}", node.node)))
        .collect();
    let of = match nodes.is_empty() {
        true => String::new(),
        false => format!(" of those that can run it ({})", nodes.join(", ")),
    };
    let mut text = format!("it has been due since {since}, and no node{of} has claimed it");
    if !problems.is_empty() {
        text += &format!("; they report: {}", one_line(&problems.join("; ")));
    }
    let remedy = match problems.is_empty() {
        true => {
            "look at the warnings in the logs of these nodes, and at the store; if both are sound, \
             report a defect of allora"
        }
        false => "correct what they report",
    };
    Why::new(WhyCode::JobOverdue, text)
        .with("due_at", due)
        .with("nodes", nodes)
        .with("problems", problems)
        .remedy(remedy)
}

/// The traces of past runs.
fn aftermath(state: &JobState, is_retried: bool) -> Vec<Why> {
    let (name, mut reasons) = (&state.name, Vec::new());
    if let Some(newest) = state.dead.last() {
        let letters = counted(state.dead.len(), "dead letter");
        let text = format!(
            "it has {letters}, which only an operator runs again; the newest is that of {}: {}",
            shown(newest.occurrence.scheduled_at),
            one_line(&newest.error)
        );
        let why = Why::new(WhyCode::Dead, text).with("count", state.dead.len());
        let why =
            why.with("newest", newest.occurrence.scheduled_at).with("error", newest.error.as_str());
        reasons.push(why.remedy(format!(
            "`allora show {name}` lists them, `allora rerun {name} TIME` runs one again"
        )));
    }
    match &state.last {
        Some(Outcome::Lost) => reasons.push(
            Why::new(
                WhyCode::Lost,
                "its last run was lost: its node did not report the end, and at most once it is not \
                 run again",
            )
            .remedy(format!(
                "look whether its work was done, and run it again with `allora trigger {name}` if it \
                 was not"
            )),
        ),
        Some(last) if !last.error().is_empty() && !is_retried && state.dead.is_empty() => {
            let (word, error) = (last.word(), last.error());
            let text = format!("its last run ended as {word}: {}", one_line(error));
            let code = match last {
                Outcome::Retried(_) => WhyCode::Retried,
                _ => WhyCode::Failed,
            };
            reasons.push(
                Why::new(code, text)
                    .with("error", error)
                    .remedy(format!("`allora logs {name}` shows more")),
            );
        }
        _ => {}
    }
    reasons
}
