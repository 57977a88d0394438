//! The cost of the etcd store, beside the raw limit of the same members in the same run.
//!
//! `cargo bench -p allora-benches --features etcd --bench etcd` measures the member and the cluster
//! whose addresses are in `ALLORA_TEST_ETCD_URL` and `ALLORA_TEST_ETCD_CLUSTER_URLS`
//! (`cargo xtask services up etcd` says them), under a prefix of its own that is removed at the
//! end. `-- single|three [rates|stored|counts|backlog|late]` measures less.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot start says so")]
#![allow(clippy::print_stdout, reason = "its tables are what it is for")]
#![expect(clippy::disallowed_methods, reason = "it measures the clocks' passing")]

mod raw;
mod tables;

/// The variables that name the members.
const CLUSTERS: [(&str, &str); 2] =
    [("single", "ALLORA_TEST_ETCD_URL"), ("three", "ALLORA_TEST_ETCD_CLUSTER_URLS")];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let wanted = |n: usize, name: &str| args.get(n).is_none_or(|arg| arg == name);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for (cluster, variable) in CLUSTERS.iter().filter(|(cluster, _)| wanted(0, cluster)) {
        let Ok(urls) = std::env::var(variable) else {
            println!("{cluster} is left out: {variable} is not set");
            continue;
        };
        let urls: Vec<String> = urls.split(',').map(str::to_owned).collect();
        runtime.block_on(async {
            raw::clear(&urls).await;
            println!("\n### {} member(s), etcd {}", urls.len(), raw::version(&urls).await);
            if wanted(1, "rates") {
                tables::rates(&urls).await;
            }
            if wanted(1, "stored") {
                tables::stored(&urls).await;
            }
            if wanted(1, "counts") {
                tables::counts(&urls).await;
            }
            if wanted(1, "backlog") {
                tables::backlog(&urls).await;
            }
            if wanted(1, "late") {
                tables::late(&urls).await;
            }
            raw::clear(&urls).await;
        });
    }
}
