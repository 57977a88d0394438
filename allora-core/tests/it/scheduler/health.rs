//! Everything that is not running is visible: an event at its start, an event at its end, and a line
//! of health between them.

use crate::support::{Lab, Member, Moody, Rates, Seat, Switched, at, ms, secs};
use allora_core::{
    Condition, Event, Health, JobSpec, Notifications, Overlap, Run, Runtime, SchedulerBuilder,
    Schedules, StorePart, StoredSchedule, Time,
    backend::{Action, NewSchedule, Outcome},
    every, job,
    stored::Gap,
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// A scene: a laboratory, a store that can be switched, and one node.
struct Scene {
    lab: Lab,
    store: Switched,
    member: Member,
}

/// The reports that the clock was set back: of stored schedules or jobs in code, and how many wait.
fn set_back(member: &Member) -> Vec<(bool, usize)> {
    let report = |event: Event| match event {
        Event::ClockWasSetBack { stored, waiting, .. } => Some((stored, waiting)),
        _ => None,
    };
    member.events().into_iter().filter_map(report).collect()
}

impl Scene {
    fn new(seed: u64, build: impl FnOnce(&Seat, SchedulerBuilder) -> SchedulerBuilder) -> Self {
        Self::switched(seed, |_| {}, build)
    }

    fn switched(
        seed: u64,
        switch: impl FnOnce(&Switched),
        build: impl FnOnce(&Seat, SchedulerBuilder) -> SchedulerBuilder,
    ) -> Self {
        let lab = Lab::new(seed);
        let clock = lab.clock();
        let store = Switched::new(move || clock.wall());
        switch(&store);
        let member = start(&lab, &store, build);
        Self { lab, store, member }
    }

    fn health(&self) -> Health {
        self.member.handle.health()
    }

    fn schedules(&self) -> Schedules {
        Schedules::on(self.store.clone(), self.lab.clock()).unwrap()
    }

    fn operate(&self, name: &str, action: Action<'_>) {
        let operations = [allora_core::backend::Operation::new(name, action)];
        let time = allora_core::backend::TimeSource::Fixed(self.lab.now());
        let batch = allora_core::backend::Batch::new("operator", time, &operations);
        let applied = allora_core::Backend::reschedule(&self.store, batch);
        self.lab.sim.block_on(applied).unwrap().single().unwrap();
    }

    /// The conditions of jobs in health, as `job: code`.
    fn problems(&self) -> Vec<String> {
        let health = self.health();
        let conditions = health.conditions.iter().map(|one| &one.condition);
        conditions.filter_map(|one| Some(format!("{}: {}", one.job()?, one.code()))).collect()
    }

    /// The time since which the node has the first condition with this code.
    fn since(&self, code: &str) -> Time {
        self.health().with(code).next().unwrap().since
    }

    /// The lines of health that begin with this word.
    fn lines(&self, word: &str) -> Vec<String> {
        let text = self.health().to_string();
        text.lines().filter(|line| line.starts_with(word)).map(str::to_owned).collect()
    }

    /// That these events have come, in this order, and that health has no problem any more.
    #[track_caller]
    fn assert_over(&self, events: &[&str]) {
        let mut news = self.member.news();
        news.retain(|event| event != "Ready");
        assert_eq!(news, events, "{}", self.health());
        assert!(self.health().is_healthy(), "{}", self.health());
    }
}

fn start(
    lab: &Lab,
    store: &Switched,
    build: impl FnOnce(&Seat, SchedulerBuilder) -> SchedulerBuilder,
) -> Member {
    let seat = lab.seat(lab.sim.node());
    let builder = build(&seat, seat.builder_on(store.clone()));
    seat.run(builder.build().unwrap())
}

fn ten(seat: &Seat, b: SchedulerBuilder) -> SchedulerBuilder {
    b.add("job", seat.job(every(secs(10)), ms(0)))
}

#[test]
fn a_node_without_a_problem_says_ok() {
    let scene = Scene::switched(1, |store| store.switches().notifies.store(true, Relaxed), ten);
    let before = scene.health();
    assert_eq!((before.store.last_reply, before.clock_offset_ms), (None, None));
    assert!(!before.is_healthy() && before.to_string().contains("\nstore: no reply yet"));
    scene.lab.until(32.0);
    let health = scene.health();
    assert!(health.is_healthy());
    assert_eq!(health.notifications, Notifications::On);
    assert_eq!(health.clock_offset_ms, Some(0));
    assert!(health.store.age.unwrap() <= secs(5));
    let id = scene.member.handle.node();
    let text = health.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], format!("ok: node {id} at 2026-01-01T00:00:32Z"));
    assert!(lines[1].starts_with("store: last reply "), "{text}");
    assert_eq!(
        lines[2..],
        [
            "notifications: on",
            "clock: agrees with the store's",
            "nodes: 1 live, 1 of them idle, 0 dead",
            "capacity: 0 of 1000 runs",
            "jobs: 1 in code, 0 paused, 0 with a problem"
        ]
    );
}

