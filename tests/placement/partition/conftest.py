"""Registers the family's solvers where the registry does not have them yet."""

from moeplan.placement.registry import SolverInfo, register, solvers_of

P_ = ".partition."
SOLVERS = (
    SolverInfo("partition", "auto", ".partition.ours:exact", "the optimum, proven", exact=True, anytime=True),
    SolverInfo("partition", "no_exp", ".partition.published:no_exp", "all experts on the GPU",
               published="NeuPIMs; NoExp in Sieve 7.1"),
    SolverInfo("partition", "all_exp", ".partition.published:all_exp", "all experts on PIM",
               published="PAPI, Stratum; AllExp in Sieve 7.1"),
    SolverInfo("partition", "pimoe", ".partition.published:pimoe",
               "the busiest channel's most popular expert to the GPU until that is slower",
               published="PIMoE, as described in Sieve 7.1"),
    SolverInfo("partition", "sieve", ".partition.published:sieve",
               "the most popular expert to the GPU until the total would rise", published="Sieve 5"),
    SolverInfo("partition", "fast", ".partition.ours:fast",
               "relaxation, rounding and a short search, with a bound: for the critical path"),
    SolverInfo("partition", "exact", ".partition.ours:exact",
               "relaxation and a search by reduced costs until the optimum is proven",
               exact=True, anytime=True),
    SolverInfo("partition", "annealing", ".partition.annealing:annealing",
               "move or exchange single experts", anytime=True, uses_start=True),
    SolverInfo("partition", "ilp", ".partition.ilp:ilp",
               "integer program over classes of equal experts (PuLP, CBC), with its bound",
               exact=True, anytime=True),
    SolverInfo("partition", "cpsat", ".partition.cpsat:cpsat",
               "CP-SAT over classes of equal experts, with its bound", exact=True, anytime=True),
)  # fmt: skip

if "exact" not in solvers_of("partition"):
    for info in SOLVERS:
        register(info)
