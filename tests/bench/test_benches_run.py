"""The benchmarks run, with tiny sizes, and give a ratio. What it is is for people to read."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import bench_fold
import bench_growth
import bench_http
import bench_memory
import bench_reads
import bench_writer

pytestmark = pytest.mark.bench


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(lambda: bench_writer.main(50), id="writer"),
        pytest.param(lambda: bench_fold.main(2_000), id="fold"),
        pytest.param(lambda: bench_growth.main(100, 300, 50), id="growth"),
        pytest.param(lambda: bench_memory.main(200), id="memory"),
        pytest.param(lambda: bench_http.main(200, rounds=1), id="http"),
    ],
)
def test_a_ratio_comes_out(run):
    assert run() >= 0


def test_the_read_benchmark_gives_three_ratios():
    assert all(ratio > 0 for ratio in bench_reads.main(300).values())
