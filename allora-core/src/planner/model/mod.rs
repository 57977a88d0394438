//! Exhaustive searches of models that call the functions of the product: [`decide`](super::job::decide) says which
//! operation a node sends, and [`apply`](crate::record::apply) what becomes of it. Only the network, the nodes'
//! lives and the books of what must be true are the model's own.
//!
//! A model proves little if it cannot fail. So each has a list of defects, every one of which is a rule that the
//! product has and the model then lacks, and each of them must be found.

mod books;
mod defects;
mod job;
#[cfg(feature = "codec")]
mod outbox;
mod report;
mod store;
mod world;

use report::{breaks, holds};
