//! The form of a definition: what it refuses, what it stores, and what becomes of it if it comes too late.

use super::{
    Answer,
    actions::{Outage, encoded, fields, fill, operator, post_to, router},
    get, unescaped, with_idle_store, with_store,
};
use allora::{
    Memory, Schedules, StoredSchedule, async_trait,
    backend::{Applied, Backend, Batch, JobState},
    record::{Change, ChangeAction, ChangeResult},
    runtime::Sim,
    stored::ChangeFilter,
};
use allora_conformance::faults::{Hooks, Wrapped};
use allora_console::{Access, Console, Scope};
use axum::Router;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

const FORM: &str = "/edit?name=acme%2Freport";

/// Sends a form, with these values typed into it.
async fn send(
    router: &Router,
    form: &[(String, String)],
    step: &str,
    typed: &[(&str, &str)],
) -> Answer {
    let all = fill(form.to_vec(), &[typed, &[("step", step)]].concat());
    post_to(router, "/edit", encoded(&all)).await
}

/// The form of this page.
async fn form(router: &Router, path: &str) -> Vec<(String, String)> {
    let page = get(router, path).await;
    assert_eq!(page.status, 200, "{path}: {}", page.body);
    fields(&page.body)
}

/// The form at its last step, with these values typed into it.
async fn previewed(router: &Router, path: &str, typed: &[(&str, &str)]) -> Vec<(String, String)> {
    let answer = send(router, &form(router, path).await, "preview", typed).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    fields(&answer.body)
}

fn value<'a>(form: &'a [(String, String)], name: &str) -> &'a str {
    form.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value)
}

async fn job(schedules: &Schedules) -> JobState {
    schedules.get("acme/report").await.unwrap()
}

async fn changes(schedules: &Schedules) -> Vec<Change> {
    let page = schedules.changes(ChangeFilter::default(), None, 100).await;
    page.unwrap().changes
}

const SAVED: [(&str, &str); 1] = [("note", "the bank is closed at night")];

