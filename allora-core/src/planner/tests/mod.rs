//! The planner tested by values: one planner, one record, and the time as given.

mod agreement;
mod definitions;
mod finished;
mod limited;
mod liveness;
mod lost_replies;
mod policies;
mod turns;
mod watch;

use super::{job::slot::Phase, reply::Answer, *};
use crate::{
    BoxError, CatchUp, Job, Overlap, Retry, Run, Schedule,
    backend::{Action, Claim, Completion, Cursor, Operation, Reply, RetryCause},
    cron, every, job,
    record::{HistoryBuffer, OpContext, Record, apply},
    time::from_millis,
};
use crate::{error::Result, event::Event, job::JobSpec, time::Time};
use chrono::TimeDelta;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

const LOST_AFTER: Duration = Duration::from_secs(30);

/// A planner and a store with one record. A run ends as soon as it begins, unless runs are held.
struct OneJob {
    planner: Planner,
    record: Option<Record>,
    /// The record by which nodes tell each other what they have checked.
    mark: Option<Record>,
    holds: bool,
    live: Vec<Start>,
    /// The started runs, in seconds.
    ran: Vec<f64>,
    events: Vec<String>,
    asked: usize,
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A time in seconds after the start.
fn at(seconds: f64) -> Time {
    from_millis(1_767_225_600_000 + (seconds * 1_000.0) as i64).unwrap()
}

fn seconds(time: Time) -> f64 {
    (time - at(0.0)).num_milliseconds() as f64 / 1_000.0
}

fn of(schedule: impl Schedule) -> JobSpec {
    job(schedule, async |_: Run| {})
}

impl OneJob {
    fn new(spec: JobSpec) -> Self {
        Self::found(spec, None)
    }

    fn found(spec: JobSpec, record: Option<Record>) -> Self {
        let mut planner = Planner::new(config(1, secs(5)));
        planner.add("job".into(), spec).unwrap();
        Self {
            planner,
            record,
            mark: None,
            holds: false,
            live: Vec::new(),
            ran: Vec::new(),
            events: Vec::new(),
            asked: 0,
        }
    }

    fn tick(&mut self, now: Time, room: usize) -> Vec<Request> {
        let mut events = Vec::new();
        let mut tick = self.planner.ticked(now, room, &mut events);
        // The due occurrences of a closure are found in slices.
        while tick.requests.is_empty() && !tick.full && tick.wake_at == Some(now) {
            tick = self.planner.ticked(now, room, &mut events);
        }
        self.asked += tick.requests.len();
        self.note(events);
        tick.requests
    }

    /// Ticks at this time until there are no more requests.
    fn at(mut self, time: f64) -> Self {
        for _ in 0..20_000 {
            let requests = self.tick(at(time), 10);
            if requests.is_empty() {
                return self;
            }
            for request in requests {
                let answer = self.reply_to(&request, at(time));
                self.answer(request, answer, at(time));
            }
        }
        panic!("there is always another request: {:?} {:?}", self.events, self.record);
    }

    /// One tick whose requests are applied, and whose replies are lost.
    fn lost_at(mut self, time: f64) -> Self {
        let requests = self.tick(at(time), 10);
        requests.iter().for_each(|request| drop(self.reply_to(request, at(time))));
        self.lose(requests, at(time));
        self
    }

    /// No reply comes to these requests.
    fn lose(&mut self, requests: Vec<Request>, now: Time) {
        let mut events = Vec::new();
        self.planner.lost(requests, now, &mut events);
        self.note(events);
    }

    fn reply_to(&mut self, request: &Request, now: Time) -> Reply {
        self.apply(&request.operation(), "me", now).unwrap()
    }

    fn apply(&mut self, operation: &Operation<'_>, node: &str, now: Time) -> Result<Reply> {
        let record = if operation.name == "job" { &mut self.record } else { &mut self.mark };
        apply(record, operation, OpContext::new(node, now), &mut HistoryBuffer::off())
    }

    fn answer(&mut self, request: Request, reply: Reply, now: Time) {
        let mut events = Vec::new();
        let start = self.planner.replied(request, Answer::new(reply, now), &mut events);
        self.note(events);
        if let Some(start) = start {
            self.ran.push(seconds(start.claimed.occurrence.scheduled_at));
            self.live.push(start);
            if !self.holds {
                self.end(now, Completion::Succeeded);
            }
        }
    }

