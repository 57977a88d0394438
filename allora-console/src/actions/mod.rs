//! Changes by a reader: actions on one job, each with a page that shows what it will do.
//!
//! A page is a plain form. It is sent with the state that it was made from, so a double click or a page that two people
//! have open changes nothing twice, and it comes back with what was typed if it cannot be done.

mod apply;
mod done;
mod facts;
mod form;
mod page;
mod preview;
mod verb;

pub(crate) use done::{Done, done};
pub(crate) use page::{act, ask_first};
pub(crate) use verb::{buttons, letter_buttons};
