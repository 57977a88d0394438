//! The cards of the first page: each is one cause that needs a person, with its evidence and remedy.
//!
//! Jobs with the same trouble share a card, so that one broken kind is one line and not four hundred.

use super::{Linked, counted, short};
use crate::{
    context::Context,
    look::{Look, look},
    overview::Overview,
    words::{Word, short_nodes},
};
use allora_core::{Condition, Evidence, NodeInfo, Time, backend::JobState};
use chrono::TimeDelta;

/// One card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) look: Look,
    /// The jobs that it is about; the first ones, if there are many.
    pub(crate) jobs: Vec<Linked>,
    /// The names of the jobs that it is about, and whether these are all.
    pub(crate) about: Vec<String>,
    pub(crate) is_whole: bool,
    /// The number of further jobs, and the list with all of them.
    pub(crate) more: Option<Linked>,
    /// The sentence, of which the jobs are the subject if there are any.
    pub(crate) text: String,
    pub(crate) evidence: String,
    pub(crate) remedy: String,
    /// The page that says more.
    pub(crate) page: Option<Linked>,
}

/// The number of jobs that a shared card names.
const NAMED: usize = 5;

/// A pause that lasts longer was probably forgotten.
const LONG_PAUSE: TimeDelta = TimeDelta::days(7);

/// The longest evidence on a card, in characters.
const EVIDENCE: usize = 200;

/// The cards, those of the greatest damage first.
pub(crate) fn needs(overview: &Overview, context: &Context) -> Vec<Need> {
    let mut needs = Vec::new();
    let told = |condition: &Condition| context.local_times(&condition.to_string());
    for active in overview.conditions.iter().filter(|one| one.condition.stops_jobs()) {
        needs.push(of_cause(&active.condition, Some(active.since), overview, context));
    }
    // The node of this process reports them, too, if there is one.
    let is_told = |code: &str| overview.conditions.iter().any(|one| one.condition.code() == code);
    for condition in overview.unhandled.iter().filter(|one| !is_told(one.code())) {
        needs.push(of_cause(condition, None, overview, context));
    }
    needs.extend(of_jobs(overview, context));
    needs.extend(of_nodes(&overview.nodes, context));
    for active in overview.conditions.iter().filter(|one| !one.condition.stops_jobs()) {
        // A job that waits for its key needs nobody, and nodes that are gone have cards of their own.
        if !["key-busy", "node-dead"].contains(&active.condition.code()) {
            let remedy = active.condition.remedy();
            needs.push(of_condition("warning", &told(&active.condition), remedy));
        }
    }
    needs
}

/// The card of a condition that stops jobs.
fn of_cause(
    condition: &Condition,
    since: Option<Time>,
    overview: &Overview,
    context: &Context,
) -> Need {
    let text = context.local_times(&condition.to_string());
    let since = since.map(|since| context.moment(since)).filter(|at| !text.contains(&at.text));
    let kind = kind_of(condition);
    let waits = |job: &&JobState| kind.as_ref() == Some(&job.kind);
    let page = match (condition.job(), &kind) {
        (Some(job), _) => Some(("Why?", context.job(job))),
        (None, Some(kind)) => Some(("Jobs", context.link("jobs", &[("kind", kind)]))),
        (None, None) => None,
    };
    Need {
        evidence: since
            .map(|at| format!("Since {}, {}.", at.text, at.distance))
            .unwrap_or_default(),
        about: overview
            .of(Word::Overdue)
            .iter()
            .filter(waits)
            .map(|job| job.name.clone())
            .collect(),
        is_whole: kind.is_none() || overview.has_all(Word::Overdue),
        page: page.map(|(text, link)| Linked { text: text.into(), link }),
        ..of_condition("problem", &text, condition.remedy())
    }
}

