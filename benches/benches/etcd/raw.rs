//! The raw limit: the smallest transaction that compares and puts, sent over and over, one beside
//! the other as many as the store sends.

use allora_benches::{
    fleet::{Due, JOBS},
    server::etcd,
};
use allora_etcd::etcd_client::{
    Client, Compare, CompareOp, DeleteOptions, Txn, TxnOp, TxnOpResponse,
};
use futures::{StreamExt, TryStreamExt, future::try_join_all, stream};
use std::time::{Duration, Instant};

pub(crate) const PREFIX: &str = "allora_bench";

/// The transactions that fit in one, and the requests that the store has under way at once.
const NESTED: usize = 120;
const AT_ONCE: usize = 8;

/// Removes everything that is there.
pub(crate) async fn clear(urls: &[String]) {
    etcd::clear(urls, PREFIX).await;
}

pub(crate) async fn version(urls: &[String]) -> String {
    let mut client = Client::connect(urls, None).await.unwrap();
    client.status().await.unwrap().version().to_owned()
}

/// So many moves a second: each batch by a client of its own, again and again.
pub(crate) async fn limit(urls: &[String], nodes: usize, batch: usize, lasts: Duration) -> f64 {
    let one = async |node: usize| {
        let client = Client::connect(urls, None).await.unwrap();
        let mut revisions = vec![0; batch];
        let keys: Vec<String> = (0..batch).map(|i| format!("{PREFIX}/raw/{node}/{i}")).collect();
        let all = DeleteOptions::new().with_prefix();
        let mut kv = client.kv_client();
        kv.delete(format!("{PREFIX}/raw/{node}/"), Some(all)).await.unwrap();
        let (begun, mut moved) = (Instant::now(), 0);
        while begun.elapsed() < lasts {
            let sent = keys.chunks(NESTED).zip(revisions.chunks(NESTED)).map(|(keys, known)| {
                let mut kv = client.kv_client();
                async move {
                    let txn = |(key, known): (&String, &i64)| {
                        let same = Compare::mod_revision(key.clone(), CompareOp::Equal, *known);
                        let put = TxnOp::put(key.clone(), "0123456789abcdef", None);
                        Txn::new().when([same]).and_then([put])
                    };
                    let mut all = keys.iter().zip(known).map(txn);
                    let txn = match keys.len() {
                        1 => all.next().unwrap(),
                        _ => Txn::new().and_then(all.map(TxnOp::txn).collect::<Vec<_>>()),
                    };
                    kv.txn(txn).await.map(|answer| (answer, keys.len()))
                }
            });
            let sent: Vec<_> = sent.collect();
            let answers: Vec<_> = stream::iter(sent).buffered(AT_ONCE).try_collect().await.unwrap();
            let mut revision = revisions.iter_mut();
            for (answer, len) in answers {
                let nested =
                    |op: &TxnOpResponse| !matches!(op, TxnOpResponse::Txn(t) if !t.succeeded());
                assert!(answer.succeeded() && answer.op_responses().iter().all(nested));
                let now = answer.header().unwrap().revision();
                revision.by_ref().take(len).for_each(|revision| *revision = now);
            }
            moved += batch;
        }
        moved as f64 / begun.elapsed().as_secs_f64()
    };
    futures::future::join_all((0..nodes).map(one)).await.into_iter().sum()
}

/// By how many milliseconds single transactions are answered late that are sent at the instants of
/// a thousand jobs every other second: those of one instant nested, and none waits for another.
pub(crate) async fn late(urls: &[String], clients: usize, due: Due) -> Vec<f64> {
    let opened = (0..clients).map(|_| Client::connect(urls, None));
    let clients: Vec<Client> = try_join_all(opened).await.unwrap();
    let names: Vec<String> = (0..JOBS).map(|i| format!("{PREFIX}/raw/late/{i}")).collect();
    let begun = tokio::time::Instant::now() + Duration::from_secs(1);
    let mut sent = Vec::new();
    for second in (0..20).step_by(2) {
        let (at_once, apart) = match due {
            Due::AtOnce => (NESTED, 0),
            Due::Spread => (1, 1),
        };
        for (i, names) in names.chunks(at_once).enumerate() {
            let at = begun + Duration::from_millis(second * 1_000 + apart * i as u64);
            let put = |name: &String| TxnOp::put(name.clone(), "0123456789abcdef", None);
            let any = |name: &String| Compare::version(name.clone(), CompareOp::Greater, -1);
            let nested = |name| TxnOp::txn(Txn::new().when([any(name)]).and_then([put(name)]));
            let txn = Txn::new().and_then(names.iter().map(nested).collect::<Vec<_>>());
            let mut kv = clients[i % clients.len()].kv_client();
            sent.push(tokio::spawn(async move {
                tokio::time::sleep_until(at).await;
                assert!(kv.txn(txn).await.unwrap().succeeded());
                (tokio::time::Instant::now() - at).as_secs_f64() * 1_000.0
            }));
        }
    }
    try_join_all(sent).await.unwrap()
}
