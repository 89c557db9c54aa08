"""The commands of `python -m jaxsvm`, one in each file."""
