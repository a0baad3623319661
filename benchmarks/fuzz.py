"""The HTTP API under schemathesis: requests made from its own OpenAPI document, none of which may be a server's error.

python -m benchmarks.fuzz [--examples 15] [--seed 1]      needs pip install schemathesis
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import freezethaw as ft
from benchmarks.page import page_of

SPACE = ft.Space(rate=ft.Float(1e-4, 1.0, log=True), kind=ft.Choice("a", "b"), width=ft.Int(1, 8, when={"kind": "a"}))


def small_study(url: str) -> None:
    """Something to ask about."""
    study = ft.Study(SPACE, max_epochs=5, name="small", store=url, budget=20)
    for _ in range(4):
        decision = study.ask()
        study.tell(decision, [decision.config["rate"] + 1.0] * decision.epochs)
    study.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=15, help="of each operation")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    program = Path(sys.executable).with_name("schemathesis")
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/fuzz.db"
        small_study(url)
        with page_of(url) as (address, token):
            command = [
                str(program), "run", f"{address}/api/openapi.json", "-H", f"Authorization: Bearer {token}",
                "--checks", "not_a_server_error,content_type_conformance",
                "--max-examples", str(given.examples), "--seed", str(given.seed),
            ]  # fmt: skip
            return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
