//! *Try a schedule*: what a text means, in words and as the next times.

use super::{Answer, Head, answer};
use crate::{
    ask::Ask,
    context::Context,
    failure::Failure,
    params::Params,
    shared::Shared,
    times::{Moment, Zone},
};
use allora_core::{AnySchedule, Schedule, check_name, stored::Definition};
use askama::Template;
use axum::extract::State;
use std::sync::Arc;

#[derive(Debug, Template)]
#[template(path = "schedule.html")]
struct Try {
    head: Head,
    view: View,
}

#[derive(Clone, Debug)]
struct View {
    asked: Asked,
    /// The reason why the text cannot be read, with what to write instead.
    error: String,
    meaning: Option<Meaning>,
    examples: Vec<Example>,
}

/// The form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Asked {
    text: String,
    name: String,
    count: usize,
}

/// A text that can be tried with one click.
#[derive(Clone, Debug)]
struct Example {
    text: &'static str,
    link: String,
}

/// The meaning of a text.
#[derive(Clone, Debug)]
struct Meaning {
    words: String,
    /// The text as the library writes it.
    canonical: String,
    warnings: Vec<String>,
    /// The zone that the schedule follows, if it follows a wall clock.
    own_zone: String,
    times: Vec<Coming>,
    none: String,
}

/// One of the next times.
#[derive(Clone, Debug)]
struct Coming {
    moment: Moment,
    own: String,
    due: String,
    notes: Vec<String>,
}

const EXAMPLES: [&str; 6] = [
    "0 2 * * * Europe/Rome",
    "every weekday at 9:30 America/New_York",
    "@every 90m",
    "H 4 * * *",
    "last weekday of every month",
    "0 9 * * MON-FRI; except 2026-12-25; jitter 5m",
];

/// The number of times that are listed unless another one is asked for, and the largest one.
const COUNT: usize = 20;
const MOST: usize = 100;

pub(crate) async fn page(State(shared): State<Arc<Shared>>, ask: Ask) -> Answer {
    let asked = Asked::read(&ask.params)?;
    let now = ask.reader.store_now().await?;
    let context = ask.context(now);
    let definition = match asked.text.is_empty() {
        true => None,
        false => Some(asked.definition()),
    };
    let view = view(asked, definition, &context);
    let head = Head::new(&shared, &ask, &context, ("schedule", "schedule"), "Try a schedule");
    answer(&Try { head, view })
}

impl Asked {
    fn read(params: &Params) -> Result<Self, Failure> {
        let count = match params.some("count") {
            None => COUNT,
            Some(text) => match text.parse() {
                Ok(count @ 1..=MOST) => count,
                _ => {
                    let text = format!("There are no {text:?} times to list; use 1 to {MOST}.");
                    return Err(Failure::bad_address(text));
                }
            },
        };
        Ok(Self { text: params.get("text").to_owned(), name: params.get("name").to_owned(), count })
    }

    /// The schedule with its settings, as a stored schedule of this name would have it.
    ///
    /// # Errors
    /// A sentence that says what to write instead.
    fn definition(&self) -> Result<Definition, String> {
        let name = if self.name.is_empty() { "job" } else { &self.name };
        check_name(name).map_err(|error| error.to_string())?;
        Definition::parse(name, &self.text).map_err(|error| error.to_string())
    }
}

fn view(asked: Asked, definition: Option<Result<Definition, String>>, context: &Context) -> View {
    let (meaning, error) = match definition {
        None => (None, String::new()),
        Some(Ok(definition)) => (Some(meaning(&asked, &definition, context)), String::new()),
        Some(Err(error)) => (None, error),
    };
    let example =
        |text: &'static str| Example { text, link: context.link("schedule", &[("text", text)]) };
    View { asked, error, meaning, examples: EXAMPLES.into_iter().map(example).collect() }
}

fn meaning(asked: &Asked, definition: &Definition, context: &Context) -> Meaning {
    let schedule: &AnySchedule = definition.schedule();
    let own = schedule.wall_clock().and_then(|zone| Zone::named(zone).ok());
    let own = own.filter(|own| own.name() != context.zone.name());
    let name = if asked.name.is_empty() { "job" } else { &asked.name };
    let times = definition.settings().explain(name, schedule, context.now, asked.count);
    let times: Vec<Coming> = times
        .into_iter()
        .map(|explained| {
            let is_late = explained.due > explained.nominal;
            Coming {
                moment: context.moment(explained.nominal),
                own: own
                    .as_ref()
                    .map(|own| own.moment(explained.nominal, context.now).text)
                    .unwrap_or_default(),
                due: if is_late { context.moment(explained.due).text } else { String::new() },
                notes: explained.reasons,
            }
        })
        .collect();
    let calendars: Vec<&str> = definition.calendars().into_iter().collect();
    let none = match (times.is_empty(), calendars.is_empty()) {
        (false, _) => String::new(),
        (true, true) => "It has no occurrence after now.".to_owned(),
        (true, false) => format!(
            "It needs the calendars {} of the store, which this page does not read.",
            calendars.join(", ")
        ),
    };
    Meaning {
        words: schedule.describe().unwrap_or_else(|| "It has no description in words.".to_owned()),
        canonical: schedule.definition().unwrap_or_else(|| definition.to_string()),
        warnings: schedule.warnings().iter().map(|warning| warning.message.clone()).collect(),
        own_zone: own.map(|own| own.name().to_owned()).unwrap_or_default(),
        times,
        none,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(query: &str) -> View {
        let asked = Asked::read(&Params::read(query).unwrap()).unwrap();
        let definition = asked.definition();
        view(asked, Some(definition), &Context::of_test())
    }

    #[test]
    fn a_text_has_words_and_times_side_by_side_in_both_zones() {
        let view = tried("text=0+9+*+*+*+Asia%2FTokyo%3B+delay+90s&count=2");
        let meaning = view.meaning.unwrap();
        assert_eq!((meaning.times.len(), &*meaning.own_zone), (2, "Asia/Tokyo"));
        let first = &meaning.times[0];
        assert_eq!(
            (&*first.moment.text, &*first.own),
            ("Tue 27 Oct 01:00 CET", "Tue 27 Oct 09:00 JST")
        );
        assert_eq!(first.due, "Tue 27 Oct 01:01:30 CET");
    }

    #[test]
    fn an_error_names_the_part_and_what_to_write() {
        let view = tried("text=61+*+*+*+*");
        assert!(view.meaning.is_none() && view.error.contains("minute"), "{}", view.error);
        assert!(tried("text=%40daily&name=a%0Ab").meaning.is_none());
    }

    #[test]
    fn every_example_can_be_read() {
        for text in EXAMPLES {
            let asked = Asked { text: text.into(), name: "report".into(), count: 1 };
            assert!(asked.definition().is_ok(), "{text}: {:?}", asked.definition());
        }
    }

    #[test]
    fn a_number_of_times_out_of_range_is_refused() {
        for query in ["count=0", "count=101", "count=x"] {
            assert!(Asked::read(&Params::read(query).unwrap()).is_err(), "{query}");
        }
    }
}
