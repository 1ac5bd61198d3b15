"""An ordinary user has no lanes."""
import harness


def pytest_collection_modifyitems(config, items):
    harness.leave_out(config, items, lambda item: None if harness.EXPECT.is_root or item.path.parent.name != "runner" else
                      "only root makes lanes")
