"""What one does with a trained run: act, evaluate, record."""
