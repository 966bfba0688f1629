"""Of several beats and watchers one works, and the next takes over when it ends or is killed."""

import pytest


@pytest.mark.parametrize("role", ["beat", "watcher"])
def test_one_of_two_leads_and_the_other_takes_over(server, database, role):
    database.create_with_tables()
    leads, stands_by = f"{role}: this process leads", f"{role}: another process leads"
    with server.start(role) as first:
        first.until_said(leads)
        with server.start(role) as second:
            second.until_said(stands_by)
            assert leads not in second.said
            first.kill()
            second.until_said(leads)
            with server.start(role) as third:
                third.until_said(stands_by)
                assert second.end() == 0
                third.until_said(leads)


@pytest.mark.parametrize("role", ["beat", "watcher"])
def test_a_process_that_stands_by_ends_at_once(server, database, role):
    database.create_with_tables()
    with server.start(role) as first:
        first.until_said("this process leads")
        with server.start(role) as second:
            second.until_said("another process leads")
            assert second.end() == 0
        assert first.is_running()


@pytest.mark.parametrize("role", ["beat", "watcher"])
def test_a_leader_whose_connection_ends_leads_again(server, database, role):
    """As after a restart of Postgres: nobody else could lead meanwhile."""
    database.create_with_tables()
    with server.start(role) as leader:
        leader.until_said("this process leads")
        database.run(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND database = "
            "(SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        leader.until_said("the connection to the database ended; this process leads again")
        assert leader.is_running()
