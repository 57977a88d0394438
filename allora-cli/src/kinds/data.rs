//! Reading the data of a stored schedule: an object of known keys.

use crate::values::duration;
use serde_json::{Map, Value};
use std::time::Duration;

/// An object whose keys are taken one by one; what is left at the end is refused.
pub(super) struct Fields {
    fields: Map<String, Value>,
    known: Vec<&'static str>,
}

impl Fields {
    pub(super) fn of(data: &Value) -> Result<Self, String> {
        let Value::Object(fields) = data else { return Err("it is not a JSON object".into()) };
        Ok(Self { fields: fields.clone(), known: Vec::new() })
    }

    pub(super) fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.fields.remove(key).filter(|value| !value.is_null())
    }

    pub(super) fn text(&mut self, key: &'static str) -> Result<Option<String>, String> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(format!("`{key}` must be a text in quotes")),
        }
    }

    pub(super) fn duration(&mut self, key: &'static str) -> Result<Option<Duration>, String> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let duration = duration(&text).map_err(|what| format!("`{key}` is {what}"))?;
        if duration.is_zero() {
            return Err(format!("`{key}` must be at least 1ms"));
        }
        Ok(Some(duration))
    }

    /// An object of texts.
    pub(super) fn texts(&mut self, key: &'static str) -> Result<Vec<(String, String)>, String> {
        let wrong = || format!("`{key}` must be an object of texts, as {{\"NAME\": \"value\"}}");
        match self.take(key) {
            None => Ok(Vec::new()),
            Some(Value::Object(texts)) => texts
                .into_iter()
                .map(|(name, value)| match value {
                    Value::String(value) => Ok((name, value)),
                    _ => Err(wrong()),
                })
                .collect(),
            Some(_) => Err(wrong()),
        }
    }

    /// Rejects a key that was not read.
    pub(super) fn end(self) -> Result<(), String> {
        match self.fields.keys().next() {
            None => Ok(()),
            Some(key) => {
                let shown: String = key.chars().take(40).collect();
                Err(format!("unknown key {shown:?}; use {}", self.known.join(", ")))
            }
        }
    }
}
