//! Changes by authors: pages of them, and their undoing.

use super::{add, schedules};
use crate::support::{Lab, Switched, at};
use allora_core::{
    ErrorKind, Schedules, StoredSchedule,
    backend::{Author, HistoryCursor, JobState},
    record::{Change, ChangeAction, MAX_CHANGE_DATA},
    stored::{ChangeFilter, Gap},
};
use futures::future::join_all;

fn daily(name: &str) -> StoredSchedule {
    StoredSchedule::new(name, "t", "@daily")
}

fn ann(lab: &Lab) -> Schedules {
    schedules(lab).by(Author::new("ann").via("console").note("why"))
}

fn changes(lab: &Lab, filter: ChangeFilter<'_>) -> Vec<Change> {
    lab.sim.block_on(schedules(lab).changes(filter, None, 100)).unwrap().changes
}

/// The newest change of this job.
fn last(lab: &Lab, name: &str) -> Change {
    changes(lab, ChangeFilter::default().name(name)).remove(0)
}

/// The job, the action and the actor of each change.
fn told(changes: &[Change]) -> Vec<(&str, ChangeAction, &str)> {
    changes.iter().map(|change| (&*change.name, change.action, &*change.author.actor)).collect()
}

/// Undoes the newest change of this job, as bob.
fn undone(lab: &Lab, name: &str) -> Result<JobState, (ErrorKind, String)> {
    let change = last(lab, name);
    let undone = lab.sim.block_on(schedules(lab).by("bob").undo(&change));
    undone.map_err(|error| (error.kind(), error.to_string()))
}

#[test]
fn changes_are_found_by_job_prefix_actor_action_and_time() {
    let lab = Lab::new(1);
    for (name, actor) in [("a/1", "ann"), ("a/2", "bob"), ("b/1", "ann")] {
        lab.sim.block_on(schedules(&lab).by(actor).add(&daily(name))).unwrap();
    }
    lab.until(10.0);
    lab.sim.block_on(schedules(&lab).by("bob").pause("a/1", "why")).unwrap();
    lab.sim.block_on(schedules(&lab).pause("b/1", "nobody says who")).unwrap();
    let all = changes(&lab, ChangeFilter::default());
    let create = |name, actor| (name, ChangeAction::Create, actor);
    let pause = ("a/1", ChangeAction::Pause, "bob");
    let found = told(&all);
    assert_eq!(found[0], pause);
    for expected in [create("b/1", "ann"), create("a/2", "bob"), create("a/1", "ann")] {
        assert!(found.contains(&expected), "{found:?}");
    }
    assert_eq!(all[0].author.note, "why");
    let of = |filter: ChangeFilter<'_>| changes(&lab, filter);
    let filter = ChangeFilter::default();
    assert_eq!(told(&of(filter.name("a/1"))), [pause, create("a/1", "ann")]);
    assert_eq!(of(filter.prefix("a/")).len(), 3);
    assert_eq!(told(&of(filter.actor("bob").prefix("a/2"))), [create("a/2", "bob")]);
    assert_eq!(told(&of(filter.actions(&[ChangeAction::Pause]))), [pause]);
    assert_eq!(told(&of(filter.from(at(5.0)))), [pause]);
    assert_eq!(of(filter.until(at(5.0))).len(), 3);
    assert_eq!(of(filter.from(at(11.0))), []);
}

