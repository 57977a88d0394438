//! Sets of schedules that are declared, and schedules that move from one store to another.

use super::{add, schedules};
use crate::support::{Lab, at, secs};
use allora_core::{
    BoxError, ErrorKind, Run, StoredSchedule,
    backend::JobState,
    every,
    stored::{DesiredState, Filter, Gap, ScheduleExport, Step},
};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

/// The changes that were made, or would be: one line each.
fn sync(lab: &Lab, declared: DesiredState<'_>) -> Vec<String> {
    let done = lab.sim.block_on(schedules(lab).sync(declared)).unwrap();
    done.iter().map(ToString::to_string).collect()
}

fn refused(lab: &Lab, declared: DesiredState<'_>) -> (ErrorKind, String) {
    let error = lab.sim.block_on(schedules(lab).sync(declared)).unwrap_err();
    (error.kind(), error.to_string())
}

fn new(name: &str, schedule: &str) -> StoredSchedule {
    StoredSchedule::new(name, "t", schedule).at_most_once()
}

fn names(lab: &Lab) -> Vec<String> {
    let all = lab.sim.block_on(schedules(lab).list(Filter::default(), None, 100)).unwrap();
    all.into_iter().map(|state| state.name).collect()
}

#[test]
fn what_is_declared_is_brought_about_and_a_dry_run_tells_it_before() {
    let lab = Lab::new(1);
    lab.start(|seat, b| {
        b.add("set/code", seat.job(every(secs(10)), secs(0))).kind("t", async |_: Run| {})
    });
    add(&lab, new("elsewhere", "@every 1m"));
    let first = [new("set/a", "@every 10s").delay(secs(1)), new("set/b", "@every 1m")];
    let declared = DesiredState::new(&first).complete("set/").grace(HOUR);
    let told = sync(&lab, declared.dry_run());
    assert_eq!(told, ["add set/a: @every 10s; delay 1s", "add set/b: @every 1m"]);
    // The node may have registered its job meanwhile.
    let added: Vec<String> = names(&lab).into_iter().filter(|name| name != "set/code").collect();
    assert_eq!(added, ["elsewhere"], "nothing was done");
    assert_eq!(sync(&lab, declared), told);
    assert_eq!(sync(&lab, declared), [""; 0], "and nothing more is to be done");
    lab.until(35.0);
    let before = lab.state("set/a");
    assert_eq!(before.counters.started, 3);

    let second = [new("set/a", "@every 10s").data(&1).with_kind("u"), new("set/c", "@daily")];
    let declared = DesiredState::new(&second).complete("set/").grace(HOUR);
    let told = sync(&lab, declared.dry_run());
    assert_eq!(
        told,
        [
            "add set/c: @daily",
            "modify set/a: kind `t` becomes `u`, definition `@every 10s; delay 1s` becomes \
             `@every 10s`, other data",
            "orphan set/b: paused, and deleted after 2026-01-01T01:00:35Z",
        ]
    );
    assert_eq!(lab.state("set/a"), before, "nothing was done");
    assert_eq!(sync(&lab, declared), told);
    let after = lab.state("set/a");
    assert_eq!((after.next, after.counters), (Some(at(40.0).into()), before.counters));
    assert_eq!((&*after.kind, &after.data[..]), ("u", &b"1"[..]));
    assert_eq!(names(&lab), ["elsewhere", "set/a", "set/b", "set/c", "set/code"]);
    assert_eq!(sync(&lab, declared), [""; 0]);
}

#[test]
fn an_orphaned_schedule_stops_at_once_and_is_pruned_after_the_grace() {
    let lab = Lab::new(2);
    lab.start(|_, b| b.kind("t", async |_: Run| {}));
    let all = [new("a", "@every 10s"), new("b", "@every 10s")];
    sync(&lab, DesiredState::new(&all));
    let declared = DesiredState::new(&all[..1]).complete("").grace(HOUR);
    lab.until(25.0);
    sync(&lab, declared);
    lab.until(1_000.0);
    assert_eq!(lab.state("b").counters.started, 2);
    // The grace begins when it was orphaned, however often the set is declared again.
    lab.until(3_600.0);
    assert_eq!(sync(&lab, declared), [""; 0]);
    lab.until(3_626.0);
    assert_eq!(sync(&lab, declared.dry_run()), ["delete b"]);
    assert_eq!(names(&lab), ["a", "b"]);
    assert_eq!(sync(&lab, declared), ["delete b"]);
    assert_eq!(names(&lab), ["a"]);
    let nothing = DesiredState::new(&[]).complete("").grace(Duration::ZERO);
    assert_eq!(sync(&lab, nothing), ["delete a"]);
    assert_eq!(names(&lab), [""; 0]);
}

