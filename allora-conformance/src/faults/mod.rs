//! For tests that kill, freeze and cut off: a store that writes down for the
//! [history checker](crate::history) what it was asked, and a line that can be cut.

mod proxy;
mod witness;

pub use proxy::Proxy;
pub use witness::{Log, Witness, wall};
