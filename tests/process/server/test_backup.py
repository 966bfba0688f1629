"""backup and restore as people run them: every row and file comes back, and what cannot be restored changes nothing."""

import ast
import dataclasses
import io
import json
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path

import pytest

from controlplane.operations.archive import Writer
from tests.process.server.conftest import CLUSTERS, ROOT, Database, Server, in_django

LEFT_OUT = {"accounts_signin", "django_migrations"}
TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
LOAD_AT = "0019_gpu_state"  # the last migration of a release before
NEWER = ("jobs_delivery", "jobs_webhook")  # tables that it did not have
NEWER_COLUMNS = {"jobs_replica": "is_restored", "jobs_job": "attempt_floor"}


@pytest.fixture(scope="module")
def database():
    found = Database()
    found.create_with_tables()
    yield found
    found.drop()


@pytest.fixture(scope="module")
def filled(database, tmp_path_factory) -> Server:
    server = Server(tmp_path_factory.mktemp("filled"), database)
    server.env["MUSTER_CLUSTERS"] = CLUSTERS
    subprocess.run([sys.executable, "-m", "tests.process.server.filling"], cwd=ROOT, env=server.env, check=True)
    return server


@pytest.fixture(scope="module")
def archive(filled, tmp_path_factory) -> Path:
    return backup(filled, tmp_path_factory.mktemp("archive") / "muster.tar")


@dataclasses.dataclass
class Elsewhere:
    """Another machine: a server with the same key on a database and a folder of its own."""

    server: Server
    database: Database
    data: Path


@pytest.fixture
def elsewhere(tmp_path):
    database = Database()
    database.create()
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    yield Elsewhere(Server(folder, database), database, folder / "data")
    database.drop()


def rows(database: Database) -> dict[str, list[tuple]]:
    names = {name for (name,) in database.run(TABLES)} - LEFT_OUT
    return {name: sorted(map(str, database.run(f'SELECT * FROM "{name}"'))) for name in names}


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in (folder / "files").rglob("*") if path.is_file()
    }


def backup(server: Server, path: Path, *words: str) -> Path:
    code, said = server.run("backup", str(path), *words)
    assert code == 0, said
    return path


def edited(path: Path, folder: Path, change, *, is_whole: bool = False) -> Path:
    """A copy of an archive; `change` gets about.json and the list of its other entries, as (name, content).

    `is_whole`: with a right checksum.
    """
    with tarfile.open(path) as tar:
        entries = [(one.name, tar.extractfile(one).read()) for one in tar]
    about = json.loads(entries[0][1])
    entries = change(about, entries[1:])
    copy = folder / "edited.tar"
    if is_whole:
        counts = json.loads(entries[-1][1])
        with copy.open("wb") as out:
            writer = Writer(out)
            writer.put_json("about.json", about)
            for name, content in entries[:-1]:
                writer.put(name, content)
            writer.end(**{name: value for name, value in counts.items() if name != "sha256"})
        return copy
    with tarfile.open(copy, "w") as tar:
        for name, content in [("about.json", json.dumps(about).encode()), *entries]:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return copy


def test_every_row_and_file_comes_back(filled, database, archive, elsewhere):
    before = rows(database)
    code, said = elsewhere.server.run("restore", str(archive))
    assert code == 0, said
    after = rows(elsewhere.database)

    restored = [row for row in after["accounts_auditentry"] if "installation.restore" in row]
    assert len(restored) == 1
    after["accounts_auditentry"].remove(restored[0])
    flags = elsewhere.database.run("SELECT is_restored, closed_at IS NULL FROM jobs_replica")
    assert {is_restored == is_open for is_restored, is_open in flags} == {True}
    floors = elsewhere.database.run("SELECT attempt_floor - attempt, finished_at IS NULL FROM jobs_job")
    assert set(floors) == {(10, True), (None, False)}
    elsewhere.database.run("UPDATE jobs_replica SET is_restored = false")
    elsewhere.database.run("UPDATE jobs_job SET attempt_floor = NULL")
    after |= {table: rows(elsewhere.database)[table] for table in ("jobs_replica", "jobs_job")}
    assert {name for name in before if before[name] != after[name]} == set()
    assert len(before["jobs_metricchunk"]) > 10
    assert files(elsewhere.data) == files(Path(filled.env["MUSTER_DATA_DIR"])) != {}


