"""Runs that `test_processes.py` starts: as one of two processes with two devices each, or as one
with four or one.

    worker.py FOLDER PROCESS PROCESSES PORT

Results are written to FOLDER/results-PROCESSES-DEVICES-PROCESS.npz, states to folders and files
beside them.
"""

import os
import signal
import sys
import threading

import jax

folder, process, processes, port = sys.argv[1], *map(int, sys.argv[2:])
if processes > 1:
    jax.distributed.initialize(f"127.0.0.1:{port}", processes, process)

import numpy as np  # noqa: E402
from jax.experimental import multihost_utils  # noqa: E402
from jax.sharding import Mesh  # noqa: E402

import jaxsvm  # noqa: E402
from jaxsvm import features, kernels, models, samplers  # noqa: E402
from jaxsvm.types import Batch  # noqa: E402

N, KEY = 501, jax.random.key(3)
rng = np.random.default_rng(0)
x = (0.37 * (rng.random((N, 20)) < 0.3)).astype(np.float32)
y = np.where(x @ rng.normal(size=20) + 0.1 * rng.normal(size=N) > 0, 1, -1).astype(np.float32)
own = slice(*((0, 250), (250, N))[process]) if processes > 1 else slice(0, N)
data = jaxsvm.shard(
    jaxsvm.dataset(x[own], y[own]), Mesh(np.array(jax.devices()), ("rows",)), blocks=4
)
assert data.y.shape == (504,) and float(data.weight.sum()) == N

STRATA = samplers.strata(samplers.epochs(8), blocks=4)
CASES = {  # solver, sampler, steps of each half
    "pegasos": (jaxsvm.pegasos(1e-3), STRATA, 30),
    "cocoa": (jaxsvm.cocoa(1.0, blocks=4), None, 5),
    "sdca": (jaxsvm.sdca(1.0, kernels.rbf(1.0)), None, 20),
}
LAM = {"pegasos": 1e-3, "cocoa": 1 / N, "sdca": 1 / N}  # of the problem that each solves
results = {}


def responses(model):
    """The decision values at all rows on the host, by a program that leaves them on every
    device."""
    everywhere = jax.NamedSharding(data.y.sharding.mesh, jax.P())
    with jax.set_mesh(data.y.sharding.mesh):
        return np.asarray(
            jax.jit(lambda model, x: model(x), out_shardings=everywhere)(model, x).addressable_data(
                0
            )
        )


for name, (solver, sampler, steps) in CASES.items():
    options = {"steps": steps, "every": steps, "sampler": sampler}
    path = os.path.join(folder, f"{name}-{processes}")
    half = jaxsvm.fit(solver, data, KEY, save=path if processes > 1 else None, **options)
    whole = jaxsvm.fit(solver, data, state=half.state, **options)
    results[f"{name} half"], results[f"{name} whole"] = (
        responses(half.model),
        responses(whole.model),
    )
    results[f"{name} status"] = np.array(whole.status)
    for passes in (0, 1):
        bound = jaxsvm.certificate(whole.model, data, LAM[name], passes=passes)
        results[f"{name} certificate {passes}"] = np.array(
            [bound.primal, bound.gap, bound.exact], np.float64
        )
    results[f"{name} kkt"] = (
        np.array(jaxsvm.kkt_residual(whole.model, data, LAM[name]))
        if name == "sdca"
        else np.array(0.0)
    )
    if name != "sdca":
        assert jaxsvm.objectives.primal(whole.model, data, LAM[name]) == bound.primal
        w, hinge = (
            np.asarray(whole.model.w, np.float64),
            lambda score: np.maximum(1 - y.astype(np.float64) * score, 0).mean(),
        )
        results[f"{name} primal"] = np.array(
            LAM[name] / 2 * w @ w + hinge(x.astype(np.float64) @ w)
        )
    if processes > 1:  # saved and loaded here: the same bits
        again = jaxsvm.fit(
            solver, data, state=models.load(path, mesh=data.y.sharding.mesh), **options
        )
        results[f"{name} again"] = responses(again.model)
        models.save(os.path.join(folder, f"model-{name}"), whole.model)
    else:  # what two processes saved
        state = models.load(os.path.join(folder, f"{name}-2"), mesh=data.y.sharding.mesh)
        results[f"{name} resumed"] = responses(
            jaxsvm.fit(solver, data, state=state, **options).model
        )
        results[f"{name} saved model"] = responses(
            models.load(os.path.join(folder, f"model-{name}"))
        )

