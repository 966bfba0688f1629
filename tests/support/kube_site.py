"""A cluster's settings for tests that describe pods: OPTIONS as in settings.CLUSTERS, over the three that must be given."""

from typing import Any

from jobs.clusters.kubernetes.build import options
from jobs.clusters.kubernetes.build.site import Site

REQUIRED = {"NAMESPACE": "muster-jobs", "IMAGE": "registry.example/train:1", "CONTROL_URL": "https://muster.example"}


def site_of(**given: Any) -> Site:
    return options.read({**REQUIRED, **given})[1]
