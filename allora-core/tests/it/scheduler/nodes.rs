//! The registry of nodes, and what it shows: dead nodes, kinds and labels that no node has, jobs
//! that no build declares.

use crate::support::{Lab, Member, Seat, at, ms, secs};
use allora_core::{
    Condition, ErrorKind, Event, Handle, NodeInfo, Overlap, Pattern, Run, Runtime,
    SchedulerBuilder, Schedules, StorePart, StoredSchedule, backend::Action, every, stored::Filter,
};
use std::{sync::atomic::Ordering::Relaxed, time::Duration};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: f64 = 86_400.0;

fn schedules(lab: &Lab) -> Schedules {
    Schedules::on(lab.store.clone(), lab.clock()).unwrap()
}

fn nodes(lab: &Lab) -> Vec<NodeInfo> {
    lab.sim.block_on(schedules(lab).nodes()).unwrap()
}

/// The ids of the nodes that live, or that do not.
fn ids(lab: &Lab, live: bool) -> Vec<String> {
    let nodes = nodes(lab).into_iter().filter(|node| node.is_live == live);
    nodes.map(|node| node.node).collect()
}

fn sorted(members: &[&Member]) -> Vec<String> {
    let mut ids: Vec<String> = members.iter().map(|one| one.handle.node().to_owned()).collect();
    ids.sort();
    ids
}

/// Seldom polls, for tests of days.
fn slow(b: SchedulerBuilder) -> SchedulerBuilder {
    b.poll_interval(HOUR).heartbeat(secs(300))
}

/// The jobs in code that exist in the store.
fn jobs(lab: &Lab) -> Vec<String> {
    let listed = lab.sim.block_on(schedules(lab).list(Filter::default(), None, usize::MAX));
    listed.unwrap().into_iter().map(|state| state.name).collect()
}

fn job(seat: &Seat, seconds: u64) -> allora_core::JobSpec {
    seat.job(every(secs(seconds)), ms(5))
}

#[test]
fn a_node_is_in_the_list_while_it_lives_and_a_dead_one_for_a_day() {
    let lab = Lab::new(1);
    let one = lab.start(|seat, b| {
        slow(b)
            .concurrency(7)
            .build_version("1.2.3")
            .node_labels(["gpu"])
            .add("job", job(seat, 3_600))
    });
    let two = lab.start(|seat, b| {
        slow(b).kind("mail", seat.handler(ms(0), |_| Ok(()))).add("other", job(seat, 3_600))
    });
    let three = lab.start(|_, b| slow(b).kind(Pattern::prefix("x."), async |_| {}));
    lab.until(20.0);
    assert_eq!(ids(&lab, true), sorted(&[&one, &two, &three]));
    let from_a_node = lab.sim.block_on(two.handle.nodes()).unwrap();
    assert_eq!(from_a_node, nodes(&lab));
    let info =
        |handle: &Handle| nodes(&lab).into_iter().find(|node| node.node == handle.node()).unwrap();
    let first = info(&one.handle);
    assert_eq!((first.concurrency, first.running, first.jobs), (7, 0, 1));
    assert_eq!((first.version.as_deref(), first.labels), (Some("1.2.3"), vec!["gpu".to_owned()]));
    assert!(first.kinds.is_empty() && first.heartbeat == secs(300));
    assert_eq!(info(&two.handle).kinds, [Pattern::from("mail")]);
    assert_ne!(info(&two.handle).jobs_hash, first.jobs_hash);
    // A clean stop removes the record, and the end of a process does not.
    three.handle.stop();
    two.node.crash();
    lab.until(30.0);
    assert_eq!(ids(&lab, true), sorted(&[&one, &two]));
    lab.until(2_500.0);
    assert_eq!((ids(&lab, true), ids(&lab, false)), (sorted(&[&one]), sorted(&[&two])));
    let health = one.handle.health();
    assert_eq!((health.nodes.live, health.nodes.dead), (1, sorted(&[&two])));
    let dead = |event: &&Event| matches!(event, Event::Began(Condition::NodeDead { .. }));
    assert_eq!(one.events().iter().filter(dead).count(), 1);
    lab.until(DAY - 600.0);
    assert_eq!(ids(&lab, false), sorted(&[&two]));
    lab.until(DAY + 3_600.0);
    assert_eq!((ids(&lab, true), ids(&lab, false)), (sorted(&[&one]), vec![]));
}

