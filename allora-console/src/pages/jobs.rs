//! *Jobs*: the list, by a filter that is wholly in the address.

use super::{
    Answer, Head, Linked, answer,
    asked::Asked,
    definition::described,
    grouped,
    hours::{Day, day},
    past::{NO_SUCCESSES, Range},
};
use crate::{
    actions::many_buttons,
    ask::Ask,
    context::Context,
    look::{Look, look},
    reader::Reader,
    shared::Shared,
    times::Moment,
    words::{Around, Word, words},
};
use allora_core::{
    NodeInfo, Result, Time,
    backend::{Flag, JobState},
};
use askama::Template;
use axum::extract::State;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

#[derive(Debug, Template)]
#[template(path = "jobs.html")]
struct Jobs {
    head: Head,
    view: View,
}

/// The list and the form of its filter.
#[derive(Clone, Debug)]
struct View {
    asked: Asked,
    states: Vec<Choice>,
    rows: Vec<Row>,
    /// The actions on all jobs of the filter.
    many: Vec<Linked>,
    /// The form of a new job.
    add: Option<String>,
    count: String,
    first: Option<String>,
    more: Option<String>,
    /// Why there is no row; empty if there is one.
    nothing: String,
}

/// An entry of the list of states.
#[derive(Clone, Debug)]
struct Choice {
    text: &'static str,
    is_chosen: bool,
}

/// A job.
#[derive(Clone, Debug)]
struct Row {
    job: Linked,
    look: Look,
    /// The further states that hold.
    also: Vec<Look>,
    schedule: String,
    text: String,
    last: Option<Look>,
    started: Option<Moment>,
    /// The outcomes of the last 24 hours.
    day: Option<Day>,
    next: Option<Moment>,
    /// The next time in the zone of the job, if that is another one.
    own: String,
    kind: Option<Linked>,
    owner: Option<Linked>,
    tags: Vec<Linked>,
}

/// The jobs on a page.
const ROWS: usize = 50;
/// The jobs on a page by due time, which has no further page.
const BY_DUE: usize = 100;
/// The jobs that are read at once for a filter that the store does not have, and in all.
const PAGE: usize = 500;
const MOST: usize = 10_000;

/// The jobs of a page.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) jobs: Vec<(JobState, Vec<Word>)>,
    /// The name after which the next page begins.
    pub(crate) next: Option<String>,
    /// The number of jobs that were read, if the search ended before the list did.
    gave_up_at: Option<usize>,
    /// The last 24 hours of the jobs, by name.
    days: HashMap<String, Day>,
    lacks_successes: bool,
}

pub(crate) async fn page(State(shared): State<Arc<Shared>>, ask: Ask) -> Answer {
    let asked = Asked::read(&ask.params)?;
    let now = ask.reader.store_now().await?;
    let context = ask.context(now);
    let rows = if asked.is_by_due { BY_DUE } else { ROWS };
    let mut found = find(&ask.reader, &asked, rows, now).await?;
    found.days = days(&ask.reader, &found.jobs, now).await?;
    found.lacks_successes = ask.reader.lacks_successes();
    let view = view(asked, found, &context);
    answer(&Jobs { head: Head::new(&shared, &ask, &context, ("jobs", "jobs"), "Jobs"), view })
}

/// The last 24 hours of these jobs, of which the last one has begun.
async fn days(
    reader: &Reader,
    jobs: &[(JobState, Vec<Word>)],
    now: Time,
) -> Result<HashMap<String, Day>> {
    let from = Range::new(1, now).from;
    let jobs: Vec<&JobState> = jobs.iter().map(|(job, _)| job).collect();
    let hours = reader.hours_of(&jobs, from, now).await?;
    Ok(hours.into_iter().filter_map(|(name, hours)| Some((name, day(&hours, from)?))).collect())
}

