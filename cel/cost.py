"""The checked tree -> what judging a device costs at most, as the API server reckons it before it stores a text.

node --> its path from `device` --> how large that can be by the API's limits
--> its size, where the text itself says it
call --> prices, by the sizes of its operands
"""

from dataclasses import dataclass

from cel import checker, prices, tree, types
from cel.prices import ANY, NONE, ONE, UNBOUND, Range

LIMIT = 1_000_000
"""CELSelectorExpressionMaxCost."""
_NEW_LIST, _NEW_MAP = Range(10, 10), Range(30, 30)
_ENTRIES, _DOMAIN, _ID, _VALUE = Range(0, 32), Range(0, 63), Range(0, 32), Range(0, 64)
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    """How large keys and values of a list or map can be."""

    kind: str
    key: Range
    value: Range


@dataclass(frozen=True, slots=True)
class _Local:
    path: Path
    size: Range | None
    entry: _Entry | None


def most(found: checker.Checked) -> int:
    return _Coster(found).cost(found.root).most


def declared(path: Path) -> Range | None:  # noqa: C901, PLR0911  one a place in the device
    """How large what lies there can be, by the limits of the API."""
    match path:
        case ("device",):
            return NONE
        case ("device", "driver"):
            return _DOMAIN
        case ("device", "allowMultipleAllocations"):
            return Range(0, 1)
        case ("device", "attributes" | "capacity") | ("device", "attributes" | "capacity", "@values"):
            return _ENTRIES
        case ("device", "attributes" | "capacity", "@keys"):
            return _DOMAIN
        case ("device", "attributes" | "capacity", "@values", "@keys"):
            return _ID
        case ("device", "attributes", "@values", name) if name != "@items":
            return _VALUE
        case ("device", "capacity", "@values", "@values"):
            return NONE
        case ("device", "attributes" | "capacity", "@items"):
            return _ENTRIES
        case ("device", "attributes", _, "@items"):
            return _VALUE
        case _:
            return None


