"""What outlasts jobs on a local cluster: volumes of teams as folders, and the checkpoints of earlier jobs."""

from collections.abc import Collection
from pathlib import Path

from common import faultpoints
from common.machine import trees
from jobs.core.plan import Claim, ClaimSeen, Plan


class Folders:
    """The part of the local adapter that keeps them (`jobs.clusters.Claims`). A folder has no size of its own."""

    root: Path

    def claims_of_options(self, team: str) -> Collection[str]:
        return ()  # nothing of its setting names volumes

    def see_claim(self, claim: Claim) -> ClaimSeen:
        return ClaimSeen("bound" if (self.root / "volumes" / claim.team / claim.volume).is_dir() else "")

    def grow_claim(self, claim: Claim) -> None:
        """Do nothing."""

    def remove_claim(self, claim: Claim) -> bool:
        with faultpoints.around("local.volume"):
            trees.remove(self.root / "volumes" / claim.team / claim.volume)
        return True

    def storage_classes(self) -> None:
        return None

    def try_claim(self, claim: Claim) -> str:
        return ""

    def start_folder(self, plan: Plan) -> str:
        """Return the folder with the checkpoints of the job that this one begins from; empty if there is none."""
        return str(self.root / "jobs" / plan.start_from.run / "shared" / "checkpoints") if plan.start_from else ""
