"""Searches in other languages, over HTTP, as the examples show them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.server.serving import served

FOLDER = Path(__file__).parents[2] / "examples" / "http"


@pytest.mark.parametrize(("tools", "file"), [(("curl", "jq"), "tune.sh"), (("node",), "tune.mjs")])
def test_a_search_in_another_language(tmp_path, tools, file):
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"no {' or '.join(missing)} on this machine")
    with served(f"sqlite:///{tmp_path}/tuning.db", "--new") as link:
        parts = urlsplit(link)
        given = {"FREEZETHAW_URL": f"http://{parts.netloc}", "FREEZETHAW_TOKEN": parse_qs(parts.query)["token"][0]}
        command = ["node", FOLDER / file] if file.endswith(".mjs") else [FOLDER / file]
        env = os.environ | given
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "budget spent: 12 epochs" in done.stdout
