//! The description of the API in the form of OpenAPI 3.1, made of the table of operations and of the schemas of the
//! library.

use super::{
    operation::{Form, Operation},
    params::Param,
    problem::Type,
};
use allora_core::JSON_SCHEMA;
use serde_json::{Map, Value, json};

/// The schemas of the objects that the library does not have.
const OWN: &str = include_str!("schemas.json");

const ABOUT: &str = "Jobs of a store of allora. Names stand in the query, times are RFC 3339 in UTC, and fields that end \
                     in `_ms` are whole milliseconds. Every error is `application/problem+json`. A list has `items` \
                     and `next`, the `page` of its next page.";

/// The description of these operations.
pub(crate) fn description(operations: &[Operation]) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations {
        let path = paths.entry(format!("/v1{}", operation.path)).or_insert_with(|| json!({}));
        path[operation.method.to_ascii_lowercase()] = described(operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "allora",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": ".." }],
        "security": [{ "bearer": [] }, { "basic": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "basic": { "type": "http", "scheme": "basic" },
            },
            "responses": {
                "Problem": {
                    "description": "The reason why there is no other answer",
                    "content": { "application/problem+json": { "schema": of("Problem") } },
                },
            },
        },
    })
}

fn of(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

/// The id of an operation: its method and its path in words.
fn id(operation: &Operation) -> String {
    let path = if operation.path.is_empty() { "service" } else { operation.path };
    let words = path.split(['/', '.', '_']).filter(|word| !word.is_empty());
    words.fold(operation.method.to_ascii_lowercase(), |id, word| {
        let (first, rest) = word.split_at(1);
        id + &first.to_ascii_uppercase() + rest
    })
}

fn described(operation: &Operation) -> Value {
    let answers = operation.answers.iter().map(|(status, form)| {
        let mut answer = json!({ "description": reason(*status) });
        if !form.media.is_empty() {
            answer["content"] = content(form);
        }
        (status.to_string(), answer)
    });
    let mut responses: Map<String, Value> = answers.collect();
    responses.insert("default".into(), json!({ "$ref": "#/components/responses/Problem" }));
    let scope = operation.scope.map(|scope| scope.word());
    let header = |(name, text): &(&str, &str)| json!({ "name": name, "in": "header", "description": text, "schema": { "type": "string" } });
    let parameters =
        operation.params.iter().map(parameter).chain(operation.headers.iter().map(header));
    let mut described = json!({
        "operationId": id(operation),
        "summary": operation.summary,
        "x-scope": scope,
        "x-changes": operation.changes,
        "parameters": parameters.collect::<Vec<_>>(),
        "responses": responses,
    });
    if scope.is_none() {
        described["security"] = json!([]);
    }
    if let Some(form) = &operation.body {
        described["requestBody"] =
            json!({ "required": !form.is_optional, "content": content(form) });
    }
    described
}

fn parameter(param: &Param) -> Value {
    json!({
        "name": param.name,
        "in": "query",
        "required": param.is_required,
        "description": param.text,
        "schema": param.schema(),
    })
}

fn content(form: &Form) -> Value {
    let of_media = |media: &&str| {
        let schema = match (form.schema, form.is_lines()) {
            ("", _) => json!({}),
            (schema, false) => json!({ "schema": of(schema) }),
            // Each line is an object.
            (schema, true) => {
                json!({ "schema": { "type": "string" }, "x-lines": of(schema) })
            }
        };
        ((*media).to_owned(), schema)
    };
    Value::Object(form.media.iter().map(of_media).collect())
}

fn reason(status: u16) -> &'static str {
    match status {
        201 => "It was added",
        202 => "It was accepted, and has not ended",
        _ => "It was done",
    }
}

/// The schemas of the library, and those of the API, which refer to them.
fn schemas() -> Value {
    let read = |text: &str| -> Map<String, Value> {
        let text = text.replace("#/$defs/", "#/components/schemas/");
        let mut all: Value = serde_json::from_str(&text).unwrap_or_default();
        match all["$defs"].take() {
            Value::Object(schemas) => schemas,
            _ => Map::new(),
        }
    };
    let mut schemas = read(JSON_SCHEMA);
    // Data and what counts the jobs of others are hidden from those who may not see them.
    for (schema, hidden) in [
        ("JobState", &["data", "checkpoints"][..]),
        ("Checkpoint", &["value"]),
        ("NodeInfo", &["concurrency", "running", "jobs", "jobs_hash", "orphans", "kept_prefixes"]),
    ] {
        if let Some(Value::Array(required)) =
            schemas.get_mut(schema).map(|one| &mut one["required"])
        {
            required.retain(|field| !hidden.contains(&field.as_str().unwrap_or_default()));
        }
    }
    schemas.extend(read(OWN));
    let types: Vec<String> = Type::ALL.iter().map(|of| of.urn()).collect();
    if let Some(problem) = schemas.get_mut("Problem") {
        problem["properties"]["type"]["enum"] = json!(types);
    }
    Value::Object(schemas)
}
