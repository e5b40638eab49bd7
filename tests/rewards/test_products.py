"""Products by oneDNN against torch's own, forward and backward."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import rewards.models.products
from rewards.models.products import LEAST, Linear, linear, matmul, use_fast_products

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
SHAPES = ((1500, 48, 40), (40, 48, 1500), (129, 257, 65))


@pytest.fixture
def by_onednn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """As on a processor where it is faster, whatever this one is; returns the shapes of the products made."""
    made: list[tuple[int, ...]] = []
    inner: Callable[..., Tensor] = rewards.models.products._product

    def counted(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        made.append((*x.shape, len(weight)))
        return inner(x, weight, bias)

    monkeypatch.setattr(rewards.models.products, "is_faster_here", lambda: True)
    monkeypatch.setattr(rewards.models.products, "_product", counted)
    return made


def numbers(*shape: int, seed: int = 0, **more: Any) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), **more)


@needs_onednn
@pytest.mark.parametrize(("rows", "width", "out"), SHAPES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batched", [True, False])
def test_values_and_gradients_are_those_of_torch(
    rows: int, width: int, out: int, bias: bool, batched: bool, by_onednn: list[tuple[int, ...]]
) -> None:
    x = numbers(*((3, rows // 3) if batched else (rows,)), width)
    weight, own_bias = numbers(out, width, seed=1), numbers(out, seed=2) if bias else None
    slope = numbers(*x.shape[:-1], out, seed=3)

    def run(product: Callable[..., Tensor], dtype: torch.dtype) -> list[Tensor]:
        leaves = [t.to(dtype).clone().requires_grad_() for t in (x, weight, own_bias) if t is not None]
        result = product(*leaves)
        result.backward(slope.to(dtype))
        return [result.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]

    ours, exact = run(linear, torch.float32), run(functional.linear, torch.float64)
    assert len(by_onednn) == 3  # the result and both gradients
    assert len(ours) == len(exact)
    for own, true in zip(ours, exact, strict=True):
        assert own.shape == true.shape
        assert torch.allclose(own.double(), true, rtol=1e-5, atol=1e-4)


@needs_onednn
def test_only_the_gradients_asked_for_are_made(by_onednn: list[tuple[int, ...]]) -> None:
    x, weight = numbers(1500, 48), numbers(40, 48, seed=1, requires_grad=True)
    linear(x, weight).sum().backward()
    assert weight.grad is not None
    assert len(by_onednn) == 2
    with torch.no_grad():
        assert not linear(x, weight).requires_grad


@needs_onednn
def test_a_product_of_views_is_that_of_their_values(by_onednn: list[tuple[int, ...]]) -> None:
    a, b = numbers(1500, 60), numbers(1500, 70, seed=1)
    assert torch.allclose(matmul(a.t(), b), a.t() @ b, rtol=1e-4, atol=1e-4)
    assert torch.allclose(matmul(a, a.t()), a @ a.t(), rtol=1e-4, atol=1e-4)
    part = b[:, 5:64]
    assert torch.allclose(linear(part, part[:40]), part @ part[:40].t(), rtol=1e-4, atol=1e-4)
    assert len(by_onednn) == 3


def test_what_would_not_pay_is_left_to_torch(by_onednn: list[tuple[int, ...]]) -> None:
    small, weight = numbers(8, 16), numbers(4, 16, seed=1)
    assert torch.equal(linear(small, weight), functional.linear(small, weight))
    large = numbers(LEAST // 16, 16)
    assert torch.equal(linear(large.double(), weight.double()), large.double() @ weight.double().t())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(large, weight).dtype == torch.bfloat16
    matmul(small, weight.t())
    assert by_onednn == []


def test_matmul_with_a_gradient_is_torch_s(by_onednn: list[tuple[int, ...]]) -> None:
    a = numbers(2000, 60, requires_grad=True)
    matmul(a, numbers(60, 40, seed=1)).sum().backward()
    assert a.grad is not None
    assert by_onednn == []


@needs_onednn
def test_a_model_keeps_its_parameters_and_its_copies_are_its_own(by_onednn: list[tuple[int, ...]]) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64, bias=False), nn.Bilinear(2, 2, 2))
    before = dict(model.named_parameters())
    use_fast_products(model)
    assert [type(module) for module in model] == [Linear, nn.ReLU, Linear, nn.Bilinear]
    assert {name: id(p) for name, p in model.named_parameters()} == {n: id(p) for n, p in before.items()}
    twin = copy.deepcopy(model[:1])
    with torch.no_grad():
        next(model.parameters()).zero_()
    assert bool(next(twin.parameters()).any())
    twin(numbers(600, 64))
    assert by_onednn == [(600, 64, 64)]


def test_a_class_of_its_own_is_left_alone() -> None:
    class Quantised(nn.Linear):
        pass

    model = nn.Sequential(Quantised(4, 4))
    use_fast_products(model)
    assert type(model[0]) is Quantised


@pytest.mark.parametrize(
    ("maker", "faster"), [("AuthenticAMD", True), ("GenuineIntel", False), (None, False)]
)
def test_the_maker_of_the_processor_decides(
    maker: str | None, faster: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    file = tmp_path / "cpuinfo"
    if maker is not None:
        file.write_text(f"processor : 0\nvendor_id : {maker}\n")
    monkeypatch.setattr(rewards.models.products, "PROCESSOR", file)
    have = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    assert rewards.models.products.is_faster_here.__wrapped__() == (faster and have)
