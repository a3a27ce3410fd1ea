"""What the command line takes: a record for each command, with its flags and what it runs.

Numbers stay text until they are parsed with the settings: every error reads the same. Nothing here imports JAX before a
command runs, so that help is quick.
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
