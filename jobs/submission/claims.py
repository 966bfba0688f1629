"""What a cluster says of claims before they are made: their classes, and whether it would take them today."""

from collections.abc import Mapping

from common.errors import Refused, Unreachable
from jobs import clusters
from jobs.clusters import Claims
from jobs.core import storage_classes
from jobs.core.plan import Claim
from volumes.models import AccessMode


def classes(cluster: str) -> Mapping[str, str] | None:
    """Return the cluster's storage classes with their provisioners; None where it has none, or nobody knows."""
    if not clusters.backend(cluster).MAKES_PODS:
        return None
    adapter = clusters.get(cluster)
    try:
        return adapter.storage_classes() if isinstance(adapter, Claims) else None
    except (Refused, Unreachable):
        return None


def complaint(cluster: str, wanted: str, *, access_mode: str) -> str:
    """Return why no claim of this class can be served; empty where it can, or nobody knows."""
    return storage_classes.complaint(wanted, known=classes(cluster), is_shared=access_mode != AccessMode.RWO)


def warnings(cluster: str, claims: Mapping[str, Claim], *, replicas: int) -> list[str]:
    """Return what may keep claims that are yet to be made from being served, by what each is for. Asks the cluster."""
    if not claims:
        return []
    adapter, known, found = clusters.get(cluster), classes(cluster), []
    for what, claim in claims.items():
        is_shared = claim.access_mode != AccessMode.RWO
        words = storage_classes.complaint(claim.storage_class, known=known, is_shared=is_shared)
        if words:
            words = " ".join(("storage class", claim.storage_class, words)).replace("  ", " ")
        elif refusal := _refusal(adapter, claim):
            words = f"the cluster would not make its claim today: {refusal}"
        elif replicas > 1:
            words = storage_classes.doubt(claim.storage_class, known=known)
        if words:
            found.append(f"{what}: {words}")
    return found


def _refusal(adapter: object, claim: Claim) -> str:
    try:
        return adapter.try_claim(claim) if isinstance(adapter, Claims) else ""
    except (Refused, Unreachable):
        return ""
