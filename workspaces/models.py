"""The code a job runs: a manifest of files, kept once per team and content; the files' bytes are in packs.

A file is named by its sha256 within its team, never across teams. Stored files are written before the rows that name
them, so no row names missing bytes; a stored file that no row names is garbage and is collected (`garbage.py`).
"""

from django.conf import settings
from django.db import models
from django.utils import timezone

from accounts.models import Team, User

from .frames import Frame


class TeamStore(models.Model):
    """A team's limits (null: the installation's), and the row whose lock serializes changes of its store."""

    team = models.OneToOneField(Team, models.CASCADE, primary_key=True, related_name="store")
    workspace_limit_bytes = models.PositiveBigIntegerField(null=True, blank=True)
    store_limit_bytes = models.PositiveBigIntegerField(null=True, blank=True)

    @property
    def workspace_limit(self) -> int:
        """Return the limit on one workspace, unpacked, in bytes."""
        own = self.workspace_limit_bytes
        return settings.MUSTER_MAX_WORKSPACE_BYTES if own is None else own

    @property
    def store_limit(self) -> int:
        """Return the limit on all the team's stored files, in bytes."""
        return settings.MUSTER_MAX_STORE_BYTES if self.store_limit_bytes is None else self.store_limit_bytes


class Pack(models.Model):
    """One stored file that contains many files in frames."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="+")
    name = models.CharField(max_length=120, unique=True, help_text="of the stored file")
    size_bytes = models.PositiveBigIntegerField()
    created_at = models.DateTimeField(default=timezone.now, editable=False)


class Blob(models.Model):
    """A file's content, and where it is stored."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="+")
    digest = models.BinaryField(max_length=32, help_text="sha256 of the plain bytes")
    size_bytes = models.PositiveBigIntegerField()
    pack = models.ForeignKey(Pack, models.CASCADE, related_name="blobs")
    offset = models.PositiveBigIntegerField()
    packed_bytes = models.PositiveBigIntegerField()
    is_deflated = models.BooleanField()
    used_at = models.DateTimeField(default=timezone.now, help_text="when it was last sent")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "digest"], name="blob_once_per_team")]

    @property
    def frame(self) -> Frame:
        return Frame(bytes(self.digest), self.size_bytes, self.packed_bytes, self.is_deflated, self.offset)


class Workspace(models.Model):
    team = models.ForeignKey(Team, models.CASCADE, related_name="workspaces")
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    digest = models.CharField(max_length=64, help_text="sha256 of the manifest, in hex")
    size_bytes = models.PositiveBigIntegerField(help_text="of all files, unpacked")
    files = models.PositiveIntegerField(default=0, help_text="files and links")
    manifest = models.CharField(max_length=120, blank=True, help_text="the stored file; empty: of an older release")
    manifest_bytes = models.PositiveBigIntegerField(
        default=0, db_default=0, help_text="as stored; 0: from before they were counted"
    )
    left_out = models.JSONField(
        default=list,
        db_default=models.Value([], models.JSONField()),
        help_text="what its last sender's folder had beside it, ignored by git or .musterignore",
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    used_at = models.DateTimeField(default=timezone.now, help_text="when it was last asked for by a submission")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "digest"], name="workspace_once_per_team")]

    def __str__(self) -> str:
        return f"{self.digest[:8]} ({self.size_bytes} bytes)"
