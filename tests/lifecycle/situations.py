"""What every specimen has to go through. Each function runs in a process of its own, which then ends as programs do: with
exit code 0 and nothing on stderr, unless something is wrong."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import weightstore
from lifecycle.specimens import Anchor, Specimen

kept: list[Any] = []  # until the interpreter has gone


class Boom(Exception):
    """Raised by a callback."""


# ---- tools ---------------------------------------------------------------------------------------------------------


class Child:
    """A process forked from this one, which does its work and then lives on until it is dismissed."""

    _dismissals: ClassVar[set[int]] = set()  # of all children; a child must not keep those of others open

    def __init__(self, work: Callable[[], object]) -> None:
        dismissed, self._dismissal = os.pipe()
        self._done, done = os.pipe()
        self._dismissals.add(self._dismissal)
        self._id = os.fork()
        if self._id == 0:
            for fd in self._dismissals:
                os.close(fd)
            signal.alarm(20)
            code = 1
            try:
                work()
                code = 0
                os.close(done)
                os.read(dismissed, 1)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        os.close(dismissed)
        os.close(done)

    def wait(self) -> None:
        """Until the work is done."""
        os.read(self._done, 1)

    def dismiss(self) -> None:
        self._dismissals.remove(self._dismissal)
        os.close(self._dismissal)
        os.close(self._done)
        code = os.waitstatus_to_exitcode(os.waitpid(self._id, 0)[1])
        assert code == 0, "the child hangs" if code == -signal.SIGALRM else f"the child ended with {code}"


def refusals(specimen: Specimen, *, at_once: bool) -> tuple[type[BaseException], ...]:
    """What using the thing may raise when others may be using it `at_once`."""
    return (weightstore.ConflictError,) if specimen.exclusive and at_once else ()


def use_in_child(specimen: Specimen, thing: Any, expected: Any, *, at_once: bool = False) -> None:
    """Uses the thing; or gets a clear error where the specimen says so."""
    if specimen.refused_in_child:
        # What a pager has in memory needs no reading, and other threads of the parent may have held all of it.
        try:
            assert specimen.use(thing) == expected
        except weightstore.InvalidArgument as error:
            assert "forked process" in str(error), error
    else:
        with suppress(*refusals(specimen, at_once=at_once)):
            assert specimen.use(thing) == expected
    if specimen.close is not None:
        specimen.close(thing)


@contextmanager
def other_threads_at_work(specimen: Specimen, thing: Any, expected: Any) -> Iterator[None]:
    done, began = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            while not done.is_set():
                with suppress(*refusals(specimen, at_once=True)):
                    assert specimen.use(thing) == expected
                began.set()
        except BaseException as error:
            failures.append(error)
            began.set()

    threads = [threading.Thread(target=work) for _ in range(1 if specimen.exclusive else 2)]
    for thread in threads:
        thread.start()
    began.wait()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def made(specimen: Specimen, where: Path, anchor: Anchor | None = None) -> tuple[Any, Any]:
    thing = specimen.make(where, anchor or Anchor())
    return thing, specimen.use(thing)


def in_the_background(specimen: Specimen, where: Path) -> tuple[Any, Any, Callable[[], object]]:
    """A thing, what using it returns, and how to wait for the work that it has begun."""
    assert specimen.begin is not None
    anchor = Anchor()
    thing, expected = made(specimen, where, anchor)
    anchor.pause = 0.02
    return thing, expected, specimen.begin(thing)


# ---- fork ----------------------------------------------------------------------------------------------------------


def fork_idle(specimen: Specimen, where: Path) -> None:
    thing, expected = made(specimen, where)
    child = Child(lambda: use_in_child(specimen, thing, expected))
    if not specimen.exclusive:
        assert specimen.use(thing) == expected
    child.wait()
    assert specimen.use(thing) == expected
    child.dismiss()


def fork_while_other_threads_work(specimen: Specimen, where: Path) -> None:
    thing, expected = made(specimen, where)
    with other_threads_at_work(specimen, thing, expected):
        children = [Child(lambda: use_in_child(specimen, thing, expected, at_once=True)) for _ in range(3)]
    for child in children:
        child.wait()
    assert specimen.use(thing) == expected
    for child in children:
        child.dismiss()


def fork_during_background_work(specimen: Specimen, where: Path) -> None:
    thing, expected, finish = in_the_background(specimen, where)
    child = Child(lambda: use_in_child(specimen, thing, expected, at_once=True))
    child.wait()
    finish()
    assert specimen.use(thing) == expected
    child.dismiss()


def fork_after_close(specimen: Specimen, where: Path) -> None:
    thing, _ = made(specimen, where)
    assert specimen.close is not None
    specimen.close(thing)
    Child(lambda: expect_closed(specimen, thing)).dismiss()


# ---- the end of the interpreter ------------------------------------------------------------------------------------


def exit_idle(specimen: Specimen, where: Path) -> None:
    kept.append(made(specimen, where))


def exit_while_a_daemon_works(specimen: Specimen, where: Path) -> None:
    thing, expected = made(specimen, where)
    began = threading.Event()

    def work() -> None:
        while specimen.use(thing) == expected:
            began.set()

    threading.Thread(target=work, daemon=True).start()
    began.wait()


def exit_while_a_thread_works(specimen: Specimen, where: Path) -> None:
    thing, expected = made(specimen, where)
    last = threading.main_thread()

    def work() -> None:
        while last.is_alive():
            assert specimen.use(thing) == expected
        assert specimen.use(thing) == expected

    threading.Thread(target=work).start()


def exit_during_background_work(specimen: Specimen, where: Path) -> None:
    kept.append(in_the_background(specimen, where))


def exit_after_close(specimen: Specimen, where: Path) -> None:
    thing, _ = made(specimen, where)
    assert specimen.close is not None
    specimen.close(thing)
    kept.append(thing)


# ---- reference cycles ----------------------------------------------------------------------------------------------


def in_a_reference_cycle(specimen: Specimen, where: Path) -> None:
    for close in (False, True):
        anchor = Anchor()
        anchor.thing = specimen.make(where, anchor)
        specimen.use(anchor.thing)
        if specimen.begin is not None:
            specimen.begin(anchor.thing)()
        if close and specimen.close is not None:
            specimen.close(anchor.thing)
        alive = weakref.ref(anchor)
        del anchor
        gc.collect()
        assert alive() is None, "the cycle was not collected"


def in_a_cycle_with_an_error(specimen: Specimen, where: Path) -> None:
    """What failed is in the traceback of the error, and the error is kept."""
    anchor = Anchor()
    anchor.thing = specimen.make(where, anchor)
    anchor.failure = Boom()
    try:
        specimen.use(anchor.thing)
    except Boom as error:
        anchor.error = error
    alive = weakref.ref(anchor)
    del anchor
    gc.collect()
    assert alive() is None, "the cycle was not collected"


# ---- use -----------------------------------------------------------------------------------------------------------


def expect_closed(specimen: Specimen, thing: Any) -> None:
    assert specimen.close is not None
    specimen.close(thing)  # again
    try:
        specimen.use(thing)
    except ValueError as error:  # as Python's own files
        assert "closed" in str(error) or "released" in str(error), error
    else:
        raise AssertionError("a closed thing was used")


def use_after_close(specimen: Specimen, where: Path) -> None:
    thing, _ = made(specimen, where)
    expect_closed(specimen, thing)


def in_inference_mode(specimen: Specimen, where: Path) -> None:
    import torch

    with torch.inference_mode():
        thing, expected = made(specimen, where)
    assert specimen.use(thing) == expected
    with torch.inference_mode():
        assert specimen.use(thing) == expected
    assert specimen.use(thing) == expected


def a_callback_raises(specimen: Specimen, where: Path) -> None:
    anchor = Anchor()
    thing = specimen.make(where, anchor)
    expected = specimen.use(thing)
    boom = Boom()
    anchor.failure = boom
    try:
        specimen.use(thing)
    except Boom as error:
        assert error is boom
    else:
        raise AssertionError("the error of the callback was lost")
    assert specimen.use(thing) == expected


# ---- all of them ---------------------------------------------------------------------------------------------------


def fits(situation: Callable[[Specimen, Path], None], specimen: Specimen) -> bool:
    if situation in (fork_after_close, exit_after_close, use_after_close):
        return specimen.close is not None
    if situation in (fork_during_background_work, exit_during_background_work):
        return specimen.begin is not None
    if situation is exit_while_a_daemon_works:
        return not specimen.torch_class  # torch itself aborts when a daemon is inside one of its calls
    if situation in (a_callback_raises, in_a_cycle_with_an_error):
        return specimen.calls_back
    return True


SITUATIONS = {
    situation.__name__: situation
    for situation in (
        fork_idle,
        fork_while_other_threads_work,
        fork_during_background_work,
        fork_after_close,
        exit_idle,
        exit_while_a_daemon_works,
        exit_while_a_thread_works,
        exit_during_background_work,
        exit_after_close,
        in_a_reference_cycle,
        in_a_cycle_with_an_error,
        use_after_close,
        in_inference_mode,
        a_callback_raises,
    )
}