#[test]
fn a_node_that_is_stopped_is_in_the_list_until_its_runs_have_ended() {
    let lab = Lab::new(4);
    let add = |seat: &Seat, b: SchedulerBuilder| {
        b.heartbeat(secs(5))
            .grace(secs(600))
            .add("slow", seat.job(every(secs(10)), secs(100)).overlap(Overlap::Skip))
    };
    let one = lab.start(add);
    lab.until(15.0);
    let (two, idle) = (lab.start(|_, b| b.heartbeat(secs(5))), lab.start(|_, b| b));
    lab.until(40.0);
    one.handle.stop();
    idle.handle.stop();
    for until in [41.0, 70.0, 105.0] {
        lab.until(until);
        let seen = nodes(&lab);
        let it = seen.iter().find(|node| node.node == one.handle.node()).unwrap();
        assert_eq!((it.is_live, it.is_stopping, it.running), (false, true, 1), "{until}");
        assert_eq!((ids(&lab, true), seen.len()), (sorted(&[&two]), 2));
    }
    assert!(two.handle.health().nodes.dead.is_empty());
    lab.until(112.0);
    assert_eq!(nodes(&lab).len(), 1);
    assert!(!two.news().contains(&"node-dead".to_owned()), "{:?}", two.news());
}

#[test]
fn a_node_without_the_store_counts_as_dead_until_it_writes_again() {
    let lab = Lab::new(2);
    let (one, two) = (lab.start(|_, b| b), lab.start(|_, b| b));
    lab.until(90.0);
    two.faults.down.store(true, Relaxed);
    lab.until(300.0);
    assert_eq!(ids(&lab, false), sorted(&[&two]));
    two.faults.down.store(false, Relaxed);
    lab.until(420.0);
    assert_eq!(ids(&lab, true), sorted(&[&one, &two]));
    assert_eq!(one.news(), ["Ready", "node-dead", "node-dead over"]);
}

#[test]
fn a_registry_that_hangs_or_is_refused_delays_no_job_and_no_stop() {
    for is_refused in [false, true] {
        let lab = Lab::new(3);
        let member = lab.start(|seat, b| {
            b.add("job", job(seat, 1)).add("leased", job(seat, 1).at_least_once(secs(3)))
        });
        lab.until(10.5);
        let faults = &member.faults;
        let switch = if is_refused { &faults.refuses_registry } else { &faults.deaf_to_registry };
        switch.store(true, Relaxed);
        lab.until(100.5);
        for name in ["job", "leased"] {
            let all: Vec<f64> = (1..=100).map(f64::from).collect();
            assert_eq!(lab.ran(name), all, "{name}");
            for run in lab.log.of(name) {
                assert!(run.began - run.at <= chrono::TimeDelta::milliseconds(10), "{run:?}");
            }
        }
        let failing = member.failing();
        let parts: Vec<_> = failing.iter().map(|failing| failing.part).collect();
        assert_eq!(parts, if is_refused { vec![StorePart::Registry] } else { vec![] });
        member.handle.stop();
        lab.until(101.6);
        assert!(member.stopped().is_some(), "{is_refused}");
    }
}

#[test]
fn a_kind_is_reported_when_no_live_node_handles_it_with_the_number_that_wait() {
    let lab = Lab::new(4);
    let mail = |seat: &Seat, b: SchedulerBuilder| b.kind("mail", seat.handler(ms(0), |_| Ok(())));
    let one = lab.start(mail);
    // It handles the kind, and does not come to it.
    let two = lab.start(|seat, b| {
        seat.faults.deaf_to_searches.store(true, Relaxed);
        b.kind(Pattern::prefix("sms"), seat.handler(ms(0), |_| Ok(())))
    });
    for name in ["a", "b", "c"] {
        lab.store(name, "sms.eu", "@every 1h");
    }
    lab.until(4_000.0);
    assert!(!one.has("kind-unhandled"));
    two.handle.stop();
    lab.until(4_300.0);
    let health = one.handle.health();
    let unhandled: Vec<_> = health.with("kind-unhandled").map(|one| &one.condition).collect();
    let [Condition::KindUnhandled { kind, waiting, .. }] = &unhandled[..] else {
        panic!("{health}")
    };
    assert_eq!((&**kind, *waiting), ("sms.eu", 3));
    assert!(health.to_string().contains("no live node handles the kind \"sms.eu\"; 3 waiting"));
}

