"""/teams/NAME/audit and /audit: what was changed, by whom and from where."""

from dataclasses import dataclass

from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import HttpResponse
from django.views.decorators.http import require_safe

from accounts import members
from accounts.audit import WORDS, AuditAction
from accounts.filters import AuditFilters
from accounts.models import AuditEntry, Team
from accounts.permissions import Act, require, require_platform_admin

from .parts import UserRequest, allowed, answer

PAGE = 50


@dataclass(frozen=True)
class Change:
    """One field, before and after, as text; empty where it did not exist."""

    field: str
    old: str
    new: str


@dataclass(frozen=True)
class AuditRow:
    entry: AuditEntry

    @property
    def words(self) -> str:
        return WORDS.get(self.entry.act, self.entry.act)

    @property
    def nobody(self) -> str:
        """The actor to show where no user is known."""
        return _NOBODY.get(self.entry.act, "the command line")

    @property
    def changes(self) -> list[Change]:
        before, after = self.entry.before, self.entry.after
        return [
            Change(name.replace("_", " "), as_text(before, name), as_text(after, name)) for name in {**before, **after}
        ]


_NOBODY: dict[str, str] = {AuditAction.LOGIN_FAILED: "somebody", AuditAction.JOB_REMOVED: "the server"}
_WORDS = {True: "yes", False: "no", None: "none"}


def as_text(values: dict[str, object], name: str) -> str:
    value = values.get(name, "")
    return _WORDS[value] if value is None or isinstance(value, bool) else str(value)


@login_required
@require_safe
def of_team(request: UserRequest, team: str) -> HttpResponse:
    found = members.readable_team(request.user, team)
    allowed(lambda: require(request.user, Act.MANAGE, found))
    return _page(request, AuditEntry.objects.filter(team=found), found)


@login_required
@require_safe
def of_all(request: UserRequest) -> HttpResponse:
    """Show every entry, including those of no team: sign-ins and failed ones."""
    allowed(lambda: require_platform_admin(request.user, "read the audit of every team"))
    return _page(request, AuditEntry.objects.all(), None)


def _page(request: UserRequest, entries: QuerySet[AuditEntry], team: Team | None) -> HttpResponse:
    filters = AuditFilters(request.GET, entries)
    entries = filters.qs
    before = request.GET.get("before", "")
    if before.isascii() and before.isdigit() and len(before) < 18:
        entries = entries.filter(pk__lt=int(before))
    rows = [AuditRow(entry) for entry in entries.order_by("-id")[: PAGE + 1]]
    context = {
        "asked": filters.values,
        "is_filtered": any(filters.values.values()),
        "team": team,
        "rows": rows[:PAGE],
        "older": rows[PAGE - 1].entry.pk if len(rows) > PAGE else None,
        "is_first": not before,
        "acts": WORDS.items(),
    }
    return answer(request, template="accounts/audit.html", context=context)
