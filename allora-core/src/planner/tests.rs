//! Every policy by values: one planner, one record, time as given.

use super::{slot::Phase, *};
use crate::{
    BoxError, CatchUp, Job, Overlap, Retry, Run, Schedule,
    backend::{Action, Completion, Operation, Reply, RetryCause},
    cron, every, job,
    record::{HistoryBuffer, OpContext, Record, apply},
    time::from_millis,
};
use crate::{error::Result, event::Event, job::JobSpec, time::Time};
use chrono::TimeDelta;
use std::time::Duration;

const LOST_AFTER: Duration = Duration::from_secs(30);

/// A node at a table with one record; runs end as soon as they begin, unless they are held.
struct Table {
    planner: Planner,
    record: Option<Record>,
    holds: bool,
    live: Vec<Start>,
    /// The started runs, in seconds.
    ran: Vec<f64>,
    told: Vec<String>,
    asked: usize,
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// So many seconds after the table was laid.
fn at(seconds: f64) -> Time {
    from_millis(1_767_225_600_000 + (seconds * 1_000.0) as i64).unwrap()
}

fn seconds(time: Time) -> f64 {
    (time - at(0.0)).num_milliseconds() as f64 / 1_000.0
}

fn of(schedule: impl Schedule) -> JobSpec {
    job(schedule, async |_: Run| {})
}

impl Table {
    fn laid(spec: JobSpec) -> Self {
        Self::joined(spec, None)
    }

    fn joined(spec: JobSpec, record: Option<Record>) -> Self {
        let mut planner = Planner::new(1, secs(5), LOST_AFTER);
        planner.add(NewJob::new("job".into(), spec)).unwrap();
        Self {
            planner,
            record,
            holds: false,
            live: Vec::new(),
            ran: Vec::new(),
            told: Vec::new(),
            asked: 0,
        }
    }

    fn turn(&mut self, now: Time, room: usize) -> Vec<Request> {
        let mut events = Vec::new();
        let turn = self.planner.tick(now, room, &mut events);
        self.asked += turn.requests.len();
        self.tell(events);
        turn.requests
    }

    /// Takes turns at this time until nothing is left to ask.
    fn at(mut self, time: f64) -> Self {
        for _ in 0..20_000 {
            let requests = self.turn(at(time), 10);
            if requests.is_empty() {
                return self;
            }
            for request in requests {
                let answer = self.carry_out(&request, at(time));
                self.answer(request, answer, at(time));
            }
        }
        panic!("it asks and asks: {:?} {:?}", self.told, self.record);
    }

    /// One turn whose requests are carried out, and whose answers are lost.
    fn lost_at(mut self, time: f64) -> Self {
        let requests = self.turn(at(time), 10);
        requests.iter().for_each(|request| drop(self.carry_out(request, at(time))));
        self.lose(requests, at(time));
        self
    }

    /// No reply comes to these requests.
    fn lose(&mut self, requests: Vec<Request>, now: Time) {
        let mut events = Vec::new();
        self.planner.on_lost_replies(requests, now, &mut events);
        self.tell(events);
    }

    fn carry_out(&mut self, request: &Request, now: Time) -> Reply {
        self.apply(&request.operation(), "me", now).unwrap()
    }

    fn apply(&mut self, operation: &Operation<'_>, node: &str, now: Time) -> Result<Reply> {
        apply(&mut self.record, operation, OpContext::new(node, now), &mut HistoryBuffer::off())
    }

    fn answer(&mut self, request: Request, reply: Reply, now: Time) {
        let mut events = Vec::new();
        let start = self.planner.on_reply(request, Answer::new(reply, now), &mut events);
        self.tell(events);
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
            name: &start.name,
            fence: start.claimed.fence,
            scheduled_at: start.claimed.occurrence.scheduled_at,
            completed,
        };
        self.planner.on_run_update(update, &reply);
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

