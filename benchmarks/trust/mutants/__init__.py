"""Mutation testing: seeded small changes of `jaxsvm/`, each run against the tests that run its line.

A change has one verdict:

    killed      a test failed, or did not end in many times the time that it takes
    alive       no test failed, and `equivalent.toml` does not list the change
    equivalent  the same, and `equivalent.toml` says why no test can fail
    unreached   no recorded test runs the line, though tests run its function: counted with those alive

Bodies of functions that no recorded test runs do not count. `mutmut` runs its tests before it forks, and JAX hangs in such
children; it leaves out decorated functions. `cosmic-ray` starts a process and all tests for each change.
"""
