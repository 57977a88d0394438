//! The form of an action as it was typed, and its reading.

use super::{
    apply::Act,
    facts::{Facts, MOST_SKIPPED},
    verb::{VERBS, Verb},
};
use crate::{
    context::Context,
    failure::Failure,
    pages::sentence,
    params::Params,
    times::{Zone, machine},
};
use allora_core::{Occurrence, Time, backend::DeadLetter, check_name, stored::Gap};

/// The longest note, in characters: as many as the record of changes keeps in any script.
const LONGEST_NOTE: usize = 250;

/// The values of the form, as they were typed. It comes back with them if it cannot be done.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    pub(crate) verb: Verb,
    pub(crate) name: String,
    pub(crate) note: String,
    /// `catch-up` or `missed`, of *resume*.
    pub(crate) gap: String,
    /// The number of occurrences, of *skip*.
    pub(crate) count: String,
    /// The id of the trigger, of *run now* and *cancel*.
    pub(crate) id: String,
    /// The occurrence of a dead letter, or the time of one whose work was done by hand.
    pub(crate) at: String,
    pub(crate) trigger: String,
    /// The range of *backfill*; the second one is also the end of *pause*.
    pub(crate) from: String,
    pub(crate) until: String,
    /// The zone by whose clocks these were typed.
    pub(crate) clocks: String,
    /// The name once more, of *delete*.
    pub(crate) typed: String,
    /// The state that the form was made from.
    pub(crate) seen: String,
    /// The store's time when the form was made.
    pub(crate) made: String,
}

impl Form {
    /// # Errors
    /// The parameters name no job, or no action.
    pub(crate) fn read(params: &Params) -> Result<Self, Failure> {
        let word = params.get("do");
        let verb = Verb::from_word(word).ok_or_else(|| {
            let all: Vec<&str> = VERBS.iter().map(|row| row.1).collect();
            let text = format!("There is no action {word:?}; use one of {}.", all.join(", "));
            Failure::bad_address(text)
        })?;
        let name = params.exact("name").to_owned();
        if name.is_empty() {
            let text = format!("The address has no name of a job: act?do={word}&name=NAME.");
            return Err(Failure::bad_address(text));
        }
        let text = |name: &str| params.get(name).to_owned();
        Ok(Self {
            verb,
            name,
            note: text("note"),
            gap: text("gap"),
            count: text("count"),
            id: text("id"),
            at: text("at"),
            trigger: params.exact("trigger").to_owned(),
            from: text("from"),
            until: text("until"),
            clocks: text("clocks"),
            typed: params.exact("typed").to_owned(),
            seen: text("seen"),
            made: text("made"),
        })
    }

    /// The time at which the form was made.
    pub(crate) fn made_at(&self) -> Option<Time> {
        self.made.parse().ok()
    }

    /// The action, if everything is there that it needs.
    ///
    /// # Errors
    /// A sentence for the person who typed it.
    pub(crate) fn act(&self, facts: &Facts, context: &Context) -> Result<Act, String> {
        check_note(self.verb, &self.note)?;
        Ok(match self.verb {
            Verb::Pause => Act::Pause(self.end(context)?),
            Verb::Resume => Act::Resume(match self.gap.as_str() {
                "catch-up" => Gap::CatchUp,
                "missed" => Gap::Missed,
                _ => return Err("Choose what becomes of the occurrences of the pause.".into()),
            }),
            Verb::Skip => Act::Skip(self.number()?),
            Verb::Trigger => {
                check_name(&self.id).map_err(|error| format!("The id cannot be used: {error}."))?;
                Act::Trigger(self.id.clone(), None)
            }
            Verb::Cancel => Act::Cancel(Some(self.id.clone()).filter(|id| !id.is_empty())),
            Verb::Rerun => Act::Rerun(self.letter(facts)?.occurrence.clone()),
            Verb::Dismiss => Act::Dismiss(self.letter(facts)?.occurrence.clone()),
            Verb::Mark => Act::Mark(self.occurrence(context)?),
            Verb::Backfill => {
                let (from, until) = self.range(context)?;
                Act::Backfill(from, until)
            }
            Verb::Reset => Act::Reset,
            Verb::Delete if facts.must_type() && self.typed != self.name => {
                return Err("It ran within 30 days: type its name to delete it.".into());
            }
            Verb::Delete => Act::Delete,
        })
    }

