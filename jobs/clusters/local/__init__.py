"""Replicas as processes of this machine. `LocalCluster` is the name used in settings.CLUSTERS."""

from .adapter import LocalCluster

__all__ = ["LocalCluster"]
