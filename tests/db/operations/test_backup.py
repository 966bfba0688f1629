"""backup and restore: every row and file comes back, and what cannot be restored changes nothing."""

import os
from collections.abc import Iterator
from pathlib import Path

import pyotp
import pytest
from django.db import connection, transaction
from django.utils import timezone

from accounts.models import Team, User
from accounts.signin import second_factor
from controlplane.operations import restore
from controlplane.operations.archive import ArchiveEntry, Reader
from jobs.control import job_secrets
from jobs.models import Webhook
from jobs.webhooks import sealing
from tests.db.operations.conftest import KEY, Place
from tests.process.server import filling
from tests.support import seed
from tests.support.archives import edited, of_release_before
from tests.support.databases import Database

LEFT_OUT = {"accounts_signin", "django_migrations"}
TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
NEW_KEY = "the-key-that-replaced-the-first-one-0000"
GOES_ON = "SELECT attempt_floor - attempt, lease_owner, lease_expires_at FROM jobs_job WHERE finished_at IS NULL"


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Iterator[Place]:
    """People, a queue, a running and a failed job."""
    place = Place(tmp_path_factory.mktemp("filled"))
    place.database.create_with_tables()
    with place.entered():
        filling.fill()
    yield place
    place.database.drop()


@pytest.fixture(scope="module")
def archive(filled, tmp_path_factory) -> Path:
    return backup(filled, tmp_path_factory.mktemp("archive") / "muster.tar")


def rows(database: Database) -> dict[str, list[str]]:
    names = {name for (name,) in database.run(TABLES)} - LEFT_OUT
    return {name: sorted(map(str, database.run(f'SELECT * FROM "{name}"'))) for name in names}


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in (folder / "files").rglob("*") if path.is_file()
    }


def backup(place: Place, path: Path, *words: str) -> Path:
    code, said = place.run("backup", str(path), *words)
    assert code == 0, said
    return path


def count(place: Place, table: str) -> int:
    return place.database.run(f"SELECT count(*) FROM {table}")[0][0]


def test_every_row_and_file_comes_back(filled, archive, place):
    before = rows(filled.database)
    code, said = place.run("restore", str(archive))
    assert code == 0, said
    after = rows(place.database)

    restored = [row for row in after["accounts_auditentry"] if "installation.restore" in row]
    assert len(restored) == 1
    after["accounts_auditentry"].remove(restored[0])
    flags = place.database.run("SELECT is_restored, closed_at IS NULL FROM jobs_replica")
    assert {is_restored == is_open for is_restored, is_open in flags} == {True}
    floors = place.database.run("SELECT attempt_floor - attempt, finished_at IS NULL FROM jobs_job")
    assert set(floors) == {(10, True), (None, False)}
    place.database.run("UPDATE jobs_replica SET is_restored = false")
    place.database.run("UPDATE jobs_job SET attempt_floor = NULL")
    after |= {table: rows(place.database)[table] for table in ("jobs_replica", "jobs_job")}
    assert {name for name in before if before[name] != after[name]} == set()
    assert len(before["jobs_metricchunk"]) > 10
    assert files(place.data) == files(filled.data) != {}


def test_numbers_go_on_and_those_of_jobs_with_a_distance(filled, archive, place):
    assert place.run("restore", str(archive))[0] == 0
    (job,) = place.database.run("SELECT nextval(pg_get_serial_sequence('jobs_job', 'id'))")[0]
    assert job == filled.database.run("SELECT max(id) FROM jobs_job")[0][0] + 1001
    (event,) = place.database.run("SELECT nextval(pg_get_serial_sequence('jobs_jobevent', 'id'))")[0]
    assert event == filled.database.run("SELECT max(id) FROM jobs_jobevent")[0][0] + 1


def test_what_a_first_start_creates_is_replaced(archive, place):
    assert place.run("migrate", "--first-admin", "somebody")[0] == 0
    assert place.run("restore", str(archive))[0] == 0
    assert place.database.run("SELECT username FROM accounts_user") == [("root",)]


