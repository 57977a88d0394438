//! The parameters of an operation: declared once, for the reading of a query and for the description.
//!
//! A query is read strictly. A parameter that an operation lacks, that is there twice, or whose value is none of its
//! type is refused by its name, because a filter that is left out in silence selects the wrong jobs.

use super::problem::Problem;
use super::token;
use crate::params::unescaped;
use allora_core::{
    Time,
    schedule::{parse_instant, parse_period, period_text},
};
use serde_json::{Value, json};
use std::time::Duration;

/// The longest query, in bytes.
const LONGEST: usize = 8 * 1024;

/// A parameter of the query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Param {
    pub(crate) name: &'static str,
    pub(crate) of: Of,
    pub(crate) is_required: bool,
    pub(crate) text: &'static str,
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Of {
    Text,
    /// As [`Text`](Self::Text), and never empty.
    Name,
    /// A number within these limits, and the default; without one, `None` is the default.
    Number(i64, i64, Option<i64>),
    /// RFC 3339.
    Time,
    /// A period up to this one.
    Period(Duration),
    /// `true`, also without a value, or `false`, the default.
    Flag,
    /// One of these words.
    Word(fn() -> Vec<&'static str>),
    /// The `next` of the page before.
    Page,
}

impl Param {
    pub(crate) const fn new(name: &'static str, of: Of, text: &'static str) -> Self {
        Self { name, of, is_required: false, text }
    }

    pub(crate) const fn required(mut self) -> Self {
        self.is_required = true;
        self
    }

    /// The reason why it cannot have this value.
    fn wrong(&self, value: &str) -> Option<String> {
        let name = self.name;
        match self.of {
            Of::Text => None,
            Of::Name => value.is_empty().then(|| format!("the parameter {name:?} is empty")),
            Of::Number(least, most, _) => {
                let number: Option<i64> = value.parse().ok();
                number.is_none_or(|number| !(least..=most).contains(&number)).then(|| {
                    format!(
                        "{value:?} is no value of {name:?}; use a number from {least} to {most}"
                    )
                })
            }
            Of::Time => parse_instant(value).err().map(|error| format!("{name}: {error}")),
            Of::Period(most) => match parse_period(value) {
                Err(error) => Some(format!("{name}: {error}")),
                Ok(period) => (period > most).then(|| {
                    format!("{name}: {value} is too long; use {} at most", period_text(most))
                }),
            },
            Of::Flag => (!["", "true", "false"].contains(&value))
                .then(|| format!("{value:?} is no value of {name:?}; use true or false")),
            Of::Word(words) => (!words().contains(&value)).then(|| {
                format!("{value:?} is no value of {name:?}; use one of {}", words().join(", "))
            }),
            Of::Page => token::read(value)
                .is_none()
                .then(|| format!("{value:?} is no page; use the `next` of the page before")),
        }
    }

    /// Its schema, for the description.
    pub(crate) fn schema(&self) -> Value {
        match self.of {
            Of::Text | Of::Page => json!({ "type": "string" }),
            Of::Name => json!({ "type": "string", "minLength": 1 }),
            Of::Number(least, most, default) => {
                let mut schema = json!({ "type": "integer", "minimum": least, "maximum": most });
                if let Some(default) = default {
                    schema["default"] = default.into();
                }
                schema
            }
            Of::Time => json!({ "type": "string", "format": "date-time" }),
            Of::Period(most) => {
                let text = format!("a period, as 30s; at most {}", period_text(most));
                json!({ "type": "string", "description": text })
            }
            Of::Flag => json!({ "type": "boolean", "default": false }),
            Of::Word(words) => json!({ "type": "string", "enum": words() }),
        }
    }
}

/// The parameters of a request, each of which the operation has, with a value of its type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    declared: &'static [Param],
    pairs: Vec<(&'static str, String)>,
}

impl Query {
    /// # Errors
    /// The first parameter that is wrong.
    pub(crate) fn read(query: &str, declared: &'static [Param]) -> Result<Self, Problem> {
        if query.len() > LONGEST {
            let text = format!("the query has {} bytes, more than {LONGEST}", query.len());
            return Err(Problem::bad_parameter("", text));
        }
        let mut pairs: Vec<(&'static str, String)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (raw, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decoded(raw).map_err(|wrong| Problem::bad_parameter(raw, wrong))?;
            let Some(param) = declared.iter().find(|param| param.name == name) else {
                let all: Vec<&str> = declared.iter().map(|param| param.name).collect();
                let has = match all.is_empty() {
                    true => "it has none".to_owned(),
                    false => format!("it has {}", all.join(", ")),
                };
                let text = format!("this operation has no parameter {name:?}; {has}");
                return Err(Problem::bad_parameter(&name, text));
            };
            let wrong = |text: String| Problem::bad_parameter(param.name, text);
            let value = decoded(value).map_err(|text| wrong(format!("{name}: {text}")))?;
            if pairs.iter().any(|(earlier, _)| *earlier == param.name) {
                return Err(wrong(format!("the parameter {name:?} is there twice")));
            }
            if let Some(text) = param.wrong(&value) {
                return Err(wrong(text));
            }
            pairs.push((param.name, value));
        }
        let is_given = |param: &&Param| pairs.iter().any(|(name, _)| *name == param.name);
        match declared.iter().find(|param| param.is_required && !is_given(param)) {
            None => Ok(Self { declared, pairs }),
            Some(Param { name, .. }) => {
                let text = format!("the parameter {name:?} is missing");
                Err(Problem::bad_parameter(name, text))
            }
        }
    }

    /// The value of a parameter; `None` if it is missing.
    pub(crate) fn given(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(own, _)| *own == name).map(|(_, value)| value.as_str())
    }

    /// As [`given`](Self::given), but an empty value counts as none.
    pub(crate) fn some(&self, name: &str) -> Option<&str> {
        self.given(name).filter(|value| !value.is_empty())
    }

    /// The value of a parameter; empty if it is missing.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.given(name).unwrap_or_default()
    }

    /// The value of a number, or its default.
    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        let default = || {
            let param = self.declared.iter().find(|param| param.name == name)?;
            if let Of::Number(_, _, default) = param.of { default } else { None }
        };
        self.given(name).map_or_else(default, |value| value.parse().ok())
    }

    /// The value of a number that has a default.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.number(name).and_then(|number| usize::try_from(number).ok()).unwrap_or_default()
    }

    pub(crate) fn time(&self, name: &str) -> Option<Time> {
        self.given(name).and_then(|value| parse_instant(value).ok())
    }

    pub(crate) fn period(&self, name: &str) -> Option<Duration> {
        self.given(name).and_then(|value| parse_period(value).ok())
    }

    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.given(name).is_some_and(|value| value != "false")
    }
}