def test_numbers_go_on_and_those_of_jobs_with_a_distance(database, archive, elsewhere):
    assert elsewhere.server.run("restore", str(archive))[0] == 0
    (job,) = elsewhere.database.run("SELECT nextval(pg_get_serial_sequence('jobs_job', 'id'))")[0]
    assert job == database.run("SELECT max(id) FROM jobs_job")[0][0] + 1001
    (event,) = elsewhere.database.run("SELECT nextval(pg_get_serial_sequence('jobs_jobevent', 'id'))")[0]
    assert event == database.run("SELECT max(id) FROM jobs_jobevent")[0][0] + 1


def test_through_pipes(filled, elsewhere):
    writer = subprocess.Popen(
        [sys.executable, "-m", "controlplane.operations.server", "backup", "-"],
        cwd=ROOT,
        env=filled.env,
        stdout=subprocess.PIPE,
    )
    reader = subprocess.run(
        [sys.executable, "-m", "controlplane.operations.server", "restore", "-"], cwd=ROOT, env=elsewhere.server.env,
        stdin=writer.stdout, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (writer.wait(), reader.returncode) == (0, 0), reader.stderr
    assert elsewhere.database.run("SELECT count(*) FROM jobs_job") == [(2,)]


def test_what_a_first_start_creates_is_replaced(archive, elsewhere):
    assert elsewhere.server.run("migrate", "--first-admin", "somebody")[0] == 0
    assert elsewhere.server.run("restore", str(archive))[0] == 0
    assert elsewhere.database.run("SELECT username FROM accounts_user") == [("root",)]


def test_a_database_in_use_is_refused_and_stays(filled, database, archive):
    before = rows(database)
    code, said = filled.run("restore", str(archive))
    assert code == 1
    assert "the database has 2 jobs" in said
    assert "DATABASE_URL" in said
    assert rows(database) == before


def test_another_key_is_refused_with_the_way_out(filled, archive, elsewhere):
    elsewhere.server.env["MUSTER_SECRET_KEY"] = "another-key-than-the-one-of-the-backup-0000"
    code, said = elsewhere.server.run("restore", str(archive))
    assert (code, elsewhere.database.run(TABLES)) == (1, [])
    assert "--print-key" in said
    assert filled.env["MUSTER_SECRET_KEY"] not in said
    assert elsewhere.server.run("restore", "--print-key", str(archive)) == (0, f"{filled.env['MUSTER_SECRET_KEY']}\n")
    old = {"MUSTER_OLD_SECRET_KEYS": filled.env["MUSTER_SECRET_KEY"]}
    assert elsewhere.server.run("restore", str(archive), **old)[0] == 0


SEAL = """
import django; django.setup()
import pyotp
from django.utils import timezone
from accounts.models import Team, User
from accounts.signin import second_factor
from jobs.control import job_secrets
from tests.support import seed
user = User.objects.create_user("ada")
secret = second_factor.begin(user)
second_factor.confirm(user, pyotp.TOTP(secret).at(timezone.now()))
seed.webhook(Team.objects.create(name="nlp"))
print(secret, job_secrets.seal({"TOKEN": "of-the-job"}))
"""
READ = """
import sys
import django; django.setup()
import pyotp
from django.utils import timezone
from accounts.models import User
from accounts.signin import second_factor
from jobs.control import job_secrets
from jobs.models import Webhook
from jobs.webhooks import sealing
secret, sealed = sys.argv[1:]
webhook, user = Webhook.objects.get(), User.objects.get()
print(second_factor.check(user, pyotp.TOTP(secret).at(timezone.now(), counter_offset=1)))
print(sealing.url_of(webhook), *sealing.secrets_of(webhook, now=timezone.now()), job_secrets.unseal(sealed)["TOKEN"])
"""
NEW_KEY = "the-key-that-replaced-the-first-one-0000"


@pytest.fixture
def replaced(database_of_its_own, tmp_path) -> tuple[Server, list[str]]:
    """A server whose key was replaced after a second factor, a webhook and a secret were sealed with the first one."""
    folder = tmp_path / "replaced"
    folder.mkdir()
    server = Server(folder, database_of_its_own)
    sealed = server.execute("-c", SEAL).split()
    server.env |= {"MUSTER_OLD_SECRET_KEYS": server.env["MUSTER_SECRET_KEY"], "MUSTER_SECRET_KEY": NEW_KEY}
    return server, sealed


@pytest.fixture
def database_of_its_own():
    found = Database()
    found.create_with_tables()
    yield found
    found.drop()


def test_what_an_earlier_key_sealed_is_readable_after_a_restoration_with_the_keys_of_the_archive(
    replaced, elsewhere, tmp_path
):
    """As docker-compose.yml does it: files of the keys, made from the archive."""
    server, sealed = replaced
    archive = backup(server, tmp_path / "muster.tar")
    keys = tmp_path / "keys"
    for _ in range(2):  # a second start keeps them
        code, said = server.run("secrets", str(keys), "--from", str(archive))
        assert code == 0, said
    there = elsewhere.server
    del there.env["MUSTER_SECRET_KEY"]
    there.env["MUSTER_SECRET_KEY_FILE"] = str(keys / "muster/secret_key")
    there.env["MUSTER_OLD_SECRET_KEYS_FILE"] = str(keys / "muster/old_secret_keys")
    code, said = there.run("restore", str(archive))
    assert code == 0, said
    read = there.execute("-c", READ, *sealed).split()
    assert read == ["True", "https://93.184.216.34/x", "whsec_eA==", "of-the-job"]


def test_a_restoration_without_the_earlier_keys_is_refused_with_the_way_out(replaced, elsewhere, tmp_path):
    server, sealed = replaced
    first = server.env["MUSTER_OLD_SECRET_KEYS"]
    archive, bare = backup(server, tmp_path / "muster.tar"), backup(server, tmp_path / "bare.tar", "--without-keys")
    there = elsewhere.server
    there.env["MUSTER_SECRET_KEY"] = NEW_KEY
    for path, way in ((archive, "restore --print-old-keys FILE"), (bare, "set MUSTER_OLD_SECRET_KEYS as it was then")):
        code, said = there.run("restore", str(path))
        assert (code, elsewhere.database.run(TABLES)) == (1, [])
        assert "MUSTER_OLD_SECRET_KEYS lacks 1 of 1 earlier keys" in said and way in said and first not in said
    assert there.run("restore", "--print-key", str(archive)) == (0, f"{NEW_KEY}\n")
    code, said = there.run("restore", "--print-old-keys", str(archive))
    assert (code, said) == (0, f"{first}\n")
    there.env["MUSTER_OLD_SECRET_KEYS"] = said.strip()
    assert there.run("restore", str(bare))[0] == 0
    assert there.execute("-c", READ, *sealed).startswith("True")


def test_a_key_that_was_never_replaced_has_no_earlier_ones(filled, archive, tmp_path):
    assert filled.run("restore", "--print-old-keys", str(archive)) == (0, "")
    assert filled.run("secrets", str(tmp_path / "keys"), "--from", str(archive))[0] == 0
    assert not (tmp_path / "keys/muster/old_secret_keys").exists()


def test_files_that_lack_an_earlier_key_of_the_backup_are_not_used(replaced, tmp_path):
    server, _ = replaced
    archive = backup(server, tmp_path / "muster.tar")
    old = tmp_path / "keys/muster/old_secret_keys"
    old.parent.mkdir(parents=True)
    old.write_text("something-else\n")
    code, said = server.run("secrets", str(tmp_path / "keys"), "--from", str(archive))
    assert (code, "lacks earlier keys of the backup" in said) == (1, True)
    assert not (old.parent / "secret_key").exists()
    old.write_text(f"something-else,{server.env['MUSTER_OLD_SECRET_KEYS']}\n")
    assert server.run("secrets", str(tmp_path / "keys"), "--from", str(archive))[0] == 0


def test_a_backup_may_leave_the_keys_out(filled, elsewhere, tmp_path):
    archive = backup(filled, tmp_path / "muster.tar", "--without-keys")
    assert filled.env["MUSTER_SECRET_KEY"].encode() not in archive.read_bytes()
    code, said = elsewhere.server.run("restore", "--print-key", str(archive))
    assert (code, "without its secret key" in said) == (1, True)
    assert elsewhere.server.run("restore", str(archive))[0] == 0


def test_compose_can_begin_with_the_key_of_a_backup(filled, archive, tmp_path):
    code, said = filled.run("secrets", str(tmp_path / "keys"), "--from", str(archive))
    assert code == 0, said
    assert (tmp_path / "keys/muster/secret_key").read_text() == filled.env["MUSTER_SECRET_KEY"]
    assert filled.run("secrets", str(tmp_path / "keys"), "--from", str(archive))[0] == 0
    filled.run("secrets", str(tmp_path / "others"))
    code, said = filled.run("secrets", str(tmp_path / "others"), "--from", str(archive))
    assert (code, "holds another key" in said) == (1, True)


@pytest.mark.parametrize("kept", [0.0, 0.7])
def test_one_that_was_cut_off_changes_nothing(archive, elsewhere, tmp_path, kept):
    whole = archive.read_bytes()
    cut = tmp_path / "cut.tar"
    cut.write_bytes(whole[: int(len(whole.rstrip(b"\0")) * kept)])
    code, said = elsewhere.server.run("restore", str(cut))
    assert (code, said.count("Error: ")) == (1, 1), said
    assert "Traceback" not in said
    assert not elsewhere.database.run(TABLES) or elsewhere.database.run("SELECT count(*) FROM accounts_user") == [(0,)]
    assert elsewhere.server.run("restore", str(archive))[0] == 0


def test_a_damaged_one_changes_nothing(archive, elsewhere, tmp_path):
    def change(about, entries):
        name, content = next(one for one in entries if one[0].startswith("files/"))
        return [(name, content[:-1] + b"!") if one[0] == name else one for one in entries]

    code, said = elsewhere.server.run("restore", str(edited(archive, tmp_path, change)))
    assert (code, "does not match its checksum" in said) == (1, True)
    assert elsewhere.database.run("SELECT count(*) FROM accounts_user") == [(0,)]


@pytest.mark.parametrize("name", ["files/../../outside", "tables/pg_authid/000001", "else"])
def test_names_that_no_backup_has_change_nothing(archive, elsewhere, tmp_path, name):
    def change(about, entries):
        return [*entries[:-1], (name, b"x"), entries[-1]]

    code, said = elsewhere.server.run("restore", str(edited(archive, tmp_path, change, is_whole=True)))
    assert (code, "Traceback" in said) == (1, False), said
    assert elsewhere.database.run("SELECT count(*) FROM accounts_user") == [(0,)]
    assert not (tmp_path / "outside").exists()


def test_one_of_a_newer_release_is_refused(archive, elsewhere, tmp_path):
    def change(about, entries):
        about["migrations"].append(["jobs", "9999_next"])
        return entries

    code, said = elsewhere.server.run("restore", str(edited(archive, tmp_path, change)))
    assert (code, elsewhere.database.run(TABLES)) == (1, [])
    assert "jobs.9999_next" in said


AT_FIRST_SIGHT = """
    from django.db import connection, transaction
    from controlplane import archive, restore
    said = []
    compare = restore._compare
    def look():
        with connection.cursor() as cursor:
            for statement in {statements!r}:
                cursor.execute(statement)
                said.append(cursor.fetchall())
    def compare_and_look(*words):
        compare(*words)
        transaction.on_commit(look)  # as soon as others see the rows, and before this process does anything else
    restore._compare = compare_and_look
    with open({path!r}, "rb") as source:
        list(restore.restore(archive.Reader(source), say=print))
    print(said)
"""
GOES_ON = "SELECT attempt_floor - attempt, lease_owner, lease_expires_at FROM jobs_job WHERE finished_at IS NULL"
CUT_OFF = """
    import os
    from controlplane import archive, migrating, restore
    migrating.apply = lambda missing: os._exit(0)  # as if it was killed
    with open({path!r}, "rb") as source:
        list(restore.restore(archive.Reader(source), say=print))
"""


def seen_at_first_sight(elsewhere, archive: Path, *statements: str) -> list[list[tuple]]:
    """What the processes of the installation find as soon as they can see restored rows."""
    said = in_django(elsewhere.server, AT_FIRST_SIGHT.format(path=str(archive), statements=statements))
    return ast.literal_eval(said.splitlines()[-1])


def test_whoever_sees_a_restored_job_knows_that_it_is_one(archive, elsewhere):
    floors, replicas = seen_at_first_sight(
        elsewhere, archive,
        "SELECT DISTINCT attempt_floor - attempt FROM jobs_job WHERE finished_at IS NULL",
        "SELECT DISTINCT is_restored FROM jobs_replica WHERE closed_at IS NULL",
    )  # fmt: skip
    assert (floors, replicas) == ([(10,)], [(True,)])


def test_jobs_of_a_release_before_rest_until_their_tables_are_up_to_date(archive, elsewhere, tmp_path):
    old = edited(archive, tmp_path, of_release_before, is_whole=True)
    columns, held = seen_at_first_sight(
        elsewhere, old,
        "SELECT count(*) FROM information_schema.columns WHERE column_name = 'attempt_floor'",
        "SELECT lease_expires_at > now() + interval '1 year' FROM jobs_job WHERE finished_at IS NULL",
    )  # fmt: skip
    assert (columns, held) == ([(0,)], [(True,)])
    assert elsewhere.database.run(GOES_ON) == [(10, "", None)]


def test_migrate_ends_a_restoration_that_was_cut_off(archive, elsewhere, tmp_path):
    old = edited(archive, tmp_path, of_release_before, is_whole=True)
    in_django(elsewhere.server, CUT_OFF.format(path=str(old)))
    assert elsewhere.database.run("SELECT count(*) FROM jobs_job") != [(0,)]
    code, said = elsewhere.server.run("migrate")
    assert code == 0 and "a restoration that was cut off is finished" in said, said
    assert elsewhere.database.run(GOES_ON) == [(10, "", None)]
    assert elsewhere.database.run("SELECT DISTINCT is_restored FROM jobs_replica WHERE closed_at IS NULL") == [(True,)]
    told = "SELECT count(*) FROM accounts_auditentry WHERE act = 'installation.restore'"
    assert elsewhere.database.run(told) == [(1,)]
    assert "cut off" not in elsewhere.server.run("migrate")[1]


def test_processes_wait_for_the_end_of_a_restoration(archive, elsewhere):
    assert elsewhere.server.run("restore", str(archive))[0] == 0
    hold = """
        from django.db import transaction
        from controlplane import restored_jobs
        with transaction.atomic():
            restored_jobs.hold({"at": "now", "release": "0"})
    """
    in_django(elsewhere.server, hold)
    with elsewhere.server.start("watcher") as watcher:
        watcher.until_said("a restoration of this database was cut off: run muster-server migrate")
        assert elsewhere.server.run("migrate")[0] == 0
        watcher.until_said("watcher: this process leads")


def test_a_damaged_one_of_a_release_before_leaves_tables_of_this_one(archive, elsewhere, tmp_path):
    assert elsewhere.server.run("migrate", "--first-admin", "somebody")[0] == 0
    old = edited(archive, tmp_path, of_release_before, is_whole=True)
    old.write_bytes(old.read_bytes()[: old.stat().st_size // 2])
    code, said = elsewhere.server.run("restore", str(old))
    assert code == 1 and "migrate --first-admin NAME makes an administrator" in said, said
    assert elsewhere.database.run("SELECT count(*) FROM jobs_job") == [(0,)]
    said = elsewhere.server.run("migrate", "--first-admin", "somebody")[1]
    assert "the tables are up to date" in said and "somebody signs in with" in said


@pytest.mark.parametrize("has_tables", [False, True])
def test_one_of_a_release_before_is_brought_up_to_date(archive, elsewhere, tmp_path, has_tables):
    if has_tables:
        assert elsewhere.server.run("migrate", "--first-admin", "somebody")[0] == 0
    code, said = elsewhere.server.run("restore", str(edited(archive, tmp_path, of_release_before, is_whole=True)))
    assert code == 0, said
    assert "the tables were brought up to date" in said
    assert elsewhere.database.run("SELECT count(*) FROM jobs_replica WHERE is_restored") != [(0,)]
    assert elsewhere.server.run("migrate")[1].strip().endswith("the tables are up to date")


def of_release_before(about, entries):
    """What a release wrote that did not know the newest columns, nor webhooks."""
    about["migrations"] = [one for one in about["migrations"] if one[0] != "jobs" or one[1] <= LOAD_AT]
    places = {}
    for table, column in NEWER_COLUMNS.items():
        places[table] = about["tables"][table].index(column)
        about["tables"][table].pop(places[table])
    end = json.loads(entries[-1][1])
    for table in NEWER:
        assert end["rows"].pop(table) == 0
        del about["tables"][table], about["sequences"][table]
    kept = [
        (
            name,
            _without(content, places[table])
            if (table := name.partition("/")[2].partition("/")[0]) in places
            else content,
        )
        for name, content in entries[:-1]
    ]
    return [*kept, ("end.json", json.dumps(end).encode())]


def _without(packed: bytes, column: int) -> bytes:
    lines = zlib.decompress(packed).splitlines(keepends=True)
    rows = [line.rstrip(b"\n").split(b"\t") for line in lines]
    return zlib.compress(b"".join(b"\t".join(row[:column] + row[column + 1 :]) + b"\n" for row in rows))


def test_nothing_but_an_archive_is_an_archive(elsewhere, tmp_path):
    (tmp_path / "text").write_text("this is no archive\n" * 1000)
    code, said = elsewhere.server.run("restore", str(tmp_path / "text"))
    assert (code, "no backup of Muster" in said, "Traceback" in said) == (1, True, False)
    assert elsewhere.server.run("restore", str(tmp_path / "absent"))[0] != 0


def test_a_backup_that_fails_leaves_no_file_of_its_name(filled, tmp_path):
    code, said = filled.run("backup", str(tmp_path / "absent/muster.tar"))
    assert (code, "Traceback" in said) == (1, False), said
    code, said = filled.run("backup", "/dev/full")
    assert (code, "Traceback" in said) == (1, False), said


def test_every_reference_is_checked_at_the_end_only(filled, database):
    """Tables are loaded in any order, so a reference that is checked at once could refuse a good backup."""
    question = "SELECT conname FROM pg_constraint WHERE contype = 'f' AND NOT (condeferrable AND condeferred)"
    assert database.run(question) == []
