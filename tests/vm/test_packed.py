"""Packages for the machine of a guest, used there as on a host by the same programs."""
import pathlib
import subprocess

PACKED = pathlib.Path("build/packed")  # a disk


def test_image():
    subprocess.run(["scripts/test-image.sh", "--packed", PACKED], check=True)
