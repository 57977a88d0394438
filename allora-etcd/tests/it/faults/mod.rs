//! Members that are killed, frozen, cut off and filled up under the nodes that work with them, and
//! nodes that are killed and frozen: what they saw is judged by the history checker.

mod cluster;
mod kill;
mod lost;
pub(crate) mod members;
mod node;
mod proxy;
mod restore;
mod returning;
mod silent;
mod space;

use crate::stores::patiently;
