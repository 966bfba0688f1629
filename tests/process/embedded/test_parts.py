"""The small parts: ports, files, the environment, the instance lock, the live view."""

import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from embedded import EmbeddedError
from embedded.demo import Demo
from embedded.files import LOG_BYTES, bound_log, open_log, private_folder, read_json, write_json
from embedded.health import Probe
from embedded.home import SOCKET_PATH_BYTES, find_home
from embedded.instance import Instance, running
from embedded.launch import Launch
from embedded.options import data_folder, parse
from embedded.ports import free_port, listen
from embedded.programs import CHECKOUT, address, allowed_hosts, environment, sample_command
from embedded.view import JobView, RankView, plain, screen
from tests.support.patience import PATIENCE_SECONDS


def test_a_port_in_use_is_skipped():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with listen("127.0.0.1", port=port) as found:
            assert found.getsockname()[1] > port


def test_a_free_port_is_used_unchanged():
    port = free_port()
    with listen("127.0.0.1", port=port) as found:
        assert found.getsockname()[1] == port


def test_a_free_port_is_none_that_the_kernel_gives_to_connections():
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(free_port() < lowest for _ in range(20))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_answers_on_a_kept_connection_are_sent_at_once(host):
    """As with `uvicorn --fd`: it treats the socket as a Unix socket and does not set TCP_NODELAY, so it must be set already."""
    with listen(host, port=0) as found, socket.fromfd(found.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as lent:
        with socket.create_connection(found.getsockname()[:2]):
            connection = socket.socket(fileno=lent._accept()[0])
            with connection:
                assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_an_address_of_another_machine_is_an_error_that_names_the_option():
    with pytest.raises(EmbeddedError, match="--host"):
        listen("192.0.2.1", port=8000)


@pytest.mark.parametrize(
    "host, expected",
    [
        ("127.0.0.1", "127.0.0.1,localhost,[::1]"),
        ("::1", "127.0.0.1,localhost,[::1]"),
        ("10.1.2.3", f"127.0.0.1,localhost,[::1],10.1.2.3,{socket.gethostname()}"),
        ("fe80::1", f"127.0.0.1,localhost,[::1],[fe80::1],{socket.gethostname()}"),
        ("0.0.0.0", "*"),  # not all names of the machine can be known
    ],
)
def test_allowed_hosts_follow_the_address(host, expected):
    assert allowed_hosts(host) == expected


@pytest.mark.parametrize(
    "host, expected",
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),  # agents and bin/muster are on this machine
        ("::1", "http://[::1]:8000"),
        ("10.1.2.3", "http://10.1.2.3:8000"),
    ],
)
def test_the_address_is_reachable_from_this_machine(host, expected):
    assert address(host, port=8000) == expected


def env_of(tmp_path, **given):
    urls = {"database_url": "postgres://d", "redis_url": "redis://r"}
    return environment(given, data=tmp_path, host="127.0.0.1", port=8000, **urls, secret_key="s")


def test_children_get_the_installations_settings_but_not_the_supervisors_secrets(tmp_path):
    env = env_of(tmp_path, PATH="/bin", MUSTER_ADMIN_PASSWORD="first", MUSTER_TOKEN="mine", HOME="/home/ada")
    assert env["DATABASE_URL"] == "postgres://d"
    assert env["HOME"] == "/home/ada"
    assert env["PATH"].startswith("/bin:")
    assert not {"MUSTER_ADMIN_PASSWORD", "MUSTER_TOKEN"} & env.keys()


def test_the_local_cluster_is_in_the_data_folder_and_other_clusters_are_kept(tmp_path):
    env = env_of(tmp_path, MUSTER_CLUSTERS='{"far": {"BACKEND": "x.Y", "OPTIONS": {}}}')
    assert f'"ROOT": "{tmp_path}/local"' in env["MUSTER_CLUSTERS"]
    assert '"far"' in env["MUSTER_CLUSTERS"]


def test_the_checkout_is_first_on_the_python_path_and_appears_once(tmp_path):
    env = env_of(tmp_path, PYTHONPATH=f"{CHECKOUT}:/mine")
    assert env["PYTHONPATH"] == f"{CHECKOUT}:{CHECKOUT}/client:/mine"


def test_the_data_folder_is_in_the_checkout_unless_configured(tmp_path):
    assert data_folder({}) == CHECKOUT / ".muster"
    assert data_folder({"MUSTER_DATA_DIR": str(tmp_path)}) == tmp_path


