"""The replay buffer: what is stored, drawn and evicted, over random histories too, and what a kill leaves."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.errors import ConfigError, DataError, EngineError
from rewards.replay import (
    Draw,
    Drawn,
    ReplayBuffer,
    ReplayGroup,
    ReplaySettings,
    history_size,
    is_held_out,
    question_hash,
    rescore,
)
from rewards.types import Part, Problem, Reason, Sample, Score, StepScore, Verdict

Label = bool | None


def scored(value: float, version: str = "orm-1") -> Score:
    return Score.scored(value, Reason.MODEL, version=version)


def group_of(number: int, question: str, members: Sequence[tuple[str, Label]]) -> ReplayGroup:
    problem = Problem(question, question, ("42",))
    samples = [Sample(problem, text, index=i, policy_version=number) for i, (text, _) in enumerate(members)]
    scores = [scored(0.25 * len(text)) for text, _ in members]
    return ReplayGroup(
        tuple(samples), tuple(scores), tuple(label for _, label in members), f"orm-{number}", number
    )


def plain_round(number: int, groups: int, size: int = 8) -> list[ReplayGroup]:
    """Groups of questions of their own, all texts different, every other one right."""
    return [
        group_of(number, f"q{number}-{g}", [(f"{number} {g} {i}", i % 2 == 0) for i in range(size)])
        for g in range(groups)
    ]


def filled(folder: Path, rounds: Sequence[Sequence[ReplayGroup]], rules: ReplaySettings) -> ReplayBuffer:
    buffer = ReplayBuffer(folder, rules)
    for groups in rounds:
        buffer.add(groups)
        buffer.finish_round()
    return buffer


def drawn_texts(drawn: Draw) -> list[str]:
    return [one.sample.text for one in (*drawn.new, *drawn.old)]


FULL = ReplayGroup(
    tuple(
        Sample(
            Problem("p", "6*7=", ("42", "43"), "number", "sums", {"level": "1"}),
            text,
            prefill="<think>",
            truncated=text == "",
            group=3,
            index=place,
            policy_version=17,
        )
        for place, text in enumerate(("a\0b \u00e9 \U0001f600", ""))
    ),
    (
        Score(
            Verdict.SCORED,
            1.5,
            Reason.COMBINED,
            steps=(StepScore(0, 2, 0.25), StepScore(2, 3, -1.0)),
            parts=(
                Part("accuracy", 1.0, Score.scored(1.0, Reason.MATCH_STRING, version="a", notes={"k": "v"})),
                Part(
                    "prm",
                    0.5,
                    Score(Verdict.SCORED, 1.0, Reason.MODEL, (StepScore(0, 1, 0.5),), version="prm-2"),
                ),
            ),
            version="a,prm-2",
            notes={"rung": "box"},
        ),
        Score.failed(Reason.WORKER_DIED),
    ),
    (True, None),
    "prm-2",
    4,
)


def test_a_group_comes_back_as_it_was(tmp_path: Path) -> None:
    buffer = filled(tmp_path, [[FULL, *plain_round(4, 2)]], ReplaySettings())
    assert list(buffer.groups()) == [FULL, *plain_round(4, 2)]
    assert list(ReplayBuffer(tmp_path, ReplaySettings()).groups()) == [FULL, *plain_round(4, 2)]


def test_a_lone_surrogate_is_replaced_and_spans_stay(tmp_path: Path) -> None:
    buffer = filled(tmp_path, [[group_of(0, "q\ud800", [("a\udfffb", True)])]], ReplaySettings())
    (drawn,) = buffer.draw(1).new
    assert drawn.sample.text == "a\ufffdb"
    assert drawn.sample.problem.prompt == "q\ufffd"


def test_a_shard_is_read_by_pyarrow_and_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    filled(tmp_path / "replay", [[FULL]], ReplaySettings())
    shard = tmp_path / "replay" / "round_000004.parquet"
    assert pq.read_table(shard).column("text").to_pylist() == [sample.text for sample in FULL.samples]
    # heavy, and this test's alone
    from datasets import Dataset

    rows = Dataset.from_parquet(str(shard), cache_dir=str(tmp_path / "cache"))
    assert rows[0]["parts"][1]["steps"] == [{"start": 0, "end": 1, "value": 0.5}]
    assert rows["label"][:] == [True, None]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": ()}, "no samples"),
        ({"labels": (True,)}, "1 labels"),
        ({"samples": (FULL.samples[0], replace(FULL.samples[1], policy_version=18))}, "several policies"),
        ({"samples": (FULL.samples[0], Sample(Problem("q", "1+1="), "2"))}, "several problems"),
        ({"scores": (scored(1.0, "orm-1"), scored(0.0, "orm-2"))}, "versions orm-1, orm-2"),
        ({"round": -1}, "0 or more"),
    ],
)
def test_trap_40_a_partial_or_mixed_group_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        replace(FULL, **change)


def test_trap_40_parts_of_two_versions_are_refused_by_name() -> None:
    def whole(version: str) -> Score:
        return replace(scored(1.0), parts=(Part("prm", 1.0, scored(1.0, version)),))

    with pytest.raises(DataError, match="scores of 'prm' of versions prm-1, prm-2"):
        replace(FULL, scores=(whole("prm-1"), whole("prm-2")))
    nested = replace(scored(1.0), parts=(Part("both", 1.0, whole("prm-1")),))
    with pytest.raises(DataError, match="one level of parts"):
        replace(FULL, scores=(nested, nested))


class LengthScorer:
    """Value: characters of the text; version 2."""

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        return [scored(float(len(sample.text)), "orm-2") for sample in samples]


def test_rescoring_makes_new_groups_and_leaves_the_stored_ones(tmp_path: Path) -> None:
    buffer = filled(tmp_path, [[group_of(0, "q", [("ab", True), ("c", False)])]], ReplaySettings())
    (anew,) = rescore(buffer.groups(), LengthScorer(), "orm-2")
    assert [score.value for score in anew.scores] == [2.0, 1.0]
    assert (anew.reward_version, anew.labels) == ("orm-2", (True, False))
    (stored,) = buffer.groups()
    assert stored.reward_version == "orm-0"


@pytest.mark.parametrize("n_new", [0, 1, 4, 5, 9, 13, 900, 9001])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 0.5])
def test_trap_40_all_new_and_their_share_of_history_is_one_set(n_new: int, share: float) -> None:
    n_old = history_size(n_new, share)
    assert abs(n_old - n_new * share / (1 - share)) <= 0.5
    assert round((n_new + n_old) * share) == n_old


def test_trap_40_a_tenth_is_history_half_of_it_wrong_and_every_round_gives_its_part(tmp_path: Path) -> None:
    buffer = filled(tmp_path, [plain_round(r, 20) for r in range(6)], ReplaySettings(seed=1))
    drawn = buffer.draw(100)
    assert (len(drawn.new), len(drawn.old), drawn.history_share) == (90, 10, 0.1)
    assert {one.round for one in drawn.new} == {5}
    assert Counter(one.round for one in drawn.old) == dict.fromkeys(range(5), 2)
    assert Counter(one.label for one in drawn.old) == {True: 5, False: 5}
    assert Counter(one.label for one in drawn.new) == {True: 45, False: 45}
    first = drawn.old[0]
    assert first.sample == plain_round(0, 20)[int(first.sample.text.split()[1])].samples[first.sample.index]
    assert (first.reward_version, first.score.version) == ("orm-0", "orm-1")


def test_the_first_round_has_no_history_and_an_empty_buffer_nothing(tmp_path: Path) -> None:
    buffer = ReplayBuffer(tmp_path, ReplaySettings())
    assert buffer.draw(10) == Draw((), (), 10)
    buffer.add(plain_round(0, 2))
    buffer.finish_round()
    assert (len(buffer.draw(10).new), len(buffer.draw(10).old)) == (10, 0)
    assert (len(buffer.draw(99).new), buffer.draw(99).asked) == (16, 99)


def test_a_small_newest_round_takes_its_tenth_of_history_and_no_more(tmp_path: Path) -> None:
    buffer = filled(tmp_path, [plain_round(0, 50), plain_round(1, 3, 6)], ReplaySettings())
    drawn = buffer.draw(1000)
    assert (len(drawn.new), len(drawn.old)) == (18, 2)


def test_a_small_history_is_made_up_for_by_new_completions(tmp_path: Path) -> None:
    buffer = filled(tmp_path, [plain_round(0, 1, 2), plain_round(1, 50)], ReplaySettings())
    drawn = buffer.draw(100)
    assert (len(drawn.new), len(drawn.old)) == (98, 2)


def test_history_may_be_spread_over_samples_instead(tmp_path: Path) -> None:
    rounds = [plain_round(0, 90), plain_round(1, 10), plain_round(2, 40)]
    by: dict[str, Counter[int]] = {"rounds": Counter(), "samples": Counter()}
    for spread, counts in by.items():
        for seed in range(10):
            rules = ReplaySettings(seed=seed, spread=spread)
            drawn = filled(tmp_path / f"{spread}{seed}", rounds, rules).draw(200)
            counts.update(one.round for one in drawn.old)
    assert by["rounds"] == {0: 100, 1: 100}
    # 200 draws without replacement, a tenth from round 1: 20 expected, standard deviation 4.2
    assert 8 <= by["samples"][1] <= 32


def test_the_same_text_is_drawn_once_and_a_question_up_to_its_limit(tmp_path: Path) -> None:
    old = [group_of(0, "One?", [("x  y", True), ("x y\n", True), ("z", False)])]
    new = [group_of(1, " one ? ", [("x y", True), ("w", False), ("v", False)])]
    buffer = filled(tmp_path / "a", [old, new], ReplaySettings())
    assert sorted(drawn_texts(buffer.draw(20, 0.4))) == ["v", "w", "x y", "z"]
    buffer = filled(tmp_path / "b", [old, new], ReplaySettings(per_question=2))
    assert sorted(one.label for one in buffer.draw(20).new) == [False, True]


def test_the_rarer_label_is_not_crowded_out_by_the_limit(tmp_path: Path) -> None:
    groups = [
        group_of(0, f"q{q}", [("wrong", False), *((f"right {i}", True) for i in range(7))]) for q in range(6)
    ]
    drawn = filled(tmp_path, [groups], ReplaySettings(per_question=2)).draw(12)
    assert Counter(one.label for one in drawn.new) == {False: 6, True: 6}


def test_what_the_verifier_could_not_judge_is_kept_but_not_drawn(tmp_path: Path) -> None:
    buffer = filled(tmp_path, [[group_of(0, "q", [("a", None), ("b", True)])]], ReplaySettings())
    assert drawn_texts(buffer.draw(5)) == ["b"]
    assert [group.labels for group in buffer.groups()] == [(None, True)]


def test_trap_40_evaluation_problems_are_refused_by_their_text(tmp_path: Path) -> None:
    groups = [group_of(0, "What is 6 * 7?", [("a", True)]), group_of(0, "What is 6*8?", [("b", True)])]
    buffer = ReplayBuffer(tmp_path, ReplaySettings(), evaluation=["what is 6*7?"])
    buffer.add(groups)
    buffer.finish_round()
    assert (buffer.refused, len(buffer)) == (1, 1)
    assert drawn_texts(buffer.draw(5)) == ["b"]
    later = ReplayBuffer(
        tmp_path, ReplaySettings(), evaluation=["What is 6*8?"]
    )  # stored before it was known
    assert drawn_texts(later.draw(5)) == []
    later.add([group_of(1, "What is 6*8 ?", [("c", True)])])
    assert later.finish_round() is not None
    assert (later.last_round, later.draw(5)) == (1, Draw((), (), 5))


def test_rounds_only_go_up_and_are_finished_before_a_draw(tmp_path: Path) -> None:
    buffer = filled(tmp_path, [plain_round(3, 1)], ReplaySettings())
    with pytest.raises(DataError, match="round 3 is finished"):
        buffer.add(plain_round(3, 1))
    buffer.add(plain_round(5, 1))
    with pytest.raises(EngineError, match="round 5 is open"):
        buffer.draw(1)
    with pytest.raises(DataError, match="round 6 while round 5 is open"):
        buffer.add(plain_round(6, 1))
    buffer.finish_round()
    assert buffer.finish_round() is None
    for n, share in ((-1, 0.1), (1, 1.0), (1, -0.1)):
        with pytest.raises(ConfigError, match="expected n of 0 or more"):
            buffer.draw(n, share)


@pytest.mark.parametrize(
    "wrong",
    [{"capacity": 0}, {"per_question": 0}, {"eviction": "lru"}, {"spread": "evenly"}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_unknown_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"replay.{next(iter(wrong))}="):
        ReplaySettings(**wrong)


@pytest.mark.parametrize("eviction", ["age", "reservoir"])
def test_capacity_counts_groups_of_past_rounds_and_dropping_files_changes_nothing(
    tmp_path: Path, eviction: str
) -> None:
    rules = ReplaySettings(seed=3, capacity=7, eviction=eviction)
    rounds = [plain_round(r, 5) for r in range(8)]
    whole, dropping = filled(tmp_path / "whole", [], rules), filled(tmp_path / "dropping", [], rules)
    dropped: list[Path] = []
    for groups in rounds:
        for buffer in (whole, dropping):
            buffer.add(groups)
            buffer.finish_round()
        dropped += dropping.drop_evicted()
        kept = list(whole.groups())
        assert list(dropping.groups()) == kept == list(ReplayBuffer(whole.folder, rules).groups())
        assert len(whole) == len(kept) == min(7, 5 * groups[0].round) + 5
        assert kept[-5:] == groups
        assert dropping.draw(60, 0.4) == whole.draw(60, 0.4)
    if eviction == "age":
        assert kept[:7] == [*rounds[5][3:], *rounds[6]]
        assert [path.name for path in dropped] == [f"round_00000{r}.parquet" for r in range(5)]
    assert not any(path.exists() for path in dropped)


def test_a_reservoir_keeps_every_round_alike(tmp_path: Path) -> None:
    rounds = [plain_round(r, 400, 1) for r in range(5)]
    buffer = filled(tmp_path, rounds, ReplaySettings(capacity=400, eviction="reservoir"))
    counts = Counter(group.round for group in buffer.groups())
    # 400 of 1600 groups: 100 of each past round expected, standard deviation 7.5
    assert counts.pop(4) == 400
    assert all(70 <= counts[r] <= 130 for r in range(4))


@dataclass(frozen=True)
class Member:
    """A completion as the properties see it."""

    round: int
    question: int
    text: str
    label: Label


def members_of(buffer: ReplayBuffer) -> list[Member]:
    return [
        Member(group.round, question_hash(group.problem.prompt), " ".join(sample.text.split()), label)
        for group in buffer.groups()
        for sample, label in zip(group.samples, group.labels, strict=True)
    ]


def member_of(drawn: Drawn) -> Member:
    sample = drawn.sample
    return Member(
        drawn.round, question_hash(sample.problem.prompt), " ".join(sample.text.split()), drawn.label
    )


TEXT = st.integers(0, 30).map(str) | st.sampled_from(["u", "v", "v ", "w\n\tx", "w x"])
GROUP = st.tuples(
    st.sampled_from(["A?", "a ?", "B?", "C?", "D?", "E?", "held out"]),
    st.lists(st.tuples(TEXT, st.sampled_from([True, False, None])), min_size=1, max_size=8),
)
HISTORY = st.lists(st.lists(GROUP, min_size=1, max_size=6), min_size=1, max_size=5)
RULES = st.builds(
    ReplaySettings,
    seed=st.integers(-3, 3),
    capacity=st.none() | st.integers(1, 12),
    eviction=st.sampled_from(["age", "reservoir"]),
    spread=st.sampled_from(["rounds", "samples"]),
    per_question=st.integers(1, 6),
)


@settings(max_examples=120, deadline=None)
@given(history=HISTORY, rules=RULES, n=st.integers(0, 40), share=st.sampled_from([0.0, 0.1, 0.25, 0.5]))
def test_what_holds_of_every_draw(
    history: list[list[tuple[str, list[tuple[str, Label]]]]], rules: ReplaySettings, n: int, share: float
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        buffer = ReplayBuffer(Path(folder), rules, evaluation=["Held  out"])
        for number, groups in enumerate(history):
            buffer.add([group_of(number, question, members) for question, members in groups])
            buffer.finish_round()
        drawn = buffer.draw(n, share)
        assert drawn == buffer.draw(n, share)
        assert drawn == ReplayBuffer(Path(folder), rules, evaluation=["Held  out"]).draw(n, share)
        pool = [one for one in members_of(buffer) if one.label is not None]
    new, old = [member_of(one) for one in drawn.new], [member_of(one) for one in drawn.old]
    check_rules(new + old, pool, rules.per_question)
    assert all(one.round == len(history) - 1 for one in new)
    assert all(one.round < len(history) - 1 for one in old)

    taken = new + old
    free = [one for one in pool if admissible(one, taken, rules.per_question)]
    free_new = [one for one in free if one.round == len(history) - 1]
    free_old = [one for one in free if one.round < len(history) - 1]
    wanted_new = n - round(n * share)
    target = round(n * share) if len(new) >= wanted_new else history_size(len(new), share)
    assert len(old) == target or (len(old) < target and not free_old)
    assert len(new) + len(old) == n or not free_new
    if len(new) == wanted_new and len(old) == target:
        assert abs(len(old) - share * n) <= 0.5
    check_labels(new, free_new)
    check_labels(old, free_old)
    if rules.spread == "rounds":
        check_spread(old, free_old, range(len(history) - 1))


def admissible(one: Member, taken: Sequence[Member], per_question: int) -> bool:
    same = [other for other in taken if other.question == one.question]
    return len(same) < per_question and all(other.text != one.text for other in same)


def check_rules(taken: Sequence[Member], pool: Sequence[Member], per_question: int) -> None:
    assert not Counter(taken) - Counter(pool), "drawn from what is kept, and nothing twice"
    assert len({(one.question, one.text) for one in taken}) == len(taken)
    assert all(count <= per_question for count in Counter(one.question for one in taken).values())
    assert question_hash("held out") not in {one.question for one in taken}


def check_labels(taken: Sequence[Member], free: Sequence[Member]) -> None:
    """Half and half (two draws of odd size may add up to a difference of 2), or the lesser has no more."""
    counts = {label: sum(one.label is label for one in taken) for label in (True, False)}
    lesser = min(counts, key=lambda label: counts[label])
    assert abs(counts[True] - counts[False]) <= 2 or all(one.label is not lesser for one in free)


def check_spread(taken: Sequence[Member], free: Sequence[Member], rounds: Sequence[int]) -> None:
    """Of each label, no round gives less than another by more than one, unless it has no more."""
    for label in (True, False):
        counts = {r: sum((one.label, one.round) == (label, r) for one in taken) for r in rounds}
        for r, count in counts.items():
            may_give = any((one.label, one.round) == (label, r) for one in free)
            assert count >= max(counts.values()) - 1 or not may_give


def test_a_resumed_run_has_the_same_bytes_and_draws(tmp_path: Path) -> None:
    rounds = [plain_round(r, 40) for r in range(4)]
    rules = ReplaySettings(seed=5, capacity=60, eviction="reservoir")
    whole = filled(tmp_path / "whole", rounds, rules)

    first = filled(tmp_path / "resumed", rounds[:2], rules)
    first.add(rounds[2][:13])
    first.add(rounds[2][13:20])
    first.save_open_round(tmp_path / "open.parquet")
    first.add(rounds[2][20:])
    first.finish_round()  # beyond the checkpoint
    again = ReplayBuffer(tmp_path / "resumed", rules)
    again.rewind(1)
    again.load_open_round(tmp_path / "open.parquet")
    again.add(rounds[2][20:])
    again.finish_round()
    again.add(rounds[3])
    again.finish_round()
    for path in sorted(whole.folder.iterdir()):
        assert (again.folder / path.name).read_bytes() == path.read_bytes()
    assert again.draw(300, 0.5) == whole.draw(300, 0.5)
    assert again.draw(300, 0.5).old


def test_an_open_round_without_groups_is_kept_too(tmp_path: Path) -> None:
    buffer = ReplayBuffer(tmp_path / "replay", ReplaySettings(), evaluation=["q"])
    for groups in ([], [group_of(2, "q", [("a", True)])]):
        buffer.add(groups)
        buffer.save_open_round(tmp_path / "open.parquet")
        other = ReplayBuffer(tmp_path / "other", ReplaySettings())
        other.load_open_round(tmp_path / "open.parquet")
        assert (other.finish_round() is None) == (groups == [])
    assert other.last_round == 2
    pq.write_table(pa.table({"a": [1]}), tmp_path / "else.parquet")
    with pytest.raises(DataError, match="save_open_round"):
        other.load_open_round(tmp_path / "else.parquet")


def test_rewinding_before_the_first_round_empties_the_buffer(tmp_path: Path) -> None:
    buffer = filled(tmp_path, [plain_round(0, 2), plain_round(1, 2)], ReplaySettings())
    buffer.rewind(None)
    assert (len(buffer), buffer.last_round, list(tmp_path.iterdir())) == (0, None, [])


CHILD = """
import sys, itertools
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_replay_buffer import plain_round
from rewards.replay import ReplayBuffer, ReplaySettings
buffer = ReplayBuffer(Path(sys.argv[1]), ReplaySettings())
{prelude}
for number in itertools.count():
    buffer.add(plain_round(number, 300))
    buffer.finish_round()
