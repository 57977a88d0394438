//! The table of other task queues on PostgreSQL, beside whole workers.

use super::{
    Facts,
    figures::Figures,
    markdown::{multiple, number, or_dash, rate, table},
    plan::{ONE_AND_FOUR, QUEUE_STORE, QUEUES, queue_loads},
    tables::{STARTED, peer_key, worker_key},
};

/// The table.
pub(super) fn queues(facts: &Facts, figures: &Figures) -> String {
    let header = [
        "queue",
        "due at once",
        "nodes",
        "started: allora",
        "queue",
        "ratio",
        "acknowledged: allora",
        "queue",
        "ratio",
        "started again by the queue",
    ];
    let row = |queue: &str, count: u64, nodes: u64| {
        let keys = (worker_key(QUEUE_STORE, nodes, count), peer_key(queue, nodes, count));
        let mut row = vec![queue.to_owned(), number(count as f64), nodes.to_string()];
        for figure in [STARTED, "per_s"] {
            row.extend([&keys.0, &keys.1].map(|key| or_dash(figures.median(key, figure), rate)));
            row.push(or_dash(figures.ratio((&keys.0, &keys.1), figure), multiple));
        }
        row.push(or_dash(figures.median(&keys.1, "repeated"), number));
        row
    };
    let rows = QUEUES.into_iter().flat_map(|queue| {
        let of = move |count| ONE_AND_FOUR.map(|nodes| row(queue, count, nodes));
        queue_loads(facts.size, queue).into_iter().flat_map(of)
    });
    table(&header, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::plan::Size;
    use serde_json::json;

    #[test]
    fn a_queue_that_was_measured_stands_beside_allora() {
        let mut figures = Figures::default();
        for (key, line) in [
            (worker_key("postgres", 4, 1_000), r#"{"per_s": 30000, "started_per_s": 40000}"#),
            (
                peer_key("fang", 4, 1_000),
                r#"{"per_s": 3000, "started_per_s": 8000, "repeated": 12}"#,
            ),
        ] {
            figures.add(&key, line).unwrap();
        }
        let facts = Facts {
            size: Size::QUICK,
            rounds: 1,
            machine: json!({}),
            servers: json!({}),
            load: 0.0,
        };
        let text = queues(&facts, &figures);
        let row = "| fang | 1,000 | 4 | 40.0 k | 8.00 k | 5.00 | 30.0 k | 3.00 k | 10 | 12 |";
        assert!(text.lines().any(|line| line == row), "{text}");
        let row = "| graphile_worker | 20,000 | 1 | – | – | – | – | – | – | – |";
        assert!(text.lines().any(|line| line == row), "{text}");
    }
}
