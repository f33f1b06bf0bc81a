"""What runs a plan: engines for one group in this process, and the loop around them."""
