//! Secrets in the data of stored schedules: references in place of values, and masks where data is
//! shown.
//!
//! A header, a variable or the secret of a signing key `{"secret": "NAME"}` has its value on the node: in the file
//! NAME of `--secrets`, else in the variable `ALLORA_SECRET_NAME`. No other file or variable can be named,
//! so that a program that writes to the store cannot read the node's files.

use serde_json::{Map, Value};
use std::{env, fs, path::Path};

/// The objects whose values may be references.
const PLACES: [&str; 3] = ["headers", "env", SIGN];

/// The object of a signing key, whose secret is nowhere in the store.
const SIGN: &str = "sign";

/// The prefix of the variables that hold secrets.
const PREFIX: &str = "ALLORA_SECRET_";

/// The text that is shown in place of a secret.
const MASK: &str = "***";

/// The words in a name that make its value a secret.
const WORDS: [&str; 8] =
    ["authorization", "cookie", "token", "secret", "password", "passwd", "api-key", "apikey"];

/// The data with the values of its references, from this folder or the environment.
///
/// # Errors
/// A reference that is malformed, or whose secret is not on this node.
pub(super) fn resolved(data: &Value, folder: Option<&Path>) -> Result<Value, String> {
    replaced(data, &|name| value(name, folder))
}

/// The data with a text in place of each reference: for a check where the secrets are not.
///
/// # Errors
/// A reference that is malformed.
pub(super) fn without_values(data: &Value) -> Result<Value, String> {
    replaced(data, &|_| Ok("x".to_owned()))
}

fn replaced(data: &Value, find: &dyn Fn(&str) -> Result<String, String>) -> Result<Value, String> {
    let mut data = data.clone();
    for place in PLACES {
        let Some(Value::Object(texts)) = data.get_mut(place) else { continue };
        for (key, text) in texts.iter_mut() {
            let Value::Object(reference) = text else {
                if place == SIGN && key == "secret" {
                    return Err("`sign` must have its secret as {\"secret\": \"NAME\"}".into());
                }
                continue;
            };
            let name = name(reference)
                .ok_or_else(|| format!("`{place}` has {key:?}, which is neither a text nor {{\"secret\": \"NAME\"}} with a NAME of letters, digits, _ and -"))?;
            *text = find(&name)?.into();
        }
    }
    Ok(data)
}

/// The name in a reference.
fn name(reference: &Map<String, Value>) -> Option<String> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let name = reference.get("secret").filter(|_| reference.len() == 1)?.as_str()?;
    (!name.is_empty() && name.len() <= 100 && name.chars().all(good)).then(|| name.to_owned())
}

fn value(name: &str, folder: Option<&Path>) -> Result<String, String> {
    if let Some(folder) = folder {
        let file = folder.join(name);
        return match fs::read_to_string(&file) {
            Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
            Err(error) => Err(format!("the secret {name:?}: {}: {error}", file.display())),
        };
    }
    let variable = format!("{PREFIX}{name}");
    env::var(&variable).map_err(|_| {
        format!(
            "the secret {name:?} is not on this node; set {variable}, or put it into a file of \
             --secrets"
        )
    })
}

/// The data as it may be shown: without the values of headers and variables, and of options of
/// commands, whose names say that they are secret.
pub(crate) fn masked(mut data: Value) -> Value {
    for place in PLACES {
        let Some(Value::Object(texts)) = data.get_mut(place) else { continue };
        for (_, text) in texts.iter_mut().filter(|(key, text)| is_secret(key) && text.is_string()) {
            *text = MASK.into();
        }
    }
    if let Some(Value::Array(words)) = data.get_mut("command") {
        for word in words {
            let Some((option, _)) = word.as_str().and_then(|word| word.split_once('=')) else {
                continue;
            };
            if is_secret(option) && !option.contains(char::is_whitespace) {
                *word = format!("{option}={MASK}").into();
            }
        }
    }
    data
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_reference_has_the_value_of_its_file_and_no_other_file_can_be_named() {
        let folder = std::env::temp_dir().join(format!("allora-secrets-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("hook"), "value\n").unwrap();
        let data = json!({ "headers": { "Authorization": { "secret": "hook" } } });
        let resolved = |data: &Value| super::resolved(data, Some(&folder));
        assert_eq!(resolved(&data).unwrap()["headers"]["Authorization"], "value");
        let missing = json!({ "env": { "A": { "secret": "other" } } });
        assert!(resolved(&missing).unwrap_err().contains("the secret \"other\""));
        for name in ["../hook", "/etc/passwd", "", "a b"] {
            let data = json!({ "env": { "A": { "secret": name } } });
            assert!(resolved(&data).is_err() && without_values(&data).is_err(), "{name}");
        }
        assert!(without_values(&json!({ "env": { "A": { "file": "/etc/passwd" } } })).is_err());
        assert!(without_values(&missing).is_ok());
        let in_store = json!({ "sign": { "key": "allora", "secret": "hunter2" } });
        let wrong = without_values(&in_store).unwrap_err();
        assert!(wrong.contains("`sign`") && !wrong.contains("hunter2"), "{wrong}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_its_name_says_is_secret_is_masked() {
        let data = json!({
            "headers": { "Authorization": "Bearer x", "X-Api-Key": "x", "Accept": "y" },
            "env": { "DB_PASSWORD": "x", "LANG": "C", "TOKEN": { "secret": "hook" } },
            "command": ["run", "--password=x", "--name=y", "sh -c token=1"],
        });
        assert_eq!(
            masked(data),
            json!({
                "headers": { "Authorization": "***", "X-Api-Key": "***", "Accept": "y" },
                "env": { "DB_PASSWORD": "***", "LANG": "C", "TOKEN": { "secret": "hook" } },
                "command": ["run", "--password=***", "--name=y", "sh -c token=1"],
            })
        );
    }
}
