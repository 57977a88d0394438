//! The promises, as questions to a log.

use super::log::{Claims, Event, Outcome, What};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// The rules by which the log is judged.
#[derive(Clone, Copy)]
pub struct Invariant<'a> {
    following: &'a dyn Fn(&str, i64) -> Option<i64>,
    until: Option<i64>,
    at_most_once: bool,
    alone: bool,
    completed: bool,
}

impl fmt::Debug for Invariant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Law")
            .field("until", &self.until)
            .field("at_most_once", &self.at_most_once)
            .field("alone", &self.alone)
            .field("completed", &self.completed)
            .finish_non_exhaustive()
    }
}

impl<'a> Invariant<'a> {
    /// Judges by these schedules: from a job and one of its nominal instants to the next.
    pub fn new(following: &'a dyn Fn(&str, i64) -> Option<i64>) -> Self {
        Self { following, until: None, at_most_once: false, alone: false, completed: false }
    }

    /// Every nominal instant up to this one must be accounted for: choose it so that the last of
    /// them had time to be taken. Otherwise only those before the last that was taken.
    #[must_use]
    pub fn until(mut self, until: i64) -> Self {
        self.until = Some(until);
        self
    }

    /// No occurrence is taken twice or started twice, unless it was released.
    #[must_use]
    pub fn at_most_once(mut self) -> Self {
        self.at_most_once = true;
        self
    }

