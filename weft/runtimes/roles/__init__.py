"""One file a role: what a fragment does, wherever it runs."""