#[test]
fn a_store_that_hangs_is_not_answering_and_has_rejected_nothing() {
    let scene = Scene::new(2, |seat, b| {
        b.add("job", seat.job(every(secs(10)), ms(0)))
            .add("long", seat.job(every(secs(20)), secs(600)))
    });
    scene.lab.until(25.0);
    scene.member.faults.deaf.store(true, Relaxed);
    scene.lab.until(45.0);
    let health = scene.health();
    assert!(health.at >= at(44.0), "{}", health.at);
    assert!(health.store.age.unwrap() >= secs(14), "{:?}", health.store.age);
    let failing = scene.member.failing();
    let parts: Vec<_> = failing.iter().map(|failing| failing.part).collect();
    assert_eq!(parts, [StorePart::Claims, StorePart::Search, StorePart::Extensions]);
    assert!(!scene.member.has("store-rejects"));
    assert!(failing[0].since >= at(26.0) && failing[0].since < at(33.0));
    let lines = scene.lines("store-down since ");
    assert!(lines[0].contains(": requests to the store fail; trying again: claims: "), "{lines:?}");
    assert!(lines[0].contains("did not answer within 1s"), "{lines:?}");
    scene.member.faults.deaf.store(false, Relaxed);
    scene.lab.until(80.0);
    let mut news = scene.member.news();
    news.retain(|event| event != "OccurrencesMissed");
    assert_eq!(news, ["Ready", "store-down", "store-down over"]);
    assert!(scene.health().is_healthy(), "{}", scene.health());
}

#[test]
fn a_store_that_rejects_is_told_from_one_that_is_slow() {
    let scene = Scene::new(3, ten);
    scene.lab.until(15.0);
    scene.member.faults.refuses.store(true, Relaxed);
    scene.lab.until(25.0);
    assert!(scene.member.failing()[0].error.contains("the store was emptied"));
    assert!(!scene.member.has("store-down"));
    let lines = scene.lines("store-rejects since ");
    assert!(lines[0].contains(": the store rejects requests; trying again: claims"), "{lines:?}");
    scene.member.faults.refuses.store(false, Relaxed);
    scene.lab.until(35.0);
    let mut news = scene.member.news();
    news.retain(|event| event != "OccurrencesMissed");
    assert_eq!(news, ["Ready", "store-rejects", "store-rejects over"]);
    assert!(scene.health().is_healthy());
}

#[test]
fn a_subscription_that_gets_no_reply_is_no_rejection_by_the_store() {
    for is_deaf in [true, false] {
        let switch = |store: &Switched| {
            store.switches().notifies.store(true, Relaxed);
            let flag =
                if is_deaf { &store.switches().is_deaf } else { &store.switches().is_barred };
            flag.store(true, Relaxed);
        };
        let scene = Scene::switched(4, switch, ten);
        scene.lab.until(25.0);
        let health = scene.health();
        assert_eq!(health.notifications, Notifications::Off, "{health}");
        assert!(health.is_healthy(), "the poll finds everything");
        let lines = scene.lines("notifications-down since 2026-01-01T00:00:0");
        let error = if is_deaf { "did not answer" } else { "LISTEN is not allowed" };
        assert!(lines[0].contains(error), "{lines:?}");
        scene.store.switches().is_deaf.store(false, Relaxed);
        scene.store.switches().is_barred.store(false, Relaxed);
        scene.lab.until(45.0);
        scene.assert_over(&["notifications-down", "notifications-down over"]);
        assert_eq!(scene.health().notifications, Notifications::On);
    }
}

