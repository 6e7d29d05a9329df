"""What can be chosen by name, and added from outside: datasets and experiments."""

import difflib
import importlib.metadata
import pkgutil
from collections.abc import Collection, Mapping
from typing import Any, Generic, TypeVar

Thing = TypeVar("Thing")  # has a name


def hint(name: str, known: Collection[str]) -> str:
    """What a wrong name may have been meant to be, or which names there are.

    >>> hint("Nist", ["mnist", "jsb"]), hint("x", ["mnist", "jsb"])
    ("did you mean 'mnist'?", 'there are mnist, jsb')
    """
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"


class Register(dict[str, Any], Generic[Thing]):
    """Name -> the thing, or where it is defined: a module is imported when it is first used.

    Installed packages add theirs by entry points. They cannot replace those of this package.

    Args:
        kind: What a thing is called in sentences; its entry points are in ``lpunits.<kind>s``.
        of: The type of a thing.
        places: Where the things of this package are, ``module:attribute`` by name.
    """

    def __init__(self, kind: str, of: type[Thing], places: Mapping[str, str]) -> None:
        super().__init__(places)
        self.kind, self.of = kind, of
        for entry in importlib.metadata.entry_points(group=f"lpunits.{kind}s"):
            self.setdefault(entry.name, entry.value)

    def add(self, thing: Any) -> None:
        """Add a thing for this process. A name that others use is refused."""
        if isinstance(self.get(thing.name), str):
            taken = f"the name {thing.name!r} belongs to another {self.kind}: choose another one"
            raise ValueError(taken)
        self[thing.name] = thing

    def find(self, name: str) -> Thing:
        """The thing of that name."""
        if name not in self:
            raise ValueError(f"unknown {self.kind} {name!r}: {hint(name, self)}")
        place = found = self[name]
        if isinstance(place, str):
            try:
                found = pkgutil.resolve_name(place)
            except (ImportError, AttributeError) as error:
                raise ValueError(f"the {self.kind} {name!r} cannot be imported: {error}") from error
        if not isinstance(found, self.of) or getattr(found, "name", None) != name:
            expected = f"{self.of.__name__} with the name {name!r}"
            raise ValueError(f"{place} must be an {expected}, got {found!r}")
        return found
