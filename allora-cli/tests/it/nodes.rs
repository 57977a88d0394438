//! The nodes of a store, and what no live node does.

use crate::site::{Site, patiently};
use serde_json::Value;

const CRONTAB: &str = "\
@every 1s echo x >> DIR/ticks
ALLORA_LABEL=gpu
@every 1s echo x >> DIR/gpu
";

fn store(site: &Site) -> String {
    format!("sqlite:{}", site.path("store.db").display())
}

fn nodes(site: &Site) -> Vec<Value> {
    let said = site.allora(&["nodes", "--json", "--url", &store(site)]).fine();
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The ids of the nodes in this state.
fn in_state(site: &Site, state: &str) -> Vec<String> {
    let nodes = nodes(site).into_iter().filter(|node| node["state"] == state);
    nodes.map(|node| node["node"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn two_daemons_are_listed_and_one_that_is_killed_is_dead_and_what_only_it_did_is_found() {
    let site = Site::new(CRONTAB).with(&["--heartbeat", "1s"]);
    let has_live = |count: usize| {
        patiently("the nodes are live", || {
            nodes(&site).iter().filter(|node| node["is_live"] == true).count() == count
        });
    };
    let gpu = site.begin(&["--node-name", "one", "--node-label", "gpu", "--stored=command"]);
    gpu.says("has reached its store");
    let plain = site.begin(&["--node-name", "two"]);
    plain.says("has reached its store");
    has_live(2);
    let list = nodes(&site);
    let of = |name: &str| {
        let is_it = |node: &&Value| node["node"].as_str().unwrap().starts_with(name);
        list.iter().find(is_it).unwrap().clone()
    };
    assert_eq!((&of("one-")["labels"][0], &of("one-")["jobs"]), (&"gpu".into(), &2.into()));
    assert_eq!((&of("two-")["needed_labels"][0], &of("two-")["jobs"]), (&"gpu".into(), &1.into()));
    assert_eq!(of("one-")["version"], env!("CARGO_PKG_VERSION"));
    let table = site.allora(&["nodes", "--url", &store(&site)]).fine();
    assert!(table.starts_with("NODE") && table.contains("gpu"), "{table}");
    assert!(!site.allora(&["doctor", "--url", &store(&site)]).fine().contains("BAD"));

    drop(gpu);
    patiently("the killed daemon is dead", || {
        in_state(&site, "dead").iter().any(|node| node.starts_with("one-"))
    });
    let said = site.allora(&["doctor", "--url", &store(&site)]);
    assert_eq!(said.code, 1, "{said:?}");
    let label = said.out.lines().find(|line| line.starts_with("BAD label-unmatched")).unwrap();
    assert!(label.contains("\"gpu\"") && label.contains("--node-label gpu"), "{label}");
    assert!(said.out.contains("; 1 died or lost the store during the last day: one-"), "{said:?}");

    // The line of its file that no daemon has any more.
    assert_eq!(plain.stop(), 0);
    assert!(nodes(&site).iter().all(|node| node["is_live"] == false));
    site.write("jobs", "@every 1s echo x >> DIR/others\n");
    let _later = site.start();
    patiently("the orphans are found", || {
        let said = site.allora(&["doctor", "--url", &store(&site)]);
        said.out.lines().any(|line| line.starts_with("BAD jobs-orphaned"))
    });
}
