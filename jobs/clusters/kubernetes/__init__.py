"""Replicas as pods. `KubernetesCluster` is the name used in settings.CLUSTERS."""

from .adapter import KubernetesCluster

__all__ = ["KubernetesCluster"]
