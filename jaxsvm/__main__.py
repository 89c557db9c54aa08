"""The command line `python -m jaxsvm`.

Without arguments it runs the main job; `train`, `predict`, `sweep` and `convert` work on files.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence

import jax

import jaxsvm
from jaxsvm.commands import convert, demo, predict, sweep, train
from jaxsvm.commands.options import Parser

EXAMPLES = """\
examples:
  jaxsvm train adult.svm --test adult.t --model adult.npz     a linear machine, and its error
  jaxsvm train adult.svm --kernel rbf --features nystrom --hold-out 0.2 --model adult.npz
  jaxsvm predict adult.npz new.svm --out classes.txt          a class name for each row
  jaxsvm sweep adult.svm --plot sweep.png                     find good values of lambda and sigma
  jaxsvm convert adult.svm adult.csv                          from one format to another

files: svmlight (LIBSVM), also .gz and .bz2; .npz with arrays x and y; CSV with a column of labels
(the last). `jaxsvm train --help` explains the options of a command. Without a command a small real
data set is swept, as a demonstration.
"""


def parser() -> Parser:
    """All commands and their options."""
    main_parser = Parser(
        prog="jaxsvm", description="Support vector machines from the command line.", epilog=EXAMPLES
    )
    main_parser.add_argument("--version", action="version", version=jaxsvm.__version__)
    commands = main_parser.add_subparsers(
        dest="command", metavar="command", required=True, parser_class=Parser
    )
    for each in (train, predict, sweep, convert):
        each.add(commands)
    return main_parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: its arguments; None: those of the process.

    Returns:
        The exit status: 0; 2 for bad input, said in one line on the standard error stream; 130
        after Ctrl-C.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *rest, **more: say(f"warning: {message}")
        try:
            if not argv:
                demo.main()
                return 0
            args = parser().parse_args(argv)
            return args.run(args)
        except KeyboardInterrupt:
            say("interrupted; nothing was written")
            return 130
        except BrokenPipeError:  # `jaxsvm predict ... | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 1
        except OSError as error:
            reason = error.strerror
            say(
                f"error: {error.filename}: {reason.lower()}"
                if reason and error.filename
                else f"error: {error}"
            )
        except MemoryError:
            say("error: not enough memory for these rows")
        except (ValueError, TypeError, ImportError) as error:
            say(f"error: {error}")
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            say(
                "error: not enough memory for these rows; fewer features (--count) or rows take "
                "less"
            )
    return 2


def say(text: str) -> None:
    """One line on the standard error stream."""
    print(f"jaxsvm: {' '.join(text.split())}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