    /// The number of occurrences to be left out; 1 if none was typed.
    pub(crate) fn number(&self) -> Result<usize, String> {
        match self.count.as_str() {
            "" => Ok(1),
            text => text.parse().ok().filter(|n| (1..=MOST_SKIPPED).contains(n)).ok_or_else(|| {
                format!("{text:?} occurrences cannot be left out; write 1 to {MOST_SKIPPED}.")
            }),
        }
    }

    /// The end of a pause; `None` if none was typed.
    pub(crate) fn end(&self, context: &Context) -> Result<Option<Time>, String> {
        if self.until.is_empty() {
            return Ok(None);
        }
        match self.time(&self.until, context)? {
            until if until <= context.now => {
                Err("The end of the pause has passed; write a later time, or none.".into())
            }
            until => Ok(Some(until)),
        }
    }

    /// A time, by the clocks that the form has stated.
    fn time(&self, text: &str, context: &Context) -> Result<Time, String> {
        let read = self.zone(context).and_then(|zone| zone.read(text));
        read.map(|(at, _)| at).map_err(|wrong| sentence(&wrong))
    }

    /// The zone that the form has stated, or that of the page.
    pub(crate) fn zone(&self, context: &Context) -> Result<Zone, String> {
        match self.clocks.as_str() {
            "" => Ok(context.zone.clone()),
            zone => Zone::named(zone),
        }
    }

    /// The range of a backfill: the times after the first one, up to the second one, which is now if none was typed.
    pub(crate) fn range(&self, context: &Context) -> Result<(Time, Time), String> {
        if self.from.is_empty() {
            return Err("Write the time after which the range begins.".into());
        }
        let from = self.time(&self.from, context)?;
        let until = match self.until.as_str() {
            "" => context.now,
            text => self.time(text, context)?,
        };
        match (from < until, until <= context.now) {
            (false, _) => {
                Err("The range ends before it begins; write the earlier time first.".into())
            }
            (_, false) => {
                Err("The range ends in the future; write the present time or an earlier one."
                    .into())
            }
            (true, true) => Ok((from, until)),
        }
    }

    /// The occurrence whose work was done by hand. The store knows whether it has failed.
    pub(crate) fn occurrence(&self, context: &Context) -> Result<Occurrence, String> {
        let scheduled_at = self.time(&self.at, context)?;
        if scheduled_at > context.now {
            return Err(
                "This time has not come yet; write that of an occurrence that has failed.".into()
            );
        }
        let trigger = Some(self.trigger.clone()).filter(|id| !id.is_empty());
        Ok(Occurrence { scheduled_at, trigger })
    }

    /// The dead letter that the form is about.
    pub(crate) fn letter<'a>(&self, facts: &'a Facts) -> Result<&'a DeadLetter, String> {
        let is_it = |letter: &&DeadLetter| {
            machine(letter.occurrence.scheduled_at) == self.at
                && letter.occurrence.trigger.as_deref().unwrap_or_default() == self.trigger
        };
        let gone = || "The dead letter is gone: somebody has rerun or dismissed it.".to_owned();
        facts.state.dead.iter().find(is_it).ok_or_else(gone)
    }
}

