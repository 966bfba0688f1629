"""The code a job runs: one packed folder, named by the digest of its bytes, kept once per team."""

from django.db import models
from django.utils import timezone

from accounts.models import Team, User


class Workspace(models.Model):
    team = models.ForeignKey(Team, models.CASCADE, related_name="workspaces")
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    digest = models.CharField(max_length=64, help_text="sha256 of the packed folder, in hex")
    size_bytes = models.PositiveBigIntegerField()
    file = models.FileField(upload_to="workspaces/")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "digest"], name="workspace_once_per_team")]

    def __str__(self) -> str:
        return f"{self.digest[:8]} ({self.size_bytes} bytes)"