#[test]
fn an_edit_is_checked_previewed_saved_and_undone() {
    with_store(&["acme/report"], async |schedules| {
        let router = router(&schedules, operator("ann"));
        // Its times follow the clock, and not the time of its last change.
        let cron = StoredSchedule::of(&job(&schedules).await).unwrap().schedule("*/5 * * * *");
        let before = schedules.modify(&cron).await.unwrap();
        let next = schedules.next("acme/report", 3).await.unwrap();
        let page = get(&router, "/job?name=acme%2Freport").await.body;
        assert!(page.contains("href=\"edit?name=acme%2Freport\""), "{page}");
        let new = form(&router, FORM).await;
        assert_eq!(
            (value(&new, "f-schedule"), value(&new, "f-retry")),
            ("*/5 * * * *", "5 10s 1h")
        );

        let typed = [("f-schedule", "0 25 * * *"), ("f-delay", "90s"), ("f-zone", "Europe/Rome")];
        let wrong = send(&router, &new, "preview", &typed).await;
        assert_eq!(wrong.status, 422, "{}", wrong.body);
        for says in [
            "0 <mark>25</mark> * * *",
            "Hour, column 3: &#34;25&#34;",
            "write a number from 0 to 23",
        ] {
            assert!(wrong.body.contains(says), "{says}: {}", wrong.body);
        }
        let kept = fields(&wrong.body);
        assert_eq!((value(&kept, "f-delay"), value(&kept, "f-zone")), ("90s", "Europe/Rome"));

        let preview = send(&router, &kept, "preview", &[("f-schedule", "30 2 * * *")]).await;
        for says in [
            "<del>*/5 * * * *</del><ins>30 2 * * *</ins>",
            "<del>none</del><ins>Europe/Rome</ins>",
            "After, Europe/Rome",
            "02:30 CE",
            "due ",
        ] {
            assert!(
                preview.status == 200 && preview.body.contains(says),
                "{says}: {}",
                preview.body
            );
        }
        assert!(!preview.body.contains("<ins>5 10s 1h"), "what stays is no change");
        assert_eq!(job(&schedules).await.definition, before.definition, "nothing is saved yet");
        let last = fields(&preview.body);
        let without = send(&router, &last, "save", &[("note", "")]).await;
        assert!(without.status == 422 && without.body.contains("Write a note"), "{}", without.body);
        let back = send(&router, &last, "form", &[("note", "kept")]).await;
        assert_eq!(value(&fields(&back.body), "f-schedule"), "30 2 * * *");
        assert_eq!(value(&fields(&back.body), "note"), "kept");

        for _ in 0..2 {
            let saved = send(&router, &last, "save", &SAVED).await;
            assert_eq!(saved.status, 303, "{}", saved.body);
            let target = format!("/{}", saved.header("location"));
            assert!(target.starts_with("/job?name=acme%2Freport&done=edit&n="), "{target}");
            let page = get(&router, &target).await.body;
            assert!(page.contains("Saved") && page.contains("href=\"undo?"), "{page}");
        }
        let after = job(&schedules).await;
        let stored = "30 2 * * *; zone Europe/Rome; at-least-once 30s; retry 5 10s 1h; delay 1m30s";
        assert_eq!(after.definition, stored);
        assert_eq!((&after.kind, &after.data), (&before.kind, &before.data));

        let sequence = changes(&schedules).await[0].sequence;
        let undo = format!("/undo?name=acme%2Freport&change={sequence}");
        let undo = fields(&get(&router, &undo).await.body);
        assert_eq!(post_to(&router, "/undo", encoded(&undo)).await.status, 303);
        let undone = job(&schedules).await;
        assert_eq!((&undone.definition, &undone.data), (&before.definition, &before.data));
        assert_eq!((undone.counters, undone.last_started), (before.counters, before.last_started));
        assert_eq!(schedules.next("acme/report", 3).await.unwrap(), next);
        let made: Vec<_> = changes(&schedules)
            .await
            .into_iter()
            .map(|change| (change.action, change.author.actor, change.author.note, change.result))
            .collect();
        let edit = |note: &str| {
            (ChangeAction::Modify, "ann".to_owned(), note.to_owned(), ChangeResult::Applied)
        };
        assert_eq!(made, [edit(""), edit(SAVED[0].1)], "one entry for each");
        let audit = get(&router, "/audit?what=modify").await.body;
        assert!(audit.contains("the bank is closed at night"), "{audit}");
    });
}

#[test]
fn the_second_of_two_editors_gets_the_form_back_with_both_versions() {
    with_idle_store(&["acme/report"], async |schedules| {
        let (ann, ben) = (router(&schedules, operator("ann")), router(&schedules, operator("ben")));
        let of_ben = previewed(&ben, FORM, &[("f-schedule", "@daily"), ("f-owner", "ben")]).await;
        let typed = [("f-schedule", "@hourly"), ("f-jitter", "5m")];
        let of_ann = previewed(&ann, FORM, &typed).await;
        assert_eq!(send(&ann, &of_ann, "save", &SAVED).await.status, 303);
        let late = send(&ben, &of_ben, "save", &[("note", "mine")]).await;
        assert_eq!(late.status, 412, "{}", late.body);
        for says in [
            "ann (“the bank is closed at night”) has changed the job",
            "<del>@hourly</del><ins>@daily</ins>",
            "<del>none</del><ins>ben</ins>",
        ] {
            assert!(late.body.contains(says), "{says}: {}", late.body);
        }
        assert!(!late.body.contains("<del>5m</del>"), "what ben has not touched is ann's");
        let back = fields(&late.body);
        let kept =
            [("f-schedule", "@daily"), ("f-owner", "ben"), ("note", "mine"), ("f-jitter", "5m")];
        for (name, typed) in kept {
            assert_eq!(value(&back, name), typed, "{name}");
        }
        assert!(job(&schedules).await.definition.starts_with("@hourly;"));
        let refused = changes(&schedules).await;
        let of_ben: Vec<_> = refused.iter().filter(|change| change.author.actor == "ben").collect();
        assert!(
            of_ben.len() == 1 && matches!(of_ben[0].result, ChangeResult::Refused(_)),
            "{refused:?}"
        );
        let again = send(&ben, &back, "preview", &[]).await;
        assert_eq!(again.status, 200, "{}", again.body);
        assert_eq!(send(&ben, &fields(&again.body), "save", &[]).await.status, 303);
        let stored = job(&schedules).await.definition;
        assert_eq!(stored, "@daily; at-least-once 30s; retry 5 10s 1h; jitter 5m; owner ben");
        // A preview that comes too late says so, before anything is written.
        let stale = send(&ann, &of_ann, "preview", &[]).await;
        assert!(stale.status == 412 && stale.body.contains("ben (“mine”)"), "{}", stale.body);
        schedules.delete("acme/report").await.unwrap();
        let gone = send(&ann, &of_ann, "save", &[]).await;
        assert!(gone.status == 404 && gone.body.contains("no such job any more"), "{}", gone.body);
        assert_eq!(value(&fields(&gone.body), "f-schedule"), "@hourly");
    });
}

