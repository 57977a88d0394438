//! Actions: their forms, who may send them, and what becomes of a form that cannot be done.

use super::{Answer, get, send, unescaped, with_idle_store, with_store};
use allora::{
    Memory, Schedules, StoredSchedule, async_trait,
    backend::{Applied, Backend, Batch, DeadLetter, JobState, Queries},
    chrono::TimeDelta,
    runtime::Sim,
    stored::ChangeFilter,
};
use allora_conformance::faults::{Hooks, Wrapped};
use allora_console::{Access, Console, Scope};
use axum::{Router, body::Body, http::Request};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

fn router(schedules: &Schedules, access: Access) -> Router {
    let console = Console::new(schedules.clone()).allow_actions();
    console.access(move |_| Some(access.clone())).into_router()
}

fn operator(who: &str) -> Access {
    Access::reader(who).with(Scope::Run).with(Scope::Edit)
}

/// The fields of the form on a page.
fn fields(page: &str) -> Vec<(String, String)> {
    let form =
        page.split("<form class=\"act\"").nth(1).unwrap_or_else(|| panic!("no form: {page}"));
    let inputs = form.split("</form>").next().unwrap().split("<input ").skip(1);
    let attribute = |input: &str, name: &str| {
        let after = input.split_once(&format!("{name}=\""))?.1;
        Some(unescaped(after.split('"').next()?))
    };
    let named = inputs.filter(|input| !input.contains("type=\"radio\""));
    named
        .filter_map(|input| Some((attribute(input, "name")?, attribute(input, " value")?)))
        .collect()
}

fn encoded(fields: &[(String, String)]) -> String {
    let bytes = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    let pairs = fields.iter().map(|(name, value)| format!("{}={}", bytes(name), bytes(value)));
    pairs.collect::<Vec<_>>().join("&")
}

async fn post(router: &Router, body: String) -> Answer {
    post_to(router, "/act", body).await
}

async fn post_to(router: &Router, path: &str, body: String) -> Answer {
    let request = Request::builder()
        .method("POST")
        .uri(path)
        .header("sec-fetch-site", "same-origin")
        .header("content-type", "application/x-www-form-urlencoded");
    send(router, request.body(Body::from(body)).unwrap()).await
}

/// The form of an action, with these values typed into it.
async fn form(router: &Router, action: &str, typed: &[(&str, &str)]) -> Vec<(String, String)> {
    let page = get(router, &format!("/act?{action}")).await;
    assert_eq!(page.status, 200, "{action}: {}", page.body);
    fill(fields(&page.body), typed)
}

fn fill(mut fields: Vec<(String, String)>, typed: &[(&str, &str)]) -> Vec<(String, String)> {
    for (name, value) in typed {
        fields.retain(|(own, _)| own != name);
        fields.push(((*name).to_owned(), (*value).to_owned()));
    }
    fields
}

/// Does an action, and returns the page to which it leads.
async fn done(router: &Router, action: &str, typed: &[(&str, &str)]) -> String {
    let answer = post(router, encoded(&form(router, action, typed).await)).await;
    assert_eq!(answer.status, 303, "{action}: {}", answer.body);
    let target = answer.header("location").to_owned();
    assert!(target.starts_with("job"), "{target}");
    let page = get(router, &format!("/{target}")).await;
    assert_eq!(page.status, 200, "{target}");
    page.body
}

