"""Users, teams and members, their tokens and permissions, and the audit of changes."""
