"""The ways in which a campaign runs under faults: a table of commands that each end within seconds, with findings where a way has them."""
import dataclasses
import os

TREE = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
SMALL = ["--set", "model.layers=1..2", "--set", "train.steps=1"]
ROWPARALLEL = ["--plant", "rowparallel-bias-xtp", "--mode", "isolated", "--set", "layout.tp=2", "--set", "model.bias=true", "--shrink-budget", "10"]


@dataclasses.dataclass
class Way:
    cases: int
    seconds: float  # roughly, from start to end, when nothing happens
    weight: int     # how often it is drawn
    options: list
    ranks: int = 0  # above 0: inside an MPI job of so many
    mpi: bool = False
    seeds: int = 2  # campaigns with as many seeds are run undisturbed, for comparison

    def needs(self, build):
        """Files without which it cannot run."""
        plugin = next((option.removeprefix("plugin:") for option in self.options if option.startswith("plugin:")), None)
        return [plugin.format(build=build)] if plugin else []

    def command(self, program, build, seed, folder):
        """The command that starts the campaign, and goes on with it where there is a store already."""
        before = ["mpirun", "--oversubscribe", "-n", str(self.ranks)] if self.ranks else []
        options = [option.format(build=build, tree=TREE, n="{n}") for option in self.options]
        return before + [program, "fuzz", "--seed", str(seed), "--cases", str(self.cases), "--store", f"{folder}/store.sqlite", "--out", f"{folder}/out", "--resume",
                         "--json"] + options


WAYS = {
    "sim": Way(10, 0.8, 8, ["--jobs", "2", "--max-ranks", "4", "--shrink-budget", "15", "--plant", "canary-crash", "--plant", "rowparallel-bias-xtp", *SMALL]),
    "clean": Way(20, 0.6, 4, ["--jobs", "2", "--max-ranks", "4", *SMALL]),
    "operations": Way(3000, 0.2, 3, ["--jobs", "2", "--target", "op:all"]),
    "plugin": Way(400, 0.3, 3, ["--jobs", "2", "--target", "plugin:{build}/plugins/tail_skipped.so"]),
    "framework": Way(3, 1.6, 2, ["--jobs", "1", "--shrink-budget", "5", "--target", "worker:python3 -S {tree}/targets/samples/worker_mlp.py", "--launcher",
                                 "{tree}/tests/integration/launch_ranks.sh {n}"]),
    "launched": Way(4, 2.5, 1, ["--launcher", "mpirun --oversubscribe -n {n}", "--max-ranks", "2", *SMALL, *ROWPARALLEL], mpi=True),
    "inside": Way(4, 2.5, 1, ["--backend", "mpi", "--max-ranks", "2", *SMALL, *ROWPARALLEL], ranks=2, mpi=True),
}