#[test]
fn each_action_does_what_its_page_says() {
    with_idle_store(&["report"], async |schedules| {
        let router = router(&schedules, operator("ann"));
        let job = async || schedules.get("report").await.unwrap();
        let note = [("note", "deploying")];

        let page = done(&router, "do=pause&name=report", &note).await;
        assert!(page.contains("Paused. Manual") && page.contains("ann: deploying"), "{page}");
        assert!(
            page.contains("do=resume") && !page.contains("do=pause"),
            "the undo, and the button"
        );
        let page = done(&router, "do=resume&name=report", &[("gap", "missed")]).await;
        assert!(page.contains("Resumed") && job().await.paused.is_none());

        let soon = schedules.store_now().await.unwrap() + TimeDelta::hours(1);
        let local = soon.format("%Y-%m-%d %H:%M").to_string();
        let until = [("note", "deploying"), ("until", &local), ("clocks", "UTC")];
        let page = done(&router, "do=pause&name=report", &until).await;
        let end = job().await.paused.and_then(|pause| pause.until).unwrap();
        assert!(soon - end < TimeDelta::minutes(1) && page.contains(", until "), "{end}: {page}");
        let again = form(&router, "do=pause&name=report", &until).await;
        assert_eq!(post(&router, encoded(&again)).await.status, 303, "it is paused so");
        done(&router, "do=resume&name=report", &[("gap", "catch-up")]).await;

        let next = schedules.next("report", 3).await.unwrap();
        done(&router, "do=skip&name=report&count=2", &note).await;
        assert_eq!(schedules.next("report", 1).await.unwrap()[0], next[2]);

        let page = done(&router, "do=trigger&name=report", &[("id", "ticket 7")]).await;
        assert!(
            page.contains("do=cancel&amp;name=report&amp;id=ticket%207")
                || page.contains("id=ticket%207")
        );
        let page =
            done(&router, "do=cancel&name=report", &[("id", "ticket 7"), ("note", "no")]).await;
        assert!(page.contains("Cancelled. 1 run."), "{page}");

        let from = (schedules.store_now().await.unwrap() - TimeDelta::seconds(50)).to_rfc3339();
        let range = format!("do=backfill&name=report&from={}", from.replace('+', "%2B"));
        let page = done(&router, &range, &note).await;
        assert!(
            page.contains("Backfilled. 2 runs.") || page.contains("Backfilled. 3 runs."),
            "{page}"
        );
        let page = done(&router, "do=cancel&name=report", &note).await;
        assert!(
            page.contains("Cancelled. 2 runs.") || page.contains("Cancelled. 3 runs."),
            "{page}"
        );

        let before = job().await.incarnation;
        done(&router, "do=reset&name=report", &note).await;
        assert_ne!(job().await.incarnation, before);

        let typed = [("note", "gone"), ("typed", "report")];
        let page = done(&router, "do=delete&name=report", &typed).await;
        assert!(page.contains("report was deleted"), "{page}");
        assert!(!schedules.exists("report").await.unwrap());
    });
}

#[test]
fn dead_letters_are_rerun_and_dismissed() {
    with_idle_store(&[], async |schedules| {
        let stored = StoredSchedule::new("poison", "report", "@daily");
        let mut state = schedules.add(&stored).await.unwrap();
        schedules.delete("poison").await.unwrap();
        let now = schedules.store_now().await.unwrap();
        for hours in [2, 1] {
            let occurrence = (now - TimeDelta::hours(hours)).into();
            let error = "refused".to_owned();
            state.dead.push(DeadLetter { occurrence, attempts: 5, died_at: now, error });
        }
        schedules.import(&[state]).await.unwrap().remove(0).unwrap();
        let router = router(&schedules, operator("ann"));
        for (verb, left) in [("rerun", 1), ("dismiss", 0)] {
            let page = get(&router, "/job?name=poison").await.body;
            let link =
                page.split("href=\"act?").find(|link| link.starts_with(&format!("do={verb}")));
            let link = unescaped(link.unwrap().split('"').next().unwrap());
            let sent = form(&router, &link, &[("note", "known")]).await;
            assert_eq!(post(&router, encoded(&sent)).await.status, 303);
            assert_eq!(schedules.get("poison").await.unwrap().dead.len(), left, "{verb}");
            // The second of two clicks finds no letter, and says so.
            let again = post(&router, encoded(&sent)).await;
            assert!(again.status == 422 && again.body.contains("letter is gone"), "{}", again.body);
        }
    });
}