flow = None  # rows that come in chunks, of which each process reads its own: one program for all
for chunk in range(2):
    turn = np.roll(np.arange(N), 100 * chunk)[own]
    part = jaxsvm.shard(jaxsvm.dataset(x[turn], y[turn]), data.y.sharding.mesh, blocks=4)
    going_on = {"state": flow.state} if flow else {"key": KEY}
    flow = jaxsvm.fit(CASES["pegasos"][0], part, steps=30, every=30, sampler=STRATA, **going_on)
results["chunks"] = responses(flow.model)

# streams: two processes read chunks of 60 and of 50 rows, so that the second reads one more

KINDS = {
    "pegasos": jaxsvm.pegasos(1e-2, bias="free"),
    "bsgd": jaxsvm.bsgd(1e-2, kernels.rbf(0.5), budget=12),
    "features": jaxsvm.on_features(
        features.fourier(KEY, kernels.rbf(0.5), dim=20, features=16), jaxsvm.pegasos(1e-2)
    ),
}
FILES = [(x[start:end], y[start:end]) for start, end in ((0, 250), (250, N))]
CHUNKS = [
    list(jaxsvm.data.chunks(*file, rows=rows)) for file, rows in zip(FILES, (60, 50), strict=True)
]
STREAM = {
    "batch_size": 8,
    "mesh": jax.make_mesh((jax.device_count(),), ("rows",)) if jax.device_count() > 1 else None,
}