    /// Runs of one job never overlap in time, from their start to their accepted end: for runs
    /// that cannot outlive their lease.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// Nothing is under way any more: every occurrence that was taken, up to
    /// [`until`](Self::until) if that is set, has come to an end or is recorded as lost. An
    /// occurrence that was released must have been taken again, and a run that succeeded must have
    /// been started.
    #[must_use]
    pub fn completed(mut self) -> Self {
        self.completed = true;
        self
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Violation {
    /// One fence was given to several nodes, or for several occurrences.
    SharedFence {
        /// The job.
        job: String,
        /// The fence.
        fence: i64,
    },
    /// A later take, by the store's clock, has a fence that is not larger.
    FenceDidNotGrow {
        /// The job.
        job: String,
        /// The fence of the earlier take.
        before: i64,
        /// That of the later one.
        after: i64,
    },
    /// With a larger fence, an earlier occurrence was taken.
    WentBack {
        /// The job.
        job: String,
        /// The occurrence of the smaller fence.
        from: i64,
        /// That of the larger one.
        to: i64,
    },
    /// A lease was granted while another one was alive and not ended.
    LeasesOverlap {
        /// The job.
        job: String,
        /// The fence of the living lease.
        held: i64,
        /// The fence that was given.
        given: i64,
    },
    /// Two runs were under way at the same time.
    RunsOverlap {
        /// The job.
        job: String,
        /// The run that was under way.
        first: i64,
        /// The run that started beside it.
        second: i64,
    },
    /// An occurrence was taken again though it was finished, or, at most once, at all.
    Duplicate {
        /// The job.
        job: String,
        /// The occurrence.
        occurrence: i64,
        /// The fence of the second take.
        fence: i64,
    },
    /// The job's code was started twice under one fence.
    StartedTwice {
        /// The job.
        job: String,
        /// The fence.
        fence: i64,
    },
    /// An occurrence was taken last under this fence, and neither ended nor recorded as lost: or
    /// it was released, and no node took it again.
    Unsettled {
        /// The job.
        job: String,
        /// The occurrence.
        occurrence: i64,
        /// The fence.
        fence: i64,
    },
    /// A run is said to have ended well that was never started.
    NotStarted {
        /// The job.
        job: String,
        /// The fence.
        fence: i64,
    },
    /// Two final ends of one occurrence were accepted.
    FinishedTwice {
        /// The job.
        job: String,
        /// The occurrence.
        occurrence: i64,
    },
    /// An end was accepted though another had taken the occurrence before.
    StaleEnd {
        /// The job.
        job: String,
        /// The fence that was accepted.
        fence: i64,
        /// The larger one that was given before.
        current: i64,
    },
    /// An occurrence was started, ended or lost without a claim with this fence.
    NotTaken {
        /// The job.
        job: String,
        /// The fence.
        fence: i64,
    },
    /// An occurrence was taken before its nominal time.
    Early {
        /// The job.
        job: String,
        /// The occurrence.
        occurrence: i64,
    },
    /// An occurrence that was taken, missed or skipped is no instant of the schedule.
    NotScheduled {
        /// The job.
        job: String,
        /// The occurrence.
        occurrence: i64,
    },
    /// A nominal instant that was neither taken nor missed or skipped.
    Gap {
        /// The job.
        job: String,
        /// The instant; those that follow it at once are not listed.
        occurrence: i64,
    },
}

/// Every violation in the log, ordered by kind and job. The order of the events does not matter;
/// a trigger is a job of its own ([`booked`](super::booked)).
///
/// Costs a sort of the log; schedules are asked once for each take and each passed range.
pub fn check(log: &[Event], law: &Invariant<'_>) -> Vec<Violation> {
    let mut jobs: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
    for event in log {
        jobs.entry(&event.job).or_default().push(event);
    }
    let mut found = BTreeSet::new();
    for (job, events) in jobs {
        let mut job = Job::new(job, law, events, &mut found);
        job.collect();
        job.fences();
        job.leases();
        job.runs();
        job.ends();
        if law.completed {
            job.completed();
        }
        job.accounts();
    }
    found.into_iter().collect()
}

/// One job's part of the log.
struct Job<'a> {
    job: &'a str,
    law: &'a Invariant<'a>,
    /// By fence; an answer that was given again is one claim.
    claims: Vec<(&'a str, i64, Claims)>,
    /// By fence: what the store said of the lease, and when.
    extensions: BTreeMap<i64, Vec<(i64, i64)>>,
    /// By fence: when the reply to the claim came, if the store has no clock.
    answers: BTreeMap<i64, i64>,
    /// By fence: the first end that was accepted.
    ends: BTreeMap<i64, i64>,
    /// Occurrence and fence of runs that were released, or are to be tried again, and when.
    given_back: BTreeMap<(i64, i64), i64>,
    events: Vec<&'a Event>,
    found: &'a mut BTreeSet<Violation>,
}

impl<'a> Job<'a> {
    fn new(
        job: &'a str,
        law: &'a Invariant<'a>,
        events: Vec<&'a Event>,
        found: &'a mut BTreeSet<Violation>,
    ) -> Self {
        let (extensions, answers, ends, given_back) = Default::default();
        Self { job, law, claims: Vec::new(), extensions, answers, ends, given_back, events, found }
    }

    fn name(&self) -> String {
        self.job.to_owned()
    }

    fn collect(&mut self) {
        for event in &self.events {
            match event.what {
                What::Claim(claims) => self.claims.push((&event.node, event.at, claims)),
                What::Answered { fence } => {
                    let answered = self.answers.entry(fence).or_insert(event.at);
                    *answered = event.at.min(*answered);
                }
                What::Extend { fence, until } => {
                    self.extensions.entry(fence).or_default().push((event.at, until));
                }
                What::End { occurrence, fence, outcome } => {
                    let ended = self.ends.entry(fence).or_insert(event.at);
                    *ended = event.at.min(*ended);
                    if !outcome.is_final() {
                        self.given_back.insert((occurrence, fence), event.at);
                    }
                }
                What::Start { .. } | What::Skip { .. } | What::Lost { .. } => {}
            }
        }
        self.claims.sort_by_key(|(node, at, claims)| (claims.fence, *node, claims.occurrence, *at));
        // The answer to a take that was asked again.
        self.claims.dedup_by(|b, a| {
            a.0 == b.0 && a.2.fence == b.2.fence && a.2.occurrence == b.2.occurrence
        });
    }

    /// One node and one occurrence for each fence; fences grow as the store's time does, and with
    /// them the occurrences.
    fn fences(&mut self) {
        let job = self.name();
        for pair in self.claims.windows(2) {
            let ((_, then, before), (_, now, after)) = (&pair[0], &pair[1]);
            if before.fence == after.fence {
                self.found.insert(Violation::SharedFence { job: job.clone(), fence: after.fence });
            } else if now < then {
                let (before, after) = (after.fence, before.fence);
                self.found.insert(Violation::FenceDidNotGrow { job: job.clone(), before, after });
            }
            let back = after.occurrence;
            if back < before.occurrence && !self.was_given_back(back, after.fence) {
                let (from, to) = (before.occurrence, after.occurrence);
                self.found.insert(Violation::WentBack { job: job.clone(), from, to });
            }
        }
        for (_, at, claims) in &self.claims {
            if *at < claims.occurrence {
                let occurrence = claims.occurrence;
                self.found.insert(Violation::Early { job: job.clone(), occurrence });
            }
        }
    }

    /// True if the occurrence was released before this fence took it again.
    fn was_given_back(&self, occurrence: i64, fence: i64) -> bool {
        self.given_back.range((occurrence, i64::MIN)..(occurrence, fence)).next().is_some()
    }

    /// Until when a fence keeps others away, as far as the store had said before `at`.
    fn lease_end(&self, claims: &Claims, at: i64) -> Option<i64> {
        let said = self.extensions.get(&claims.fence).into_iter().flatten();
        let extended = said.filter(|(said, _)| *said < at).map(|(_, until)| *until);
        Some(extended.fold(claims.until?, i64::max))
    }

    fn ended_by(&self, fence: i64, at: i64) -> bool {
        self.ends.get(&fence).is_some_and(|ended| *ended <= at)
    }

    fn leases(&mut self) {
        for pair in self.claims.windows(2) {
            let ((_, then, held), (_, now, given)) = (&pair[0], &pair[1]);
            let alive = then <= now && self.lease_end(held, *now).is_some_and(|until| *now < until);
            // A store without a clock has decided after `now`, and possibly after that end.
            let decided = self.answers.get(&given.fence).map_or(*now, |answered| *answered);
            if held.fence < given.fence && alive && !self.ended_by(held.fence, decided) {
                let (job, held, given) = (self.name(), held.fence, given.fence);
                self.found.insert(Violation::LeasesOverlap { job, held, given });
            }
        }
    }

    fn runs(&mut self) {
        let mut starts: Vec<(i64, i64, i64)> = Vec::new();
        for event in &self.events {
            if let What::Start { occurrence, fence } = event.what {
                starts.push((event.at, fence, occurrence));
            }
        }
        starts.sort_unstable();
        let mut fences = BTreeSet::new();
        let mut occurrences = BTreeSet::new();
        for (i, (at, fence, occurrence)) in starts.iter().enumerate() {
            let job = self.name();
            if !self.taken(*fence, *occurrence) {
                self.found.insert(Violation::NotTaken { job: job.clone(), fence: *fence });
            }
            if !fences.insert(fence) {
                self.found.insert(Violation::StartedTwice { job: job.clone(), fence: *fence });
            } else if self.law.at_most_once && !occurrences.insert(occurrence) {
                let (occurrence, fence) = (*occurrence, *fence);
                self.found.insert(Violation::Duplicate { job: job.clone(), occurrence, fence });
            }
            if let Some((_, first, _)) = i.checked_sub(1).map(|i| starts[i])
                && self.law.alone
                && first != *fence
                && !self.ended_by(first, *at)
            {
                self.found.insert(Violation::RunsOverlap { job, first, second: *fence });
            }
        }
    }

    fn taken(&self, fence: i64, occurrence: i64) -> bool {
        let first = self.claims.partition_point(|(_, _, claims)| claims.fence < fence);
        let same = self.claims[first..].iter().take_while(|(_, _, claims)| claims.fence == fence);
        same.into_iter().any(|(_, _, claims)| claims.occurrence == occurrence)
    }

    fn ends(&mut self) {
        let job = self.name();
        // The smallest fence under which the occurrence was finished.
        let mut finished: BTreeMap<i64, i64> = BTreeMap::new();
        for event in &self.events {
            let (occurrence, fence, is_final) = match event.what {
                What::End { occurrence, fence, outcome } => (occurrence, fence, outcome.is_final()),
                What::Lost { occurrence, fence } => {
                    // One that shares its job may come back from a loss.
                    let back = self.given_back.get(&(occurrence, fence));
                    (occurrence, fence, back.is_none_or(|back| *back < event.at))
                }
                _ => continue,
            };
            if !self.taken(fence, occurrence) {
                self.found.insert(Violation::NotTaken { job: job.clone(), fence });
            }
            if is_final {
                let first = finished.entry(occurrence).or_insert(fence);
                if *first != fence {
                    self.found.insert(Violation::FinishedTwice { job: job.clone(), occurrence });
                }
                *first = fence.min(*first);
            }
        }
        // The claims are ordered by fence, so the last of each occurrence has the largest.
        let mut takes: BTreeMap<i64, Vec<(i64, i64)>> = BTreeMap::new();
        for (_, at, claims) in &self.claims {
            let (occurrence, fence) = (claims.occurrence, claims.fence);
            let earlier = takes.entry(occurrence).or_default();
            let done = finished.get(&occurrence).is_some_and(|by| *by < fence);
            let again = self.law.at_most_once
                && earlier.last().is_some_and(|(before, _)| {
                    *before != fence && !self.given_back.contains_key(&(occurrence, *before))
                });
            if done || again {
                self.found.insert(Violation::Duplicate { job: job.clone(), occurrence, fence });
            }
            earlier.push((fence, *at));
        }
        for event in &self.events {
            let What::End { occurrence, fence, .. } = event.what else { continue };
            let later = takes.get(&occurrence).into_iter().flatten();
            let current = later.rev().take_while(|(taken, _)| *taken > fence);
            let current = current.filter(|(_, at)| *at < event.at).last();
            if let Some((current, _)) = current
                && !self.given_back.contains_key(&(occurrence, fence))
            {
                let current = *current;
                self.found.insert(Violation::StaleEnd { job: job.clone(), fence, current });
            }
        }
    }

    /// Every occurrence that was taken has come to its end.
    fn completed(&mut self) {
        let (mut over, mut ran, mut started) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for event in &self.events {
            match event.what {
                What::End { fence, outcome, .. } => {
                    if outcome.is_final() {
                        over.insert(fence);
                    }
                    if outcome == Outcome::Succeeded {
                        ran.insert(fence);
                    }
                }
                What::Lost { fence, .. } => {
                    over.insert(fence);
                }
                What::Start { fence, .. } => {
                    started.insert(fence);
                }
                _ => {}
            }
        }
        for fence in ran.difference(&started) {
            self.found.insert(Violation::NotStarted { job: self.name(), fence: *fence });
        }
        // The claims are ordered by fence: the last of each occurrence stays.
        let mut last: BTreeMap<i64, i64> = BTreeMap::new();
        for (_, _, claims) in &self.claims {
            last.insert(claims.occurrence, claims.fence);
        }
        for (occurrence, fence) in last {
            let asked = self.law.until.is_none_or(|until| occurrence <= until);
            if asked && !over.contains(&fence) {
                let job = self.name();
                self.found.insert(Violation::Unsettled { job, occurrence, fence });
            }
        }
    }

    /// Every instant from the first that is known to the last was taken, missed or skipped.
    fn accounts(&mut self) {
        let mut known: BTreeMap<i64, i64> = BTreeMap::new();
        for (_, _, claims) in &self.claims {
            known.entry(claims.occurrence).or_insert(claims.occurrence);
        }
        for event in &self.events {
            if let What::Skip { first, last } = event.what {
                let end = known.entry(first).or_insert(last);
                *end = last.max(*end);
            }
        }
        let mut expected: Option<i64> = None;
        let mut covered = i64::MIN;
        for (first, last) in known {
            match expected {
                Some(expected) if first > expected => self.gap(expected),
                Some(expected) if first < expected && first > covered => self.unscheduled(first),
                _ => {}
            }
            covered = covered.max(last);
            if expected.is_none_or(|expected| last >= expected) {
                expected = (self.law.following)(self.job, last);
                if expected.is_none() {
                    // The schedule has ended; what comes after is none of its instants.
                    expected = Some(i64::MAX);
                }
            }
        }
        if let (Some(expected), Some(until)) = (expected, self.law.until)
            && expected <= until
        {
            self.gap(expected);
        }
    }

    fn gap(&mut self, occurrence: i64) {
        let job = self.name();
        self.found.insert(Violation::Gap { job, occurrence });
    }

    fn unscheduled(&mut self, occurrence: i64) {
        let job = self.name();
        self.found.insert(Violation::NotScheduled { job, occurrence });
    }
}
