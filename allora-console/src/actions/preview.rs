//! The effects of an action, from the facts: the sentences and times on its page.

use super::{
    facts::{COUNTED, Facts},
    form::Form,
    verb::Verb,
};
use crate::{
    context::Context,
    times::{Moment, machine, span},
    words::{counted, grouped, short_nodes},
};
use allora_core::{CatchUp, Time, backend::Pause, schedule::between};
use chrono::TimeDelta;

/// The most times that are listed.
const LISTED: usize = 10;

/// The effects of an action, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Preview {
    pub(crate) lines: Vec<String>,
    /// The occurrences that it is about, and how many more there are.
    pub(crate) times: Vec<Moment>,
    pub(crate) more: String,
    /// The occurrences of a pause that run if it ends as an outage does.
    pub(crate) caught_up: String,
    /// Why it makes no sense; empty if it does.
    pub(crate) problem: String,
    /// The state that it was made from.
    pub(crate) seen: String,
}

/// The preview of the form.
pub(crate) fn preview(form: &Form, facts: &Facts, context: &Context) -> Preview {
    let mut preview = Preview { seen: seen(form.verb, facts), ..Preview::default() };
    let state = &facts.state;
    let moment = |at: Time| {
        let moment = context.moment(at);
        format!("{}, {}", moment.text, moment.distance)
    };
    let say = |preview: &mut Preview, text: String| preview.lines.push(text);
    match form.verb {
        Verb::Pause => {
            if let Some(pause) = &state.paused {
                say(&mut preview, paused(pause, &facts.note, context));
                say(&mut preview, "This pause replaces its end and its note.".into());
            }
            let end = form.end(context).ok().flatten();
            let until = end.map_or_else(|| "it is resumed".to_owned(), moment);
            let text = format!(
                "No occurrence starts until {until}. Active runs go on, and manual triggers still run."
            );
            say(&mut preview, text);
            match end {
                Some(end) => held_back(facts, end, &mut preview, context),
                None => {
                    if let Some(next) = facts.next.first() {
                        let next = moment(next.scheduled_at);
                        say(&mut preview, format!("The next one would be at {next}."));
                    }
                }
            }
        }
        Verb::Resume => match &state.paused {
            None => preview.problem = "It is not paused.".into(),
            Some(pause) => {
                say(&mut preview, paused(pause, &facts.note, context));
                let gap = facts.gap();
                let text = match gap.len() {
                    0 => "No occurrence came due during the pause.".into(),
                    count if count > COUNTED => {
                        format!(
                            "More than {} occurrences came due during the pause:",
                            grouped(COUNTED)
                        )
                    }
                    count => format!("{} came due during the pause:", counted(count, "occurrence")),
                };
                say(&mut preview, text);
                list(&mut preview, &gap, context);
                preview.caught_up = caught_up(facts);
            }
        },
        Verb::Skip => {
            let count = form.number().unwrap_or(1);
            let times: Vec<Time> =
                facts.next.iter().take(count).map(|next| next.scheduled_at).collect();
            match times.is_empty() {
                true => preview.problem = "No occurrence is to come.".into(),
                false => say(
                    &mut preview,
                    format!(
                        "{} will not run, and the history has them as skipped by an operator:",
                        counted(times.len(), "occurrence")
                    ),
                ),
            }
            list(&mut preview, &times, context);
        }
        Verb::Trigger => {
            let text = "One run, independently of the schedule. The same id changes nothing twice.";
            say(&mut preview, text.into());
            if let Some(run) = state.leases.first() {
                let text = format!(
                    "A run is active on {} since {}: the overlap policy decides whether this one waits for it.",
                    short_nodes(&run.node),
                    moment(run.started_at)
                );
                say(&mut preview, text);
            }
            if state.paused.is_some() {
                say(&mut preview, "The job is paused; the trigger runs in any case.".into());
            }
        }
        Verb::Cancel => {
            if state.leases.is_empty() {
                say(&mut preview, "No run is active now.".into());
            }
            for run in &state.leases {
                let by =
                    run.occurrence.trigger.as_ref().map(|id| format!(" by the trigger {id:?}"));
                let text = format!(
                    "Active: the occurrence of {}{} on {}, since {}, attempt {}. Its code may have had effects.",
                    context.moment(run.occurrence.scheduled_at).text,
                    by.unwrap_or_default(),
                    short_nodes(&run.node),
                    moment(run.started_at),
                    run.attempt
                );
                say(&mut preview, text);
            }
            let waits = "Triggers that wait, and occurrences that wait for another attempt, end, too. The \
                         schedule goes on.";
            say(&mut preview, waits.into());
        }
        Verb::Mark if form.letter(facts).is_err() => match form.occurrence(context) {
            Err(wrong) => preview.problem = wrong,
            Ok(occurrence) => {
                let text = format!(
                    "The history says that the work of the occurrence of {} is done, with your name and the \
                     note. Its entry as failed, lost or missed stays, and nothing runs.",
                    context.moment(occurrence.scheduled_at).text
                );
                say(&mut preview, text);
            }
        },
        Verb::Rerun | Verb::Dismiss | Verb::Mark => match form.letter(facts) {
            Err(gone) => preview.problem = gone,
            Ok(letter) => {
                let text = format!(
                    "The occurrence of {} was given up after {}, {}.",
                    context.moment(letter.occurrence.scheduled_at).text,
                    counted(letter.attempts as usize, "attempt"),
                    context.moment(letter.died_at).distance
                );
                say(&mut preview, text);
                let text = match form.verb {
                    Verb::Rerun => {
                        "It runs again as the same occurrence, with attempts counted from 1."
                    }
                    Verb::Mark => {
                        "Its letter is removed, and the history says that its work is done, with your name and the note."
                    }
                    _ => "Its letter is removed, and the occurrence does not run again.",
                };
                say(&mut preview, text.into());
            }
        },
        Verb::Backfill => of_range(form, facts, &mut preview, context),
        Verb::Reset => {
            let text = "Its schedule starts again from now, for a job that waits because the store's clock was \
                        ahead. Active runs are cancelled and recorded as lost. Settings, data, pause, counters \
                        and dead letters stay.";
            say(&mut preview, text.into());
        }
        Verb::Delete => {
            say(
                &mut preview,
                "Its definition, its data and its dead letters go; its history stays.".into(),
            );
            if !state.leases.is_empty() {
                let text =
                    format!("{} will be cancelled.", counted(state.leases.len(), "active run"));
                say(&mut preview, text);
            }
            if state.kind.is_empty() {
                let text = "It is a job in code: a node that declares it creates it again.";
                say(&mut preview, text.into());
            }
        }
    }
    preview
}

