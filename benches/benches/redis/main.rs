//! The cost of the Redis store, beside the raw limit of the same server in the same run.
//!
//! `cargo bench -p allora-benches --bench redis` measures the server whose URL is in
//! `ALLORA_TEST_REDIS_URL` (`cargo xtask services up redis` says it), in keys of its own that are
//! removed at the end; with `ALLORA_TEST_REDIS_QUORUM_URLS` also a quorum of the first three servers
//! that it names. `-- rates|stored|counts|backlog|late|quorum` measures less.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot start says so")]
#![allow(clippy::print_stdout, reason = "its tables are what it is for")]
#![expect(clippy::disallowed_methods, reason = "it measures the clocks' passing")]

mod raw;
mod tables;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let wanted = |name: &str| args.first().is_none_or(|arg| arg == name);
    let Ok(url) = std::env::var("ALLORA_TEST_REDIS_URL") else {
        println!("Redis is left out: ALLORA_TEST_REDIS_URL is not set");
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        raw::clear(&url).await;
        if wanted("rates") {
            tables::rates(&url).await;
        }
        if wanted("stored") {
            tables::stored(&url).await;
        }
        if wanted("counts") {
            tables::counts(&url).await;
        }
        if wanted("backlog") {
            tables::backlog(&url).await;
        }
        if wanted("late") {
            tables::late(&url).await;
        }
        raw::clear(&url).await;
        match std::env::var("ALLORA_TEST_REDIS_QUORUM_URLS") {
            Ok(urls) if wanted("quorum") => {
                tables::quorum(&urls.split(',').take(3).collect::<Vec<_>>()).await;
            }
            Ok(_) => {}
            Err(_) => println!("the quorum is left out: its variable is not set"),
        }
    });
}
