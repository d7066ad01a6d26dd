"""
Store: the folder that files are written to, on any file system that Arrow knows.

A local or shared folder, s3://, gs://, abfss:// and hdfs:// are written by the same
code, without Spark and without a jar. Names in it are given with `/` between.
"""

from __future__ import annotations

from typing import Any

from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.extras import extra

# What Hadoop calls S3.
OF_HADOOP = ("s3a:", "s3n:")

# File systems that want a file's folder to be made.
HAS_FOLDERS = ("local", "hdfs")


class Store:
    """
    A folder of some file system: a path from the root, or a URI.

    Raises:
        SparkOptionError: Arrow knows no such file system, or lacks what it needs.
    """

    def __init__(self, target: str) -> None:
        self._arrow = extra("pyarrow.fs")
        try:
            # A path from the root is taken as it is, also with a %.
            self._files, root = self._arrow.FileSystem.from_uri(for_arrow(target))
        except Exception as error:
            raise SparkOptionError(
                f"Nothing can be written to {target}: {_first_line(error)}. It must be "
                f"a folder, or a URI of s3, gs, abfss or hdfs."
            ) from None
        self._root = root.rstrip("/")
        # The folder, as a file system of pyarrow.
        self.filesystem = self._arrow.SubTreeFileSystem(self._root, self._files)

    def exists(self, name: str) -> bool:
        """Whether there is such a file or folder."""
        (found,) = self.filesystem.get_file_info([name])
        return bool(found.type != self._arrow.FileType.NotFound)

    def writes(self, name: str) -> Any:
        """Return a new file *name*, open for pyarrow to write; its folder is made."""
        self._make_folder(name)
        return self.filesystem.open_output_stream(name)

    def move(self, name: str, to: str) -> None:
        """Rename a file; what is above *to* is made, and what is there replaced."""
        self._make_folder(to)
        self.filesystem.move(name, to)

    def remove(self, name: str) -> None:
        """Delete a file; nothing if it is gone."""
        try:
            self.filesystem.delete_file(name)
        except OSError:
            if self.exists(name):
                raise

    def remove_folder(self, name: str) -> None:
        """Delete a folder with all that is in it; nothing if it is gone."""
        try:
            self.filesystem.delete_dir(name)
        except OSError:
            if self.files(name):
                raise

    def files(self, name: str) -> dict[str, int]:
        """Return each file below *name* with its bytes, by its name below that."""
        selector = self._arrow.FileSelector(name, allow_not_found=True, recursive=True)
        return {
            info.path.removeprefix(f"{name}/"): int(info.size)
            for info in self.filesystem.get_file_info(selector)
            if info.is_file
        }

    def _make_folder(self, name: str) -> None:
        # An object store has none, and takes no marker of one either.
        if self._files.type_name in HAS_FOLDERS:
            folder = f"{self._root}/{name}".rpartition("/")[0]
            self._files.create_dir(folder, recursive=True)


def for_arrow(target: str) -> str:
    """Return *target* as Arrow writes it: what Hadoop calls s3a, it calls s3."""
    if target.startswith(OF_HADOOP):
        return f"s3{target[3:]}"
    return target


def for_spark(target: str) -> str:
    """
    Return *target* as Spark has it: what Arrow and Delta call s3, Hadoop calls s3a.

    A path from the root is one of files, also where Spark has another default.
    """
    if target.startswith("s3:"):
        return f"s3a{target[2:]}"
    return f"file://{target}" if target.startswith("/") else target


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
