import django.db.models.deletion
import django.utils.timezone
import jobs.models.job
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Checks of clusters by pods."""

    dependencies = [
        ('jobs', '0035_idle_gpus_and_replicas_by_node'),
        ('queues', '0005_excluded_nodes'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='ClusterCheck',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('uid', models.CharField(default=jobs.models.job.new_uid, help_text='part of the names of its pods', max_length=8)),
                ('cluster', models.CharField(help_text='its name in CLUSTERS', max_length=40)),
                ('image', models.TextField(help_text='of its pods')),
                ('asked_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('due_at', models.DateTimeField(default=django.utils.timezone.now, help_text='when a process goes on with it; later while one does')),
                ('findings', models.JSONField(default=list, help_text='about, state, words, remedy and who of each')),
                ('ended_at', models.DateTimeField(null=True)),
                ('removed_at', models.DateTimeField(help_text='when its pods were deleted', null=True)),
                ('asked_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('queue', models.ForeignKey(help_text='its pods run where those of this queue do', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='queues.queue')),
            ],
            options={
                'ordering': ['-id'],
                'indexes': [models.Index(condition=models.Q(('removed_at', None)), fields=['due_at'], name='cluster_check_due'), models.Index(fields=['cluster', '-id'], name='cluster_check_newest')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('ended_at', None)), fields=('cluster', 'image'), name='one_check_of_an_image_at_a_time')],
            },
        ),
    ]
