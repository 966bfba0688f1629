"""The commands of muster-server: processes, migrations, checks, secrets, backup and restore."""
