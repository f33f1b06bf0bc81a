"""What was asked for, resolved and refused; nothing is started here."""
