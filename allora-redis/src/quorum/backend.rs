//! Plans and endings, as changes of registers.

use super::{
    RedisQuorum,
    change::{Done, Slot},
    round::Clock,
    unheard::Life,
};
use allora_core::{
    Backend, Error, Kind, Result,
    backend::{
        Act, Answer, Deliver, End, Ending, Leases, Now, Plan, Reschedule, Rescheduled, Settle,
        Settled, State,
    },
    record::{At, Ledger, settle, step},
    time::saturating_add,
};
use async_trait::async_trait;
use std::{collections::HashMap, time::Duration};

#[async_trait]
impl Backend for RedisQuorum {
    async fn reschedule(&self, request: Reschedule<'_>) -> Result<Rescheduled> {
        let jobs = Jobs::of(request.plans.iter().map(|plan| plan.name));
        if jobs.names.is_empty() {
            let now = self.now(request.now).await.map_err(|error| error.op("reschedule"))?;
            return Ok(Rescheduled::new(now, Vec::new()));
        }
        let likely =
            |job: usize| jobs.places[job].iter().any(|i| is_likely(&request.plans[*i].act));
        let work = |job: usize, mut slot: Slot<'_>, clock: Clock| {
            let plans = jobs.places[job].iter().map(|i| &request.plans[*i]);
            plans.map(|plan| carry_out(plan, &mut slot, request.node, clock)).collect::<Vec<_>>()
        };
        let done = self.inner.change(&jobs.names, request.now, likely, work).await;
        let Done { now, answers } = done.map_err(|error| error.op("reschedule"))?;
        let now = now.unwrap_or(request.now.here());
        Ok(Rescheduled::new(now, jobs.in_place(answers)))
    }

    fn namespace(&self) -> &str {
        &self.inner.prefix
    }

    fn leases(&self) -> Option<&dyn Leases> {
        Some(self)
    }
}

#[async_trait]
impl Leases for RedisQuorum {
    async fn settle(&self, request: Settle<'_>) -> Result<Vec<Settled>> {
        let jobs = Jobs::of(request.endings.iter().map(|ending| ending.name));
        let work = |job: usize, mut slot: Slot<'_>, clock: Clock| {
            let endings = jobs.places[job].iter().map(|i| &request.endings[*i]);
            let end = |ending| {
                let life = Life::of(&slot, ending);
                let settled = end(ending, &mut slot, request.node, clock);
                self.inner.unheard.judge(ending, life, settled)
            };
            endings.map(end).collect::<Vec<_>>()
        };
        let done = self.inner.change(&jobs.names, request.now, |_| true, work).await;
        let settled = jobs.in_place(done.map_err(|error| error.op("settle"))?.answers);
        self.inner.unheard.forget(request.endings.iter().zip(&settled));
        Ok(settled)
    }
}

impl RedisQuorum {
    /// The instant that decides, where there is nothing to decide.
    async fn now(&self, now: Now) -> Result<allora_core::Time> {
        match now {
            Now::At(at) => Ok(at),
            Now::Store { .. } => {
                let heard = self.inner.hello().await?;
                let clock = heard.clock().ok_or_else(|| self.inner.too_few(&heard))?;
                Ok(clock.now)
            }
        }
    }
}

/// Whether it is made because something probably changes.
fn is_likely(act: &Act<'_>) -> bool {
    matches!(act, Act::Take(_) | Act::Skip(_) | Act::Redefine { .. })
}

fn carry_out(plan: &Plan<'_>, slot: &mut Slot<'_>, node: &str, clock: Clock) -> Answer {
    let record = match slot {
        Slot::Sound(record) => &mut **record,
        Slot::Parked(reason) => return Answer::State(Box::new(State::parked(plan.name, *reason))),
    };
    let at = At::new(node, clock.now);
    let mut ledger = Ledger::off();
    let mut answer = match later(plan, clock.spread) {
        Some(plan) => step(record, &plan, at, &mut ledger),
        None => step(record, plan, at, &mut ledger),
    };
    if let Answer::Taken(taken) = &mut answer
        && let Some(until) = &mut taken.until
        && let Ok(spread) = chrono::TimeDelta::from_std(clock.spread)
    {
        // Its holder counts from the lower clock.
        *until -= spread;
    }
    answer
}

/// The plan whose hold ends by the upper of the servers' clocks; `None`: it does anyway.
fn later<'a>(plan: &Plan<'a>, spread: Duration) -> Option<Plan<'a>> {
    let Act::Take(take) = &plan.act else { return None };
    if spread.is_zero() {
        return None;
    }
    let mut take = take.clone();
    match &mut take.deliver {
        Deliver::AtLeastOnce { lease } => *lease = lease.saturating_add(spread),
        Deliver::AtMostOnce { mark: Some(mark), .. } => {
            mark.lasts = mark.lasts.saturating_add(spread);
        }
        Deliver::AtMostOnce { mark: None, .. } => return None,
    }
    Some(Plan::new(plan.name, Act::Take(take)))
}

fn end(ending: &Ending<'_>, slot: &mut Slot<'_>, node: &str, clock: Clock) -> Settled {
    let Slot::Sound(record) = slot else { return Settled::Lost };
    let later = match &ending.end {
        // By the upper clock, as the hold.
        End::Extend { .. } => At::new(node, saturating_add(clock.now, clock.spread)),
        _ => At::new(node, clock.now),
    };
    settle(record, ending, later, &mut Ledger::off())
}

/// The jobs of a request, each once.
struct Jobs<'a> {
    names: Vec<&'a str>,
    /// Of each job, where the request has it.
    places: Vec<Vec<usize>>,
    len: usize,
}

impl<'a> Jobs<'a> {
    fn of(all: impl Iterator<Item = &'a str>) -> Self {
        let mut jobs = Self { names: Vec::new(), places: Vec::new(), len: 0 };
        let mut known = HashMap::new();
        for (i, name) in all.enumerate() {
            let job = *known.entry(name).or_insert_with(|| {
                jobs.names.push(name);
                jobs.places.push(Vec::new());
                jobs.names.len() - 1
            });
            jobs.places[job].push(i);
            jobs.len = i + 1;
        }
        jobs
    }

    /// The answers of all jobs, by position in the request.
    fn in_place<T>(&self, answers: Vec<Vec<T>>) -> Vec<T> {
        let mut placed: Vec<(usize, T)> = Vec::with_capacity(self.len);
        for (places, answers) in self.places.iter().zip(answers) {
            placed.extend(places.iter().copied().zip(answers));
        }
        placed.sort_unstable_by_key(|(i, _)| *i);
        placed.into_iter().map(|(_, answer)| answer).collect()
    }
}

/// The error of a setting.
pub(super) fn wrong(what: String) -> Error {
    Error::new(Kind::Invalid, what).op("connect")
}
