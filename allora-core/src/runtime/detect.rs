//! The choice of a runtime when none is given, from those that are compiled in and the current one.

use crate::{Error, Result};

/// The runtime of this thread, else the only one that works on any thread, else an error with its
/// remedy. `around` is an error if there is a current runtime that cannot be used.
pub(super) fn choose<R: Clone>(around: Option<Result<R>>, anywhere: &[R]) -> Result<R> {
    match (around, anywhere) {
        (Some(Ok(runtime)), _) => Ok(runtime),
        (_, [only]) => Ok(only.clone()),
        (Some(Err(error)), []) => Err(error),
        (None, []) => Err(Error::invalid(
            "no runtime found: call this inside a tokio runtime (feature `tokio`), or enable the feature `smol` or \
             `async-std`, or pass a runtime with `.runtime(...)`",
        )),
        (_, [..]) => Err(Error::invalid(
            "more than one runtime is compiled in: name the one to use with `.runtime(...)`",
        )),
    }
    .map_err(|error| error.op("runtime::detect"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    type Detect = fn() -> Option<Result<&'static str>>;
    const OUTSIDE: Detect = || None;
    const INSIDE: Detect = || Some(Ok("tokio"));
    const WITHOUT_TIMERS: Detect = || Some(Err(Error::invalid("enable_time")));
    const BOTH: &[&str] = &["async-std", "smol"];

    fn check(around: Detect, anywhere: &[&'static str], expected: Result<&str, &str>) {
        match (choose(around(), anywhere), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(error), Err(expected)) => {
                assert_eq!(error.kind(), ErrorKind::Invalid);
                assert!(error.to_string().contains(expected), "{error}");
            }
            (found, expected) => panic!("{found:?}, not {expected:?}"),
        }
    }

    #[test]
    fn inside_tokio_it_is_tokio() {
        for anywhere in [&[][..], &["smol"], &["async-std"], BOTH] {
            check(INSIDE, anywhere, Ok("tokio"));
        }
    }

    #[test]
    fn otherwise_it_is_the_only_one_compiled_in() {
        for around in [OUTSIDE, WITHOUT_TIMERS] {
            check(around, &["smol"], Ok("smol"));
            check(around, &["async-std"], Ok("async-std"));
        }
    }

    #[test]
    fn of_two_the_user_names_one() {
        for around in [OUTSIDE, WITHOUT_TIMERS] {
            check(around, BOTH, Err("name the one to use with `.runtime(...)`"));
        }
    }

    #[test]
    fn with_nothing_to_choose_from_the_error_names_both_remedies() {
        check(OUTSIDE, &[], Err("enable the feature"));
        check(OUTSIDE, &[], Err("pass a runtime with `.runtime(...)`"));
    }

    #[test]
    fn a_tokio_without_timers_and_nothing_else_says_so() {
        check(WITHOUT_TIMERS, &[], Err("enable_time"));
    }
}
