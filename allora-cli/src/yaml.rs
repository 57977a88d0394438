//! YAML where another format is read: a message that names the right one.

use std::path::Path;

/// True if a text that could not be read seems to be YAML.
pub(crate) fn seems_yaml(path: &Path, text: &str) -> bool {
    let has_extension = path
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("yaml") || extension == "yml");
    let first = text.lines().map(str::trim_end).find(|line| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with('#')
    });
    has_extension || first.is_some_and(is_yaml)
}

/// True for the start of a document, an entry of a list, and a key with a colon behind it.
fn is_yaml(line: &str) -> bool {
    let is_key = |key: &str| {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        !key.is_empty() && key.chars().all(good)
    };
    let is_mapping = |line: &str| match line.split_once(':') {
        Some((key, rest)) => is_key(key) && (rest.is_empty() || rest.starts_with(' ')),
        None => false,
    };
    line == "---" || line.starts_with("- ") || is_mapping(line)
}

#[cfg(test)]
mod tests {
    use super::seems_yaml;
    use std::path::Path;

    #[test]
    fn yaml_is_told_from_what_is_expected() {
        for text in ["---\na: 1", "# jobs\n- name: a\n", "development:\n  url: x\n", "a: 1"] {
            assert!(seems_yaml(Path::new("jobs"), text), "{text}");
        }
        assert!(seems_yaml(Path::new("allora.yml"), "?"));
        for text in ["", "[development]\nurl = \"a: b\"\n", "[{\"a\": 1}", "{\"a\":"] {
            assert!(!seems_yaml(Path::new("jobs"), text), "{text}");
        }
    }
}
