"""Watching runs in a browser: reads run folders, changes nothing in them, loads no JAX."""