def test_a_database_in_use_is_refused_and_stays(filled, archive):
    before = rows(filled.database)
    code, said = filled.run("restore", str(archive))
    assert code == 1
    assert "the database has 2 jobs" in said
    assert "DATABASE_URL" in said
    assert rows(filled.database) == before


def test_another_key_is_refused_with_the_way_out(archive, bare):
    bare.database.create()
    bare.key = "another-key-than-the-one-of-the-backup-0000"
    code, said = bare.run("restore", str(archive))
    assert (code, bare.database.run(TABLES)) == (1, [])
    assert "--print-key" in said
    assert KEY not in said
    assert bare.run("restore", "--print-key", str(archive)) == (0, f"{KEY}\n")


def test_the_key_of_the_backup_may_be_an_earlier_one_here(archive, place):
    place.key, place.old_keys = NEW_KEY, [KEY]
    assert place.run("restore", str(archive))[0] == 0


@pytest.fixture
def replaced(tmp_path) -> Iterator[tuple[Place, list[str]]]:
    """A place whose key was replaced after a second factor, a webhook and a secret were sealed with the first one."""
    place = Place(tmp_path / "replaced")
    place.database.create_with_tables()
    with place.entered():
        user = User.objects.create_user("ada")
        secret = second_factor.begin(user)
        second_factor.confirm(user, pyotp.TOTP(secret).at(timezone.now()))
        seed.webhook(Team.objects.create(name="nlp"))
        sealed = job_secrets.seal({"TOKEN": "of-the-job"})
    place.key, place.old_keys = NEW_KEY, [KEY]
    yield place, [secret, sealed]
    place.database.drop()


def read(place: Place, secret: str, sealed: str) -> list[object]:
    with place.entered():
        webhook, user = Webhook.objects.get(), User.objects.get()
        is_right = second_factor.check(user, pyotp.TOTP(secret).at(timezone.now(), counter_offset=1))
        secrets = sealing.secrets_of(webhook, now=timezone.now())
        return [is_right, sealing.url_of(webhook), *secrets, job_secrets.unseal(sealed)["TOKEN"]]


READABLE = [True, "https://93.184.216.34/x", "whsec_eA==", "of-the-job"]


def test_what_an_earlier_key_sealed_is_readable_after_a_restoration_with_the_keys_of_the_archive(
    replaced, place, tmp_path
):
    """As docker-compose.yml does it: files of the keys, made from the archive."""
    there, sealed = replaced
    archive = backup(there, tmp_path / "muster.tar")
    keys = tmp_path / "keys"
    for _ in range(2):  # a second start keeps them
        code, said = there.run("secrets", str(keys), "--from", str(archive))
        assert code == 0, said
    place.key = (keys / "muster/secret_key").read_text().strip()
    place.old_keys = (keys / "muster/old_secret_keys").read_text().strip().split(",")
    code, said = place.run("restore", str(archive))
    assert code == 0, said
    assert read(place, *sealed) == READABLE


def test_a_restoration_without_the_earlier_keys_is_refused_with_the_way_out(replaced, place, tmp_path):
    there, sealed = replaced
    archive, bare = backup(there, tmp_path / "muster.tar"), backup(there, tmp_path / "bare.tar", "--without-keys")
    place.key = NEW_KEY
    for path, way in ((archive, "restore --print-old-keys FILE"), (bare, "set MUSTER_OLD_SECRET_KEYS as it was then")):
        code, said = place.run("restore", str(path))
        assert (code, count(place, "accounts_user")) == (1, 0)
        assert "MUSTER_OLD_SECRET_KEYS lacks 1 of 1 earlier keys" in said and way in said and KEY not in said
    assert place.run("restore", "--print-key", str(archive)) == (0, f"{NEW_KEY}\n")
    code, said = place.run("restore", "--print-old-keys", str(archive))
    assert (code, said) == (0, f"{KEY}\n")
    place.old_keys = [said.strip()]
    assert place.run("restore", str(bare))[0] == 0
    assert read(place, *sealed) == READABLE


