"""The wheel, as a new user gets it: built, installed without extras into an empty environment, imported; the sdist."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from pathlib import Path

import pytest

import freezethaw as ft

ROOT = Path(__file__).parents[1]
SECONDS, MEGABYTES, IMPORT = 60.0, 300.0, 0.5
IMPORTED = "import time; t = time.process_time(); import freezethaw; print(time.process_time() - t)"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and not os.environ.get("FREEZETHAW_CI"):
        pytest.skip("the wheel cannot be built here: no network?")
    assert done.returncode == 0, done.stderr
    [found] = folder.glob("*.whl")
    return found


def test_the_wheel_has_all_it_needs_and_no_tests(wheel):
    assert f"-{ft.__version__}-" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in ("py.typed", "server/static/page.css", "server/static/page.js", "examples/digits.py", "__main__.py"):
        assert f"freezethaw/{wanted}" in names
    assert {name.split("/")[0] for name in names} == {"freezethaw", f"freezethaw-{ft.__version__}.dist-info"}
    tests = [name for name in names if "test" in name.replace("study/backtest.py", "")]
    assert not tests + [name for name in names if name.endswith((".db", ".pyc"))]
    assert wheel.stat().st_size < 1_000_000


@pytest.fixture(scope="module")
def source_files(tmp_path_factory):
    """The names of the files of the source distribution."""
    folder = tmp_path_factory.mktemp("sdist")
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", folder / "hatchling", *needed]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and not os.environ.get("FREEZETHAW_CI"):
        pytest.skip("the source distribution cannot be built here: no network?")
    assert done.returncode == 0, done.stderr
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", folder / "out"]
    environment = os.environ | {"PYTHONPATH": str(folder / "hatchling")}
    subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    with tarfile.open(folder / "out" / f"freezethaw-{ft.__version__}.tar.gz") as archive:
        return [name.partition("/")[2] for name in archive.getnames()]


def test_the_sdist_has_the_sources_and_tests_and_no_results(source_files):
    for wanted in (
        "src/freezethaw/py.typed",
        "tests/test_wheel.py",
        "LICENSE",
        "README.md",
        "CITATION.cff",
        "Makefile",
    ):
        assert wanted in source_files
    assert {name.split("/")[0] for name in source_files} >= {"src", "tests", "docs", "benchmarks", "examples"}
    unwanted = re.compile(r"(benchmarks|experiments)/results/|docs/(_build|reference)/|\.venv/|__pycache__|build/")
    assert not [name for name in source_files if unwanted.match(name)]


def test_the_version_is_the_same_everywhere():
    assert f"version: {ft.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    assert (ROOT / "CHANGELOG.md").read_text("utf-8").startswith(f"# Changelog\n\n## {ft.__version__}\n")


@pytest.mark.slow
def test_it_installs_quickly_and_small_and_imports_at_once(wheel, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "empty"], check=True)
    python = tmp_path / "empty" / "bin" / "python"
    before = size(tmp_path / "empty")
    began, spent = time.monotonic(), processor_seconds()
    done = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", wheel], capture_output=True, text=True, check=False
    )
    took, spent = time.monotonic() - began, processor_seconds() - spent
    if done.returncode and not os.environ.get("FREEZETHAW_CI"):
        pytest.skip("its dependencies cannot be installed here: no network?")
    assert done.returncode == 0, done.stderr
    grown = (size(tmp_path / "empty") - before) / 1e6
    imports = min(float(run(python, "-c", IMPORTED)) for _ in range(5))
    print(f"installed in {took:.0f} s ({spent:.0f} s of processor), {grown:.0f} MB; import {imports:.3f} s")
    assert run(python, "-m", "freezethaw", "--version").split()[-1] == ft.__version__
    assert re.search(r"\brun\b", run(python, "-m", "freezethaw", "--help"))
    assert run(python, "-c", "import freezethaw as ft; print(ft.Study(ft.Space(x=ft.Float(0, 1)), 3).ask().run)") == "1"
    assert grown < MEGABYTES
    assert imports < IMPORT
    assert spent < SECONDS  # a machine that is busy with other tests takes longer


def processor_seconds():
    """Of the processes that this one has started and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout.strip()


def size(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
