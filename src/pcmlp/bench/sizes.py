"""How large what is measured is."""

from dataclasses import dataclass

Plans = tuple[int, int, tuple[int, ...]]  # plans, their length, the model's hidden layers


@dataclass(frozen=True)
class PetsPlan:
    """What a plan of PETS takes: 525,000 steps of a net by default."""

    plans: int = 350
    length: int = 15
    particles: int = 20
    iterations: int = 5
    members: int = 5
    net: tuple[int, ...] = (200, 200, 200, 200)


@dataclass(frozen=True)
class Sizes:
    """The defaults are what the promised numbers mean; tests shrink them."""

    net: tuple[int, ...] = (500, 500)  # model and phi
    samples: int = 2_000  # real steps the model is trained on
    model_steps: int = 100
    updates: int = 40
    streams: int = 80
    length: int = 50
    seeds: tuple[int, ...] | None = None  # besides 1; none: 2, 4 on a CPU, 4, 16, 64 elsewhere
    squares: tuple[int, ...] | None = None  # of the products that show the peak; none: by the device
    small: Plans = (200, 30, (64, 64))  # of MPPI
    large: Plans = (1_000, 30, (500, 500))
    pets: PetsPlan = PetsPlan()
    fourier: int = 20  # features of MPPI's bonus
    repeats: int = 5  # of a round
    seconds: float = 2.0  # to go on repeating anything shorter
    solve: bool = True  # time whole runs as well
    host: str = ""  # a task whose real steps are a simulator's, to see where an iteration's time goes; none: not asked
    host_seeds: int = 4
    host_settings: tuple[str, ...] = ()
