"""What an INSERT ... SELECT needs to fill the columns it does not name: the model's own defaults."""

from typing import Any

from django.db import connection, models

_PREFIX = "default_"  # of the parameters' names, so that none is another parameter of the statement


def begun(model: type[models.Model], places: tuple[str, ...]) -> tuple[str, str, list[Any]]:
    """Return (column list, parameters of the remaining fields, those fields); defaults come from the model alone."""
    rest = [one for one in model._meta.concrete_fields if not one.primary_key and one.column not in places]
    columns = ", ".join(f'"{name}"' for name in (*places, *(one.column for one in rest)))
    return columns, ", ".join(f"%({_PREFIX}{one.column})s" for one in rest), rest


def defaults(rest: list[Any]) -> dict[str, Any]:
    """Return the values of those parameters."""
    return {f"{_PREFIX}{one.column}": one.get_db_prep_save(one.get_default(), connection) for one in rest}
