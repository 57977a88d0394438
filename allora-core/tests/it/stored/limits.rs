//! The shortest period that a client allows.

use super::schedules;
use crate::support::{Lab, secs};
use allora_core::{ErrorKind, StoredSchedule, stored::DesiredState};

#[test]
fn what_would_run_more_often_is_neither_added_changed_imported_nor_declared() {
    let lab = Lab::new(1);
    let any = schedules(&lab);
    let limited =
        any.clone().shortest_period("acme/", secs(60)).shortest_period("acme/x/", secs(300));
    let run = |name: &str, text: &str| {
        let stored = StoredSchedule::new(name, "report", text);
        lab.sim.block_on(limited.upsert(&stored)).map_err(|error| (error.kind(), error.to_string()))
    };
    let refused = |name: &str, text: &str| {
        let (kind, text) = run(name, text).unwrap_err();
        assert_eq!(kind, ErrorKind::Invalid);
        text
    };
    assert!(run("other/a", "@every 1s").is_ok() && run("acme/a", "* * * * *").is_ok());
    let said = refused("acme/b", "*/30 * * * * *");
    let says = "30s later; the shortest period of \"acme/\" is 1m, so use a schedule with longer";
    assert!(said.contains(says), "{said}");
    assert!(refused("acme/a", "@every 59s").contains("59s later"), "a change");
    assert!(refused("acme/x/a", "* * * * *").contains("the shortest period of \"acme/x/\" is 5m"));
    assert_eq!(lab.state("acme/a").definition.split(';').next(), Some("* * * * *"));

    let fast = StoredSchedule::new("acme/fast", "report", "@every 10s");
    let state = lab.sim.block_on(any.add(&fast)).unwrap();
    // Its data may change, although other clients have stored it.
    let data = StoredSchedule::of(&state).unwrap().data_bytes("[1]");
    lab.sim.block_on(limited.modify(&data)).unwrap();
    lab.sim.block_on(any.delete("acme/fast")).unwrap();
    let imported = lab.sim.block_on(limited.import(std::slice::from_ref(&state))).unwrap();
    assert_eq!(imported[0].as_ref().unwrap_err().kind(), ErrorKind::Invalid);
    let declared = [fast];
    let synced = lab.sim.block_on(limited.sync(DesiredState::new(&declared)));
    assert_eq!(synced.unwrap_err().kind(), ErrorKind::Invalid);
    assert!(lab.sim.block_on(any.import(&[state])).unwrap()[0].is_ok());
}
