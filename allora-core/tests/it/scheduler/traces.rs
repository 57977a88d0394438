//! The span of a run, what it contains, and the trace context that a trigger brings along.

use crate::support::{Lab, ms, secs};
use allora_core::{BoxError, Event, Retry, Run, every, job, with_traceparent};
use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};
use tracing::{
    Dispatch, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const OTHER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-1111111111111111-01";

type Fields = BTreeMap<&'static str, String>;

/// Collects the spans and the events of the targets of `allora` and of this test.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Collected>>);

#[derive(Default)]
struct Collected {
    spans: Vec<Fields>,
    entered: Vec<usize>,
    /// The events, each with the number of the span that it is in.
    events: Vec<(Option<usize>, Fields)>,
}

/// Numbers are written with a sign, to tell them from text.
struct Reader<'a>(&'a mut Fields);

impl Visit for Reader<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name(), format!("{value:+}"));
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name(), format!("{value:+}"));
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        ["allora", "allora::run", "job"].contains(&metadata.target())
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::new();
        span.record(&mut Reader(&mut fields));
        let mut collected = self.0.lock().unwrap();
        collected.spans.push(fields);
        Id::from_u64(collected.spans.len() as u64)
    }
    fn record(&self, span: &Id, values: &Record<'_>) {
        let span = span.into_u64() as usize - 1;
        values.record(&mut Reader(&mut self.0.lock().unwrap().spans[span]));
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields::new();
        event.record(&mut Reader(&mut fields));
        let mut collected = self.0.lock().unwrap();
        let span = collected.entered.last().copied();
        collected.events.push((span, fields));
    }
    fn enter(&self, span: &Id) {
        self.0.lock().unwrap().entered.push(span.into_u64() as usize - 1);
    }
    fn exit(&self, _: &Id) {
        self.0.lock().unwrap().entered.pop();
    }
}

/// While there is one subscriber alone, `tracing` asks only the thread that comes to a line first whether anybody listens
/// to it, and that may be another test's.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Collector::default()));

/// The spans and the events that a test in a laboratory leaves.
fn collected(test: impl FnOnce(&Lab)) -> Collected {
    LazyLock::force(&SECOND);
    let collector = Collector::default();
    tracing::subscriber::with_default(collector.clone(), || test(&Lab::new(1)));
    std::mem::take(&mut *collector.0.lock().unwrap())
}

#[test]
fn each_run_has_one_span_with_its_fields_that_contains_what_the_job_logs() {
    let collected = collected(|lab| {
        let member = lab.start(|seat, b| {
            let node = seat.node.clone();
            let fails_once = async move |run: Run| -> Result<(), BoxError> {
                tracing::info!(target: "job", "first step");
                use allora_core::Runtime;
                node.sleep_until(node.now() + ms(250)).await;
                tracing::info!(target: "job", "second step");
                if run.attempt() == 1 { Err("no luck".into()) } else { Ok(()) }
            };
            let spec = job(every(secs(3_600)), fails_once).at_least_once(secs(30));
            b.add("report", spec.retry(Retry::up_to(3, secs(5))))
        });
        lab.until(20.0);
        lab.sim.block_on(member.handle.trigger("report", "now")).unwrap();
        lab.until(60.0);
    });
    assert_eq!(collected.spans.len(), 2, "{:?}", collected.spans);
    for (span, attempt) in collected.spans.iter().zip(["+1", "+2"]) {
        assert_eq!((&*span["job"], &*span["kind"], &*span["attempt"]), ("report", "", attempt));
        assert!(span["node"].starts_with("n2"), "{span:?}");
        assert_eq!(span["took_ms"], "+250");
        assert!(span["late_ms"].starts_with('+') && span["fence"].starts_with('+'), "{span:?}");
        assert!(span["scheduled_at"].starts_with("2026-"), "{span:?}");
        assert!(!span.contains_key("traceparent"));
    }
    let outcomes = collected.spans.iter().map(|span| &*span["outcome"]);
    assert_eq!(outcomes.collect::<Vec<_>>(), ["retried", "succeeded"]);
    for span in 0..2 {
        let inside = collected.events.iter().filter(|(inside, _)| *inside == Some(span));
        let said: Vec<&str> = inside.map(|(_, fields)| &*fields["message"]).collect();
        let end = ["run failed; another attempt follows", "run ended"][span];
        assert_eq!(said, ["run started", "first step", "second step", end]);
    }
    // Everything that allora logs says which node it is.
    let of_allora = |fields: &&Fields| !fields["message"].ends_with("step");
    let mut events = collected.events.iter().map(|(_, fields)| fields).filter(of_allora);
    assert!(events.all(|fields| fields["node"].starts_with("n2")));
}

#[test]
fn a_trigger_carries_its_trace_context_to_the_run_and_is_identified_without_it() {
    let runs = Arc::new(Mutex::new(Vec::new()));
    let seen = runs.clone();
    let collected = collected(|lab| {
        let first = lab.start(|seat, b| b.add("local", seat.job(every(secs(3_600)), ms(1))));
        lab.start(|_, b| {
            b.kind("report", async move |run: Run| {
                let (trigger, trace) = (run.trigger(), run.traceparent());
                let key = run.occurrence_key();
                let seen_run = (trigger.map(str::to_owned), trace.map(str::to_owned), key);
                seen.lock().unwrap().push(seen_run);
            })
        });
        lab.store("acme", "report", "@every 1h");
        lab.until(20.0);
        for trace in [TRACE, OTHER] {
            let id = with_traceparent("order 7", trace).unwrap();
            let found = lab.sim.block_on(first.handle.trigger("acme", &id)).unwrap();
            assert!(found.occurrence.trigger.unwrap().ends_with(TRACE));
        }
        lab.until(40.0);
    });
    let runs = runs.lock().unwrap();
    let [(trigger, trace, key)] = &runs[..] else { panic!("{runs:?}") };
    assert_eq!((trigger.as_deref(), trace.as_deref()), (Some("order 7"), Some(TRACE)));
    assert!(key.ends_with("/order 7"), "{key}");
    let [span] = &collected.spans[..] else { panic!("{:?}", collected.spans) };
    assert_eq!((&*span["kind"], &*span["traceparent"]), ("report", TRACE));
}

#[test]
fn the_events_of_a_run_name_its_kind_and_its_node() {
    let lab = Lab::new(1);
    let member = lab.start(|seat, b| {
        b.add("code", seat.job(every(secs(10)), ms(5)))
            .kind("mail", seat.handler(Duration::ZERO, |_| Ok(())))
    });
    lab.store("acme", "mail", "@every 10s");
    lab.until(35.0);
    let mut seen: Vec<(String, String)> = Vec::new();
    for event in member.events() {
        if let Event::RunStarted { name, kind, node, .. }
        | Event::RunEnded { name, kind, node, .. } = event
        {
            assert_eq!(&*node, member.handle.node());
            seen.push((name.to_string(), kind.to_string()));
        }
    }
    seen.sort();
    seen.dedup();
    let pair = |name: &str, kind: &str| (name.to_owned(), kind.to_owned());
    assert_eq!(seen, [pair("acme", "mail"), pair("code", "")]);
}
