"""The command line: parses, calls the runtimes, prints."""
