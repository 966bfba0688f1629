"""What is older than 90 days may be deleted by a transaction that says so; everything else stays as it was written.

The 90 days stand here and not in a setting, so that no mistake of ours and no setting deletes what happened lately.
"""

from django.db import migrations

TRIMMABLE = """
CREATE OR REPLACE FUNCTION accounts_auditentry_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE'
        AND to_jsonb(NEW) - 'actor_id' - 'team_id' = to_jsonb(OLD) - 'actor_id' - 'team_id'
        AND (NEW.actor_id IS NULL OR NEW.actor_id IS NOT DISTINCT FROM OLD.actor_id)
        AND (NEW.team_id IS NULL OR NEW.team_id IS NOT DISTINCT FROM OLD.team_id)
    THEN
        RETURN NEW;
    END IF;
    IF TG_OP = 'DELETE' AND OLD.at < now() - interval '90 days'
        AND current_setting('muster.trims_audit', true) = 'yes'
    THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'audit entries are never changed or deleted' USING ERRCODE = 'restrict_violation';
END $$;
"""
NEVER = """
CREATE OR REPLACE FUNCTION accounts_auditentry_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE'
        AND to_jsonb(NEW) - 'actor_id' - 'team_id' = to_jsonb(OLD) - 'actor_id' - 'team_id'
        AND (NEW.actor_id IS NULL OR NEW.actor_id IS NOT DISTINCT FROM OLD.actor_id)
        AND (NEW.team_id IS NULL OR NEW.team_id IS NOT DISTINCT FROM OLD.team_id)
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'audit entries are never changed or deleted' USING ERRCODE = 'restrict_violation';
END $$;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0006_sign_ins'),
    ]

    operations = [
        migrations.RunSQL(TRIMMABLE, NEVER),
    ]
