//! The contract on three and five servers, also while the largest tolerated number of them is down
//! or hangs.

use super::{join, runtime, server::Server, shared};
use allora_conformance::{Capability, Fixture, suite};
use allora_core::{Backend, Error, ErrorKind, Result};
use async_trait::async_trait;
use std::{future::Future, sync::Arc};

/// The failure of the last servers: of as many as may fail.
#[derive(Clone, Copy, PartialEq)]
enum Ill {
    Nothing,
    Stopped,
    Hung,
}

struct Store {
    urls: Vec<String>,
    prefix: String,
    ill: Vec<Server>,
}

impl Store {
    async fn set_up(n: usize, ill: Ill, prefix: &str) -> Result<Self> {
        let mut urls = shared();
        if urls.len() < n {
            let variable = "ALLORA_TEST_REDIS_QUORUM_URLS names too few servers";
            return Err(Error::new(ErrorKind::Unsupported, variable));
        }
        urls.truncate(n);
        let mut victims = Vec::new();
        if ill != Ill::Nothing {
            for url in &mut urls[n / 2 + 1..] {
                let server = Server::start();
                let none = || Error::new(ErrorKind::Unsupported, "redis-server is not installed");
                let server = server.ok_or_else(none)?;
                *url = server.url();
                victims.push(server);
            }
        }
        let mut store = Self { urls, prefix: prefix.to_owned(), ill: victims };
        super::init(&store.urls, prefix).await?;
        for server in &mut store.ill {
            match ill {
                Ill::Nothing => {}
                Ill::Stopped => server.kill(),
                Ill::Hung => server.freeze(),
            }
        }
        Ok(store)
    }

    /// Removes all keys and initialises the quorum again, where all servers answer.
    async fn empty(&self) -> Result<bool> {
        if self.ill.is_empty() {
            super::init(&self.urls, &self.prefix).await?;
        }
        Ok(self.ill.is_empty())
    }

    /// Whatever the shared servers have of it; the others are gone soon.
    async fn clear(&self) {
        let mut urls = self.urls.clone();
        urls.retain(|url| shared().contains(url));
        super::clear(&urls, &self.prefix).await;
    }
}

macro_rules! store {
    ($module:ident, $n:expr, $ill:expr) => {
        mod $module {
            use super::*;

            struct Fixed(Store);

            #[async_trait]
            impl Fixture for Fixed {
                async fn set_up(namespace: &str) -> Result<Self> {
                    Ok(Self(Store::set_up($n, $ill, namespace).await?))
                }

                async fn connect(&self) -> Result<Arc<dyn Backend>> {
                    Ok(Arc::new(join(&self.0.urls, &self.0.prefix).await))
                }

                async fn empty(&self) -> Result<bool> {
                    self.0.empty().await
                }

                async fn tear_down(self) -> Result<()> {
                    self.0.clear().await;
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
                        Capability::Notifications,
                        Capability::Durability,
                        Capability::ExactReplies,
                    ]
                }
            }

            suite!(Fixed);
        }
    };
}

store!(three, 3, Ill::Nothing);
store!(five, 5, Ill::Nothing);
store!(three_with_one_stopped, 3, Ill::Stopped);
store!(three_with_one_hung, 3, Ill::Hung);
store!(five_with_two_stopped, 5, Ill::Stopped);
store!(five_with_two_hung, 5, Ill::Hung);