def test_a_key_that_was_never_replaced_has_no_earlier_ones(filled, archive, tmp_path):
    assert filled.run("restore", "--print-old-keys", str(archive)) == (0, "")
    assert filled.run("secrets", str(tmp_path / "keys"), "--from", str(archive))[0] == 0
    assert not (tmp_path / "keys/muster/old_secret_keys").exists()


def test_files_that_lack_an_earlier_key_of_the_backup_are_not_used(replaced, tmp_path):
    there, _ = replaced
    archive = backup(there, tmp_path / "muster.tar")
    old = tmp_path / "keys/muster/old_secret_keys"
    old.parent.mkdir(parents=True)
    old.write_text("something-else\n")
    code, said = there.run("secrets", str(tmp_path / "keys"), "--from", str(archive))
    assert (code, "lacks earlier keys of the backup" in said) == (1, True)
    assert not (old.parent / "secret_key").exists()
    old.write_text(f"something-else,{KEY}\n")
    assert there.run("secrets", str(tmp_path / "keys"), "--from", str(archive))[0] == 0


def test_a_backup_may_leave_the_keys_out(filled, place, tmp_path):
    archive = backup(filled, tmp_path / "muster.tar", "--without-keys")
    assert KEY.encode() not in archive.read_bytes()
    code, said = place.run("restore", "--print-key", str(archive))
    assert (code, "without its secret key" in said) == (1, True)
    assert place.run("restore", str(archive))[0] == 0


def test_compose_can_begin_with_the_key_of_a_backup(filled, archive, tmp_path):
    code, said = filled.run("secrets", str(tmp_path / "keys"), "--from", str(archive))
    assert code == 0, said
    assert (tmp_path / "keys/muster/secret_key").read_text() == KEY
    assert filled.run("secrets", str(tmp_path / "keys"), "--from", str(archive))[0] == 0
    filled.run("secrets", str(tmp_path / "others"))
    code, said = filled.run("secrets", str(tmp_path / "others"), "--from", str(archive))
    assert (code, "holds another key" in said) == (1, True)


@pytest.mark.parametrize("kept", [0.0, 0.7])
def test_one_that_was_cut_off_changes_nothing(archive, place, tmp_path, kept):
    whole = archive.read_bytes()
    cut = tmp_path / "cut.tar"
    cut.write_bytes(whole[: int(len(whole.rstrip(b"\0")) * kept)])
    code, said = place.run("restore", str(cut))
    assert (code, said.count("Error: ")) == (1, 1), said
    assert count(place, "accounts_user") == 0
    assert place.run("restore", str(archive))[0] == 0


def test_a_damaged_one_changes_nothing(archive, place, tmp_path):
    def change(about, entries):
        name, content = next(one for one in entries if one[0].startswith("files/"))
        return [(name, content[:-1] + b"!") if one[0] == name else one for one in entries]

    code, said = place.run("restore", str(edited(archive, tmp_path, change)))
    assert (code, "does not match its checksum" in said) == (1, True)
    assert count(place, "accounts_user") == 0


@pytest.mark.parametrize("name", ["files/../../outside", "tables/pg_authid/000001", "else"])
def test_names_that_no_backup_has_change_nothing(archive, place, tmp_path, name):
    def change(about, entries):
        return [*entries[:-1], (name, b"x"), entries[-1]]

    code, said = place.run("restore", str(edited(archive, tmp_path, change, is_whole=True)))
    assert (code, said.count("Error: ")) == (1, 1), said
    assert count(place, "accounts_user") == 0
    assert not (tmp_path / "outside").exists()


def test_one_of_a_newer_release_is_refused(archive, bare, tmp_path):
    def change(about, entries):
        about["migrations"].append(["jobs", "9999_next"])
        return entries

    bare.database.create()
    code, said = bare.run("restore", str(edited(archive, tmp_path, change)))
    assert (code, bare.database.run(TABLES)) == (1, [])
    assert "jobs.9999_next" in said


