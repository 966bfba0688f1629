"""A rare act is found without reading the whole book. Built without holding up those who write."""

from django.db import migrations, models

from common.db.migration_operations import AddIndexConcurrently


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ('accounts', '0002_scopes_service_accounts_audit'),
    ]

    operations = [
        AddIndexConcurrently(
            model_name='auditentry',
            index=models.Index(fields=['act', '-id'], name='audit_by_act'),
        ),
    ]
