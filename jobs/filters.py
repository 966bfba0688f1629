"""Filters of lists of jobs."""

from django_filters import CharFilter

from common.http.filters import Filters, WordsFilter

from .core.failure_kinds import Kind
from .core.lifecycle import TERMINAL, Phase
from .models import JobQuerySet, failed_with


class JobFilters(Filters):
    phase = WordsFilter(
        known=Phase,
        alone=("active", "finished"),
        method="by_phase",
        help_text="one or several phases, separated by commas; or active, or finished",
    )
    queue = CharFilter("queue__name", strip=False, help_text="a queue's name")
    team = CharFilter("team__name", strip=False, help_text="a team's name")
    user = CharFilter("user__username", strip=False, help_text="who submitted it")
    name = CharFilter("name", strip=False, help_text="a job's name")
    kind = WordsFilter(
        known=Kind,
        method="by_kind",
        help_text="why its newest attempt failed: one or several kinds (docs/verdicts.md), separated by commas",
    )

    image = CharFilter(
        "spec__image", lookup_expr="icontains", strip=False, max_length=200, help_text="part of the name of its image"
    )

    def by_phase(self, jobs: JobQuerySet, _: str, words: list[str]) -> JobQuerySet:
        match words:
            case ["active"]:
                return jobs.active()
            case ["finished"]:
                return jobs.filter(phase__in=sorted(TERMINAL))
        return jobs.filter(phase__in=words)

    def by_kind(self, jobs: JobQuerySet, _: str, words: list[str]) -> JobQuerySet:
        return jobs.filter(failed_with(words))