#[test]
fn a_full_node_and_a_clock_that_is_off_are_seen_and_their_ends_are() {
    let scene = Scene::new(5, |seat, b| {
        b.concurrency(1)
            .add("long", seat.job(allora_core::at(at(10.0)), secs(30)))
            .add("wait", seat.job(allora_core::at(at(12.0)), ms(0)))
    });
    scene.lab.until(20.0);
    let capacity = scene.health().capacity;
    assert_eq!((capacity.used, capacity.limit), (1, 1));
    assert_eq!(scene.lines("capacity-full since ").len(), 1);
    scene.lab.until(50.0);
    scene.assert_over(&["capacity-full", "capacity-full over"]);
    scene.member.node.set_skew(chrono::TimeDelta::minutes(2));
    scene.lab.until(60.0);
    assert_eq!(scene.health().clock_offset_ms, Some(120_000));
    assert_eq!(scene.lines("clock: "), ["clock: 2 min ahead of the store's, which is used"]);
    scene.member.node.set_skew(chrono::TimeDelta::zero());
    scene.lab.until(70.0);
    scene.assert_over(&["capacity-full", "capacity-full over", "clock-skew", "clock-skew over"]);
}

#[test]
fn an_unreadable_record_is_seen_until_it_can_be_read() {
    let scene = Scene::new(6, ten);
    scene.lab.until(15.0);
    *scene.store.switches().unreadable.lock().unwrap() = Some("job".to_owned());
    scene.lab.until(45.0);
    assert_eq!(scene.problems(), ["job: record-unreadable"]);
    let since = scene.since("record-unreadable");
    assert!(since >= at(20.0) && since < at(21.0), "{since}");
    let lines = scene.lines("record-unreadable since 2026-01-01T00:00:20Z, for 2");
    assert!(lines[0].contains("a newer format; run a build that can read the record"), "{lines:?}");
    *scene.store.switches().unreadable.lock().unwrap() = None;
    scene.lab.until(150.0);
    let news = scene.member.news();
    assert_eq!(news[..3], ["Ready", "record-unreadable", "record-unreadable over"], "{news:?}");
    assert!(scene.health().is_healthy());
}

#[test]
fn a_definition_of_another_node_is_seen_until_they_agree() {
    let scene = Scene::new(7, ten);
    scene.lab.until(15.0);
    let own = |after: Time| Some(after + secs(7));
    let other = start(&scene.lab, &scene.store, |seat, b| b.add("job", seat.job(own, ms(0))));
    scene.lab.until(60.0);
    assert_eq!(scene.problems(), ["job: definition-conflict"]);
    assert!(scene.lines("definition-conflict ")[0].contains("deploy one build on all nodes"));
    other.handle.stop();
    start(&scene.lab, &scene.store, ten);
    scene.lab.until(200.0);
    scene.assert_over(&["definition-conflict", "definition-conflict over"]);
}

#[test]
fn a_schedule_that_panics_is_seen_until_it_does_not() {
    let panics = Arc::new(AtomicBool::new(true));
    let scene = Scene::new(8, |_, b| b.add("job", Moody(panics.clone())));
    scene.lab.until(15.0);
    assert_eq!(scene.problems(), ["job: job-invalid"]);
    assert!(scene.lines("job-invalid ")[0].contains("its schedule panicked: for a moment"));
    panics.store(false, Relaxed);
    scene.lab.until(100.0);
    scene.assert_over(&["job-invalid", "job-invalid over"]);
}

#[test]
fn a_job_with_the_name_of_a_stored_schedule_is_seen_until_that_is_deleted() {
    for is_due_first in [true, false] {
        let mut spec: Option<JobSpec> = None;
        let scene = Scene::new(31, |seat, b| {
            spec = Some(seat.job(every(secs(10)), ms(0)));
            b.kind("k", seat.handler(ms(0), |_| Ok(())))
        });
        let stored = StoredSchedule::new("job", "k", "@every 1s");
        scene.lab.sim.block_on(scene.schedules().add(&stored)).unwrap();
        if is_due_first {
            // The node has it in memory.
            scene.lab.until(5.5);
        }
        scene.member.handle.add("job", spec.unwrap()).unwrap();
        scene.lab.until(95.0);
        assert_eq!(scene.problems(), ["job: job-invalid"]);
        let reason = "a stored schedule of kind \"k\" has this name";
        assert!(scene.lines("job-invalid ")[0].contains(reason), "{}", scene.health());
        scene.operate("job", Action::Delete);
        // It is checked once a minute.
        scene.lab.until(300.0);
        let runs = scene.lab.log.of("job");
        let last: Vec<_> = runs.iter().rev().take(5).map(|run| run.at).collect();
        assert!(last[0] >= at(289.0), "{last:?}");
        assert_eq!(last[0] - last[4], chrono::TimeDelta::seconds(40), "{last:?}");
        scene.assert_over(&["job-invalid", "job-invalid over"]);
    }
}

