"""The web process: `uvicorn controlplane.asgi:application`."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
_django = get_asgi_application()

from jobs.agent_door import AgentDoor  # noqa: E402 - models can be imported only now

application = AgentDoor(_django)