#[test]
fn a_label_that_no_live_node_has_is_reported_until_one_has_it() {
    let lab = Lab::new(5);
    let one = lab.start(|_, b| b);
    one.handle.need_labels(["gpu"]).unwrap();
    let bad = one.handle.need_labels(["a\nb"]).unwrap_err();
    assert_eq!(bad.kind(), ErrorKind::Invalid);
    lab.until(200.0);
    let health = one.handle.health();
    let [unmatched] = &health.conditions[..] else { panic!("{health}") };
    assert!(unmatched.condition.to_string().starts_with("no live node has the label \"gpu\""));
    assert!(!health.is_healthy());
    let two = lab.start(|_, b| b.node_labels(["gpu", "tape"]));
    lab.until(400.0);
    assert!(one.handle.health().is_healthy(), "{}", one.handle.health());
    assert_eq!(one.news(), ["Ready", "label-unmatched", "label-unmatched over"]);
    assert_eq!(two.handle.health().nodes.live, 2);
}

#[test]
fn a_job_that_no_live_build_declares_is_orphaned_and_never_overdue() {
    let lab = Lab::new(6);
    let before = lab.start(|seat, b| b.add("kept", job(seat, 10)).add("old", job(seat, 10)));
    lab.until(100.0);
    before.handle.stop();
    lab.until(110.0);
    let new = lab.start(|seat, b| b.add("kept", job(seat, 10)));
    lab.until(900.0);
    let health = new.handle.health();
    let [orphaned] = &health.conditions[..] else { panic!("{health}") };
    let Condition::JobsOrphaned { count, examples, .. } = &orphaned.condition else {
        panic!("{health}")
    };
    assert_eq!((*count, &examples[..]), (1, &["old".to_owned()][..]));
    assert!(health.is_healthy(), "{:?}", new.news());
    assert!(health.to_string().contains(": no live build declares 1 of the jobs in code"));
    let is_of_a_condition = |event: &String| event != "OccurrencesMissed";
    let news: Vec<String> = new.news().into_iter().filter(is_of_a_condition).collect();
    assert_eq!(news, ["Ready", "jobs-orphaned"]);
    // The build that declares it is back.
    let back = lab.start(|seat, b| b.add("kept", job(seat, 10)).add("old", job(seat, 10)));
    lab.until(1_200.0);
    assert!(!new.has("jobs-orphaned") && !back.has("jobs-orphaned"));
    assert!(jobs(&lab).contains(&"old".to_owned()), "by default nothing is pruned");
}

#[test]
fn the_jobs_of_another_live_service_are_no_orphans() {
    let lab = Lab::new(7);
    let one = lab.start(|seat, b| b.add("one", job(seat, 10)));
    let two = lab.start(|seat, b| b.add("two", job(seat, 10)).add("daily", job(seat, 86_400)));
    lab.until(8_000.0);
    for member in [&one, &two] {
        assert_eq!(member.news(), ["Ready"]);
        assert!(!member.has("jobs-orphaned"));
    }
}

#[test]
fn orphans_are_pruned_after_the_time_that_is_set_and_no_others() {
    let lab = Lab::new(8);
    let before = lab.start(|seat, b| {
        let b =
            b.add("kept", job(seat, 600)).add("old", job(seat, 600)).add("far", job(seat, 864_000));
        b.add("paused", job(seat, 600)).add("failed", {
            seat.work(every(secs(600)), ms(5), |_| Err("no".into())).at_least_once(secs(30))
        })
    });
    lab.until(700.0);
    lab.operate("paused", Action::Pause { note: "", until: None }).unwrap();
    before.handle.stop();
    lab.until(710.0);
    let prune = Some(2 * HOUR);
    let new = lab.start(|seat, b| slow(b).prune_orphans_after(prune).add("kept", job(seat, 600)));
    lab.until(7_000.0);
    let health = new.handle.health();
    let orphaned = health.with("jobs-orphaned").next().map(|one| &one.condition);
    assert!(matches!(orphaned, Some(Condition::JobsOrphaned { count: 4, .. })), "{health}");
    assert_eq!(jobs(&lab), ["failed", "far", "kept", "old", "paused"]);
    lab.until(20_000.0);
    // The next occurrence of one is in days; others have something to decide about.
    assert_eq!(jobs(&lab), ["failed", "far", "kept", "paused"]);
    let pruned = |event: &Event| matches!(event, Event::Pruned { name } if **name == *"old");
    assert!(new.events().iter().any(pruned));
}