class _Coster:
    def __init__(self, found: checker.Checked) -> None:
        self._found = found
        self._paths: dict[tree.Node, Path] = {}
        self._sizes: dict[tree.Node, Range] = {}
        self._entries: dict[tree.Node, _Entry] = {}
        self._locals: dict[str, list[_Local]] = {}

    def cost(self, node: tree.Node) -> Range:  # noqa: PLR0911  one a kind of node
        if node in self._found.names and isinstance(node, tree.Select):
            return self._named(node)
        match node:
            case tree.Ident():
                return self._ident(node)
            case tree.Select():
                return self._select(node)
            case tree.Call():
                return self._call(node)
            case tree.List():
                return self._list(node)
            case tree.Map():
                return self._map(node)
            case tree.Bind():
                return self._bind(node)
            case tree.Loop():
                return self._loop(node)
            case _:
                return NONE

    def _named(self, node: tree.Node) -> Range:
        self._paths[node] = ()
        return ONE

    def _ident(self, node: tree.Ident) -> Range:
        local = self._local(node)
        self._paths[node] = local.path if local else (node.name,)
        return ONE

    def _select(self, node: tree.Select) -> Range:
        cost = self.cost(node.operand)
        if node.test:
            return cost
        of = self._found.types[node.operand]
        self._paths[node] = (*self._path(node.operand), node.field)
        return cost + ONE if of.kind == "map" or of == types.DEVICE or of.kind.startswith("kubernetes.") else cost

    def _call(self, node: tree.Call) -> Range:
        meant = self._found.calls[node]
        if meant.function.name == "dyn":
            cost = ONE + self.cost(meant.args[0])
            self._copy(node, meant.args[0])
            return cost
        costs, args = [], []
        for arg in meant.args:
            costs.append(self.cost(arg))
            args.append(self._operand(arg))
        of_target = self.cost(meant.target) if meant.target is not None else NONE
        target = self._operand(meant.target) if meant.target is not None else None
        total, size = Range(UNBOUND, 0), None
        for id_ in meant.ids:
            asked = prices.Asked(function=meant.function.name, id=id_, target=target, args=tuple(args))
            price = self._price(node, asked, costs)
            total |= price.cost
            if price.size is not None:
                size = price.size if size is None else size | price.size
            size = self._indexed(node, asked, size)
        if size is not None:
            self._sizes[node] = size
        return total + of_target

    def _price(self, node: tree.Node, asked: prices.Asked, costs: list[Range]) -> prices.Price:
        args = asked.args
        if asked.id in ("logical_and", "logical_or"):
            return prices.Price(cost=Range(costs[0].least, (costs[0] + costs[1]).most))
        if asked.id == "conditional":
            self._remember(node, _joined(self._entry(args[1].node), self._entry(args[2].node)))
            size = (args[1].size or ANY) | (args[2].size or ANY)
            return prices.Price(cost=costs[0] + (costs[1] | costs[2]), size=size)
        if asked.id in ("add_string", "add_bytes", "add_list"):
            self._remember(node, _joined(self._entry(args[0].node), self._entry(args[1].node)))
        price = prices.price(asked)
        return prices.Price(cost=sum(costs, start=price.cost), size=price.size)

    def _indexed(self, node: tree.Node, asked: prices.Asked, size: Range | None) -> Range | None:
        if asked.id in ("index_list", "index_map"):
            entry = self._entry(asked.args[0].node)
            step = "@items" if asked.id == "index_list" else "@values"
            self._paths[node] = (*self._path(asked.args[0].node), step)
            size = entry.value if entry else None
        return self._size(node) if size is None else size

    def _list(self, node: tree.List) -> Range:
        cost, size = _NEW_LIST, Range(UNBOUND if node.elements else 0, 0)
        for element in node.elements:
            cost += self.cost(element)
            size |= self._size(element) or ANY
        self._entries[node] = _Entry("list", ONE, size)
        return cost

    def _map(self, node: tree.Map) -> Range:
        least = UNBOUND if node.entries else 0
        cost, key, value = _NEW_MAP, Range(least, 0), Range(least, 0)
        for entry in node.entries:
            cost += self.cost(entry.key) + self.cost(entry.value)
            key |= self._size(entry.key) or ANY
            value |= self._size(entry.value) or ANY
        self._entries[node] = _Entry("map", key, value)
        return cost

    def _bind(self, node: tree.Bind) -> Range:
        cost = _NEW_LIST + self.cost(node.value)
        self._push(node.name, self._bound(node.value))
        cost += self.cost(node.result)
        self._locals[node.name].pop()
        self._copy(node, node.result)
        return cost

    def _loop(self, node: tree.Loop) -> Range:
        cost = self.cost(node.over) + self.cost(node.start)
        self._push(node.total, self._bound(node.start))
        if node.second:
            self._push(node.first, self._each(node.over, "@keys", "@indices"))
            self._push(node.second, self._each(node.over, "@values", "@items"))
        else:
            self._push(node.first, self._each(node.over, "@keys", "@items"))
        body = self.cost(node.going) + self.cost(node.step)
        for name in filter(None, (node.first, node.second)):
            self._locals[name].pop()
        cost += self.cost(node.result)
        self._locals[node.total].pop()
        count = self._size(node.over) or ANY
        if isinstance(node.start, tree.Literal):
            self._sizes[node] = self._size(node.start) or ANY
        elif isinstance(node.start, (tree.List, tree.Map)):
            self._sizes[node] = count
            self._remember(node, self._entry(node.step))
        return cost + count * body

    def _each(self, over: tree.Node, of_map: str, of_list: str) -> _Local:
        entry = self._entry(over)
        kind = entry.kind if entry else self._found.types[over].kind
        step = of_list if kind == "list" else of_map
        size = None
        if entry is not None:
            size = entry.key if step in ("@keys", "@indices") else entry.value
        return _Local((*self._path(over), step), size, None)

    def _bound(self, node: tree.Node) -> _Local:
        return _Local(self._path(node), self._size(node), self._entry(node))

    def _push(self, name: str, local: _Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _local(self, node: tree.Node) -> _Local | None:
        found = self._locals.get(node.name) if isinstance(node, tree.Ident) else None
        return found[-1] if found else None

    def _path(self, node: tree.Node) -> Path:
        local = self._local(node)
        return local.path if local else self._paths.get(node, ())

    def _operand(self, node: tree.Node) -> prices.Operand:
        path, type_ = self._path(node), self._found.types[node]
        element = declared((*path, "@items")) if path and type_.params else None
        return prices.Operand(node=node, type=type_, size=self._size(node), declared=declared(path), element=element)

    def _size(self, node: tree.Node) -> Range | None:
        if node in self._sizes:
            return self._sizes[node]
        own = _literal_size(node)
        if own is not None:
            return own
        found = declared(self._path(node))
        if found is not None:
            self._sizes[node] = found
            return found
        if _is_one(self._found.types[node]):
            return ONE
        local = self._local(node)
        return local.size if local else None

    def _entry(self, node: tree.Node) -> _Entry | None:
        if node in self._entries:
            return self._entries[node]
        local = self._local(node)
        return local.entry if local else None

    def _remember(self, node: tree.Node, entry: _Entry | None) -> None:
        if entry is not None:
            self._entries[node] = entry

    def _copy(self, node: tree.Node, source: tree.Node) -> None:
        size = self._size(source)
        if size is not None:
            self._sizes[node] = size
        self._remember(node, self._entry(source))


def _joined(one: _Entry | None, other: _Entry | None) -> _Entry | None:
    if one is None or other is None:
        return None
    return _Entry(one.kind, one.key | other.key, one.value | other.value)


def _literal_size(node: tree.Node) -> Range | None:
    match node:
        case tree.Literal(value=str() | bytes() as value):
            return Range(len(value), len(value))
        case tree.Literal():
            return ONE
        case tree.List():
            return Range(len(node.elements), len(node.elements))
        case tree.Map():
            return Range(len(node.entries), len(node.entries))
        case _:
            return None


def _is_one(type_: types.Type) -> bool:
    if type_.kind == "optional_type":
        return _is_one(type_.params[0])
    return type_ in (types.BOOL, types.DOUBLE, types.DURATION, types.INT, types.TIMESTAMP, types.UINT)
