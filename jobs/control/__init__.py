"""What drives jobs: reconciler, scheduler, sweeper, lease renewal, watcher, container logs, orphans."""
