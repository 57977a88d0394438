//! Handlers whose kinds change while their node runs.

use super::{Seen, add, news};
use crate::support::{Lab, Member, Rates, Seat, at, ms, secs};
use allora_core::{
    ErrorKind, Pattern, Run, Runtime, SchedulerBuilder, StoredSchedule, backend::Outcome,
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

const NONE: [&str; 0] = [];

/// A node with the handler "w" for these kinds, which tells its runs.
fn start(lab: &Lab, kinds: &[&str], limit: Option<usize>, seen: &Seen) -> Member {
    let (kinds, told) = (kinds.iter().copied().map(Pattern::from_text), seen.clone());
    lab.start(|_, b| b.named_handler("w", kinds, limit, async move |run: Run| told.run(&run)))
}

/// Adds schedules of these kinds that are due every 10 s, named like their kinds.
fn every_ten_seconds(lab: &Lab, kinds: &[&str]) {
    for kind in kinds {
        add(lab, StoredSchedule::new(*kind, *kind, "@every 10s"));
    }
}

#[test]
fn a_handler_runs_the_kinds_that_it_has_at_present() {
    for limit in [None, Some(9)] {
        let lab = Lab::new(1);
        let seen = Seen::default();
        let node = start(&lab, &[], limit, &seen);
        every_ten_seconds(&lab, &["sms", "mail.a", "mail.b"]);
        lab.until(12.0);
        assert_eq!(seen.take(), NONE);
        node.handle.set_kinds("w", ["sms"]).unwrap();
        lab.until(12.5);
        assert_eq!(seen.take(), ["sms 10"], "at once, {limit:?}");
        node.handle.set_kinds("w", [Pattern::prefix("mail."), "mail.a".into()]).unwrap();
        lab.until(21.0);
        assert_eq!(
            seen.sorted(),
            ["mail.a 10", "mail.a 20", "mail.b 10", "mail.b 20"],
            "{limit:?}"
        );
        node.handle.set_kinds("w", NONE).unwrap();
        lab.until(42.0);
        assert_eq!(seen.take(), NONE, "{limit:?}");
    }
}

#[test]
fn a_kind_that_is_removed_just_before_its_time_is_not_claimed() {
    for limit in [None, Some(9)] {
        let lab = Lab::new(2);
        let seen = Seen::default();
        let node = start(&lab, &["sms", "mail"], limit, &seen);
        every_ten_seconds(&lab, &["sms", "mail"]);
        // The search has found both by now.
        lab.until(9.999);
        node.handle.set_kinds("w", ["mail"]).unwrap();
        let claims = node.faults.claims.load(Relaxed);
        lab.until(19.0);
        assert_eq!(seen.take(), ["mail 10"]);
        let claims = node.faults.claims.load(Relaxed) - claims;
        assert!(claims <= 1, "{claims} claims, {limit:?}");
        assert_eq!(lab.state("sms").counters.started, 0, "{limit:?}");
    }
}

#[test]
fn what_a_claim_on_its_way_brings_of_a_removed_kind_is_released_and_no_attempt() {
    for (limit, once) in [(None, false), (Some(9), false), (Some(9), true)] {
        let lab = Lab::new(3);
        let (seen, other) = (Seen::default(), Seen::default());
        let node = start(&lab, &["sms"], limit, &seen);
        let sms = StoredSchedule::new("sms", "sms", "@every 60s");
        add(&lab, if once { sms.at_most_once() } else { sms });
        lab.until(59.0);
        node.faults.set(Rates { delay: 1_000, delay_ms: 400, ..Rates::default() });
        // Until the store has the claim, and the node has no reply yet.
        while lab.state("sms").leases.is_empty() {
            assert!(lab.now() < at(62.0), "never claimed");
            lab.sim.run_until(lab.now() + chrono::TimeDelta::milliseconds(1));
        }
        node.handle.set_kinds("w", NONE).unwrap();
        lab.until(65.0);
        assert_eq!(seen.take(), NONE);
        assert_eq!(lab.story("sms"), ["released 60"], "{limit:?}");
        start(&lab, &["sms"], None, &other);
        lab.until(70.0);
        assert_eq!(other.take(), ["sms 60"]);
        let last = lab.past("sms").pop().unwrap();
        assert_eq!((last.attempt, last.outcome), (1, Outcome::Succeeded), "{limit:?}");
    }
}

#[test]
fn an_active_run_goes_on_when_its_kind_is_removed() {
    let lab = Lab::new(4);
    let node = lab.start(|seat, b| {
        b.named_handler("w", ["sms"], Some(1), seat.handler(secs(100), |_| Ok(())))
    });
    add(&lab, StoredSchedule::new("sms", "sms", "@every 10s").max_runs(1));
    lab.until(11.0);
    node.handle.set_kinds("w", NONE).unwrap();
    node.handle.set_kind_limit("w", 0).unwrap();
    lab.until(200.0);
    assert_eq!(lab.story("sms"), ["succeeded 10"]);
}

#[test]
fn a_node_without_kinds_asks_the_store_for_its_clock_and_writes_its_record() {
    let calls = |kinds: &[&str], limit| {
        let lab = Lab::new(5);
        every_ten_seconds(&lab, &["sms", "mail"]);
        let node = start(&lab, kinds, limit, &Seen::default());
        lab.until(10.0);
        let before = node.faults.calls();
        lab.until(70.0);
        node.faults.calls() - before
    };
    // Polls, heartbeats with looks, and the look for kinds without a handler.
    let (none, full) = (calls(&[], None), calls(&["sms"], Some(0)));
    assert!((12..=22).contains(&none), "{none}");
    assert!((12..=24).contains(&full), "{full}");
    assert!(calls(&["sms"], None) > 30);
}

#[test]
fn a_limit_that_changes_is_the_largest_number_of_active_runs() {
    let lab = Lab::new(6);
    let node = lab.start(|seat, b| {
        let takes = seat.handler(secs(5), |_| Ok(()));
        b.named_handler("w", ["slow"], Some(0), takes)
    });
    for n in 0..60 {
        add(&lab, StoredSchedule::new(format!("s{n:02}"), "slow", "@every 10s").max_runs(1));
    }
    let mut ran = 0;
    for (until, limit, runs) in [(20.0, 2, 0), (30.2, 5, 4), (40.4, 0, 15), (60.0, 0, 15)] {
        lab.until(until);
        ran = lab.log.entries().len();
        assert!(ran.abs_diff(runs) <= 5 && (runs > 0 || ran == 0), "{ran} at {until}");
        assert!(node.handle.running() <= 5);
        node.handle.set_kind_limit("w", limit).unwrap();
    }
    lab.until(70.0);
    assert_eq!(lab.log.entries().len(), ran, "none with the limit 0");
    node.handle.set_kind_limit("w", 60).unwrap();
    lab.until(70.1);
    assert_eq!(node.handle.running(), 60 - ran);
    let capacity = &node.handle.health().kind_capacity[0];
    assert_eq!((&*capacity.kinds, capacity.limit, capacity.used), ("slow", 60, 60 - ran));
}

#[test]
fn a_kind_that_nodes_have_given_up_is_reported_until_one_has_it_again() {
    let lab = Lab::new(7);
    let seen = Seen::default();
    let nodes = [(); 2].map(|()| start(&lab, &["sms"], None, &seen));
    every_ten_seconds(&lab, &["sms"]);
    lab.until(100.0);
    nodes[0].handle.set_kinds("w", NONE).unwrap();
    lab.until(500.0);
    assert_eq!(news(&nodes[0], "kind-unhandled"), 0, "the other node has it");
    nodes[1].handle.set_kinds("w", NONE).unwrap();
    lab.until(900.0);
    assert!(nodes.iter().all(|node| node.has("kind-unhandled")));
    nodes[0].handle.set_kinds("w", ["sms"]).unwrap();
    lab.until(1_200.0);
    assert!(nodes.iter().all(|node| !node.has("kind-unhandled")));
    let info = lab.sim.block_on(nodes[1].handle.nodes()).unwrap();
    let with = info.iter().filter(|node| node.handles("sms")).count();
    assert_eq!(with, 1, "{info:?}");
}

#[test]
fn a_change_that_cannot_be_is_refused_and_changes_nothing() {
    let lab = Lab::new(8);
    let seen = Seen::default();
    let told = seen.clone();
    let node = lab.start(|_, b| {
        b.kind("http", async |_: Run| {}).named_handler(
            "w",
            ["sms"],
            None,
            async move |run: Run| {
                told.run(&run);
            },
        )
    });
    let refused = |id: &str, kinds: &[&str]| {
        node.handle.set_kinds(id, kinds.iter().copied()).unwrap_err().to_string()
    };
    assert!(refused("v", &["sms"]).contains("no handler of this node is named \"v\""));
    assert!(refused("w", &["mail", "http"]).contains("\"http\" would never run"));
    assert!(refused("w", &["b\nad"]).contains("U+000A"));
    let limit = |id| node.handle.set_kind_limit(id, 1).unwrap_err().kind();
    assert_eq!((limit("v"), limit("w")), (ErrorKind::NotFound, ErrorKind::Invalid));
    every_ten_seconds(&lab, &["sms", "mail"]);
    lab.until(11.0);
    assert_eq!(seen.take(), ["sms 10"]);
    let nothing = async |_: Run| {};
    let twice = |b: SchedulerBuilder| {
        b.named_handler("w", NONE, None, nothing).named_handler("w", NONE, None, nothing)
    };
    let built = twice(lab.seat(lab.sim.node()).builder()).build();
    assert_eq!(built.unwrap_err().kind(), ErrorKind::AlreadyExists);
}

/// A gateway of the simulation: workers ask for kinds and leave again, at random.
fn wanders(seat: &Seat, b: SchedulerBuilder, most: usize) -> SchedulerBuilder {
    let (node, log) = (seat.node.clone(), seat.log.clone());
    let active = Arc::new(AtomicUsize::new(0));
    b.named_handler("w", NONE, Some(0), async move |run: Run| {
        assert!(active.fetch_add(1, Relaxed) < most, "more runs than ever asked for");
        let execution = log.begin(&run);
        node.sleep_until(node.now() + ms(300)).await;
        execution.over(crate::support::Over::Ran);
        active.fetch_sub(1, Relaxed);
    })
}

#[test]
fn every_occurrence_runs_once_whatever_kinds_come_and_go() {
    for seed in 0..6 {
        let lab = Lab::new(70 + seed);
        let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = |most: u64| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice % most
        };
        let nodes = [(); 3].map(|()| {
            lab.start(|seat, b| {
                seat.faults.has_no_due_claims.store(seed % 2 == 0, Relaxed);
                seat.rates(Rates { delay: 500, delay_ms: 80, lose_reply: 20, ..Rates::default() });
                wanders(seat, b, 4)
            })
        });
        let kinds = ["a", "b", "x.1", "x.2"];
        for n in 0..24 {
            let kind = kinds[n % kinds.len()];
            let name = format!("{kind} {n:02}");
            add(&lab, StoredSchedule::new(name, kind, "@every 7s").max_runs(10));
        }
        for step in 0..600 {
            lab.until(f64::from(step) * 0.25);
            let node = &nodes[draw(3) as usize];
            let own = [vec![], vec!["a"], vec!["b", "x.*"], vec!["a", "b", "x.*"], vec!["x.1"]];
            let own = own[draw(5) as usize].iter().copied().map(Pattern::from_text);
            node.handle.set_kinds("w", own).unwrap();
            node.handle.set_kind_limit("w", draw(5) as usize).unwrap();
        }
        for node in &nodes {
            node.handle.set_kinds("w", kinds).unwrap();
            node.handle.set_kind_limit("w", 4).unwrap();
        }
        lab.until(260.0);
        let mut ends: BTreeMap<&str, usize> = BTreeMap::new();
        for n in 0..24 {
            let name = format!("{} {n:02}", kinds[n % kinds.len()]);
            let state = lab.state(&name);
            assert_eq!(state.counters.succeeded, 10, "{name}, seed {seed}: {state:?}");
            assert!(state.dead.is_empty() && state.counters.failed == 0, "{name}, seed {seed}");
            for entry in lab.past(&name) {
                assert_eq!(entry.attempt.max(1), 1, "{name}, seed {seed}: {entry:?}");
                *ends.entry(entry.outcome.word()).or_default() += 1;
            }
        }
        assert!(ends["released"] > 0 && ends["succeeded"] == 240, "seed {seed}: {ends:?}");
    }
}
