"""The web process: `uvicorn controlplane.asgi:application`."""

import os
import sys

from django.core.asgi import get_asgi_application

from common.machine import gc_tuning

# How long a computing thread keeps the interpreter from the others. A request hops between threads a dozen times and
# waits at each hop. Beside six downloads of a log a small request took 140 ms with Python's 5 ms and 68 ms with 1 ms
# (10 ms alone).
SWITCH_SECONDS = 0.001

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
django_pages = get_asgi_application()

from django.conf import settings  # noqa: E402
from django.urls import reverse  # noqa: E402

from common.db.db_timeout import answer_within  # noqa: E402
from common.startup_checks import announce  # noqa: E402
from common.telemetry import traces  # noqa: E402
from controlplane.edge.form_input import CarefulRequest  # noqa: E402
from controlplane.edge.limits import Bounded  # noqa: E402
from controlplane.telemetry import metrics  # noqa: E402
from controlplane.telemetry.traced import Lifespan  # noqa: E402
from jobs.ingest.asgi import AgentDoor  # noqa: E402 - models can be imported only now

django_pages.request_class = CarefulRequest
# Batches have their own entry point and limit; everything else is bounded before Django reads it.
application = Lifespan(AgentDoor(Bounded(django_pages)))
answer_within(settings.MUSTER_DB_SECONDS)
announce()
metrics.serve(rows=True)
traces.start("web")
sys.setswitchinterval(SWITCH_SECONDS)
reverse("jobs")  # imports every view now, so that neither the first request nor the garbage collector pays for it
gc_tuning.settle()
