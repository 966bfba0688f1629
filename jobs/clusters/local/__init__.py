"""Replicas as processes of this machine. `LocalCluster` is the name that settings.CLUSTERS says."""

from .adapter import LocalCluster

__all__ = ["LocalCluster"]
