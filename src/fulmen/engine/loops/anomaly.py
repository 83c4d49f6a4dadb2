"""What `Trainer(detect_anomaly=True)` adds to torch's own check: which layer, in which step, made the first NaN or Inf.

Hooks on all modules are in place while the flag is on, and only then. They look at every output, and mark the nodes of
the graph that a layer made, so that backward knows the layer too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from fulmen.errors import warn
from fulmen.utilities.nonfinite import describe_nonfinite, has_inf, has_nan, named_tensors

if TYPE_CHECKING:
    from fulmen.engine.loops.session import Session

ANOMALY = "anomaly"
"""Under which a Trainer keeps the watch of a run."""

_TORCH = re.compile(r"Function '(\w+)' returned nan values")
_MARK = "fulmen_layer"
_LEAF = "AccumulateGrad"


@dataclass(frozen=True)
class Finding:
    """Where a NaN or Inf came up first.

    Attributes:
        what: `"NaN"` or `"Inf"`.
        layer: Qualified name and class.
        where: The hook, or the function of backward.
        came_in: What was wrong on the way in already: an input, a weight; `""` for nothing.
    """

    what: str
    layer: str
    where: str
    came_in: str


class AnomalyWatch:
    """Torch's anomaly mode, with the names of layers.

    Args:
        session: The run.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.names: dict[int, str] = {}
        self.batch = -1
        self.forward: dict[str, Finding] = {}
        self.backward: dict[str, Finding] = {}
        self._open: list[tuple[nn.Module, list[Any]]] = []
        self._handles: list[Any] = []
        self._torch: Any = None

    def __enter__(self) -> AnomalyWatch:
        self._torch = torch.autograd.set_detect_anomaly(True)
        self._torch.__enter__()
        self._handles = [register_module_forward_pre_hook(self._enter), register_module_forward_hook(self._leave)]
        return self

    def __exit__(self, *exc: Any) -> None:
        for handle in self._handles:
            handle.remove()
        if self.session.cursor.hook is None:
            self._next_batch(self.session.progress.total_batches + 1)
        self._handles, self._open = [], []
        self._torch.__exit__(*exc)

    def name(self, module: nn.Module) -> str:
        """Qualified name and class of a module, as it is reachable from the user's."""
        root = self.session.module
        if module is root:
            return f"`{type(root).__name__}` itself"
        if id(module) not in self.names:
            self.names = {id(sub): name for name, sub in root.named_modules()}
        name = self.names.get(id(module))
        kind = type(module).__name__
        return f"layer {name!r} ({kind})" if name is not None else f"a {kind} that is no part of {type(root).__name__}"

    def _enter(self, module: nn.Module, args: Any) -> None:
        total = self.session.progress.total_batches
        if total != self.batch:
            self._next_batch(total)
        self._open.append((module, [t.grad_fn for _, t in named_tensors(args) if t.grad_fn is not None]))

    def _next_batch(self, total: int) -> None:
        """Forget the findings; a NaN of forward that torch did not stop at is worth a warning."""
        finding, batch = self.forward.get("NaN"), self.batch - 1
        self.batch, self.forward, self.backward, self._open = total, {}, {}, []
        if finding is not None:
            warn(
                "W610",
                f"detect_anomaly: {self._forward_line(finding)} That was in batch {batch} (counted over epochs); "
                "no NaN came up in backward, so that training went on.",
                key=finding.layer,
            )

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        before: list[Any] = []
        while self._open:
            opened, before = self._open.pop()
            if opened is module:
                break
        if self.session.cursor.stage != "train":
            return
        for what, has in (("NaN", has_nan), ("Inf", has_inf)):
            if what not in self.forward and has(output):
                hook = self.session.cursor.hook
                where = f"`{hook.name}`" if hook is not None else "code of the loop"
                self.forward[what] = Finding(what, self.name(module), where, self._came_in(module, args, what))
        self._mark(self.name(module), output, before)

    def _came_in(self, module: nn.Module, args: Any, what: str) -> str:
        has = has_nan if what == "NaN" else has_inf
        names = [name for name, parameter in module.named_parameters(recurse=False) if has(parameter)]
        if names:
            return f"its {names[0]!r} holds {what}, so that an earlier step spoilt it"
        return f"its input holds {what} already" if has(args) else ""

    def _mark(self, name: str, output: Any, before: list[Any]) -> None:
        """Note the layer on the nodes between inputs and output that no inner layer made."""
        todo = [t.grad_fn for _, t in named_tensors(output) if t.grad_fn is not None]
        seen = {id(node): node for node in before}  # kept, or an id could come again
        while todo:
            node = todo.pop()
            if id(node) in seen or node.name().endswith(_LEAF):
                continue
            seen[id(node)] = node
            metadata: Any = node.metadata  # a property, whatever torch's stubs say
            if _MARK not in metadata:
                metadata[_MARK] = name
                node.register_hook(partial(self._after_node, name, node.name()))
            todo += [following for following, _ in node.next_functions if following is not None]

    def _after_node(self, name: str, function: str, made: Any, given: Any) -> None:
        for what, has in (("NaN", has_nan), ("Inf", has_inf)):
            if what not in self.backward and has(made):
                came_in = f"the gradient that it got holds {what} already" if has(given) else ""
                self.backward[what] = Finding(what, name, f"`{function}`", came_in)

    def note(self, error: BaseException) -> str | None:
        """What to add to torch's error about a NaN in backward; `None` for any other error."""
        found = _TORCH.search(str(error)) if isinstance(error, RuntimeError) else None
        if found is None:
            return None
        session = self.session
        progress = session.progress
        place = f"global step {progress.global_step}, batch {session.cursor.batch_idx} of epoch {progress.epoch}"
        lines = [f"detect_anomaly: {place}."]
        if "Inf" in self.forward and "NaN" not in self.forward:
            lines.append(self._forward_line(self.forward["Inf"]))
        if "NaN" in self.forward:
            lines.append(self._forward_line(self.forward["NaN"]))
        else:
            if "Inf" in self.backward:
                lines.append(self._backward_line(self.backward["Inf"]))
            lines.append(
                self._backward_line(self.backward["NaN"])
                if "NaN" in self.backward
                else f"The first NaN of backward came out of `{found[1]}`, in code of "
                f"`{type(session.module).__name__}` outside of its layers."
            )
        bad = describe_nonfinite(session.cursor.batch)
        if bad is not None:
            plan = session.loaders.train_plan
            lines.append(f"The batch itself is bad: {bad}, from {plan.name if plan is not None else 'the loader'}.")
        return "\n  ".join(lines)

    def _forward_line(self, finding: Finding) -> str:
        came_in = finding.came_in or "its inputs were finite"
        return f"The first {finding.what} of forward came out of {finding.layer} in {finding.where}: {came_in}."

    def _backward_line(self, finding: Finding) -> str:
        came_in = finding.came_in or "the gradient that it got was finite"
        return f"The first {finding.what} of backward came out of {finding.where} of {finding.layer}: {came_in}."