class Looking(Reader):
    """An archive whose reader asks the database as soon as others see the rows, and before it does anything else."""

    statements: tuple[str, ...] = ()

    def entries(self) -> Iterator[ArchiveEntry]:
        self.said: list[list[tuple]] = []
        yield from super().entries()
        transaction.on_commit(self._look)

    def _look(self) -> None:
        with connection.cursor() as cursor:
            for statement in self.statements:
                cursor.execute(statement)
                self.said.append(cursor.fetchall())


def seen_at_first_sight(place: Place, archive: Path, *statements: str) -> list[list[tuple]]:
    """What the processes of the installation find as soon as they can see restored rows."""
    with place.entered(), archive.open("rb") as source:
        looking = Looking(source)
        looking.statements = statements
        list(restore.restore(looking, say=print))
    return looking.said


def test_whoever_sees_a_restored_job_knows_that_it_is_one(archive, place):
    floors, replicas = seen_at_first_sight(
        place, archive,
        "SELECT DISTINCT attempt_floor - attempt FROM jobs_job WHERE finished_at IS NULL",
        "SELECT DISTINCT is_restored FROM jobs_replica WHERE closed_at IS NULL",
    )  # fmt: skip
    assert (floors, replicas) == ([(10,)], [(True,)])


def test_jobs_of_a_release_before_rest_until_their_tables_are_up_to_date(archive, bare, tmp_path):
    bare.database.create()
    old = edited(archive, tmp_path, of_release_before, is_whole=True)
    columns, held = seen_at_first_sight(
        bare, old,
        "SELECT count(*) FROM information_schema.columns WHERE column_name = 'attempt_floor'",
        "SELECT lease_expires_at > now() + interval '1 year' FROM jobs_job WHERE finished_at IS NULL",
    )  # fmt: skip
    assert (columns, held) == ([(0,)], [(True,)])
    assert bare.database.run(GOES_ON) == [(10, "", None)]


def test_one_of_a_release_before_replaces_tables_of_this_one_which_stay_if_it_is_damaged(archive, place, tmp_path):
    assert place.run("migrate", "--first-admin", "somebody")[0] == 0
    old = edited(archive, tmp_path, of_release_before, is_whole=True)
    whole = old.read_bytes()
    old.write_bytes(whole[: len(whole) // 2])
    code, said = place.run("restore", str(old))
    assert code == 1 and "migrate --first-admin NAME makes an administrator" in said, said
    assert count(place, "jobs_job") == 0
    said = place.run("migrate", "--first-admin", "somebody")[1]
    assert "the tables are up to date" in said and "somebody signs in with" in said
    old.write_bytes(whole)
    code, said = place.run("restore", str(old))
    assert code == 0, said
    assert "the tables were brought up to date" in said
    assert place.database.run("SELECT count(*) FROM jobs_replica WHERE is_restored") != [(0,)]
    assert place.run("migrate")[1].strip().endswith("the tables are up to date")


def test_nothing_but_an_archive_is_an_archive(place, tmp_path):
    (tmp_path / "text").write_text("this is no archive\n" * 1000)
    code, said = place.run("restore", str(tmp_path / "text"))
    assert (code, "no backup of Muster" in said) == (1, True)
    assert place.run("restore", str(tmp_path / "absent"))[0] != 0


def test_a_backup_that_fails_leaves_no_file_of_its_name(filled, tmp_path):
    code, said = filled.run("backup", str(tmp_path / "absent/muster.tar"))
    assert (code, said.count("Error: ")) == (1, 1), said
    code, said = filled.run("backup", "/dev/full")
    assert (code, said.count("Error: ")) == (1, 1), said
    assert os.listdir(tmp_path) == []


def test_every_reference_is_checked_at_the_end_only(filled):
    """Tables are loaded in any order, so a reference that is checked at once could refuse a good backup."""
    question = "SELECT conname FROM pg_constraint WHERE contype = 'f' AND NOT (condeferrable AND condeferred)"
    assert filled.database.run(question) == []
