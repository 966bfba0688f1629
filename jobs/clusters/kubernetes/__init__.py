"""Replicas as pods. `KubernetesCluster` is the name used in settings.CLUSTERS.

It is loaded when it is used: the official client is a quarter of what a process loads, and some need only `endpoints`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .adapter import KubernetesCluster

__all__ = ["KubernetesCluster"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from . import adapter

    return getattr(adapter, name)
