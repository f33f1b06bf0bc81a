"""A run over several hosts: who gives them, an agent on each, and one launcher over all of their workers."""
