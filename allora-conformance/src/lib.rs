//! The conformance suite of allora: every backend passes it.
//!
//! A backend needs two things: a [`Fixture`], which makes a store, connects a node to it and
//! removes it, and one line with [`suite!`]. This is a complete `tests/conformance.rs` of a
//! backend:
//!
//! ```
//! use allora_conformance::{Capability, Fixture, suite};
//! use allora_core::{Backend, Result};
//! use allora_memory::Memory;
//! use async_trait::async_trait;
//! use std::sync::Arc;
//!
//! struct Store(Memory);
//!
//! #[async_trait]
//! impl Fixture for Store {
//!     async fn set_up(namespace: &str) -> Result<Self> {
//!         // A database: connect, drop what is left of this name, create the tables.
//!         Ok(Self(Memory::new().with_namespace(namespace).with_history(10_000)))
//!     }
//!
//!     async fn connect(&self) -> Result<Arc<dyn Backend>> {
//!         // A database: a pool of this node's own.
//!         Ok(Arc::new(self.0.clone()))
//!     }
//!
//!     fn unsupported() -> &'static [Capability] {
//!         // A database: write `reopen` instead, which checks that it keeps what it acknowledged.
//!         &[Capability::Durability]
//!     }
//! }
//!
//! suite!(Store);
//! # allora_conformance::run::<Store>("claim::an_occurrence_due_exactly_now_is_claimed");
//! ```
//!
//! Each case becomes a test, and a sentence is its name: `cargo test --test conformance lease::`
//! runs the cases of leases. The documentation of [`Backend`](allora_core::Backend) and of the
//! traits around it lists the promises, each with the cases that check it.
//!
//! # How do I use the runtime that my driver needs?
//! [`Fixture::block_on`] drives every case. With tokio, one runtime for the whole process:
//!
//! ```text
//! fn block_on<T: Future>(future: T) -> T::Output {
//!     static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
//!     RUNTIME.block_on(future)
//! }
//! ```
//!
//! # What if my store cannot do all that?
//! Declare it in [`Fixture::unsupported`]. The cases that need it pass without being run, and one
//! case checks that the backend does not offer it. A store that is not installed on this machine is
//! different: [`Fixture::set_up`] fails with [`Unsupported`](allora_core::ErrorKind::Unsupported),
//! the case prints that it was skipped. If the variable `CI` is set, it fails instead.
//!
//! # Which time do the cases use?
//! The time comes with each request, as
//! [`TimeSource::Fixed`](allora_core::backend::TimeSource::Fixed): no case waits for a lease to
//! end. If a store cannot take the time from the request, its fixture declares
//! [`Capability::Expiry`] as unsupported.
//!
//! # A random walk failed. What now?
//! It prints its seed and the shortest list of calls found on which the store and the [pure
//! functions](mod@reference) disagree. `ALLORA_SEED=7 cargo test --test conformance model::`
//! repeats that walk. `ALLORA_TEST_LONG=1` makes longer walks, and more of them.
//!
//! # What else is here?
//! [`history`] checks the recorded runs of many nodes that were killed and disconnected.
//! [`history::liveness`] checks that every occurrence that could run was started. [`faults`] has
//! the tools: a store that is slow ([`SlowBackend`](faults::SlowBackend)), one that answers
//! partially ([`PartialBackend`](faults::PartialBackend)), and backends that record.
//! [`mod@reference`] is the contract on a plain map, for differential tests; [`differential`] walks
//! on two backends at once, [`stores`] has tests with a store's own clock and with a damaged
//! record, `upgrade` (a feature of that name) fills a store with rows of every kind and reads what an earlier build left,
//! and [`two_nodes_share_a_job`] shows that a backend works from a runtime. The suite's own
//! tests keep a collection of backends with one defect each, and the cases that each must fail.

mod cases;
mod cluster;
#[expect(clippy::unwrap_used, reason = "a test that fails panics")]
mod days_work;
#[expect(clippy::unwrap_used, reason = "a test that fails panics")]
pub mod differential;
pub mod environment;
pub mod explore;
#[expect(clippy::unwrap_used, reason = "a test that fails panics")]
pub mod faults;
mod fixture;
pub mod history;
mod mutation;
mod random;
pub mod reference;
#[expect(clippy::unwrap_used, reason = "a test that fails panics")]
pub mod stores;
mod suite;
mod text;
mod two_nodes;
#[expect(clippy::unwrap_used, reason = "a test that fails panics")]
#[cfg(feature = "upgrade")]
pub mod upgrade;
mod walk;

pub use days_work::a_days_work;
pub use fixture::{Capability, Fixture};
pub use mutation::mutations;
pub use suite::{Passed, check, names, run};
pub use two_nodes::two_nodes_share_a_job;

/// Makes a test of each case, with the given [`Fixture`]: `suite!(MyStore);`.
///
/// The tests are in modules named as the cases' files are, and begin at the module in which this
/// stands; a second suite needs a module of its own.
#[macro_export]
macro_rules! suite {
    ($fixture:ty) => {
        #[doc(hidden)]
        type ConformanceFixture = $fixture;
        $crate::__cases!(__stamp);
    };
}

/// Makes the tests of the list.
#[doc(hidden)]
#[macro_export]
macro_rules! __stamp {
    ([] $($file:ident { $($case:ident: [$($need:ident),*];)* })*) => {
        $(mod $file {
            $(#[test]
            fn $case() {
                $crate::run::<super::ConformanceFixture>(
                    concat!(stringify!($file), "::", stringify!($case)),
                );
            })*
        })*
    };
}