/// A part of a query. A browser forgives a lone `%`; a program that sends one has lost a part of its value.
fn decoded(text: &str) -> Result<String, String> {
    let mut escapes = text.split('%').skip(1);
    let is_hex = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !escapes.all(|after| after.get(..2).is_some_and(is_hex)) {
        return Err("a percent sign is followed by two hexadecimal digits, as %25".to_owned());
    }
    let text = text.replace('+', " ");
    unescaped(&text).ok_or_else(|| "it is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    static DECLARED: [Param; 6] = [
        Param::new("name", Of::Name, "").required(),
        Param::new("limit", Of::Number(1, 500, Some(50)), ""),
        Param::new("at", Of::Time, ""),
        Param::new("wait", Of::Period(Duration::from_secs(60)), ""),
        Param::new("dry_run", Of::Flag, ""),
        Param::new("page", Of::Page, ""),
    ];

    #[test]
    fn values_are_read_by_their_types() {
        let query = "name=acme%2Fa+b&limit=7&at=2026-01-01T00:00:00Z&wait=30s&dry_run";
        let query = Query::read(query, &DECLARED).unwrap();
        assert_eq!((query.text("name"), query.count("limit")), ("acme/a b", 7));
        assert_eq!(query.period("wait"), Some(Duration::from_secs(30)));
        assert!(query.is_set("dry_run") && query.time("at").is_some());
        let least = Query::read("name=a&dry_run=false", &DECLARED).unwrap();
        assert_eq!((least.count("limit"), least.is_set("dry_run")), (50, false));
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_its_name() {
        for (query, field, says) in [
            ("", "name", "missing"),
            ("name=", "name", "empty"),
            ("name=a&name=b", "name", "twice"),
            ("name=a&nmae=b", "nmae", "no parameter"),
            ("name=%FF", "name", "UTF-8"),
            ("name=5%", "name", "hexadecimal"),
            ("name=%4x", "name", "hexadecimal"),
            ("name=%é", "name", "hexadecimal"),
            ("%zz=a", "%zz", "hexadecimal"),
            ("name=a&limit=0", "limit", "1 to 500"),
            ("name=a&limit=many", "limit", "1 to 500"),
            ("name=a&at=tomorrow", "at", "instant"),
            ("name=a&wait=30", "wait", "period"),
            ("name=a&wait=2m", "wait", "1m at most"),
            ("name=a&dry_run=yes", "dry_run", "true or false"),
            ("name=a&page=zz", "page", "is no page"),
        ] {
            let object = Query::read(query, &DECLARED).unwrap_err().object();
            assert_eq!((&object["status"], &object["field"]), (&json!(400), &json!(field)));
            assert!(object["detail"].as_str().unwrap().contains(says), "{query}: {object}");
        }
        assert!(Query::read(&"a".repeat(LONGEST + 1), &DECLARED).is_err());
    }
}
