//! Metrics for Prometheus, and runs as spans of OpenTelemetry that belong to the trace of the request
//! that triggered them: `cargo run -p allora-example-telemetry`.

use allora::{BoxError, Memory, Next, Run, Scheduler, every, with_traceparent};
use metrics_exporter_prometheus::PrometheusBuilder;
use opentelemetry::{
    propagation::TextMapPropagator,
    trace::{SpanId, TraceId, TracerProvider as _},
};
use opentelemetry_sdk::{
    propagation::TraceContextPropagator,
    trace::{InMemorySpanExporter, SdkTracerProvider},
};
use std::{collections::HashMap, time::Duration};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{layer::SubscriberExt, util::SubscriberInitExt};

/// The header `traceparent` of the request that triggers the run.
const REQUEST: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Makes the run's span a child of the trigger's. It needs a layer without context activation: with it,
/// a span has begun, and has its parent, when it is entered for the first time.
async fn continue_trace(run: Run, next: Next) -> Result<(), BoxError> {
    if let Some(traceparent) = run.traceparent() {
        let carrier = HashMap::from([("traceparent".to_owned(), traceparent.to_owned())]);
        Span::current().set_parent(TraceContextPropagator::new().extract(&carrier))?;
    }
    next.run(run).await
}

async fn demonstrate() -> Result<(String, Vec<(TraceId, SpanId)>), BoxError> {
    // In a service: `.with_http_listener(([0, 0, 0, 0], 9090)).install()?`, with the feature
    // `http-listener`; and an exporter of `opentelemetry-otlp` in place of this one.
    let seconds = [0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0];
    let prometheus = PrometheusBuilder::new().set_buckets(&seconds)?.install_recorder()?;
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("service"));
    tracing_subscriber::registry().with(layer.with_context_activation(false)).try_init()?;

    let scheduler = Scheduler::builder(Memory::new())
        .middleware(continue_trace)
        .job("report", every(Duration::from_secs(3_600)), async |run: Run| {
            tracing::info!("writing the report of {}", run.scheduled_at());
        })
        .build()?;
    let handle = scheduler.handle();
    let running = tokio::spawn(scheduler.run());
    let id = with_traceparent("order 7", REQUEST)?;
    // The job is registered first.
    while handle.jobs().iter().all(|job| job.next.is_none()) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    handle.trigger_and_wait("report", &id, Duration::from_secs(60)).await?;
    handle.stop();
    running.await?;
    let spans = exporter.get_finished_spans()?.into_iter();
    let spans = spans.filter(|span| span.name == "run");
    let spans = spans.map(|span| (span.span_context.trace_id(), span.parent_span_id)).collect();
    Ok((prometheus.render(), spans))
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let (metrics, spans) = demonstrate().await?;
    println!("{metrics}");
    for (trace, parent) in spans {
        println!("a run of the trace {trace}, under the span {parent}");
    }
    Ok(())
}

#[tokio::test]
async fn a_run_is_counted_and_belongs_to_the_trace_of_its_trigger() {
    let (metrics, spans) = demonstrate().await.unwrap();
    let succeeded =
        r#"allora_occurrences_total{job="report",kind="",outcome="succeeded",reason=""} 1"#;
    assert!(metrics.lines().any(|line| line == succeeded), "{metrics}");
    let trace = TraceId::from_hex("4bf92f3577b34da6a3ce929d0e0e4736").unwrap();
    let parent = SpanId::from_hex("00f067aa0ba902b7").unwrap();
    assert_eq!(spans, [(trace, parent)]);
}
