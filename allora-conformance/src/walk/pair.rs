//! What the store and the reference said to the same question, and whether it is the same.

use allora_core::{
    Kind, Time,
    backend::{Answer, Past, Settled, State},
};

/// An answer, from either side.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Said {
    Answers(Time, Vec<Answer>),
    Settled(Vec<Settled>),
    State(Result<Box<State>, Kind>),
    Done(Result<(), Kind>),
    States(Vec<State>, Option<Time>),
    Past(Vec<Past>),
}

impl Said {
    /// Without the numbers that stores may draw in their own ways.
    fn without_fences(mut self) -> Self {
        match &mut self {
            Said::Answers(_, answers) => answers.iter_mut().for_each(|answer| match answer {
                Answer::Taken(taken) => (taken.fence, taken.incarnation) = (0, 0),
                Answer::State(state) => blank(state),
                Answer::Absent | Answer::Gone => {}
            }),
            Said::State(Ok(state)) => blank(state),
            Said::States(states, _) => states.iter_mut().for_each(blank),
            Said::Past(past) => past.iter_mut().for_each(|past| past.fence = 0),
            Said::State(Err(_)) | Said::Done(_) | Said::Settled(_) => {}
        }
        self
    }
}

fn blank(state: &mut State) {
    (state.fence, state.edition, state.incarnation) = (0, 0, 0);
    for held in &mut state.holds {
        held.fence = 0;
    }
}

/// Compares; `exact` with the fences.
pub(super) fn same(store: Said, reference: Said, exact: bool) -> Result<(), String> {
    let (store, reference) = if exact {
        (store, reference)
    } else {
        (store.without_fences(), reference.without_fences())
    };
    if store == reference {
        return Ok(());
    }
    Err(format!("  the store said      {store:?}\n  the reference said  {reference:?}"))
}