#[test]
fn a_deleted_job_is_seen_until_another_node_registers_it_or_it_is_removed() {
    for is_removed in [false, true] {
        let scene = Scene::new(9, ten);
        scene.lab.until(15.0);
        scene.operate("job", Action::Delete);
        scene.lab.until(25.0);
        assert_eq!(scene.problems(), ["job: job-deleted"]);
        if is_removed {
            scene.member.handle.remove("job");
            scene.lab.until(30.0);
            scene.assert_over(&["job-deleted", "job-deleted over"]);
        } else {
            start(&scene.lab, &scene.store, ten);
            scene.lab.until(200.0);
            scene.assert_over(&["job-deleted", "job-deleted over"]);
        }
    }
}

#[test]
fn a_stored_schedule_that_no_node_can_run_is_seen_until_it_is_edited_or_deleted() {
    for is_deleted in [false, true] {
        let scene = Scene::new(10, |seat, b| b.kind("t", seat.handler(ms(0), |_| Ok(()))));
        scene.operate(
            "bad",
            Action::Create(NewSchedule::new("t", "nonsense", Some(at(1.0).into()))),
        );
        scene.lab.until(15.0);
        assert_eq!(scene.problems(), ["bad: job-invalid"]);
        if is_deleted {
            scene.operate("bad", Action::Delete);
        } else {
            let good = StoredSchedule::new("bad", "t", "@every 10s");
            let read = scene.lab.sim.block_on(scene.schedules().get("bad")).unwrap();
            let good = good.read_at(read.generation).gap(Gap::Missed);
            scene.lab.sim.block_on(scene.schedules().modify(&good)).map(drop).unwrap();
        }
        scene.lab.until(45.0);
        scene.assert_over(&["job-invalid", "job-invalid over"]);
    }
}

#[test]
fn a_kind_that_no_node_handles_is_seen_until_one_does() {
    let scene = Scene::new(11, |seat, b| b.kind("mail", seat.handler(ms(0), |_| Ok(()))));
    for kind in ["mail", "sms"] {
        let stored = StoredSchedule::new(format!("a {kind}"), kind, "@every 10s");
        scene.lab.sim.block_on(scene.schedules().add(&stored)).unwrap();
    }
    // Another service handles its own kind, and is stopped for a moment.
    let other = |scene: &Scene| {
        start(&scene.lab, &scene.store, |seat, b| b.kind("sms", seat.handler(ms(0), |_| Ok(()))))
    };
    let first = other(&scene);
    scene.lab.until(200.0);
    assert!(scene.health().is_healthy());
    first.handle.stop();
    scene.lab.until(400.0);
    let health = scene.health();
    let [unhandled] = &health.conditions[..] else { panic!("{health}") };
    let says = "no live node handles the kind \"sms\"; 1 waiting, such as \"a sms\", due since ";
    assert!(unhandled.condition.to_string().starts_with(says), "{health}");
    assert!(!health.is_healthy());
    assert_eq!(scene.lines("kind-unhandled since ").len(), 1, "{health}");
    let second = other(&scene);
    scene.lab.until(500.0);
    scene.assert_over(&["kind-unhandled", "kind-unhandled over"]);
    assert_eq!(
        (first.news(), second.news().len()),
        (vec!["Ready".to_owned(), "Stopped".to_owned()], 2)
    );
}

#[test]
fn a_job_that_is_due_and_never_granted_is_overdue() {
    let scene = Scene::new(12, ten);
    scene.lab.until(15.0);
    *scene.store.switches().ungranted.lock().unwrap() = Some("job".to_owned());
    scene.lab.until(75.0);
    assert!(scene.health().is_healthy(), "{}", scene.health());
    scene.lab.until(200.0);
    assert_eq!(scene.problems(), ["job: job-overdue"]);
    assert_eq!(scene.since("job-overdue"), at(20.0));
    assert_eq!(scene.lines("job-overdue since 2026-01-01T00:00:20Z, for 3 min").len(), 1);
    *scene.store.switches().ungranted.lock().unwrap() = None;
    scene.lab.until(300.0);
    let mut news = scene.member.news();
    news.retain(|event| event != "OccurrencesMissed");
    assert_eq!(news, ["Ready", "job-overdue", "job-overdue over"]);
    assert!(scene.health().is_healthy());
}