/// A store whose answers to changes are lost while it is set.
#[derive(Debug)]
struct LostAnswers(Arc<AtomicBool>);

#[async_trait]
impl Hooks for LostAnswers {
    async fn reschedule(
        &self,
        store: &Arc<dyn Backend>,
        batch: Batch<'_>,
    ) -> allora::Result<Applied> {
        let is_change = !batch.operations.is_empty();
        let applied = store.reschedule(batch).await?;
        match is_change && self.0.load(Relaxed) {
            true => Err(allora::Error::new(allora::ErrorKind::Unavailable, "no answer")
                .source("jobs:hunter2@db")),
            false => Ok(applied),
        }
    }
}

#[test]
fn an_edit_is_not_lost_while_the_store_is_down_and_is_saved_once_afterwards() {
    let is_down = Arc::new(AtomicBool::new(false));
    saved_once(Outage(is_down.clone()), &is_down, "Nothing was tried");
    let is_down = Arc::new(AtomicBool::new(false));
    saved_once(LostAnswers(is_down.clone()), &is_down, "may have been done");
}

fn saved_once(fault: impl Hooks, is_down: &AtomicBool, says: &str) {
    let sim = Sim::new(1);
    let store = Wrapped::around(Memory::new(), fault);
    sim.block_on(async {
        let schedules = Schedules::on(store, sim.node()).unwrap();
        let stored = StoredSchedule::new("acme/report", "report", "@daily")
            .data_bytes("{\n  \"to\": \"<b>\"\n}\n");
        schedules.add(&stored).await.unwrap();
        let router = router(&schedules, operator("ann").with(Scope::Data));
        let last = previewed(&router, FORM, &[("f-schedule", "@hourly")]).await;
        let sent = fill(last, &SAVED);
        is_down.store(true, Relaxed);
        let answer = send(&router, &sent, "save", &[]).await;
        assert_eq!((answer.status, answer.header("retry-after")), (503, "1"));
        assert!(answer.body.contains(says), "{says}: {}", answer.body);
        assert!(!answer.body.contains("hunter2"), "{}", answer.body);
        let sorted = |mut form: Vec<(String, String)>| {
            form.retain(|(name, _)| name != "made");
            form.sort();
            form
        };
        assert_eq!(sorted(fields(&answer.body)), sorted(sent.clone()));
        is_down.store(false, Relaxed);
        for _ in 0..2 {
            let saved = send(&router, &fields(&answer.body), "save", &[]).await;
            assert_eq!(saved.status, 303, "{}", saved.body);
        }
        let state = job(&schedules).await;
        assert!(state.definition.starts_with("@hourly;"));
        assert_eq!(state.data, stored.bytes().unwrap(), "to the byte");
        let edits = changes(&schedules).await;
        let edits = edits.iter().filter(|change| change.action == ChangeAction::Modify);
        assert_eq!(edits.count(), 1);
    });
}

