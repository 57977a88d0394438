//! Findings of the doctor.

use crate::site::{Site, server};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqliteConnection, raw_sql};

fn block_on(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
}

#[test]
fn the_rights_of_a_login_are_printed_for_stores_that_have_logins() {
    let site = Site::new("");
    site.allora(&["init", "--url", &site.args[1]]).fine();
    let said = site.allora(&["doctor", "--grants", "jobs", "--url", &site.args[1]]).refused(2);
    assert!(said.contains("this store has no logins"), "{said}");
    let Some(url) = server("postgres", "ALLORA_TEST_POSTGRES_URL") else { return };
    let at = ["--url", &url, "--prefix", "granted"];
    site.allora(&[&["init"], &at as &[&str]].concat()).fine();
    let said = site.allora(&[&["doctor", "--grants", "a \"b"], &at as &[&str]].concat()).fine();
    assert!(said.starts_with("GRANT SELECT, INSERT, UPDATE, DELETE ON granted_"), "{said}");
    assert!(said.ends_with(" TO \"a \"\"b\";\n"), "{said}");
}

#[test]
fn a_role_that_may_only_read_is_found() {
    let Some(url) = server("postgres", "ALLORA_TEST_POSTGRES_URL") else { return };
    let site = Site::new("");
    let prefix = format!("d{:x}", std::process::id());
    let at = |url: &str| -> Vec<String> {
        ["doctor", "--url", url, "--prefix", &prefix].map(str::to_owned).to_vec()
    };
    let doctor = |url: &str| {
        let at = at(url);
        site.allora(&at.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let said = doctor(&url).refused(1);
    assert!(said.contains("run `allora init` once, as a role that may create tables"), "{said}");
    site.allora(&["init", "--url", &url, "--prefix", &prefix]).fine();
    let well = doctor(&url).fine();
    assert!(!well.contains("BAD"), "{well}");
    let mut is_durable = false;
    block_on(async {
        let mut connection = PgConnection::connect(&url).await.unwrap();
        let fsync = sqlx::query_scalar("SELECT current_setting('fsync') = 'on'");
        is_durable = fsync.fetch_one(&mut connection).await.unwrap();
    });
    assert_eq!(!is_durable, well.contains("!   durability") && well.contains("fsync"), "{well}");

    let reader = format!("reader_{prefix}");
    let run = |statement: String| {
        let url = url.clone();
        block_on(async move {
            let mut connection = PgConnection::connect(&url).await.unwrap();
            connection.execute(raw_sql(AssertSqlSafe(statement))).await.unwrap();
        });
    };
    run(format!(
        "CREATE ROLE {reader} LOGIN PASSWORD 'reader'; \
         GRANT SELECT ON ALL TABLES IN SCHEMA public TO {reader}"
    ));
    let (_, host) = url.rsplit_once('@').unwrap();
    let said = doctor(&format!("postgres://{reader}:reader@{host}"));
    run(format!("DROP OWNED BY {reader}; DROP ROLE {reader}"));
    assert_eq!(said.code, 1, "{said:?}");
    let rights = said.out.lines().find(|line| line.contains("rights")).unwrap();
    assert!(rights.starts_with("BAD rights") && rights.contains("permission denied"), "{rights}");
    for well in ["ok  store", "ok  clock"] {
        assert!(said.out.contains(well), "{said:?}");
    }
    assert_eq!(said.err, "error: a check failed; see the lines that begin with BAD\n");
}

#[test]
fn init_restores_an_index_and_every_other_command_says_so() {
    let site = Site::new("");
    let url = format!("sqlite:{}", site.path("store.db").display());
    let allora = |command: &str| site.allora(&[command, "--url", &url]);
    allora("init").fine();
    block_on(async {
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        connection.execute("DROP INDEX allora_state_index_at").await.unwrap();
    });
    let said = allora("doctor").refused(1);
    assert!(
        said.contains("allora_state_index_at") && said.contains("run `allora init` once"),
        "{said}"
    );
    allora("init").fine();
    assert!(!allora("doctor").fine().contains("BAD"));
}

#[test]
fn init_makes_a_lost_history_again_and_every_other_command_says_so() {
    let site = Site::new("");
    let url = format!("sqlite:{}", site.path("store.db").display());
    let allora = |command: &str| site.allora(&[command, "--url", &url]);
    allora("init").fine();
    block_on(async {
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        connection.execute("DROP TABLE allora_history").await.unwrap();
    });
    let said = allora("list").refused(1);
    assert!(said.contains("allora_history") && said.contains("run `allora init` once"), "{said}");
    allora("init").fine();
    assert!(!allora("doctor").fine().contains("BAD"));
    allora("history").fine();
}

#[test]
fn dead_and_overdue_jobs_are_found_and_the_findings_are_objects() {
    let site = Site::new(
        "ALLORA_DELIVERY=at-least-once\nALLORA_MAX_RUNS=1\nALLORA_NAME=bad\n@every 1s false\n",
    );
    let doctor = || site.allora(&["doctor", "--json", "--url", "sqlite:store.db"]);
    let daemon = site.start();
    daemon.says(" outcome=dead");
    let finding = |what: &str| {
        let said = doctor();
        let lines: Vec<serde_json::Value> =
            said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (said.code, lines.into_iter().find(|line| line["check"] == what))
    };
    crate::site::patiently("the dead letter is found", || finding("dead").1.is_some());
    let (code, dead) = finding("dead");
    let dead = dead.unwrap();
    assert_eq!((code, &dead["state"]), (1, &"bad".into()));
    let text = dead["text"].as_str().unwrap();
    assert!(text.starts_with("1 job with dead letters") && text.contains("(jobs:bad)"), "{dead}");
    assert_eq!(finding("clock").1.unwrap()["state"], "ok");
    daemon.stop_well();
    let url = ["--url", "sqlite:store.db"];
    site.allora(
        &[&["add", "late", "t", "@every 1h", "{}", "-s", "2020-01-01T00:00:00Z"], &url[..]]
            .concat(),
    )
    .fine();
    assert!(finding("job-overdue").1.unwrap()["text"].as_str().unwrap().contains("(late)"));
    let alone = finding("no-live-node").1.unwrap();
    assert!(
        alone["text"].as_str().unwrap().starts_with("no node is live on this store, which has "),
        "{alone}"
    );
}

#[test]
fn data_that_was_broken_in_the_store_is_found_by_list_doctor_and_why() {
    let site = Site::new("");
    let url = ["--url", "sqlite:store.db"];
    let allora = |args: &[&str]| site.allora(&[args, &url].concat());
    allora(&["init"]).fine();
    for name in ["good", "bad", "worse"] {
        allora(&["add", name, "command", "@daily", r#"{"command": "true"}"#]).fine();
    }
    block_on(async {
        let path = format!("sqlite:{}", site.path("store.db").display());
        let mut connection = SqliteConnection::connect(&path).await.unwrap();
        for (name, data) in [("bad", "{not json"), ("worse", "[1]")] {
            let broken = sqlx::query(
                "UPDATE allora_data SET data = ? WHERE id = (SELECT id FROM allora_job WHERE name = ?)",
            );
            let done = broken
                .bind(data.as_bytes())
                .bind(name.as_bytes())
                .execute(&mut connection)
                .await
                .unwrap();
            assert_eq!(done.rows_affected(), 1);
        }
    });
    let listed = allora(&["list", "--state", "bad-data", "--sort", "name"]).fine();
    assert!(listed.contains("bad_data") && listed.ends_with("2 entries.\n"), "{listed}");
    assert!(allora(&["list"]).fine().ends_with("3 entries.\n"));
    let said = allora(&["doctor"]);
    let data = said.out.lines().find(|line| line.starts_with("BAD data")).unwrap();
    assert!(data.contains("2 jobs") && data.contains("bad"), "{data}");
    assert!(!said.out.contains("ok  jobs"), "{}", said.out);
    let why = allora(&["why", "bad"]).fine();
    assert!(why.contains("it cannot be run: the data: ") && why.contains("--data"), "{why}");
    allora(&["modify", "bad", "--data", r#"{"command": "true"}"#]).fine();
    assert!(allora(&["list", "--state", "bad-data"]).fine().ends_with("1 entry.\n"));
}
