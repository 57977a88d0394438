//! *Now*: does anything need me, what runs, and what comes next.

use super::{
    Answer, Head, Linked, answer, counted, grouped,
    hours::{Usual, WEEK, median, sum},
    need::{Need, capital, needs},
    past::{NO_SUCCESSES, Past, Range},
    plots::{Plot, plots},
    timeline::{LANES, Timeline, timeline},
};
use crate::{
    access::Limits,
    ask::Ask,
    context::Context,
    kept::Kept,
    look::{Look, look},
    overview::Overview,
    reader::Reader,
    shared::Shared,
    times::{Moment, about, span},
    words::{Word, number, short_nodes},
};
use allora_core::{
    Handle, NodeInfo, Result, Time,
    backend::{Count, JobState},
    time::since,
};
use askama::Template;
use axum::{Extension, extract::State};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

#[derive(Debug, Template)]
#[template(path = "now.html")]
struct Now {
    head: Head,
    view: View,
}

/// The page, from the facts.
#[derive(Clone, Debug)]
struct View {
    heading: String,
    /// The rest of the first line.
    others: String,
    next: Option<(Linked, Moment)>,
    needs: Vec<Need>,
    counts: Vec<Number>,
    timeline: Timeline,
    /// None without a history.
    plots: Vec<Plot>,
    /// The ranges of the plots.
    ranges: Vec<Choice>,
    /// The runs that they lack, in words.
    missing: String,
    running: Vec<Running>,
    /// The store has no job.
    is_empty: bool,
    /// The things that the page does not show, each with the reason.
    limits: Vec<String>,
}

/// The number of jobs in a state.
#[derive(Clone, Debug)]
struct Number {
    look: Look,
    number: String,
    link: String,
}

/// A range of the plots.
#[derive(Clone, Debug)]
struct Choice {
    text: String,
    link: String,
    is_chosen: bool,
}

/// An active run.
#[derive(Clone, Debug)]
struct Running {
    job: Linked,
    link: String,
    scheduled: Moment,
    lasts: String,
    usually: String,
    node: String,
    attempt: u32,
    progress: String,
    is_being_cancelled: bool,
    is_completed: bool,
}

/// The most jobs that are asked how long they usually take.
const USUAL: usize = 2 * LANES;

/// The ranges of the plots that are offered, in days.
const RANGES: [i32; 3] = [1, 7, 30];

/// The facts of the page.
#[derive(Debug)]
pub(crate) struct Facts {
    now: Time,
    overview: Overview,
    past: Past,
    usual: Usual,
}

/// The facts that all viewers share, by their limits and the days that they look at.
pub(crate) type Viewers = Kept<(Limits, i32), Facts>;

pub(crate) async fn page(
    State(shared): State<Arc<Shared>>,
    Extension(viewers): Extension<Viewers>,
    ask: Ask,
) -> Answer {
    let days = Range::days(&ask.params)?;
    let (key, runtime) = ((ask.reader.access().limits(), days), shared.runtime());
    let facts = facts(&ask.reader, shared.handle.as_ref(), days);
    let changes = shared.changes.load(Ordering::SeqCst);
    let facts = viewers.get(key, changes, &**runtime, facts).await?;
    let context = ask.context(facts.now);
    let view = view(&facts.overview, (&facts.past, &facts.usual), &context);
    let head = Head::new(&shared, &ask, &context, ("", ""), view.heading.clone());
    answer(&Now { head, view })
}

async fn facts(reader: &Reader, handle: Option<&Handle>, days: i32) -> Result<Facts> {
    let now = reader.store_now().await?;
    let mut overview = Overview::read(reader, handle, now).await?;
    let past = Past::read(reader, Range::new(days, now), overview.all(), now).await?;
    if !overview.is_whole {
        overview.learn(reader, &longest(&past), now).await?;
    }
    let mut asked: Vec<&JobState> = overview.of(Word::Running).iter().take(LANES).collect();
    asked.extend(lanes(&overview, &past));
    let mut seen = HashSet::new();
    asked.retain(|job| seen.insert(&job.name));
    asked.truncate(USUAL);
    let hours = reader.hours_of(&asked, now - WEEK, now).await?;
    let usual = hours.into_iter().map(|(name, hours)| (name, sum(&hours).duration)).collect();
    Ok(Facts { now, overview, past, usual })
}

