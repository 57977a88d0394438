//! For tests that kill, freeze and cut off: nodes in processes of their own, a store that writes
//! down for the [history checker](crate::history) what it was asked, and a line that can be cut.

mod diary;
mod process;
mod proxy;
mod witness;

pub use diary::{Diary, LEAST, ONCE, claims};
pub use process::Node;
pub use proxy::Proxy;
pub use witness::{Log, Witness, wall};
