//! The cost of the SQL store, beside the raw limit of the same server in the same run.
//!
//! `cargo bench -p allora-benches --bench sql` measures SQLite, and the servers whose URLs are in
//! `ALLORA_TEST_POSTGRES_URL` and `ALLORA_TEST_MYSQL_URL` (`cargo xtask services up` says them), in
//! tables of its own that are removed at the end. `-- DATABASE [PART]` measures less; the
//! parts are rates, stored, counts, backlog, late.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot start says so")]
#![allow(clippy::print_stdout, reason = "its tables are what it is for")]
#![expect(clippy::disallowed_methods, reason = "it measures the clocks' passing")]

mod raw;
mod tables;

use allora_benches::server::statements;
use raw::Raw;

/// The variables that name the servers.
const SERVERS: [(&str, &str); 2] =
    [("postgres", "ALLORA_TEST_POSTGRES_URL"), ("mysql", "ALLORA_TEST_MYSQL_URL")];

fn main() {
    statements::install();
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let wanted = |n: usize, name: &str| args.get(n).is_none_or(|arg| arg == name);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", folder.path().join("bench.db").display());
    let mut places = vec![("sqlite", file)];
    for (database, variable) in SERVERS {
        match std::env::var(variable) {
            Ok(url) => places.push((database, url)),
            Err(_) => println!("{database} is left out: {variable} is not set"),
        }
    }
    for (database, url) in places.iter().filter(|(database, _)| wanted(0, database)) {
        runtime.block_on(async {
            let raw = Raw::connect(url).await;
            raw.clear().await;
            println!("\n### {database}, {}", raw.version().await);
            if wanted(1, "rates") {
                tables::rates(&raw, url).await;
            }
            if wanted(1, "stored") {
                tables::stored(&raw, url).await;
            }
            if wanted(1, "counts") {
                tables::counts(&raw, url).await;
            }
            if wanted(1, "backlog") {
                tables::backlog(&raw, url).await;
            }
            if wanted(1, "late") {
                tables::late(&raw, url).await;
            }
            raw.clear().await;
        });
    }
}