fn view(overview: &Overview, (past, usual): (&Past, &Usual), context: &Context) -> View {
    let needs = needs(overview, context);
    let running = running(overview, usual, context);
    let lanes = lanes(overview, past);
    let troubled = troubled(&needs);
    let all = overview.all();
    let fine = match (troubled.number, all.number.saturating_sub(troubled.number)) {
        (0, 1) if all.is_exact => "1 job in all.".to_owned(),
        (0, _) => format!("{} jobs in all.", number(all)),
        _ if !all.is_exact || !troubled.is_exact => format!("{} jobs in all.", number(all)),
        (_, 0) => "No other job.".to_owned(),
        (_, 1) => "1 other is fine.".to_owned(),
        (_, fine) => format!("{} others are fine.", number(Count::new(fine, true))),
    };
    let runs = match running.len() {
        0 => "None runs now.".to_owned(),
        1 => "1 runs now.".to_owned(),
        many => format!("{} run now.", grouped(many)),
    };
    let next = overview.next.as_ref().map(|(name, at)| {
        (Linked { text: name.clone(), link: context.job(name) }, context.moment(*at))
    });
    let mut limits = Vec::new();
    if !overview.is_whole {
        limits.push(format!(
            "The plots show {} of these jobs: those that are due first, run, or need somebody.",
            grouped(overview.jobs)
        ));
    }
    if past.lacks_successes {
        limits.push(format!("{NO_SUCCESSES} The plots have the others alone."));
    }
    if past.is_unknown {
        limits.push("This store keeps no history: the plot has no past.".to_owned());
    }
    let ranges = RANGES.into_iter().map(|days| Choice {
        text: if days == 1 { "24 hours".to_owned() } else { format!("{days} days") },
        link: context.link("", &[("days", &days.to_string())]),
        is_chosen: past.range.days == days,
    });
    View {
        heading: heading(needs.len(), troubled),
        others: format!("{} {runs}", capital(&fine)),
        next,
        needs,
        counts: counts(overview, context),
        plots: match past.is_unknown {
            true => Vec::new(),
            false => plots(past, overview, context).into(),
        },
        ranges: ranges.collect(),
        missing: missing(past, context).unwrap_or_default(),
        timeline: timeline(
            &past.entries,
            past.is_whole || past.is_unknown,
            overview,
            (&lanes, usual),
            context,
        ),
        running,
        is_empty: overview.jobs == 0,
        limits,
    }
}

/// The sentence about the runs that the plots lack; `None` if they have all.
fn missing(past: &Past, context: &Context) -> Option<String> {
    let before = context.moment(past.missing_before?).text;
    Some(match past.is_too_much {
        true => {
            format!("There are too many jobs to add up: the plots have no runs before {before}.")
        }
        false => format!(
            "Before {before}, the plots have the runs that nodes have counted, which they do once an hour."
        ),
    })
}

/// The number of jobs on the cards: one that is on several counts once.
fn troubled(needs: &[Need]) -> Count {
    let names: HashSet<&str> =
        needs.iter().flat_map(|need| &need.about).map(String::as_str).collect();
    Count::new(names.len() as u64, needs.iter().all(|need| need.is_whole))
}

fn heading(cards: usize, troubled: Count) -> String {
    match (cards, troubled.number) {
        (0, _) => "Nothing needs you".to_owned(),
        (1, 0) => "1 thing needs you".to_owned(),
        (cards, 0) => format!("{} need you", counted(cards, "thing")),
        (_, 1) if troubled.is_exact => "1 job needs you".to_owned(),
        _ => capital(&format!("{} jobs need you", number(troubled))),
    }
}

