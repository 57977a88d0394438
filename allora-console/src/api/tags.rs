//! The tag of a definition, and the tags that a request expects.

use super::problem::{Problem, Type};
use allora_core::backend::JobState;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// The tags that a request expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tags {
    None,
    /// `If-Match: *`: there is one.
    Any,
    /// `If-Match`: one of these.
    These(Vec<String>),
    /// `If-None-Match: *`: there is none.
    Absent,
}

impl Tags {
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, Problem> {
        let text = |name: HeaderName| {
            let wrong = |what: &str| {
                Err(Problem::new(Type::BadHeader, format!("{name}: {what}")).field(name.as_str()))
            };
            let mut all = headers.get_all(&name).iter().map(|value| value.to_str());
            match (all.next(), all.next()) {
                (None, _) => Ok(None),
                (Some(Ok(text)), None) => Ok(Some(text.trim().to_owned())),
                (Some(Ok(_)), Some(_)) => wrong("it is there twice; list the tags in one"),
                (Some(Err(_)), _) => wrong("it is no text"),
            }
        };
        match (text(header::IF_MATCH)?, text(header::IF_NONE_MATCH)?) {
            (None, None) => Ok(Self::None),
            (Some(all), None) if all == "*" => Ok(Self::Any),
            (None, Some(all)) if all == "*" => Ok(Self::Absent),
            (Some(all), None) => {
                let tags: Vec<String> = all.split(',').map(|tag| tag.trim().to_owned()).collect();
                let is_tag = |tag: &String| {
                    let bare = tag.strip_prefix("W/").unwrap_or(tag);
                    bare.len() >= 2 && bare.starts_with('"') && bare.ends_with('"')
                };
                match tags.iter().all(is_tag) {
                    true => Ok(Self::These(tags)),
                    false => {
                        let detail =
                            "if-match: a tag stands in quotes, as in the ETag of the definition";
                        Err(Problem::new(Type::BadHeader, detail).field("if-match"))
                    }
                }
            }
            (None, Some(_)) => {
                let detail = "if-none-match: only * is of use for a change";
                Err(Problem::new(Type::BadHeader, detail).field("if-none-match"))
            }
            (Some(_), Some(_)) => {
                let detail = "if-match and if-none-match contradict each other; send one";
                Err(Problem::new(Type::BadHeader, detail).field("if-none-match"))
            }
        }
    }

    /// `Ok` if they hold for this job, or for none.
    pub(super) fn check(&self, state: Option<&JobState>) -> Result<(), Problem> {
        let (holds, detail) = match (self, state) {
            (Self::None, _) | (Self::Any, Some(_)) | (Self::Absent, None) => return Ok(()),
            (Self::These(tags), Some(state)) => {
                (tags.contains(&tag(state)), "the definition has changed since it was read")
            }
            (Self::Any | Self::These(_), None) => (false, "there is no such job"),
            (Self::Absent, Some(_)) => (false, "there is such a job already"),
        };
        match holds {
            true => Ok(()),
            false => Err(changed(detail, state)),
        }
    }
}

/// A precondition that does not hold, with the present tag.
pub(super) fn changed(detail: &str, state: Option<&JobState>) -> Problem {
    let problem = Problem::new(Type::Changed, detail)
        .remedy("read the definition again, and send the change with its tag");
    match state.and_then(|state| HeaderValue::try_from(tag(state)).ok()) {
        Some(tag) => problem.header(header::ETAG, tag),
        None => problem,
    }
}

pub(super) fn tag(state: &JobState) -> String {
    format!("\"{}.{}\"", state.incarnation, state.generation)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(all: &[(HeaderName, &'static str)]) -> Result<Tags, Problem> {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            headers.append(name, HeaderValue::from_static(value));
        }
        Tags::read(&headers)
    }

    #[test]
    fn a_weak_tag_matches_nothing_and_a_list_matches_by_one() {
        let mut state = JobState::empty("a");
        (state.incarnation, state.generation) = (3, 4);
        let check = |text| tags(&[(header::IF_MATCH, text)]).unwrap().check(Some(&state));
        assert!(
            check("\"3.4\"").is_ok() && check("\"1.1\", \"3.4\"").is_ok() && check("*").is_ok()
        );
        assert!(check("\"3.5\"").is_err() && check("W/\"3.4\"").is_err());
        assert!(Tags::Absent.check(Some(&state)).is_err() && Tags::Any.check(None).is_err());
        for bad in [
            &[(header::IF_MATCH, "3.4")][..],
            &[(header::IF_NONE_MATCH, "\"3.4\"")],
            &[(header::IF_MATCH, "*"), (header::IF_NONE_MATCH, "*")],
            &[(header::IF_MATCH, "\"1.1\""), (header::IF_MATCH, "\"3.4\"")],
        ] {
            assert!(tags(bad).is_err(), "{bad:?}");
        }
    }
}