#[test]
fn each_scope_allows_its_actions_and_a_refusal_names_the_missing_one() {
    with_idle_store(&["report"], async |schedules| {
        let cases = [
            (Access::reader("ann"), "pause", "run"),
            (Access::reader("ann").with_data(), "trigger", "run"),
            (Access::reader("ann").with(Scope::Run), "delete", "edit"),
            (Access::reader("ann").with(Scope::Edit), "cancel", "run"),
        ];
        for (access, verb, missing) in cases {
            let router = router(&schedules, access);
            let shown = get(&router, &format!("/act?do={verb}&name=report")).await;
            let sent = post(&router, format!("do={verb}&name=report&note=x")).await;
            for answer in [shown, sent] {
                let says = format!("scope &#34;{missing}&#34;");
                assert!(answer.status == 403 && answer.body.contains(&says), "{}", answer.body);
            }
        }
        let admin = router(&schedules, Access::new("ann").with(Scope::Admin));
        done(&admin, "do=pause&name=report", &[("note", "x")]).await;
        let reader = router(&schedules, Access::reader("ann"));
        let page = get(&reader, "/job?name=report").await.body;
        assert!(page.contains("read-only") && !page.contains("act?do="), "{page}");
    });
}

#[test]
fn without_actions_nothing_can_be_sent() {
    with_idle_store(&["report"], async |schedules| {
        let console = Console::new(schedules).access(|_| Some(operator("ann")));
        let router = console.into_router();
        let shown = get(&router, "/act?do=pause&name=report").await;
        let sent = post(&router, "do=pause&name=report&note=x".into()).await;
        for answer in [shown, sent] {
            assert!(
                answer.status == 403 && answer.body.contains("--allow-actions"),
                "{}",
                answer.body
            );
        }
        assert!(!get(&router, "/job?name=report").await.body.contains("act?do="));
    });
}

#[test]
fn a_form_that_lacks_something_comes_back_with_what_was_typed() {
    with_store(&["report"], async |schedules| {
        let router = router(&schedules, operator("ann"));
        for (action, typed, says) in [
            ("pause", vec![("note", "")], "Write a note"),
            ("resume", vec![("note", "kept <b>")], "Choose"),
            ("delete", vec![("note", "kept <b>"), ("typed", "repor")], "type its name"),
            ("trigger", vec![("note", "kept <b>"), ("id", "")], "id"),
            ("cancel", vec![("note", "")], "Write a note"),
        ] {
            if action == "resume" {
                schedules.pause("report", "a").await.unwrap();
            }
            let sent = form(&router, &format!("do={action}&name=report"), &typed).await;
            let answer = post(&router, encoded(&sent)).await;
            assert!(
                answer.status == 422 && answer.body.contains(says),
                "{action}: {}",
                answer.body
            );
            assert_eq!(fill(fields(&answer.body), &[]).len(), sent.len(), "{action}");
            for (name, value) in &typed {
                let back = fields(&answer.body).into_iter().find(|(own, _)| own == name).unwrap();
                assert_eq!(back.1, *value, "{action}");
            }
            assert!(!answer.body.contains("kept <b>"), "{action}");
            schedules.resume("report", allora::stored::Gap::CatchUp).await.unwrap();
        }
    });
}

#[test]
fn a_second_click_does_nothing_twice() {
    with_idle_store(&["report"], async |schedules| {
        let router = router(&schedules, operator("ann"));
        let pause = form(&router, "do=pause&name=report", &[("note", "x")]).await;
        assert_eq!(post(&router, encoded(&pause)).await.status, 303);
        let since = schedules.get("report").await.unwrap().paused;
        assert_eq!(post(&router, encoded(&pause)).await.status, 303);
        assert_eq!(schedules.get("report").await.unwrap().paused, since);

        let trigger = form(&router, "do=trigger&name=report", &[]).await;
        for _ in 0..2 {
            assert_eq!(post(&router, encoded(&trigger)).await.status, 303);
        }
        assert_eq!(schedules.cancel("report").await.unwrap(), 1);

        let skip = form(&router, "do=skip&name=report", &[("note", "x")]).await;
        assert_eq!(post(&router, encoded(&skip)).await.status, 303);
        let next = schedules.next("report", 1).await.unwrap();
        let again = post(&router, encoded(&skip)).await;
        assert!(again.status == 409 && again.body.contains("has changed since"), "{}", again.body);
        assert_eq!(schedules.next("report", 1).await.unwrap(), next);

        let typed = [("note", "x"), ("typed", "report")];
        let delete = form(&router, "do=delete&name=report", &typed).await;
        for _ in 0..2 {
            assert_eq!(post(&router, encoded(&delete)).await.status, 303);
        }
    });
}

