//! Looks at a store that are repeated, as by `--watch` and `--follow`.

use crate::{
    failure::{Failure, Outcome},
    output::complain,
};
use allora_core::runtime::Runtime;
use std::{ops::ControlFlow, time::Duration};

/// Looks again and again, with this pause after each look, until one breaks off.
///
/// If the store stops answering, that is said once, and so is its return. If it does not answer the first
/// look, that ends it, unless it `has_answered` the command before.
///
/// # Errors
/// Those of a look, except that the store does not answer any more.
pub(super) async fn again<T>(
    runtime: &dyn Runtime,
    pause: Duration,
    mut has_answered: bool,
    mut look: impl AsyncFnMut() -> Outcome<ControlFlow<T>>,
) -> Outcome<T> {
    let mut is_away = false;
    loop {
        match look().await {
            Ok(ControlFlow::Break(found)) => return Ok(found),
            Ok(ControlFlow::Continue(())) => {
                has_answered = true;
                if std::mem::take(&mut is_away) {
                    complain("note", "the store answers again");
                }
            }
            Err(Failure::Unavailable(what)) if has_answered => {
                if !std::mem::replace(&mut is_away, true) {
                    complain("warning", &format!("{what}; asking again until it answers"));
                }
            }
            Err(failure) => return Err(failure),
        }
        runtime.sleep_until(runtime.now() + pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allora_core::runtime::Sim;

    /// Looks with these answers, ten seconds apart: the result, and the time it took in seconds.
    fn check(has_answered: bool, answers: Vec<Outcome<ControlFlow<u8>>>) -> (Outcome<u8>, u64) {
        let sim = Sim::new(1);
        let (node, mut answers) = (sim.node(), answers.into_iter());
        let look = async || answers.next().expect("no look more than answers");
        let ended = sim.block_on(again(&node, Duration::from_secs(10), has_answered, look));
        (ended, sim.elapsed().as_secs())
    }

    fn away() -> Outcome<ControlFlow<u8>> {
        Err(Failure::Unavailable("the store does not answer".into()))
    }

    #[test]
    fn an_outage_is_waited_for_with_a_pause_after_each_look() {
        let seen = || Ok(ControlFlow::Continue(()));
        let (ended, took) =
            check(false, vec![seen(), away(), away(), seen(), Ok(ControlFlow::Break(7))]);
        assert_eq!((ended.unwrap(), took), (7, 40));
        let (ended, took) = check(true, vec![away(), Ok(ControlFlow::Break(7))]);
        assert_eq!((ended.unwrap(), took), (7, 10), "what was asked before has been answered");
    }

    #[test]
    fn a_store_that_never_answers_and_any_other_failure_end_it() {
        assert!(matches!(check(false, vec![away()]), (Err(Failure::Unavailable(_)), 0)));
        let seen = || Ok(ControlFlow::Continue(()));
        let (ended, took) = check(false, vec![seen(), Err(Failure::failed("no such job"))]);
        assert!(matches!(ended, Err(Failure::Failed(_))) && took == 10);
    }
}
