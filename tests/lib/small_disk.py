"""A `cove serve` whose data lies on a small file system of its own, which nobody else sees."""
import contextlib
import os
import pathlib
import subprocess

import serving


def ext4_mount(directory, size, reserved=0):
    """The command that mounts a new one of this size, but for the target; so many percent of it are root's alone."""
    image = directory / "image"
    with open(image, "wb") as file:
        file.truncate(size)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", str(reserved), image], check=True)
    return f"mount -o loop {image}"


class SmallDisk(serving.Serve):
    def __init__(self, directory, mount, clock=True, **more):
        super().__init__(directory, clock=clock, **more)
        self.data.mkdir()
        self.command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec",
                        f"{mount} {self.data}; exec \"$@\"", "sh", *self.command]

    @property
    def inside(self):
        return pathlib.Path(f"/proc/{self.process.pid}/root{self.data}")

    def free(self):
        disk = os.statvfs(self.inside)
        return disk.f_bavail * disk.f_frsize

    def fill(self, left):
        """Takes all but so many bytes; all of them for 0."""
        with open(self.inside / "filler", "ab", buffering=0) as filler:
            with contextlib.suppress(OSError):
                while self.free() > left:
                    filler.write(bytes(max(min(self.free() - left, 1 << 20), 4096)))
            with contextlib.suppress(OSError):
                while left == 0:
                    filler.write(bytes(512))
        self.settle()

    def take(self, left):
        """The same at once, and of ext4 alone: nothing is written."""
        with open(self.inside / "filler", "wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, self.free() - left)

    def give(self):
        (self.inside / "filler").unlink()

    def empty(self):
        self.give()
        self.settle()

    def settle(self):
        """A figure is good for a moment."""
        if self.clock:
            self.clock.advance(1)
