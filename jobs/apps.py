from django.apps import AppConfig


class JobsConfig(AppConfig):
    name = "jobs"

    def ready(self) -> None:
        from accounts import in_use
        from credentials.services import IN_USE

        from .submission import uses

        in_use.register(IN_USE, uses.of_secret)