#[test]
fn the_second_of_two_editors_sees_what_the_first_has_done_and_loses_nothing() {
    with_idle_store(&["report"], async |schedules| {
        let (ann, ben) = (router(&schedules, operator("ann")), router(&schedules, operator("ben")));
        let of_ben = form(&ben, "do=pause&name=report", &[("note", "the disk is full")]).await;
        done(&ann, "do=pause&name=report", &[("note", "deploying")]).await;
        let answer = post(&ben, encoded(&of_ben)).await;
        assert_eq!(answer.status, 409, "{}", answer.body);
        assert!(
            answer.body.contains("ann: deploying") && answer.body.contains("has changed since")
        );
        let paused = schedules.get("report").await.unwrap().paused.unwrap();
        assert_eq!(paused.note, "ann: deploying");
        // A definition that was changed meanwhile is not deleted unseen.
        let delete =
            form(&ben, "do=delete&name=report", &[("note", "x"), ("typed", "report")]).await;
        let other = StoredSchedule::new("report", "report", "@every 30s");
        schedules.upsert(&other).await.unwrap();
        let answer = post(&ben, encoded(&delete)).await;
        assert!(answer.status == 409 && schedules.exists("report").await.unwrap());
        let again = fill(fields(&answer.body), &[]);
        assert_eq!(post(&ben, encoded(&again)).await.status, 303, "what was typed is still there");
    });
}

#[test]
fn hostile_names_and_notes_are_text() {
    let names = [
        "..",
        "a?b#c&d=e",
        "100%25 %2F",
        "<img src=x onerror=alert(1)>",
        "\"><script>alert(1)</script>",
        "javascript:alert(1)",
        "🦀",
    ];
    with_idle_store(&names, async |schedules| {
        let router = router(&schedules, operator("\"><b>ann"));
        for name in names {
            let page = get(&router, &link(&router, name).await).await;
            let button = page.body.split("href=\"act?").find(|link| link.starts_with("do=pause"));
            let button = unescaped(button.unwrap().split('"').next().unwrap());
            let page = done(&router, &button, &[("note", "<img src=y>")]).await;
            let is_escaped = |bad: &str| !page.contains(bad);
            assert!(["<img", "<script>alert", "<b>ann"].into_iter().all(is_escaped), "{name}");
            let paused = schedules.get(name).await.unwrap().paused.unwrap();
            assert!(paused.note.ends_with("<img src=y>"), "{name}");
        }
    });
}

/// The path of the page of a job, from the list.
async fn link(router: &Router, name: &str) -> String {
    let list = get(router, "/jobs").await.body;
    for link in list.split("href=\"").filter(|link| link.starts_with("job?")) {
        let (link, text) = link.split_once("\">").unwrap();
        if unescaped(text.split("</a>").next().unwrap()) == name {
            return format!("/{}", unescaped(link));
        }
    }
    panic!("{name} is not in the list")
}

#[test]
fn bodies_that_are_no_form_are_refused() {
    with_idle_store(&["report"], async |schedules| {
        let router = router(&schedules, operator("ann"));
        for (body, status) in [
            (format!("do=pause&name=report&note={}", "a".repeat(16 * 1024)), 413),
            ("do=pause&do=delete&name=report".into(), 400),
            ("do=pause&name=%FF".into(), 400),
            ("do=explode&name=report".into(), 400),
            ("do=pause".into(), 400),
            (String::new(), 400),
            ("do=pause&name=nobody&note=x".into(), 404),
        ] {
            assert_eq!(post(&router, body.clone()).await.status, status, "{body:.60}");
        }
        let json = Request::builder().method("POST").uri("/act").header("sec-fetch-site", "none");
        let json = json.header("content-type", "application/json").body(Body::from("{}")).unwrap();
        assert_eq!(send(&router, json).await.status, 415);
        assert!(schedules.get("report").await.unwrap().paused.is_none());
    });
}

/// A store that can be down.
#[derive(Debug)]
struct Outage(Arc<AtomicBool>);

