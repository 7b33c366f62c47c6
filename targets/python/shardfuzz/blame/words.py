"""What the values tell, in a sentence."""
from typing import Dict, List

from .search import CONSTANT, Match, OutOfTime, Reference, Search, is_form, maker

CHAIN_MAX, INPUTS_MAX = 4, 3


def _name(value: dict) -> str:
    if not value["operation"]:
        return value["name"] or f"a tensor of shape {[] if value['value'] is None else list(value['value'].shape)} from outside"
    return value["operation"] + (f" ({'backward of ' if value['backward'] else ''}{value['where']})" if value["where"] else "")


def _does(value: dict) -> str:
    return f"{_name(value)} {'gives' if value['operation'] else 'is'}"


def _of_right_value(match: Match, is_it: bool, own: dict, other: dict, should: dict) -> str:
    """About a wrong tensor whose value the single-device run has as well. other: what has it there; should: what the tensor is there; is_it: that is the same."""
    elsewhere = f"what {_does(other)} on one device, instead of what {_does(should)}"
    if not match.of_one:
        return f"{_does(own)} a part of the result on each rank: {match.words} with {'it' if is_it else elsewhere}"
    if match.is_part:
        return f"{_does(own)} {'another part of the result than this rank should have' if is_it else 'a part of ' + elsewhere}"
    return "" if is_it else f"{_does(own)} {elsewhere}"


def _of_first_wrong(search: Search, number: int, chain: List[int]) -> str:
    values = search.values
    reads = list(dict.fromkeys(f"{_name(maker(values, one))}: {search.match(one).words}" for one in values[number]["inputs"]
                               if search.match(one) not in (None, CONSTANT)))
    while chain and is_form(values[number]):  # such as a buffer of several: what is made of it says more
        number, chain = chain[0], chain[1:]
    then = list(dict.fromkeys(_name(values[one]) for one in chain if not is_form(values[one])))
    return (f"{_name(values[number])} is the first whose result agrees with nothing on one device; it reads {'; '.join(reads[:INPUTS_MAX])}"
            + (f"; then {', '.join(then[:CHAIN_MAX])}" if then else ""))


def _explain(tensor: str, search: Search, reference: dict) -> str:
    there = reference["values"]
    values, wanted, match = search.values, search.wanted, search.match(search.wanted)
    made = maker(values, wanted)
    if match is CONSTANT:
        value = values[wanted]["value"]
        return f"{_does(made)} {float(value.flatten()[0]):g} everywhere" if made["operation"] and value.numel() > 1 else ""
    if match is None:
        found = search.first_wrong()
        return _of_first_wrong(search, *found) if found is not None else ""
    if not made["operation"] and not made["name"]:
        return ""  # nothing says where it comes from
    is_it = search.reference.same(there[match.which]["value"], there[reference["wanted"]]["value"])
    if is_it and match.of_one and "/act_grad/" in tensor:
        return ""  # it is scaled where it is recorded: of its own value it is not known what is right
    return _of_right_value(match, is_it, made, maker(there, match.which), maker(there, reference["wanted"]))


def explain(tensor: str, reference: dict, ranks: Dict[int, dict], rank: int) -> str:
    """A sentence about the operation that made the tensor of that name wrong on that rank, or for -1 on the first of which something can be said; "" where the
    values do not tell. reference: Recording.noted() of the single-device run. ranks: as recording.read gives them."""
    holders = [one for one in sorted(ranks) if ranks[one]["wanted"] is not None]
    if reference["wanted"] is None:
        return ""
    known = Reference(reference["values"])
    try:
        return next(filter(None, (_explain(tensor, Search(known, ranks, one), reference) for one in ([rank] if rank in holders else holders))), "")
    except OutOfTime:
        return ""
