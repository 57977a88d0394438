//! The line below each table: the machine, the servers, and the rounds.

use super::{Facts, markdown::percent};
use serde_json::Value;

impl Facts {
    pub(super) fn caption(&self) -> String {
        let text = |name: &str| match &self.machine[name] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let servers: Vec<String> = self.servers.as_object().map_or_else(Vec::new, |servers| {
            let one = |(name, version): (&String, &Value)| {
                format!("{name} {}", version.as_str().unwrap_or_default())
            };
            servers.iter().map(one).collect()
        });
        let size = if self.size.is_quick { "a quick report" } else { "a full report" };
        let rounds = match self.rounds {
            1 => format!("One round of {size}"),
            rounds => format!("Medians of {size}, up to {rounds} rounds"),
        };
        format!(
            "*{} cores of {}, {} GiB, {}; {}; {}; servers and load on the same cores. Other programs used \
             {} of the processor time. {rounds}.*",
            text("cores"),
            text("processor"),
            text("memory_gib"),
            text("system"),
            text("compiler").split(" (").next().unwrap_or_default(),
            servers.join(", "),
            percent(self.load)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::plan::Size;
    use serde_json::json;

    #[test]
    fn it_names_the_machine_the_servers_and_the_load() {
        let facts = Facts {
            size: Size::QUICK,
            rounds: 3,
            machine: json!({"cores": 2, "processor": "CPU", "memory_gib": 8, "system": "Debian",
                "compiler": "rustc 1.95.0 (abc)"}),
            servers: json!({"Redis": "7.0.15"}),
            load: 0.034,
        };
        let caption = facts.caption();
        for part in
            ["2 cores of CPU", "8 GiB", "rustc 1.95.0;", "Redis 7.0.15", "used 3 %", "3 rounds"]
        {
            assert!(caption.contains(part), "{part}: {caption}");
        }
    }
}
