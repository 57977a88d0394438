//! The values that every view needs besides its facts: the time, the zone, and links that keep it.

use crate::{
    links::link,
    times::{Moment, Zone, machine},
    words::short_nodes,
};
use allora_core::Time;
use std::fmt::Write;

/// The words of the command `allora` between the error of a run and the end of its output, or of the answer to it.
const OUTPUT: [&str; 2] = ["; its output ends: ", "; its answer begins: "];

/// The part of an error that comes before the output of its run.
pub(crate) fn without_output(text: &str) -> &str {
    OUTPUT.into_iter().fold(text, |text, words| text.split(words).next().unwrap_or_default())
}

/// The time and the zone of a page.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// The store's time.
    pub(crate) now: Time,
    /// The zone of the times on the page.
    pub(crate) zone: Zone,
    /// The zone in the address, which links pass on; empty if it has none.
    pub(crate) asked_zone: String,
    /// Data and output are shown.
    pub(crate) sees_data: bool,
    /// Some jobs do not exist for the reader.
    pub(crate) is_limited: bool,
    /// The reader may act on jobs here: all but change and delete them.
    pub(crate) may_run: bool,
    /// The reader may change and delete jobs here.
    pub(crate) may_edit: bool,
}

impl Context {
    /// A time as the page shows it.
    pub(crate) fn moment(&self, at: Time) -> Moment {
        self.zone.moment(at, self.now)
    }

    /// The part of an error, or of a sentence with one, that this reader may see: all of it, or that
    /// before the output of the run.
    pub(crate) fn visible<'a>(&self, text: &'a str) -> &'a str {
        if self.sees_data { text } else { without_output(text) }
    }

    /// A sentence of the core, in which times are in UTC, with its times and nodes as the page shows
    /// them.
    pub(crate) fn local_times(&self, sentence: &str) -> String {
        let is_of_time = |c: char| c.is_ascii_digit() || "-:.TZ".contains(c);
        let mut local = String::new();
        let mut rest = self.visible(sentence);
        while let Some((head, after)) = rest.split_once('Z') {
            let before = head.trim_end_matches(is_of_time);
            local.push_str(before);
            match format!("{}Z", &head[before.len()..]).parse() {
                Ok(at) => local.push_str(&self.moment(at).text),
                Err(_) => _ = write!(local, "{}Z", &head[before.len()..]),
            }
            rest = after;
        }
        short_nodes(&(local + rest))
    }

    /// A link to another page, in the same zone.
    pub(crate) fn link(&self, page: &str, params: &[(&str, &str)]) -> String {
        let zone = [("zone", self.asked_zone.as_str())];
        link(page, &[params, &zone].concat())
    }

    pub(crate) fn job(&self, name: &str) -> String {
        self.link("job", &[("name", name)])
    }

    pub(crate) fn run(&self, name: &str, fence: i64) -> String {
        self.link("run", &[("name", name), ("fence", &fence.to_string())])
    }

    /// The page of a job with the question what became of this time.
    pub(crate) fn why(&self, name: &str, at: Time) -> String {
        self.link("job", &[("name", name), ("at", &machine(at))])
    }

    /// The same page in the zone of a job: its own clocks are what its schedule means. A zone in the
    /// address wins.
    pub(crate) fn in_zone_of(&self, job: Option<&str>) -> Self {
        let own =
            job.filter(|_| self.asked_zone.is_empty()).and_then(|zone| Zone::named(zone).ok());
        Self { zone: own.unwrap_or_else(|| self.zone.clone()), ..self.clone() }
    }
}

#[cfg(test)]
impl Context {
    /// The page of a test: in Rome, at 03:12:07 in the night after the clocks were set back.
    pub(crate) fn of_test() -> Self {
        Self {
            now: crate::times::at("2026-10-26T02:12:07Z"),
            zone: Zone::named("Europe/Rome").unwrap(),
            asked_zone: String::new(),
            sees_data: true,
            is_limited: false,
            may_run: true,
            may_edit: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_keep_the_zone_that_was_asked_for() {
        let context = Context { asked_zone: "Asia/Tokyo".into(), ..Context::of_test() };
        assert_eq!(context.job("a b"), "job?name=a%20b&zone=Asia%2FTokyo");
        assert_eq!(Context::of_test().run("a", 7), "run?name=a&fence=7");
    }

    #[test]
    fn the_output_in_an_error_is_for_those_who_may_see_data() {
        let (may, error) = (Context::of_test(), "exit status: 3; its output ends: hush");
        let may_not = Context { sees_data: false, ..may.clone() };
        assert_eq!((may.visible(error), may_not.visible(error)), (error, "exit status: 3"));
        let answered = "answered with 503; its answer begins: hush; its output ends: hush";
        assert_eq!(may_not.visible(answered), "answered with 503");
        assert_eq!(
            may_not.local_times("it failed: exit status: 3; its output ends: hush"),
            "it failed: exit status: 3"
        );
    }

    #[test]
    fn the_times_of_a_sentence_are_shown_in_the_zone_and_the_rest_is_kept() {
        let local = |text| Context::of_test().local_times(text);
        assert_eq!(
            local("2026-10-25T00:00:00Z was missed: no node from 2026-10-24T23:58:01.5Z, ZZ 7Z on"),
            "Sun 25 Oct 02:00 CEST was missed: no node from Sun 25 Oct 01:58:01 CEST, ZZ 7Z on"
        );
        assert_eq!((&*local("€Z"), &*local("")), ("€Z", ""));
    }

    #[test]
    fn a_job_is_shown_in_its_own_zone_unless_another_was_asked_for() {
        let context = Context::of_test();
        assert_eq!(context.in_zone_of(Some("Asia/Tokyo")).zone.name(), "Asia/Tokyo");
        assert_eq!(context.in_zone_of(None).zone.name(), "Europe/Rome");
        let asked = Context { asked_zone: "Europe/Rome".into(), ..context };
        assert_eq!(asked.in_zone_of(Some("Asia/Tokyo")).zone.name(), "Europe/Rome");
    }
}