/// A pause, in words.
fn paused(pause: &Pause, note: &str, context: &Context) -> String {
    let moment = |at: Time| {
        let moment = context.moment(at);
        format!("{}, {}", moment.text, moment.distance)
    };
    let until = pause.until.map(|until| format!(", until {}", moment(until)));
    let note = if note.is_empty() { String::new() } else { format!(" Note: “{note}”") };
    format!("Paused since {}{}.{note}", moment(pause.since), until.unwrap_or_default())
}

/// The occurrences of a gap that the job's catch-up policy runs.
fn caught_up(facts: &Facts) -> String {
    let Some(definition) = &facts.definition else {
        return "those run that its catch-up policy chooses".into();
    };
    let settings = definition.settings();
    let runs = match settings.catch_up {
        CatchUp::Latest => "the latest one runs".to_owned(),
        CatchUp::All { limit } => format!("the last {limit} run"),
        _ => "none runs".to_owned(),
    };
    let late = settings.window.filter(|_| settings.catch_up != CatchUp::None);
    let late = late.map(|window| format!(", unless it is later than {}", span(window)));
    format!("{runs}{}, by its catch-up policy", late.unwrap_or_default())
}

/// The occurrences before the end of a pause.
fn held_back(facts: &Facts, end: Time, preview: &mut Preview, context: &Context) {
    let Some(definition) = &facts.definition else { return };
    // One at the end of the pause is not held back.
    let last = end - TimeDelta::milliseconds(1);
    let times: Vec<Time> =
        between(definition.schedule(), facts.now, last).take(COUNTED + 1).collect();
    let text = match times.len() {
        0 => "No occurrence falls into the pause.".to_owned(),
        many => {
            let more = if many > COUNTED { "More than " } else { "" };
            let held = counted(many.min(COUNTED), "occurrence");
            let verb = if many == 1 { "falls" } else { "fall" };
            format!("{more}{held} {verb} into the pause. When it ends, {}.", caught_up(facts))
        }
    };
    preview.lines.push(text);
    list(preview, &times, context);
}

fn of_range(form: &Form, facts: &Facts, preview: &mut Preview, context: &Context) {
    let Some(definition) = &facts.definition else {
        preview.problem = "Its definition cannot be read, so its times are not known.".into();
        return;
    };
    let text = "One run for each scheduled time in the range, independently of the schedule.";
    preview.lines.push(text.into());
    let Ok((from, until)) = form.range(context) else { return };
    let times: Vec<Time> = between(definition.schedule(), from, until).take(COUNTED + 1).collect();
    match times.len() {
        0 => preview.problem = "The range has no scheduled time of this job.".into(),
        many if many > COUNTED => {
            preview.problem = format!(
                "The range has more than {} scheduled times; backfill it in parts.",
                grouped(COUNTED)
            );
        }
        count => preview.lines.push(format!("{}:", counted(count, "run"))),
    }
    list(preview, &times, context);
}

fn list(preview: &mut Preview, times: &[Time], context: &Context) {
    preview.times = times.iter().take(LISTED).map(|at| context.moment(*at)).collect();
    if let (Some(more), Some(last)) = (times.len().checked_sub(LISTED + 1), times.last()) {
        preview.more =
            format!("and {} more, the last at {}", grouped(more + 1), context.moment(*last).text);
    }
}

