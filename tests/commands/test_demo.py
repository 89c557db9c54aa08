"""The main job: what it prints, on a smaller grid; its certificate at every corner of the whole
one."""

import re

import jax
import jax.numpy as jnp
import pytest

import jaxsvm
from jaxsvm.__main__ import main, parser
from jaxsvm.commands import demo


@pytest.fixture(scope="module")
def train():
    key_split, _ = jax.random.split(jax.random.key(0))
    train, *_ = jaxsvm.data.split(key_split, jaxsvm.data.breast_cancer(), 3, 1, 1)
    return train._replace(x=jaxsvm.data.standardize(train.x)(train.x))


@pytest.mark.long
@pytest.mark.parametrize("lam", [0, -1])
@pytest.mark.parametrize("sigma", [0, -1])
def test_the_certificate_is_at_most_a_tenth_of_a_per_cent_at_every_corner_of_the_grid(
    train, lam, sigma
):
    run, proof = demo.exact(float(demo.LAMS[lam]), float(demo.SIGMAS[sigma]), train)
    # coefficients of the smallest lambda and largest sigma round scores by more than the tolerance
    # of the job
    assert run.converged == ("rounding to float32" not in run.status)
    assert 0 <= float(proof.gap) <= 1e-3 * float(proof.dual)


@pytest.mark.long
def test_what_the_main_job_prints(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "LAMS", jnp.array([1e-3, 1e-1]))
    monkeypatch.setattr(demo, "SIGMAS", jnp.array([4.0, 16.0]))
    monkeypatch.setattr(demo, "PASSES", 10)
    assert main([]) == 0
    out = capsys.readouterr().out
    chosen = re.search(r"chosen +lambda = (\S+), sigma = (\S+):", out)
    assert float(chosen[1]) in (1e-3, 1e-1) and float(chosen[2]) in (4, 16)
    assert (
        all(float(error) < 10 for error in re.findall(r"test error +([\d.]+)%", out))
        and out.count("test error") == 2
    )
    primal, dual, per_cent = re.search(
        r"objective (\S+), optimum at least (\S+): within (\S+) % of the optimum", out
    ).groups()
    assert 0 <= float(per_cent) <= 0.1 and float(dual) <= float(primal) <= float(dual) * 1.001
    assert (tmp_path / "jaxsvm-sweep.png").exists()
    commands = re.findall(r"^  python -m jaxsvm (.*)$", out[out.index("next, ") :], re.M)
    assert len(commands) == 3 and commands[-1] == "--help"
    for command in commands[:-1]:  # as typed they are known
        assert parser().parse_args(command.split()).module == command.split()[0]
