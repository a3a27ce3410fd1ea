"""What replaces ln |Upsilon| for a continuous class of linear MDPs (paper: the footnote on Yang and Wang, section 3).

The class is phi^T M psi, where the d rows of M are distributions over d' indices. Its net, a finite set of members, has
a fineness m. Its members have the rows k / T with whole numbers k >= 0 that sum to T = m + d' - 1. For every M there is
a member with M <= (1 + kappa) M_net, and so P <= (1 + kappa) P_net everywhere, kappa = (d' - 1) / m:

    ln of the net's size = d ln (m + 2 d' - 2 over d' - 1)                    about d (d' - 1) ln m

So the lemma about maximum likelihood over a finite class holds here too, with `log_members` in place of ln |Upsilon|
(docs/theory.md, a continuous class).
"""

import math

_FINENESS = [2**power for power in range(60)]


def log_members(samples: int, N: int, dim: int, core_dim: int, delta: float, tolerance: float = 0.0) -> float:
    """Return the D with sum TV^2 <= 2 (D + ln(N / delta)) over `samples` samples, with probability 1 - delta, for each
    of N fits whose log-likelihood is within `tolerance` nats of the largest one. Each fineness of the net gives such a
    D, and the least one is returned."""
    union = math.log(N / delta)

    def at(m: int) -> float:
        kappa = (core_dim - 1) / m
        hellinger = log_net(m, dim, core_dim) + union + tolerance / 2 + samples * math.log1p(kappa) / 2
        return (math.sqrt(hellinger) + kappa * math.sqrt(samples / 2)) ** 2 - union

    return min(map(at, _FINENESS))


def log_net(m: int, dim: int, core_dim: int) -> float:
    """Return ln of the size of the net of fineness m."""
    return dim * math.fsum(math.log((m + core_dim - 1 + i) / i) for i in range(1, core_dim))
