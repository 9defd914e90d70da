//! `/openapi.json` is what OpenAPI 3.1 says a description is.

use std::collections::BTreeSet;

use jsonschema::Validator;
use serde_json::{Value, json};
use turnbuckle_server::Server;

/// The schema of the OpenAPI Initiative for descriptions in OpenAPI 3.1. See `tests/openapi/LICENSE`.
const OPENAPI: &str = include_str!("../openapi/schema-3.1.json");

/// What is wrong with a description.
fn errors_in(description: &Value) -> Vec<String> {
    let schema: Value = serde_json::from_str(OPENAPI).unwrap();
    let of_documents = jsonschema::validator_for(&schema).unwrap();
    let told = |validator: &Validator, value: &Value, place: &str| -> Vec<String> {
        validator.iter_errors(value).map(|error| format!("{place}{}: {error}", error.instance_path())).collect()
    };
    let mut errors = told(&of_documents, description, "");
    // That schema leaves schemas to their own dialect, which is JSON Schema 2020-12 with additions.
    let of_schemas = jsonschema::draft202012::new(&json!({ "$ref": "https://json-schema.org/draft/2020-12/schema" }));
    for (name, schema) in description["components"]["schemas"].as_object().unwrap() {
        errors.extend(told(of_schemas.as_ref().unwrap(), schema, name));
    }
    errors
}

#[test]
fn the_description_is_valid_openapi() {
    assert_eq!(errors_in(&Server::openapi()), [""; 0]);
}

#[test]
fn what_is_not_valid_openapi_is_noticed() {
    let response = "/paths/~1healthz/get/responses/200";
    for (place, member, value) in [
        (response, "description", None),
        (response, "body", Some(json!({}))),
        ("/paths/~1healthz/get", "operationId", Some(json!(3))),
        ("/components/schemas/Health", "type", Some(json!("text"))),
    ] {
        let mut description = Server::openapi();
        let changed = description.pointer_mut(place).unwrap().as_object_mut().unwrap();
        match value {
            Some(value) => changed.insert(member.to_owned(), value),
            None => changed.remove(member),
        };
        assert_ne!(errors_in(&description), [""; 0], "{place} {member}");
    }
}

/// Generated clients have a function of this name for each.
#[test]
fn each_operation_has_an_id_of_its_own() {
    let description = Server::openapi();
    let mut ids = BTreeSet::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap_or_else(|| panic!("{method} {path} has no id"));
            assert!(ids.insert(id.to_owned()), "{method} {path} has the id of another: {id}");
        }
    }
}

#[test]
fn each_answer_is_described_in_words() {
    let description = Server::openapi();
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            for (status, response) in operation["responses"].as_object().unwrap() {
                let words = response["description"].as_str().is_some_and(|words| !words.trim().is_empty());
                assert!(words || response["$ref"].is_string(), "{method} {path} {status}");
            }
        }
    }
}
