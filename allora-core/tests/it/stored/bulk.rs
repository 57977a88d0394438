//! One change of many schedules, and the selection by owner and tag.

use super::{add, schedules};
use crate::support::{Lab, ms, secs};
use allora_core::{
    BoxError, ErrorKind, Run, StoredSchedule,
    backend::JobState,
    every,
    stored::{Bulk, Definition, Filter, Gap, ScheduleState},
};

/// Three customers' schedules, of which one is of another kind, and a job in code.
fn lab() -> Lab {
    let lab = Lab::new(1);
    let new = |name: &str, kind: &str| StoredSchedule::new(name, kind, "@every 1h");
    add(&lab, new("acme/mail", "mail").owner("sales").tag("eu").tag("gold"));
    add(&lab, new("acme/report", "report").tag("eu"));
    add(&lab, new("beta/mail", "mail").owner("sales").retry(allora_core::Retry::NEVER));
    lab.start(|seat, b| {
        let fails = |_: &Run| -> Result<(), BoxError> { Err("no luck".into()) };
        b.add("code", seat.job(every(secs(3_600)), ms(5)))
            .kind("mail", seat.handler(ms(5), fails))
            .kind("report", seat.handler(ms(5), |_| Ok(())))
    });
    lab.until(5.0);
    lab
}

fn names(states: &[JobState]) -> Vec<&str> {
    states.iter().map(|state| &*state.name).collect()
}

#[test]
fn a_bulk_change_concerns_what_the_filter_selects_and_its_preview_changes_nothing() {
    let lab = lab();
    let client = schedules(&lab);
    let pause = Bulk::Pause { note: "repairs", until: None };
    let mail = Filter::default().kind("mail");
    let would = lab.sim.block_on(client.bulk_preview(mail, pause)).unwrap();
    assert_eq!(would, ["acme/mail", "beta/mail"]);
    assert!(lab.state("acme/mail").paused.is_none());
    lab.sim.block_on(client.pause("beta/mail", "by hand")).unwrap();
    let report = lab.sim.block_on(client.bulk(mail, pause)).unwrap();
    assert_eq!(report.changed, ["acme/mail"], "the other one is paused already");
    assert!(report.failed.is_empty());
    assert_eq!(lab.state("beta/mail").paused.unwrap().note, "by hand");
    assert!(lab.state("acme/report").paused.is_none());
    let paused = Filter::default().state(ScheduleState::Paused);
    for gap in [Gap::CatchUp, Gap::Missed] {
        let report = lab.sim.block_on(client.bulk(paused, Bulk::Resume(gap))).unwrap();
        assert_eq!(report.changed, ["acme/mail", "beta/mail"]);
        lab.sim.block_on(client.bulk(mail, pause)).unwrap();
    }
}

#[test]
fn owner_and_tags_select_and_are_kept_by_a_definition() {
    let lab = lab();
    let client = schedules(&lab);
    let list = |filter| lab.sim.block_on(client.list(filter, None, 10)).unwrap();
    assert_eq!(names(&list(Filter::default().tag("eu"))), ["acme/mail", "acme/report"]);
    assert_eq!(names(&list(Filter::default().owner("sales"))), ["acme/mail", "beta/mail"]);
    assert_eq!(names(&list(Filter::default().owner("sales").tag("gold"))), ["acme/mail"]);
    assert!(list(Filter::default().tag("e")).is_empty());
    let state = lab.state("acme/mail");
    assert!(state.definition.contains("; owner sales; tags eu,gold"), "{}", state.definition);
    let definition = Definition::parse("acme/mail", &state.definition).unwrap();
    assert_eq!(definition.settings().owner.as_deref(), Some("sales"));
    assert!(definition.settings().tags.iter().eq(["eu", "gold"]));
    for wrong in ["", "two words", "a,b", "a;b"] {
        let bad = StoredSchedule::new("bad", "mail", "@hourly").tag(wrong);
        let error = lab.sim.block_on(client.add(&bad)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("is not one word"), "{error}");
        let bad = StoredSchedule::new("bad", "mail", "@hourly").owner(wrong);
        assert!(lab.sim.block_on(client.add(&bad)).is_err());
    }
}

#[test]
fn many_are_triggered_rerun_and_deleted_and_jobs_in_code_are_not_deleted() {
    let lab = lab();
    let client = schedules(&lab);
    let beta = Filter::default().prefix("beta/");
    let trigger = Bulk::Trigger { id: "now" };
    assert_eq!(lab.sim.block_on(client.bulk(beta, trigger)).unwrap().changed, ["beta/mail"]);
    lab.until(10.0);
    assert_eq!(lab.state("beta/mail").dead.len(), 1);
    let again = lab.sim.block_on(client.bulk(beta, trigger)).unwrap();
    assert_eq!((again.changed, again.triggered_before), (vec![], vec!["beta/mail".to_owned()]));
    let dead = Filter::default().state(ScheduleState::Dead);
    assert_eq!(lab.sim.block_on(client.bulk(dead, Bulk::Rerun)).unwrap().changed, ["beta/mail"]);
    assert!(lab.state("beta/mail").dead.is_empty());
    lab.until(15.0);
    assert_eq!((lab.state("beta/mail").dead.len(), lab.log.of("beta/mail").len()), (1, 2));
    lab.sim.block_on(client.bulk(Filter::default(), Bulk::Dismiss)).unwrap();
    assert!(lab.state("beta/mail").dead.is_empty());
    let all = lab.sim.block_on(client.bulk(Filter::default(), Bulk::Delete)).unwrap();
    assert_eq!(all.changed, ["acme/mail", "acme/report", "beta/mail"]);
    assert_eq!(
        names(&lab.sim.block_on(client.list(Filter::default(), None, 9)).unwrap()),
        ["code"]
    );
}

#[test]
fn an_upsert_adds_or_changes_and_keeps_the_progress() {
    let lab = lab();
    let client = schedules(&lab);
    let report = StoredSchedule::new("acme/report", "report", "@every 1h");
    let before = lab.state("acme/report");
    let changed = report.clone().data_bytes("to ann");
    let after = lab.sim.block_on(client.upsert(&changed)).unwrap();
    assert_eq!((&after.data[..], after.next), (&b"to ann"[..], before.next));
    assert!(after.incarnation == before.incarnation && after.generation > before.generation);
    lab.sim.block_on(client.delete("acme/report")).unwrap();
    let again = lab.sim.block_on(client.upsert(&changed)).unwrap();
    assert!(again.incarnation > before.incarnation);
    let code = StoredSchedule::new("code", "report", "@hourly");
    let error = lab.sim.block_on(client.upsert(&code)).unwrap_err();
    assert!(error.to_string().contains("is a job in code"), "{error}");
}
