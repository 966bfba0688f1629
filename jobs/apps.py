from django.apps import AppConfig


class JobsConfig(AppConfig):
    name = "jobs"

    def ready(self) -> None:
        from accounts import in_use
        from credentials import services as credentials
        from volumes import services as volumes

        from .submission import uses

        in_use.register(credentials.IN_USE, uses.of_secret)
        in_use.register(volumes.IN_USE, uses.of_volume)