/// The jobs of the filter with all their states, at most so many.
pub(crate) async fn find(reader: &Reader, asked: &Asked, rows: usize, now: Time) -> Result<Found> {
    let nodes = reader.nodes().await?;
    if asked.is_by_due {
        let jobs = reader.list_by_due(asked.filter(), rows).await?;
        let busy = reader.waiting_for_keys(&jobs, now).await?;
        return Ok(Found { jobs: selected(jobs, asked, &nodes, &busy, now), ..Found::default() });
    }
    let mut found = Found::default();
    let mut after = Some(asked.after.clone()).filter(|after| !after.is_empty());
    let mut flag = asked.state.and_then(Word::flag);
    let size = if asked.state.is_some() { PAGE } else { rows + 1 };
    let mut read = 0;
    loop {
        let (jobs, is_last) = match flag {
            Some(of) => {
                let page = reader.flagged(of, asked.filter(), after.as_deref(), size).await?;
                if !page.is_complete {
                    // The store cannot tell: all jobs are looked at.
                    flag = None;
                    continue;
                }
                let is_last = page.next.is_none();
                after = page.next;
                (page.found, is_last)
            }
            None => {
                let jobs = reader.list(asked.filter(), after.as_deref(), size).await?;
                let is_last = jobs.len() < size;
                after = jobs.last().map(|job| job.name.clone());
                (jobs, is_last)
            }
        };
        read += jobs.len();
        let busy = reader.waiting_for_keys(&jobs, now).await?;
        found.jobs.extend(selected(jobs, asked, &nodes, &busy, now));
        if found.jobs.len() > rows {
            found.jobs.truncate(rows);
            found.next = found.jobs.last().map(|(job, _)| job.name.clone());
            return Ok(found);
        }
        if is_last {
            return Ok(found);
        }
        if read >= MOST {
            (found.next, found.gave_up_at) = (after, Some(read));
            return Ok(found);
        }
    }
}

/// Those of the jobs that are in the state of the filter, with all their states.
fn selected(
    jobs: Vec<JobState>,
    asked: &Asked,
    nodes: &[NodeInfo],
    busy: &HashSet<String>,
    now: Time,
) -> Vec<(JobState, Vec<Word>)> {
    let with_words = jobs.into_iter().map(|job| {
        let around = Around {
            is_orphaned: NodeInfo::is_orphan(nodes, &job),
            is_key_busy: busy.contains(&job.name),
        };
        let words = words(&job, around, now);
        (job, words)
    });
    // A flag finds the jobs of all owners.
    let has = |job: &JobState, flag: Option<Flag<'_>>| flag.is_none_or(|flag| flag.holds(job, now));
    let filter = asked.filter();
    let is_wanted = |(job, words): &(JobState, Vec<Word>)| {
        asked.state.is_none_or(|state| words.contains(&state))
            && has(job, filter.owner.map(Flag::Owner))
            && has(job, filter.tag.map(Flag::Tag))
    };
    with_words.filter(is_wanted).collect()
}

fn view(asked: Asked, found: Found, context: &Context) -> View {
    let rows: Vec<Row> = found
        .jobs
        .iter()
        .map(|(job, words)| row(job, words, &found.days, &asked, context))
        .collect();
    let shown = grouped(rows.len());
    let count = match (&found.next, found.gave_up_at) {
        (_, Some(read)) => format!("{shown} among the next {} jobs by name.", grouped(read)),
        (Some(_), None) => format!("{shown} of more."),
        (None, None) if asked.is_by_due && rows.len() == BY_DUE => {
            format!("The first {shown} that are due.")
        }
        (None, None) => {
            format!("{shown} in all{}.", if asked.after.is_empty() { "" } else { " from here" })
        }
    };
    let count = match found.lacks_successes {
        true => format!("{count} {NO_SUCCESSES}"),
        false => count,
    };
    let nothing = match (rows.is_empty(), asked.is_filtered()) {
        (false, _) => String::new(),
        (true, true) if found.gave_up_at.is_some() => {
            "No job among these matches this filter; go on with the next ones.".to_owned()
        }
        (true, true) => "No job matches this filter.".to_owned(),
        (true, false) => {
            "No job yet: add one in code, with `allora add`, or from a crontab.".to_owned()
        }
    };
    let choice = |word: Word| Choice { text: word.text(), is_chosen: asked.state == Some(word) };
    View {
        states: Word::ALL.into_iter().map(choice).collect(),
        first: (!asked.after.is_empty()).then(|| asked.link(context, &[])),
        more: found.next.as_deref().map(|after| asked.link(context, &[("after", after)])),
        add: context.may_edit.then(|| context.link("edit", &[])),
        many: if rows.is_empty() { Vec::new() } else { many_buttons(&asked, context) },
        rows,
        count,
        nothing,
        asked,
    }
}

