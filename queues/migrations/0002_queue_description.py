from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('queues', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='queue',
            name='description',
            field=models.CharField(blank=True, help_text='what it is for, in a sentence', max_length=200),
        ),
    ]
