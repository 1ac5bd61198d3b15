"""What needs a root of its own is left out where an ordinary user runs the tests: only root makes them."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "tests" / "box"))
import harness  # noqa: E402

collect_ignore = [] if harness.EXPECT.is_root else ["test_bare.py", "test_wasmagent_fetch.py"]
