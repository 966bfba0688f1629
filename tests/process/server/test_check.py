"""muster-server check: one table of what is wrong and what to write instead."""


def states(said: str) -> dict[str, str]:
    """What is checked -> ok, note or wrong."""
    marks = ("ok", "note", "wrong")
    lines = [line.split() for line in said.splitlines() if line.split() and line.split()[0] in marks]
    return {words[1]: words[0] for words in lines}


def test_what_is_wrong_is_named_with_its_remedy(server, database, tmp_path):
    (tmp_path / "file").touch()
    wrong = {
        "REDIS_URL": "redis://:not-the-password@127.0.0.1:1/0",
        "MUSTER_DATA_DIR": str(tmp_path / "file/data"),
        "MUSTER_SECRET_KEY": "short",
        "MUSTER_STATIC_ROOT": str(tmp_path / "none"),
        "MUSTER_CLUSTERS": '{"lab": {"BACKEND": "jobs.clusters.nothing.Here"}}',
    }
    code, said = server.run("check", **wrong)
    assert code == 1 and "Traceback" not in said
    assert states(said) == {
        "settings": "wrong", "Postgres": "wrong", "Redis": "wrong", "files": "wrong", "static": "wrong", "agent": "ok",
        "cluster": "wrong",
    }  # fmt: skip
    for words in (
        "openssl rand -hex 32",
        "MUSTER_DATA_DIR=/data",
        "collectstatic",
        "REDIS_URL=redis://",
        "No module named",
    ):
        assert words in " ".join(said.split()), said
    assert "not-the-password" not in said
    database.create()
    assert "muster-server migrate" in server.run("check")[1]


def test_an_installation_that_is_well_is_all_ok(server, database):
    database.create()
    server.run("migrate")
    code, said = server.run("check")
    assert code == 0
    assert {what: state for what, state in states(said).items() if state != "ok"} == {"cluster": "note"}
