"""How clusters are asked about one attempt: its job's name there, its number, and where its objects are. Pure."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, order=True)
class AttemptRef:
    """One attempt of a job, as clusters find it. An attempt keeps its namespace, whatever the cluster's setting says later."""

    run: str  # the job's name in clusters (`Job.run`)
    number: int  # counted from 1
    namespace: str = ""  # where its objects were made; empty where the cluster has none, or an old row does not say

    def within(self, namespace: str) -> "AttemptRef":
        """Return the reference with this namespace, if it says none itself: that of the cluster's own setting."""
        return self if self.namespace else replace(self, namespace=namespace)