#[test]
fn what_is_declared_again_goes_on_and_an_operators_pause_is_kept() {
    let lab = Lab::new(3);
    lab.start(|_, b| b.kind("t", async |_: Run| {}));
    let client = schedules(&lab);
    let all = ["free", "held", "noted"].map(|name| new(name, "@every 10s"));
    sync(&lab, DesiredState::new(&all));
    lab.until(15.0);
    lab.sim.block_on(client.pause("held", "")).unwrap();
    lab.sim.block_on(client.pause("noted", "until Monday")).unwrap();
    let paused = lab.state("noted").paused;
    // A pause is no difference.
    assert_eq!(sync(&lab, DesiredState::new(&all)), [""; 0]);
    lab.until(25.0);
    assert_eq!(sync(&lab, DesiredState::new(&[]).complete("")).len(), 3);
    lab.until(45.0);
    let told = sync(&lab, DesiredState::new(&all).complete(""));
    assert_eq!(told, ["restore free", "restore held", "restore noted"]);
    assert_eq!(lab.state("noted").paused, paused);
    assert_eq!(lab.state("held").paused.map(|pause| pause.note), Some(String::new()));
    lab.until(55.0);
    let state = lab.state("free");
    assert_eq!((state.paused, state.counters.started), (None, 4), "10, 20, 40 late, 50");
    assert_eq!(
        lab.story("free"),
        ["succeeded 10", "succeeded 20", "missed 30-30 1", "succeeded 40", "succeeded 50"]
    );
    assert_eq!(lab.state("held").counters.started, 1);
    lab.sim.block_on(client.resume("held", Gap::Missed)).unwrap();
    lab.until(65.0);
    assert_eq!(lab.state("held").counters.started, 2);
}

#[test]
fn a_set_with_one_bad_schedule_changes_nothing() {
    let lab = Lab::new(4);
    lab.start(|seat, b| b.add("code", seat.job(every(secs(10)), secs(0))));
    lab.until(1.0);
    let good = new("good", "@every 10s");
    for (bad, says) in [
        (new("bad", "* * * *"), "\"bad\": "),
        (new("bad", "@at 2020-01-01T00:00:00Z"), "would never run"),
        (new("bad", "@daily").max_runs(0), "\"bad\": the number of runs (max-runs) is 0"),
        (new("bad", "@daily").with_kind(""), "\"bad\": "),
        (new("", "@daily"), "empty"),
        (new("good", "@daily"), "declared twice"),
        (new("code", "@daily"), "is a job in code"),
    ] {
        let set = [good.clone(), bad];
        for declared in [DesiredState::new(&set), DesiredState::new(&set).complete("")] {
            let (kind, text) = refused(&lab, declared);
            assert!(kind == ErrorKind::Invalid && text.contains(says), "{text}");
        }
    }
    let (kind, text) = refused(&lab, DesiredState::new(&[good]).complete("set/"));
    assert!(kind == ErrorKind::Invalid && text.contains("does not begin with \"set/\""), "{text}");
    assert_eq!(names(&lab), ["code"]);
}

#[test]
fn large_sets_are_compared_page_by_page() {
    let lab = Lab::new(5);
    let all: Vec<StoredSchedule> =
        (0..1_203).map(|n| new(&format!("job {n:04}"), "@daily")).collect();
    assert_eq!(sync(&lab, DesiredState::new(&all).complete("job ")).len(), 1_203);
    let steps =
        lab.sim.block_on(schedules(&lab).sync(DesiredState::new(&all[3..]).complete("job ")));
    let steps = steps.unwrap();
    let orphaned = |step: &Step| matches!(step, Step::Orphan { .. });
    assert!(steps.len() == 3 && steps.iter().all(|one| orphaned(&one.step)), "{steps:?}");
}

/// All schedules of one laboratory, by way of lines of JSON.
fn moved(from: &Lab, to: &Lab) {
    let states = from.sim.block_on(schedules(from).list(Filter::default(), None, 100)).unwrap();
    let stored = states.iter().filter(|state| !state.kind.is_empty());
    let lines =
        stored.map(|state| serde_json::to_string(&ScheduleExport::of(state).unwrap()).unwrap());
    let read = |line: String| serde_json::from_str::<ScheduleExport>(&line).unwrap().into();
    let states: Vec<JobState> = lines.map(read).collect();
    for added in to.sim.block_on(schedules(to).import(&states)).unwrap() {
        added.unwrap();
    }
}

