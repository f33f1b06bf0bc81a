"""Who runs where, and what passes between them. Pure."""
