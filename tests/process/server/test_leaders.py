"""Of several beats and watchers one works, and the next takes over when it ends or is killed."""

import pytest

pytestmark = pytest.mark.ci


@pytest.mark.parametrize("role", ["beat", "watcher"])
def test_one_of_several_leads_and_the_others_take_over(server, database, role):
    database.create_with_tables()
    leads, stands_by = f"{role}: this process leads", f"{role}: another process leads"
    with server.start(role) as first:
        first.until_said(leads)
        # As after a restart of Postgres: nobody else could lead meanwhile.
        database.run(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND database = "
            "(SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        first.until_said("the connection to the database ended; this process leads again")
        with server.start(role) as second, server.start(role) as third:
            second.until_said(stands_by)
            third.until_said(stands_by)
            assert third.end() == 0  # at once, though it never led
            assert first.is_running() and leads not in second.said
            first.kill()
            second.until_said(leads)
            with server.start(role) as fourth:
                fourth.until_said(stands_by)
                assert second.end() == 0
                fourth.until_said(leads)