#[test]
fn data_is_edited_by_those_who_see_it_and_survives_all_others() {
    with_idle_store(&["acme/report"], async |schedules| {
        let data = "{\"key\":\"hunter2\"}";
        let stored = StoredSchedule::new("acme/report", "report", "@daily").data_bytes(data);
        schedules.upsert(&stored).await.unwrap();
        let blind = router(&schedules, operator("ann"));
        let page = get(&blind, FORM).await.body;
        assert!(page.contains("17 bytes, which you may not see: it stays"), "{page}");
        assert!(!page.contains("hunter2") && !page.contains("f-data"), "{page}");
        let last =
            previewed(&blind, FORM, &[("f-schedule", "@hourly"), ("f-data", "stolen")]).await;
        let saved = send(&blind, &last, "save", &[("note", "x"), ("f-data", "stolen")]).await;
        assert_eq!(saved.status, 303, "{}", saved.body);
        assert_eq!(job(&schedules).await.data, data.as_bytes());

        let seeing = operator("ben").with(Scope::Data);
        let access = seeing.clone();
        let redacted = Console::new(schedules.clone())
            .allow_actions()
            .redact(|_, text| text.replace("hunter2", "***"))
            .access(move |_| Some(access.clone()))
            .into_router();
        let page = get(&redacted, FORM).await.body;
        assert!(page.contains("with secrets that are not shown"), "{page}");
        let last = previewed(&redacted, FORM, &[("f-schedule", "@weekly")]).await;
        assert_eq!(send(&redacted, &last, "save", &[("note", "x")]).await.status, 303);
        assert_eq!(job(&schedules).await.data, data.as_bytes());

        let open = router(&schedules, seeing);
        assert_eq!(value(&form(&open, FORM).await, "f-data"), data);
        let typed = [("f-data", "\r\n{\r\n \"key\": \"</textarea><b>\"\r\n}")];
        let last = previewed(&open, FORM, &typed).await;
        assert_eq!(send(&open, &last, "save", &[("note", "x")]).await.status, 303);
        assert_eq!(job(&schedules).await.data, b"\n{\n \"key\": \"</textarea><b>\"\n}");
        let page = get(&open, FORM).await.body;
        assert!(!page.contains("</textarea><b>"), "{page}");
        let same = send(&open, &fields(&page), "preview", &[]).await;
        assert!(same.body.contains("Nothing changes"), "{}", same.body);
        // Bytes that are no text stay, too.
        let bytes = stored.data_bytes([0xff, 0]);
        schedules.upsert(&bytes).await.unwrap();
        assert!(get(&open, FORM).await.body.contains("2 bytes that are no text: it stays"));
        let last = previewed(&open, FORM, &[("f-owner", "ann"), ("f-data", "x")]).await;
        assert_eq!(send(&open, &last, "save", &[("note", "x")]).await.status, 303);
        assert_eq!(job(&schedules).await.data, [0xff, 0]);
    });
}

