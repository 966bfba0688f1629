import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    """Queues that exist share nothing. Processes of the release before do not name the columns."""

    dependencies = [
        ('accounts', '0007_audit_may_be_trimmed'),
        ('queues', '0008_queue_policy'),
    ]

    operations = [
        migrations.AddField(
            model_name='queue',
            name='borrowing_limit',
            field=models.PositiveIntegerField(db_default=0, default=0, help_text='how much beyond its own it may take of its team; null: no limit', null=True),
        ),
        migrations.AddField(
            model_name='queue',
            name='preempts',
            field=models.BooleanField(db_default=False, default=False, help_text='whether its jobs take the place of those of a lower priority in it'),
        ),
        migrations.CreateModel(
            name='Cohort',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.SlugField(max_length=40, unique=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('parent', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='children', to='queues.cohort')),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='Flavor',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.SlugField(max_length=40, unique=True)),
                ('cluster', models.CharField(help_text='an alias in CLUSTERS', max_length=40)),
                ('resource', models.CharField(choices=[('gpu', 'GPUs'), ('cpu', 'CPU slots')], default='gpu', max_length=3)),
                ('gpus_per_node', models.PositiveIntegerField(default=0, help_text='0 where replicas are not bound to GPU nodes')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={
                'ordering': ['name'],
                'constraints': [models.UniqueConstraint(fields=('cluster', 'resource', 'gpus_per_node'), name='flavor_once')],
            },
        ),
        migrations.AddField(
            model_name='queue',
            name='flavor',
            field=models.ForeignKey(help_text="that it takes from its team's quota; null: it stands by itself", null=True, on_delete=django.db.models.deletion.PROTECT, related_name='queues', to='queues.flavor'),
        ),
        migrations.CreateModel(
            name='TeamQuota',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('nominal', models.PositiveIntegerField(help_text='that belongs to the team')),
                ('borrowing_limit', models.PositiveIntegerField(help_text='beyond it at most; null: no limit', null=True)),
                ('lending_limit', models.PositiveIntegerField(help_text='of it to others at most; null: no limit', null=True)),
                ('weight', models.FloatField(default=1.0, help_text="its part of what is lent, relative to others'")),
                ('version', models.PositiveIntegerField(default=1, help_text='grows with each change')),
                ('cohort', models.ForeignKey(help_text='null: it shares with nobody', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='quotas', to='queues.cohort')),
                ('flavor', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='quotas', to='queues.flavor')),
                ('team', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='quotas', to='accounts.team')),
            ],
            options={
                'ordering': ['team__name', 'flavor__name'],
                'constraints': [models.UniqueConstraint(fields=('team', 'flavor'), name='team_has_one_quota_of_a_flavor'), models.CheckConstraint(condition=models.Q(('weight__gt', 0)), name='weight_is_positive')],
            },
        ),
    ]
