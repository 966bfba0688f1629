"""The rules of jobs: lifecycle, verdict of replicas, lease, plan and roles, fields, batches. Pure."""
