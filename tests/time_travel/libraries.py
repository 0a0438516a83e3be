"""A program that copies kernels after real use of a library: `python libraries.py NAME …`.

The interpreter must have kernelbox and the libraries. A library passes if the same computation has the same result
before a copy, in a branch, in the original, and after each of two rollbacks. The random numbers of numpy and torch go
on after a rollback, and begin anew in a branch. polars passes if it is refused by name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from kernelbox import CannotCopy, branch, checkpoint, destroy, execute, get_or_create, rollback

DEADLINE = 120.0

NUMPY = """
import numpy as np
a = np.random.default_rng(1).random((500, 500))
def numpy_result():
    return float((a @ a).sum().round(3)), float(np.linalg.svd(a)[1].sum().round(6))
numpy_result()
"""
SCIPY = """
import numpy as np, scipy.fft, scipy.linalg
m = np.random.default_rng(2).random((300, 300)) + np.eye(300) * 300
def scipy_result():
    spectrum = scipy.fft.fft2(np.tile(m, (3, 3)), workers=2)
    return float(abs(spectrum).sum().round(3)), float(scipy.linalg.inv(m).sum().round(9))
scipy_result()
"""
PANDAS = """
import numpy as np, pandas as pd
frame = pd.DataFrame({"key": np.arange(100_000) % 7, "value": np.arange(100_000.0)})
def pandas_result():
    return frame.groupby("key").value.agg(["sum", "mean"]).round(3).to_json()
pandas_result()
"""
MATPLOTLIB = """
import hashlib, io, matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
def matplotlib_result():
    figure, axes = plt.subplots()
    axes.plot([1, 3, 2])
    picture = io.BytesIO()
    figure.savefig(picture, format="rgba")
    plt.close(figure)
    return hashlib.sha256(picture.getvalue()).hexdigest()
matplotlib_result()
"""
PYARROW = """
import io, pyarrow as pa, pyarrow.compute, pyarrow.dataset, pyarrow.parquet, tempfile
table = pa.table({"a": list(range(100_000)), "b": ["x", "y"] * 50_000})
folder = tempfile.mkdtemp(dir=".")
pyarrow.parquet.write_table(table, folder + "/part.parquet", row_group_size=1000)
def pyarrow_result():
    read = pyarrow.dataset.dataset(folder).to_table(filter=pyarrow.compute.field("b") == "x", use_threads=True)
    return read.num_rows, pyarrow.compute.sum(read["a"]).as_py()
pyarrow_result()
"""
SKLEARN = """
import numpy as np
from sklearn.cluster import KMeans
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
points = np.random.default_rng(3).random((2000, 4))
labels = (points.sum(axis=1) > 2).astype(int)
def sklearn_result():
    means = KMeans(4, n_init=1, random_state=0).fit(points).inertia_
    boosted = HistGradientBoostingClassifier(max_iter=20, random_state=0).fit(points, labels).score(points, labels)
    forest = RandomForestClassifier(10, n_jobs=2, random_state=0).fit(points, labels).score(points, labels)
    return round(float(means), 6), round(float(boosted), 6), round(float(forest), 6)
sklearn_result()
"""
TORCH = """
import torch
torch.manual_seed(4)
weights, inputs = torch.rand(300, 300, requires_grad=True), torch.rand(300, 300)
def torch_result():
    weights.grad = None
    (inputs @ weights).relu().sum().backward()
    return round(float(weights.grad.sum()), 1), round(float((inputs @ inputs).sum()), 1)
torch_result()
"""
CASES = {
    "numpy": NUMPY,
    "scipy": SCIPY,
    "pandas": PANDAS,
    "matplotlib": MATPLOTLIB,
    "pyarrow": PYARROW,
    "sklearn": SKLEARN,
    "torch": TORCH,
}
RANDOM = {"numpy": "float(np.random.rand())", "torch": "float(torch.rand(1))"}
POLARS = "import polars as pl; pl.DataFrame({'a': [1, 2]}).lazy().select(pl.col('a').sum()).collect()"


DUCKDB = "import duckdb; c = duckdb.connect(config={'threads': 3}); c.sql('select sum(range) from range(9)').fetchall()"


def main(names: list[str]) -> None:
    for name in names:
        if name == "polars":
            check_polars()
        elif name == "duckdb":
            check_duckdb()
        else:
            check_equal([name])
        if name in RANDOM:
            check_random(name)
        print(f"{name} passed", flush=True)
    if len(together := [name for name in names if name in CASES]) > 1:
        check_equal(together)
        print("together passed", flush=True)


def check_equal(names: list[str]) -> None:
    """Uses libraries in one kernel, copies it, and compares the results of each copy."""
    kernel = get_or_create("original")
    for name in names:
        run("original", CASES[name])
    expression = f"({', '.join(f'{name}_result()' for name in names)},)"
    expected = run("original", expression)
    checkpoint(kernel)
    branch(kernel, "branch")
    found = [run("branch", expression), run("original", expression)]
    for _ in range(2):
        rollback(kernel)
        found.append(run("original", expression))
    branch("branch", "twig")  # its pools have threads again
    found.append(run("twig", expression))
    assert found == [expected] * len(found), (names, expected, found)
    for name in ("original", "branch", "twig"):
        destroy(name)


def check_random(name: str) -> None:
    """Draws random numbers: as before the checkpoint after a rollback, others in a branch."""
    kernel = get_or_create("original")
    run("original", CASES[name])
    checkpoint(kernel)
    drawn = run("original", RANDOM[name])
    rollback(kernel)
    branch(kernel, "fresh")
    branch(kernel, "same", reseed=False)
    assert run("fresh", RANDOM[name]) != drawn
    assert [run(each, RANDOM[name]) for each in ("original", "same")] == [drawn, drawn]
    for each in ("original", "fresh", "same"):
        destroy(each)


def check_polars() -> None:
    """polars cannot be copied; its work can be done in another kernel, and passed on."""
    kernel = get_or_create("polars")
    run("polars", POLARS)
    for copy in (lambda: branch(kernel, "other"), lambda: checkpoint(kernel)):
        reasons = refusal_of(copy)
        assert any("polars" in reason and "another kernel" in reason for reason in reasons), reasons
    assert run("polars", "pl.DataFrame({'a': [1, 2]})['a'].sum()") == "3"
    destroy("polars")


def check_duckdb() -> None:
    """DuckDB can be copied when its connections are closed."""
    kernel = get_or_create("duckdb")
    run("duckdb", DUCKDB)
    for copy in (lambda: branch(kernel, "other"), lambda: checkpoint(kernel)):
        reasons = refusal_of(copy)
        assert any("duckdb" in reason and "close its connections" in reason for reason in reasons), reasons
    run("duckdb", "c.close(); duckdb.default_connection().close()")
    branch(kernel, "other")
    for name in ("duckdb", "other"):
        assert run(name, "duckdb.connect().sql('select 6 * 7').fetchall()") == "[(42,)]"
        destroy(name)


def refusal_of(copy: Callable[[], object]) -> list[str]:
    try:
        copy()
    except CannotCopy as refusal:
        return list(refusal.reasons)
    return []


def run(kernel: str, code: str) -> str | None:
    result = execute(kernel, code, timeout=DEADLINE)
    assert result.ok, result.text
    return result.return_value


if __name__ == "__main__":
    main(sys.argv[1:])
