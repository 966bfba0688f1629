"""Which mutants of the product do its tests kill? `python -m tests.support.mutants --group pure --results FILE`

A mutant is killed if a test fails with it. The parent loads libraries only; for each mutant it forks a child, which imports
the product with the change and runs the tests that call the changed function. For a change outside functions those are the
tests that call a function which mentions the changed name. Processes that tests start import the product without the change.
FILE gets one line for each mutant, and a second call goes on where the first stopped. `--compare BEFORE AFTER` lists the
mutants that survive only after a change of the tests.
"""

import argparse
import contextlib
import gc
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import resource
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
from hypothesis import HealthCheck, Phase, settings

from embedded.servers import Servers
from tests.support.mutations import Mutant, changed, mentions, mutants, readers
from tests.support.servers import environment

ROOT = Path(__file__).resolve().parents[2]
KILLED, TIMEOUT, SURVIVED, NOT_COVERED = OUTCOMES = ("killed", "timeout", "survived", "not covered")
ALIVE = (SURVIVED, NOT_COVERED)
SIMULATION = "tests/simulation"

# A test may take this many times what it takes without a change, and some seconds more; with a mutant that takes longer
# it would never end. CPU time decides, so that a busy machine kills none; the clock is for tests that wait.
TIMES, MORE_CPU_SECONDS, MORE_SECONDS = 10, 3.0, 60.0
LONGEST_SECONDS = 1200.0
MEMORY_BYTES = 8 << 30
MOST_EXAMPLES = 100  # of one property: of more, the first ones kill nearly all that any would
EXAMPLES = "_hypothesis_internal_use_settings"  # where `given` keeps them

# pytest's words for tests without Django, with Django alone, and with a database.
BARE = ("--noconftest",)
DJANGO = ("--noconftest", "-p", "pytest_django.plugin", "--ds", "tests.settings_without_database")
SERVED = ("-p", "pytest_django.plugin", "--ds", "tests.settings")
WORDS = (
    "-qx", "--tb=short", "--import-mode=importlib", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "tests.support.sizes",
)  # fmt: skip

Tell = Callable[..., None]


@dataclass
class Group:
    """Files of the product, relative to `root`, and the files of the tests that are to kill their mutants."""

    root: Path
    paths: list[str]
    tests: list[str]
    sample: int = 0  # so many mutants, drawn by a hash of their ids; 0: all
    is_served: bool = False
    simulated: tuple[str, ...] = ()  # with mutants of these, simulated schedules run before the tests

    def mutants(self) -> list[Mutant]:
        found = mutants(self.root, self.paths)
        drawn = sorted(found, key=lambda one: hashlib.sha256(f"sample {one.id}".encode()).digest())
        return drawn[: self.sample] if self.sample else found


def pure() -> Group:
    """Without accounts/permissions.py and the rest of queues, which only tests with a database run."""
    more = [*_below("queues/admission/*.py"), "queues/resources.py", "accounts/roles.py", "jobs/ingest/translate.py"]
    tests = [one for one in _below("tests/unit/**/test_*.py") if not one.startswith("tests/unit/project/")]
    return Group(ROOT, [*_below("jobs/core/*.py"), *more], tests)


def control() -> Group:
    """Without tests/contract/test_clusters.py, which calls no function of jobs.control."""
    tests = _below("tests/db/control/test_*.py")
    return Group(ROOT, _below("jobs/control/*.py"), tests, 150, True, ("jobs/control/reconciler.py",))


def _below(pattern: str) -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(pattern))


def violation() -> bool:
    """Whether one of 200 simulated schedules violates a rule, or cannot be simulated."""
    try:
        from tests.simulation.adapters import memory
        from tests.simulation.test_simulation import first_violation
        from tests.simulation.world import ELASTIC, GUARDS, HEADED, STRICT

        runs = ((range(80), STRICT), (range(60_000, 60_060), HEADED), (range(40_000, 40_060), ELASTIC))
        return any(first_violation(memory, seeds, GUARDS, roles) is not None for seeds, roles in runs)
    except Exception:
        traceback.print_exc()
        return True


