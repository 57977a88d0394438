//! The data of a run, and its last checkpoint, as JSON.

use crate::{json::data, run::Run};

impl Run {
    /// The [data](Self::data) in the form that it has in the JSON of its schedule: JSON as it is, another
    /// text as `{"$text": "…"}`, other bytes as `{"$hex": "…"}`, and `null` if there is none.
    pub fn data_as_json(&self) -> serde_json::Value {
        data::value(self.data())
    }

    /// The [last checkpoint](Self::last_checkpoint) in the same form; `null` if there is none.
    pub fn checkpoint_as_json(&self) -> serde_json::Value {
        data::value(self.last_checkpoint().unwrap_or_default())
    }
}
