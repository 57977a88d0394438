//! The verdict: what was found, for people and for programs.

use super::{cases::Cases, shown};
use crate::output::on_one_line;
use allora_conformance::{
    faults::wall,
    history::{Summary, Violation, percentile},
};
use serde_json::{Value, json};
use std::{fmt, time::Duration};

/// A fault, or what a person has typed.
#[derive(Debug)]
pub(super) struct Mark {
    /// When, in milliseconds since 1970.
    pub(super) at: i64,
    pub(super) what: String,
}

impl Mark {
    pub(super) fn now(what: String) -> Self {
        Self { at: wall(), what }
    }
}

#[derive(Debug)]
pub(super) struct Verdict {
    /// The store, without secrets.
    pub(super) shown: String,
    pub(super) cases: Cases,
    pub(super) seed: u64,
    /// The time for which the workers ran.
    pub(super) time: Duration,
    pub(super) rate: usize,
    pub(super) workers: usize,
    /// When the workers were started and stopped, in milliseconds since 1970.
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) due: usize,
    /// Triggers and edits that the store has acknowledged.
    pub(super) triggers: usize,
    pub(super) edits: usize,
    /// The number of findings that have an [excuse](super::excused::Excuses).
    pub(super) excused: usize,
    /// At most once: the worker was killed in the run, which is recorded as lost.
    pub(super) cut_off: usize,
    /// Recorded as missed or skipped.
    pub(super) left_out: usize,
    /// The runs that workers gave up because their leases were lost.
    pub(super) rejected: usize,
    pub(super) ended_by_themselves: usize,
    pub(super) summary: Summary,
    pub(super) marks: Vec<Mark>,
    pub(super) violations: Vec<Violation>,
}

/// The time after a fault for which the occurrences that come due are its own, in milliseconds.
const AFTER: i64 = 12_000;

impl Verdict {
    pub(super) fn holds(&self) -> bool {
        self.violations.is_empty() && self.cases.failed.is_empty() && self.ended_by_themselves == 0
    }

    /// The lateness that this part of the occurrences did not exceed, in milliseconds.
    pub(super) fn late(&self, part: f64) -> i64 {
        let mut late: Vec<i64> = self.summary.started.iter().map(|(_, late)| *late).collect();
        late.sort_unstable();
        percentile(&late, part)
    }

    fn twice(&self) -> usize {
        let is_twice = |one: &&Violation| {
            matches!(
                one,
                Violation::Duplicate { .. }
                    | Violation::FinishedTwice { .. }
                    | Violation::StartedTwice { .. }
                    | Violation::RunsOverlap { .. }
                    | Violation::LeasesOverlap { .. }
                    | Violation::StaleEnd { .. }
            )
        };
        self.violations.iter().filter(is_twice).count()
    }

    fn lost(&self) -> usize {
        let is_lost =
            |one: &&Violation| matches!(one, Violation::Gap { .. } | Violation::Unsettled { .. });
        self.violations.iter().filter(is_lost).count()
    }

    /// The longest lateness among the occurrences that came due just before a mark, or soon after it.
    pub(super) fn longest_after(&self, mark: &Mark) -> i64 {
        self.summary.latest(mark.at - 1_000, mark.at + AFTER).unwrap_or_default()
    }

    pub(super) fn json(&self) -> Value {
        let failed = self
            .cases
            .failed
            .iter()
            .map(|(name, message)| json!({ "case": name, "message": message }));
        let marks = self.marks.iter().map(|mark| {
            json!({ "at_ms": mark.at - self.from, "what": mark.what, "longest_ms": self.longest_after(mark) })
        });
        json!({
            "version": 1, "holds": self.holds(), "store": self.shown, "seed": self.seed,
            "seconds": self.time.as_secs(), "rate": self.rate, "workers": self.workers,
            "cases": {
                "hold": self.cases.hold, "denied": self.cases.denied,
                "failed": failed.collect::<Vec<_>>(),
            },
            "due": self.due, "triggers": self.triggers, "edits": self.edits, "excused": self.excused, "run": self.summary.started.len(), "again": self.summary.again,
            "cut_off": self.cut_off, "left_out": self.left_out,
            "twice": self.twice(), "lost": self.lost(),
            "late_ms": {
                "p50": self.late(0.5), "p99": self.late(0.99), "p999": self.late(0.999), "max": self.late(1.0),
            },
            "taken_over": self.summary.taken_over, "rejected": self.rejected,
            "processes": self.summary.nodes, "ended_by_themselves": self.ended_by_themselves,
            "faults": marks.collect::<Vec<_>>(),
            "violations": self.violations.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>(),
        })
    }

    /// The figures in words, each with its name.
    pub(super) fn figures(&self) -> Vec<(&'static str, String)> {
        let mut figures = Vec::new();
        let Cases { hold, denied, failed } = &self.cases;
        if hold + denied + failed.len() > 0 {
            let failed = failed.len();
            let text =
                format!("{hold} hold, {failed} failed, {denied} need what this store has not");
            figures.push(("cases", text));
        }
        let (run, twice, lost) = (self.summary.started.len(), self.twice(), self.lost());
        let Self { due, cut_off, left_out, rejected, .. } = self;
        let text = format!(
            "{due} due, {run} begun, {cut_off} cut off and recorded as lost (at most once), {left_out} \
             recorded as missed or skipped"
        );
        figures.push(("occurrences", text));
        if self.triggers > 0 {
            let text =
                format!("{} triggers and {} edits were acknowledged", self.triggers, self.edits);
            figures.push(("changes", text));
        }
        if self.excused > 0 {
            let text = format!(
                "{} findings, by what was done to the store or to its workers",
                self.excused
            );
            figures.push(("excused", text));
        }
        figures.push(("ran twice", twice.to_string()));
        figures.push(("lost", lost.to_string()));
        let [p50, p99, p999, max] = [0.5, 0.99, 0.999, 1.0].map(|part| self.late(part));
        let text =
            format!("{p50} ms in the middle, 99 % {p99} ms, 99.9 % {p999} ms, worst {max} ms");
        figures.push(("late", text));
        let (taken_over, again) = (self.summary.taken_over, self.summary.again);
        let text = format!(
            "{taken_over} runs by other workers, {again} of them begun a second time (at least once); {rejected} \
             runs given up because the lease was lost"
        );
        figures.push(("taken over", text));
        if self.ended_by_themselves > 0 {
            figures.push(("workers", format!("{} ended by themselves", self.ended_by_themselves)));
        }
        figures
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shown: store, rate, workers, seed, .. } = self;
        let time = shown(self.time);
        writeln!(
            f,
            "{store}: {time}, {workers} workers, {rate} occurrences each second, seed {seed}\n"
        )?;
        for (name, text) in self.figures() {
            writeln!(f, "{name:<12} {text}")?;
        }
        if !self.marks.is_empty() {
            writeln!(f, "\n{:>6}  {:<48}  latest after it", "at", "fault")?;
        }
        for mark in &self.marks {
            let at = (mark.at - self.from) / 1_000;
            let (what, late) = (on_one_line(&mark.what), self.longest_after(mark));
            writeln!(f, "{:>3}:{:02}  {what:<48}  {late} ms", at / 60, at % 60)?;
        }
        for (name, message) in &self.cases.failed {
            writeln!(f, "\nfailed: {name}: {}", on_one_line(message))?;
        }
        for violation in self.violations.iter().take(20) {
            writeln!(f, "\nbroken: {violation:?}")?;
        }
        match self.holds() {
            true => writeln!(f, "\nNothing ran twice, and nothing was lost."),
            false => Ok(()),
        }
    }
}
