//! The commands, one file each.

pub(crate) mod add;
pub(crate) mod cancel;
pub(crate) mod completions;
pub(crate) mod delete;
pub(crate) mod doctor;
pub(crate) mod export;
mod file;
pub(crate) mod history;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod list;
pub(crate) mod modify;
pub(crate) mod next;
pub(crate) mod nodes;
mod options;
pub(crate) mod pause;
pub(crate) mod reset;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod sync;
pub(crate) mod trigger;
