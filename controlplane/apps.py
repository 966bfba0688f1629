from django.apps import AppConfig


class ControlPlaneConfig(AppConfig):
    name = "controlplane"

    def ready(self) -> None:
        """Create Celery's app in every process: code that sends a task uses the current app (common/signals/doorbell.py)."""
        from . import celery  # noqa: F401 - importing it makes the app