#[test]
fn a_stored_schedule_that_is_due_and_never_granted_is_overdue() {
    let scene = Scene::new(12, |seat, b| b.kind("mail", seat.handler(ms(0), |_| Ok(()))));
    let digest = StoredSchedule::new("digest", "mail", "@every 10s").starting(at(10.0));
    scene.lab.sim.block_on(scene.schedules().add(&digest)).unwrap();
    scene.lab.until(15.0);
    *scene.store.switches().ungranted.lock().unwrap() = Some("digest".to_owned());
    scene.lab.until(75.0);
    assert!(scene.health().is_healthy(), "{}", scene.health());
    scene.lab.until(200.0);
    assert_eq!(scene.problems(), ["digest: job-overdue"]);
    assert_eq!(scene.since("job-overdue"), at(20.0));
    *scene.store.switches().ungranted.lock().unwrap() = None;
    scene.lab.until(300.0);
    let mut news = scene.member.news();
    news.retain(|event| event != "OccurrencesMissed");
    assert_eq!(news, ["Ready", "job-overdue", "job-overdue over"]);
    assert!(scene.health().is_healthy());
}

#[test]
fn what_other_nodes_run_is_overdue_nowhere() {
    let lab = Lab::new(17);
    let nodes = [(); 8].map(|()| {
        lab.start(|seat, mut b| {
            for n in 0..8 {
                b = b.add(format!("job{n}"), seat.job(every(secs(10)), ms(0)));
            }
            b
        })
    });
    lab.until(400.0);
    for member in nodes {
        let health = member.handle.health();
        assert!(health.is_healthy(), "{health}");
        assert_eq!(member.news(), ["Ready"]);
    }
}

#[test]
fn a_full_node_does_not_report_a_store_that_answers_again() {
    let lab = Lab::new(18);
    let member = lab.start(|seat, b| {
        b.concurrency(1)
            .add("long", seat.job(every(secs(3_600)).phase(secs(10)), secs(3_000)))
            .add("other", seat.job(every(secs(10)).phase(secs(5)), ms(0)))
    });
    lab.until(20.0);
    member.faults.set(Rates { refuse: 1_000, ..Rates::default() });
    lab.operate("other", Action::Pause { note: "", until: None }).unwrap();
    lab.operate("other", Action::Resume).unwrap();
    lab.until(25.0);
    assert!(!member.failing().is_empty(), "{}", member.handle.health());
    member.faults.set(Rates::default());
    lab.until(60.0);
    let health = member.handle.health();
    assert_eq!((health.capacity.used, member.failing().len()), (1, 0), "{health}");
    let is_up = |event: &String| event == "store-down over" || event == "store-rejects over";
    assert!(member.news().iter().any(is_up), "{:?}", member.news());
}

#[test]
fn capacity_that_claims_have_is_not_said_to_be_free() {
    let lab = Lab::new(19);
    let member = lab.start(|seat, b| ten(seat, b.concurrency(1)));
    lab.until(9.9);
    member.faults.deaf_to_claims.store(true, Relaxed);
    lab.until(10.5);
    let health = member.handle.health();
    assert_eq!((health.capacity.used, health.capacity.reserved), (0, 1));
    let text = health.to_string();
    assert!(text.contains("\ncapacity: 0 of 1 runs, and 1 reserved for claims"), "{text}");
    member.faults.deaf_to_claims.store(false, Relaxed);
    lab.until(15.0);
    assert_eq!(member.handle.health().capacity.reserved, 0);
}

#[test]
fn each_wait_for_a_key_ends_for_the_node_that_reported_it() {
    let lab = Lab::new(20);
    let nodes =
        [(); 3].map(|()| lab.start(|seat, b| b.kind("mail", seat.handler(secs(3), |_| Ok(())))));
    for name in ["a", "b", "c"] {
        lab.store(name, "mail", "@every 10s; concurrency-key k");
    }
    lab.until(98.0);
    let number =
        |member: &Member, what: &str| member.news().iter().filter(|event| *event == what).count();
    let waits: Vec<_> = nodes.iter().map(|one| number(one, "key-busy")).collect();
    let ends: Vec<_> = nodes.iter().map(|one| number(one, "key-busy over")).collect();
    assert!(waits.iter().sum::<usize>() > 10, "{waits:?}");
    let open: usize = nodes.iter().map(|one| one.handle.health().with("key-busy").count()).sum();
    assert_eq!(
        waits.iter().sum::<usize>() - open,
        ends.iter().sum::<usize>(),
        "{waits:?} {ends:?}"
    );
}

