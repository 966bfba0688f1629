"""Forms whose rules are those of services."""

from django import forms

from ..errors import InvalidInput


class ServiceForm(forms.Form):
    """Checks no rule of its own: a service does, and its problems are shown at their fields."""

    def take(self, error: InvalidInput) -> None:
        """Show a service's problems at the fields of these names; those of other fields above the form."""
        for problem in error.problems:
            self.add_error(problem.field if problem.field in self.fields else None, problem.message)
