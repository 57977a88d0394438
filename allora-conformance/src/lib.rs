//! One contract, one suite: what every allora backend must prove.
//!
//! A backend has a [`Fixture`], which says how to make a store, how a node joins it and how it is
//! thrown away, and one line, [`suite!`]. That is the whole of the backend's
//! `tests/conformance.rs`:
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
//! Each case becomes a test of its own, named by a sentence: `cargo test --test conformance lease::`
//! runs those of leases. What a case asks for is written beside the promise that it checks, in the
//! documentation of [`Backend`](allora_core::Backend) and the traits around it.
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
//! [`Fixture::unsupported`] declares it. The cases that need it pass without being run, and one case
//! checks that the backend denies it as well. A store that is not on this machine is another
//! matter: [`Fixture::set_up`] fails with [`Unsupported`](allora_core::ErrorKind::Unsupported), the case
//! says that it was skipped, and fails where the variable `CI` is set.
//!
//! # Which time do the cases use?
//! It is given with each request, as [`TimeSource::Fixed`](allora_core::backend::TimeSource::Fixed): no case waits for
//! a lease to end. Where that cannot be, the fixture lacks [`Capability::Expiry`].
//!
//! # A random walk failed. What now?
//! It prints its seed and the shortest list of calls found on which the store and the
//! [pure functions](mod@reference) disagree. `ALLORA_SEED=7 cargo test --test conformance model::` walks
//! there again; `ALLORA_TEST_LONG=1` walks farther, and on more ways.
//!
//! # What else is here?
//! [`history`] judges what many nodes wrote down while they were being killed and cut off, and
//! [`history::liveness`] whether all that could run was started. [`faults`] has the tools: a store
//! that is slow ([`SlowBackend`](faults::SlowBackend)), one that answers partially
//! ([`PartialBackend`](faults::PartialBackend)), and backends that record. [`mod@reference`] is the
//! contract on a plain map, for differential tests; [`differential`] walks on two backends at once,
//! [`stores`] has tests with a store's own clock and with a damaged record, and
//! [`two_nodes_share_a_job`] shows that a backend works from a runtime. The suite's own tests keep
//! a collection of backends with one defect each, and the cases that each must fail.

mod cases;
mod cluster;
#[expect(clippy::unwrap_used, reason = "a test that fails panics")]
pub mod differential;
#[expect(clippy::unwrap_used, reason = "a test that fails panics")]
pub mod environment;
#[expect(clippy::unwrap_used, reason = "a test that fails panics")]
pub mod faults;
mod fixture;
pub mod history;
mod random;
pub mod reference;
#[expect(clippy::unwrap_used, reason = "a test that fails panics")]
pub mod stores;
mod suite;
mod text;
mod two_nodes;
mod walk;

pub use fixture::{Capability, Fixture};
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