fn row(
    job: &JobState,
    words: &[Word],
    days: &HashMap<String, Day>,
    asked: &Asked,
    context: &Context,
) -> Row {
    let found = described(job);
    let own = context.in_zone_of(found.zone.as_deref());
    let next = job.due_at.filter(|_| job.leases.is_empty()).map(|at| context.moment(at));
    let own_text = job.due_at.map(|at| own.moment(at).text);
    let filter = |name: &str, value: &str| Linked {
        text: value.to_owned(),
        link: asked.link(context, &[(name, value)]),
    };
    let some = |name: &str, value: &str| (!value.is_empty()).then(|| filter(name, value));
    let mut looks = words.iter().map(|word| look(word.text()));
    Row {
        job: Linked { text: job.name.clone(), link: context.job(&job.name) },
        look: looks.next().unwrap_or_else(|| look("ended")),
        also: looks.collect(),
        last: job.last.as_ref().map(|last| look(last.word())),
        started: job.last_started.map(|at| context.moment(at)),
        day: days.get(&job.name).cloned(),
        own: own_text.filter(|_| own.zone.name() != context.zone.name()).unwrap_or_default(),
        next,
        kind: some("kind", &job.kind),
        owner: some("owner", &found.owner),
        tags: found.tags.iter().map(|tag| filter("tag", tag)).collect(),
        schedule: found.words,
        text: found.text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{params::Params, times::at};

    fn asked(query: &str) -> Asked {
        Asked::read(&Params::read(query).unwrap()).unwrap()
    }

    fn job(name: &str, definition: &str) -> (JobState, Vec<Word>) {
        let mut job = JobState::empty(name);
        (job.kind, job.definition) = ("invoice".into(), definition.into());
        job.due_at = Some(at("2026-10-27T01:00:00Z"));
        (job, vec![Word::Waiting])
    }

    #[test]
    fn a_row_has_the_schedule_in_words_and_links_that_narrow_the_list() {
        let jobs = vec![job("invoices", "0 2 * * * Asia/Tokyo; owner ann; tags billing")];
        let found = Found { jobs, ..Found::default() };
        let view = view(asked("state=waiting"), found, &Context::of_test());
        let [row] = &view.rows[..] else { panic!("{view:?}") };
        assert_eq!(row.text, "0 2 * * * Asia/Tokyo");
        assert_eq!(row.next.as_ref().unwrap().text, "Tue 27 Oct 02:00 CET");
        assert_eq!(row.own, "Tue 27 Oct 10:00 JST");
        assert_eq!(row.kind.as_ref().unwrap().link, "jobs?state=waiting&kind=invoice");
        assert_eq!(row.tags[0].link, "jobs?state=waiting&tag=billing");
        assert_eq!((&*view.count, &*view.nothing), ("1 in all.", ""));
    }

    #[test]
    fn the_next_page_keeps_the_filter() {
        let found = Found {
            jobs: vec![job("a&b", "@daily")],
            next: Some("a&b".into()),
            ..Found::default()
        };
        let view = view(asked("q=a&kind=invoice&after=a"), found, &Context::of_test());
        assert_eq!(view.more.as_deref(), Some("jobs?q=a&kind=invoice&after=a%26b"));
        assert_eq!(view.first.as_deref(), Some("jobs?q=a&kind=invoice"));
    }

    #[test]
    fn a_filter_without_a_match_is_not_an_empty_store() {
        let nothing = |query| view(asked(query), Found::default(), &Context::of_test()).nothing;
        assert_eq!(nothing("q=zzz"), "No job matches this filter.");
        assert!(nothing("sort=name").starts_with("No job yet"));
    }

    #[test]
    fn a_state_or_an_order_that_does_not_exist_is_refused_in_words() {
        for query in ["state=broken", "sort=colour"] {
            assert!(Asked::read(&Params::read(query).unwrap()).is_err(), "{query}");
        }
    }
}
