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


def node():
    """Playwright brings one along."""
    try:
        import playwright
    except ImportError:
        return shutil.which("node")
    return str(Path(playwright.__file__).parent / "driver" / "node")


def command(file):
    """How to run an example. In CI a missing tool is a failure; on a laptop its test is skipped."""
    tools = [node()] if file.endswith(".mjs") else [shutil.which("curl"), shutil.which("jq")]
    if None in tools and not os.environ.get("FREEZETHAW_CI"):
        pytest.skip("no Node on this machine" if file.endswith(".mjs") else "no curl and jq on this machine")
    assert None not in tools
    return [*(tools if file.endswith(".mjs") else []), str(FOLDER / file)]


@pytest.mark.parametrize("file", ["tune.sh", "tune.mjs"])
def test_a_search_in_another_language(tmp_path, file):
    wanted = command(file)
    with served(f"sqlite:///{tmp_path}/tuning.db", "--new") as link:
        parts = urlsplit(link)
        given = {"FREEZETHAW_URL": f"http://{parts.netloc}", "FREEZETHAW_TOKEN": parse_qs(parts.query)["token"][0]}
        env = os.environ | given
        done = subprocess.run(wanted, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "budget spent: 12 epochs" in done.stdout
