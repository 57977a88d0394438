//! The planner and the record agree: what is decided from a record is granted by it.

use super::*;
use crate::{
    backend::{Advance, CancelScope},
    planner::{
        job::decide::{Claimant, Decision, GiveUp, decide},
        job::known::Known,
    },
};

const LEASE: u64 = 30;

/// A record with a trigger of 24 that runs on a node which dies, and whose lease ends at 54.
fn of_a_dead_node(spec: &JobSpec) -> Option<Record> {
    let job = OneJob::new(spec.clone()).at(0.0).at(10.0).at(20.0);
    let job = job.operator(24.0, Action::trigger("mine")).held().at(24.0);
    assert_eq!(job.ran.last(), Some(&24.));
    job.record
}

#[test]
fn a_trigger_whose_node_died_runs_again_when_its_lease_ends_and_then_the_schedule() {
    let spec = of(every(secs(10))).at_least_once(secs(LEASE));
    let mut job = OneJob::found(spec.clone(), of_a_dead_node(&spec));
    job.planner = Planner::new(config(1 << 64, secs(5)));
    job.planner.add("job".into(), spec).unwrap();
    job.at(25.0).at(54.0).at(60.0).expect(&[24., 50., 60.], &["missed 30-40 2"], 70.);
}

#[test]
fn many_triggers_whose_node_died_all_run_again() {
    let spec = of(every(secs(10))).at_least_once(secs(LEASE));
    let mut record = of_a_dead_node(&spec);
    for i in 0..20 {
        let id = format!("more-{i}");
        let trigger = Operation::new("job", Action::trigger(&id));
        let context = OpContext::new("operator", at(26.0));
        apply(&mut record, &trigger, context, &mut HistoryBuffer::off()).unwrap();
    }
    let mut job = OneJob::found(spec.clone(), record);
    job.planner = Planner::new(config(1 << 64, secs(5)));
    job.planner.add("job".into(), spec).unwrap();
    let job = job.at(25.0).at(54.0).at(60.0);
    assert_eq!(job.ran.iter().filter(|at| **at == 24. || **at == 26.).count(), 21);
    assert_eq!(job.record.unwrap().cursor.map(|next| seconds(next.scheduled_at)), Some(70.));
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }
}

/// The definitions by which the nodes of a fleet may run one job, one after the other.
fn specs() -> Vec<JobSpec> {
    let job = || of(every(secs(10)));
    vec![
        job(),
        job().overlap(Overlap::Skip),
        job().overlap(Overlap::Wait),
        job().overlap(Overlap::Replace),
        job().window(secs(4)),
        job().at_least_once(secs(LEASE)),
        job().at_least_once(secs(LEASE)).catch_up(CatchUp::All { limit: 3 }),
        job().at_least_once(secs(LEASE)).window(secs(4)),
    ]
}

/// Applies a decision to the record, and says whether the record granted it.
fn is_granted(
    record: &mut Option<Record>,
    decision: &Decision,
    now: Time,
) -> Result<bool, &'static str> {
    let mut answer = |action| {
        let operation = Operation::new("job", action);
        apply(record, &operation, OpContext::new("me", now), &mut HistoryBuffer::off()).unwrap()
    };
    Ok(match decision {
        Decision::Claim { claim, .. } => {
            matches!(answer(Action::Claim(claim.clone())), Reply::Claimed(_))
        }
        Decision::Advance(advance) => {
            let Advance { then, .. } = *advance;
            matches!(answer(Action::Advance(*advance)), Reply::State(state) if state.next == then)
        }
        Decision::GiveUp(GiveUp { fence, occurrence, then, error, .. }) => {
            let (fence, occurrence, then) = (*fence, occurrence.clone(), *then);
            answer(Action::GiveUp { fence, occurrence, then, error }) == Reply::Accepted
        }
        Decision::Replace(it) => {
            let (generation, expected, by) = (it.generation, it.expected, it.by);
            match answer(Action::Replace { generation, expected, by }) {
                Reply::State(state) => state.leases.iter().any(|lease| lease.replaced_by.is_some()),
                _ => false,
            }
        }
        Decision::Reap => match answer(Action::Reap) {
            Reply::State(state) => {
                Known::of(&state, now).next_lease_end().is_none_or(|end| end > now)
            }
            _ => false,
        },
        Decision::Wait | Decision::Blocked(_) | Decision::Walk | Decision::Read => {
            return Err("nothing is asked");
        }
    })
}