def steps_of(lists, unused=None):
    """The batches that processes with these lists of chunks make, and what is left: by the rule in
    the docstring."""
    share = 8 // len(lists)
    rows = unused or [(x[:0], y[:0]) for _ in lists]
    batches = []
    for number in range(max(map(len, lists))):
        for j, chunks in enumerate(lists):
            if number < len(chunks):
                part = chunks[number]
                rows[j] = np.concatenate([rows[j][0], part.x]), np.concatenate([rows[j][1], part.y])
        for _ in range(max(len(part) // share for _, part in rows)):
            ready = [j for j, (_, part) in enumerate(rows) if len(part) >= share]
            batches.append(
                [
                    np.concatenate(parts)
                    for parts in zip(*((a[:share] for a in rows[j]) for j in ready), strict=True)
                ]
            )
            rows = [
                tuple(a[share:] if j in ready else a for a in part) for j, part in enumerate(rows)
            ]
    return batches, rows


def as_batch(x, y):
    return Batch(x, y, np.arange(len(y), dtype=np.int32), np.ones_like(y))


for name, solver in KINDS.items():
    path = os.path.join(folder, f"stream-{name}")
    if processes > 1:
        mine = CHUNKS[process]
        jaxsvm.stream(solver, mine[:2], KEY, save=path, **STREAM)
        whole = jaxsvm.stream(solver, iter(mine), KEY, **STREAM)
        state = models.load(path, mesh=STREAM["mesh"])
        assert int(state.chunks) == 2 and int(state.seen) == 220
        rest = jaxsvm.stream(solver, mine[2:], state=state, **STREAM)
        results[f"stream {name}"] = np.asarray(whole.model(x))
        results[f"stream {name} again"] = np.asarray(rest.model(x))
        results[f"stream {name} counts"] = np.array(
            [rest.state.step, rest.state.seen, rest.state.chunks, rest.state.n_pending]
        )
    else:
        at_start = jaxsvm.stream(solver, [(x[:1], y[:1])], KEY, **STREAM).state.solver
        state, (batches, left) = at_start, steps_of(CHUNKS)
        for batch in batches:
            state, _ = jaxsvm.step(solver, state, as_batch(*batch))
        results[f"stream {name}"] = np.asarray(solver.model(state)(x))
        results[f"stream {name} counts"] = np.array(
            [len(batches), N, 6, sum(len(part) for _, part in left)]
        )
        # what two processes saved goes on in one
        rest = [*CHUNKS[0][2:], *CHUNKS[1][2:]]
        loaded = models.load(path, mesh=STREAM["mesh"])
        run = jaxsvm.stream(solver, rest, state=loaded, **STREAM)
        state, (batches, left) = loaded.solver, steps_of([chunks[:2] for chunks in CHUNKS])
        together = [tuple(np.concatenate(parts) for parts in zip(*left, strict=True))]
        for batch in steps_of([rest], together)[0]:
            state, _ = jaxsvm.step(solver, state, as_batch(*batch))
        results[f"stream {name} resumed"] = np.asarray(run.model(x))
        results[f"stream {name} resumed by steps"] = np.asarray(solver.model(state)(x))


def failing():
    yield CHUNKS[0][0]
    if process == 1:
        raise OSError("the disk of process 1")
    yield CHUNKS[0][1]


def interrupt_soon():
    """Ctrl-C in the second process, a second from now."""
    if process == 1:
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()


def interrupted():
    for number, chunk in enumerate(CHUNKS[process]):
        if number == 2 and process == 1:
            os.kill(os.getpid(), signal.SIGINT)
        yield chunk


def goes_on(state, chunks, **options):
    run = jaxsvm.stream(KINDS["pegasos"], chunks, state=state, **STREAM, **options)
    return [int(run.state.step), int(run.state.n_pending), int(run.state.chunks)]


if processes > 1:
    # a file of one process, which has read 51 rows: 3 of its last 8 are in no step yet
    started = jaxsvm.stream(KINDS["pegasos"], CHUNKS[process], KEY, **STREAM).state
    last = Batch(
        x[43:51],
        y[43:51],
        np.where(np.arange(8) < 5, -1, np.arange(43, 51)).astype(np.int32),
        np.ones(8, np.float32),
    )
    numbers = {
        "n_pending": np.int32(3),
        "step": np.int32(6),
        "seen": np.int32(51),
        "chunks": np.int32(1),
    }
    path = os.path.join(folder, "one.npz")
    models.save(path, jax.tree.map(np.asarray, started._replace(pending=last, **numbers)))
    multihost_utils.sync_global_devices("saved")
    whole = models.load(path, mesh=STREAM["mesh"])
    piece, nothing = (x[:25], y[:25]), (x[:9], y[:9], np.zeros(9, np.float32))
    results["stream from one"] = np.array(
        [goes_on(state, [piece]) for state in (whole, models.load(path))]
    )
    results["stream from nothing"] = np.array(goes_on(whole, [nothing, piece]))
    results["stream of one"] = np.array(goes_on(whole, [piece] if process else [], progress=True))
    for options in (
        {"save": os.path.join(folder, "nowhere", "x")} if process else {},
        {"batch_size": 8 + 8 * process},
    ):
        try:
            jaxsvm.stream(KINDS["pegasos"], CHUNKS[process], KEY, **STREAM | options)
        except (OSError, RuntimeError, ValueError) as error:
            print("ended:", type(error).__name__, error)

if processes > 1:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        jaxsvm.stream(KINDS["pegasos"], failing(), KEY, **STREAM)
    except (OSError, RuntimeError) as error:
        print("failed:", type(error).__name__, error)
    run = jaxsvm.stream(KINDS["pegasos"], interrupted(), KEY, on_interrupt="return", **STREAM)
    options = {"every": 20, "sampler": STRATA}
    jaxsvm.fit(CASES["pegasos"][0], data, KEY, steps=20, **options)  # compiles
    interrupt_soon()
    end = jaxsvm.fit(CASES["pegasos"][0], data, KEY, steps=10**8, on_interrupt="return", **options)
    assert end.reason == "interrupted" and int(end.state.step) > 0
    results["fit interrupted"] = np.array(end.state.step)
    end = jaxsvm.fit(CASES["pegasos"][0], data, KEY, steps=10**8, seconds=0.5 + process, **options)
    assert end.reason == "seconds"
    results["fit in time"] = np.array(end.state.step)
    results["stream interrupted"] = np.array(
        [run.state.step, run.state.chunks, run.reason == "interrupted"]
    )
    for chunks, options in (
        ([(x[:9, : 5 + process], y[:9])], STREAM),
        ([], STREAM),
        (CHUNKS[0], {"batch_size": 8}),
    ):
        try:
            jaxsvm.stream(
                KINDS["pegasos"],
                [(x[:0], y[:0])] if not chunks and process else chunks,
                KEY,
                **options,
            )
        except ValueError as error:
            print("refused:", error)

np.savez(os.path.join(folder, f"results-{processes}-{jax.device_count()}-{process}.npz"), **results)
