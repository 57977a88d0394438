//! The W3C trace context of a trigger: part of the trigger's id, so that every store keeps it.

use crate::{
    error::{Error, Result},
    name::check_name,
};

/// The length of a `traceparent` of version 00.
const LENGTH: usize = 55;

/// The id of a trigger that carries a trace context: pass it to
/// [`Handle::trigger`](crate::Handle::trigger) or [`Schedules::trigger`](crate::Schedules::trigger).
/// The run returns the two parts, as [`Run::trigger`](crate::Run::trigger) and
/// [`Run::traceparent`](crate::Run::traceparent), on whatever node it runs, and its span has the field
/// `traceparent`.
///
/// The trace context is no part of the trigger's identity: the same id with another one changes
/// nothing, as without one. Lists and the history show both, with a blank between them.
///
/// `traceparent` is the header of that name of [W3C Trace
/// Context](https://www.w3.org/TR/trace-context/), version 00.
///
/// ```
/// use allora::with_traceparent;
///
/// let id = with_traceparent("order-7", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")?;
/// assert!(id.starts_with("order-7 00-4bf92f35"));
///
/// let wrong = with_traceparent("order-7", "4bf92f35").unwrap_err();
/// assert!(wrong.to_string().contains("use the form 00-"));
/// # Ok::<(), allora::Error>(())
/// ```
///
/// # Errors
/// `Invalid` for an id that is no [name](crate::check_name), one of more than 144 bytes, and a
/// `traceparent` in another form.
pub fn with_traceparent(id: &str, traceparent: &str) -> Result<String> {
    if !is_traceparent(traceparent) {
        let shown: String = traceparent.chars().take(2 * LENGTH).collect();
        return Err(Error::invalid(format!(
            "the trace context {shown:?} of the trigger {id:?} is no traceparent; use the form \
             00-<32 hexadecimal digits>-<16 hexadecimal digits>-<2 hexadecimal digits>, in small letters"
        )));
    }
    let both = format!("{id} {traceparent}");
    check_name(id).and_then(|()| check_name(&both))?;
    Ok(both)
}

/// The id of a trigger, and its trace context.
pub(crate) fn split(id: &str) -> (&str, Option<&str>) {
    let parts = id.rsplit_once(' ').filter(|(_, last)| is_traceparent(last));
    parts.map_or((id, None), |(id, traceparent)| (id, Some(traceparent)))
}

/// `true` if both are the id of one trigger, whatever its trace context.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    split(one).0 == split(other).0
}

/// `true` for a `traceparent` of version 00 whose ids are not zero.
fn is_traceparent(text: &str) -> bool {
    let is_hex =
        |part: &str| part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let is_zero = |part: &str| part.bytes().all(|b| b == b'0');
    let parts: Vec<&str> = text.split('-').collect();
    let &[version, trace, span, flags] = &parts[..] else { return false };
    version == "00"
        && (trace.len(), span.len(), flags.len()) == (32, 16, 2)
        && [trace, span, flags].into_iter().all(is_hex)
        && ![trace, span].into_iter().any(is_zero)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn an_id_and_its_trace_context_are_two_parts_again() {
        let both = with_traceparent("order 7", TRACE).unwrap();
        assert_eq!(split(&both), ("order 7", Some(TRACE)));
        assert_eq!(split("order 7"), ("order 7", None));
        assert_eq!(split(TRACE), (TRACE, None));
        assert_eq!(TRACE.len(), LENGTH);
    }

    #[test]
    fn a_malformed_trace_context_or_a_long_id_is_rejected() {
        let zero = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        for wrong in ["", "00-4bf9", zero, &TRACE.to_uppercase(), &format!("{TRACE}-0")] {
            assert!(with_traceparent("id", wrong).is_err(), "{wrong}");
        }
        assert!(with_traceparent(&"x".repeat(144), TRACE).is_ok());
        assert!(with_traceparent(&"x".repeat(145), TRACE).is_err());
        assert!(with_traceparent("", TRACE).is_err());
    }
}