#[test]
fn what_waits_by_its_own_policy_is_not_overdue() {
    let scene = Scene::new(13, |seat, b| {
        b.add("waits", seat.job(every(secs(10)), secs(300)).overlap(Overlap::Wait))
            .add("leased", seat.job(every(secs(10)), secs(300)).at_least_once(secs(30)))
            .add("paused", seat.job(every(secs(10)), ms(0)))
            .add("keyed", seat.job(allora_core::at(at(20.0)), secs(200)).mutex("key"))
            .add("second", seat.job(allora_core::at(at(21.0)), secs(1)).mutex("key"))
    });
    scene.lab.until(15.0);
    scene.operate("paused", Action::Pause { note: "", until: None });
    scene.lab.until(205.0);
    let health = scene.health();
    assert_eq!((health.paused, scene.problems()), (1, vec!["second: key-busy".to_owned()]));
    let lines = scene.lines("jobs: ");
    assert_eq!(lines, ["jobs: 5 in code, 1 paused, 0 with a problem"]);
    assert_eq!(scene.lines("capacity: "), ["capacity: 3 of 1000 runs"]);
    assert_eq!(scene.lines("key-busy since").len(), 1);
    assert_eq!(scene.member.news(), ["Ready", "key-busy"]);
}

#[test]
fn claims_without_a_reply_are_counted() {
    let scene = Scene::new(14, ten);
    scene.lab.until(5.0);
    scene.member.faults.deaf_to_claims.store(true, Relaxed);
    scene.lab.until(15.0);
    assert_eq!(scene.health().unresolved_claims, 1);
    assert_eq!(scene.lines("claims: "), ["claims: 1 without a reply; repeated"]);
    scene.member.faults.deaf_to_claims.store(false, Relaxed);
    scene.lab.until(25.0);
    assert_eq!(scene.health().unresolved_claims, 0);
}

#[test]
fn a_store_that_hangs_from_the_start_does_not_keep_health_from_its_readers() {
    let scene = Scene::new(15, |seat, b| {
        seat.faults.deaf.store(true, Relaxed);
        b.add("job", seat.job(every(secs(10)), ms(0)))
    });
    scene.lab.until(30.0);
    let health = scene.health();
    assert_eq!((health.jobs, health.store.last_reply), (1, None));
    assert_eq!(scene.member.failing().len(), 1);
    assert_eq!(scene.member.handle.jobs().len(), 1);
    scene.member.handle.stop();
    assert!(scene.health().is_stopping && scene.health().to_string().starts_with("stopping: "));
}

/// User code that asks for the health of its own node.
#[test]
fn user_code_may_ask_for_health_everywhere() {
    let lab = Lab::new(16);
    let seat = lab.seat(lab.sim.node());
    let handle: Arc<std::sync::OnceLock<allora_core::Handle>> = Arc::default();
    let (of_event, of_run) = (handle.clone(), handle.clone());
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = asked.clone();
    let scheduler = allora_core::Scheduler::builder(lab.store.clone())
        .runtime(seat.node.clone())
        .on_event(move |_| {
            if let Some(handle) = of_event.get() {
                count.fetch_add(handle.health().to_string().len() + handle.jobs().len(), Relaxed);
            }
        })
        .add(
            "job",
            job(every(secs(10)), async move |_: Run| {
                if let Some(handle) = of_run.get() {
                    assert_eq!(handle.jobs()[0].running.len(), 1);
                }
            }),
        )
        .build()
        .unwrap();
    assert!(handle.set(scheduler.handle()).is_ok());
    seat.run(scheduler);
    lab.until(25.0);
    assert!(asked.load(Relaxed) > 0);
    assert_eq!(lab.story("job"), ["succeeded 10", "succeeded 20"]);
}