/// The state that a form of this verb is made from: if it is another one when the form comes, somebody was faster.
pub(crate) fn seen(verb: Verb, facts: &Facts) -> String {
    let state = &facts.state;
    let time = |at: Option<Time>| at.map(machine).unwrap_or_default();
    let rest = match verb {
        Verb::Pause | Verb::Resume => {
            let pause = state.paused.as_ref();
            let end = time(pause.and_then(|pause| pause.until));
            format!("{}.{end}", time(pause.map(|pause| pause.since)))
        }
        Verb::Skip => time(facts.next.first().map(|next| next.scheduled_at)),
        Verb::Cancel => {
            let fences: Vec<String> =
                state.leases.iter().map(|run| run.fence.to_string()).collect();
            fences.join("-")
        }
        Verb::Backfill | Verb::Reset | Verb::Delete => state.generation.to_string(),
        // The id of the trigger and the occurrence of the letter say by themselves what is meant.
        Verb::Trigger | Verb::Rerun | Verb::Dismiss | Verb::Mark => return String::new(),
    };
    format!("{}.{rest}", state.incarnation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{params::Params, times::at};
    use allora_core::{
        backend::{JobState, NextRun},
        stored::Definition,
    };

    fn facts(change: impl FnOnce(&mut JobState)) -> Facts {
        let mut state = JobState::empty("report");
        state.definition = "@hourly".into();
        (state.kind, state.incarnation, state.generation) = ("mail".into(), 3, 4);
        change(&mut state);
        let definition = Definition::parse("report", "@hourly").ok();
        let next = ["2026-10-26T01:00:00Z", "2026-10-26T02:00:00Z", "2026-10-26T03:00:00Z"];
        let run = |text: &str| NextRun { scheduled_at: at(text), due_at: at(text) };
        let note = state.paused.as_ref().map(|pause| pause.note.clone()).unwrap_or_default();
        Facts { state, note, definition, next: next.map(run).into(), now: Context::of_test().now }
    }

    fn preview_of(query: &str, facts: &Facts) -> Preview {
        let form = Form::read(&Params::read(&format!("name=report&{query}")).unwrap()).unwrap();
        preview(&form, facts, &Context::of_test())
    }

    #[test]
    fn a_resume_shows_the_occurrences_of_the_pause() {
        let pause = Pause { since: at("2026-10-26T00:30:00Z"), until: None, note: "deploy".into() };
        let paused = facts(|state| state.paused = Some(pause));
        let preview = preview_of("do=resume", &paused);
        assert!(preview.lines[1].starts_with("2 occurrences"), "{preview:?}");
        assert_eq!(preview.times[1].text, "Mon 26 Oct 03:00 CET");
        assert_eq!(preview.caught_up, "the latest one runs, by its catch-up policy");
        assert!(preview_of("do=pause", &paused).lines[0].contains("deploy"));
        let until = preview_of("do=pause&until=2026-10-26+06:00", &facts(|_| {}));
        assert!(until.lines[0].contains("until Mon 26 Oct 06:00 CET, in 2 h 47 min"), "{until:?}");
        assert_eq!((&until.lines[1][..1], until.times.len()), ("2", 2), "{until:?}");
        assert_eq!(preview_of("do=resume", &facts(|_| {})).problem, "It is not paused.");
        let mark = preview_of("do=mark&at=2026-10-24T00:00:00Z", &facts(|_| {}));
        assert!(mark.problem.is_empty() && mark.lines[0].contains("Sat 24 Oct"), "{mark:?}");
    }

    #[test]
    fn a_backfill_lists_its_times_and_refuses_too_many() {
        let facts = facts(|_| {});
        let day =
            preview_of("do=backfill&from=2026-10-25T00:00:00Z&until=2026-10-26T00:00:00Z", &facts);
        assert_eq!((&*day.lines[1], day.times.len()), ("24 runs:", LISTED));
        assert!(day.more.starts_with("and 14 more"), "{}", day.more);
        assert!(preview_of("do=backfill&from=2026-01-01", &facts).problem.contains("in parts"));
        let none =
            preview_of("do=backfill&from=2026-10-25T00:10:00Z&until=2026-10-25T00:20:00Z", &facts);
        assert!(none.problem.contains("no scheduled time"));
    }

    #[test]
    fn the_state_of_a_form_changes_with_what_it_is_about_and_with_nothing_else() {
        let before = facts(|_| {});
        let renewed = facts(|state| state.incarnation = 9);
        let edited = facts(|state| state.generation = 9);
        let mut moved = facts(|_| {});
        moved.next.remove(0);
        for verb in [Verb::Pause, Verb::Skip, Verb::Cancel, Verb::Delete] {
            assert_ne!(seen(verb, &before), seen(verb, &renewed), "{verb:?}");
            assert_eq!(
                seen(verb, &before) != seen(verb, &edited),
                verb == Verb::Delete,
                "{verb:?}"
            );
            assert_eq!(seen(verb, &before) != seen(verb, &moved), verb == Verb::Skip, "{verb:?}");
        }
    }

    #[test]
    fn a_job_that_ran_of_late_is_deleted_by_its_name() {
        assert!(facts(|state| state.last_started = Some(at("2026-10-01T00:00:00Z"))).must_type());
        assert!(!facts(|state| state.last_started = Some(at("2026-09-01T00:00:00Z"))).must_type());
        assert!(!facts(|_| {}).must_type());
    }
}