/// Claims, ends, leases that end, triggers, pauses, cancellations and other definitions, in any order.
/// Whatever is decided from the present record is granted, so that no job stands still.
#[test]
fn what_is_decided_from_the_present_record_is_granted() {
    let specs = specs();
    let mut granted = [0; 5];
    for seed in 0..3_000 {
        let mut random = Random(seed);
        let (mut record, mut now) = (None, 0.0);
        let mut spec = &specs[random.below(specs.len() as u64) as usize];
        let is_mixed = random.below(3) == 0;
        let first = crate::backend::NextRun { scheduled_at: at(10.0), due_at: at(10.0) };
        let register = Action::Register { definition: "d", version: 0, first: Some(first) };
        let mut history = HistoryBuffer::off();
        let register = Operation::new("job", register);
        apply(&mut record, &register, OpContext::new("me", at(0.0)), &mut history).unwrap();
        let mut story = Vec::new();
        for step in 0..60 {
            now += random.below(8_000) as f64 / 1_000.0;
            if is_mixed && random.below(6) == 0 {
                spec = &specs[random.below(specs.len() as u64) as usize];
            }
            let state = record.as_ref().unwrap().state("job");
            let id = step.to_string();
            let lease = match state.leases.len() {
                0 => None,
                n => Some(state.leases[random.below(n as u64) as usize].clone()),
            };
            let action = match (random.below(14), lease) {
                (0 | 1, _) => Some(Action::trigger(&id)),
                (2, _) => {
                    let span = random.below(20_000) as f64 / 1_000.0;
                    let until = (random.below(2) == 0).then(|| at(now + 1.0 + span));
                    Some(Action::Pause { note: "", until })
                }
                (3 | 4, _) => Some(Action::Resume),
                (5, Some(_)) => Some(Action::Cancel(CancelScope::All)),
                (6, Some(lease)) => Some(Action::Release { fence: lease.fence }),
                (7, Some(lease)) => Some(Action::Retry {
                    fence: lease.fence,
                    not_before: at(now + 3.0),
                    cause: RetryCause::Failed("failed"),
                }),
                (8 | 9, Some(lease)) => {
                    let (fence, started) = (lease.fence, state.counters.started);
                    let then =
                        crate::planner::completion_of("job", spec, &lease.occurrence, started);
                    let then = then.unwrap();
                    let completion = Completion::Succeeded;
                    Some(Action::Complete { fence, then, completion })
                }
                _ => None,
            };
            if let Some(action) = action {
                story.push(format!("{now} {action:?}"));
                let operation = Operation::new("job", action);
                let context = OpContext::new("operator", at(now));
                let _ = apply(&mut record, &operation, context, &mut history);
                continue;
            }
            // As a node does until nothing is to be done.
            for i in 0..20 {
                let (read, context) = (Operation::read("job"), OpContext::new("me", at(now)));
                let state = apply(&mut record, &read, context, &mut history).unwrap().state();
                let state = state.unwrap();
                let known = Known::of(&state, at(now));
                let claimant = Claimant {
                    claim_id: u128::from(seed) << 64 | (step << 8 | i),
                    lost_after: LOST_AFTER,
                    extra_attempts: 3,
                    cursor_went_last: random.below(2) == 0,
                    waits_since: None,
                    key_is_held: true,
                };
                let decision = decide("job", spec, &known, None, at(now), claimant).unwrap();
                let Ok(is_granted) = is_granted(&mut record, &decision, at(now)) else { break };
                story.push(format!("{now} {decision:?}"));
                assert!(is_granted, "seed {seed}: {}\n{state:#?}", story.join("\n"));
                let sort = match decision {
                    Decision::Claim { .. } => 0,
                    Decision::Advance(_) => 1,
                    Decision::GiveUp(_) => 2,
                    Decision::Replace(_) => 3,
                    _ => 4,
                };
                granted[sort] += 1;
            }
        }
    }
    assert!(granted.iter().all(|count| *count > 100), "{granted:?}");
}
