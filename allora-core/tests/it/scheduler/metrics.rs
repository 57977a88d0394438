//! The metrics of a node: the table of the guide has what is emitted, and labels are bounded.

use crate::support::{Lab, ms, secs};
use allora_core::{BoxError, Retry, Run, backend::Action, every};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, atomic::Ordering::Relaxed},
};

/// A metric as the table has it: its type, and its labels.
type Shape = (&'static str, BTreeSet<String>);

/// Collects what is emitted.
#[derive(Default)]
struct Collector {
    shapes: Mutex<BTreeMap<String, Shape>>,
    described: Mutex<BTreeSet<String>>,
    values: Arc<Mutex<BTreeMap<String, f64>>>,
}

/// One metric with its labels. A histogram is the sum of its values.
struct Cell {
    series: String,
    values: Arc<Mutex<BTreeMap<String, f64>>>,
}

impl Cell {
    fn change(&self, change: impl FnOnce(f64) -> f64) {
        let mut values = self.values.lock().unwrap();
        let value = values.entry(self.series.clone()).or_default();
        *value = change(*value);
    }
}

impl CounterFn for Cell {
    fn increment(&self, by: u64) {
        self.change(|value| value + by as f64);
    }
    fn absolute(&self, value: u64) {
        self.change(|_| value as f64);
    }
}

impl GaugeFn for Cell {
    fn increment(&self, by: f64) {
        self.change(|value| value + by);
    }
    fn decrement(&self, by: f64) {
        self.change(|value| value - by);
    }
    fn set(&self, value: f64) {
        self.change(|_| value);
    }
}

impl HistogramFn for Cell {
    fn record(&self, value: f64) {
        self.change(|sum| sum + value);
    }
}

impl Collector {
    fn cell(&self, key: &Key, is: &'static str) -> Arc<Cell> {
        let labels = key.labels().map(|label| label.key().to_owned()).collect();
        let before = self.shapes.lock().unwrap().insert(key.name().to_owned(), (is, labels));
        let now = self.shapes.lock().unwrap()[key.name()].clone();
        assert!(before.is_none_or(|before| before == now), "{key} has two shapes");
        let labels: Vec<String> =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let series = format!("{}{{{}}}", key.name(), labels.join(","));
        Arc::new(Cell { series, values: self.values.clone() })
    }

    fn describe(&self, name: KeyName) {
        self.described.lock().unwrap().insert(name.as_str().to_owned());
    }

    fn value(&self, series: &str) -> Option<f64> {
        self.values.lock().unwrap().get(series).copied()
    }
}

impl Recorder for Collector {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(name);
    }
    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(name);
    }
    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(name);
    }
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key, "counter"))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key, "gauge"))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.cell(key, "histogram"))
    }
}

/// The table of the guide.
fn table() -> BTreeMap<String, Shape> {
    let guide = include_str!("../../../../src/guide/monitoring.md");
    let rows = guide.lines().filter(|line| line.starts_with("| `allora_"));
    rows.filter_map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let (name, is, labels) = (cells.next()?, cells.next()?, cells.next()?);
        let is = ["counter", "gauge", "histogram"].into_iter().find(|one| *one == is)?;
        let labels = labels.split(',').map(|label| label.trim().trim_matches('`').to_owned());
        let labels = labels.filter(|label| !label.is_empty()).collect();
        Some((name.trim_matches('`').to_owned(), (is, labels)))
    })
    .collect()
}

#[test]
fn the_table_of_the_guide_has_what_a_troubled_cluster_emits() {
    let collector = Collector::default();
    metrics::with_local_recorder(&collector, || {
        let lab = Lab::new(1);
        let fails = |_: &Run| -> Result<(), BoxError> { Err("no luck".into()) };
        let first = lab.start(|seat, b| {
            b.add("quick", seat.job(every(secs(1)), ms(5)))
                .add("long", seat.job(every(secs(40)), secs(35)).at_least_once(secs(6)))
                .add("one", seat.job(every(secs(10)), secs(4)).concurrency_key("key", 1))
                .add("two", seat.job(every(secs(10)), secs(4)).concurrency_key("key", 1))
                .add(
                    "broken",
                    seat.work(every(secs(30)), ms(5), fails)
                        .at_least_once(secs(10))
                        .retry(Retry::up_to(2, secs(1))),
                )
                .add("steady", seat.job(every(secs(40)), secs(35)).at_least_once(secs(6)))
                .kind("mail", seat.handler(ms(5), |_| Ok(())))
        });
        lab.store("acme", "mail", "@every 10s");
        lab.start(|seat, b| {
            b.add("quick", seat.job(every(secs(1)), ms(5)))
                .add("long", seat.job(every(secs(40)), secs(35)).at_least_once(secs(6)))
        });
        lab.until(45.0);
        first.faults.down.store(true, Relaxed);
        lab.until(70.0);
        first.faults.down.store(false, Relaxed);
        lab.until(100.0);
        // Its run loses its lease.
        let (incarnation, first) = (lab.state("steady").incarnation, None);
        lab.operate("steady", Action::Reset { incarnation, first }).unwrap();
        lab.until(150.0);
    });
    let emitted = std::mem::take(&mut *collector.shapes.lock().unwrap());
    assert_eq!(emitted, table());
    let described = collector.described.lock().unwrap().clone();
    assert_eq!(described, emitted.into_keys().collect());
    let failed = collector.value("allora_dead_letters_total{job=broken,kind=}");
    assert!(failed.is_some_and(|count| count >= 3.0), "{failed:?}");
    let mails = "allora_occurrences_total{job=,kind=mail,outcome=succeeded,reason=}";
    assert!(collector.value(mails).is_some_and(|count| count >= 8.0));
    let down = "allora_store_errors_total{operation=reschedule,error=unavailable}";
    assert!(collector.value(down).is_some_and(|count| count > 1.0));
}

