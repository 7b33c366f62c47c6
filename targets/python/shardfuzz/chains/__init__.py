"""What targets share whose case is a chain of operations, `op.1` to `op.4` of its fields: the chain, and the names of its tensors in traces. `exact` has the
values of its tensors, `limited` a limit of time."""

CHAIN = 4
NONE = "none"
OTHERS = ["same", "row", "column", "scalar"]             # shapes of a second operand: shardfuzz.chains.exact.broadcast_shape
INPUT = "s0/mb0/fwd/act/0.input/0"


def fields(names, arguments):
    """The fields of all operations, and where they do something. names: of the operations. arguments: {field: its choices, the plainest first}."""
    found = {}
    for number in range(1, CHAIN + 1):
        name, before = f"op.{number}.name", f"op.{number - 1}.name"
        found[name] = {"choices": names if number == 1 else [NONE, *names], "one_in": number, **({"needs": {before: names}} if number > 2 else {})}
        for part, choices in arguments.items():
            found[f"op.{number}.{part}"] = {"choices": choices, "one_in": 3, **({"needs": {name: names}} if number > 1 else {})}
    return found


def operations_of(case, make):
    """[make(case, number)] of the operations up to the first NONE."""
    numbers = range(1, CHAIN + 1)
    last = next((number for number in numbers if case["op"][str(number)]["name"] == NONE), CHAIN + 1)
    return [make(case, number) for number in range(1, last)]


def name_of(number, kind):
    """An operation's name in traces, "2.cumsum"; a "~" of a table is left out."""
    return f"{number}.{kind.lstrip('~').replace('.', '-')}"


def act(operation, place, part=""):
    """The name of result number `place`. operation: has a `name`."""
    return f"s0/mb0/fwd/act/{operation.name}{part and '.' + part}{f':{place}' if place else ''}/0"


def gradient_of(operation, name=""):
    """The name of the gradient of the operation's first argument, or of the operand with that name."""
    return f"s0/mb0/bwd/act_grad/{operation.name}{f'.{name}' if name else ''}/0"
