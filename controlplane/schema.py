"""Shared parts of every operation's description: the refusals that any request may meet, shaped like rest.problem."""

from typing import Any

PROBLEM = {
    "type": "object",
    "description": "RFC 9457 problem details: what is wrong, in which field and value, and how to fix it",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "value", "message"],
                "properties": {
                    "field": {"type": "string"},
                    "value": {"type": ["string", "number", "boolean", "null"]},
                    "message": {"type": "string"},
                },
            },
        },
    },
}
WORDS = {
    "400": "the body or a parameter cannot be read",
    "401": "no valid token or session",
    "403": "the role or the token's scope does not allow it",
    "404": "does not exist, or you may not see it",
    "406": "none of the accepted media types is available",
    "409": "the current state does not allow it",
    "413": "the body is too large",
    "415": "the body's media type is not supported",
    "422": "some fields are wrong; each is named",
    "429": "too many requests; Retry-After says when to try again",
    "503": "a required service does not respond; Retry-After says when to try again",
}
ALWAYS = ("400", "401", "406", "429", "503")
WITH_BODY = ("413", "415", "422")
RETRY_AFTER = {"schema": {"type": "integer", "minimum": 1}, "description": "seconds"}
MOST_ID = 2**63 - 1


def with_refusals(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add the refusals to the schema; a postprocessing hook of drf-spectacular."""
    result["components"].setdefault("schemas", {})["Problem"] = PROBLEM
    result["components"]["responses"] = {_name(status): _response(status) for status in WORDS}
    for path, operations in result["paths"].items():
        for method, operation in operations.items():
            _numbers(operation)
            for status in _possible(path, method, operation):
                operation["responses"].setdefault(status, {"$ref": f"#/components/responses/{_name(status)}"})
    return result


def _possible(path: str, method: str, operation: dict[str, Any]) -> list[str]:
    found = [*ALWAYS, "403", "422"]
    if "requestBody" in operation:
        found += WITH_BODY
    if "{" in path or operation.get("parameters"):
        found += ["404"]
    if method != "get":
        found += ["404", "409", "415"]
    return sorted(set(found))


def _numbers(operation: dict[str, Any]) -> None:
    """Bound ids in paths to numbers that the database can hold."""
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path" and parameter["name"] == "id":
            parameter["schema"] = {"type": "integer", "minimum": 1, "maximum": MOST_ID}


def _name(status: str) -> str:
    return f"Refused{status}"


def _response(status: str) -> dict[str, Any]:
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    found: dict[str, Any] = {"description": WORDS[status], "content": content}
    return {**found, "headers": {"Retry-After": RETRY_AFTER}} if status in ("429", "503") else found
