"""The clusters of this installation: those of the setting MUSTER_CLUSTERS, and those that administrators added.

Where both have a name, the setting wins. Rows are read at most once in FRESH_SECONDS, and whenever a name is not known:
so a process learns of a change by itself, without a message, and a page costs no further query.
"""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import DatabaseError

from common.encryption import InvalidToken, fernet
from common.errors import Unreachable

if TYPE_CHECKING:
    from .models import AddedCluster

KUBERNETES = "jobs.clusters.kubernetes.KubernetesCluster"
FRESH_SECONDS = 2.0
_PURPOSE = b"muster.cluster.access"


@dataclass(frozen=True)
class Entry:
    """What is known of a cluster. `edition` is empty for one of the setting, and changes with each change of an added one."""

    name: str
    backend: str  # import path of its adapter's class
    options: Mapping[str, Any] = field(repr=False)
    edition: str = ""
    sealed: str = field(default="", repr=False)
    server: str = ""  # of an added one; empty: the cluster that Muster's own pods run in

    @property
    def is_added(self) -> bool:
        return bool(self.edition)

    @property
    def version(self) -> int:
        """How often an added one was changed, from 1; 0 for one of the setting."""
        return int(self.edition.rpartition(".")[2]) if self.edition else 0

    def arguments(self) -> dict[str, Any]:
        """Return what its adapter is made with. Raises Unreachable where its credentials cannot be decrypted."""
        if not self.is_added:
            return dict(self.options)
        kubeconfig = unseal(self.sealed, name=self.name) if self.sealed else None
        return {**self.options, "kubeconfig": kubeconfig, "networks": tuple(settings.MUSTER_CLUSTER_NETWORKS)}


def seal(kubeconfig: Mapping[str, Any]) -> str:
    return fernet(_PURPOSE).encrypt(json.dumps(dict(kubeconfig)).encode()).decode()


def unseal(text: str, *, name: str) -> dict[str, Any]:
    """Decrypt what `seal` returned. Raises Unreachable when the encryption key has changed since: jobs there wait."""
    try:
        found: dict[str, Any] = json.loads(fernet(_PURPOSE).decrypt(text.encode()))
    except InvalidToken as error:
        words = (
            f"the credentials of cluster {name} cannot be read: MUSTER_SECRET_KEY was changed since they were saved; "
            "replace its kubeconfig, or put the old key into MUSTER_OLD_SECRET_KEYS"
        )
        raise Unreachable(words) from error
    return found


class _Added:
    """The rows as this process read them last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._read_at = float("-inf")

    def get(self, *, at_once: bool = False) -> Mapping[str, Entry]:
        """Return them by name. Without an answer from the database they are what they were."""
        from .models import AddedCluster  # not above: adapters can be used without Django's applications

        with self._lock:
            if at_once or time.monotonic() > self._read_at + FRESH_SECONDS:
                try:
                    self._entries = {row.name: _entry(row) for row in AddedCluster.objects.all()}
                except DatabaseError:
                    if self._read_at == float("-inf"):
                        raise
                self._read_at = time.monotonic()
            return self._entries

    def forget(self) -> None:
        with self._lock:
            self._entries, self._read_at = {}, float("-inf")


def _entry(row: "AddedCluster") -> Entry:
    return Entry(
        row.name, KUBERNETES, row.options, edition=f"{row.pk}.{row.version}", sealed=row.sealed, server=row.server
    )


_added = _Added()


def forget() -> None:
    """Read the rows again with the next call: they were changed here."""
    _added.forget()


def of_setting() -> dict[str, Entry]:
    """Return the clusters of MUSTER_CLUSTERS."""
    return {name: Entry(name, one["BACKEND"], one.get("OPTIONS", {})) for name, one in settings.CLUSTERS.items()}


def entries() -> dict[str, Entry]:
    """Return all clusters by name, those of the setting first."""
    found = of_setting()
    return found | {name: one for name, one in sorted(_added.get().items()) if name not in found}


def find(name: str) -> Entry | None:
    """Return a cluster by its name."""
    if name in settings.CLUSTERS:
        one = settings.CLUSTERS[name]
        return Entry(name, one["BACKEND"], one.get("OPTIONS", {}))
    return _added.get().get(name) or _added.get(at_once=True).get(name)


def is_known(name: str) -> bool:
    return find(name) is not None


def names() -> list[str]:
    """Return the names of all clusters, those of the setting first."""
    return list(entries())


def unknown(name: str) -> str:
    """Return what is wrong with a name that no cluster has."""
    return f"is no cluster of this installation; there are: {', '.join(names()) or 'none'}"
