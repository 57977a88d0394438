//! The pages, one file each: the handler reads the facts, and a pure view makes of them what the
//! template writes.

pub(crate) mod asked;
pub(crate) mod audit;
pub(crate) mod job;
pub(crate) mod jobs;
pub(crate) mod nodes;
pub(crate) mod now;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod schedule;

mod definition;
mod entry;
mod hours;
mod need;
mod past;
mod plots;
mod strip;
mod timeline;

pub(crate) use definition::{FIELDS, described, fields};
pub(crate) use need::{capital, sentence};

use crate::{
    actions::{Done, done},
    ask::Ask,
    context::Context,
    failure::Failure,
    links::Linked,
    params::Params,
    shared::Shared,
    times::machine,
    words::{counted, grouped},
};
use askama::Template;
use axum::response::Html;

/// A page, or the page that says why there is none.
pub(crate) type Answer = Result<Html<String>, Failure>;

/// Writes a page.
fn answer(template: &impl Template) -> Answer {
    Ok(Html(template.render()?))
}

/// The pages in the head, in their order, each with its path.
const PAGES: [(&str, &str); 6] = [
    ("Now", ""),
    ("Jobs", "jobs"),
    ("Runs", "runs"),
    ("Nodes", "nodes"),
    ("Audit", "audit"),
    ("Try a schedule", "schedule"),
];

/// The head of a page.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// The title of the window, before the name of the console.
    pub(crate) title: String,
    pub(crate) site: String,
    pub(crate) pages: Vec<Place>,
    /// The path of this page, and its parameters but for the zone: what the form for the zone sends.
    pub(crate) path: &'static str,
    pub(crate) carried: Vec<(String, String)>,
    pub(crate) zone: String,
    /// The zone in the address; empty if it has none.
    pub(crate) asked_zone: String,
    /// The store's time of day.
    pub(crate) clock: String,
    pub(crate) who: String,
    /// The reader cannot change anything here.
    pub(crate) is_read_only: bool,
    /// The action that led here.
    pub(crate) done: Option<Done>,
}

/// An entry of the list of pages.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) label: &'static str,
    pub(crate) link: String,
    pub(crate) is_here: bool,
}

impl Head {
    /// The head of the page with this path, below the entry `under` of the list.
    pub(crate) fn new(
        shared: &Shared,
        ask: &Ask,
        context: &Context,
        (path, under): (&'static str, &str),
        title: impl Into<String>,
    ) -> Self {
        let place = |(label, path): (&'static str, &str)| Place {
            label,
            link: context.link(path, &[]),
            is_here: path == under,
        };
        Self {
            title: title.into(),
            site: shared.title.clone(),
            pages: PAGES.into_iter().map(place).collect(),
            path: if path.is_empty() { "./" } else { path },
            carried: carried(&ask.params, context),
            zone: context.zone.name().to_owned(),
            asked_zone: context.asked_zone.clone(),
            clock: context.zone.clock(context.now),
            who: ask.reader.access().who().to_owned(),
            is_read_only: !context.may_run && !context.may_edit,
            done: done(&ask.params, context),
        }
    }
}

/// The parameters that the form for the zone sends, too: the same page, without what was done before it.
fn carried(params: &Params, context: &Context) -> Vec<(String, String)> {
    let mut carried = params.without("zone");
    for (name, value) in &mut carried {
        // By the clocks of another zone, what was typed would be another time.
        if name == "at"
            && let Ok((at, _)) = context.zone.read(value)
        {
            *value = machine(at);
        }
    }
    carried.retain(|(name, _)| !["done", "n", "id"].contains(&name.as_str()));
    carried
}

/// A sentence in its pieces: what stands between backticks is code, which `prose.html` shows as such.
pub(crate) fn pieces(sentence: &str) -> impl Iterator<Item = (bool, &str)> {
    let is_even = sentence.matches('`').count().is_multiple_of(2);
    let separator = if is_even { "`" } else { "\n" };
    sentence.split(separator).enumerate().map(move |(i, piece)| (is_even && i % 2 == 1, piece))
}

/// The first characters of a text, on one line.
pub(crate) fn short(text: &str, most: usize) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_have_nouns() {
        assert_eq!((&*counted(1, "job"), &*counted(0, "job")), ("1 job", "0 jobs"));
        assert_eq!((&*grouped(999), &*grouped(10_000)), ("999", "10,000"));
        assert_eq!(counted(1_234_567, "run"), "1,234,567 runs");
    }

    #[test]
    fn a_typed_time_stays_the_same_one_in_another_zone() {
        let params = Params::read("name=a&at=2026-10-26+02%3A00&zone=Europe%2FRome&n=1").unwrap();
        let carried = carried(&params, &Context::of_test());
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(carried, [pair("name", "a"), pair("at", "2026-10-26T01:00:00Z")]);
        let odd = Params::read("at=half+past+two").unwrap();
        assert_eq!(super::carried(&odd, &Context::of_test()), [pair("at", "half past two")]);
    }

    #[test]
    fn what_stands_between_backticks_is_code() {
        let all = |text| pieces(text).collect::<Vec<_>>();
        assert_eq!(
            all("use `allora gc` now"),
            [(false, "use "), (true, "allora gc"), (false, " now")]
        );
        assert_eq!(all("it's `odd"), [(false, "it's `odd")]);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(short("a\nb", 10), "a b");
        assert_eq!(short("äöü€", 3), "äöü…");
    }
}
