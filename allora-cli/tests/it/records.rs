//! Records of lines that daemons have, and of lines that they do not have any more.

use crate::site::{Site, patiently};
use serde_json::Value;

fn show(site: &Site, name: &str) -> Value {
    let said = site.allora(&["show", name, "--json", "--url", "sqlite:store.db"]).fine();
    serde_json::from_str(&said).unwrap()
}

#[test]
fn a_live_line_is_not_deleted_and_an_orphan_is_shown_and_removed() {
    let site = Site::new("ALLORA_NAME=old\n@daily true\nALLORA_NAME=kept\n@daily true\n")
        .with(&["--heartbeat", "1s"]);
    let url = ["--url", "sqlite:store.db"];
    let allora = |args: &[&str]| site.allora(&[args, &url].concat());
    let daemon = site.start();
    patiently("it is in the store", || allora(&["show", "jobs:old"]).code == 0);
    let said = allora(&["delete", "jobs:old"]).refused(1);
    assert!(said.contains("the live node") && said.contains("allora pause jobs:old"), "{said}");

    site.write("jobs", "ALLORA_NAME=kept\n@daily true\n");
    daemon.signal("-HUP");
    daemon.says("removed=1");
    patiently("the old line is an orphan", || show(&site, "jobs:old")["is_orphaned"] == true);
    let old = show(&site, "jobs:old");
    assert_eq!((&old["due_at"], &old["next"]), (&Value::Null, &Value::Null));
    assert_eq!(show(&site, "jobs:kept")["is_orphaned"], false);
    let list = allora(&["list", "--all", "--state", "orphaned"]).fine();
    assert!(list.contains("jobs:old") && !list.contains("jobs:kept"), "{list}");
    let said = allora(&["trigger", "jobs:old"]).refused(1);
    assert!(said.contains("is orphaned") && said.contains("allora gc"), "{said}");
    // It was used a moment ago.
    let kept = "0 records removed; kept 1 orphan used within the last 60s.\n";
    assert_eq!(allora(&["gc"]).fine(), kept);
    assert_eq!(allora(&["delete", "jobs:old"]).fine(), "");
    assert!(allora(&["show", "jobs:old"]).refused(1).contains("jobs:old"));
    daemon.stop_well();

    let said = allora(&["gc"]).refused(1);
    assert!(said.contains("no daemon is live"), "{said}");
}
