"""Sessions move to a table that says whose they are. Nobody is signed out: a row learns its person when it is next written."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

KEEP_SIGNED_IN = """
INSERT INTO accounts_signin (session_key, session_data, expire_date)
    SELECT session_key, session_data, expire_date FROM django_session WHERE expire_date > now()
"""
FORGET = "DELETE FROM django_session"


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0005_second_factor'),
        ('sessions', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='SignIn',
            fields=[
                ('session_key', models.CharField(max_length=40, primary_key=True, serialize=False, verbose_name='session key')),
                ('session_data', models.TextField(verbose_name='session data')),
                ('expire_date', models.DateTimeField(db_index=True, verbose_name='expire date')),
                ('user', models.ForeignKey(help_text='empty: nobody yet', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='sign_ins', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name': 'session',
                'verbose_name_plural': 'sessions',
                'abstract': False,
            },
        ),
        migrations.RunSQL([KEEP_SIGNED_IN, FORGET], migrations.RunSQL.noop),
    ]