#[test]
fn nobody_moves_a_job_beyond_the_own_limits() {
    with_idle_store(&["acme/report", "beta/report"], async |schedules| {
        let limited = operator("eve").only_prefixes(["acme/"]).only_kinds(["report"]);
        let limited = router(&schedules, limited);
        assert_eq!(get(&limited, "/edit?name=beta%2Freport").await.status, 404);
        let own = form(&limited, FORM).await;
        let moved = send(&limited, &own, "save", &[("f-kind", "mail"), ("note", "x")]).await;
        assert!(
            moved.status == 422 && moved.body.contains("no jobs of the kind &#34;mail&#34;"),
            "{}",
            moved.body
        );
        let other = send(&limited, &own, "save", &[("name", "beta/report"), ("note", "x")]).await;
        assert_eq!(other.status, 404, "{}", other.body);
        let new = form(&limited, "/edit").await;
        for (name, kind, says) in
            [("beta/new", "report", "no jobs of the name"), ("acme/new", "mail", "of the kind")]
        {
            let typed = [("name", name), ("f-kind", kind), ("f-schedule", "@daily")];
            let refused = send(&limited, &new, "save", &typed).await;
            assert!(refused.status == 422 && refused.body.contains(says), "{}", refused.body);
        }
        for access in [Access::reader("bob").with_data(), Access::reader("bob").with(Scope::Run)] {
            let router = router(&schedules, access);
            let page = get(&router, "/job?name=acme%2Freport").await.body;
            assert!(!page.contains("edit?"), "{page}");
            assert!(!get(&router, "/jobs").await.body.contains("Add a job"));
            for answer in [get(&router, FORM).await, send(&router, &own, "save", &SAVED).await] {
                assert!(answer.status == 403 && answer.body.contains("scope &#34;edit&#34;"));
            }
        }
        let closed =
            Console::new(schedules.clone()).access(|_| Some(operator("ann"))).into_router();
        assert_eq!(get(&closed, FORM).await.status, 403);
        assert_eq!(send(&closed, &own, "save", &SAVED).await.status, 403);
        assert!(changes(&schedules).await.is_empty());
    });
}

#[test]
fn a_job_is_added_once_and_takes_no_other_ones_name() {
    with_idle_store(&["acme/report"], async |schedules| {
        let router = router(&schedules, operator("ann").with(Scope::Data));
        assert!(get(&router, "/jobs").await.body.contains("href=\"edit\""));
        let new = form(&router, "/edit").await;
        assert_eq!(value(&new, "f-at-least-once"), "30s", "the settings of a new one");
        for (typed, says) in [
            (vec![("name", "acme/new"), ("f-kind", "report")], "Schedule"),
            (vec![("name", ""), ("f-kind", "report"), ("f-schedule", "@daily")], "name"),
            (vec![("name", "acme/new"), ("f-kind", ""), ("f-schedule", "@daily")], "name"),
            (
                vec![("name", "acme/report"), ("f-kind", "report"), ("f-schedule", "@daily")],
                "already",
            ),
        ] {
            let refused = send(&router, &new, "preview", &typed).await;
            assert!(
                refused.status == 422 && refused.body.contains(says),
                "{typed:?}: {}",
                refused.body
            );
        }
        let typed = [
            ("name", "acme/<new>"),
            ("f-kind", "report"),
            ("f-schedule", "@daily"),
            ("f-data", "{}"),
        ];
        let last = previewed(&router, "/edit", &typed).await;
        for _ in 0..2 {
            let added = send(&router, &last, "save", &[]).await;
            assert_eq!(added.status, 303, "{}", added.body);
            let page = get(&router, &format!("/{}", added.header("location"))).await.body;
            assert!(page.contains("Added.") && !page.contains("<new>"), "{page}");
        }
        let state = schedules.get("acme/<new>").await.unwrap();
        assert_eq!((&*state.kind, &*state.data), ("report", &b"{}"[..]));
        assert_eq!(state.definition, "@daily; at-least-once 30s; retry 5 10s 1h");
        let made = changes(&schedules).await;
        assert!(made.len() == 1 && made[0].action == ChangeAction::Create, "{made:?}");
        let link = get(&router, "/jobs?q=acme%2F%3C").await.body;
        let link = link.split("href=\"").find(|link| link.starts_with("job?")).unwrap();
        let link = unescaped(link.split('"').next().unwrap()).replacen("job", "/edit", 1);
        assert_eq!(value(&form(&router, &link).await, "name"), "acme/<new>");
    });
}