@dataclass
class Seen:
    """What one file of tests does without a change."""

    words: tuple[str, ...] = ()
    failed: str = ""
    seconds: dict[str, list[float]] = field(default_factory=dict)  # by test: of CPU, of the clock; traced
    calls: dict[str, list[str]] = field(default_factory=dict)  # functions by test; "": those called for all tests
    paths: list[str] = field(default_factory=list)  # the files that it imports below the root
    libraries: list[str] = field(default_factory=list)

    def tests_of(self, mutant: Mutant, functions: set[tuple[str, str]] | None) -> set[str]:
        """The tests that call one of these functions, or all that import the module."""
        if mutant.path not in self.paths:
            return set()
        names = {"::".join(one) for one in functions or ()}
        is_for_all = functions is None or not names.isdisjoint(self.calls.get("", ()))
        return {test for test in self.seconds if is_for_all or not names.isdisjoint(self.calls.get(test, ()))}


class Watch:
    """A pytest plugin: runs the `wanted` tests, each within its time, and keeps which one failed and how long each took."""

    def __init__(
        self, tell: Tell, wanted: set[str] | None = None, known: dict[str, list[float]] | None = None,
        needed: set[str] = frozenset(),
    ):  # fmt: skip
        self.tell, self.wanted, self.known, self.needed = tell, wanted, known or {}, needed
        self.failed = self.now = ""
        self.has_database = False
        self.seconds: dict[str, list[float]] = {}

    def pytest_configure(self, config):
        self.has_database = SERVED[-1] in config.invocation_params.args
        if self.has_database:
            config.pluginmanager.register(Migrated())

    def pytest_collection(self):
        """After tests/conftest.py has loaded its profile. Examples are the same in each run, and not shrunk."""
        settings.register_profile(
            "mutants", deadline=None, derandomize=True, database=None, report_multiple_bugs=False,
            phases=(Phase.explicit, Phase.generate), suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        settings.load_profile("mutants")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        """A test that is new runs too: a change can lengthen the table that the tests are made from."""
        if self.needed and not self.needed & sys.modules.keys():
            items.clear()
        if self.wanted is not None:
            items[:] = [one for one in items if one.nodeid in self.wanted or one.nodeid not in self.known]
            for one in items:
                if chosen := getattr(one.function, EXAMPLES, None):
                    setattr(
                        one.function, EXAMPLES, settings(chosen, max_examples=min(chosen.max_examples, MOST_EXAMPLES))
                    )
            if not self.has_database:
                items.sort(key=lambda one: self.known.get(one.nodeid, [0.0])[0])

    def pytest_collectreport(self, report):
        self.failed = self.failed or (report.nodeid if report.failed else "")

    def pytest_runtest_logreport(self, report):
        self.failed = self.failed or (report.nodeid if report.failed else "")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        self.now = item.nodeid
        self.tell(running=item.nodeid)
        if self.wanted is not None:
            limit(*self.known.get(item.nodeid, (0.0, 0.0)))
        cpu, clock = time.process_time(), time.monotonic()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = [time.process_time() - cpu, time.monotonic() - clock]
            self.now = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        """What a fixture of a whole file calls, it calls for each test of the file."""
        now, self.now = self.now, self.now if fixturedef.scope == "function" else ""
        try:
            return (yield)
        finally:
            self.now = now


class Migrated:
    """Replaces pytest-django's fixture: the settings already name a migrated database for tests."""

    @pytest.fixture(scope="session")
    def django_db_setup(self):
        pass


class Import(importlib.machinery.SourceFileLoader):
    """Finds and loads one module with a change."""

    def __init__(self, root: Path, mutant: Mutant):
        super().__init__(_module(mutant.path), str(root / mutant.path))
        self.place = mutant.place

    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def get_code(self, fullname):
        return compile(changed(Path(self.path).read_text(), self.place), self.path, "exec", dont_inherit=True)


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def limit(cpu: float, clock: float) -> None:
    """Have a signal end this process once it takes much longer than these seconds."""
    signal.setitimer(signal.ITIMER_PROF, TIMES * cpu + MORE_CPU_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, TIMES * clock + MORE_SECONDS)


def in_child(work: Callable[[Tell], None], *, is_quiet: bool = True) -> dict:
    """Run `work` in a fork, and return what it told, with the number of the signal that ended it. Raises RuntimeError."""
    with tempfile.TemporaryDirectory(prefix="muster-mutant-", ignore_cleanup_errors=True) as folder:
        told = Path(folder) / "told.json"
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            _be_child(work, told=told, is_quiet=is_quiet)
        waited = os.pidfd_open(pid)
        try:
            in_time = bool(select.select([waited], [], [], LONGEST_SECONDS)[0])
        finally:
            os.close(waited)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # also what the tests left behind
            _, status, used = os.wait4(pid, 0)
        found = json.loads(told.read_text()) if told.exists() else {}
    if "error" in found:
        raise RuntimeError(found["error"])
    ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    spent = round(used.ru_utime + used.ru_stime, 2)
    return {**found, "signal": ended_by if in_time else signal.SIGALRM, "cpu": spent}


def _be_child(work: Callable[[Tell], None], *, told: Path, is_quiet: bool) -> None:
    def tell(**words: object) -> None:
        told.write_text(json.dumps(words))

    try:
        os.setsid()
        os.environ["TMPDIR"] = tempfile.tempdir = str(told.parent)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if is_quiet:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
        work(tell)
    except BaseException:
        tell(error=traceback.format_exc())
    finally:
        os._exit(0)


class Runner:
    """Runs the mutants of a group. Made within `served`, for a group with servers."""

    def __init__(self, group: Group):
        self.group = group
        if group.simulated and in_child(lambda tell: tell(failed=violation()))["failed"]:
            raise SystemExit(f"{SIMULATION}: a schedule fails without a change")
        self.seen = {test: self._look(test) for test in group.tests}
        self.mentioned = mentions(group.root, sorted({path for one in self.seen.values() for path in one.paths}))
        self.known = {test: seconds for one in self.seen.values() for test, seconds in one.seconds.items()}
        for name in sorted({name for one in self.seen.values() if one.words != DJANGO for name in one.libraries}):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        if early := {_module(path) for path in group.paths} & sys.modules.keys():
            raise SystemExit(f"imported before any change: {', '.join(sorted(early))}")
        gc.collect()
        gc.freeze()

    def _look(self, test: str) -> Seen:
        for words in [SERVED] if self.group.is_served else [BARE, DJANGO]:
            self._prepare()
            found = in_child(partial(self._trace, test, words))
            found = Seen(**{**found["seen"], "words": words})
            if not found.failed:
                return found
        raise SystemExit(f"fails without a change: {found.failed}")

    def _trace(self, test: str, words: tuple[str, ...], tell: Tell) -> None:
        calls = defaultdict[str, set[str]](set)
        root = f"{self.group.root}/"
        watch = Watch(tell, needed={_module(path) for path in self.group.paths})

        def trace(frame, event, arg):
            if frame.f_code.co_filename.startswith(root):
                calls[watch.now].add(f"{frame.f_code.co_filename.removeprefix(root)}::{frame.f_code.co_qualname}")

        threading.settrace(trace)
        sys.settrace(trace)
        code = pytest.main([*WORDS, *words, test], plugins=[watch])
        sys.settrace(None)
        failed = watch.failed or ("" if code in (0, 5) else f"{test}: pytest exits with {int(code)}")
        by_test = {name: sorted(functions) for name, functions in calls.items()}
        files = {name: getattr(one, "__file__", None) or "" for name, one in sys.modules.items()}
        paths = [one.removeprefix(root) for one in files.values() if one.startswith(root)]
        libraries = [name for name, one in files.items() if not one.startswith(root)]
        tell(seen=vars(Seen(words, failed, watch.seconds, by_test, paths, libraries)))

    def _prepare(self) -> None:
        if self.group.is_served:
            copy_database()

    def outcome(self, mutant: Mutant, *, is_quiet: bool = True) -> dict:
        """The outcome, the test that killed the mutant or was running at its end, and the seconds of CPU."""
        functions = readers(self.mentioned, mutant)
        wanted = {test: names for test, one in self.seen.items() if (names := one.tests_of(mutant, functions))}
        is_simulated = mutant.path in self.group.simulated
        if not wanted and not is_simulated:
            return {"outcome": NOT_COVERED, "test": "", "cpu": 0.0}
        self._prepare()
        found = in_child(partial(self._kill, mutant, wanted, is_simulated), is_quiet=is_quiet)
        if found["signal"] in (signal.SIGPROF, signal.SIGALRM):
            return {"outcome": TIMEOUT, "test": found.get("running", ""), "cpu": found["cpu"]}
        killer = found.get("killer", found.get("running", "import"))  # without "killer" it did not get to an end
        return {"outcome": KILLED if killer else SURVIVED, "test": killer, "cpu": found["cpu"]}

    def _kill(self, mutant: Mutant, wanted: dict[str, set[str]], is_simulated: bool, tell: Tell) -> None:
        if mutant.place >= 0:
            sys.meta_path.insert(0, Import(self.group.root, mutant))
        if is_simulated:
            tell(running=SIMULATION)
            limit(3, 10)
            if violation():
                return tell(killer=SIMULATION)
        files = sorted(wanted, key=lambda test: self._rank(test, mutant, wanted[test]))
        # Files with a database run together: pytest-django puts the tests that empty tables last.
        for batch in [files] if self.group.is_served else [[test] for test in files]:
            limit(3, 10)  # for imports
            watch = Watch(tell, set().union(*(wanted[test] for test in batch)), self.known)
            try:
                code = pytest.main([*WORDS, *self.seen[batch[0]].words, *batch], plugins=[watch])
            except Exception:  # Django cannot be set up
                code = 3
            if watch.failed or code not in (0, 5):
                return tell(killer=watch.failed or f"{batch[0]}: pytest exits with {int(code)}")
        return tell(killer="")

    def _rank(self, test: str, mutant: Mutant, names: set[str]) -> tuple[bool, bool, float]:
        """Those that need Django last; first those that name the module, and the fastest of them."""
        is_direct = _module(mutant.path) in (self.group.root / test).read_text()
        return self.seen[test].words == DJANGO, not is_direct, sum(self.known[name][0] for name in names)


@contextlib.contextmanager
def served() -> Iterator[None]:
    """One Postgres and one Redis for all mutants, with a migrated database to copy, and Django set up in this process."""
    with tempfile.TemporaryDirectory(prefix="muster-mutants-") as folder:
        with Servers(Path(folder) / "servers", is_temporary=True) as servers:
            os.environ.update(environment(Path(folder), servers), DJANGO_SETTINGS_MODULE=SERVED[-1])
            os.environ["MUTANTS_DATABASE_URL"] = servers.database_url
            with psycopg.connect(servers.database_url, autocommit=True) as connection:
                connection.execute("CREATE DATABASE migrated")
            os.environ["DATABASE_URL"] = urlsplit(servers.database_url)._replace(path="/migrated").geturl()
            in_child(_migrate)
            os.environ["DATABASE_URL"] = urlsplit(servers.database_url)._replace(path="/mutant").geturl()
            _set_up()
            yield


def _set_up() -> None:
    import django

    django.setup()


def _migrate(tell: Tell) -> None:
    _set_up()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    tell()


def copy_database() -> None:
    with psycopg.connect(os.environ["MUTANTS_DATABASE_URL"], autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS mutant WITH (FORCE)")
        connection.execute("CREATE DATABASE mutant TEMPLATE migrated")
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        client.flushall()


def read(path: Path) -> dict[str, dict]:
    """The results by id. A line that was cut off is left out."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            found[row["id"]] = row
    return found


def run(group: Group, results: Path, *, seconds: float) -> None:
    """Run the mutants that `results` lacks, until this many seconds have passed."""
    began, done = time.monotonic(), read(results)
    left = [one for one in group.mutants() if one.id not in done]
    print(f"{len(left)} mutants to run, {len(done)} done", flush=True)
    if not left:
        return
    results.write_text("".join(json.dumps(row) + "\n" for row in done.values()))  # without a line that was cut off
    with served() if group.is_served else contextlib.nullcontext():
        runner = Runner(group)
        print(f"{len(runner.known)} tests looked at in {time.monotonic() - began:.0f} s", flush=True)
        for number, mutant in enumerate(left):
            if time.monotonic() - began > seconds:
                print(f"stopped in time, {len(left) - number} left", flush=True)
                break
            since = time.monotonic()
            found = runner.outcome(mutant)
            row = {"id": mutant.id, **found, "seconds": round(time.monotonic() - since, 2), "text": mutant.text}
            with results.open("a") as file:
                file.write(json.dumps(row) + "\n")


def check(group: Group, done: dict[str, dict]) -> int:
    """Run selections of tests without a change, and return how many fail. One with which a mutant survived has passed."""
    scopes = {(one.path, one.function or one.id.split("::")[1]): one for one in group.mutants()}
    passed = {tuple(name.split("::")[:2]) for name, row in done.items() if row["outcome"] in ALIVE}
    left = {key: one for key, one in scopes.items() if key not in passed}
    print(f"{len(left)} of {len(scopes)} selections to run without a change", flush=True)
    failed = 0
    with served() if group.is_served else contextlib.nullcontext():
        runner = Runner(group)
        for key, one in left.items():
            found = runner.outcome(replace(one, place=-1))
            if found["outcome"] not in ALIVE:
                failed += 1
                print(f"{'::'.join(key)}: {found['outcome']} without a change by {found['test']}", flush=True)
    return failed


def summary(rows: dict[str, dict]) -> str:
    counts = defaultdict[str, Counter[str]](Counter)
    for name, row in rows.items():
        for key in (name.partition("::")[0], "all"):
            counts[key][row["outcome"]] += 1
    lines = [f"{'':34}" + "".join(f"{one:>12}" for one in OUTCOMES)]
    lines += [f"{path:34}" + "".join(f"{count[one]:12}" for one in OUTCOMES) for path, count in sorted(counts.items())]
    return "\n".join(lines)


def compare(before: dict[str, dict], after: dict[str, dict]) -> int:
    """Print what survives only after. Returns 1 if anything does, 2 if mutants of before were not run after, else 0."""
    was_alive, is_alive = ({name for name, row in rows.items() if row["outcome"] in ALIVE} for rows in (before, after))
    print(f"before: {len(was_alive)} of {len(before)} survive; after: {len(is_alive)} of {len(after)}")
    for name in sorted(is_alive - was_alive):
        was = before.get(name, {"outcome": "not run", "test": ""})
        print(f"survives only after: {name} ({was['outcome']} before {was['test']})\n    {after[name]['text']}")
    missing = sorted(before.keys() - after.keys())
    for name in missing:
        print(f"not run after: {name}")
    return 1 if is_alive - was_alive else 2 if missing else 0


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--group", choices=("pure", "control"), help="mutants and tests of the project")
    parser.add_argument("--files", nargs="+", default=[], help="instead of a group: Python files below --root")
    parser.add_argument("--tests", nargs="+", default=[], help="the tests of --files, without database and servers")
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--results", type=Path, help="a file of JSON lines to read and go on with")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after these, between two mutants")
    parser.add_argument("--list", action="store_true", help="print the mutants only")
    parser.add_argument(
        "--check",
        action="store_true",
        help="run selections of tests without a change; not those with survivors in --results",
    )
    parser.add_argument("--show", metavar="ID", help="run this mutant and print what pytest says")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("BEFORE", "AFTER"))
    asked = parser.parse_args(words)
    if asked.compare:
        return compare(*(read(path) for path in asked.compare))
    if os.environ.get("PYTHONHASHSEED") != "0":  # with another one, sets and so some outcomes have another order
        os.execve(sys.executable, [sys.executable, "-m", __spec__.name, *words], {**os.environ, "PYTHONHASHSEED": "0"})
    root = asked.root.resolve()
    group = {"pure": pure, "control": control}[asked.group]() if asked.group else Group(root, asked.files, asked.tests)
    if asked.list:
        print("\n".join(f"{one.id}  {one.text}" for one in group.mutants()))
        return 0
    os.environ.update(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", MUSTER_SECRET_KEY="only for tests")
    sys.path[:0] = [str(root), str(root / "client")]
    results = asked.results and asked.results.resolve()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # A shell that starts this process in the background sets SIGINT to ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(root)
    with tempfile.TemporaryDirectory(prefix="muster-bytecode-") as folder:
        sys.pycache_prefix, sys.dont_write_bytecode = folder, False
        if asked.check:
            return 1 if check(group, read(results) if results else {}) else 0
        if asked.show:
            with served() if group.is_served else contextlib.nullcontext():
                (mutant,) = [one for one in group.mutants() if one.id == asked.show]
                print(mutant.text, *Runner(group).outcome(mutant, is_quiet=False), sep="\n")
            return 0
        run(group, results, seconds=asked.minutes * 60)
    print(summary(read(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