    fn tell(&mut self, events: Vec<Event>) {
        self.told.extend(events.into_iter().map(|event| match event {
            Event::OccurrencesMissed { first, last, count, .. } => {
                let count = count.map_or("?".to_owned(), |count| count.to_string());
                format!("missed {}-{} {count}", seconds(first), seconds(last))
            }
            Event::OccurrencesSkipped { first, last, count, .. } => {
                let count = count.map_or("?".to_owned(), |count| count.to_string());
                format!("skipped {}-{} {count}", seconds(first), seconds(last))
            }
            event => {
                let text = format!("{event:?}");
                text.split([' ', '{']).next().unwrap_or_default().to_owned()
            }
        }));
    }

    #[track_caller]
    fn expect(self, ran: &[f64], told: &[&str], next: impl Into<Option<f64>>) -> Self {
        assert_eq!(self.ran, ran);
        assert_eq!(self.told, told);
        let cursor = self.record.as_ref().and_then(|record| record.cursor);
        assert_eq!(cursor.map(|cursor| seconds(cursor.scheduled_at)), next.into());
        self
    }
}

/// Registered at 0, down until `back`.
#[track_caller]
fn outage(spec: JobSpec, back: f64, ran: &[f64], told: &[&str], next: f64) {
    Table::laid(spec.clone()).at(0.0).at(back).expect(ran, told, next);
    let leased = spec.at_least_once(secs(30));
    Table::laid(leased).at(0.0).at(back).expect(ran, told, next);
}

fn minutely() -> JobSpec {
    of(every(secs(60)))
}

#[test]
fn latest_runs_one_and_records_the_others() {
    outage(minutely(), 59.999, &[], &[], 60.);
    outage(minutely(), 60., &[60.], &[], 120.);
    outage(minutely(), 130., &[120.], &["missed 60-60 1"], 180.);
    outage(minutely(), 605., &[600.], &["missed 60-540 9"], 660.);
}

#[test]
fn all_runs_the_last_of_them_in_order() {
    let all = |limit| minutely().catch_up(CatchUp::All { limit });
    outage(all(3), 59., &[], &[], 60.);
    outage(all(3), 60., &[60.], &[], 120.);
    outage(all(3), 185., &[60., 120., 180.], &[], 240.);
    outage(all(3), 605., &[480., 540., 600.], &["missed 60-420 7"], 660.);
    outage(all(1), 605., &[600.], &["missed 60-540 9"], 660.);
}

#[test]
fn none_runs_what_is_on_time_and_nothing_else() {
    let none = minutely().catch_up(CatchUp::None);
    outage(none.clone(), 60., &[60.], &[], 120.);
    outage(none.clone(), 70., &[60.], &[], 120.);
    outage(none.clone(), 70.001, &[], &["missed 60-60 1"], 120.);
    outage(none, 605., &[600.], &["missed 60-540 9"], 660.);
}

#[test]
fn a_window_ends_exactly() {
    let window = minutely().window(secs(20));
    outage(window.clone(), 140., &[120.], &["missed 60-60 1"], 180.);
    outage(window, 140.001, &[], &["missed 60-120 2"], 180.);
    let all = minutely().catch_up(CatchUp::All { limit: 9 }).window(secs(65));
    outage(all.clone(), 245., &[180., 240.], &["missed 60-120 2"], 300.);
    outage(all, 245.001, &[240.], &["missed 60-180 3"], 300.);
}

#[test]
fn ten_years_of_seconds_are_passed_over_in_few_steps() {
    let ten_years = 10.0 * 365.25 * 86_400.0;
    for spec in [of(every(secs(1))), of(cron("* * * * * *").unwrap())] {
        let table = Table::laid(spec.clone()).at(0.0).at(ten_years);
        assert_eq!(table.asked, 2);
        assert_eq!(table.ran, [ten_years]);
        let all = spec.catch_up(CatchUp::All { limit: 2 });
        assert_eq!(Table::laid(all).at(0.0).at(ten_years).ran, [ten_years - 1.0, ten_years]);
    }
}

#[test]
fn a_closure_beyond_its_walk_is_taken_up_from_now() {
    let closure = |period: i64| move |after: Time| Some(after + TimeDelta::seconds(period));
    let back = 86_400.0 * 365.0;
    for period in [1, 7, 61] {
        for policy in [CatchUp::Latest, CatchUp::All { limit: 5 }, CatchUp::None] {
            let window = secs(period as u64 + 10);
            let spec = of(closure(period)).catch_up(policy).window(window);
            let table = Table::laid(spec).at(0.0).at(back);
            let (runs, asked) = (table.ran.clone(), table.asked);
            assert!((1..=5).contains(&runs.len()) && asked < 10, "{period} {policy:?} {runs:?}");
            assert!(runs.iter().all(|run| *run > back - 80.0 && *run <= back), "{runs:?}");
            assert!(table.told[0].ends_with(" ?"), "{:?}", table.told);
            let next = table.record.and_then(|record| record.cursor).unwrap();
            assert!(
                seconds(next.scheduled_at) > back
                    && seconds(next.scheduled_at) <= back + period as f64
            );
        }
    }
}

#[test]
fn a_closure_that_ends_is_run_to_its_end() {
    let ends = |after: Time| (after < at(30.0)).then(|| after + TimeDelta::seconds(10));
    Table::laid(of(ends)).at(0.0).at(86_400.0).expect(&[30.], &["missed 10-20 2"], None);
}

#[test]
fn delay_and_spread_shift_what_is_due_and_nothing_else() {
    let late = minutely().delay(secs(5));
    outage(late.clone(), 64.999, &[], &[], 60.);
    outage(late.clone(), 65., &[60.], &[], 120.);
    outage(late.clone(), 184., &[120.], &["missed 60-60 1"], 180.);
    outage(late.window(secs(1)), 186.001, &[], &["missed 60-180 3"], 240.);
    outage(minutely().jitter(secs(20)), 80., &[60.], &[], 120.);
}

#[test]
fn a_job_has_a_start_an_end_and_a_number_of_runs() {
    let bounded = of(cron("* * * * *").unwrap()).starting(at(120.0)).ending(at(240.0));
    Table::laid(bounded.clone()).at(0.0).expect(&[], &[], 120.);
    Table::laid(bounded.clone()).at(0.0).at(240.0).expect(&[240.], &["missed 120-180 2"], None);
    Table::laid(bounded).at(240.0).expect(&[], &[], None);
    let twice = minutely().max_runs(2);
    let table = Table::laid(twice.clone()).at(0.0).at(60.0).at(120.0).at(600.0);
    table.expect(&[60., 120.], &[], None);
    let leased = Table::laid(twice.at_least_once(secs(30))).at(0.0).at(60.0).at(120.0).at(600.0);
    leased.expect(&[60., 120.], &[], None);
}

#[test]
fn overlap_allows_skips_or_waits() {
    let table = |policy| Table::laid(minutely().overlap(policy)).held().at(0.0).at(60.0);
    table(Overlap::Allow).at(85.0).at(120.0).expect(&[60., 120.], &[], 180.);
    let alive = |policy| {
        let mut table = table(policy);
        let fence = table.live[0].claimed.fence;
        let start = table.live.remove(0);
        let extend = Action::Extend { fence, duration: secs(600) };
        table.update(&start, extend, at(85.0));
        table.live.insert(0, start);
        table
    };
    alive(Overlap::Skip).at(120.0).expect(&[60.], &["skipped 120-120 1"], 180.);
    let mut waits = alive(Overlap::Wait).at(120.0).at(185.0).expect(&[60.], &[], 120.);
    waits.end(at(200.0), Completion::Succeeded);
    waits.at(200.0).expect(&[60., 180.], &["missed 120-120 1"], 240.);
}

#[test]
fn a_silent_run_is_recorded_as_lost_and_blocks_nobody_for_longer() {
    let table = Table::laid(minutely().overlap(Overlap::Wait)).held().at(0.0).at(60.0).at(120.0);
    assert_eq!(table.record.as_ref().unwrap().counters.lost, 1);
    table.expect(&[60., 120.], &[], 180.);
}

#[test]
fn what_a_dead_node_left_is_run_again_and_then_the_rest() {
    let spec = minutely().at_least_once(secs(30));
    let dead = Table::laid(spec.clone()).held().at(0.0).at(60.0);
    let heir = Table::joined(spec, dead.record).at(61.0).at(89.0).expect(&[], &[], 60.);
    let heir = heir.at(400.0).expect(&[60., 360.], &["missed 120-300 4"], 420.);
    assert_eq!(heir.record.unwrap().counters.started, 2);
}

#[test]
fn a_failed_run_is_tried_again_when_its_time_comes() {
    let spec = minutely().at_least_once(secs(30)).retry(Retry::up_to(3, secs(100)));
    let mut table = Table::laid(spec).held().at(0.0).at(60.0);
    let start = table.live.remove(0);
    let fence = start.claimed.fence;
    let retry = Action::Retry { fence, not_before: at(160.0), cause: RetryCause::Failed("no") };
    table.update(&start, retry, at(60.0));
    let table = table.at(61.0).at(130.0).expect(&[60.], &[], 60.);
    assert_eq!(table.at(160.0).expect(&[60., 60.], &[], 60.).live[0].claimed.attempt, 2);
}

#[test]
fn what_is_given_back_runs_before_what_was_missed_after_it() {
    let all = minutely().catch_up(CatchUp::All { limit: 10 });
    let mut table = Table::laid(all).held().at(0.0);
    let mut requests = table.turn(at(200.0), 10);
    let answer = table.carry_out(&requests[0], at(200.0));
    table.answer(requests.remove(0), answer, at(200.0));
    let start = table.live.remove(0);
    table.update(&start, Action::Release { fence: start.claimed.fence }, at(201.0));
    table.at(201.0).expect(&[60., 60., 120., 180.], &[], 240.);
}

#[test]
fn a_trigger_runs_beside_the_schedule_also_when_paused() {
    let table = Table::laid(minutely()).at(0.0).operator(5.0, Action::Pause { note: "" }).at(6.0);
    let table = table.at(70.0).operator(75.5, Action::Trigger { id: "mine", scheduled_at: None });
    let table = table.at(76.0).expect(&[75.5], &[], 60.);
    table.operator(130.0, Action::Resume { skip: None }).at(130.0).expect(
        &[75.5, 120.],
        &["missed 60-60 1"],
        180.,
    );
}

#[test]
fn a_lost_answer_is_asked_again_with_the_same_claim() {
    for spec in [minutely(), minutely().at_least_once(secs(30))] {
        let table = Table::laid(spec).at(0.0).lost_at(60.0);
        assert_eq!(table.record.as_ref().unwrap().counters.started, 1);
        table.at(61.0).expect(&[60.], &[], 120.);
    }
}

#[test]
fn a_lost_answer_is_planned_anew_and_gives_what_it_had_won() {
    let long = minutely().at_least_once(secs(600)).max_runs(1);
    Table::laid(long).at(0.0).lost_at(60.0).lost_at(121.0).at(185.0).expect(&[60.], &[], None);
    Table::laid(minutely()).at(0.0).lost_at(60.0).at(185.0).expect(
        &[60., 180.],
        &["missed 120-120 1"],
        240.,
    );
}

#[test]
fn lost_registrations_and_skips_are_asked_again() {
    let table = Table::laid(minutely().window(secs(1))).lost_at(0.0).lost_at(1.0).at(2.0);
    table.lost_at(70.0).at(71.0).expect(&[], &[], 120.);
}

#[test]
fn a_lost_look_is_asked_again() {
    let mut waits = Table::laid(minutely().overlap(Overlap::Wait)).at(0.0).at(60.0);
    // Another node's run is believed to be in the way; whether it is, the lost look would tell.
    let (id, _) = waits.planner.slots.iter().next().unwrap();
    let Phase::Known(known) = &mut waits.planner.slots.get_mut(id).unwrap().phase else {
        panic!("it is known");
    };
    known.lease_ends.push((1, at(600.0)));
    waits.lost_at(120.0).at(120.0).expect(&[60., 120.], &[], 180.);
}

#[test]
fn a_take_whose_answer_was_lost_is_asked_again_before_word_is_heeded() {
    let waits = minutely().overlap(Overlap::Wait);
    let mut table = Table::laid(waits).at(0.0);
    let requests = table.turn(at(60.0), 10);
    requests.iter().for_each(|request| drop(table.carry_out(request, at(60.0))));
    table.planner.on_notification("job");
    table.lose(requests, at(60.0));
    table.at(61.0).expect(&[60.], &[], 120.);
}

#[test]
fn word_that_comes_after_an_answer_was_lost_does_not_forget_the_take() {
    for spec in [minutely(), minutely().at_least_once(secs(30))] {
        let mut table = Table::laid(spec).at(0.0).lost_at(60.0);
        // The store is down still; a hint of before, or by another way, arrives.
        table.planner.on_notification("job");
        table.at(61.0).expect(&[60.], &[], 120.);
    }
}

#[test]
fn word_is_heeded_though_the_take_whose_answer_was_lost_is_planned_no_more() {
    let mut table = Table::laid(minutely().window(secs(1))).at(0.0);
    // Lost on its way there, and then too late.
    let requests = table.turn(at(60.0), 10);
    table.lose(requests, at(60.0));
    table = table.operator(70.0, Action::Trigger { id: "mine", scheduled_at: None });
    table.planner.on_notification("job");
    table.at(71.0).at(71.0).expect(&[70.], &["missed 60-60 1"], 120.);
}

#[test]
fn word_that_comes_while_an_answer_is_awaited_is_heeded_after_it() {
    let mut table = Table::laid(minutely()).at(0.0);
    let mut requests = table.turn(at(60.0), 10);
    let answer = table.carry_out(&requests[0], at(60.0));
    table = table.operator(60.0, Action::Trigger { id: "mine", scheduled_at: None });
    table.answer(requests.remove(0), answer, at(60.0));
    table.at(60.0).expect(&[60., 60.], &[], 120.);
}

/// Loses things of an outage in any order: requests, replies, the ends of runs. `seed` selects
/// them.
fn lose_in_any_order(spec: JobSpec, seed: u64) {
    let mut dice = seed;
    // SplitMix64.
    let mut roll = |sides: u64| {
        dice = dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (dice ^ (dice >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    };
    let mut table = Table::laid(spec).held().at(0.0);
    let mut time = 0.0;
    for _ in 0..12 {
        time += roll(70) as f64;
        match roll(6) {
            0 => table = table.at(time),
            1 | 2 => table = table.lost_at(time),
            3 => {
                let requests = table.turn(at(time), 10);
                table.lose(requests, at(time));
            }
            4 => table.planner.on_notification("job"),
            _ => {
                if !table.live.is_empty() {
                    table.end(at(time), Completion::Succeeded);
                }
            }
        }
    }
    table = table.at(time);
    while !table.live.is_empty() {
        table.end(at(time), Completion::Succeeded);
    }
    // Longer than leases last.
    let (begun, back) = (table.ran.len(), time + 200.0);
    table.holds = false;
    let table = table.at(back).at(back + 60.0);
    assert!(table.ran.len() > begun, "seed {seed}: {:?} {:?}", table.told, table.record);
}

#[test]
fn runs_go_on_whatever_was_lost() {
    for seed in 0..2_000 {
        lose_in_any_order(minutely(), seed);
        lose_in_any_order(minutely().overlap(Overlap::Wait), seed);
        lose_in_any_order(minutely().catch_up(CatchUp::All { limit: 1_000 }), seed);
        lose_in_any_order(minutely().at_least_once(secs(30)), seed);
    }
}

#[test]
fn without_room_nothing_is_taken() {
    let mut table = Table::laid(minutely()).at(0.0);
    assert!(table.turn(at(60.0), 0).is_empty());
    table.at(61.0).expect(&[60.], &[], 120.);
}

#[test]
fn a_newer_definition_is_left_alone_and_an_older_one_replaced() {
    let every = |n: u64, version| of(every(secs(n))).version(version);
    let first = Table::laid(every(60, 1)).at(0.0);
    let older = Table::joined(every(10, 0), first.record.clone()).at(1.0);
    older.expect(&[], &["DefinitionConflict"], 60.);
    let newer = Table::joined(every(10, 1), first.record.clone()).at(1.0);
    let newer = newer.expect(&[], &["Redefined"], 11.);
    // The first one meets the new definition: when it is due, or when it looks.
    let outdated = Table { record: newer.record.clone(), ..first };
    outdated.at(60.0).expect(&[], &["DefinitionConflict"], 11.);
}

#[test]
fn a_look_does_not_make_an_outdated_node_fight() {
    let first = Table::laid(minutely()).at(0.0);
    let second = Table::joined(of(every(secs(10))), first.record.clone()).at(1.0);
    let outdated = Table { record: second.record, ..first };
    let outdated = outdated.operator(2.0, Action::Pause { note: "" });
    outdated.at(2.0).expect(&[], &["DefinitionConflict"], 11.);
}

#[test]
fn a_redefinition_keeps_an_instant_that_both_have_and_that_is_pending() {
    let cron = || of(cron("* * * * *").unwrap());
    let first = Table::laid(cron().delay(secs(10))).at(1.0);
    let second = Table::joined(cron().delay(secs(20)), first.record).at(65.0);
    second.at(80.0).expect(&[60.], &["Redefined"], 120.);
}

#[test]
fn deleted_is_deleted_and_forgotten_is_registered_again() {
    let mut table = Table::laid(minutely()).at(0.0);
    table.apply(&Operation::new("job", Action::Delete), "operator", at(1.0)).unwrap();
    table.at(60.0).at(120.0).expect(&[], &["Deleted"], None);
    let mut table = Table::laid(minutely()).at(0.0);
    table.record = None;
    table.at(60.0).at(120.0).expect(&[120.], &["Reregistered"], 180.);
}

/// `next_at` answers as told.
struct Says(fn(Time) -> Option<Time>);

#[async_trait::async_trait]
impl Job for Says {
    fn next_at(&self, after: Time) -> Option<Time> {
        (self.0)(after)
    }
    async fn run(&self, _: Run) -> Result<(), BoxError> {
        Ok(())
    }
}

#[test]
fn a_schedule_that_breaks_its_promise_is_left_alone() {
    let bad: [fn(Time) -> Option<Time>; 4] = [
        |_| panic!("as planned"),
        Some,
        |after| Some(after - TimeDelta::seconds(1)),
        |after| Some(after + TimeDelta::microseconds(999)),
    ];
    for next_at in bad {
        Table::laid(Says(next_at).into()).at(0.0).expect(&[], &["JobInvalid"], None);
    }
    let late = |after: Time| Some(if after < at(60.0) { at(60.0) } else { after });
    Table::laid(Says(late).into()).at(0.0).at(60.0).expect(&[], &["JobInvalid"], 60.);
}

#[test]
fn the_end_of_time_is_never_reached() {
    Table::laid(Says(|_| Some(Time::MAX_UTC)).into()).at(0.0).expect(&[], &[], None);
    Table::laid(Says(|_| None).into()).at(0.0).expect(&[], &[], None);
}

#[test]
fn what_a_store_does_not_grant_is_asked_ever_more_seldom() {
    let mut table = Table::laid(minutely()).at(0.0);
    let mut asked = 0;
    for ms in 0..10_000 {
        let now = at(60.0 + f64::from(ms) / 1_000.0);
        for request in table.turn(now, 10) {
            asked += 1;
            let truth = table.record.as_ref().unwrap().state("job");
            table.answer(request, Reply::State(Box::new(truth)), now);
        }
    }
    assert!((10..40).contains(&asked), "{asked} times in 10 s");
    table.at(80.0).expect(&[60.], &[], 120.);
}

#[test]
fn a_lost_claim_is_repeated_before_an_earlier_run_is_recorded_as_lost() {
    let mut table = Table::laid(minutely()).at(0.0).held().at(60.0);
    // The run of 60 lives on another node, say, and its lease ends between claim and repetition.
    let fence = table.live[0].claimed.fence;
    let start = table.live.remove(0);
    table.update(&start, Action::Extend { fence, duration: secs(32) }, at(89.0));
    table = table.lost_at(120.0).at(122.0).expect(&[60., 120.], &[], 180.);
    assert_eq!(table.record.unwrap().counters.lost, 1, "that of 60 only");
}

#[test]
fn a_lost_claim_comes_first_and_reserves_capacity() {
    let mut planner = Planner::new(1, secs(5), LOST_AFTER);
    let mut records: Vec<Option<Record>> = vec![None; 3];
    for name in ["0", "1", "2"] {
        planner.add(NewJob::new(name.into(), minutely())).unwrap();
    }
    let mut answer = |planner: &mut Planner, requests: Vec<Request>, now: f64| -> usize {
        let mut starts = 0;
        for request in requests {
            let i: usize = request.name.parse().unwrap();
            let context = OpContext::new("me", at(now));
            let history = &mut HistoryBuffer::off();
            let reply = apply(&mut records[i], &request.operation(), context, history).unwrap();
            let answer = Answer::new(reply, at(now));
            starts += usize::from(planner.on_reply(request, answer, &mut Vec::new()).is_some());
        }
        starts
    };
    let events = &mut Vec::new();
    let registrations = planner.tick(at(0.0), 2, events).requests;
    answer(&mut planner, registrations, 0.0);
    let lost = planner.tick(at(60.0), 1, events).requests;
    assert_eq!(lost.len(), 1);
    planner.on_lost_replies(lost, at(61.0), events);
    assert_eq!(planner.unresolved(), 1);
    // First alone, then what else there is capacity for, then alone again.
    let repeated = planner.tick(at(61.0), 2, events).requests;
    assert_eq!(repeated.len(), 1);
    planner.on_lost_replies(repeated, at(62.0), events);
    let others = planner.tick(at(62.0), 2, events).requests;
    assert_eq!(others.len(), 1, "one place of two is reserved");
    assert_eq!(answer(&mut planner, others, 62.0), 1);
    let repeated = planner.tick(at(62.0), 1, events).requests;
    assert_eq!(answer(&mut planner, repeated, 62.0), 1);
    assert_eq!(planner.unresolved(), 0);
}

#[test]
fn a_claim_that_nothing_resolves_is_abandoned_when_its_lease_would_have_ended() {
    let mut table = Table::laid(minutely()).at(0.0);
    for now in [60.0, 61.0, 80.0, 89.0] {
        let requests = table.turn(at(now), 1);
        assert_eq!(requests.len(), 1);
        table.lose(requests, at(now));
    }
    assert_eq!((table.planner.unresolved(), table.told.len()), (1, 0));
    let requests = table.turn(at(91.0), 1);
    table.lose(requests, at(91.0));
    assert_eq!(table.planner.unresolved(), 0);
    table.at(92.0).expect(&[60.], &["ClaimAbandoned"], 120.);
}

#[test]
fn a_removed_job_leaves_nothing_and_its_claim_is_resolved() {
    let mut table = Table::laid(minutely()).at(0.0).lost_at(60.0);
    assert!(table.planner.remove("job").is_some());
    assert_eq!(table.planner.slots.len(), 1, "its claim may have won");
    table.planner.add(NewJob::new("job".into(), minutely())).unwrap();
    let table = table.at(61.0);
    assert_eq!(table.ran, [60.]);
    assert_eq!(table.planner.slots.len(), 1);
    let mut table = table.at(120.0).expect(&[60., 120.], &[], 180.);
    table.planner.remove("job");
    assert_eq!(table.planner.slots.len(), 0);
    for i in 0..10_000 {
        table.planner.add(NewJob::new("job".into(), minutely())).unwrap();
        table = table.at(121.0 + f64::from(i));
        table.planner.remove("job");
    }
    assert_eq!(table.planner.slots.len(), 0);
    assert!(table.planner.queue.len() < 2_000, "{}", table.planner.queue.len());
}

#[test]
fn absent_is_deleted_if_the_store_has_removed_a_tombstone_as_new_as_it() {
    for (newer, told) in [(0, "Deleted"), (-1, "Reregistered")] {
        let mut table = Table::laid(minutely()).at(0.0);
        let fence = table.record.as_ref().unwrap().fence;
        table.planner.on_notification("job");
        let read = table.turn(at(10.0), 1).remove(0);
        let mut events = Vec::new();
        let answer = Answer::new(Reply::Absent, at(10.0)).min_fence(fence + newer);
        table.planner.on_reply(read, answer, &mut events);
        table.tell(events);
        assert_eq!(table.told, [told]);
    }
}

#[test]
fn a_record_that_was_unreadable_for_a_second_is_read_again() {
    let mut table = Table::laid(minutely()).at(0.0);
    table.planner.on_notification("job");
    for now in [10.0, 70.0] {
        let read = table.turn(at(now), 1).remove(0);
        let state = crate::backend::JobState::unreadable("job", "torn");
        table.answer(read, Reply::State(Box::new(state)), at(now));
        assert!(table.turn(at(now + 59.0), 1).is_empty(), "once a minute");
    }
    table.at(130.0).at(180.0).expect(
        &[120., 180.],
        &["JobInvalid", "JobResumed", "missed 60-60 1"],
        240.,
    );
}

#[test]
fn a_leased_job_is_tried_when_its_next_occurrence_is_due_then_ever_more_seldom() {
    let spec = minutely().at_least_once(secs(3_600));
    let mut other = Table::laid(spec.clone()).held().at(0.0).at(60.0);
    let mut table = Table::joined(spec.clone(), other.record.take());
    table.planner = Planner::new(1 << 64, secs(5), LOST_AFTER);
    table.planner.add(NewJob::new("job".into(), spec)).unwrap();
    table = table.at(61.0);
    let mut asked = Vec::new();
    for now in 62..600 {
        let before = table.asked;
        table = table.at(f64::from(now));
        asked.extend((table.asked > before).then_some(now));
    }
    assert_eq!(asked, [120, 125, 130, 140, 160, 200, 260, 320, 380, 440, 500, 560]);
    // The run ends, and nobody tells.
    other.record = table.record.take();
    other.end(at(600.0), Completion::Succeeded);
    table.record = other.record;
    table.at(620.0).expect(&[600.], &["missed 120-540 8"], 660.);
}

#[test]
fn triggers_and_schedule_take_turns() {
    let waits = minutely().overlap(Overlap::Wait);
    let mut table = Table::laid(waits).held().at(0.0);
    for id in ["a", "b", "c"] {
        table = table.operator(30.0, Action::Trigger { id, scheduled_at: Some(at(1.0)) });
    }
    for now in [60.0, 75.0, 90.0, 105.0, 120.0] {
        table = table.at(now);
        table.end(at(now + 14.0), Completion::Succeeded);
    }
    table.expect(&[60., 1., 1., 1., 120.], &[], 180.);
}