#[test]
fn runs_are_counted_by_outcome_from_zero_and_a_gauge_goes_back() {
    let collector = Collector::default();
    let next = metrics::with_local_recorder(&collector, || {
        let lab = Lab::new(1);
        lab.start(|seat, b| b.add("job", seat.job(every(secs(10)), ms(500))));
        lab.until(45.0);
        collector.value("allora_next_due_timestamp_seconds{}")
    });
    let occurrences = "allora_occurrences_total{job=job,kind=,outcome=succeeded,reason=}";
    assert_eq!(collector.value(occurrences), Some(4.0));
    for zero in [
        "allora_occurrences_total{job=job,kind=,outcome=failed,reason=}",
        "allora_occurrences_total{job=job,kind=,outcome=missed,reason=window}",
        "allora_dead_letters_total{job=job,kind=}",
        "allora_claims_failed_total{reason=no_reply}",
        "allora_store_errors_total{operation=reschedule,error=unavailable}",
    ] {
        assert_eq!(collector.value(zero), Some(0.0), "{zero} begins before the first failure");
    }
    assert_eq!(collector.value("allora_runs_active{}"), Some(0.0));
    assert_eq!(collector.value("allora_run_duration_seconds{job=job,kind=}"), Some(2.0));
    assert_eq!(next, Some(1_767_225_600.0 + 50.0));
}

#[test]
fn the_gauges_of_a_node_that_has_stopped_show_no_work() {
    let gauges = [
        "allora_runs_active{}",
        "allora_jobs_overdue{}",
        "allora_concurrency_key_waiting{key=key}",
        "allora_conditions{code=key-busy}",
        "allora_conditions{code=capacity-full}",
    ];
    for is_dropped in [false, true] {
        let collector = Collector::default();
        metrics::with_local_recorder(&collector, || {
            let lab = Lab::new(1);
            let member = lab.start(|seat, b| {
                b.grace(secs(10))
                    .concurrency(2)
                    .add("one", seat.job(every(secs(10)), secs(1_000)).mutex("key"))
                    .add("two", seat.job(every(secs(10)), secs(1_000)).mutex("key"))
                    .add("three", seat.job(every(secs(20)), secs(1_000)))
                    .add("four", seat.job(every(secs(30)), secs(1_000)))
            });
            lab.until(190.0);
            assert!(gauges.iter().all(|gauge| collector.value(gauge) >= Some(1.0)));
            match is_dropped {
                false => member.handle.stop(),
                true => member.node.crash(),
            }
            lab.until(210.0);
        });
        for gauge in gauges {
            assert_eq!(collector.value(gauge), Some(0.0), "{gauge}, dropped: {is_dropped}");
        }
        let next = collector.value("allora_next_due_timestamp_seconds{}");
        assert_eq!(next, Some(f64::INFINITY));
    }
}

#[test]
fn names_after_the_first_thousand_share_a_label() {
    let collector = Collector::default();
    metrics::with_local_recorder(&collector, || {
        let lab = Lab::new(1);
        lab.start(|seat, b| {
            let job = || seat.job(every(secs(60)), ms(0));
            (0..1_005).fold(b.concurrency(2_000), |b, i| b.add(format!("job {i:04}"), job()))
        });
        lab.until(70.0);
    });
    let values = collector.values.lock().unwrap();
    let of = |prefix: &str| values.keys().filter(|key| key.starts_with(prefix)).count();
    assert_eq!(of("allora_leases_lost_total{"), 1_001);
    let other = "allora_occurrences_total{job=other,kind=,outcome=succeeded,reason=}";
    assert_eq!(values[other], 5.0);
}