impl Outage {
    fn check(&self) -> allora::Result {
        match self.0.load(Relaxed) {
            true => {
                Err(allora::Error::new(allora::ErrorKind::Unavailable, "the store does not answer")
                    .source("connect to jobs:hunter2@db refused"))
            }
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Hooks for Outage {
    async fn reschedule(
        &self,
        store: &Arc<dyn Backend>,
        batch: Batch<'_>,
    ) -> allora::Result<Applied> {
        self.check()?;
        store.reschedule(batch).await
    }

    async fn get(&self, store: &dyn Queries, name: &str) -> allora::Result<JobState> {
        self.check()?;
        store.get(name).await
    }
}

#[test]
fn a_form_is_not_lost_while_the_store_is_down_and_is_done_once_afterwards() {
    let sim = Sim::new(1);
    let is_down = Arc::new(AtomicBool::new(false));
    let store = Wrapped::around(Memory::new(), Outage(is_down.clone()));
    sim.block_on(async {
        let schedules = Schedules::on(store, sim.node()).unwrap();
        let stored = StoredSchedule::new("report", "report", "@daily");
        schedules.add(&stored).await.unwrap();
        let router = router(&schedules, operator("ann"));
        for (action, typed) in [
            ("do=pause&name=report", vec![("note", "kept")]),
            ("do=trigger&name=report", vec![("id", "ticket 7"), ("note", "kept")]),
        ] {
            let sent = form(&router, action, &typed).await;
            is_down.store(true, Relaxed);
            let answer = post(&router, encoded(&sent)).await;
            assert_eq!((answer.status, answer.header("retry-after")), (503, "1"), "{action}");
            assert!(answer.body.contains("Send the form again"), "{}", answer.body);
            assert!(!answer.body.contains("hunter2"), "{}", answer.body);
            let mut back = fields(&answer.body);
            let mut before = sent.clone();
            back.sort();
            before.sort();
            assert_eq!(back, before, "{action}");
            is_down.store(false, Relaxed);
            for _ in 0..2 {
                assert_eq!(post(&router, encoded(&back)).await.status, 303, "{action}");
            }
        }
        assert_eq!(schedules.get("report").await.unwrap().paused.unwrap().note, "ann: kept");
        assert_eq!(schedules.cancel("report").await.unwrap(), 1);
    });
}

#[test]
fn an_action_is_in_the_record_of_changes_with_its_reader_and_note() {
    with_idle_store(&["acme/report"], async |schedules| {
        let router = router(&schedules, operator("ann"));
        done(&router, "do=pause&name=acme%2Freport", &[("note", "the warehouse moves")]).await;
        let nobody = operator("");
        let router = Console::new(schedules.clone()).allow_actions();
        let router = router.access(move |_| Some(nobody.clone())).into_router();
        done(&router, "do=resume&name=acme%2Freport", &[("gap", "missed")]).await;
        let page = schedules.changes(ChangeFilter::default(), None, 10).await.unwrap();
        let said: Vec<String> = page
            .changes
            .iter()
            .map(|it| format!("{} by {}: {}", it.action.word(), it.author, it.author.note))
            .collect();
        // A resumption without the gap leaves out the occurrences of the pause first.
        assert_eq!(
            said,
            [
                "resume by a reader (console): ",
                "skip by a reader (console): ",
                "pause by ann (console): the warehouse moves",
            ]
        );
    });
}

/// The form of the undoing that is first on the page of changes, with its address.
async fn undoing(router: &Router) -> (String, Vec<(String, String)>) {
    let audit = get(router, "/audit").await;
    let link = audit.body.split("href=\"undo?").nth(1).unwrap_or_else(|| panic!("{}", audit.body));
    let link = format!("/undo?{}", unescaped(link.split('"').next().unwrap()));
    let page = get(router, &link).await;
    assert_eq!(page.status, 200, "{}", page.body);
    (link, fields(&page.body))
}

#[test]
fn a_change_is_listed_and_taken_back_once() {
    with_idle_store(&["acme/report"], async |schedules| {
        let all = router(&schedules, operator("ann"));
        done(&all, "do=pause&name=acme%2Freport", &[("note", "the <b>warehouse</b> moves")]).await;
        let audit = get(&all, "/audit?actor=ann&what=pause").await.body;
        for said in ["ann", "console", "the &#60;b&#62;warehouse&#60;/b&#62; moves", "acme/report"]
        {
            assert!(audit.contains(said), "{said}: {audit}");
        }
        let (link, form) = undoing(&all).await;
        let undo = async |router: &Router| post_to(router, "/undo", encoded(&form)).await;
        // A reader without the scope takes nothing back; one who may not see the job learns nothing of it.
        let reader = router(&schedules, Access::reader("bob"));
        assert!(!get(&reader, "/audit").await.body.contains("undo?"));
        assert_eq!(undo(&reader).await.status, 403);
        let other = router(&schedules, operator("eve").only_prefixes(["beta/"]));
        assert!(!get(&other, "/audit").await.body.contains("warehouse"));
        let refused = undo(&other).await;
        assert!(refused.status == 409 && !refused.body.contains("warehouse"), "{}", refused.body);
        let answer = undo(&all).await;
        assert_eq!((answer.status, answer.header("location")), (303, "audit?name=acme%2Freport"));
        assert_eq!(schedules.get("acme/report").await.unwrap().paused, None);
        let again = undo(&all).await;
        assert!(again.status == 409 && again.body.contains("cannot be undone"), "{}", again.body);
        assert_eq!(get(&all, &link.replace("change=", "change=x")).await.status, 400);
    });
}

#[test]
fn a_deleted_job_comes_back_from_the_page_of_changes() {
    with_store(&["acme/report"], async |schedules| {
        let before = schedules.get("acme/report").await.unwrap();
        let all = router(&schedules, operator("ann"));
        schedules.clone().by("ann").delete("acme/report").await.unwrap();
        let (_, form) = undoing(&all).await;
        let answer = post_to(&all, "/undo", encoded(&form)).await;
        assert_eq!(answer.status, 303, "{}", answer.body);
        let after = schedules.get("acme/report").await.unwrap();
        assert_eq!((after.counters, after.definition), (before.counters, before.definition));
    });
}

#[test]
fn many_jobs_are_changed_once_their_number_is_typed() {
    with_idle_store(&["acme/a", "acme/b", "beta/c"], async |schedules| {
        let is_paused = async |name| schedules.get(name).await.unwrap().paused.is_some();
        let all = router(&schedules, operator("ann"));
        let list = get(&all, "/jobs?q=acme%2F").await.body;
        let link = unescaped(link_to(&list, "many?"));
        let page = get(&all, &format!("/{link}")).await;
        assert!(
            page.body.contains("Pause: 2 jobs") && page.body.contains("acme/a"),
            "{}",
            page.body
        );
        assert!(!page.body.contains("beta/c"));
        let typed =
            |number| encoded(&fill(fields(&page.body), &[("note", "moving"), ("typed", number)]));
        let wrong = post_to(&all, "/many", typed("3")).await;
        assert!(
            wrong.status == 422 && wrong.body.contains("2 jobs would be changed"),
            "{}",
            wrong.body
        );
        assert!(wrong.body.contains("value=\"moving\""), "the note is kept: {}", wrong.body);
        assert!(!is_paused("acme/a").await);
        assert_eq!(
            post_to(&router(&schedules, Access::reader("bob")), "/many", typed("2")).await.status,
            403
        );
        let done = post_to(&all, "/many", typed("2")).await;
        assert!(done.status == 200 && done.body.contains("2 jobs changed."), "{}", done.body);
        assert!(
            is_paused("acme/a").await && is_paused("acme/b").await && !is_paused("beta/c").await
        );
        let again = post_to(&all, "/many", typed("2")).await;
        assert!(again.status == 422 && again.body.contains("0 jobs"), "{}", again.body);
        let beta = router(&schedules, operator("eve").only_prefixes(["beta/"]));
        let page = get(&beta, "/many?do=pause").await.body;
        assert!(page.contains("Pause: 1 job") && !page.contains("acme/"), "{page}");
        let changes =
            schedules.changes(ChangeFilter::default().actor("ann"), None, 10).await.unwrap();
        assert_eq!(changes.changes.len(), 2);
    });
}

/// The first address of the page that begins with this text.
fn link_to<'a>(page: &'a str, begins: &str) -> &'a str {
    let at = page.find(&format!("href=\"{begins}")).unwrap_or_else(|| panic!("{begins}: {page}"));
    page[at + 6..].split('"').next().unwrap()
}
