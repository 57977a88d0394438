//! The size of a deployment: the arithmetic of several numbers of schedules, for the guide
//! `production`, and the simulation of many nodes.

use super::{
    Facts, Parts,
    figures::Figures,
    markdown::{milliseconds, number, or_dash, percent, rate, table},
    plan::{BURSTS, MAIN},
    simulation,
    tables::{name, worker_key},
};

/// The numbers of stored schedules that are worked through.
const SCHEDULES: [f64; 3] = [1e3, 1e6, 1e8];

/// The periods, with their lengths in seconds.
const PERIODS: [(&str, f64); 3] =
    [("every minute", 60.0), ("every hour", 3_600.0), ("daily", 86_400.0)];

/// The part of a store's rate that a steady load may use, so that a burst is worked off soon.
const HEADROOM: f64 = 0.5;

/// The parts of the guide.
pub(super) fn parts(facts: &Facts, figures: &Figures) -> Parts {
    vec![
        ("rates", rates(facts, figures)),
        ("arithmetic", arithmetic(facts, figures)),
        ("midnight", midnight(facts, figures)),
    ]
}

/// Occurrences per second of four workers under the sustained load.
fn sustained(facts: &Facts, figures: &Figures, store: &str) -> Option<f64> {
    figures.median(&worker_key(store, 4, facts.size.sustained), "per_s")
}

fn rates(facts: &Facts, figures: &Figures) -> String {
    let header =
        ["store", "4 workers, sustained, per second", "with headroom", "in an hour", "in a day"];
    let rows = MAIN.into_iter().map(|store| {
        let all = sustained(facts, figures, store);
        let steady = all.map(|all| all * HEADROOM);
        vec![
            name(store).to_owned(),
            or_dash(all, rate),
            or_dash(steady, rate),
            or_dash(steady.map(|steady| steady * 3_600.0), rate),
            or_dash(steady.map(|steady| steady * 86_400.0), rate),
        ]
    });
    table(&header, rows)
}

/// The demand of a number of schedules, and how many stores like the measured one it takes.
fn arithmetic(facts: &Facts, figures: &Figures) -> String {
    let mut header =
        vec!["schedules".to_owned(), "period".to_owned(), "occurrences per second".to_owned()];
    header.extend(MAIN.map(|store| format!("{} servers", name(store))));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let rows = SCHEDULES.into_iter().flat_map(|schedules| {
        PERIODS.map(|(period, seconds)| {
            let demand = schedules / seconds;
            let mut row = vec![number(schedules), period.to_owned(), demanded(demand)];
            row.extend(MAIN.map(|store| {
                let servers = |all: f64| servers(demand, all * HEADROOM);
                or_dash(sustained(facts, figures, store).map(servers), share)
            }));
            row
        })
    });
    table(&header, rows)
}

/// As a rate; small ones have decimals.
fn demanded(rate_per_s: f64) -> String {
    if rate_per_s < 100.0 { format!("{rate_per_s:.2}") } else { rate(rate_per_s) }
}

/// The part of one server, or the whole number of servers.
fn servers(demand: f64, one: f64) -> f64 {
    let needed = demand / one;
    if needed <= 1.0 { needed } else { needed.ceil() }
}

fn share(servers: f64) -> String {
    if servers < 0.01 {
        "under 1 % of one".to_owned()
    } else if servers <= 1.0 {
        format!("{} of one", percent(servers))
    } else {
        number(servers)
    }
}

/// The time until all schedules are worked off that are due at one instant.
fn midnight(facts: &Facts, figures: &Figures) -> String {
    let mut header = vec!["all due at one instant".to_owned()];
    header.extend(MAIN.map(|store| format!("{}, 1 server", name(store))));
    header.extend(MAIN.map(|store| format!("{}, 16 servers", name(store))));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let rows = SCHEDULES.map(|schedules| {
        let mut row = vec![number(schedules)];
        for servers in [1.0, 16.0] {
            row.extend(MAIN.map(|store| {
                let rate = if schedules <= BURSTS[0] as f64 {
                    figures.median(&worker_key(store, 4, BURSTS[0]), "per_s")
                } else {
                    sustained(facts, figures, store)
                };
                or_dash(rate.map(|rate| schedules / rate / servers), span)
            }));
        }
        row
    });
    table(&header, rows)
}

fn span(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{} ms", milliseconds(s * 1e3)),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3_600.0),
    }
}

/// The table of many nodes in virtual time.
pub(super) fn simulation(figures: &Figures) -> String {
    let header = [
        "store",
        "nodes",
        "store calls per occurrence",
        "operations per occurrence",
        "failed claims",
        "late p50, ms",
        "p99, ms",
        "least and most occurrences of a node",
    ];
    let rows = MAIN.into_iter().flat_map(|store| {
        simulation::NODES.map(|nodes| {
            let key = simulation::key(store, nodes);
            let figure = |name: &str| figures.median(&key, name);
            let share = [figure("share_least"), figure("share_most")].map(|n| or_dash(n, number));
            vec![
                name(store).to_owned(),
                nodes.to_string(),
                or_dash(figure("calls"), |calls| format!("{calls:.3}")),
                or_dash(figure("operations"), |operations| format!("{operations:.2}")),
                or_dash(figure("failed_percent"), |percent| format!("{percent:.1} %")),
                or_dash(figure("p50_ms"), milliseconds),
                or_dash(figure("p99_ms"), milliseconds),
                share.join(", "),
            ]
        })
    });
    table(&header, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arithmetic_is_that_of_the_text() {
        assert_eq!(share(servers(16.7, 10_000.0)), "under 1 % of one");
        assert_eq!(share(servers(2_500.0, 10_000.0)), "25 % of one");
        assert_eq!(share(servers(1_666_667.0, 10_000.0)), "167");
        assert_eq!(
            [0.05, 50.0, 600.0, 10_000.0].map(span),
            ["50.0 ms", "50.0 s", "10 min", "2.8 h"]
        );
    }
}
