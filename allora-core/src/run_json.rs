//! The data of a run as JSON.

use crate::{json::data, run::Run};

impl Run {
    /// The [data](Self::data) in the form that it has in the JSON of its schedule: JSON as it is, another
    /// text as `{"$text": "…"}`, other bytes as `{"$hex": "…"}`, and `null` if there is none.
    pub fn data_as_json(&self) -> serde_json::Value {
        data::value(self.data())
    }
}
