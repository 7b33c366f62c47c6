"""Independent Q-learning of agents on a grid: torchrl's loss, target networks and replay, in DistributedDataParallel."""
import contextlib

import torch
from tensordict import TensorDict
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchrl.data import LazyTensorStorage, RandomSampler, SamplerWithoutReplacement, TensorDictReplayBuffer
from torchrl.modules import QValueActor
from torchrl.objectives import DQNLoss, HardUpdate, SoftUpdate

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU}
MOVES = torch.tensor([[0, 0], [0, 1], [0, -1], [1, 0], [-1, 0]])
FEATURES = 6
REAL, WEIGHT = ("collector", "mask"), "priority_weight"   # where torchrl's losses look for what is no padding, and for weights


# --- the grid: rows of all functions are streams, games that know nothing of each other -----------------------------------

def neighbours(positions, radius):
    """Which agents [streams, agents, agents] see each other: at most `radius` steps apart, and not the agent itself."""
    steps = (positions[:, :, None] - positions[:, None]).abs().sum(-1)
    return (steps <= radius) & ~torch.eye(positions.shape[1], dtype=torch.bool)


def rewards(before, after, goals, options, size):
    """Of each agent [streams, agents, 1]: how much nearer its goal is, a share of what its neighbours gained, less its collisions."""
    far = [(goals - positions).abs().sum(-1) / size for positions in (before, after)]
    gain, near = far[0] - far[1], neighbours(after, options["radius"]).float()
    shared = (near @ gain[..., None])[..., 0] / near.sum(-1).clamp(min=1)
    collisions = neighbours(after, 0).sum(-1)
    return (gain + options["share"] * shared - options["collision"] * collisions)[..., None]


def observations(positions, goals, options, size):
    """Of each agent [streams, agents, FEATURES]: its place, the way to its goal, the mean way to its neighbours."""
    near = neighbours(positions, options["radius"]).float()
    others = (near @ positions.float()) / near.sum(-1, keepdim=True).clamp(min=1) - positions * (near.sum(-1, keepdim=True) > 0)
    return torch.cat([positions, goals - positions, others], -1) / size


class Games:
    """The streams `rows` of all games; collect(step) plays them on, with random actions."""

    def __init__(self, case, rows):
        self.case, self.rows = case, rows
        shape = (case["data"]["streams"], case["model"]["agents"], 2)
        generator = torch.Generator().manual_seed(case["seed"])
        self.positions, self.goals = (torch.randint(case["data"]["grid"], shape, generator=generator)[rows] for _ in range(2))

    def collect(self, step):
        """Transitions of the next moves, a TensorDict [streams, moves]."""
        d, options = self.case["data"], self.case["reward"]
        generator = torch.Generator().manual_seed(self.case["seed"] * 100 + step)
        shape = (d["moves"], d["streams"], self.case["model"]["agents"])
        actions = torch.randint(len(MOVES), shape, generator=generator)[:, self.rows]
        transitions = torch.stack([self._move(action, options, d["grid"]) for action in actions], 1)
        chance = torch.rand(2, d["streams"], d["moves"], generator=generator)[:, self.rows]
        if d["padding"]:
            transitions[REAL] = chance[0, ..., None] < 0.6
        if d["weights"]:
            transitions[WEIGHT] = chance[1] + 0.25
        return transitions

    def _move(self, action, options, size):
        before, self.positions = self.positions, (self.positions + MOVES[action]).clamp(0, size - 1)
        arrived = (self.positions == self.goals).all(-1, keepdim=True)
        old, new = (observations(positions, self.goals, options, size) for positions in (before, self.positions))
        reward = rewards(before, self.positions, self.goals, options, size)
        after = {"observation": new, "reward": reward, "done": arrived, "terminated": arrived}
        return TensorDict({"observation": old, "action": action[..., None], "next": after}, [len(action)])


# --- the learner ----------------------------------------------------------------------------------------------------------

class Dueling(nn.Module):
    """Values [.., actions] of a state: its own, and what each action has over their mean."""

    def __init__(self, width):
        super().__init__()
        self.state, self.action = nn.Linear(width, 1), nn.Linear(width, len(MOVES))

    def forward(self, x):
        advantage = self.action(x)
        return self.state(x) + advantage - advantage.mean(-1, keepdim=True)


def network(m):
    """Observations [.., features] to values [.., actions]; a network that all agents share is told which agent asks."""
    width, layers = FEATURES + (m["agents"] if m["parameters"] == "shared" else 0), []
    for _ in range(m["layers"]):
        layers += [nn.Linear(width, m["width"]), *([nn.LayerNorm(m["width"])] if m["norm"] else []), ACTIVATIONS[m["activation"]]()]
        width = m["width"]
    return nn.Sequential(*layers, Dueling(width) if m["dueling"] else nn.Linear(width, len(MOVES)))


class Learner(nn.Module):
    """The loss of a batch: the mean over agents of torchrl's losses. networks: one for each agent, or one for all."""

    def __init__(self, case, networks):
        super().__init__()
        options, self.networks = case["loss"], nn.ModuleList(networks)
        actors = [QValueActor(one, in_keys=["observation"], action_space="categorical") for one in networks]
        options = {"loss_function": options["function"], "double_dqn": options["double"], "delay_value": case["target"]["update"] != "none"}
        self.losses = nn.ModuleList(DQNLoss(actor, action_space="categorical", **options) for actor in actors)
        for loss in self.losses:
            loss.make_value_estimator(gamma=case["loss"]["gamma"])

    def forward(self, batch):
        """batch: TensorDict [rows, agents]."""
        parts = [batch] if len(self.losses) == 1 else batch.unbind(1)
        return sum(loss(part)["loss"] for loss, part in zip(self.losses, parts)) / len(parts)

    def targets(self):
        """The values of all target networks, a vector of each loss."""
        for loss in self.losses:
            yield torch.cat([one.flatten() for one in loss.target_value_network_params.values(True, True)])