"""


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for child in started:
        child.kill()
        child.wait()


def start(folder: Path, prelude: str = "") -> subprocess.Popen[bytes]:
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", CHILD.format(prelude=prelude), str(folder), str(Path(__file__).parent)]
    return subprocess.Popen(command, cwd=root)


def test_a_kill_before_the_rename_loses_that_shard_and_says_so(tmp_path: Path) -> None:
    # The system call that puts the second shard in place ends the process instead.
    prelude = """
import os
def replace(a, b, real=os.replace):
    if b.name == "round_000001.parquet": os._exit(9)
    real(a, b)
os.replace = replace"""
    assert start(tmp_path, prelude).wait() == 9
    buffer = ReplayBuffer(tmp_path, ReplaySettings())
    (said,) = buffer.found
    assert ".writing-round_000001.parquet" in said
    assert [group.round for group in buffer.groups()] == [0] * 300
    buffer.add(plain_round(1, 300))
    buffer.finish_round()
    assert ReplayBuffer(tmp_path, ReplaySettings()).found == ()


def test_killed_at_any_moment_every_finished_shard_is_whole(
    tmp_path: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    children.append(start(tmp_path))
    while not (tmp_path / "round_000002.parquet").exists():
        assert children[0].poll() is None
        time.sleep(0.01)
    os.kill(children[0].pid, signal.SIGKILL)
    children[0].wait()
    buffer = ReplayBuffer(tmp_path, ReplaySettings())
    last = buffer.last_round
    assert last is not None
    assert list(buffer.groups()) == [group for r in range(last + 1) for group in plain_round(r, 300)]
    assert len(buffer.found) <= 1


def test_a_shard_that_is_broken_foreign_or_renamed_is_named(tmp_path: Path) -> None:
    filled(tmp_path, [plain_round(0, 1)], ReplaySettings())
    shard = tmp_path / "round_000000.parquet"
    shard.rename(tmp_path / "round_000007.parquet")
    with pytest.raises(DataError, match=r"round_000007.*another round"):
        ReplayBuffer(tmp_path, ReplaySettings())
    (tmp_path / "round_000007.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"round_000007.*cannot be read"):
        ReplayBuffer(tmp_path, ReplaySettings())
    pq.write_table(pa.table({"a": [1]}), tmp_path / "round_000007.parquet")
    with pytest.raises(DataError, match=r"round_000007.*other columns"):
        ReplayBuffer(tmp_path, ReplaySettings())


def test_held_out_questions_are_never_drawn_and_can_be_read(tmp_path: Path) -> None:
    rules = ReplaySettings(seed=3, heldout_share=0.25)
    rounds = [plain_round(number, 200) for number in range(3)]
    buffer = filled(tmp_path, rounds, rules)
    held_out = list(buffer.held_out_groups())
    assert held_out == [g for groups in rounds for g in groups if is_held_out(g.problem.prompt, rules)]
    assert 100 < len(held_out) < 200
    questions = {group.problem.prompt for group in held_out}
    drawn = buffer.draw(10_000)
    assert drawn.history_share == pytest.approx(0.1, abs=0.01)
    assert not questions & {one.sample.problem.prompt for one in (*drawn.new, *drawn.old)}
    everything = ReplayBuffer(tmp_path, ReplaySettings(seed=3))
    assert list(everything.held_out_groups()) == []
    other = replace(rules, seed=4)
    assert questions != {g.problem.prompt for g in ReplayBuffer(tmp_path, other).held_out_groups()}
    with pytest.raises(ConfigError, match=r"heldout_share=1\.0"):
        ReplaySettings(heldout_share=1.0)
