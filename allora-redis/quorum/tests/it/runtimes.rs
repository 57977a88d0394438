//! Three servers from every runtime.

use super::{claim, register, servers, urls};
use allora_core::{
    Runtime,
    backend::{Operation, Reply},
    runtime::{AsyncStd, Smol, Tokio},
};
use allora_redis_quorum::RedisQuorum;
use std::{sync::Arc, time::Duration};

async fn one_of_two_claims_succeeds(runtime: Arc<dyn Runtime>) {
    let Some(servers) = servers_of(&runtime).await else { return };
    let (a, b) = (node(&runtime, &servers.1).await, node(&runtime, &servers.1).await);
    let seen = register(&a, "job", 60).await;
    let won = async |node: &RedisQuorum, claim_id| {
        let operation = Operation::claim("job", claim(&seen, claim_id, 60));
        let reply = super::ask_one(node, "n", operation, super::t(60)).await.unwrap();
        matches!(reply, Reply::Claimed(_))
    };
    let (a, b) = futures::join!(won(&a, 1), won(&b, 2));
    assert!(a != b, "{a} {b}");
}

async fn servers_of(runtime: &Arc<dyn Runtime>) -> Option<(Vec<super::Server>, Vec<String>)> {
    let own: Vec<super::Server> = (0..3).map(|_| super::Server::start()).collect::<Option<_>>()?;
    let urls = urls(&own);
    super::patient_init(&node(runtime, &urls).await).await.unwrap();
    Some((own, urls))
}

async fn node(runtime: &Arc<dyn Runtime>, urls: &[String]) -> RedisQuorum {
    let builder = RedisQuorum::builder().runtime(runtime.clone());
    super::patient(builder.deadline(Duration::from_secs(1)), urls).await.unwrap()
}

#[test]
fn on_tokio() {
    let tokio = tokio::runtime::Runtime::new().unwrap();
    tokio.block_on(async { one_of_two_claims_succeeds(Arc::new(Tokio::current().unwrap())).await });
}

#[test]
fn on_async_std() {
    async_std::task::block_on(one_of_two_claims_succeeds(Arc::new(AsyncStd)));
}

#[test]
fn on_smol() {
    smol::block_on(one_of_two_claims_succeeds(Arc::new(Smol)));
}

#[test]
fn detected_inside_tokio() {
    super::runtime().block_on(async {
        let Some(servers) = servers(3).await else { return };
        register(&super::join(&urls(&servers), "allora").await, "job", 60).await;
    });
}