    fn end(&mut self, now: Time, completion: Completion<'_>) {
        let start = self.live.remove(0);
        let (fence, then) = (start.claimed.fence, start.then);
        self.update(&start, Action::Complete { fence, then, completion }, now);
    }

    fn update(&mut self, start: &Start, action: Action<'_>, now: Time) {
        let completed = matches!(action, Action::Complete { .. }).then_some(start.then);
        let reply = self.apply(&Operation::new("job", action), "me", now).unwrap();
        let update = RunUpdate {
            slot: start.slot,
            name: start.name.clone(),
            fence: start.claimed.fence,
            scheduled_at: start.claimed.occurrence.scheduled_at,
            completed,
            window: None,
            reply,
        };
        self.planner.on_run_update(&update);
    }

    /// Extends the lease of the first run.
    fn extend(&mut self, duration: u64, now: f64) {
        let start = self.live.remove(0);
        let extend = Action::Extend { fence: start.claimed.fence, duration: secs(duration) };
        self.update(&start, extend, at(now));
        self.live.insert(0, start);
    }

    /// The occurrence that replaces the first run.
    fn replaced(&self) -> Option<Time> {
        let lease = self.record.as_ref()?.leases.first().filter(|lease| lease.cancel_requested)?;
        lease.replaced_by
    }

    fn operator(mut self, time: f64, action: Action<'_>) -> Self {
        self.apply(&Operation::new("job", action), "operator", at(time)).unwrap();
        self.planner.on_notification("job");
        self
    }

    fn held(mut self) -> Self {
        self.holds = true;
        self
    }

    fn note(&mut self, events: Vec<Event>) {
        self.events.extend(events.into_iter().map(|event| match event {
            Event::OccurrencesMissed { first, last, count, .. } => {
                let count = count.map_or("?".to_owned(), |count| count.to_string());
                format!("missed {}-{} {count}", seconds(first), seconds(last))
            }
            Event::OccurrencesSkipped { first, last, count, .. } => {
                let count = count.map_or("?".to_owned(), |count| count.to_string());
                format!("skipped {}-{} {count}", seconds(first), seconds(last))
            }
            Event::Began(condition) => condition.code().to_owned(),
            Event::Ended(condition) => format!("{} over", condition.code()),
            event => {
                let text = format!("{event:?}");
                text.split([' ', '{']).next().unwrap_or_default().to_owned()
            }
        }));
    }

    #[track_caller]
    fn expect(self, ran: &[f64], events: &[&str], next: impl Into<Option<f64>>) -> Self {
        assert_eq!(self.ran, ran);
        assert_eq!(self.events, events);
        let cursor = self.record.as_ref().and_then(|record| record.cursor);
        assert_eq!(cursor.map(|cursor| seconds(cursor.scheduled_at)), next.into());
        self
    }
}

/// The settings of a planner with this random number and poll interval.
pub(super) fn config(random: u128, poll: Duration) -> PlannerConfig {
    PlannerConfig {
        random,
        poll,
        lost_after: LOST_AFTER,
        store_timeout: secs(1),
        extra_attempts: EXTRA_ATTEMPTS,
        every_node: None,
        runs: usize::MAX,
        route: None,
        claims_kind: None,
    }
}

/// One input at a time.
impl Planner {
    pub(super) fn ticked(&mut self, now: Time, room: usize, events: &mut Vec<Event>) -> Tick {
        let room = Room { all: room, kinds: Vec::new() };
        let tick = Input::Tick { room, on_way: OnWay::default(), is_told: true };
        let mut output = self.handle(vec![tick], now);
        events.append(&mut output.events);
        output.tick
    }

    pub(super) fn replied(
        &mut self,
        request: Request,
        answer: Answer,
        events: &mut Vec<Event>,
    ) -> Option<Start> {
        let start = self.on_reply(request, answer);
        events.append(&mut self.effects.events);
        start
    }

    fn lost(&mut self, requests: Vec<Request>, now: Time, events: &mut Vec<Event>) {
        self.on_lost_replies(requests, now);
        events.append(&mut self.effects.events);
    }
}

impl Answer {
    pub(super) fn new(reply: Reply, now: Time) -> Self {
        Self { reply, now, came_at: now, min_fence: 0 }
    }

    fn came_at(mut self, came_at: Time) -> Self {
        self.came_at = came_at;
        self
    }

    fn min_fence(mut self, min_fence: i64) -> Self {
        self.min_fence = min_fence;
        self
    }
}

fn minutely() -> JobSpec {
    of(every(secs(60)))
}
