"""Replicas as pods. `KubernetesCluster` is the name that settings.CLUSTERS says."""

from .adapter import KubernetesCluster

__all__ = ["KubernetesCluster"]
