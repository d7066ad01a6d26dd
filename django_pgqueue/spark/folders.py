"""
Folders: files where Spark writes them, whatever file system that is.

The calls go through Hadoop's FileSystem, in Spark's own Java process: what Spark can
write to, such as file:, hdfs:, s3a:, gs: and abfss:, can be moved and listed too.
"""

from __future__ import annotations

from typing import Any

from django_pgqueue.exceptions import SparkError
from django_pgqueue.spark.jvm import file_system


class Folder:
    """
    A folder of some file system; names in it are given with `/` between.

    Raises:
        SparkError: Spark knows no such file system, or the session is one of Connect.
    """

    def __init__(self, session: Any, path: str) -> None:
        self._files, self._root, self._path = file_system(session, path)

    def path(self, name: str = "") -> str:
        """Return the URI of the folder, or of what is called *name* in it."""
        return str(self._of(name).toString())

    def exists(self, name: str) -> bool:
        """Whether there is such a file or folder."""
        return bool(self._files.exists(self._of(name)))

    def touch(self, name: str) -> None:
        """Make an empty file."""
        self._files.create(self._of(name), True).close()

    def move(self, name: str, to: str) -> None:
        """
        Rename a file or folder; what is above *to* is made.

        On file: and hdfs: one step, on an object store one for each file.

        Raises:
            SparkError: There is something called *to*, or nothing called *name*.
        """
        # Else Hadoop would move it into a folder of that name.
        if self.exists(to):
            raise SparkError(f"{self.path(to)} exists, and is not replaced.")
        self._files.mkdirs(self._of(to).getParent())
        if not self._files.rename(self._of(name), self._of(to)):
            raise SparkError(f"{self.path(name)} cannot be moved to {self.path(to)}.")

    def remove(self, name: str) -> None:
        """Delete a file, or a folder with all that is in it; nothing if it is gone."""
        self._files.delete(self._of(name), True)

    def names(self, name: str) -> list[str]:
        """Return what is directly in a folder; nothing if it does not exist."""
        if not self.exists(name):
            return []
        found = self._files.listStatus(self._of(name))
        return sorted(str(status.getPath().getName()) for status in found)

    def files(self, name: str) -> dict[str, int]:
        """Return each file below *name* with its bytes, by its name below that."""
        top = self._of(name)
        if not self._files.exists(top):
            return {}
        start = len(str(top.toString())) + 1
        found, listed = {}, self._files.listFiles(self._files.makeQualified(top), True)
        while listed.hasNext():
            status = listed.next()
            found[str(status.getPath().toString())[start:]] = int(status.getLen())
        return found

    def _of(self, name: str) -> Any:
        return self._path(self._root, name) if name else self._root
