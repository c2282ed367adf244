"""A hash table inside a module under torch.compile and torch.export."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import weightstore  # noqa: E402
import weightstore.torch  # noqa: E402
from weightstore._torch_library import loading  # noqa: E402

try:
    loading.library_path()
except ImportError as missing:
    pytest.skip(str(missing), allow_module_level=True)


class Embedded(torch.nn.Module):
    def __init__(self, table: object) -> None:
        super().__init__()
        self.table = table
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, ids: torch.Tensor, insert: bool = False) -> torch.Tensor:
        rows, embeddings = self.table.lookup(ids * 1, insert)
        return torch.relu(self.linear(embeddings * 2)) + rows[:, None]


def make_table(kind: str) -> object:
    table = weightstore.HashTable("user", [4], torch.float32)
    table.insert(torch.arange(5), torch.arange(20.0).reshape(5, 4))
    return table if kind == "HashTable" else table.script_object


@pytest.mark.parametrize("kind", ["HashTable", "torch.classes.store.HashTable"])
def test_compile_breaks_the_graph_and_is_right(kind: str) -> None:
    torch._dynamo.reset()
    graphs = []

    def backend(graph: torch.fx.GraphModule, examples: object) -> object:
        graphs.append(graph)
        return graph.forward

    table = make_table(kind)
    module = Embedded(table)
    compiled = torch.compile(module, backend=backend)
    for ids in (torch.tensor([3, 1, 9]), torch.tensor([2, 4]), torch.tensor([0])):
        assert torch.equal(compiled(ids), module(ids))
    calls = {str(node.target) for graph in graphs for node in graph.graph.nodes if node.op.startswith("call")}
    if kind == "HashTable":  # torch compiles nothing of a function that uses the class of TorchScript
        assert any("linear" in name for name in calls), "what comes after the lookup is compiled"
    assert not any("lookup" in name for name in calls)

    before = compiled(torch.tensor([9]))
    table.insert(torch.tensor([9]), torch.ones(1, 4))  # a compiled lookup sees what changes
    assert not torch.equal(compiled(torch.tensor([9])), before)
    compiled(torch.tensor([77, 78]), True)
    assert table.size() == 8


def test_gradients_of_what_comes_after() -> None:
    torch._dynamo.reset()
    module = Embedded(make_table("HashTable"))
    ids = torch.tensor([1, 2])
    module(ids).sum().backward()
    want = module.linear.weight.grad.clone()
    module.zero_grad()
    torch.compile(module, backend="aot_eager")(ids).sum().backward()
    assert torch.equal(module.linear.weight.grad, want)


def test_one_whole_graph_is_refused() -> None:
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"store\.HashTable"):
        torch.compile(Embedded(make_table("HashTable")), backend="eager", fullgraph=True)(torch.tensor([1]))


@pytest.mark.skipif(not hasattr(torch.compiler, "is_exporting"), reason="this torch does not say that it exports")
def test_export_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match=r"torch\.export cannot put a HashTable .*pass it the embeddings"):
        torch.export.export(Embedded(make_table("HashTable")), (torch.tensor([3, 1]),), strict=False)


def test_export_of_what_comes_after_the_lookup() -> None:
    """What the error and the page advise."""
    table, dense = make_table("HashTable"), torch.nn.Linear(4, 2)
    _, embeddings = table.lookup(torch.tensor([3, 1]), False)
    program = torch.export.export(dense, (embeddings,))
    assert torch.equal(program.module()(embeddings), dense(embeddings))
