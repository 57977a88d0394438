//! The commands, one file each.

pub(crate) mod next;
pub(crate) mod run;