fn of_condition(word: &str, text: &str, remedy: &str) -> Need {
    Need {
        look: look(word),
        jobs: Vec::new(),
        about: Vec::new(),
        is_whole: true,
        more: None,
        text: sentence(text),
        evidence: String::new(),
        remedy: sentence(remedy),
        page: None,
    }
}

/// The cards of jobs, by their states.
fn of_jobs(overview: &Overview, context: &Context) -> Vec<Need> {
    let mut needs = Vec::new();
    // The kinds that no node handles have cards of their own.
    let unhandled: Vec<String> = overview.unhandled.iter().filter_map(kind_of).collect();
    let overdue: Vec<&JobState> =
        overview.of(Word::Overdue).iter().filter(|job| !unhandled.contains(&job.kind)).collect();
    // Of an attempt that is tried again, nobody need know yet.
    let is_over = |job: &&JobState| {
        job.dead.is_empty() && job.last.as_ref().is_some_and(|last| last.is_failure())
    };
    let failing: Vec<&JobState> = overview.of(Word::Failing).iter().filter(is_over).collect();
    let is_long = |job: &&JobState| {
        let forgotten = job.paused.as_ref().filter(|pause| pause.until.is_none());
        forgotten.is_some_and(|pause| pause.since + LONG_PAUSE <= context.now)
    };
    let paused: Vec<&JobState> = overview.of(Word::Paused).iter().filter(is_long).collect();
    let all = |word: Word| overview.of(word).iter().collect::<Vec<_>>();
    for (word, jobs) in [
        (Word::Unreadable, all(Word::Unreadable)),
        (Word::Overdue, overdue),
        (Word::Dead, all(Word::Dead)),
        (Word::Failing, failing),
        (Word::Paused, paused),
        (Word::Orphaned, all(Word::Orphaned)),
    ] {
        let is_whole = overview.has_all(word);
        match jobs.as_slice() {
            [] => {}
            [job] if is_whole => needs.push(of_job(word, job, context)),
            jobs => needs.push(of_many(word, jobs, is_whole, context)),
        }
    }
    needs
}

/// The card of one job.
fn of_job(word: Word, job: &JobState, context: &Context) -> Need {
    let mut need = of_many(word, &[job], true, context);
    need.page = why(context.job(&job.name));
    match word {
        Word::Overdue => {
            if let Some(due_at) = job.due_at {
                let due = context.moment(due_at);
                need.text = format!("is due since {}, {}.", due.text, due.distance);
            }
        }
        Word::Dead => {
            if let Some(letter) = job.dead.last() {
                let at = context.moment(letter.occurrence.scheduled_at);
                let attempts = counted(letter.attempts as usize, "attempt");
                need.text = format!("was given up for {} after {attempts}.", at.text);
                need.evidence = short(context.visible(&letter.error), EVIDENCE);
                need.page = why(context.why(&job.name, letter.occurrence.scheduled_at));
            }
        }
        Word::Failing => {
            if let Some(last) = &job.last {
                let ended = match last.word() {
                    "failed" => "failed".to_owned(),
                    other => format!("was {other}"),
                };
                need.text = format!("has not succeeded: its last run {ended}.");
                need.look = look(last.word());
                need.evidence = short(context.visible(last.error()), EVIDENCE);
            }
        }
        Word::Unreadable => {
            need.evidence = short(job.unreadable.as_deref().unwrap_or(""), EVIDENCE);
        }
        Word::Paused => {
            if let Some(pause) = &job.paused {
                let since = context.moment(pause.since);
                need.text = format!("is paused since {}, {}.", since.text, since.distance);
                need.evidence = short(&pause.note, EVIDENCE);
            }
        }
        _ => {}
    }
    need
}

fn why(link: String) -> Option<Linked> {
    Some(Linked { text: "Why?".into(), link })
}