#[test]
fn the_jobs_of_a_node_have_their_next_occurrence_their_last_outcome_and_their_place() {
    let fails = |seat: &Seat| seat.work(every(secs(10)), ms(0), |_| Err("as planned".into()));
    let scene = Scene::new(17, |seat, b| {
        b.add("good", seat.job(every(secs(10)), ms(0)))
            .add("bad", fails(seat))
            .add("here", seat.job(every(secs(10)), ms(0)).on_every_node())
            .add("long", seat.job(allora_core::at(at(12.0)), secs(600)))
            .kind("t", seat.handler(secs(600), |_| Ok(())))
    });
    let stored = StoredSchedule::new("stored", "t", "@every 14s");
    scene.lab.sim.block_on(scene.schedules().add(&stored)).unwrap();
    let before: Vec<_> = scene.member.handle.jobs().into_iter().map(|job| job.name).collect();
    assert_eq!(before, ["bad", "good", "here", "long"]);
    scene.lab.until(15.0);
    let jobs = scene.member.handle.jobs();
    let names: Vec<_> = jobs.iter().map(|job| (job.name.as_str(), job.kind.as_str())).collect();
    assert_eq!(names, [("bad", ""), ("good", ""), ("here", ""), ("long", ""), ("stored", "t")]);
    let next: Vec<_> = jobs.iter().map(|job| job.next.map(|next| next.scheduled_at)).collect();
    assert_eq!(next, [Some(at(20.0)), Some(at(20.0)), Some(at(20.0)), None, None]);
    let last: Vec<_> = jobs.iter().map(|job| job.last.clone()).collect();
    let failed = Some(Outcome::Failed("as planned".to_owned()));
    assert_eq!(last, [failed, Some(Outcome::Succeeded), Some(Outcome::Succeeded), None, None]);
    assert_eq!((jobs[0].last_success, jobs[1].last_success.is_some()), (None, true));
    for job in &jobs[3..] {
        let place = &job.running[0];
        assert!(place.is_here && place.node == scene.member.handle.node());
        assert!(place.since >= Some(at(12.0)) && place.since <= Some(at(14.1)), "{place:?}");
    }
    // A second node learns where it runs when it reads the record.
    let second = start(&scene.lab, &scene.store, |seat, b| {
        b.add("long", seat.job(allora_core::at(at(12.0)), secs(600)))
    });
    scene.lab.until(20.0);
    let job = &second.handle.jobs()[0];
    let place = &job.running[0];
    assert_eq!((place.node.as_str(), place.is_here), (scene.member.handle.node(), false));
    assert_eq!(place.scheduled_at, at(12.0));
    scene.member.handle.remove("good");
    assert!(scene.member.handle.jobs().iter().all(|job| job.name != "good"));
}

#[test]
fn what_the_program_reports_is_a_condition_until_it_reports_something_else() {
    let scene = Scene::new(33, ten);
    scene.lab.until(15.0);
    let report = |conditions: &[&str]| {
        let mut report = allora_core::ProgramReport::default();
        report.conditions.extend(conditions.iter().map(|one| (*one).to_owned()));
        scene.member.handle.report(report);
    };
    report(&["mail.toml: line 3; correct it", "fax.toml: line 9; correct it"]);
    assert!(!scene.health().is_healthy());
    let lines =
        scene.lines("program-report since 2026-01-01T00:00:15Z, for 0.0 s: fax.toml: line 9");
    assert_eq!(lines.len(), 1, "{}", scene.health());
    report(&["mail.toml: line 3; correct it"]);
    assert_eq!(scene.health().with("program-report").count(), 1);
    report(&[]);
    let both = ["program-report", "program-report", "program-report over", "program-report over"];
    scene.assert_over(&both);
}

