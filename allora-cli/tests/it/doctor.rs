//! Findings of the doctor.

use crate::site::{Site, server};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, raw_sql};

fn block_on(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
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
    assert!(
        said.contains("`allora init` makes what is missing") || said.contains("connect once"),
        "{said}"
    );
    site.allora(&["init", "--url", &url, "--prefix", &prefix]).fine();
    assert!(!doctor(&url).fine().contains("BAD"));

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
