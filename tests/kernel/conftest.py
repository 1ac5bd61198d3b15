"""What needs a network of its own is left out where an ordinary user runs the tests: only root makes them."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "box"))
import harness  # noqa: E402

collect_ignore = [] if harness.EXPECT.is_root else ["test_engine_fetch.py", "test_fetch.py"]