/// The card that jobs with the same trouble share.
fn of_many(word: Word, jobs: &[&JobState], is_whole: bool, context: &Context) -> Need {
    let linked = |job: &&JobState| Linked { text: job.name.clone(), link: context.job(&job.name) };
    let more = jobs.len().saturating_sub(NAMED);
    let more = (more > 0 || !is_whole).then(|| Linked {
        text: if is_whole { format!("{more} more") } else { "more".to_owned() },
        link: context.link("jobs", &[("state", word.text())]),
    });
    let (text, remedy) = match word {
        Word::Unreadable => (
            "cannot be read by this build: no node runs such a job.",
            "Run a build that can read it. A definition is also repaired by `allora modify`.",
        ),
        Word::Overdue => (
            "have been due for more than a minute, and no node has claimed them.",
            "Ask why: the page of the job names the cause.",
        ),
        Word::Dead => (
            "were given up: their attempts are used up.",
            "Correct the cause, then rerun the dead letters with `allora rerun`, or dismiss them.",
        ),
        Word::Failing => (
            "have not succeeded the last time they ran.",
            "Read the error, and correct what it names.",
        ),
        Word::Paused => (
            "are paused for more than seven days.",
            "Resume with `allora resume`, or delete what is no longer needed.",
        ),
        _ => (
            "have no live node that declares them.",
            "Deploy the build that declares them, or remove their records with `allora gc`.",
        ),
    };
    let text = if jobs.len() == 1 && is_whole { singular(word, text) } else { text.to_owned() };
    Need {
        look: look(word.text()),
        jobs: jobs.iter().take(NAMED).map(linked).collect(),
        about: jobs.iter().map(|job| job.name.clone()).collect(),
        is_whole,
        more,
        text,
        evidence: String::new(),
        remedy: remedy.to_owned(),
        page: None,
    }
}

fn singular(word: Word, text: &str) -> String {
    match word {
        Word::Orphaned => "has no live node that declares it.".to_owned(),
        _ => text.to_owned(),
    }
}

/// The cards of nodes: those that are gone, and what they report or disagree about.
fn of_nodes(nodes: &[NodeInfo], context: &Context) -> Vec<Need> {
    let page = || Some(Linked { text: "Nodes".into(), link: context.link("nodes", &[]) });
    let mut needs = Vec::new();
    if !nodes.iter().any(|node| node.is_live) {
        let remedy = "Start the program with the jobs, or `allora run`; if it runs, it does not reach \
                      the store.";
        let text = "No node is live on this store: nothing runs.";
        needs.push(Need { page: page(), ..of_condition("problem", text, remedy) });
    }
    if let [last, others @ ..] = &gone(nodes)[..] {
        let seen = context.moment(last.last_seen);
        let others = match others {
            [] => String::new(),
            others => format!("; {} went earlier", counted(others.len(), "other node")),
        };
        let text = format!(
            "Node {} is gone: it was last seen at {}, {}{others}.",
            short_nodes(&last.node),
            seen.text,
            seen.distance
        );
        let remedy = "Look at the node, and at its connection to the store.";
        needs.push(Need { page: page(), ..of_condition("gone", &text, remedy) });
    }
    for node in nodes.iter().filter(|node| node.is_live) {
        for problem in &node.problems {
            let text = format!("Node {} reports: {problem}.", node.node);
            needs.push(Need {
                page: page(),
                ..of_condition("warning", &context.local_times(&text), "")
            });
        }
    }
    for line in NodeInfo::disagreements(nodes) {
        needs.push(Need { page: page(), ..of_condition("warning", &line, "") });
    }
    needs
}

/// The nodes that are gone and have no successor, the one that was seen last first.
pub(super) fn gone(nodes: &[NodeInfo]) -> Vec<&NodeInfo> {
    let mut gone: Vec<&NodeInfo> = nodes.iter().filter(|node| node.is_dead()).collect();
    gone.retain(|node| !nodes.iter().any(|other| is_successor(other, node)));
    gone.sort_by_key(|node| std::cmp::Reverse(node.last_seen));
    gone
}

