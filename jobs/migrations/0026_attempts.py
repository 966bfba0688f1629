import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """A row for each launch of a job. Those of earlier launches are written by `backfill_attempts`, or when they are first read."""

    dependencies = [
        ('jobs', '0025_names_free_again'),
        ('workspaces', '0004_left_out'),
    ]

    operations = [
        migrations.CreateModel(
            name='Attempt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField(help_text='counted from 1; a restored job skips some')),
                ('cluster', models.CharField(help_text='its name in CLUSTERS', max_length=40)),
                ('namespace', models.CharField(blank=True, help_text='of its objects; empty where there are none', max_length=63)),
                ('launched_at', models.DateTimeField(help_text='when it was decided')),
                ('applied_at', models.DateTimeField(help_text='when the cluster had confirmed its creation', null=True)),
                ('running_at', models.DateTimeField(null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('outcome', models.CharField(blank=True, choices=[('queued', 'Queued'), ('admitted', 'Admitted'), ('starting', 'Starting'), ('running', 'Running'), ('stopping', 'Stopping'), ('suspended', 'Suspended'), ('succeeded', 'Succeeded'), ('failed', 'Failed'), ('cancelled', 'Cancelled')], help_text='the phase after it; empty: it lasts', max_length=10)),
                ('reason', models.CharField(blank=True, choices=[('completed', 'completed'), ('failed', 'failed'), ('deadline', 'deadline'), ('cancelled', 'cancelled'), ('suspended', 'suspended'), ('preempted', 'preempted'), ('start_timeout', 'start timeout'), ('retry', 'retry')], help_text='why it was stopped', max_length=16)),
                ('message', models.TextField(blank=True, help_text='of its last step')),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='attempts', to='jobs.job')),
                ('workspace', models.ForeignKey(help_text='its code', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='workspaces.workspace')),
            ],
            options={
                'ordering': ['number'],
            },
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.UniqueConstraint(fields=('job', 'number'), name='attempt_once_per_job'),
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at', None), ('outcome', '')), models.Q(('ended_at__isnull', False), models.Q(('outcome', ''), _negated=True)), _connector='OR'), name='attempt_ends_with_an_outcome'),
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.CheckConstraint(condition=models.Q(('number__gt', 0)), name='attempt_is_counted_from_one'),
        ),
    ]
