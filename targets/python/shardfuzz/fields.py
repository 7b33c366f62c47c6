"""What a worker's description has of fields and refusals (targets/worker.md), for targets that write them as tables."""
import itertools
import math


def choices(*values, **more):
    """A field with these choices, the plainest first. more: layout, one_in, needs."""
    return {"choices": list(values), **more}


def refusal(reason, **when):
    """Refuses cases whose fields have these values, all of them. Names are paths with __ for the dot: layout__tp=[2, 4]."""
    return {"when": {path.replace("__", "."): values for path, values in when.items()}, "reason": reason}


def beyond(most, sizes):
    """Refusals of layouts with more than `most` ranks. sizes: {path of a field: its numbers of ranks}, whose product is a layout's."""
    found = []
    for count in range(1, len(sizes) + 1):
        for paths in itertools.combinations(sizes, count):
            for values in itertools.product(*([size for size in sizes[path] if size > 1] for path in paths)):
                layout = set(zip(paths, values))
                if math.prod(values) > most and not any(smaller <= layout for smaller in found):
                    found.append(layout)
    return [{"when": {path: [value] for path, value in sorted(layout)}, "reason": "more ranks than shardfuzz tries"} for layout in found]
