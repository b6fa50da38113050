"""Dumps of unhandled exceptions.

When the hook is called the stack is gone; names and lines of it are in the traceback. So the stack is built up once more, of
functions that do nothing but call each other and have these names and lines. The dump is taken in the innermost. Names leave the
process that way as they do in any dump, and nothing else: no message, no value.
"""

import sys
import threading
import types

import stackd
from stackd import _api

# Limit of frames: of a deeper stack (a RecursionError), the innermost are kept.
_MAX_FRAMES = 200


def _entries(traceback):
    entries = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        entries.append((getattr(code, "co_qualname", code.co_name), code.co_filename, traceback.tb_lineno or 1))
        traceback = traceback.tb_next
    return entries[-_MAX_FRAMES:]


def _stand_in(name, filename, line):
    """A function of this name whose one line is `line` of `filename`: it calls the first of a list with the rest."""
    code = compile("lambda rest: rest[0](rest[1:])", filename, "eval").co_consts[0]
    changes = {"co_name": name.rsplit(".", 1)[-1], "co_firstlineno": max(1, line)}
    if hasattr(code, "co_qualname"):
        changes["co_qualname"] = name
    return types.FunctionType(code.replace(**changes), {})


_timeout = 2.0


def _dump(kind, traceback):
    try:
        name = kind.__name__ if kind is not None else "exception"
        functions = [_stand_in(*entry) for entry in _entries(traceback)]
        functions += [_stand_in(f"unhandled {name}", "", 1), lambda rest: _api.dump_exception(name, _timeout)]
        functions[0](functions[1:])
    except Exception:  # Whatever happens here, the exception is reported as it would have been.
        pass


def _after_dump(hook):
    def excepthook(kind, value, traceback):
        if kind is None or not issubclass(kind, (KeyboardInterrupt, SystemExit)):
            try:
                _dump(kind, traceback)
            finally:  # Also if the user presses Ctrl-C meanwhile.
                hook(kind, value, traceback)
        else:
            hook(kind, value, traceback)

    return excepthook


def _after_dump_of_thread(hook):
    def excepthook(arguments):
        if arguments.exc_type is not SystemExit:
            try:
                _dump(arguments.exc_type, arguments.exc_traceback)
            finally:
                hook(arguments)
        else:
            hook(arguments)

    return excepthook


_installed = False


def install(timeout):
    global _installed, _timeout
    _timeout = timeout
    if _installed:
        return
    _installed = True
    stackd.install()
    sys.excepthook = _after_dump(sys.excepthook)
    threading.excepthook = _after_dump_of_thread(threading.excepthook)