def test_a_private_folder_gets_mode_0700_whatever_its_mode_was(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    assert stat.S_IMODE(private_folder(folder).stat().st_mode) == 0o700


def test_a_link_in_place_of_a_folder_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(EmbeddedError):
        private_folder(tmp_path / "link")


def test_json_is_written_atomically_and_privately(tmp_path):
    write_json(tmp_path / "a.json", value={"one": 1})
    assert read_json(tmp_path / "a.json") == {"one": 1}
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize("text", ["", "{", "\x00"])
def test_a_damaged_file_counts_as_missing(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    assert read_json(tmp_path / "a.json") is None


def test_a_log_that_is_too_long_is_rotated(tmp_path):
    log = tmp_path / "web.log"
    log.write_bytes(b"x" * (LOG_BYTES + 1))
    os.close(open_log(log))
    assert log.stat().st_size == 0
    assert (tmp_path / "web.log.1").stat().st_size == LOG_BYTES + 1


def test_a_log_is_truncated_while_its_process_keeps_writing(tmp_path):
    log = tmp_path / "web.log"
    descriptor = open_log(log)
    os.write(descriptor, b"old" * 1000)
    assert not bound_log(log, most=3000)
    os.write(descriptor, b"new" * 500)
    assert bound_log(log, most=3000)
    os.write(descriptor, b"after")
    os.close(descriptor)
    assert log.read_bytes() == b"after"  # without a hole before it
    kept = tmp_path / "web.log.1"
    assert kept.read_bytes() == b"old" * 500 + b"new" * 500
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert not bound_log(tmp_path / "none.log")


def test_the_supervisor_bounds_logs_while_it_runs(tmp_path):
    launch = Launch(Instance(tmp_path), host="127.0.0.1", port=0, given={})
    launch.logs.mkdir()
    for name in ("web.log", "postgres.log"):
        (launch.logs / name).write_bytes(b"x" * (LOG_BYTES + 1))
    sizes = lambda: [(launch.logs / name).stat().st_size for name in ("web.log", "postgres.log")]  # noqa: E731
    assert launch.supervisor.wait(lambda: sizes() == [0, 0], seconds=PATIENCE_SECONDS)


def test_a_socket_gets_its_own_short_folder_if_the_path_is_too_long(tmp_path):
    home = find_home(tmp_path / ("long" * 25), account=None, is_temporary=True)
    assert len(os.fsencode(home.socket_folder)) + len("/.s.PGSQL.5432") <= SOCKET_PATH_BYTES
    assert stat.S_IMODE(home.socket_folder.stat().st_mode) == 0o700
    home.socket_folder.rmdir()


def test_a_folder_has_one_instance(tmp_path):
    first, second = Instance(tmp_path), Instance(tmp_path)
    assert first.claim()
    assert not second.claim()


def test_an_instances_note_is_read_until_it_is_removed(tmp_path):
    one = Instance(tmp_path)
    one.record(url="http://here")
    one.record(state="ready")
    note = running(tmp_path)
    assert (note["url"], note["state"], note["supervisor"]["pid"]) == ("http://here", "ready", os.getpid())
    one.forget()
    assert running(tmp_path) is None


def test_the_note_of_a_dead_process_counts_as_missing(tmp_path):
    write_json(tmp_path / "instance.json", value={"supervisor": {"pid": 1, "started": -1, "boot": "earlier"}})
    assert running(tmp_path) is None


@pytest.mark.parametrize("arguments, code", [([], 0), (["--once"], 1)])  # --once would have to run a job
def test_a_second_start_prints_the_url_of_the_first(tmp_path, capsys, arguments, code):
    first = Instance(tmp_path)
    first.claim()
    first.record(url="http://127.0.0.1:8123")
    assert Demo(tmp_path, options=parse(arguments)).run() == code
    said = capsys.readouterr().out
    assert "http://127.0.0.1:8123" in said
    assert "bin/demo --stop" in said


@pytest.mark.parametrize(("slots", "shape"), [(1, (1, 1)), (2, (2, 1)), (3, (3, 1)), (4, (2, 2)), (64, (2, 2))])
def test_the_sample_job_fits_the_machine(slots, shape):
    """With 1 to 3 GPUs there are as many slots as GPUs."""
    words = sample_command(slots)
    asked = tuple(int(words[words.index(name) + 1]) for name in ("--nodes", "--nproc"))
    assert asked == shape


@pytest.mark.parametrize(("slots", "nodes"), [(1, "1"), (3, "3"), (64, "4")])
def test_the_plain_sample_job_has_one_rank_in_each_replica(slots, nodes):
    words = sample_command(slots, framework="plain")
    assert words[words.index("--nodes") + 1] == nodes and words[words.index("--nproc") + 1] == "1"
    assert words[words.index("--framework") + 1] == "plain" and words[-2:] == ["python3", "plain_line.py"]
    assert (CHECKOUT / "examples" / words[-1]).exists()


@pytest.mark.parametrize(
    ("arguments", "framework"),
    [([], "torchrun"), (["--light"], "plain"), (["--framework", "plain"], "plain")],
)
def test_the_sample_job_is_a_plain_one_without_pytorch(arguments, framework):
    assert parse(arguments).framework == framework


@pytest.mark.parametrize("wanted", [["--framework", "torchrun"], ["--framework", "ray"], ["--cluster", "rig"]])
def test_what_a_light_installation_lacks_is_refused(wanted, capsys):
    with pytest.raises(SystemExit):
        parse(["--light", *wanted])
    assert "; leave out --light" in capsys.readouterr().err


@pytest.mark.parametrize("host, is_said", [("0.0.0.0", True), ("127.0.0.1", False)])
def test_listening_for_other_hosts_warns_that_all_teams_are_one_trust_domain(tmp_path, capsys, host, is_said):
    demo = Demo(tmp_path, options=parse(["--host", host]))
    demo.launch.env = {"MUSTER_PUBLIC_URL": "http://127.0.0.1:8000"}
    demo.introduce({"user": "admin", "password": None}, seconds=1.0)
    assert ("one trust domain" in capsys.readouterr().out) == is_said


@pytest.mark.parametrize(
    "answer, expected", [(b"HTTP/1.1 200 OK\r\n\r\n", True), (b"HTTP/1.1 503 No\r\n\r\n", False), (b"", False)]
)
def test_a_process_is_healthy_only_if_it_answers_200(answer, expected):
    with socket.create_server(("127.0.0.1", 0)) as server:
        probe = Probe(server.getsockname(), host="here")
        assert not probe.is_answered()  # the request is sent, and there is no response yet
        link, _ = server.accept()
        assert b"Host: here\r\n" in link.recv(1000)
        link.sendall(answer)
        link.close()
        answered = []
        waiter = threading.Thread(target=lambda: answered.append(any(probe.is_answered() for _ in range(2000))) or None)
        waiter.start()
        if not expected:
            server.close()
        waiter.join()
    assert answered == [expected]


RUNNING = JobView(
    "digits",
    "running",
    "every replica runs",
    12.4,
    (RankView(0, "running", "worker-0", 40, 0.9), RankView(1, "failed", "worker-0", 38, None, "signal 9")),
    {("accuracy", 0): 0.9, ("loss", 0): 0.25, ("system/cpu", 0): 0.9},
)


def test_the_live_view_has_a_line_for_the_job_and_one_for_each_rank():
    assert screen(RUNNING, width=100) == [
        "digits  running  12 s",
        "  > rank 0   running   worker-0   step 40     loss 0.25     accuracy 0.9      cpu 0.9",
        "  x rank 1   failed    worker-0   step 38     signal 9",
    ]


def test_no_line_is_wider_than_the_terminal():
    assert all(len(line) < 30 for line in screen(RUNNING, width=30))


def test_plain_lines_show_only_changes():
    before = JobView("digits", "running", "", 11.0, (RankView(0, "running"), RankView(1, "running")))
    assert plain(RUNNING, before=before) == ["x rank 1   failed    worker-0   step 38     signal 9"]
    assert plain(RUNNING, before=RUNNING) == []
    assert plain(before, before=None)[0] == "running"


@pytest.mark.parametrize(
    ("arguments", "is_fetched"),
    [
        (["--fetch-pytorch"], True), (["--fetch-pytorch", "--no-job"], True),
        (["--fetch-pytorch", "--framework", "plain"], False), ([], False),
    ],
)  # fmt: skip
def test_pytorch_is_fetched_unless_plain_jobs_are_asked_for(tmp_path, monkeypatch, capsys, arguments, is_fetched):
    asked = []

    def fail(*_, **__) -> None:
        asked.append(True)
        raise EmbeddedError("no space left")

    monkeypatch.setattr("embedded.demo.fetch", fail)
    has_packages = Demo(tmp_path, options=parse(arguments)).has_packages()
    assert bool(asked) == is_fetched and has_packages != is_fetched
    assert ("bin/demo --light has one" in capsys.readouterr().err) == is_fetched