/// True if a live node has taken the place of one that is gone: it has the same label, and is newer.
fn is_successor(live: &NodeInfo, gone: &NodeInfo) -> bool {
    let label = |node: &NodeInfo| node.node.rsplit_once('-').map(|(label, _)| label.to_owned());
    live.is_live && live.started_at > gone.started_at && label(live) == label(gone)
}

/// The kind that a condition about kinds is about.
fn kind_of(condition: &Condition) -> Option<String> {
    condition.evidence().into_iter().find_map(|(name, evidence)| match evidence {
        Evidence::Text(kind) if name == "kind" => Some(kind.to_owned()),
        _ => None,
    })
}

/// With a capital at its beginning and a full stop at its end, as a page has it.
pub(crate) fn sentence(text: &str) -> String {
    let text = text.trim();
    let is_open = !text.is_empty() && !text.ends_with(['.', '?', '!']);
    capital(text) + if is_open { "." } else { "" }
}

/// With a capital at its beginning.
pub(super) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::at;
    use allora_core::{
        Outcome,
        backend::{DeadLetter, Pause},
    };

    fn dead(name: &str) -> JobState {
        let mut job = JobState::empty(name);
        job.last = Some(Outcome::Dead("connection refused".into()));
        job.dead.push(DeadLetter {
            occurrence: at("2026-10-26T01:00:00Z").into(),
            attempts: 5,
            died_at: at("2026-10-26T01:05:00Z"),
            error: "connect: connection refused\n(10.1.2.3:443)".into(),
        });
        job
    }

    fn cards(jobs: Vec<JobState>) -> Vec<Need> {
        let context = Context::of_test();
        of_jobs(&Overview::of_test(jobs, context.now), &context)
    }

    #[test]
    fn a_dead_letter_is_one_card_with_its_time_error_and_question() {
        let cards = cards(vec![dead("invoices")]);
        let [card] = &cards[..] else { panic!("{cards:?}") };
        assert_eq!((card.look.word, &*card.jobs[0].text), ("dead", "invoices"));
        assert_eq!(card.text, "was given up for Mon 26 Oct 02:00 CET after 5 attempts.");
        assert_eq!(card.evidence, "connect: connection refused (10.1.2.3:443)");
        let why = card.page.as_ref().unwrap();
        assert_eq!(why.link, "job?name=invoices&at=2026-10-26T01%3A00%3A00Z");
    }

    #[test]
    fn jobs_with_the_same_trouble_share_a_card() {
        let jobs = (0..8).map(|i| dead(&format!("job {i}"))).collect();
        let cards = cards(jobs);
        let [card] = &cards[..] else { panic!("{cards:?}") };
        assert_eq!((card.jobs.len(), &*card.more.as_ref().unwrap().text), (5, "3 more"));
        assert_eq!(card.more.as_ref().unwrap().link, "jobs?state=dead");
    }

    #[test]
    fn a_pause_needs_somebody_after_a_week_only() {
        let paused = |since: &str| {
            let mut job = JobState::empty("report");
            job.paused =
                Some(Pause { since: at(since), until: None, note: "until the move".into() });
            job
        };
        assert_eq!(cards(vec![paused("2026-10-25T02:00:00Z")]), []);
        let long = cards(vec![paused("2026-10-01T02:00:00Z")]);
        assert_eq!((long[0].look.word, &*long[0].evidence), ("paused", "until the move"));
    }

    #[test]
    fn without_a_live_node_nothing_runs_and_the_page_says_so() {
        let context = Context::of_test();
        let needs = needs(&Overview::of_test(Vec::new(), context.now), &context);
        assert!(needs[0].text.starts_with("No node is live"), "{needs:?}");
    }

    #[test]
    fn lines_become_sentences() {
        assert_eq!(sentence("start a node"), "Start a node.");
        assert_eq!((&*sentence(""), &*sentence("Élan!")), ("", "Élan!"));
    }
}
