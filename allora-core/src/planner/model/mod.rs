//! An exhaustive search of a model that calls the functions of the product: [`delivered`](crate::stored::delivered) says
//! what a node sends, and [`apply`](crate::record::apply) what becomes of it. Only the network, the nodes' lives and
//! the books of what must be true are the model's own.
//!
//! A model proves little if it cannot fail. So it has a list of defects, every one of which is a rule that the
//! product has and the model then lacks, and each of them must be found.

mod outbox;
mod report;

use report::{breaks, holds};