#[test]
fn pages_hide_and_repeat_nothing() {
    let lab = Lab::new(2);
    let names: Vec<String> = (0..7).map(|i| format!("{i}")).collect();
    let all: Vec<StoredSchedule> = names.iter().map(|name| daily(name)).collect();
    for added in lab.sim.block_on(ann(&lab).add_all(&all)).unwrap() {
        added.unwrap();
    }
    let (mut found, mut before): (Vec<String>, Option<HistoryCursor>) = (Vec::new(), None);
    loop {
        let client = schedules(&lab);
        let page = client.changes(ChangeFilter::default(), before.as_ref(), 3);
        let page = lab.sim.block_on(page).unwrap();
        found.extend(page.changes.into_iter().map(|change| change.name));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    found.sort_unstable();
    assert_eq!(found, names);
}

#[test]
fn concurrent_calls_of_several_authors_share_requests_and_not_their_names() {
    let lab = Lab::new(3);
    let client = schedules(&lab);
    let calls = (0..20).map(|i| {
        let client = client.clone().by(format!("actor {i}"));
        async move { client.add(&daily(&format!("job {i}"))).await }
    });
    for added in lab.sim.block_on(join_all(calls)) {
        added.unwrap();
    }
    let all = changes(&lab, ChangeFilter::default());
    assert_eq!(all.len(), 20);
    for change in all {
        assert_eq!(change.author.actor.strip_prefix("actor"), change.name.strip_prefix("job"));
    }
}

#[test]
fn a_pause_is_undone_and_a_resumption_too() {
    let lab = Lab::new(4);
    add(&lab, daily("a"));
    lab.sim.block_on(ann(&lab).pause("a", "one")).unwrap();
    assert_eq!(undone(&lab, "a").unwrap().paused, None);
    lab.sim.block_on(ann(&lab).pause("a", "two")).unwrap();
    lab.sim.block_on(ann(&lab).resume("a", Gap::CatchUp)).unwrap();
    assert_eq!(undone(&lab, "a").unwrap().paused.unwrap().note, "two");
    let change = last(&lab, "a");
    assert_eq!((change.action, &*change.author.actor), (ChangeAction::Pause, "bob"));
}

#[test]
fn what_was_changed_since_is_not_undone() {
    let lab = Lab::new(5);
    add(&lab, daily("a"));
    lab.sim.block_on(ann(&lab).pause("a", "one")).unwrap();
    let pause = last(&lab, "a");
    lab.sim.block_on(ann(&lab).pause("a", "another reason")).unwrap();
    let error = lab.sim.block_on(schedules(&lab).undo(&pause)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    let state = lab.state("a");
    let stored = StoredSchedule::of(&state).unwrap();
    lab.sim.block_on(ann(&lab).modify(&stored.clone().schedule("@hourly"))).unwrap();
    let edit = last(&lab, "a");
    let stored = StoredSchedule::of(&lab.state("a")).unwrap();
    lab.sim.block_on(schedules(&lab).modify(&stored.schedule("@weekly"))).unwrap();
    let error = lab.sim.block_on(schedules(&lab).undo(&edit)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(lab.state("a").definition.contains("@weekly"));
}

#[test]
fn an_edit_is_undone_in_the_parts_that_it_has_changed() {
    let lab = Lab::new(6);
    add(&lab, daily("a").data_bytes(b"one".to_vec()));
    let before = lab.state("a");
    let edited = StoredSchedule::of(&before).unwrap().schedule("@hourly");
    lab.sim.block_on(ann(&lab).modify(&edited)).unwrap();
    let back = undone(&lab, "a").unwrap();
    assert_eq!((&back.definition, &back.data), (&before.definition, &before.data));
    let edited = StoredSchedule::of(&back).unwrap().data_bytes(b"two".to_vec());
    lab.sim.block_on(ann(&lab).modify(&edited)).unwrap();
    let back = undone(&lab, "a").unwrap();
    assert_eq!((&back.definition, &back.data), (&before.definition, &before.data));
    // The undoing is an edit, which can be undone.
    assert_eq!(undone(&lab, "a").unwrap().data, b"two");
}

#[test]
fn a_deleted_schedule_comes_back_with_its_progress() {
    let lab = Lab::new(7);
    lab.start(|_, b| b.kind("t", async |_: allora_core::Run| {}));
    add(&lab, StoredSchedule::new("a", "t", "@every 10s").data_bytes(b"data".to_vec()));
    lab.until(35.0);
    lab.sim.block_on(schedules(&lab).pause("a", "held")).unwrap();
    let before = lab.state("a");
    assert!(before.counters.succeeded > 2);
    lab.sim.block_on(ann(&lab).delete("a")).unwrap();
    let back = undone(&lab, "a").unwrap();
    assert_eq!((back.counters, back.paused), (before.counters, before.paused));
    assert_eq!((back.next, back.last_started), (before.next, before.last_started));
    assert_eq!((back.data, back.definition), (before.data, before.definition));
    let deletion = changes(&lab, ChangeFilter::default().actions(&[ChangeAction::Delete]));
    let again = lab.sim.block_on(schedules(&lab).undo(&deletion[0])).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
}

#[test]
fn what_cannot_be_undone_says_why() {
    let lab = Lab::new(8);
    let large = daily("a").data_bytes(vec![b'x'; MAX_CHANGE_DATA + 1]);
    lab.sim.block_on(ann(&lab).add(&large)).unwrap();
    let says = |expected: &str| {
        let (kind, text) = undone(&lab, "a").unwrap_err();
        assert_eq!(kind, ErrorKind::Invalid);
        assert!(text.contains(expected), "{text}");
    };
    says("only pauses");
    lab.sim.block_on(ann(&lab).resume("a", Gap::CatchUp)).unwrap();
    says("it changed nothing");
    lab.sim.block_on(ann(&lab).trigger("a", "id")).unwrap();
    says("only pauses");
    lab.sim.block_on(ann(&lab).delete("a")).unwrap();
    says("65536 bytes is not kept");
}

#[test]
fn a_store_without_changes_says_so() {
    let lab = Lab::new(9);
    let client = Schedules::on(Switched::new(|| at(0.0)), lab.clock()).unwrap().by("ann");
    lab.sim.block_on(client.add(&daily("a"))).unwrap();
    let error = lab.sim.block_on(client.changes(ChangeFilter::default(), None, 9)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("keeps no record of changes"), "{error}");
}
