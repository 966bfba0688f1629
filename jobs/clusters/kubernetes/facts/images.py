"""Images that cannot be pulled: which of them surely do not exist, and which may still come. Pure.

An attempt ends at once only on proof, because most of what keeps an image away passes: a registry's limits and failures,
its name service, a login that is missing and may be added. Proof is one of two things:

- The kubelet takes the name for none (`InvalidImageName`). It decides that by itself, in the same way each time.
- The registry said in two separate pulls that it does not have the image. A pod's status cannot show two: it holds the
  last pull's error, without a count or a time (kubernetes/pkg/kubelet/images/image_manager.go). The kubelet's Events
  can: it writes one `Failed` for each pull, none for a pull that it puts off, and counts those that are alike. Between
  two pulls of one image for one pod it waits ten seconds or more. Events may be forged by whoever may create them, so
  they only count: that the image is missing the pod's own status has to say, which none but kubelets write. Where Events
  cannot be read, or a kubelet before 1.32 does not repeat the error while it waits, the proof comes later or never, and
  the start timeout holds.
"""

import re
from dataclasses import dataclass
from typing import Any

from jobs.core.verdict import NO_IMAGE

from ..api.objects import get, text, words

INVALID = "InvalidImageName"
REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", INVALID, "ErrImageNeverPull", "ImageInspectError",
     "RegistryUnavailable", "SignatureValidationFailed"}
)  # fmt: skip
PULLS = 2  # in which a registry has to say that it does not have an image
MOST_READ = 4000  # characters of a message: it repeats the image's name, of at most 512, several times
MOST_IMAGE, MOST_SHOWN = 200, 250

# What runtimes say after a registry has answered that it has no such manifest or repository. containerd ends with "not
# found" also where a layer, the node's platform or a snapshot is missing: another node, or another try, may have those.
_MISSING = re.compile(
    r"failed to resolve (?:reference|image)\b.*: not found\s*\Z"  # containerd 1 and 2: every host answered 404
    r"|\bmanifest unknown\b"  # CRI-O and Docker: MANIFEST_UNKNOWN of the registry's API
    r"|\bname unknown\b|\brepository name not known to registry\b"  # the same: NAME_UNKNOWN
    r"|\bmanifest for \S+ not found\b"  # Docker
    r"|\brepository does not exist\b",
    re.IGNORECASE,
)
# What leaves it open, though the words above may stand beside it: registries answer "repository does not exist or may
# require authorization" to everybody who is not logged in. No part of an image's name or of an address counts.
_OPEN = re.compile(
    r"(?<![\w./:@-])(?:denied|(?:un)?authoriz|authentic|forbidden|no pull access|login\b|credential"
    r"|toomanyrequests|too many requests|rate limit|timeout|timed out|deadline exceeded"
    r"|no such host|connection refused|connection reset|EOF\b|unavailable|x509|certificate"
    r"|(?:401|403|407|408|429|5\d\d)\b)",
    re.IGNORECASE,
)
_PULLED = re.compile(r'Failed to pull image "([^"\s]{1,512})": ')


@dataclass(frozen=True, slots=True)
class MissingImage:
    """An image that a registry says it does not have, and its words."""

    image: str
    message: str


def why_not(image: str, reason: str, message: str) -> str:
    """Return why a waiting container has no image yet; `reason` is one of REASONS."""
    name = words(image, most=MOST_IMAGE)
    if reason == INVALID:
        return f"{NO_IMAGE}: {name} is no name of an image; write registry/path:tag in lowercase and submit again"
    return f"the image {name} cannot be pulled ({reason}): {words(message, most=300)}".rstrip(": ")


def missing(container: Any) -> MissingImage | None:
    """Return the image that a container waits for although, by its status, the registry does not have it."""
    waiting, image = get(container, "state", "waiting"), text(get(container, "image"))
    if text(get(waiting, "reason")) not in REASONS:
        return None
    message = text(get(waiting, "message"))
    return MissingImage(image, words(message, most=MOST_SHOWN)) if _says_missing(message) else None


def missing_in_pull(message: str) -> str:
    """Return the image that, by the message of an Event about one failed pull, the registry does not have; else empty."""
    found = _PULLED.match(message[:MOST_READ])
    return found[1] if found and _says_missing(message) else ""


def is_same(image: str, pulled: str) -> bool:
    """Whether a pull was for this image: the kubelet adds the tag that a name lacks."""
    return pulled in (image, f"{image}:latest")


def proof(one: MissingImage) -> str:
    """Return the reason of a replica whose image is proven not to exist."""
    image = words(one.image, most=MOST_IMAGE)
    return (
        f"{NO_IMAGE}: {image}, by {PULLS} answers of its registry; correct the name, or push it, then submit again: "
        f"{one.message}"
    )


def _says_missing(message: str) -> bool:
    said = words(message, most=MOST_READ)
    return bool(_MISSING.search(said)) and not _OPEN.search(said)