def updaters_of(case, learner):
    options = case["target"]
    if options["update"] == "soft":
        return [SoftUpdate(loss, tau=options["tau"]) for loss in learner.losses]
    if options["update"] == "hard":
        return [HardUpdate(loss, value_network_update_interval=options["interval"]) for loss in learner.losses]
    return []


class Replay:
    """One of torchrl's buffers for each stream, so that what is drawn of a stream is the same on any rank."""

    def __init__(self, case, streams):
        self.options, self.agents, self.shared = case["replay"], case["model"]["agents"], case["model"]["parameters"] == "shared"
        self.buffers = [self._buffer(torch.Generator().manual_seed(self.seed_of(case, stream))) for stream in streams]

    @staticmethod
    def seed_of(case, stream):
        return case["seed"] * 100 + stream

    def _buffer(self, generator):
        sampler = {"random": RandomSampler, "without-replacement": SamplerWithoutReplacement}[self.options["sampler"]]
        storage = LazyTensorStorage(self.options["capacity"])
        return TensorDictReplayBuffer(storage=storage, sampler=sampler(), batch_size=self.options["batch"], generator=generator)

    def extend(self, transitions):
        for buffer, stream in zip(self.buffers, transitions):
            buffer.extend(stream)

    def sample(self):
        """The streams' samples one behind the other: TensorDict [rows, agents]."""
        rows = torch.cat([buffer.sample() for buffer in self.buffers])
        batch = rows.select("observation", "action", "next")
        batch.batch_size = [len(rows), self.agents]
        if self.shared:
            who = torch.eye(self.agents).expand(len(rows), -1, -1)
            for part in (batch, batch["next"]):
                part["observation"] = torch.cat([part["observation"], who], -1)
        if REAL in rows.keys(True):
            batch[REAL] = rows[REAL][:, None].expand(-1, self.agents, 1)
        if WEIGHT in rows.keys():
            batch[WEIGHT] = rows[WEIGHT][:, None].expand(-1, self.agents)
        return batch


def optimizer_of(case, networks):
    name = case["optimizer"]["name"]
    kind = {"sgd": torch.optim.SGD, "momentum": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
    options = {"momentum": {"momentum": 0.9}, "adamw": {"weight_decay": 0.1}}.get(name, {})
    return kind(networks.parameters(), lr=0.02, **options)


class Agents(nn.Module):
    """The networks alone: their parameters and modules have these names, whatever wraps them."""

    def __init__(self, m):
        super().__init__()
        self.agents = nn.ModuleList(network(m) for _ in range(1 if m["parameters"] == "shared" else m["agents"]))


def parallelize(case, agents):
    """The learner of several ranks, what computes its loss, and the instances of DistributedDataParallel."""
    p = case["parallel"]
    options = {"static_graph": p["static_graph"], "bucket_cap_mb": p["bucket_mb"], "broadcast_buffers": p["broadcast_buffers"]}
    if p["wrap"] == "networks":
        wrapped = [DistributedDataParallel(one, **options) for one in agents]
        learner = Learner(case, wrapped)
        return learner, learner, wrapped
    learner = Learner(case, agents)
    wrapped = DistributedDataParallel(learner, **options)
    return learner, wrapped, [wrapped]


def make(case, mesh, fill):
    """The networks, their optimizer, and step(number, trace)."""
    ranks, streams = 1 if mesh is None else case["layout"]["dp"], case["data"]["streams"]
    rank = 0 if ranks == 1 else mesh(dp=ranks).get_local_rank()
    rows = slice(rank * streams // ranks, (rank + 1) * streams // ranks)
    model = Agents(case["model"])
    fill(model)
    learner, loss_of, wrapped = parallelize(case, model.agents) if ranks > 1 else (Learner(case, model.agents),) * 2 + ([],)
    updaters, optimizer = updaters_of(case, learner), optimizer_of(case, model)
    games, replay = Games(case, rows), Replay(case, range(streams)[rows])

    def step(number, trace):
        replay.extend(games.collect(number))
        optimizer.zero_grad()
        count = case["data"]["microbatches"]
        for k in range(count):
            trace.microbatch(k)
            with contextlib.ExitStack() as stack:
                if case["parallel"]["lazy_sync"] and k < count - 1:
                    for one in wrapped:
                        stack.enter_context(one.no_sync())
                loss = loss_of(replay.sample())
                trace.scalar("loss", loss.detach())
                (loss / count).backward()
        trace.gradients()
        if case["optimizer"]["clip"]:
            trace.scalar("grad_norm", nn.utils.clip_grad_norm_(model.parameters(), case["optimizer"]["clip"]))
        optimizer.step()
        for updater in updaters:
            updater.step()
        for agent, values in enumerate(learner.targets() if case["target"]["update"] != "none" else ()):
            trace.scalar(f"target_norm.{agent}", values.norm())
    return model, optimizer, step