fn counts(overview: &Overview, context: &Context) -> Vec<Number> {
    let one = |word: Word| {
        let count = overview.count(word).filter(|count| count.number > 0)?;
        Some(Number {
            look: look(word.text()),
            number: number(count),
            link: context.link("jobs", &[("state", word.text())]),
        })
    };
    Word::ALL.into_iter().filter_map(one).collect()
}

/// The names of the jobs that ran longest in the last day.
fn longest(past: &Past) -> Vec<String> {
    let mut longest: Vec<(&str, Duration)> = spent(past).into_iter().collect();
    longest.sort_by_key(|(name, spent)| (std::cmp::Reverse(*spent), *name));
    longest.into_iter().take(LANES).map(|(name, _)| name.to_owned()).collect()
}

fn spent(past: &Past) -> HashMap<&str, Duration> {
    let mut spent: HashMap<&str, Duration> = HashMap::new();
    for entry in &past.entries {
        *spent.entry(&entry.name).or_default() += entry.duration().unwrap_or_default();
    }
    spent
}

/// The jobs that have a lane: those on the cards, then the running ones, then those that ran longest in
/// the last day.
fn lanes<'a>(overview: &'a Overview, past: &Past) -> Vec<&'a JobState> {
    let spent = spent(past);
    let words = [Word::Overdue, Word::Dead, Word::Failing, Word::Running];
    let mut first: Vec<&JobState> = words.iter().flat_map(|word| overview.of(*word)).collect();
    let mut longest: Vec<&JobState> = overview.each().collect();
    longest.retain(|job| spent.contains_key(&*job.name));
    longest.sort_by_key(|job| std::cmp::Reverse(spent.get(&*job.name)));
    // Trouble alone must not fill the plot: a broken kind would be forty lanes of the same.
    first.truncate(LANES - LANES / 3);
    let mut seen = HashSet::new();
    first.into_iter().chain(longest).filter(|job| seen.insert(&job.name)).take(LANES).collect()
}

fn running(overview: &Overview, usual: &Usual, context: &Context) -> Vec<Running> {
    let mut running = Vec::new();
    for job in overview.of(Word::Running) {
        let usual = usual.get(&job.name).and_then(median);
        for lease in job.leases.iter().filter(|lease| lease.claim_id != 0) {
            running.push(Running {
                job: Linked { text: job.name.clone(), link: context.job(&job.name) },
                link: context.run(&job.name, lease.fence),
                scheduled: context.moment(lease.occurrence.scheduled_at),
                lasts: span(since(context.now, lease.started_at)),
                usually: usual.map(about).unwrap_or_else(|| "–".to_owned()),
                node: short_nodes(&lease.node),
                attempt: lease.attempt,
                progress: progress(&overview.nodes, &job.name, lease.fence),
                is_being_cancelled: lease.cancel_requested,
                is_completed: lease.completed,
            });
        }
    }
    running
}

