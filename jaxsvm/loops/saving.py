"""Save the state of a run after every chunk.

A file that cannot be written does not end the run.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable
from typing import Any

import jax

from .. import models
from ..checks import as_path, caller_stacklevel
from ..files import check_target
from ..types import Fit, State


class SaveError(OSError):
    """A run ended, but its last state could not be saved; `run` is the whole `Fit`.

    Example:
        >>> import jaxsvm
        >>> try:
        ...     raise jaxsvm.SaveError("no space left", "the run")
        ... except jaxsvm.SaveError as error:
        ...     error.run
        'the run'
    """

    run: Fit

    def __init__(self, message: str, run: Any = None) -> None:
        """Keep the run with the message."""
        super().__init__(message)
        self.run = run


class Saver:
    """A writer that saves each state to one file.

    It warns of the first failure, and keeps the error of the last one.
    """

    def __init__(self, path: str | bytes | os.PathLike | None) -> None:
        """Raise for a file that cannot be written, before anything runs.

        Args:
            path: the file; None: nothing is saved.

        Raises:
            TypeError: not a path.
            FileNotFoundError: the folder does not exist.
            OSError: a folder, a pipe, a device.
        """
        self.path: Any = None if path is None else as_path("save", path)
        self.error: OSError | None = None
        self.unsaved: Any = None  # the state whose saving Ctrl-C cut short
        self.warned = False
        if path is not None:
            check_target(path)
        self.version = self._version()  # as this run knows the file

    def _version(self) -> tuple[int, int] | None:
        """When the file was written, and its size; None without a file."""
        if self.path is None or not os.path.isfile(self.path):
            return None
        about = os.stat(self.path)
        return about.st_mtime_ns, about.st_size

    def check(self, state: State) -> None:
        """Raise for a state, or the shapes of one, that no file can hold, before anything runs.

        Raises:
            ValueError: with what to register.
        """
        if self.path is not None:
            models.check_savable(jax.tree.map(lambda _: 0, state))

    def save(self, state: State) -> None:
        """Save a state; warn of the first failure only, and try again with the next state."""
        if self.path is not None:
            self.unsaved = state
            self.write(lambda path: models.save(path, state))
            self.unsaved = None

    def write(self, writer: Callable[[str], None]) -> None:
        """Call `writer` with the path; warn of its first failure only.

        A file that another run has written meanwhile is left as it is, which is a failure, too.
        """
        try:
            if self._version() not in (None, self.version):
                raise OSError("another run has written this file meanwhile: save each to its own")
            try:
                writer(self.path)
            finally:
                self.version = self._version()
            self.error = None
        except OSError as error:
            self.error = error
            if not self.warned:
                self.warned = True
                # a filter may turn the warning into an error, which would end the run
                with contextlib.suppress(UserWarning):
                    what = f"the state could not be saved to {self.path} ({error})"
                    goes_on = "the run goes on, the next state is tried again"
                    warnings.warn(f"{what}: {goes_on}", stacklevel=caller_stacklevel())

    def finish(self, run: Fit, *, raises: bool = False) -> Fit:
        """The run, provided that its last state was saved.

        Args:
            run: the result.
            raises: raise KeyboardInterrupt in any case.

        Raises:
            SaveError: the last state was not saved; with the run.
            KeyboardInterrupt: if `raises`; with the run as `run`.
        """
        if self.unsaved is not None:
            self.save(self.unsaved)
        if raises:
            where = "in the field run of this exception; with on_interrupt='return' it is returned"
            interrupt: Any = KeyboardInterrupt(f"{run.status} (the run is {where})")
            interrupt.run = run
            raise interrupt from self.error
        if self.error is None:
            return run
        raise SaveError(
            f"the run stands at step {int(run.state.step)}, but its state could not be saved to "
            f"{self.path} ({self.error}): it is in the field run of this exception, save it "
            "elsewhere, jaxsvm.models.save(path, error.run.state)",
            run,
        ) from self.error
