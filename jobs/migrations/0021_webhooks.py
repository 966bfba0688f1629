import uuid

import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Two tables of their own. Old code neither reads nor writes them: of what it records, no webhook is notified."""

    dependencies = [
        ('accounts', '0007_audit_may_be_trimmed'),
        ('jobs', '0020_restored_replicas'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Webhook',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=40)),
                ('host', models.CharField(help_text='host and port of the URL, which alone is shown', max_length=270)),
                ('sealed_url', models.TextField(help_text='encrypted (webhooks/sealing.py)')),
                ('format', models.CharField(choices=[('json', 'JSON, signed'), ('slack', 'Slack message')], default='json', max_length=8)),
                ('events', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=8), help_text='start, end, failure', size=None)),
                ('all_jobs', models.BooleanField(default=True, help_text='false: only jobs that name it')),
                ('is_active', models.BooleanField(default=True)),
                ('sealed_secret', models.TextField(help_text='signs what is sent; encrypted')),
                ('sealed_old_secret', models.TextField(blank=True, default='')),
                ('old_secret_until', models.DateTimeField(help_text='until then the one before signs as well', null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('team', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='webhooks', to='accounts.team')),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='Delivery',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('uid', models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ('event', models.CharField(max_length=12)),
                ('attempt', models.PositiveIntegerField(default=0, help_text='of the job, when it happened')),
                ('payload', models.JSONField(help_text='frozen when it happened')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('tries', models.PositiveSmallIntegerField(default=0)),
                ('next_try_at', models.DateTimeField(null=True)),
                ('delivered_at', models.DateTimeField(null=True)),
                ('gave_up_at', models.DateTimeField(null=True)),
                ('status_code', models.PositiveSmallIntegerField(help_text='of the newest try; null: no answer', null=True)),
                ('error', models.CharField(blank=True, help_text='of the newest try', max_length=300)),
                ('job', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='jobs.job')),
                ('webhook', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='jobs.webhook')),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.AddConstraint(
            model_name='webhook',
            constraint=models.UniqueConstraint(fields=('team', 'name'), name='webhook_name_once_per_team'),
        ),
        migrations.AddConstraint(
            model_name='webhook',
            constraint=models.CheckConstraint(condition=models.Q(('events', []), _negated=True), name='webhook_has_events'),
        ),
        migrations.AddConstraint(
            model_name='webhook',
            constraint=models.CheckConstraint(condition=models.Q(('format__in', ['json', 'slack'])), name='webhook_format_is_known'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(models.F('next_try_at'), condition=models.Q(('next_try_at__isnull', False)), name='delivery_due'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(fields=['webhook', '-id'], name='delivery_by_webhook'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.UniqueConstraint(fields=('webhook', 'job', 'event', 'attempt'), name='delivery_once_per_event'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('delivered_at', None), ('gave_up_at', None), ('next_try_at__isnull', False)), models.Q(('delivered_at__isnull', False), ('gave_up_at', None), ('next_try_at', None)), models.Q(('delivered_at', None), ('gave_up_at__isnull', False), ('next_try_at', None)), _connector='OR'), name='delivery_is_due_or_settled'),
        ),
    ]
