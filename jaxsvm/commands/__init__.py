"""What `python -m jaxsvm` can do, one command per file."""
