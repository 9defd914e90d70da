//! What `openapi.json` says of every route alike: who may ask, and how the server itself fails.

use serde_json::{Value, json};

/// Routes that need no token, from anybody.
const OPEN: [&str; 3] = ["/healthz", "/readyz", "/v1/answers/{signed}"];

/// Adds it to a description of the routes.
pub(super) fn completed(mut api: Value) -> Value {
    let retry = json!({ "retry-after": { "description": "in how many seconds to try again", "schema": { "type": "integer" } } });
    let error = |description: &str, headers: &Value| {
        let schema = json!({ "$ref": "#/components/schemas/ErrorBody" });
        json!({ "description": description, "headers": headers, "content": { "application/json": { "schema": schema } } })
    };
    api["components"]["responses"] = json!({
        "RateLimited": error("too much was asked (`rate_limited`)", &retry),
        "Internal": error("the server failed; its log says why (`internal`)", &json!({})),
        "InUse": error("the server shuts down or has no room, or another process has the conversation (`in_use`)", &retry),
    });
    api["components"]["securitySchemes"] = json!({
        "token": { "type": "http", "scheme": "bearer", "description": "not on a server without tokens" },
    });
    api["security"] = json!([{ "token": [] }, {}]);
    let paths = api["paths"].as_object_mut().into_iter().flatten();
    for (path, item) in paths {
        let is_open = OPEN.contains(&path.as_str());
        for (_, operation) in item.as_object_mut().into_iter().flatten() {
            if is_open {
                operation["security"] = json!([]);
            }
            let common = [("429", "RateLimited"), ("500", "Internal"), ("503", "InUse")];
            for (status, name) in common {
                operation["responses"][status] = json!({ "$ref": format!("#/components/responses/{name}") });
            }
        }
    }
    api
}