#[test]
fn jobs_that_wait_for_the_time_of_a_clock_that_was_ahead_are_named_until_they_are_reset() {
    let year = 365.0 * 86_400.0;
    for least_once in [false, true] {
        let scene = Scene::new(18, |seat, b| {
            let job = || match least_once {
                true => seat.job(every(secs(10)), ms(0)).at_least_once(secs(30)),
                false => seat.job(every(secs(10)), ms(0)),
            };
            b.add("one", job())
                .add("two", job())
                .add("monthly", seat.job(every(secs(30 * 86_400)), ms(0)))
                .add("here", seat.job(every(secs(10)), ms(0)).on_every_node())
        });
        scene.lab.until(25.0);
        scene.lab.clock().set_skew(chrono::TimeDelta::days(365));
        scene.lab.until(85.0);
        scene.lab.clock().set_skew(chrono::TimeDelta::zero());
        // At once: with the next poll.
        scene.lab.until(95.0);
        assert_eq!(set_back(&scene.member), [(false, 3)]);
        scene.lab.until(200.0);
        assert_eq!(
            scene.problems(),
            ["monthly: clock-was-ahead", "one: clock-was-ahead", "two: clock-was-ahead"]
        );
        let waits = &scene.health().conditions[1].condition;
        let Condition::ClockWasAhead { until, .. } = waits else { panic!("{waits}") };
        assert!(*until > at(year) && *until < at(year + 100.0), "{waits:?}");
        let lines = scene.lines("clock-was-ahead since 2026-01-01T00:0");
        assert!(lines[1].contains("until 2027-01-01T00:01:"), "{lines:?}");
        assert!(lines[1].contains("`allora reset JOB`"), "{lines:?}");
        // Jobs of this node alone resume by themselves.
        let local = scene.lab.log.of("here");
        assert!(local.last().unwrap().at > at(190.0) && local.last().unwrap().at < at(201.0));
        for name in ["monthly", "one", "two"] {
            scene.lab.sim.block_on(scene.schedules().reset(name)).unwrap();
        }
        scene.lab.until(300.0);
        let mut news = scene.member.news();
        news.retain(|event| ["clock-was-ahead", "clock-was-ahead over"].contains(&event.as_str()));
        assert_eq!(news, [["clock-was-ahead"; 3], ["clock-was-ahead over"; 3]].concat());
        assert!(scene.problems().is_empty(), "{}", scene.health());
        for name in ["one", "two"] {
            let last = scene.lab.log.of(name).last().unwrap().at;
            assert!(last >= at(290.0) && last < at(301.0), "{name}: {last}");
        }
    }
}

#[test]
fn a_node_that_starts_after_the_clock_was_set_back_reports_once_how_many_jobs_wait() {
    let add = |seat: &Seat, b: SchedulerBuilder| {
        b.add("one", seat.job(every(secs(10)), ms(0))).add("two", seat.job(every(secs(10)), ms(0)))
    };
    let scene = Scene::new(20, add);
    let lab = &scene.lab;
    lab.until(25.0);
    lab.clock().set_skew(chrono::TimeDelta::days(1));
    lab.until(85.0);
    scene.member.handle.stop();
    lab.until(86.0);
    lab.clock().set_skew(chrono::TimeDelta::zero());
    let member = start(lab, &scene.store, add);
    lab.until(96.0);
    assert_eq!(set_back(&member), [(false, 2)]);
    let runs = |name| lab.log.of(name).len();
    let before = runs("one");
    lab.until(200.0);
    assert_eq!((runs("one"), set_back(&member).len()), (before, 1), "it waits");
    lab.sim.block_on(scene.schedules().reset("one")).unwrap();
    lab.until(230.0);
    assert!(runs("one") > before && runs("two") == before, "only one was reset");
    let ran = lab.ran("one");
    let once: std::collections::BTreeSet<i64> = ran.iter().map(|at| *at as i64).collect();
    assert_eq!(once.len(), ran.len(), "each occurrence once: {ran:?}");
}

#[test]
fn stored_schedules_that_wait_for_a_clock_that_was_ahead_are_named_too() {
    let scene = Scene::new(19, |seat, b| b.kind("t", seat.handler(ms(0), |_| Ok(()))));
    for (name, kind) in [("one", "t"), ("two", "t"), ("other", "u")] {
        let stored = StoredSchedule::new(name, kind, "@every 10s");
        scene.lab.sim.block_on(scene.schedules().add(&stored)).unwrap();
    }
    scene.lab.until(25.0);
    scene.lab.clock().set_skew(chrono::TimeDelta::days(365));
    scene.lab.until(85.0);
    scene.lab.clock().set_skew(chrono::TimeDelta::zero());
    scene.lab.until(95.0);
    assert_eq!(set_back(&scene.member), [(true, 2)]);
    scene.lab.until(205.0);
    assert_eq!(scene.problems(), ["one: clock-was-ahead", "two: clock-was-ahead"]);
    scene.lab.sim.block_on(scene.schedules().reset("one")).unwrap();
    scene.operate("two", Action::Delete);
    scene.lab.until(330.0);
    let mut news = scene.member.news();
    news.retain(|event| ["clock-was-ahead", "clock-was-ahead over"].contains(&event.as_str()));
    assert_eq!(news, [["clock-was-ahead"; 2], ["clock-was-ahead over"; 2]].concat());
    assert!(scene.problems().is_empty(), "{}", scene.health());
    let last = scene.lab.log.of("one").last().unwrap().at;
    assert!(last >= at(310.0) && last < at(331.0), "{last}");
}
