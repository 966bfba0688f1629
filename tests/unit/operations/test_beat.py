"""The beat process ends by one signal, also where the schedule cannot be written at that moment."""

import signal
import threading

import pytest
from celery.beat import Service

from controlplane.celery import app
from controlplane.management.commands.beat import Beat
from tests.support.patience import PATIENCE_SECONDS


@pytest.fixture
def beat(tmp_path):
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield lambda stop: Beat(app=app, schedule=str(tmp_path / "beat"), pidfile=None, quiet=True, asked_to_stop=stop)
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_a_signal_ends_it_where_the_schedule_cannot_be_written(beat, tmp_path, monkeypatch):
    service = Service(app, schedule_filename=str(tmp_path / "beat"))

    def fails() -> None:
        raise OSError("the schedule is being written")

    beat(threading.Event()).install_sync_handler(service)
    with monkeypatch.context() as patched:
        patched.setattr(service.scheduler, "sync", fails)
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGTERM)
    running = threading.Thread(target=service.start, daemon=True)  # its loop has nothing left to do
    running.start()
    running.join(PATIENCE_SECONDS)
    assert not running.is_alive()


def test_a_signal_before_its_service_began_is_not_lost(beat, tmp_path):
    stop = threading.Event()
    stop.set()
    with pytest.raises(SystemExit):
        beat(stop).install_sync_handler(Service(app, schedule_filename=str(tmp_path / "beat")))
