"""The shape of an API description: what a client sends and reads, without words. Small enough to keep for a release."""

import gzip
import json
import re
from typing import Any

import httpx

DEEPEST = 4  # of fields within fields


def of(description: dict[str, Any]) -> dict[str, Any]:
    """Return by "METHOD /path": parameters and fields of the body (name to whether required), fields of each answer."""
    found = {}
    for path, item in description["paths"].items():
        for method, operation in item.items():
            if method not in ("get", "post", "put", "patch", "delete"):
                continue
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            found[f"{method.upper()} {path}"] = {
                "parameters": {one["name"]: one.get("required", False) for one in operation.get("parameters", ())},
                "body": _required(body, description) if body else {},
                "answers": {
                    status: _fields(answer["content"]["application/json"]["schema"], description)
                    for status, answer in operation["responses"].items()
                    if status.startswith("2") and "application/json" in answer.get("content", {})
                },
            }
    return found


def _resolved(schema: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema or len(schema.get("allOf", ())) == 1:
        schema = (
            schema["allOf"][0]
            if "allOf" in schema
            else whole["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        )
    return schema


def _required(schema: dict[str, Any], whole: dict[str, Any]) -> dict[str, bool]:
    schema = _resolved(schema, whole)
    return {name: name in schema.get("required", ()) for name in schema.get("properties", {})}


def _fields(schema: dict[str, Any], whole: dict[str, Any], *, name: str = "", depth: int = 0) -> dict[str, Any]:
    """Return dotted names to types; what is in a list has the list's name with []."""
    schema = _resolved(schema, whole)
    kind = schema.get("type", "")
    found = {name: sorted(kind) if isinstance(kind, list) else kind} if name else {}
    if depth == DEEPEST:
        return found
    if items := schema.get("items"):
        found |= _fields(items, whole, name=f"{name}[]", depth=depth + 1)
    for key, value in schema.get("properties", {}).items():
        found |= _fields(value, whole, name=f"{name}.{key}" if name else key, depth=depth + 1)
    return found


def unknown_to(described: dict[str, Any], request: httpx.Request) -> list[str]:
    """What a server with this description would refuse in a request: names that it does not know, and missing ones.

    A whole operation that it does not have is not told: who asks for it learns that by a 404.
    """
    operation = next((one for one in described if is_of(one, request.method, request.url.path)), None)
    if operation is None:
        return []
    known, body = described[operation], _body(request)
    missing = {name for name, is_required in known["body"].items() if is_required and name not in body}
    strangers = (set(request.url.params) - set(known["parameters"])) | (set(body) - set(known["body"]))
    return [f"{operation}: {name}" for name in sorted(missing | strangers)]


def is_of(operation: str, method: str, path: str) -> bool:
    """Whether this request is one of an operation, such as "GET /api/v1/jobs/{id}"."""
    pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(operation))
    return re.fullmatch(pattern, f"{method} {path}") is not None


def _body(request: httpx.Request) -> dict[str, Any]:
    if "json" not in request.headers.get("Content-Type", ""):
        return {}
    content = request.read()
    return dict(json.loads(gzip.decompress(content) if "Content-Encoding" in request.headers else content))
