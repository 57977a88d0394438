//! The plots, from the file that `cargo xtask bench` writes.

mod panel;

use panel::{Axis, Panel, Series, draw_panels};
use plotters::style::RGBColor;
use serde_json::Value;
use std::path::Path;

const BLUE: RGBColor = RGBColor(0, 90, 181);
const ORANGE: RGBColor = RGBColor(220, 90, 0);
const GREEN: RGBColor = RGBColor(0, 130, 70);
const PURPLE: RGBColor = RGBColor(125, 60, 160);
const GREY: RGBColor = RGBColor(120, 120, 120);

const MAIN: [(&str, &str); 2] = [("postgres", "PostgreSQL"), ("redis", "Redis")];
const STORES: [(&str, &str, RGBColor); 5] = [
    ("postgres", "PostgreSQL", BLUE),
    ("redis", "Redis", ORANGE),
    ("mysql", "MariaDB", GREEN),
    ("sqlite", "SQLite", PURPLE),
    ("etcd", "etcd", GREY),
];

/// The figures of a report.
struct Report(Value);

impl Report {
    fn median(&self, key: &str, name: &str) -> Option<f64> {
        self.0["measurements"][key][name]["median"].as_f64()
    }

    /// The points of the numbers that were measured.
    fn points<const N: usize>(
        &self,
        numbers: [u64; N],
        key: impl Fn(u64) -> String,
        name: impl Fn(u64) -> String,
    ) -> Vec<(f64, f64)> {
        let point = |number| Some((number as f64, self.median(&key(number), &name(number))?));
        numbers.into_iter().filter_map(point).collect()
    }

    /// The measurement that begins and ends with these words; the words between are those of the size
    /// of the report.
    fn key(&self, begin: &str, end: &str) -> String {
        let mut keys = self.0["measurements"].as_object().unwrap().keys();
        let found = keys.find(|key| key.starts_with(begin) && key.ends_with(end));
        found.cloned().unwrap_or_default()
    }
}

/// Draws all plots.
///
/// # Panics
/// If the file cannot be read or a plot not be written.
pub(crate) fn draw(file: &Path, folder: &Path) {
    let text = std::fs::read_to_string(file).unwrap();
    let report = Report(serde_json::from_str(&text).unwrap());
    std::fs::create_dir_all(folder).unwrap();
    draw_panels(&folder.join("nodes.svg"), &MAIN.map(|store| nodes(&report, store)));
    draw_panels(&folder.join("batches.svg"), &MAIN.map(|store| batches(&report, store)));
    draw_panels(
        &folder.join("lateness.svg"),
        &[("p50", "median"), ("p99", "99th percentile")]
            .map(|percentile| lateness(&report, percentile)),
    );
    draw_panels(&folder.join("stored.svg"), &[stored_rate(&report), stored_wait(&report)]);
}

fn nodes(report: &Report, (store, title): (&str, &'static str)) -> Panel {
    const NODES: [u64; 4] = [1, 2, 4, 8];
    let per_s = |_| "per_s".to_owned();
    let sustained = report.0["sustained"].as_u64().unwrap();
    let workers = |count: u64| {
        report.points(NODES, |nodes| format!("workers {store} {nodes} {count} 1000"), per_s)
    };
    let peer =
        |count| report.points(NODES, |nodes| format!("peers {store} {nodes} {count}"), per_s);
    Panel {
        title: title.into(),
        x: Axis::powers_of_two("nodes"),
        y: Axis::linear("occurrences per second, acknowledged"),
        series: vec![
            Series::solid("1,000 due at once", BLUE, workers(1_000)),
            Series::solid("7,000 due at once", ORANGE, workers(7_000)),
            Series::solid(
                &format!("{},000 due at once", sustained / 1_000),
                GREEN,
                workers(sustained),
            ),
            Series::dashed("apalis, 7,000", GREY, peer(7_000)),
        ],
    }
}

fn batches(report: &Report, (store, title): (&str, &'static str)) -> Panel {
    const BATCHES: [u64; 4] = [1, 10, 100, 1_000];
    let points = |what: &str| {
        let key = |batch| report.key(&format!("{what} {store} 1 "), &format!(" {batch}"));
        // The number of schedules is smaller for small batches.
        let key = |batch| match batch {
            1_000 => format!("{what} {store} 1 7000 1000"),
            _ => key(batch),
        };
        report.points(BATCHES, key, |_| "per_s".to_owned())
    };
    Panel {
        title: title.into(),
        x: Axis::log("batch size"),
        y: Axis::log("occurrences per second"),
        series: vec![
            Series::dashed("raw limit, one connection", GREY, points("raw")),
            Series::solid("one whole worker", BLUE, points("workers")),
        ],
    }
}

fn lateness(report: &Report, (name, title): (&str, &str)) -> Panel {
    const SIZES: [u64; 4] = [10, 100, 1_000, 5_000];
    let series = |(store, title, color): (&str, &str, RGBColor)| {
        let key = report.key(&format!("late {store} "), "");
        let points = report.points(SIZES, |_| key.clone(), |size| format!("{name}_ms_{size}"));
        Series::solid(title, color, points)
    };
    Panel {
        title: format!("{title}, 3 nodes"),
        x: Axis::log("jobs due at one instant"),
        y: Axis::log("lateness, ms"),
        series: STORES.map(series).into(),
    }
}

const STORED: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];

fn stored(report: &Report, store: &str, name: &str) -> Vec<(f64, f64)> {
    let key = |stored| format!("stored {store} {stored} 7000");
    report.points(STORED, key, |_| name.to_owned())
}

fn stored_rate(report: &Report) -> Panel {
    let series = |(store, title, color): (&str, &str, RGBColor)| {
        Series::solid(title, color, stored(report, store, "per_s"))
    };
    Panel {
        title: "one worker, 7,000 due at once".into(),
        x: Axis::log("other stored schedules"),
        y: Axis::linear("occurrences per second"),
        series: STORES[..2].iter().copied().map(series).collect(),
    }
}

fn stored_wait(report: &Report) -> Panel {
    let series = |(store, title, color): (&str, &str, RGBColor)| {
        let points = |name| stored(report, store, name);
        [
            Series::solid(&format!("{title}, p99"), color, points("wake_p99_ms")),
            Series::dashed(&format!("{title}, median"), color, points("wake_p50_ms")),
        ]
    };
    Panel {
        title: "from adding a due schedule to its run".into(),
        x: Axis::log("other stored schedules"),
        y: Axis::linear("latency, ms"),
        series: STORES[..2].iter().copied().flat_map(series).collect(),
    }
}
