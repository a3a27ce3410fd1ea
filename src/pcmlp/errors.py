"""The errors that the library raises on purpose: one line each, which says what is wrong and what to do."""


class ConfigError(ValueError):
    """Bad input: one line that names what is wrong and what to do. The command line exits with code 2."""


class RunStopped(RuntimeError):
    """A run that cannot continue although its input was good: one line that says why and what to do. The command line
    exits with code 1; the last checkpoint is complete."""


class EnvironmentFault(RunStopped):
    """An environment that misbehaved too often: one line that names it, its last fault, the number of faults and what
    to do. No data of a faulty episode were used."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its kind."""
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__
