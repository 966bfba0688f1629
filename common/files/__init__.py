"""Files in a folder or in a bucket behind one interface, and deletion that respects backups."""
