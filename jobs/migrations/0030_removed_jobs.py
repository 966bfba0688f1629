import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """How long after its end a job is removed, and what remains of it then."""

    dependencies = [
        ('accounts', '0007_audit_may_be_trimmed'),
        ('jobs', '0029_job_template'),
        ('queues', '0003_ceilings'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='job',
            name='ttl_seconds',
            field=models.PositiveIntegerField(help_text='from its end to its removal (logs/removal.py); null: it stays', null=True),
        ),
        migrations.CreateModel(
            name='RemovedJob',
            fields=[
                ('id', models.BigIntegerField(help_text='of the job', primary_key=True, serialize=False)),
                ('uid', models.CharField(max_length=8)),
                ('team', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='removed_jobs', to='accounts.team')),
                ('queue', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='removed_jobs', to='queues.queue')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='removed_jobs', to=settings.AUTH_USER_MODEL)),
                ('name', models.CharField(max_length=48)),
                ('framework', models.CharField(max_length=40)),
                ('phase', models.CharField(choices=[('queued', 'Queued'), ('admitted', 'Admitted'), ('starting', 'Starting'), ('running', 'Running'), ('stopping', 'Stopping'), ('suspended', 'Suspended'), ('succeeded', 'Succeeded'), ('failed', 'Failed'), ('cancelled', 'Cancelled')], help_text='its last', max_length=10)),
                ('slots', models.PositiveIntegerField(help_text='quota that it took')),
                ('attempt', models.PositiveIntegerField(help_text='the number of its last attempt; 0: it never started')),
                ('held_seconds', models.BigIntegerField(help_text='how long its attempts lasted together')),
                ('created_at', models.DateTimeField()),
                ('started_at', models.DateTimeField(help_text='when it was first running', null=True)),
                ('finished_at', models.DateTimeField()),
                ('removed_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('files_deleted_at', models.DateTimeField(help_text='when its files were; null: they are still to be', null=True)),
                ('idempotency_key', models.CharField(max_length=80, null=True)),
            ],
        ),
        migrations.AddIndex(
            model_name='removedjob',
            index=models.Index(condition=models.Q(('files_deleted_at', None)), fields=['id'], name='removed_with_files'),
        ),
        migrations.AddIndex(
            model_name='removedjob',
            index=models.Index(condition=models.Q(('idempotency_key__isnull', False)), fields=['team', 'user', 'idempotency_key'], name='removed_by_key'),
        ),
    ]
