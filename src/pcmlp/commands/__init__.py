"""The commands of the command line: a dataclass for each command, with its flags and its `run` method.

Numbers stay text until they are parsed with the settings, so that all errors have the same form. JAX is imported only
when a command runs, so that help is quick.
"""

from typing import Annotated

from tyro.conf import subcommand

from pcmlp.commands.machine import Bench, Doctor, List, Theory
from pcmlp.commands.results import Paper, Report, Watch
from pcmlp.commands.runs import Eval, Export, Plan, Train

Command = (
    Annotated[List, subcommand("list")]
    | Annotated[Train, subcommand("train")]
    | Annotated[Eval, subcommand("eval")]
    | Annotated[Plan, subcommand("plan")]
    | Annotated[Export, subcommand("export")]
    | Annotated[Paper, subcommand("paper")]
    | Annotated[Report, subcommand("report")]
    | Annotated[Watch, subcommand("watch")]
    | Annotated[Bench, subcommand("bench")]
    | Annotated[Theory, subcommand("theory")]
    | Annotated[Doctor, subcommand("doctor")]
)
