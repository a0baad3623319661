"""A missing library is missed in one line, and only where it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from freezethaw.errors import MissingLibrary, extra

# adapter -> the library that it needs, and the extra that brings it
ADAPTERS = {
    "trainers.pytorch": ("torch", "torch"),
    "trainers.distributed": ("torch", "torch"),
    "trainers.sklearn": ("skops", "sklearn"),
    "search_cv": ("sklearn", "sklearn"),
    "trainers.xgboost": ("xgboost", "xgboost"),
    "trainers.lightgbm": ("lightgbm", "lightgbm"),
    "trainers.keras": ("keras", "keras"),
    "trainers.lightning": ("lightning", "lightning"),
    "trainers.transformers": ("transformers", "transformers"),
}


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_missing_library_is_one_line(adapter):
    library, name = ADAPTERS[adapter]
    code = f"""
import sys
sys.modules[{library!r}] = None  # as if it were not installed
try:
    import freezethaw.{adapter}
except ImportError as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == f'this needs {library}: pip install "freezethaw[{name}]"\n'


def test_a_library_that_is_too_old_is_not_called_missing():
    with (
        pytest.raises(MissingLibrary, match=r'another version of json .*: pip install --upgrade "freezethaw\[torch\]"'),
        extra("torch"),
    ):
        from json import a_name_of_tomorrow  # noqa: F401


def test_the_command_line_says_it_too(tmp_path):
    (tmp_path / "train.py").write_text("import sys\nsys.modules['torch'] = None\nimport freezethaw.trainers.pytorch\n")
    (tmp_path / "space.toml").write_text("[rate]\ntype = 'float'\nlow = 0.0\nhigh = 1.0\n")
    command = [sys.executable, "-m", "freezethaw", "check", "train.py:train", "--space", "space.toml"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert found.returncode == 1
    assert found.stderr.splitlines()[-1].endswith('this needs torch: pip install "freezethaw[torch]"')
    assert "Traceback" not in found.stderr


def test_nothing_of_it_is_imported_before():
    heavy = sorted({"sklearn", *(library for library, _ in ADAPTERS.values())})
    code = f"""
import sys, freezethaw, freezethaw.trainers, freezethaw.tuning, freezethaw.cli
from freezethaw import *
print([name for name in {heavy} if name in sys.modules])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
