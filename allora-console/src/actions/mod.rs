//! Changes by a reader: actions on one job, each with a page that shows what it will do.
//!
//! A page is a plain form. It is sent with the state that it was made from, so a double click or a page that two people
//! have open changes nothing twice, and it comes back with what was typed if it cannot be done.

mod apply;
mod done;
mod draft;
mod edit;
mod facts;
mod form;
mod many;
mod page;
mod preview;
mod undo;
mod verb;

pub(crate) use apply::{Act, Effect, apply, last_change, log_action, signed};
pub(crate) use done::{Done, done};
pub(crate) use draft::{Draft, Wrong};
pub(crate) use edit::{act as edit, ask_first as ask_edit};
pub(crate) use form::check_note;
pub(crate) use many::{act as act_on_many, ask_first as ask_many, many_buttons};
pub(crate) use page::{act, ask_first};
pub(crate) use undo::{ask_first as ask_undo, undo};
pub(crate) use verb::{Verb, buttons, letter_buttons, mark_button};
