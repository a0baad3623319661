"""Fixed seeds in the suite: property tests draw the same examples each time."""

from __future__ import annotations

import pytest
from hypothesis import settings

# asserts in helpers explain themselves too; said here, before any test module imports them
pytest.register_assert_rewrite("tests.store.contract", "tests.store.helpers")

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")
