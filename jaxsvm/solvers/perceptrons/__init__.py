"""Perceptrons, with and without a budget, and the stochastic batch perceptron."""
