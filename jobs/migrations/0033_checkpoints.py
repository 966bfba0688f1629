import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """What agents list of jobs' checkpoints."""

    dependencies = [
        ('jobs', '0032_nodes_blamed'),
    ]

    operations = [
        migrations.CreateModel(
            name='Checkpoint',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=255)),
                ('step', models.BigIntegerField(help_text='as its name says; null: it says none', null=True)),
                ('size_bytes', models.BigIntegerField(help_text='null: not known', null=True)),
                ('written_at', models.DateTimeField(help_text='when something in it was last written')),
                ('attempt', models.PositiveIntegerField(help_text='the attempt in which it was last seen to change')),
                ('seen_at', models.DateTimeField(help_text='when it was last listed')),
                ('job', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='checkpoints', to='jobs.job')),
            ],
            options={
                'ordering': ['id'],
                'constraints': [models.UniqueConstraint(fields=('job', 'name'), name='checkpoint_once_per_job')],
            },
        ),
    ]
