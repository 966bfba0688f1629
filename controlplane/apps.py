from django.apps import AppConfig


class ControlPlaneConfig(AppConfig):
    name = "controlplane"

    def ready(self) -> None:
        """Celery's app is made in every process: whoever sends a task asks for the current one (common/doorbell.py)."""
        from . import celery  # noqa: F401 - importing it makes the app
