//! The parts of JSON objects that serde does not derive: the data of schedules, and instants.

use crate::{schedule::parse_instant, time::Time};
use serde::{
    Deserialize, Deserializer,
    de::{self, IgnoredAny},
};

/// Checks that a text is JSON.
pub(crate) fn check(text: &str) -> Result<(), String> {
    serde_json::from_str::<IgnoredAny>(text).map(drop).map_err(|why| why.to_string())
}

/// Reads an instant, or says what one looks like.
pub(crate) fn instant<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
    parse_instant(&String::deserialize(deserializer)?).map_err(de::Error::custom)
}

/// Reads an instant that may be missing.
pub(crate) fn maybe_instant<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Time>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| parse_instant(&text).map_err(de::Error::custom)).transpose()
}

/// Data: JSON as it is, another text as `{"$text": "…"}`, other bytes as `{"$hex": "…"}`, and `null` if
/// there is none.
pub(crate) mod data {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
    use serde_json::{Value, json};

    const TEXT: &str = "$text";
    const HEX: &str = "$hex";

    pub(crate) fn serialize<S: Serializer>(
        data: impl AsRef<[u8]>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value(data.as_ref()).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        bytes(Value::deserialize(deserializer)?).map_err(de::Error::custom)
    }

    pub(crate) fn value(bytes: &[u8]) -> Value {
        let is_whole = |value: &Value| {
            !is_marked(value) && serde_json::to_vec(value).is_ok_and(|again| is_same(bytes, &again))
        };
        match serde_json::from_slice(bytes) {
            _ if bytes.is_empty() => Value::Null,
            Ok(value) if is_whole(&value) => value,
            _ => match str::from_utf8(bytes) {
                Ok(text) => json!({ TEXT: text }),
                Err(_) => {
                    json!({ HEX: bytes.iter().map(|b| format!("{b:02x}")).collect::<String>() })
                }
            },
        }
    }

    fn bytes(value: Value) -> Result<Vec<u8>, String> {
        let marked = |mark| value.get(mark).filter(|_| is_marked(&value)).and_then(Value::as_str);
        match (marked(TEXT), marked(HEX)) {
            (Some(text), _) => Ok(text.as_bytes().to_vec()),
            (_, Some(hex)) => of_hex(hex).ok_or_else(|| {
                format!("`{HEX}` is not hexadecimal; write two hexadecimal digits for each byte")
            }),
            _ if value.is_null() => Ok(Vec::new()),
            _ => serde_json::to_vec(&value).map_err(|why| why.to_string()),
        }
    }

    /// `true` for what stands for other data; JSON that looks so is written as a text.
    fn is_marked(value: &Value) -> bool {
        value.is_null()
            || value.as_object().is_some_and(|object| {
                object.len() == 1 && (object.contains_key(TEXT) || object.contains_key(HEX))
            })
    }

    /// `true` if two texts of one JSON value differ by blanks and by the order of its keys alone.
    /// Otherwise a number has lost digits, or a key was there twice.
    fn is_same(one: &[u8], other: &[u8]) -> bool {
        let sorted = |text: &[u8]| {
            let mut all: Vec<u8> =
                text.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
            all.sort_unstable();
            all
        };
        one == other || sorted(one) == sorted(other)
    }

    fn of_hex(hex: &str) -> Option<Vec<u8>> {
        let digit = |b: u8| char::from(b).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let byte = |pair: &[u8]| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        };
        hex.as_bytes().chunks(2).map(byte).collect()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn json_stays_json_and_anything_else_has_its_bytes() {
            for (bytes, is) in [
                (&b""[..], json!(null)),
                (br#"{"to":"ann"}"#, json!({ "to": "ann" })),
                (b"plain; text\n", json!({ "$text": "plain; text\n" })),
                (b"null", json!({ "$text": "null" })),
                (br#"{"$hex":"00"}"#, json!({ "$text": r#"{"$hex":"00"}"# })),
                (b"1e400", json!({ "$text": "1e400" })),
                (br#"{"a":1,"a":1}"#, json!({ "$text": r#"{"a":1,"a":1}"# })),
                (&[0xFF, 1], json!({ "$hex": "ff01" })),
            ] {
                assert_eq!(value(bytes), is);
                assert_eq!(super::bytes(is).unwrap(), bytes);
            }
            // The order of keys and blanks may change.
            assert_eq!(value(b"{ \"b\": 1.5, \"a\": [] }"), json!({ "a": [], "b": 1.5 }));
            for bad in ["0", "0g", "é"] {
                assert!(super::bytes(json!({ "$hex": bad })).is_err(), "{bad}");
            }
        }
    }
}
