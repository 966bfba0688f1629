"""What an INSERT ... SELECT needs to fill the columns it does not name: the model's own defaults."""

from typing import Any

from django.db import connection, models


def begun(model: type[models.Model], places: tuple[str, ...]) -> tuple[str, str, list[Any]]:
    """Return (column list, placeholders for the remaining fields, those fields); defaults come from the model alone."""
    rest = [one for one in model._meta.concrete_fields if not one.primary_key and one.column not in places]
    columns = ", ".join(f'"{name}"' for name in (*places, *(one.column for one in rest)))
    return columns, ", ".join(["%s"] * len(rest)), rest


def values(rest: list[Any]) -> Any:
    """Return what the placeholders stand for."""
    return [one.get_db_prep_save(one.get_default(), connection) for one in rest]
