"""What runs where, and what passes between workers. Pure."""
