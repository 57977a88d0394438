//! Triggers with data of their own.

use super::{Seen, add, schedules};
use crate::support::{Lab, at, secs};
use allora_core::{
    BoxError, ErrorKind, Retry, Run, StoredSchedule,
    backend::{Action, TriggerStatus},
};

#[test]
fn the_runs_of_a_trigger_have_its_data_and_those_of_the_schedule_have_the_schedules() {
    let lab = Lab::new(1);
    let seen = Seen::default();
    let told = seen.clone();
    let handler = async move |run: Run| -> Result<(), BoxError> {
        told.tell(format!("{} {}", run.attempt(), String::from_utf8_lossy(run.data())));
        match run.attempt() {
            1 if run.trigger().is_some() => Err("no luck".into()),
            _ => Ok(run.set_value(String::from_utf8_lossy(run.data()))?),
        }
    };
    lab.start(|_, b| b.kind("report", handler));
    let stored = StoredSchedule::new("a", "report", "@every 60s").data_bytes("[1]");
    add(&lab, stored.retry(Retry::up_to(3, secs(5))));
    lab.until(10.0);
    let client = schedules(&lab);
    let trigger = |id: &str, data: &str| lab.sim.block_on(client.trigger_with("a", id, data));
    assert_eq!(trigger("x", "[2]").unwrap().status, TriggerStatus::New);
    let end = lab.sim.block_on(client.trigger_and_wait("a", "x", secs(60))).unwrap();
    assert_eq!(end.value.as_deref(), Some("[2]"), "who gives no data asks for the same run");
    assert_eq!(trigger("x", "[2]").unwrap().status, TriggerStatus::Ended);
    let other = trigger("x", "[3]").unwrap_err();
    assert_eq!(other.kind(), ErrorKind::AlreadyExists);
    assert!(other.to_string().contains("other data"), "{other}");
    lab.until(61.0);
    assert_eq!(seen.take(), ["1 [2]", "2 [2]", "1 [1]"]);
}

#[test]
fn a_trigger_with_data_is_refused_while_a_node_of_an_older_build_lives() {
    let lab = Lab::new(2);
    add(&lab, StoredSchedule::new("a", "report", "@every 60s"));
    let seen = at(0.0).to_rfc3339();
    let older = format!("seen={seen} started={seen} heartbeat=15000 version=1.4");
    let register = Action::Register { definition: &older, version: 0, first: None };
    lab.operate("allora:node:old-1", register).unwrap();
    let client = schedules(&lab);
    let trigger = || lab.sim.block_on(client.trigger_with("a", "x", "[2]"));
    let refused = trigger().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.to_string().contains("the node old-1 of the build 1.4"), "{refused}");
    assert!(lab.sim.block_on(client.trigger("a", "y")).unwrap().is_new(), "without data");
    // It is dead.
    lab.until(60.0);
    assert!(trigger().unwrap().is_new());
}
