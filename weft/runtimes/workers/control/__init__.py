"""Starting, hearing, replacing and ending worker processes."""
