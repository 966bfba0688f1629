import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """Nodes of clusters, and how each changed."""

    dependencies = [
        ('jobs', '0033_checkpoints'),
    ]

    operations = [
        migrations.CreateModel(
            name='ClusterLook',
            fields=[
                ('cluster', models.CharField(help_text='its name in CLUSTERS', max_length=40, primary_key=True, serialize=False)),
                ('asked_at', models.DateTimeField(help_text='when it was last asked, with or without an answer', null=True)),
                ('seen_at', models.DateTimeField(help_text='when it last listed its nodes; null: never', null=True)),
                ('problem', models.TextField(blank=True, help_text='why it did not when it was last asked; empty if it did')),
            ],
        ),
        migrations.CreateModel(
            name='ClusterNode',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('cluster', models.CharField(help_text='its name in CLUSTERS', max_length=40)),
                ('name', models.CharField(max_length=253)),
                ('number', models.PositiveIntegerField(help_text='within the cluster; stands for its name where names are not shown')),
                ('first_seen_at', models.DateTimeField()),
                ('changed_at', models.DateTimeField(help_text='when this row was last written')),
                ('gone_at', models.DateTimeField(help_text='when it was first missing; null: it is there', null=True)),
                ('silence', models.TextField(blank=True, help_text='why it is not ready; empty: it is')),
                ('silent_since', models.DateTimeField(help_text='when it was first seen so', null=True)),
                ('is_cordoned', models.BooleanField(default=False)),
                ('devices', models.JSONField(default=dict, help_text='what pods may be given of it: resource to count')),
                ('gpus', models.PositiveIntegerField(default=0, help_text='their sum')),
                ('others', models.PositiveIntegerField(help_text="how many of them pods hold that are not Muster's; null: that is not known", null=True)),
                ('product', models.CharField(blank=True, max_length=100)),
                ('levels', models.JSONField(default=dict, help_text="its values of labels that queues' templates name as levels")),
                ('taints', models.JSONField(default=list, help_text='in words')),
                ('troubles', models.JSONField(default=list, help_text='conditions such as DiskPressure')),
            ],
            options={
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='NodeHistory',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('kind', models.CharField(choices=[('appeared', 'appeared'), ('gone', 'gone'), ('not_ready', 'not ready'), ('ready', 'ready'), ('cordoned', 'cordoned'), ('uncordoned', 'uncordoned'), ('trouble', 'trouble'), ('recovered', 'recovered'), ('devices', 'devices'), ('tainted', 'tainted'), ('untainted', 'untainted')], max_length=12)),
                ('words', models.TextField(blank=True)),
            ],
            options={
                'ordering': ['id'],
            },
        ),
        migrations.AddIndex(
            model_name='clusternode',
            index=models.Index(condition=models.Q(('gone_at__isnull', False)), fields=['gone_at'], name='node_gone'),
        ),
        migrations.AddConstraint(
            model_name='clusternode',
            constraint=models.UniqueConstraint(fields=('cluster', 'name'), name='node_once_per_cluster'),
        ),
        migrations.AddConstraint(
            model_name='clusternode',
            constraint=models.UniqueConstraint(fields=('cluster', 'number'), name='node_number_once_per_cluster'),
        ),
        migrations.AddField(
            model_name='nodehistory',
            name='node',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='history', to='jobs.clusternode'),
        ),
        migrations.AddIndex(
            model_name='nodehistory',
            index=models.Index(fields=['node', '-id'], name='node_history'),
        ),
        migrations.AddIndex(
            model_name='nodehistory',
            index=models.Index(fields=['at'], name='node_history_by_time'),
        ),
    ]