#[test]
fn one_off_schedules_that_have_ended_are_removed_after_a_week() {
    let lab = Lab::new(9);
    let text = |seconds: f64| format!("@at {}", at(seconds).to_rfc3339());
    for (name, text) in [
        ("ran", text(100.0)),
        ("later", text(9.0 * DAY)),
        ("many", format!("@every 1h; end {}", at(10_000.0).to_rfc3339())),
        ("single", "@every 1h; max-runs 1".into()),
    ] {
        lab.store(name, "mail", &text);
    }
    lab.start(|seat, b| slow(b).kind("mail", seat.handler(ms(5), |_| Ok(()))));
    lab.until(7.0 * DAY - 3_700.0);
    assert_eq!(jobs(&lab), ["later", "many", "ran", "single"]);
    lab.until(7.0 * DAY + 15_000.0);
    // One of several occurrences is left.
    assert_eq!(jobs(&lab), ["later", "many"]);
}

#[test]
fn records_of_nodes_are_in_no_list_history_or_kind_and_no_job_may_have_their_names() {
    let lab = Lab::new(10);
    let member = lab.start(|seat, b| b.add("job", job(seat, 10)));
    lab.until(100.0);
    let record = format!("allora:node:{}", member.handle.node());
    assert_eq!(jobs(&lab), ["job"]);
    let queries = allora_core::Backend::queries(&lab.store).unwrap();
    assert!(lab.sim.block_on(queries.kinds()).unwrap().is_empty());
    assert!(lab.past(&record).is_empty());
    assert_eq!((lab.state(&record).due_at, lab.state(&record).kind), (None, String::new()));
    let stored = StoredSchedule::new(record.as_str(), "mail", "@every 1h");
    let refused = lab.sim.block_on(schedules(&lab).add(&stored)).unwrap_err();
    assert!(refused.to_string().contains("reserved for nodes"), "{refused}");
    let named = allora_core::job(every(HOUR), async |_: allora_core::Run| {});
    let refused = member.handle.add(record, named).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

#[test]
fn the_progress_of_a_run_is_in_the_next_record_of_its_node_and_is_no_write_of_its_own() {
    let lab = Lab::new(9);
    let counts = |n: u32| {
        let lab = Lab::new(9);
        let worker = lab.start(|seat, b| b.add("job", works(seat, n)));
        lab.until(60.0);
        worker.faults.calls()
    };
    assert_eq!(counts(0), counts(50), "as many requests with progress as without");
    let worker = lab.start(|seat, b| b.add("job", works(seat, 50)));
    lab.until(15.5);
    let place = &worker.handle.jobs()[0].running[0];
    assert_eq!(place.progress.as_deref(), Some("4 of 50"), "on its node at once");
    lab.until(31.0);
    let client = Schedules::on(lab.store.clone(), lab.clock()).unwrap();
    let progress = || lab.sim.block_on(client.progress("job")).unwrap();
    let [run] = &progress()[..] else { panic!("one run") };
    let fence = lab.state("job").leases[0].fence;
    assert!(["18 of 50", "19 of 50"].contains(&&*run.text), "at the last heartbeat: {run:?}");
    assert_eq!(run.fence, fence);
    assert_eq!(lab.sim.block_on(client.progress("other")).unwrap(), []);
    lab.until(90.0);
    assert_eq!(progress(), []);
}

/// A job that tells its progress once a second, so often, and takes 50 s.
fn works(seat: &Seat, tells: u32) -> allora_core::JobSpec {
    let node = seat.node.clone();
    let schedule = allora_core::at(at(10.0));
    allora_core::job(schedule, async move |run: Run| {
        for n in 0..50 {
            node.sleep_until(node.now() + secs(1)).await;
            if n < tells {
                run.set_progress(format!("{n} of {tells}"));
            }
        }
    })
}