#[test]
fn schedules_go_on_in_another_store_where_they_were() {
    let (from, to) = (Lab::new(6), Lab::new(7));
    let work = async |run: Run| -> Result<(), BoxError> {
        if run.name() == "failing" { Err("no such host".into()) } else { Ok(()) }
    };
    let member =
        from.start(|seat, b| b.add("code", seat.job(every(secs(10)), secs(0))).kind("t", work));
    let data = b"\xff no text".to_vec();
    let times = StoredSchedule::new("times", "t", "@every 10s").max_runs(5).delay(secs(1));
    add(&from, times.data_bytes(data.clone()));
    add(&from, StoredSchedule::new("failing", "t", "@every 10s").retry(allora_core::Retry::NEVER));
    add(&from, StoredSchedule::new("over", "t", "@every 10s").max_runs(1).data(&[1, 2]));
    add(&from, StoredSchedule::new("paused", "t", "0 9 * * * Europe/Rome").data(&()));
    from.sim.block_on(schedules(&from).pause("paused", "why\nnot")).unwrap();
    from.until(35.0);
    member.handle.stop();
    from.until(38.0);
    to.until(38.0);
    moved(&from, &to);
    for name in ["times", "failing", "over", "paused"] {
        let (was, is) = (from.state(name), to.state(name));
        assert_eq!((is.kind, is.definition, is.data), (was.kind, was.definition, was.data));
        assert_eq!((is.next, is.last_started), (was.next, was.last_started), "{name}");
        assert_eq!((is.paused, is.dead), (was.paused, was.dead), "{name}");
        assert_eq!(is.counters, was.counters, "{name}");
    }
    assert_eq!(to.state("failing").dead.len(), 3);
    assert_eq!(to.state("times").data, data);
    to.start(|_, b| b.kind("t", work));
    to.until(100.0);
    assert_eq!(to.story("times"), ["succeeded 40", "succeeded 50"], "five runs in all");
    assert_eq!(to.story("over"), [""; 0]);
    // A name that is taken is an error, and the others are added.
    let states = vec![from.state("times"), from.state("code")];
    let answers = to.sim.block_on(schedules(&to).import(&states)).unwrap();
    let kinds: Vec<ErrorKind> = answers.into_iter().map(|one| one.unwrap_err().kind()).collect();
    assert_eq!(kinds, [ErrorKind::AlreadyExists, ErrorKind::Invalid]);
    assert!(
        ScheduleExport::of(&from.state("code")).unwrap_err().to_string().contains("job in code")
    );
}

#[test]
fn what_was_begun_is_begun_anew_in_the_other_store_and_counts_once() {
    let (from, to) = (Lab::new(8), Lab::new(9));
    let member = from.start(|seat, b| b.kind("t", seat.handler(secs(9), |_| Ok(()))));
    add(&from, StoredSchedule::new("a", "t", "@every 10s").max_runs(2));
    from.until(12.0);
    member.node.crash();
    to.until(12.0);
    moved(&from, &to);
    assert_eq!(to.state("a").counters.started, 0);
    to.start(|seat, b| b.kind("t", seat.handler(secs(1), |_| Ok(()))));
    to.until(60.0);
    assert_eq!(to.story("a"), ["succeeded 10", "succeeded 20"]);
}

#[test]
fn a_line_that_is_no_export_is_refused_and_says_why() {
    let line = r#"{"name":"a","kind":"t","definition":"@daily","next":
        {"scheduled_at":"2026-01-02T00:00:00Z","due_at":"2026-01-02T00:00:01Z"}}"#;
    let exported: ScheduleExport = serde_json::from_str(line).unwrap();
    assert_eq!(exported.name(), "a");
    for (old, new, says) in [
        ("@daily", "@dayly", "\"a\" cannot be moved: its definition cannot be read"),
        ("@daily", "@v9 x", "newer build"),
        ("\"kind\":\"t\"", "\"kind\":\"\"", "job in code"),
        ("2026-01-02T00", "2026-01-02 00", "RFC 3339"),
        ("2026-01-02T00:00:01Z", "2026-01-01T00:00:01Z", "has a due_at before its scheduled_at"),
        ("scheduled_at", "due-at", "unknown field `due-at`"),
        ("next", "nxt", "unknown field `nxt`"),
        ("\"kind\":\"t\",", "", "missing field `kind`"),
    ] {
        let text = serde_json::from_str::<ScheduleExport>(&line.replace(old, new)).unwrap_err();
        assert!(text.to_string().contains(says), "{text}");
    }
}

#[test]
fn an_export_during_a_catch_up_run_or_between_its_attempts_can_be_imported() {
    for moment in [204.0, 215.0] {
        let (from, to) = (Lab::new(10), Lab::new(11));
        add(&from, StoredSchedule::new("a", "t", "@every 1m").max_runs(1));
        from.until(200.0);
        let fails = |_: &Run| Err("no such host".into());
        let member = from.start(|seat, b| b.kind("t", seat.handler(secs(9), fails)));
        from.until(moment);
        assert_eq!(from.state("a").counters.missed, 2, "it catches up");
        member.node.crash();
        to.until(moment);
        moved(&from, &to);
        to.start(|seat, b| b.kind("t", seat.handler(secs(1), |_| Ok(()))));
        to.until(239.0);
        assert_eq!(to.story("a"), ["succeeded 180"], "exported at {moment}");
    }
}