/// # Errors
/// A sentence for the person who wrote the note, or none.
pub(crate) fn check_note(verb: Verb, note: &str) -> Result<(), String> {
    if verb.needs_note() && note.is_empty() {
        return Err("Write a note: whoever comes next will ask why it was done.".into());
    }
    if note.chars().count() > LONGEST_NOTE {
        return Err(format!("The note is too long; use at most {LONGEST_NOTE} characters."));
    }
    if note.chars().any(char::is_control) {
        return Err("The note has a character that is not visible; write it on one line.".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::at;
    use allora_core::backend::JobState;

    fn facts() -> Facts {
        let mut state = JobState::empty("acme/report");
        state.last_started = Some(at("2026-10-25T00:00:00Z"));
        state.dead.push(DeadLetter {
            occurrence: at("2026-10-25T00:00:00Z").into(),
            attempts: 5,
            died_at: at("2026-10-25T01:00:00Z"),
            error: "refused".into(),
        });
        let (note, now) = (String::new(), Context::of_test().now);
        Facts { state, note, definition: None, next: Vec::new(), now }
    }

    fn act(query: &str) -> Result<Act, String> {
        let params = Params::read(&format!("name=acme%2Freport&{query}")).unwrap();
        Form::read(&params).unwrap().act(&facts(), &Context::of_test())
    }

    #[test]
    fn an_action_that_somebody_will_ask_about_needs_a_note() {
        for (verb, word, _, needs) in VERBS {
            let rest =
                "gap=missed&id=7&at=2026-10-25T00%3A00%3A00Z&from=2026-10-25&typed=acme%2Freport";
            let without = act(&format!("do={word}&{rest}"));
            assert_eq!(without.is_err(), needs, "{verb:?}: {without:?}");
            let with = act(&format!("do={word}&note=deploying&{rest}"));
            assert!(with.is_ok(), "{verb:?}: {with:?}");
        }
        assert!(act(&format!("do=pause&note={}", "a".repeat(251))).unwrap_err().contains("250"));
        assert!(act("do=pause&note=a%0Ab").unwrap_err().contains("one line"));
    }

    #[test]
    fn values_that_do_not_fit_are_refused_in_words() {
        for (query, says) in [
            ("do=resume", "Choose"),
            ("do=resume&gap=all", "Choose"),
            ("do=skip&note=x&count=0", "1 to"),
            ("do=skip&note=x&count=many", "1 to"),
            ("do=trigger", "id"),
            ("do=trigger&id=a%0Ab", "id"),
            ("do=rerun&at=2026-10-24T00%3A00%3A00Z", "letter is gone"),
            ("do=rerun&at=2026-10-25T00%3A00%3A00Z&trigger=7", "letter is gone"),
            ("do=mark&note=x&at=then", "is no time"),
            ("do=mark&note=x&at=2027-10-25", "has not come"),
            ("do=pause&note=x&until=tomorrow", "is no time"),
            ("do=pause&note=x&until=2026-10-26+03:12", "has passed"),
            ("do=pause&note=x&until=2026-10-27&clocks=Europe/Rom", "Europe/Rome"),
            ("do=backfill&note=x", "begins"),
            ("do=backfill&note=x&from=half+past+two", "is no time"),
            ("do=backfill&note=x&from=2026-10-26&until=2026-10-25", "earlier time first"),
            ("do=backfill&note=x&from=2026-10-25&until=2027-10-25", "future"),
            ("do=delete&note=x&typed=acme", "type its name"),
        ] {
            let wrong = act(query).unwrap_err();
            assert!(wrong.contains(says), "{query}: {wrong}");
        }
    }

    #[test]
    fn the_end_of_a_pause_is_read_by_the_clocks_that_the_form_stated() {
        let end = |query: &str| act(&format!("do=pause&note=x&until=2026-10-27+06:00{query}"));
        let is = |text: &str| Ok(Act::Pause(Some(at(text))));
        assert_eq!(end(""), is("2026-10-27T05:00:00Z"), "those of the page");
        assert_eq!(end("&clocks=Asia/Tokyo"), is("2026-10-26T21:00:00Z"));
        assert_eq!(act("do=pause&note=x"), Ok(Act::Pause(None)));
    }

    #[test]
    fn what_is_no_action_or_has_no_job_is_refused() {
        for query in ["name=a", "name=a&do=explode", "do=pause"] {
            assert!(Form::read(&Params::read(query).unwrap()).is_err(), "{query}");
        }
    }
}
