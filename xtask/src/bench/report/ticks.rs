//! The tables of schedules that are due every second, on three processes over one store.

use super::{
    figures::Figures,
    markdown::{milliseconds, number, or_dash, table},
    plan::{Ticking, ticking},
};

/// The systems, and how the table calls them.
fn name(system: &str) -> &str {
    match system {
        "tick-jobs" => "allora, jobs in code, at most once",
        "tick-schedules" => "allora, stored schedules, at least once",
        other => other,
    }
}

/// The table: first all processes live, then one is killed.
pub(super) fn table_of_all(figures: &Figures) -> String {
    let header = [
        "scheduler",
        "schedules",
        "processes",
        "started once",
        "more than once",
        "never",
        "late p50, ms",
        "p99, ms",
        "longest gap of a schedule, s",
        "transactions per tick",
        "client, µs",
        "server, µs",
    ];
    let row = |ticking: Ticking| {
        let key = ticking.cell().key();
        let figure = |name: &str, show| or_dash(figures.median(&key, name), show);
        let processes = if ticking.is_killed { "one killed" } else { "3" };
        let mut row = vec![name(ticking.system).to_owned(), number(ticking.schedules as f64)];
        row.push(processes.to_owned());
        row.extend(["once", "repeated", "lost"].map(|name| figure(name, number)));
        row.extend(["p50_ms", "p99_ms"].map(|name| figure(name, milliseconds)));
        row.push(figure("gap_s", milliseconds));
        row.push(figure("transactions", |each| format!("{each:.2}")));
        row.extend(["client_us", "server_us"].map(|name| figure(name, milliseconds)));
        row
    };
    table(&header, ticking().into_iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_of_a_peer_shows_what_it_repeats_and_loses() {
        let mut figures = Figures::default();
        let line = r#"{"once": 9000, "repeated": 20, "lost": 980, "p50_ms": 12.5, "p99_ms": 250,
            "gap_s": 3.2, "transactions": 7.125, "client_us": 900, "server_us": 1500}"#;
        figures.add("peers durare 1000 10 1", line).unwrap();
        let text = table_of_all(&figures);
        let numbers = "9,000 | 20 | 980 | 12.5 | 250 | 3.2 | 7.12 | 900 | 1500 |";
        let row = format!("| durare | 1,000 | one killed | {numbers}");
        assert!(text.lines().any(|line| line == row), "{text}");
        assert_eq!(text.matches("9,000").count(), 1, "{text}");
    }
}
