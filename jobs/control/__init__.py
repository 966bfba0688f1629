"""What drives jobs: reconciler, sweeper, lease renewal, watcher, container logs, orphans."""
