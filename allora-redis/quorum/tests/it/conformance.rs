//! The contract on three and five servers, also while the largest tolerated number of them is down
//! or hangs.

use super::{join, runtime, server::Server, shared};
use allora_conformance::{Capability, Fixture, suite};
use allora_core::{Backend, Error, ErrorKind, Result};
use async_trait::async_trait;
use std::{future::Future, marker::PhantomData, sync::Arc};

/// The failure of the last servers: of as many as may fail.
trait Ill: Send + Sync + 'static {
    /// Makes a server ill; `None`: it is not.
    const MAKE: Option<fn(&mut Server)>;
}

struct Nothing;

impl Ill for Nothing {
    const MAKE: Option<fn(&mut Server)> = None;
}

struct Stopped;

impl Ill for Stopped {
    const MAKE: Option<fn(&mut Server)> = Some(|server| server.kill());
}

struct Hung;

impl Ill for Hung {
    const MAKE: Option<fn(&mut Server)> = Some(|server| server.freeze());
}

/// So many servers.
struct Store<const N: usize, I> {
    urls: Vec<String>,
    prefix: String,
    ill: Vec<Server>,
    failure: PhantomData<I>,
}

#[async_trait]
impl<const N: usize, I: Ill> Fixture for Store<N, I> {
    async fn set_up(prefix: &str) -> Result<Self> {
        let mut urls = shared();
        if urls.len() < N {
            let variable = "ALLORA_TEST_REDIS_QUORUM_URLS names too few servers";
            return Err(Error::new(ErrorKind::Unsupported, variable));
        }
        urls.truncate(N);
        let mut victims = Vec::new();
        if I::MAKE.is_some() {
            for url in &mut urls[N / 2 + 1..] {
                let server = Server::start();
                let none = || Error::new(ErrorKind::Unsupported, "redis-server is not installed");
                let server = server.ok_or_else(none)?;
                *url = server.url();
                victims.push(server);
            }
        }
        let prefix = prefix.to_owned();
        let mut store = Self { urls, prefix, ill: victims, failure: PhantomData };
        super::init(&store.urls, &store.prefix).await?;
        if let Some(make_ill) = I::MAKE {
            store.ill.iter_mut().for_each(make_ill);
        }
        Ok(store)
    }

    async fn connect(&self) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(join(&self.urls, &self.prefix).await))
    }

    /// Removes all keys and initialises the quorum again, where all servers answer.
    async fn empty(&self) -> Result<bool> {
        if self.ill.is_empty() {
            super::init(&self.urls, &self.prefix).await?;
        }
        Ok(self.ill.is_empty())
    }

    /// Whatever the shared servers have of it; the others are gone soon.
    async fn tear_down(self) -> Result<()> {
        let mut urls = self.urls.clone();
        urls.retain(|url| shared().contains(url));
        super::clear(&urls, &self.prefix).await;
        Ok(())
    }

    fn block_on<T: Future>(future: T) -> T::Output {
        runtime().block_on(future)
    }

    fn occurrences() -> u64 {
        let long = std::env::var_os("ALLORA_TEST_LONG").is_some();
        if long { 10_000 } else { 1_000 }
    }

    fn unsupported() -> &'static [Capability] {
        &[
            Capability::Queries,
            Capability::History,
            Capability::Changes,
            Capability::Notifications,
            Capability::Durability,
            Capability::ExactReplies,
        ]
    }
}

mod three {
    use super::*;
    suite!(Store<3, Nothing>);
}

mod five {
    use super::*;
    suite!(Store<5, Nothing>);
}

mod three_with_one_stopped {
    use super::*;
    suite!(Store<3, Stopped>);
}

mod three_with_one_hung {
    use super::*;
    suite!(Store<3, Hung>);
}

mod five_with_two_stopped {
    use super::*;
    suite!(Store<5, Stopped>);
}

mod five_with_two_hung {
    use super::*;
    suite!(Store<5, Hung>);
}
