"""Tokens get a scope, a team and an end; teams get service accounts; changes get a book that can not be rewritten.

A token from before keeps what it could do (scope manage), for a year at most.
"""

import datetime

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

# Only the references to a user or team that is deleted may become empty; everything else stays as it was written.
APPEND_ONLY = """
CREATE FUNCTION accounts_auditentry_stays() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER accounts_auditentry_stays BEFORE UPDATE OR DELETE ON accounts_auditentry
    FOR EACH ROW EXECUTE FUNCTION accounts_auditentry_stays();
"""
CHANGEABLE = """
DROP TRIGGER accounts_auditentry_stays ON accounts_auditentry;
DROP FUNCTION accounts_auditentry_stays();
"""


def give_earlier_tokens_an_end(apps, schema_editor):
    token = apps.get_model("accounts", "Token")
    token.objects.update(scope="manage")
    year = django.utils.timezone.now() + datetime.timedelta(days=365)
    token.objects.filter(expires_at=None).update(expires_at=year)


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0001_initial'),
        ('auth', '0012_alter_user_first_name_max_length'),
    ]

    operations = [
        migrations.CreateModel(
            name='AuditEntry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('actor_name', models.CharField(blank=True, help_text="empty: from the server's own command line", max_length=150)),
                ('token_prefix', models.CharField(blank=True, help_text='empty: not with a token', max_length=12)),
                ('act', models.CharField(max_length=40)),
                ('target_kind', models.CharField(blank=True, max_length=20)),
                ('target_id', models.CharField(blank=True, max_length=40)),
                ('target_name', models.CharField(blank=True, max_length=150)),
                ('team_name', models.CharField(blank=True, max_length=40)),
                ('before', models.JSONField(default=dict)),
                ('after', models.JSONField(default=dict)),
                ('ip', models.GenericIPAddressField(null=True)),
                ('user_agent', models.CharField(blank=True, max_length=200)),
            ],
        ),
        migrations.AddField(
            model_name='token',
            name='scope',
            field=models.CharField(choices=[('read', 'Read'), ('submit', 'Submit and control jobs'), ('manage', 'Everything its user may do')], default='submit', max_length=10),
        ),
        migrations.AddField(
            model_name='token',
            name='team',
            field=models.ForeignKey(blank=True, help_text='empty for every team', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='tokens', to='accounts.team'),
        ),
        migrations.AddField(
            model_name='user',
            name='service_team',
            field=models.ForeignKey(blank=True, help_text='empty for a person', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='service_accounts', to='accounts.team'),
        ),
        migrations.RunPython(give_earlier_tokens_an_end, migrations.RunPython.noop),
        # Postgres alters no table whose rows still wait for a deferred check.
        migrations.RunSQL('SET CONSTRAINTS ALL IMMEDIATE', migrations.RunSQL.noop),
        migrations.AlterField(
            model_name='token',
            name='expires_at',
            field=models.DateTimeField(),
        ),
        migrations.AddConstraint(
            model_name='token',
            constraint=models.CheckConstraint(condition=models.Q(('scope__in', ['read', 'submit', 'manage'])), name='token_scope_is_known'),
        ),
        migrations.AddConstraint(
            model_name='user',
            constraint=models.CheckConstraint(condition=models.Q(('service_team', None), ('password__startswith', '!'), _connector='OR'), name='service_account_has_no_password'),
        ),
        migrations.AddConstraint(
            model_name='user',
            constraint=models.CheckConstraint(condition=models.Q(('service_team', None), models.Q(('is_staff', False), ('is_superuser', False)), _connector='OR'), name='service_account_is_no_platform_admin'),
        ),
        migrations.AddField(
            model_name='auditentry',
            name='actor',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='auditentry',
            name='team',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='accounts.team'),
        ),
        migrations.AddIndex(
            model_name='auditentry',
            index=models.Index(fields=['team', '-id'], name='audit_by_team'),
        ),
        migrations.AddIndex(
            model_name='auditentry',
            index=models.Index(fields=['actor_name', '-id'], name='audit_by_actor'),
        ),
        migrations.RunSQL(APPEND_ONLY, CHANGEABLE),
    ]
