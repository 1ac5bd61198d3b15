"""What needs a network of its own is left out where an ordinary user runs the tests: only root makes them."""

import harness

BY_ROOT_ONLY = ["test_engine_fetch", "test_fetch"]


def pytest_collection_modifyitems(config, items):
    harness.leave_out(config, items, lambda item: "only root makes networks and roots" if
                      item.path.stem in BY_ROOT_ONLY and not harness.EXPECT.is_root else None)