/// The progress of a run, as its node last wrote it.
fn progress(nodes: &[NodeInfo], name: &str, fence: i64) -> String {
    let mut runs = nodes.iter().flat_map(|node| &node.progress);
    let run = runs.find(|run| (run.fence, &*run.name) == (fence, name));
    run.map(|run| run.text.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::at;
    use allora_core::{
        Outcome,
        backend::{Counts, Flag, Lease, OnExpiry},
    };

    fn job(name: &str) -> JobState {
        let mut job = JobState::empty(name);
        job.due_at = Some(at("2026-10-26T02:12:55Z"));
        job
    }

    fn nothing() -> Past {
        Past::new(Range::new(1, Context::of_test().now))
    }

    fn seen(jobs: Vec<JobState>) -> View {
        let context = Context::of_test();
        let mut overview = Overview::of_test(jobs, context.now);
        // The cards of nodes are tested with the cards.
        overview.nodes.clear();
        view(&overview, (&nothing(), &Usual::new()), &context)
    }

    #[test]
    fn the_first_line_says_what_needs_somebody_and_what_comes_next() {
        let mut failing = job("invoices");
        failing.last = Some(Outcome::Failed("refused".into()));
        let mut running = job("sync.crm");
        running.due_at = None;
        let occurrence = at("2026-10-26T02:00:00Z").into();
        let lease =
            Lease::new("web-1", 1, 9, occurrence, at("2026-10-26T02:20:00Z"), OnExpiry::Lost);
        running.leases.push(lease);
        let view = seen(vec![failing, running, job("report")]);
        assert_eq!(view.heading, "1 job needs you");
        assert_eq!(view.others, "2 others are fine. 1 runs now.");
        let (name, moment) = view.next.as_ref().unwrap();
        assert_eq!((&*name.text, &*moment.distance), ("invoices", "in 48 s"));
        let [run] = &view.running[..] else { panic!("{view:?}") };
        assert_eq!((&*run.lasts, &*run.usually, run.attempt), ("12 min 7 s", "–", 1));
        assert_eq!(run.scheduled.text, "Mon 26 Oct 03:00 CET");
    }

    #[test]
    fn a_job_on_two_cards_counts_once() {
        let mut job = job("invoices");
        job.last = Some(Outcome::Failed("refused".into()));
        job.due_at = Some(at("2026-10-26T01:00:00Z"));
        let view = seen(vec![job]);
        assert_eq!((view.needs.len(), &*view.heading), (3, "1 job needs you"));
        assert_eq!(view.others, "No other job. None runs now.");
    }

    #[test]
    fn of_many_jobs_the_page_says_what_it_knows() {
        let context = Context::of_test();
        let mut failing = job("invoices");
        failing.last = Some(Outcome::Failed("refused".into()));
        let mut counts = Counts::default();
        counts.states.push((Flag::Failing, Count::new(12, true)));
        counts.kinds.push(("mail".into(), Count::new(2_000, true)));
        let mut overview = Overview::of_many(vec![failing], counts, context.now);
        overview.nodes.clear();
        let view = view(&overview, (&nothing(), &Usual::new()), &context);
        assert_eq!(view.heading, "At least 1 jobs need you");
        assert!(view.others.starts_with("2,000 jobs in all."), "{}", view.others);
        assert_eq!(view.counts.iter().map(|one| &*one.number).collect::<Vec<_>>(), ["12"]);
        assert!(view.limits[0].starts_with("The plots show 1 of these jobs"), "{:?}", view.limits);
    }

    #[test]
    fn what_the_plots_lack_is_said() {
        let mut past = nothing();
        let says = |past: &Past| {
            let overview = Overview::of_test(vec![job("report")], Context::of_test().now);
            view(&overview, (past, &Usual::new()), &Context::of_test()).missing
        };
        assert_eq!(says(&past), "");
        past.missing_before = Some(at("2026-10-26T01:00:00Z"));
        let counted =
            "Before Mon 26 Oct 02:00 CET, the plots have the runs that nodes have counted";
        assert!(says(&past).starts_with(counted), "{}", says(&past));
        past.is_too_much = true;
        assert!(says(&past).starts_with("There are too many jobs"), "{}", says(&past));
    }

    #[test]
    fn an_empty_store_says_how_to_add_a_job() {
        let view = seen(Vec::new());
        assert!(view.is_empty && view.running.is_empty());
    }

    #[test]
    fn names_are_text_on_the_page() {
        let context = Context::of_test();
        let mut hostile = job("<img src=x onerror=alert(1)>");
        hostile.last = Some(Outcome::Failed("\"><script>alert(1)</script>".into()));
        let view = seen(vec![hostile]);
        let head = Head {
            title: view.heading.clone(),
            site: "allora".into(),
            pages: Vec::new(),
            path: "./",
            carried: Vec::new(),
            zone: context.zone.name().into(),
            asked_zone: String::new(),
            clock: String::new(),
            who: "<b>ann</b>".into(),
            is_read_only: true,
            done: None,
        };
        let page = Now { head, view }.render().unwrap();
        for raw in ["<img", "<script>alert", "<b>ann", "style=", "onclick"] {
            assert!(!page.contains(raw), "{raw}: {page}");
        }
        assert!(page.contains("&#60;img") || page.contains("&lt;img"), "{page}");
    }
}
