//! The line at the head of the page after an action: what was done, and how to undo it.

use super::verb::Verb;
use crate::{context::Context, links::Linked, params::Params, words::grouped};

/// The line, with a link that undoes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) text: String,
    pub(crate) undo: Option<Linked>,
}

/// The line for the address to which an action leads; `None` for any other address.
pub(crate) fn done(params: &Params, context: &Context) -> Option<Done> {
    let (word, name) = (params.some("done")?, params.exact("name"));
    if word == "edit" {
        let link = |number| context.link("undo", &[("name", name), ("change", number)]);
        let undo = params.some("n").filter(|_| context.may_edit).map(link);
        let undo = undo.map(|link| Linked { text: "Undo".to_owned(), link });
        return Some(Done { text: "Saved: from now on it runs by this definition.".into(), undo });
    }
    let number: Option<usize> = params.some("n").and_then(|number| number.parse().ok());
    let counted = |noun: &str, none: &str| match number {
        None => String::new(),
        Some(0) => none.to_owned(),
        Some(1) => format!("1 {noun}."),
        Some(many) => format!("{} {noun}s.", grouped(many)),
    };
    let undo = |text: &str, verb: Verb, id: &str| {
        let link = context.link("act", &[("do", verb.word()), ("name", name), ("id", id)]);
        verb.is_allowed(context).then(|| Linked { text: text.to_owned(), link })
    };
    if word == "add" {
        return Some(Done { text: "Added.".into(), undo: undo("Delete it", Verb::Delete, "") });
    }
    let (text, undo) = match Verb::from_word(word)? {
        Verb::Pause => {
            ("Paused. Manual triggers still run.".to_owned(), undo("Undo", Verb::Resume, ""))
        }
        Verb::Resume => ("Resumed.".to_owned(), undo("Undo", Verb::Pause, "")),
        Verb::Skip => {
            let none = "Nothing is left out: no occurrence is to come.";
            (format!("Left out. {}", counted("occurrence", none)), None)
        }
        Verb::Trigger => {
            let undo = undo("Cancel it", Verb::Cancel, params.exact("id"));
            ("Triggered: a node with its code claims the run at any moment.".to_owned(), undo)
        }
        Verb::Cancel => (
            format!("Cancelled. {}", counted("run", "Nothing was active, and nothing waited.")),
            None,
        ),
        Verb::Rerun => {
            let text = "The occurrence runs again, with attempts counted from 1.".to_owned();
            (text, undo("Cancel it", Verb::Cancel, ""))
        }
        Verb::Dismiss => ("The dead letter was removed.".to_owned(), None),
        Verb::Mark => ("Its occurrence is recorded as succeeded.".to_owned(), None),
        Verb::Backfill => {
            let undo = undo("Cancel what is left", Verb::Cancel, "backfill");
            (format!("Backfilled. {}", counted("run", "The range has no scheduled time.")), undo)
        }
        Verb::Reset => ("Reset: its schedule starts again from now.".to_owned(), None),
        Verb::Delete => (format!("{name} was deleted. Its history stays."), None),
    };
    Some(Done { text: text.trim().to_owned(), undo })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(query: &str) -> Option<Done> {
        done(&Params::read(query).unwrap(), &Context::of_test())
    }

    #[test]
    fn what_was_done_is_said_with_its_number_and_its_undo() {
        let paused = said("name=a%26b&done=pause").unwrap();
        assert_eq!(paused.undo.unwrap().link, "act?do=resume&name=a%26b");
        let filled = said("name=a&done=backfill&n=1200").unwrap();
        assert_eq!(filled.text, "Backfilled. 1,200 runs.");
        assert_eq!(filled.undo.unwrap().link, "act?do=cancel&name=a&id=backfill");
        assert_eq!(said("name=a&done=cancel&n=1").unwrap().text, "Cancelled. 1 run.");
        assert_eq!(said("name=a&done=reset&n=x").unwrap().text.split(':').next(), Some("Reset"));
        let edited = said("name=a&done=edit&n=7").unwrap().undo.unwrap();
        assert_eq!(edited.link, "undo?name=a&change=7");
        assert_eq!(said("name=a&done=edit").unwrap().undo, None, "the store keeps no changes");
        assert_eq!(said("name=a&done=add").unwrap().undo.unwrap().link, "act?do=delete&name=a");
        assert_eq!((said("name=a"), said("name=a&done=explode")), (None, None));
    }
}
