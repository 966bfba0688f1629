"""What is taken of a kubeconfig that somebody sends: one server, its certificates and one credential, all within it.

A kubeconfig can start programs, read files of this machine and choose a proxy. Whoever edits the setting MUSTER_CLUSTERS
may do all of that anyway; whoever sends one by a browser or the API may not, so each such field is refused by its name. Pure.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from common import yaml_input
from common.errors import InvalidInput, Problem
from common.text import listed

FIELD = "kubeconfig"
MOST_CHARACTERS = 64 * 1024
SHOWN = 10  # names of contexts that a message lists
_CLUSTER = ("server", "certificate-authority-data", "tls-server-name")
_USER = ("token", "client-certificate-data", "client-key-data")
_IGNORED = ("extensions",)  # notes of other programs
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9a-fA-F:.]{2,45}\]")
_TOKEN = re.compile(r"[\x21-\x7e]{1,16384}\Z")
_KEPT = "put the cluster into MUSTER_CLUSTERS if it needs this"


@dataclass(frozen=True)
class Kubeconfig:
    """`content` is a kubeconfig of one context with the fields that are taken; it holds secrets."""

    server: str
    host: str
    content: Mapping[str, Any]


def read(text: str, *, context: str = "", now: datetime) -> Kubeconfig:
    """Return what is taken of it. Raises InvalidInput with every problem, none of which quotes a secret.

    `context` chooses one of several; `now` decides about certificates that have expired.
    """
    document = _document(text)
    name, chosen = _context(document, context)
    cluster = _named(document, "clusters", "cluster", str(chosen.get("cluster") or ""), of=name)
    user = _named(document, "users", "user", str(chosen.get("user") or ""), of=name)
    problems = [
        *_foreign("cluster", cluster, _CLUSTER), *_foreign("user", user, _USER),
        *_server(cluster), *_authority(cluster, now), *_credential(user, now),
    ]  # fmt: skip
    if problems:
        raise InvalidInput(*problems)
    server = str(cluster["server"]).rstrip("/")
    taken = {
        "apiVersion": "v1", "kind": "Config", "current-context": "muster",
        "contexts": [{"name": "muster", "context": {"cluster": "cluster", "user": "muster"}}],
        "clusters": [{"name": "cluster", "cluster": {key: cluster[key] for key in _CLUSTER if cluster.get(key)}}],
        "users": [{"name": "muster", "user": {key: user[key] for key in _USER if user.get(key)}}],
    }  # fmt: skip
    return Kubeconfig(server, (urlsplit(server).hostname or "").lower(), taken)


def _document(text: str) -> Mapping[str, Any]:
    if len(text) > MOST_CHARACTERS:
        raise _wrong(f"has {len(text)} characters, of at most {MOST_CHARACTERS}; send one with a single context")
    try:
        found = yaml_input.parse(text)
    except ValueError as error:
        raise _wrong(str(error)) from error
    if not isinstance(found, Mapping) or not all(
        isinstance(found.get(key), list) for key in ("clusters", "users", "contexts")
    ):
        raise _wrong("is no kubeconfig: it needs lists of clusters, users and contexts; bin/connect writes one")
    return found


def _context(document: Mapping[str, Any], wanted: str) -> tuple[str, Mapping[str, Any]]:
    known = {str(one.get("name")): one.get("context") for one in document["contexts"] if isinstance(one, Mapping)}
    shown = listed(sorted(known), SHOWN)
    if wanted and wanted not in known:
        raise InvalidInput(Problem("context", wanted, f"is no context of this kubeconfig; it has: {shown or 'none'}"))
    if not wanted and len(known) > 1:
        raise InvalidInput(Problem("context", None, f"must say which one is meant; the kubeconfig has: {shown}"))
    if not known:
        raise _wrong("has no context; write one that names a cluster and a user")
    name = wanted or next(iter(known))
    chosen = known[name]
    if not isinstance(chosen, Mapping):
        raise _wrong(f"has a context {name} that names no cluster and no user")
    return name, chosen


def _named(document: Mapping[str, Any], group: str, key: str, name: str, *, of: str) -> Mapping[str, Any]:
    for one in document[group]:
        if isinstance(one, Mapping) and one.get("name") == name and isinstance(one.get(key), Mapping):
            found: Mapping[str, Any] = one[key]
            return found
    raise _wrong(f"has no {key} {name or 'with a name'}, which its context {of} is about")


def _foreign(place: str, given: Mapping[str, Any], taken: tuple[str, ...]) -> Iterator[Problem]:
    for key in sorted(set(given) - {*taken, *_IGNORED}):
        words = f"is not taken from here; these are: {', '.join(taken)}. Leave it out, or {_KEPT}"
        yield Problem(f"{FIELD}.{place}.{key}", None, words)


def _server(cluster: Mapping[str, Any]) -> Iterator[Problem]:
    field, server = f"{FIELD}.cluster.server", cluster.get("server")
    try:
        parts = urlsplit(server if isinstance(server, str) else "")
        is_address = bool(_HOST.fullmatch(parts.netloc.rpartition(":")[0] if parts.port else parts.netloc))
    except ValueError:
        parts, is_address = urlsplit(""), False
    if not is_address or parts.query or parts.fragment:
        yield Problem(field, None, "must be the address of an API server, such as https://10.0.0.1:6443")
    elif parts.scheme != "https":
        yield Problem(
            field, None, f"is {parts.scheme}://, which sends the credentials unprotected; only https:// is taken"
        )
    name = cluster.get("tls-server-name")
    if name is not None and not (isinstance(name, str) and _HOST.fullmatch(name)):
        yield Problem(f"{FIELD}.cluster.tls-server-name", None, "must be the name of a host")


def _authority(cluster: Mapping[str, Any], now: datetime) -> Iterator[Problem]:
    field = f"{FIELD}.cluster.certificate-authority-data"
    if cluster.get("certificate-authority-data") is not None:
        yield from _certificate(field, cluster["certificate-authority-data"], now)[1]


def _credential(user: Mapping[str, Any], now: datetime) -> Iterator[Problem]:
    token = user.get("token")
    if token is not None:
        if not (isinstance(token, str) and _TOKEN.match(token.strip())):
            yield Problem(f"{FIELD}.user.token", None, "is no token: it must be text without spaces")
        return
    given = [key for key in ("client-certificate-data", "client-key-data") if user.get(key)]
    if not given:
        yield Problem(
            f"{FIELD}.user", None, "has no credentials: a token, or client-certificate-data with client-key-data"
        )
        return
    if len(given) == 1:
        yield Problem(f"{FIELD}.user", None, f"has {given[0]} alone; certificate and key belong together")
        return
    certificate, problems = _certificate(f"{FIELD}.user.client-certificate-data", user["client-certificate-data"], now)
    yield from problems
    key = _public_key(user["client-key-data"])
    if key is None:
        yield Problem(f"{FIELD}.user.client-key-data", None, "is no private key without a password, in PEM and base64")
    elif certificate and key != certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo):
        yield Problem(f"{FIELD}.user.client-key-data", None, "is the key of another certificate")


def _certificate(field: str, data: Any, now: datetime) -> tuple[x509.Certificate | None, list[Problem]]:
    """Return the first certificate. One of several may have expired: authorities are listed with their successors."""
    try:
        found = x509.load_pem_x509_certificates(_decoded(data))
    except ValueError:
        return None, [Problem(field, None, "is no certificate in PEM and base64")]
    until = max(one.not_valid_after_utc for one in found)
    if until < now:
        return found[0], [Problem(field, None, f"has expired on {until:%Y-%m-%d %H:%M} UTC; send one that is valid")]
    return found[0], []


def _public_key(data: Any) -> bytes | None:
    try:
        key = load_pem_private_key(_decoded(data), password=None)
    except (ValueError, TypeError):
        return None
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _decoded(data: Any) -> bytes:
    try:
        return base64.b64decode(data if isinstance(data, str) else "", validate=True)
    except binascii.Error as error:
        raise ValueError("no base64") from error


def _wrong(words: str) -> InvalidInput:
    return InvalidInput(Problem(FIELD, None, words))
