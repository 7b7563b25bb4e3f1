"""Evidence by content: a blob's name is the SHA-256 of its bytes, so nobody can exchange it unseen.

Public blobs are evidence and stay. Private ones (outputs of jobs) lie in a tree of their own, readable by this user
only, begin with a salt so that nobody can try out likely contents, and can be deleted.
"""

import errno
import hashlib
import os
import re
import secrets
import tempfile
from pathlib import Path

from events.errors import BlobMissing, DiskFull, LedgerDamaged, LedgerError, LedgerReadOnly

SALT_BYTES = 32

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_ACCESS = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


class BlobStore:
    """Files under `directory`: `public/ab/<hex>` and `private/ab/<hex>`, ab being the first two digits of the hash."""

    def __init__(self, directory: str | Path) -> None:
        self._public = Path(directory) / "public"
        self._private = Path(directory) / "private"

    def put(self, data: bytes, *, private: bool = False, salt: bytes | None = None) -> str:
        """Keep these bytes; they are on disk when this returns. Returns `sha256:<64 hex>`.

        A private blob is stored, and named, with a salt of 32 bytes in front, random unless given.

        Raises: DiskFull, LedgerReadOnly
        """
        if private:
            salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
            if len(salt) != SALT_BYTES:
                raise ValueError(f"the salt of a blob has {SALT_BYTES} bytes")
            data = salt + data
        digest = hashlib.sha256(data).hexdigest()
        tree = self._private if private else self._public
        path = _place(tree, digest)
        if not _holds(path, data):
            try:
                _write(tree, path, data, private=private)
            except OSError as error:
                raise _explained(path, error) from error
        return f"sha256:{digest}"

    def get(self, digest: str) -> bytes:
        """The bytes that were put in, a private blob's without its salt.

        Raises: BlobMissing, LedgerDamaged (the stored bytes have another hash)
        """
        path, private = self._find(digest)
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise BlobMissing(f"no blob {digest}") from error
        except OSError as error:
            raise _explained(path, error) from error
        if hashlib.sha256(data).hexdigest() != path.name:
            raise LedgerDamaged(
                f"blob {digest} is damaged", hint="restore the file from a backup of the blob directory"
            )
        return data[SALT_BYTES:] if private else data

    def has(self, digest: str) -> bool:
        """Whether the store holds this blob; nothing is read."""
        try:
            self._find(digest)
        except BlobMissing:
            return False
        return True

    def delete(self, digest: str) -> bool:
        """Delete a private blob for good. Returns whether there was one; public blobs are never deleted."""
        if not _DIGEST.fullmatch(digest):
            return False
        path = _place(self._private, digest.removeprefix("sha256:"))
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _explained(path, error) from error
        _sync(path.parent)
        return True

    def _find(self, digest: str) -> tuple[Path, bool]:
        if _DIGEST.fullmatch(digest):
            name = digest.removeprefix("sha256:")
            for tree, private in ((self._public, False), (self._private, True)):
                if (path := _place(tree, name)).is_file():
                    return path, private
        raise BlobMissing(f"no blob {digest}")


def _place(tree: Path, name: str) -> Path:
    return tree / name[:2] / name


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except OSError:
        return False


def _write(tree: Path, path: Path, data: bytes, *, private: bool) -> None:
    """A temporary file first, so that a name never stands for half of its bytes."""
    mode = 0o700 if private else 0o755
    for directory in (tree.parent, tree, path.parent):
        if not directory.is_dir():
            directory.mkdir(mode=mode, parents=True, exist_ok=True)
            _sync(directory.parent)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), 0o600 if private else 0o644)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).rename(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync(path.parent)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _explained(path: Path, error: OSError) -> LedgerError:
    if error.errno in _NO_ROOM:
        return DiskFull(f"{path}: {error.strerror}")
    if error.errno in _NO_ACCESS:
        return LedgerReadOnly(f"{path}: {error.strerror}")
    return LedgerDamaged(f"{path}: {error.strerror}")
