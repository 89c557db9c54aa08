"""`python -m jaxsvm`: the main job, a model for real data chosen among many and certified, in one program."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm

LAMS = 12
PASSES = 60
BATCH = 8


def late(t):
    """Weights of the average: late iterates count more, as the first 1/lam steps are long."""
    return t + 1


def main() -> None:
    """Train Pegasos over a range of lambda at once; choose by validation; report test error and certificate."""
    print(f"jaxsvm {jaxsvm.__version__} on JAX {jax.__version__}, {jax.devices()[0].device_kind}\n")
    key_split, key_fit = jax.random.split(jax.random.key(0))
    rows = jaxsvm.data.breast_cancer()
    train, validation, test = jaxsvm.data.split(key_split, rows, 3, 1, 1)
    scale = jaxsvm.data.standardize(train.x)
    train, validation, test = (part._replace(x=scale(part.x)) for part in (train, validation, test))
    sizes = ", ".join(
        f"{part.y.shape[0]} {name}" for part, name in ((train, "train"), (validation, "validation"), (test, "test"))
    )
    print(f"breast_cancer_wdbc: {rows.y.shape[0]} rows x {rows.x.shape[1]} columns, standardised; {sizes}")

    steps = PASSES * -(-train.y.shape[0] // BATCH)
    lams = jnp.logspace(-4, 0, LAMS)

    def solver(lam):
        return jaxsvm.averaged(jaxsvm.pegasos(lam, bias="feature"), weights=late)

    def trained(lam, train, validation, key):
        model = jaxsvm.fit(solver(lam), train, key, steps=steps, sampler=jaxsvm.samplers.epochs(BATCH)).model
        return model, jaxsvm.error_on(validation)(model)

    sweep = jax.jit(jax.vmap(trained, in_axes=(0, None, None, None)))
    print(f"{solver(0.1)}\n{LAMS} values of lambda, {PASSES} passes in batches of {BATCH}, one vmapped program:\n")
    began = time.perf_counter()
    compiled = sweep.lower(lams, train, validation, key_fit).compile()
    compiling = time.perf_counter() - began
    times = []
    for _ in range(3):
        began = time.perf_counter()
        models, errors = jax.block_until_ready(compiled(lams, train, validation, key_fit))
        times.append(time.perf_counter() - began)

    best = int(np.argmin(errors))
    print("      lambda   validation error")
    for i, (lam, error) in enumerate(zip(lams, errors, strict=True)):
        print(f"  {lam:10.1e}   {error:8.2%}{'   <- chosen' if i == best else ''}")
    model = jax.tree.map(lambda leaf: leaf[best], models)
    lam = float(lams[best])
    proof = jaxsvm.certificate(model, train, lam, passes=200)
    print(f"\ntest error   {float(jaxsvm.error_on(test)(model)):.2%}   at lambda = {lam:.1e}")
    print(
        f"certificate  objective {float(proof.primal):.6f}, optimum at least {float(proof.dual):.6f}: "
        f"within {float(proof.gap / proof.dual):.2%} of the optimum"
    )
    print(f"time         {np.median(times):.3f} s for the {LAMS} runs, {compiling + times[0]:.2f} s with compilation")


if __name__ == "__main__":
    main()
